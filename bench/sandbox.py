"""A query through the sandbox beside the same query on a bare Oxigraph store in this process.

Both hold the same parts, and both answers are decoded to the last term. Between two
queries of the last line there is a write, which the sandbox's worker has to follow first;
its time there includes that, the bare store's does not. The floor is an empty query through
the sandbox: what asking another process costs. Last comes what a caller of deadly queries
does to another caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final

import pyoxigraph as ox

from bench.measure import OUT, Goal, Result, Times, clock, interleave
from bench.parts import values
from trails.errors import LimitError
from trails.model.history import Position
from trails.sandbox.limits import Limits
from trails.sandbox.pool import Sandbox
from trails.sandbox.workers import CommitDelta

EX: Final = "http://example.org/"
PARTS: Final = 100_000
DEADLY: Final = 50
BARE: Final = "bare Oxigraph in this process · an empty query through the sandbox"
GROUP: Final = (
    f"SELECT ?state (COUNT(*) AS ?n) (AVG(?score) AS ?mean) {{ ?part <{EX}site> 'S-07' ; "
    f"<{EX}state> ?state ; <{EX}score> ?score }} GROUP BY ?state"
)
LIST: Final = f"SELECT ?part ?title {{ ?part <{EX}site> 'S-07' ; <{EX}title> ?title }}"


def run(*, quick: bool) -> list[Result]:
    """Tiny queries, large ones, and tiny ones with writes between them."""
    parts, rounds = (2_000, 100) if quick else (PARTS, 1_500)
    with TemporaryDirectory(dir=OUT) as folder:
        line = Line(Path(folder) / "store", parts)
        line.store.backup(Path(folder) / "bare")
        bare = ox.Store(Path(folder) / "bare")
        bare.optimize()
        sandbox = Sandbox(Path(folder) / "scratch", Limits(seconds=60))
        try:
            return list(_measure(sandbox, line, bare, parts, rounds))
        finally:
            sandbox.close()


def _measure(
    sandbox: Sandbox, line: Line, bare: ox.Store, parts: int, rounds: int
) -> Iterator[Result]:
    def ours(text: str) -> object:
        return sandbox.query(line, text, caller="bench").rows

    def peer(text: str) -> object:
        return tuple(map(tuple, bare.query(text)))

    def side_by_side(name: str, texts: Callable[[], str], goal: Goal, turns: int) -> Result:
        floor = partial(ours, "SELECT * {}")
        calls = {
            "ours": lambda: ours(texts()),
            "peer": lambda: peer(texts()),
            "floor": floor,
        }
        return _result(name, interleave(calls, turns), goal)

    numbers = count()

    def one_part() -> str:
        return f"SELECT ?p ?o {{ <{EX}part/{next(numbers) * 7919 % parts}> ?p ?o }}"

    def one_lot() -> str:
        return (
            f"SELECT ?part ?title ?score {{ ?part <{EX}lot> 'L-{next(numbers) % 10_000:04}' ; "
            f"<{EX}title> ?title ; <{EX}score> ?score }}"
        )

    for text in (GROUP, LIST, *(one_lot() for _ in range(rounds))):  # fill both caches
        ours(text)
        peer(text)
    yield side_by_side("query: one part", one_part, Goal("<=", 2.5), rounds)
    yield side_by_side("query: one lot", one_lot, Goal("<=", 2.5), rounds)
    yield side_by_side("query: group one site", lambda: GROUP, Goal("<=", 1.5), rounds // 15)
    yield side_by_side("query: list one site", lambda: LIST, Goal("<=", 1.5), rounds // 15)
    times: dict[str, list[float]] = {"ours": [], "peer": [], "floor": []}
    for number in range(rounds):
        delta = statements(parts + number)
        line.commit(delta)
        bare.update(f"INSERT DATA {{ {delta} }}")
        text = one_part()
        times["ours"].append(clock(partial(ours, text)))
        times["peer"].append(clock(partial(peer, text)))
        times["floor"].append(clock(partial(ours, "SELECT * {}")))
    followed = {name: Times(seconds) for name, seconds in times.items()}
    yield _result("query: one part, after a write", followed, Goal("<=", 3.5))
    yield _fairness(lambda: ours(one_part()), partial(_kill, sandbox, line), rounds)


def _fairness(good: Callable[[], object], deadly: Callable[[], None], rounds: int) -> Result:
    """The slowest of the good queries, while another caller sends deadly ones."""
    quiet = Times([clock(good) for _ in range(rounds)])
    stream = Thread(target=lambda: [deadly() for _ in range(DEADLY)])
    stream.start()
    busy: list[float] = []
    while stream.is_alive():
        busy.append(clock(good))
    stream.join()
    return Result(
        f"query: p99 beside {DEADLY} deadly ones",
        "ms",
        Times(busy).p99 * 1e3,
        quiet.p99 * 1e3,
        quiet.p50 * 1e3,
        Goal("<=", 5),
        "p99 when it is quiet · median when it is quiet",
        {"p50": Times(busy).p50 * 1e3, "good": len(busy)},
    )


def _kill(sandbox: Sandbox, line: Line) -> None:
    """One query that has to be killed."""
    text = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }"
    with suppress(LimitError):
        sandbox.query(line, text, caller="eve", limits=Limits(seconds=0.5))


def _result(name: str, times: dict[str, Times], goal: Goal) -> Result:
    return Result(
        name,
        "ms",
        times["ours"].p50 * 1e3,
        times["peer"].p50 * 1e3,
        times["floor"].p50 * 1e3,
        goal,
        BARE,
        {"p99": times["ours"].p99 * 1e3, "peer_p99": times["peer"].p99 * 1e3},
    )


def statements(number: int) -> str:
    """A part as N-Quads."""
    return "".join(
        f"<{EX}part/{number}> <{EX}{name}> {_term(value)} .\n"
        for name, value in values(number).items()
    )


def _term(value: object) -> ox.Literal:
    return ox.Literal(value if isinstance(value, int | float) else str(value))


class Line:
    """A store with parts, and the commits made since."""

    key = "bench"

    def __init__(self, folder: Path, parts: int) -> None:
        self.store = ox.Store(folder)
        for start in range(0, parts, 10_000):
            numbers = range(start, min(parts, start + 10_000))
            text = "".join(map(statements, numbers))
            self.store.bulk_load(text, ox.RdfFormat.N_QUADS)
        self.store.optimize()
        self._commits: list[CommitDelta] = []

    def commit(self, added: str) -> None:
        """One more part."""
        self.store.update(f"INSERT DATA {{ {added} }}")
        seq = len(self._commits) + 1
        self._commits.append(CommitDelta(Position(seq, str(seq)), b"", added.encode()))

    def head(self) -> Position:
        """The last commit."""
        return self._commits[-1].position if self._commits else Position(0, "")

    def checkpoint(self, folder: Path) -> Position:
        """A copy of the store."""
        self.store.backup(folder)
        return self.head()

    def deltas(self, after: Position, until: Position) -> Sequence[CommitDelta]:
        """What was committed between."""
        return self._commits[after.seq : until.seq]
