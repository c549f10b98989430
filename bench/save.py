"""One durable, validated save beside the two bare writes that it can't do without.

Ours is ``Part(...).save(ctx)`` on a project on disk. The peer writes what that
save wrote, the same bytes and the same statements: one SQLite append with
``synchronous=FULL``, and one Oxigraph update. The floor is the append alone.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyoxigraph as ox

from bench.measure import OUT, Goal, Result, Times, clock
from bench.parts import Part, make_project, nodes
from trails import App
from trails.engine.graph.graph import Graph

BASE = 20_000


def run(*, quick: bool) -> list[Result]:
    """Save one by one into a graph that holds some thousands already."""
    rounds, base = (100, 1_000) if quick else (1_500, BASE)
    ours: list[float] = []
    appends: list[float] = []
    updates: list[float] = []
    with TemporaryDirectory(dir=OUT) as folder, App.open(make_project(Path(folder))) as app:
        ctx = app.context(actor="bench")
        graph = app.graph()
        ctx.kg.save_all(nodes(Part, base))
        bare = Bare(Path(folder), graph)
        for node in nodes(Part, rounds, start=base):
            ours.append(clock(partial(node.save, ctx)))
            record, statements = bare.last_commit()
            appends.append(clock(partial(bare.append, record)))
            updates.append(clock(partial(bare.update, statements)))
    both = Times([sum(pair) for pair in zip(appends, updates, strict=True)])
    return [
        Result(
            "save one instance, durably",
            "ms",
            Times(ours).p50 * 1e3,
            both.p50 * 1e3,
            Times(appends).p50 * 1e3,
            Goal("<=", 1.4),
            "bare SQLite FULL append + bare Oxigraph update · the append alone",
            {
                "p99": Times(ours).p99 * 1e3,
                "peer_p99": both.p99 * 1e3,
                "peer_update": Times(updates).p50 * 1e3,
                "base": base,
                "rounds": rounds,
            },
        )
    ]


class Bare:
    """SQLite and Oxigraph as they come, with the same data in them."""

    def __init__(self, folder: Path, graph: Graph) -> None:
        self._graph = graph
        self._log = sqlite3.connect(folder / ".trails" / "graphs" / graph.name / "log.db")
        self._db = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE log (seq INTEGER PRIMARY KEY, record BLOB, removed BLOB, added BLOB)"
        )
        self._store = ox.Store(folder / "bare")
        self._store.bulk_load(self.last_commit()[1].encode(), format=ox.RdfFormat.N_QUADS)

    def last_commit(self) -> tuple[tuple[object, ...], str]:
        """The bytes that our log holds for the newest commit, and its statements."""
        commit = self._graph.log.commit(self._graph.main.head.commit)
        if commit is None:
            raise AssertionError("nothing was saved")
        record = self._log.execute(
            "SELECT record, removed, added FROM commits WHERE seq = ?", (commit.seq,)
        ).fetchone()
        with self._graph.log.open_added(commit) as text:
            return record, text.read().decode()

    def append(self, record: tuple[object, ...]) -> None:
        """One durable row."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO log (record, removed, added) VALUES (?, ?, ?)", record)
        self._db.execute("COMMIT")

    def update(self, statements: str) -> None:
        """One update of the store."""
        self._store.update(f"INSERT DATA {{ {statements} }}")
