"""The ten nearest of 100,000 vectors of 384 numbers, and what a write costs the next search.

The peer is numpy alone, on the same numbers in one matrix: a product, the ten best by
``argpartition``, sorted. Ours is ``.nearest`` of the ORM on a project in a folder: it reads the
records, compares candidates in double precision and breaks ties, and is right after every write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.measure import Goal, Result, Times, clock, interleave
from trails import App, Node, Vector, node_type, predicate
from trails.app.settings import GraphSettings, Project, Settings

HITS: Final = 10
DIMENSION: Final = 384
Matrix = NDArray[np.float32]


@node_type
class Passage(Node):
    """A text with an embedding."""

    code: str = predicate(key=True)
    color: str = predicate()
    place: Vector(DIMENSION) = predicate()  # type: ignore[valid-type]


def run(*, quick: bool) -> list[Result]:
    """Store the vectors, then ask both the same."""
    count, rounds = (2_000, 10) if quick else (100_000, 100)
    chance = np.random.default_rng(7)
    rows = chance.normal(size=(count, DIMENSION)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = chance.normal(size=(rounds + 4, DIMENSION)).astype(np.float32)
    with TemporaryDirectory() as folder:
        settings = Settings(Project("bench"), {"main": GraphSettings()})
        with App(Passage, settings=settings, folder=Path(folder)) as app:
            app.context().kg.save_all(_passages(rows))
            return _measure(app, rows, wanted, rounds)


def _passages(rows: Matrix) -> Iterator[Passage]:
    for number, row in enumerate(rows):
        color = "red" if number % 3 else "blue"
        yield Passage(code=f"p{number:06}", color=color, place=row.tolist())


def _measure(app: App, rows: Matrix, wanted: Matrix, rounds: int) -> list[Result]:
    ctx = app.context()
    passages = Passage.objects(ctx)
    queries = [each.tolist() for each in wanted]
    first = clock(lambda: passages.nearest("place", queries[0], HITS))
    turns = {"ours": 0, "peer": 0, "filtered": 0}

    def query(name: str) -> int:
        turns[name] += 1
        return turns[name] % len(queries)

    def ours() -> list[str]:
        found = passages.nearest("place", queries[query("ours")], HITS)
        return [each.code for each, _ in found]

    def peer() -> list[str]:
        return [f"p{at:06}" for at in _bare(rows, wanted[query("peer")])]

    def filtered() -> object:
        red = passages.where(color="red")
        return red.nearest("place", queries[query("filtered")], HITS)

    if ours() != peer():
        raise AssertionError("the nearest are not those of numpy")
    times = interleave({"ours": ours, "peer": peer, "filtered": filtered}, rounds)
    written = Times([_after_write(app, at, queries[at % len(queries)]) for at in range(rounds)])
    return [
        Result(
            f"nearest {HITS} of {len(rows):,} x {DIMENSION}",
            "ms",
            times["ours"].p50 * 1e3,
            times["peer"].p50 * 1e3,
            times["peer"].p50 * 1e3,
            Goal("<=", 2),
            "numpy alone, the same matrix · the same",
            {
                "p99": times["ours"].p99 * 1e3,
                "peer p99": times["peer"].p99 * 1e3,
                "filtered": times["filtered"].p50 * 1e3,
                "after a write": written.p50 * 1e3,
                "first": first * 1e3,
                "bytes": app.graph().vectors.size(),
                "matrix bytes": rows.nbytes,
            },
        )
    ]


def _bare(rows: Matrix, wanted: Matrix) -> NDArray[np.intp]:
    scores = rows @ wanted
    best = np.argpartition(scores, -HITS)[-HITS:]
    found: NDArray[np.intp] = best[np.argsort(-scores[best])]
    return found


def _after_write(app: App, at: int, wanted: list[float]) -> float:
    """How long the first search after a write takes, which finds what was written."""
    ctx = app.context()
    Passage(code=f"new{at}", color="red", place=wanted).save(ctx)
    found: list[str] = []

    def ask() -> None:
        nearest = Passage.objects(ctx).nearest("place", wanted, HITS)
        found.extend(each.code for each, _ in nearest)

    seconds = clock(ask)
    if f"new{at}" not in found:
        raise AssertionError("what was written is not found")
    return seconds
