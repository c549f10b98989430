"""Blame and provenance among a million activities: each answer in at most five milliseconds.

Asked through the kernel, as every surface asks: who wrote the values of a record that many commits
have changed, on main and through a merge, and which calls an actor made or a node was part of.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.measure import Goal, Result, interleave
from trails import App, Node, node_type, predicate
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL
from trails.model.history import Activity, MergeRequest
from trails.model.iris import uuid7
from trails.model.results import Success
from trails.request.pipeline import Kernel

ACTIVITIES: Final = 1_000_000
COMMITS: Final = 5_000
TASKS: Final = 500
BUDGET: Final = 5_000.0
"""Microseconds."""
_BATCH: Final = 20_000
_FLOOR: Final = "the newest commit"


@node_type
class Task(Node):
    """Something to do."""

    code: str = predicate(key=True)
    title: str = predicate()
    status: str = predicate()
    priority: int = predicate()
    tags: list[str] = predicate()


def run(*, quick: bool) -> list[Result]:
    """Time four questions."""
    activities, commits = (ACTIVITIES // 10, COMMITS // 10) if quick else (ACTIVITIES, COMMITS)
    with TemporaryDirectory() as folder, _served(Path(folder), activities, commits) as served:
        ask = partial(_ask, *served)
        calls: dict[str, Callable[[], object]] = {
            "blame of a record": partial(ask, "node_blame", record="Task/t7"),
            "blame through a merge": partial(ask, "node_blame", record="Task/t3"),
            "calls of a node": partial(ask, "prov_list", node="Task/t7", limit=20),
            "calls of an actor": partial(ask, "prov_list", actor="actor3", limit=20),
        }
        floor = {_FLOOR: partial(ask, "commit_list", limit=1)}
        times = interleave({**calls, **floor}, 50 if quick else 300, warmup=5)
    return [
        Result(
            name,
            "µs",
            each.p50 * 1e6,
            BUDGET,
            times[_FLOOR].p50 * 1e6,
            Goal("<=", 1.0),
            "five milliseconds; the newest commit alone",
            {"p99": each.p99 * 1e6, "activities": activities, "commits": commits},
        )
        for name, each in times.items()
        if name != _FLOOR
    ]


@contextmanager
def _served(folder: Path, activities: int, commits: int) -> Iterator[tuple[Kernel, asyncio.Runner]]:
    rng = random.Random(7)
    with App(Task, name="bench", folder=folder) as app, asyncio.Runner() as runner:
        ctx = app.context(actor="bench")
        with ctx.kg.transaction():
            for n in range(TASKS):
                Task(code=f"t{n}", title="T", status="open", priority=n, tags=["a", "b"]).save(ctx)
        service = app.service()
        for n in range(commits):
            if n == commits // 2:
                service.versions("bench").create_branch("side")
                side = app.context(actor="bench", branch="side")
                _change(side, "t3", "merged")
            _change(ctx, f"t{rng.randrange(TASKS)}", str(n))
        _change(ctx, "t4", "own")
        service.versions("bench").merge(MergeRequest("side", resolve_all="theirs"))
        log = app.graph().log
        for start in range(0, activities, _BATCH):
            log.insert_activities(_activity(rng, start + n) for n in range(_BATCH))
        kernel = kernel_of(app)
        try:
            yield kernel, runner
        finally:
            kernel.close()


def _change(ctx: object, code: str, status: str) -> None:
    task = Task.get(ctx, code)  # type: ignore[arg-type]
    task.status = status
    task.save(ctx)  # type: ignore[arg-type]


def _activity(rng: random.Random, n: int) -> Activity:
    at = f"2026-01-{1 + n // 86_400 % 28:02}T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}.000Z"
    return Activity(
        uuid7(),
        f"actor{n % 50}",
        f"tasks.do{n % 30}",
        at,
        at,
        "ok" if n % 40 else "denied",
        surface="mcp",
        used=("0" * 32, f"Task/t{rng.randrange(TASKS)}"),
    )


def _ask(kernel: Kernel, runner: asyncio.Runner, name: str, **arguments: object) -> object:
    found = runner.run(kernel.transfers.record(LOCAL, name, arguments))
    if not isinstance(found, Success):
        raise TypeError(str(found))
    return found
