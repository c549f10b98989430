"""A validated NDJSON load beside bare ``bulk_load`` of the same statements as N-Triples.

Each side runs in a process of its own, which also tells its peak memory, worker
processes included. Ours reads, checks, logs, indexes and loads; the peer only
parses and loads.
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
from bench.parts import make_project, values
from trails import App
from trails.engine.transfer.load import load_lines
from trails.engine.write.write import Write


class Measured(msgspec.Struct):
    """What one process reports."""

    triples: int
    seconds: float
    peak_mb: float
    workers_mb: float = 0.0

    @property
    def rate(self) -> float:
        """Statements a second."""
        return self.triples / self.seconds


def run(*, quick: bool) -> list[Result]:
    """Ours and the peer with a million instances, then ours with a fifth of them."""
    count = 10_000 if quick else 1_000_000
    with TemporaryDirectory(dir=OUT) as name:
        folder = Path(name)
        ours = _measure("ours", folder, count)
        peer = _measure("peer", folder, count)
        small = _measure("ours", folder, count // 5)
    return [
        Result(
            f"validated NDJSON load of {count:,} instances",
            "triples/s",
            ours.rate,
            peer.rate,
            peer.rate,
            Goal(">=", 0.5),
            "bare bulk_load of N-Triples · the same",
            {
                "triples": ours.triples,
                "seconds": ours.seconds,
                "peak_mb": ours.peak_mb,
                "peak_mb_of_workers": ours.workers_mb,
                "peak_mb_of_a_fifth": small.peak_mb,
                "rate_of_a_fifth": small.rate,
                "peer_seconds": peer.seconds,
                "peer_peak_mb": peer.peak_mb,
            },
        )
    ]


def _measure(side: str, folder: Path, count: int) -> Measured:
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", side, str(folder), str(count)],
        check=True,
        capture_output=True,
    )
    return msgspec.json.decode(done.stdout, type=Measured)


def _ours(folder: Path, count: int) -> Measured:
    path = folder / "lines.ndjson"
    with path.open("wb") as file:
        for number in range(count):
            file.write(msgspec.json.encode({"type": "Part", "data": values(number)}) + b"\n")
    project = make_project(folder / f"ours-{count}")
    with App.open(project) as app:
        graph = app.graph()

        def load() -> None:
            write = Write(graph, graph.main, actor="bench", message="load")
            write.begin()
            load_lines(write, graph.main.schema, graph.names, path)
            write.finish()

        seconds = clock(load)
        peak, workers = _peak_mb(resource.RUSAGE_SELF), _peak_mb(resource.RUSAGE_CHILDREN)
        commit = graph.log.commit(graph.main.head.commit)
        if commit is None:
            raise AssertionError("nothing was loaded")
        with (
            graph.log.open_added(commit) as statements,
            (folder / "statements.nt").open("wb") as text,
        ):
            shutil.copyfileobj(statements, text)
    shutil.rmtree(project)
    return Measured(commit.added, seconds, peak, workers)


def _peer(folder: Path, _: int) -> Measured:
    store = ox.Store(folder / "peer")
    text = folder / "statements.nt"
    seconds = clock(lambda: store.bulk_load(path=text, format=ox.RdfFormat.N_TRIPLES))
    return Measured(len(store), seconds, _peak_mb(resource.RUSAGE_SELF))


def _peak_mb(who: int) -> float:
    peak = resource.getrusage(who).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    sides = {"ours": _ours, "peer": _peer}
    side, folder, count = sys.argv[1:]
    sys.stdout.buffer.write(msgspec.json.encode(sides[side](Path(folder), int(count))))
