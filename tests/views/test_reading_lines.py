"""Statements that are read line by line mean what the parser finds in them."""

from __future__ import annotations

import io
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.views.test_terms import TERMS, VALUES, Thing

from trails import LangText, Node, Ref, node_type, predicate
from trails.model.iris import Names
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.views import terms
from trails.views.lines import Change
from trails.views.terms import Terms


@node_type
class Page(Node):
    """What the values of a thing leave out."""

    title: LangText | None = predicate()
    steps: list[str] = predicate(ordered=True)
    things: list[Ref[Thing]] = predicate()


ALL = Terms(Schema.of([Thing.__trails__, Page.__trails__]), Names("https://example.org/graph"))
PAGE = {
    "title": LangText(en='"a"', de="b\\n\n"),
    "steps": ("a", "b", "a"),
    "things": ("Thing/a%20b", "Thing/ü".encode("ascii", "ignore").decode() + "x"),
}


def told(changes: dict[str, Change]) -> dict[str, object]:
    """Changes, to be compared."""
    return {
        handle: (each.new, each.gone, each.added, each.removed) for handle, each in changes.items()
    }


def joined(parts: list[dict[str, Change]]) -> dict[str, object]:
    """Changes that were found in parts, which a node may be spread over."""
    found: dict[str, Change] = {}
    for part in parts:
        for handle, each in part.items():
            whole = found.setdefault(handle, Change())
            whole.new, whole.gone = whole.new or each.new, whole.gone or each.gone
            for mine, other in ((whole.added, each.added), (whole.removed, each.removed)):
                for name, values in other.items():
                    mine.setdefault(name, []).extend(values)
    return told(found)


def parsed(text: bytes, *, adding: bool) -> dict[str, object] | None:
    """What the parser finds; None if it refuses the text, or an ordered list in it."""
    try:
        quads = list(ALL.parse(text))
        return told(ALL.changes((), quads) if adding else ALL.changes(quads, ()))
    except (SyntaxError, ValueError):
        return None


def read(text: bytes, *, adding: bool) -> dict[str, object] | None:
    """The same, line by line."""
    try:
        return joined(list(ALL.read_changes(io.BytesIO(text), adding=adding)))
    except (SyntaxError, ValueError):
        return None


def lines() -> list[str]:
    """Statements of all kinds."""
    return [
        *TERMS.statements(NodeState("Thing", 'n/"1"', VALUES)),
        *ALL.statements(NodeState("Page", "p", PAGE)),
        *ALL.statements(NodeState("Page", "q", {"title": LangText(en="x")})),
    ]


@pytest.mark.parametrize("adding", [True, False])
def test_every_kind(adding: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of value is read as the parser reads it, and without the parser."""
    plain = [each for each in lines() if "\\u" not in each and "steps" not in each]
    text = "".join(plain).encode()
    expected = parsed(text, adding=adding)
    monkeypatch.setattr(terms, "_parse_lines", lambda *_, **__: pytest.fail("was parsed"))
    assert expected
    assert read(text, adding=adding) == expected


def test_ordered_lists() -> None:
    """A packed list is read by the parser."""
    text = "".join(lines()).encode()
    assert read(text, adding=True) == parsed(text, adding=True)


def test_a_large_text_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts end where lines end."""
    monkeypatch.setattr(terms, "_SOME_LINES", 300)
    text = "".join(lines()).encode()
    assert len(list(ALL.read_changes(io.BytesIO(text), adding=True))) > 3
    assert read(text, adding=True) == parsed(text, adding=True)


NOISE = [
    "",
    "\n",
    " ",
    "<",
    ">",
    '"',
    "\\",
    "\\u0041",
    "\\U0001F600",
    "\\x",
    "\t",
    "\r",
    "\x00",
    "%",
    "%zz",
    "%41",
    "#c",
    "@en",
    "@EN",
    "@e_n",
    "^^<http://www.w3.org/2001/XMLSchema#string>",
    "^^<http://www.w3.org/2001/XMLSchema#integer>",
    " <https://example.org/g>",
    "_:b",
    "é",
    "\u2028",
    "\x85",
    " .",
    " .\n",
    "/",
    "Page",
    "Other",
    "?",
    "{",
    "`",
    "# comment",
]


@settings(max_examples=600, deadline=None)
@given(seed=st.integers(0, 2**32), adding=st.booleans())
def test_damaged_lines(seed: int, adding: bool) -> None:
    """It takes no line that the parser refuses or reads otherwise."""
    rng = random.Random(seed)
    some = rng.sample(lines(), rng.randrange(1, 6))
    text = "".join(some)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice([0, 0, 1, 2, 5]))
        text = text[:at] + rng.choice(NOISE) + text[end:]
    if rng.random() < 0.2:
        cuts = sorted(rng.sample(range(len(text) + 1), 2))
        text = text[: cuts[0]] + text[cuts[1] :]
    assert read(text.encode(), adding=adding) == parsed(text.encode(), adding=adding)


def test_swapped_parts() -> None:
    """Predicates, objects and subjects in the wrong places."""
    parts = [each.removesuffix(" .\n").split(" ", 2) for each in lines()]
    for one, two in pairwise(parts):
        for line in (
            [one[0], two[1], one[2]],
            [one[0], one[1], two[2]],
            [two[0], one[1], one[2]],
            [one[1], one[0], one[2]],
            [one[0], one[1], one[1]],
        ):
            text = (" ".join(line) + " .\n").encode()
            assert read(text, adding=True) == parsed(text, adding=True)
