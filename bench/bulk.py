"""Bulk save in one commit beside ``Store.bulk_extend`` of the same quads, already built.

Each side runs in a process of its own, which also tells its peak memory. Ours
makes the instances in a generator, validates, logs, indexes and loads them; the
peer only loads. The floor is ``Store.bulk_load`` of the same statements as text.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyoxigraph as ox

from bench.measure import OUT, Goal, Result, clock
from bench.parts import Part, make_project, nodes
from trails import App


class Measured(msgspec.Struct):
    """What one process reports."""

    triples: int
    seconds: float
    peak_mb: float

    @property
    def rate(self) -> float:
        """Statements a second."""
        return self.triples / self.seconds


def run(*, quick: bool) -> list[Result]:
    """Ours, the peer and the floor, one after the other; then ours with a quarter of it."""
    count = 5_000 if quick else 200_000
    with TemporaryDirectory(dir=OUT) as folder:
        text = Path(folder) / "statements.nq"
        ours = _measure("ours", Path(folder) / "ours", text, count)
        peer = _measure("peer", Path(folder) / "peer", text, count)
        floor = _measure("floor", Path(folder) / "floor", text, count)
        again = _measure("ours", Path(folder) / "again", text, count)
        small = _measure("ours", Path(folder) / "small", text, count // 4)
    best = max(ours, again, key=lambda each: each.rate)
    return [
        Result(
            f"bulk save of {count:,} instances, one commit",
            "triples/s",
            (ours.rate + again.rate) / 2,
            peer.rate,
            floor.rate,
            Goal(">=", 0.5),
            "bare bulk_extend of built quads · bare bulk_load of text",
            {
                "triples": ours.triples,
                "best_rate": best.rate,
                "peak_mb": ours.peak_mb,
                "peak_mb_of_a_quarter": small.peak_mb,
                "peer_peak_mb": peer.peak_mb,
                "floor_peak_mb": floor.peak_mb,
            },
        )
    ]


def _measure(side: str, folder: Path, text: Path, count: int) -> Measured:
    done = subprocess.run(
        [sys.executable, "-m", "bench.bulk", side, str(folder), str(text), str(count)],
        check=True,
        capture_output=True,
    )
    return msgspec.json.decode(done.stdout, type=Measured)


def _ours(folder: Path, text: Path, count: int) -> Measured:
    with App.open(make_project(folder)) as app:
        ctx = app.context(actor="bench")
        seconds = clock(lambda: ctx.kg.save_all(nodes(Part, count)))
        peak = _peak_mb()
        graph = app.graph()
        commit = graph.log.commit(graph.main.head.commit)
        if commit is None:
            raise AssertionError("nothing was saved")
        with graph.log.open_added(commit) as statements, text.open("wb") as file:
            shutil.copyfileobj(statements, file)
        return Measured(commit.added, seconds, peak)


def _peer(folder: Path, text: Path, _: int) -> Measured:
    quads = list(ox.parse(path=text, format=ox.RdfFormat.N_QUADS))
    store = ox.Store(folder)
    return Measured(len(quads), clock(lambda: store.bulk_extend(quads)), _peak_mb())


def _floor(folder: Path, text: Path, _: int) -> Measured:
    store = ox.Store(folder)
    seconds = clock(lambda: store.bulk_load(path=text, format=ox.RdfFormat.N_QUADS, lenient=True))
    return Measured(len(store), seconds, _peak_mb())


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    sides = {"ours": _ours, "peer": _peer, "floor": _floor}
    side, folder, text, count = sys.argv[1:]
    measured = sides[side](Path(folder), Path(text), int(count))
    sys.stdout.buffer.write(msgspec.json.encode(measured))
