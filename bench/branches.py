"""Branches and merges: what they cost on a small graph and on a large one.

The peer of a branch is the same on a thousand instances, and a copy of the files; the
peer of reads and writes on ``main`` with 200 live branches is ``main`` without them; the
peer of a merge is the same merge on ten thousand instances.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from rich.console import Console

from bench.measure import OUT, Goal, Result
from bench.parts import values
from bench.warehouse import warehouse
from trails import App
from trails.model.history import MergeRequest

CHANGED: Final = 1_000
LIVE: Final = 200


def run(*, quick: bool) -> list[Result]:
    """Fork, write and merge on copies of the warehouses."""
    console = Console()
    large_size, middle_size = (20_000, 5_000) if quick else (1_000_000, 10_000)
    rounds = 5 if quick else 15

    def say(text: str) -> None:
        console.print(f"[dim]  {text}[/dim]")

    with copied(1_000, say) as (small, _), copied(large_size, say) as (large, copying):
        say("forking")
        small_fork, _ = _forks(small, rounds)
        large_fork, disk = _forks(large, rounds)
        say(f"{LIVE} live branches")
        reads, writes = _beside_branches(large, LIVE if not quick else 20, quick=quick)
        say("merging")
        large_merge = _merges(large, 3)
    with copied(middle_size, say) as (middle, _):
        middle_merge = _merges(middle, 3)
    versus = "the same with 1,000 instances"
    return [
        Result(
            f"branch, first query, first write at {large_size:,}",
            "ms",
            large_fork * 1e3,
            small_fork * 1e3,
            small_fork * 1e3,
            Goal("<=", 3),
            versus,
        ),
        Result(
            "the same against copying the files",
            "ms",
            large_fork * 1e3,
            copying * 1e3,
            copying * 1e3,
            Goal("<=", 0.02),
            "copy of the graph's folder",
        ),
        Result(
            "disk for a branch, written to and queried",
            "MB",
            disk[0] / 1e6,
            disk[1] / 1e6,
            disk[1] / 1e6,
            Goal("<=", 0.01),
            "the graph's folder",
        ),
        Result(
            f"page on main with {LIVE} branches",
            "ms",
            reads[1] * 1e3,
            reads[0] * 1e3,
            reads[0] * 1e3,
            Goal("<=", 1.2),
            "without branches",
        ),
        Result(
            f"update on main with {LIVE} branches",
            "ms",
            writes[1] * 1e3,
            writes[0] * 1e3,
            writes[0] * 1e3,
            Goal("<=", 1.2),
            "without branches",
        ),
        Result(
            f"merge of {CHANGED:,} changed nodes at {large_size:,}",
            "ms",
            large_merge * 1e3,
            middle_merge * 1e3,
            middle_merge * 1e3,
            Goal("<=", 2),
            f"the same with {middle_size:,} instances",
        ),
    ]


@contextmanager
def copied(count: int, say: object) -> Iterator[tuple[Path, float]]:
    """A copy of a warehouse that may be changed, and how long copying its graph took."""
    source = warehouse(count, say)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(dir=OUT, prefix="branches-") as place:
        target = Path(place) / "project"
        started = perf_counter()
        shutil.copytree(source / ".trails", target / ".trails")
        took = perf_counter() - started
        for each in source.glob("*.*"):
            if each.is_file() and each.suffix in {".py", ".toml"}:
                shutil.copy(each, target)
        yield target, took


def _forks(project: Path, rounds: int) -> tuple[float, tuple[int, int]]:
    """The time of a new branch with a query and a write, and (bytes it takes, of the whole)."""
    times: list[float] = []
    with App.open(project) as app:
        item = app.registry().classes["Item"]
        versions, graph = app.versions(), app.graph()
        whole = _size(graph.folder)  # type: ignore[arg-type]
        for number in range(rounds):
            name = f"fork-{number}"
            started = perf_counter()
            versions.create_branch(name)
            ctx = app.context(branch=name)
            ctx.kg.sparql("SELECT ?s WHERE { ?s :state 'open' } LIMIT 10")
            found = item.get(ctx, f"P-{number:08}")
            found.title = f"changed {number}"
            found.save(ctx)
            times.append(perf_counter() - started)
        extra = (_size(graph.folder) - whole) // rounds  # type: ignore[arg-type]
        for number in range(rounds):
            versions.delete_branch(f"fork-{number}", force=True)
    return median(times), (extra, whole)


def _size(folder: Path) -> int:
    """Bytes on disk; what is linked twice counts once."""
    seen: dict[int, int] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            status = path.stat()
            seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def _beside_branches(
    project: Path, count: int, *, quick: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(without, with branches) for a page and for an update on main."""
    rounds = 20 if quick else 300
    with App.open(project) as app:
        alone = _main(app, rounds, start=1000)
        for number in range(count):
            app.versions().create_branch(f"live-{number}")
            ctx = app.context(branch=f"live-{number}")
            item = app.registry().classes["Item"]
            found = item.get(ctx, f"P-{number:08}")
            found.score = 1
            found.save(ctx)
        beside = _main(app, rounds, start=1000 + rounds)
        for number in range(count):
            app.versions().delete_branch(f"live-{number}", force=True)
    return (alone[0], beside[0]), (alone[1], beside[1])


def _main(app: App, rounds: int, start: int) -> tuple[float, float]:
    ctx, item = app.context(), app.registry().classes["Item"]
    reads: list[float] = []
    writes: list[float] = []
    for number in range(start, start + rounds):
        started = perf_counter()
        item.objects(ctx).where(state="open").order_by("score").page(100)
        reads.append(perf_counter() - started)
        found = item.get(ctx, f"P-{number % 20_000:08}")
        found.title = f"at {number}"
        started = perf_counter()
        found.save(ctx)
        writes.append(perf_counter() - started)
    return median(reads), median(writes)


def _merges(project: Path, rounds: int) -> float:
    times: list[float] = []
    with App.open(project) as app:
        item, versions = app.registry().classes["Item"], app.versions()
        for number in range(rounds):
            name = f"merge-{number}"
            versions.create_branch(name)
            ctx = app.context(branch=name)
            some = [item.get(ctx, f"P-{n * 3:08}") for n in range(CHANGED)]
            for each in some:
                each.title = f"merged {number} {each.code}"
            ctx.kg.save_all(some)
            item(**values(10**8 + number)).save(app.context())
            started = perf_counter()
            outcome = versions.merge(MergeRequest(name)).outcome
            times.append(perf_counter() - started)
            if outcome != "merged":
                raise RuntimeError(f"expected a merge, not {outcome}")
    return median(times)
