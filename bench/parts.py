"""What is stored: parts on stock, made up from their number, and their makers.

The values come from cheap arithmetic, so that making them is a small share of
what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from trails import Node, Ref, node_type, predicate

LOTS: Final = 10_000
SITES: Final = 100
DAYS: Final = 10_000
SCORES: Final = 1_000_000
GRADES: Final = 5
MAKERS: Final = 10_000
CITIES: Final = 100
REGIONS: Final = 5
WORDS: Final = ("bearing", "flange", "gasket", "housing", "piston", "rotor", "shaft", "valve")
FIRST_DAY: Final = date(2000, 1, 1)
COLUMNS: Final = (
    "code",
    "title",
    "lot",
    "site",
    "state",
    "score",
    "weight",
    "made",
    "grade",
    "maker",
)
MAKER_COLUMNS: Final = ("code", "city", "region")


@node_type
class Part(Node):
    """A part, with ten constraints on its values."""

    code: str = predicate(key=True, pattern=r"^P-[0-9]{8}$")
    title: str = predicate(min_length=1, max_length=120)
    lot: str = predicate(pattern=r"^L-[0-9]{4}$")
    site: str = predicate(max_length=8)
    state: str = predicate(one_of=["open", "done"])
    score: int = predicate(min_value=0, max_value=SCORES)
    weight: float = predicate(min_value=0, max_value=1000)
    made: date = predicate()


@node_type
class Maker(Node):
    """Who makes items: every city and every region has as many."""

    code: str = predicate(key=True)
    city: str = predicate()
    region: str = predicate()


@node_type
class Linked(Node):
    """A part that refers to three others."""

    code: str = predicate(key=True, pattern=r"^P-[0-9]{8}$")
    title: str = predicate(min_length=1, max_length=120)
    lot: str = predicate(pattern=r"^L-[0-9]{4}$")
    site: str = predicate(max_length=8)
    state: str = predicate(one_of=["open", "done"])
    score: int = predicate(min_value=0, max_value=SCORES)
    weight: float = predicate(min_value=0, max_value=1000)
    made: date = predicate()
    parent: Ref[Linked] | None = predicate()
    related: list[Ref[Linked]] = predicate()


@node_type(index=[("lot", "made"), ("site", "score"), ("state", "title")])
class Item(Node):
    """A part that is listed, sorted and paged, with its maker and three declared indexes."""

    code: str = predicate(key=True)
    title: str = predicate()
    lot: str = predicate()
    site: str = predicate()
    state: str = predicate()
    score: int = predicate()
    weight: float = predicate()
    made: date = predicate()
    grade: str = predicate()
    maker: Ref[Maker] = predicate()


def values(number: int) -> dict[str, object]:
    """The field values of one part; every combination of fields is well mixed."""
    # Multiplying by an odd constant and taking the high bits spreads neighbours apart.
    a = number * 0x9E3779B97F4A7C15 & 0xFFFF_FFFF_FFFF_FFFF
    b = (a ^ a >> 29) * 0xBF58476D1CE4E5B9 & 0xFFFF_FFFF_FFFF_FFFF
    c = (b ^ b >> 32) * 0x94D049BB133111EB & 0xFFFF_FFFF_FFFF_FFFF
    return {
        "code": f"P-{number:08}",
        "title": f"{WORDS[a >> 61]} {WORDS[b >> 61]} {c >> 40:08}",
        "lot": f"L-{(b >> 20) % LOTS:04}",
        "site": f"S-{(c >> 16) % SITES:02}",
        "state": "open" if a >> 33 & 1 else "done",
        "score": (b >> 8) % SCORES,
        "weight": (a >> 24) % 100_000 / 100,
        "made": FIRST_DAY + timedelta(days=(c >> 30) % DAYS),
    }


def item_values(number: int) -> dict[str, object]:
    """The field values of one item."""
    mixed = number * 0xD6E8FEB86659FD93 & 0xFFFF_FFFF_FFFF_FFFF
    return {
        **values(number),
        "grade": f"G-{(mixed >> 40) % GRADES}",
        "maker": f"M-{(mixed >> 20) % MAKERS:05}",
    }


def maker_values(number: int) -> dict[str, object]:
    """The field values of one maker."""
    return {
        "code": f"M-{number:05}",
        "city": f"C-{number * 7_919 % CITIES:02}",
        "region": f"R-{number // CITIES % REGIONS}",
    }


def nodes(kind: type[Node], count: int, start: int = 0) -> Iterator[Node]:
    """New instances, one by one."""
    made = item_values if kind is Item else values
    return (kind(**made(number)) for number in range(start, start + count))


def makers() -> Iterator[Node]:
    """All makers."""
    return (Maker(**maker_values(number)) for number in range(MAKERS))


def linked_nodes(count: int) -> Iterator[Node]:
    """New instances, each of which refers to earlier ones, or to itself."""
    for number in range(count):
        parent, *related = (f"Linked/P-{number // each:08}" for each in (2, 3, 5))
        yield Linked(**values(number), parent=parent, related=related)


def columns(given: Mapping[str, object]) -> tuple[object, ...]:
    """An item as a row of an ordinary table, which has its maker by number."""
    row = dict(given)
    row["made"] = str(row["made"])
    row["maker"] = int(str(row["maker"]).removeprefix("M-"))
    return tuple(row[name] for name in COLUMNS)


def make_project(folder: Path) -> Path:
    """A project folder that uses these types."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trails.toml").write_text(
        '[project]\nname = "bench"\n\n[graphs.main]\napp = "app.py"\n', encoding="utf-8"
    )
    (folder / "app.py").write_text(
        "from bench.parts import Item, Linked, Maker, Part\n", encoding="utf-8"
    )
    return folder
