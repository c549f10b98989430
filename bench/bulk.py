"""Bulk save in one commit beside ``Store.bulk_load`` of the same statements as text.

Once with nodes that refer to each other, once without. Each side runs in a process of its own,
which also reports its processor time and peak memory; sides take turns. Ours makes the instances
in a generator, validates, logs, indexes and loads them; the peer only parses and loads.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

import msgspec
import pyoxigraph as ox

from bench.measure import OUT, Goal, Result, clock
from bench.parts import Linked, Part, linked_nodes, make_project, nodes
from trails import App

_ROUNDS: Final = 3
_MAKERS: Final = {Part.__name__: lambda count: nodes(Part, count), Linked.__name__: linked_nodes}


class Measured(msgspec.Struct):
    """What one process reports."""

    triples: int
    seconds: float
    cpu_seconds: float
    peak_mb: float

    @property
    def rate(self) -> float:
        """Statements a second by the clock."""
        return self.triples / self.seconds

    @property
    def cpu_rate(self) -> float:
        """Statements in a second of processor time, of all threads."""
        return self.triples / self.cpu_seconds


def run(*, quick: bool) -> list[Result]:
    """Ours and the peer in turns, then ours with a quarter of the nodes; for both types."""
    count = 5_000 if quick else 200_000
    return [
        _compare(Part.__name__, "without references", count, 1 if quick else _ROUNDS),
        _compare(Linked.__name__, "with references", count, 1 if quick else _ROUNDS),
    ]


def _compare(type_name: str, which: str, count: int, rounds: int) -> Result:
    ours, peer = list[Measured](), list[Measured]()
    with TemporaryDirectory(dir=OUT) as name:
        folder = Path(name)
        text = folder / "statements.nq"
        for turn in range(rounds):
            ours.append(_measure("ours", type_name, folder / f"ours-{turn}", text, count))
            peer.append(_measure("peer", type_name, folder / f"peer-{turn}", text, count))
        small = _measure("ours", type_name, folder / "small", folder / "small.nq", count // 4)
    rate, peer_rate = (median(each.rate for each in side) for side in (ours, peer))
    cpu, peer_cpu = (median(each.cpu_rate for each in side) for side in (ours, peer))
    return Result(
        f"bulk save of {count:,} instances {which}, one commit",
        "triples/s",
        rate,
        peer_rate,
        peer_rate,
        Goal(">=", 0.7),
        "bare bulk_load of the same text · the same",
        {
            "triples": ours[0].triples,
            "rate_by_processor_time": cpu,
            "peer_rate_by_processor_time": peer_cpu,
            "ratio_by_processor_time": cpu / peer_cpu,
            "peak_mb": ours[0].peak_mb,
            "peak_mb_of_a_quarter": small.peak_mb,
            "peer_peak_mb": peer[0].peak_mb,
        },
    )


def _measure(side: str, type_name: str, folder: Path, text: Path, count: int) -> Measured:
    done = subprocess.run(
        [sys.executable, "-m", "bench.bulk", side, type_name, str(folder), str(text), str(count)],
        check=True,
        capture_output=True,
    )
    shutil.rmtree(folder, ignore_errors=True)
    return msgspec.json.decode(done.stdout, type=Measured)


def _ours(type_name: str, folder: Path, text: Path, count: int) -> Measured:
    with App.open(make_project(folder)) as app:
        ctx = app.context(actor="bench")
        begun = process_time()
        seconds = clock(lambda: ctx.kg.save_all(_MAKERS[type_name](count)))
        spent, peak = process_time() - begun, _peak_mb()
        graph = app.graph()
        commit = graph.log.commit(graph.main.head.commit)
        if commit is None:
            raise AssertionError("nothing was saved")
        with graph.log.open_added(commit) as statements, text.open("wb") as file:
            shutil.copyfileobj(statements, file)
        return Measured(commit.added, seconds, spent, peak)


def _peer(_: str, folder: Path, text: Path, __: int) -> Measured:
    store = ox.Store(folder)
    begun = process_time()
    seconds = clock(lambda: store.bulk_load(path=text, format=ox.RdfFormat.N_QUADS, lenient=True))
    return Measured(len(store), seconds, process_time() - begun, _peak_mb())


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    sides = {"ours": _ours, "peer": _peer}
    side, type_name, folder, text, count = sys.argv[1:]
    measured = sides[side](type_name, Path(folder), Path(text), int(count))
    sys.stdout.buffer.write(msgspec.json.encode(measured))
