"""Reading at a million instances: by id, pages at several selectivities, pages far down, counts.

The peer of ``get`` is Oxigraph asked for the same subject; the peer of a page is
a keyset query on ordinary SQLite tables of the same rows with an index on every
column, which fetches the same columns and decodes nothing. Every page is checked
to hold the same rows in the same order on both sides.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from random import Random
from typing import Final

import msgspec
import pyoxigraph as ox
from rich.console import Console

from bench.measure import Call, Goal, Result, clock, interleave
from bench.parts import COLUMNS, DAYS, FIRST_DAY, SCORES, Item
from bench.warehouse import PEER, warehouse
from trails import App
from trails.authoring.queries import Query
from trails.engine.session.context import GraphContext

PAGE: Final = 100
SELECTED: Final = ", ".join(f"item.{name}" for name in COLUMNS)
JOINED: Final = "item JOIN maker ON maker.id = item.maker"


class Case(msgspec.Struct, frozen=True):
    """A page or a count: the conditions as we and as the peer write them, and the order."""

    share: float
    where: dict[str, object]
    sql: str
    values: tuple[object, ...]
    order: str = ""
    tables: str = "item"
    goal: float = 3

    @property
    def name(self) -> str:
        """As the table shows it."""
        condition = self.sql.replace(" ?", "")
        if not self.order:
            return f"count, {self.share * 100:g} %: {condition}"
        field = next(iter(self.where)).partition("__")[0]
        declared = " (declared)" if (field, self.order) in Item.__trails__.index else ""
        return f"page, {self.share * 100:g} %: {condition}, by {self.order}{declared}"


def cases() -> Iterator[Case]:
    """Conditions on text, number and date; the order by the same field and by others."""
    exact = {0.0001: ("lot", "L-0042"), 0.01: ("site", "S-42"), 0.5: ("state", "open")}
    for share, (field, value) in exact.items():
        for order in (field, "title", "score", "made"):
            yield Case(share, {field: value}, f"{field} = ?", (value,), order)
        score = int(SCORES * share)
        for order in ("score", "title", "made"):
            yield Case(share, {"score__lt": score}, "score < ?", (score,), order)
        day = FIRST_DAY + timedelta(days=int(DAYS * share))
        for order in ("made", "title", "score"):
            yield Case(share, {"made__lt": day}, "made < ?", (day.isoformat(),), order)


def conditions() -> Iterator[Case]:
    """A fifth of all rows in another order, two conditions, and conditions on what is referred to.

    Each is counted as well.
    """
    fifth, half = SCORES // 5, (FIRST_DAY + timedelta(days=DAYS // 2))
    grade, score = {"grade": "G-3"}, {"score__lt": fifth}
    state, made = {"state": "open"}, {"made__lt": half}
    day = half.isoformat()
    both = [
        Case(0.2, grade, "grade = ?", ("G-3",), "title", goal=2),
        Case(0.2, score, "score < ?", (fifth,), "title", goal=2),
        Case(0.1, grade | state, "grade = ? AND state = ?", ("G-3", "open"), "score", goal=2),
        Case(0.1, state | score, "state = ? AND score < ?", ("open", fifth), "title", goal=2),
        Case(0.1, score | made, "score < ? AND made < ?", (fifth, day), "title", goal=2),
        Case(0.01, {"maker__city": "C-42"}, "city = ?", ("C-42",), "title", JOINED, 2.5),
        Case(0.2, {"maker__region": "R-3"}, "region = ?", ("R-3",), "title", JOINED, 2.5),
    ]
    yield from both
    yield from (msgspec.structs.replace(each, order="", goal=3) for each in both)


def run(*, quick: bool) -> list[Result]:
    """Open the warehouse, building it if need be, and read."""
    console = Console()
    folder = warehouse(
        20_000 if quick else 1_000_000, lambda text: console.print(f"[dim]  {text}[/dim]")
    )
    peer = sqlite3.connect(folder / PEER)
    peer.execute("PRAGMA cache_size = -65536")
    with App.open(folder) as app:
        ctx = app.context(actor="bench")
        results = [_get(app, ctx, peer, 50 if quick else 1_000)]
        seconds = 0.2 if quick else 2.0
        results += [_page(ctx, peer, case, seconds) for case in cases()]
        results += [
            (_page if case.order else _count)(ctx, peer, case, seconds) for case in conditions()
        ]
        results += [_deep(ctx, peer, field, 100 if quick else 5_000) for field in ("score", "made")]
    peer.close()
    return results


def _get(app: App, ctx: GraphContext, peer: sqlite3.Connection, rounds: int) -> Result:
    graph = app.graph()
    (count,) = peer.execute("SELECT max(id) FROM item").fetchone()
    numbers = [Random(1).randrange(count) for _ in range(rounds + 50)]

    def ours(codes: Iterator[str]) -> None:
        Item.get(ctx, next(codes))

    def bare(codes: Iterator[str]) -> None:
        subject = ox.NamedNode(graph.names.node("Item", next(codes)))
        list(graph.stores.main().store.quads_for_pattern(subject, None, None, None))

    def row(codes: Iterator[str]) -> None:
        peer.execute(f"SELECT {SELECTED} FROM item WHERE code = ?", (next(codes),)).fetchone()

    def each(call: object) -> Call:
        return partial(call, (f"P-{number:08}" for number in numbers))  # type: ignore[arg-type]

    times = interleave(
        {"ours": each(ours), "peer": each(bare), "floor": each(row)}, rounds, warmup=20
    )
    return Result(
        "get by id",
        "ms",
        times["ours"].p50 * 1e3,
        times["peer"].p50 * 1e3,
        times["floor"].p50 * 1e3,
        Goal("<=", 2),
        "bare quads_for_pattern, consumed · bare SQLite row by code",
        {"p99": times["ours"].p99 * 1e3, "peer_p99": times["peer"].p99 * 1e3},
    )


def _page(ctx: GraphContext, peer: sqlite3.Connection, case: Case, seconds: float) -> Result:
    """The second page, so that a cursor is used; the only one where there is one."""
    query = Item.objects(ctx).where(**case.where).order_by(case.order)
    first = query.page(PAGE)
    last = first.items[-1] if first.next else None
    ours: Call = partial(query.page, PAGE, first.next)
    # SQLite is not always right about which index to use: its better plan is the peer.
    plans = [_bare_page(peer, case, sort, last) for sort in _sorts(case.order)]
    bare = min(plans, key=clock)
    _compare(ours, bare)
    ids = [row[0] for row in bare()]
    one = clock(ours) + clock(bare)
    times = interleave(
        {"ours": ours, "peer": bare, "floor": _bare_rows(peer, ids)},
        max(5, min(100, int(seconds / one))),
    )
    return Result(
        case.name,
        "ms",
        times["ours"].p50 * 1e3,
        times["peer"].p50 * 1e3,
        times["floor"].p50 * 1e3,
        Goal("<=", case.goal),
        "bare SQLite keyset query · the rows by number",
        {"p99": times["ours"].p99 * 1e3, "peer_p99": times["peer"].p99 * 1e3, "rows": len(ids)},
    )


def _count(ctx: GraphContext, peer: sqlite3.Connection, case: Case, seconds: float) -> Result:
    """How many there are; the floor is the row itself, which is there whatever is counted."""
    query = Item.objects(ctx).where(**case.where)
    text = f"SELECT count(*) FROM {case.tables} WHERE {case.sql}"

    def bare() -> int:
        (count,) = peer.execute(text, case.values).fetchone()
        return int(count)

    if query.count() != bare():
        raise AssertionError(f"ours {query.count()}, peer {bare()}")
    times = interleave(
        {"ours": query.count, "peer": bare, "floor": lambda: peer.execute("SELECT 1").fetchone()},
        max(5, min(100, int(seconds / (clock(query.count) + clock(bare))))),
    )
    return Result(
        case.name,
        "ms",
        times["ours"].p50 * 1e3,
        times["peer"].p50 * 1e3,
        times["floor"].p50 * 1e3,
        Goal("<=", case.goal),
        "bare SQLite count · any statement",
        {"p99": times["ours"].p99 * 1e3, "peer_p99": times["peer"].p99 * 1e3},
    )


def _deep(ctx: GraphContext, peer: sqlite3.Connection, field: str, depth: int) -> Result:
    """The page at a depth, reached by following cursors, beside the first."""
    query: Query[Item] = Item.objects(ctx).order_by(field)
    page = query.page(PAGE)
    for _ in range(depth - 2):
        page = query.page(PAGE, page.next)
    deep: Call = partial(query.page, PAGE, page.next)
    bare = _bare_page(peer, Case(1, {}, "1 = ?", (1,), field), field, page.items[-1])
    _compare(deep, bare)
    times = interleave({"ours": deep, "peer": partial(query.page, PAGE), "floor": bare}, 200)
    return Result(
        f"page {depth:,} by cursor, by {field}",
        "ms",
        times["ours"].p50 * 1e3,
        times["peer"].p50 * 1e3,
        times["floor"].p50 * 1e3,
        Goal("<=", 1.2),
        "our own first page · bare SQLite keyset query there",
    )


def _sorts(order: str) -> tuple[str, str]:
    """An order that may use its index, and one that may not."""
    return order, f"+{order}"


def _bare_page(peer: sqlite3.Connection, case: Case, sort: str, last: Item | None) -> Call:
    order = sort.removeprefix("+")
    after, bounds = "", ()
    if last is not None:
        place = getattr(last, order)
        place = place.isoformat() if order == "made" else place
        (number,) = peer.execute("SELECT id FROM item WHERE code = ?", (last.code,)).fetchone()
        after, bounds = f"AND ({sort}, item.id) > (?, ?)", (place, number)
    text = (
        f"SELECT item.id, {SELECTED} FROM {case.tables} WHERE {case.sql} {after} "
        f"ORDER BY {sort}, item.id LIMIT ?"
    )
    return lambda: peer.execute(text, (*case.values, *bounds, PAGE + 1)).fetchall()[:PAGE]


def _bare_rows(peer: sqlite3.Connection, ids: list[int]) -> Call:
    text = f"SELECT id, {SELECTED} FROM item WHERE id IN ({','.join('?' * len(ids))})"
    return lambda: peer.execute(text, ids).fetchall()


def _compare(ours: Call, bare: Call) -> None:
    codes = [item.code for item in ours().items]
    expected = [row[1] for row in bare()]
    if codes != expected:
        raise AssertionError(
            f"ours {codes[:3]}… ({len(codes)}), peer {expected[:3]}… ({len(expected)})"
        )
