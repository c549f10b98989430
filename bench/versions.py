"""Fast-forwards, merges, snapshots and verification, by how much there is to do.

A fast-forward should cost what moving a name costs, whatever it brings, and the next write on
``main`` what it cost before. Merges and snapshots are measured per statement of the difference;
verification against the time that Oxigraph's ``bulk_load`` takes for the statements of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import pyoxigraph as ox
from rich.console import Console

from bench.branches import copied
from bench.measure import OUT, Goal, Result, clock
from bench.parts import Item, item_values
from trails import App
from trails.engine.upkeep.verify import verify
from trails.model.history import MergeRequest

BRANCHES: Final = 200
PROMPT: Final = 5.0
"""Milliseconds that a fast-forward may take."""
FIRST_READ: Final = 2.0
"""Seconds that the first read of a snapshot may take."""
QUADS: Final = 100_000
"""Statements that a merge should handle in a second."""


def run(*, quick: bool) -> list[Result]:
    """Measure each on a copy of the warehouse."""
    console = Console()
    count, changed = (20_000, 1_000) if quick else (1_000_000, 50_000)

    def say(text: str) -> None:
        console.print(f"[dim]  {text}[/dim]")

    results: list[Result] = []
    with copied(count, say) as (project, _):
        with App.open(project) as app:
            for size in (1, 1_000, changed):
                say(f"fast-forwards of {size:,}")
                results += _fast_forwards(app, size, 2 if quick else 3)
            say("a merge of both sides")
            results.append(_merge(app, changed))
            say("a snapshot")
            results.append(_snapshot(app, changed, count))
        with App.open(project) as app:
            say("verifying")
            results += _verification(app, quick=quick)
    return results


def _change(app: App, branch: str, count: int, mark: str) -> None:
    """Give so many items another title, in one commit."""
    ctx = app.context(branch=branch)
    ctx.kg.save_all(
        (Item(**item_values(number) | {"title": mark}) for number in range(count)), upsert=True
    )


def _fast_forwards(app: App, count: int, rounds: int) -> Iterator[Result]:
    """The move, and the first write after it beside ordinary writes."""
    versions, moves, firsts, usual = app.versions(), [], [], []
    for turn in range(rounds):
        name = f"forward-{count}-{turn}"
        usual += [clock(partial(_save, app, f"before {turn} {n}")) for n in range(20)]
        versions.create_branch(name)
        _change(app, name, count, name)
        moves.append(clock(partial(versions.merge, MergeRequest(name))))
        firsts.append(clock(partial(_save, app, f"after {turn}")))
        _settle(app)
        versions.delete_branch(name)
    yield Result(
        f"fast-forward of {count:,} changed nodes",
        "ms",
        median(moves) * 1e3,
        PROMPT,
        PROMPT,
        Goal("<=", 1),
        "5 ms",
        {"slowest": max(moves) * 1e3},
    )
    yield Result(
        f"the first write after that of {count:,}",
        "ms",
        median(firsts) * 1e3,
        median(usual) * 1e3,
        median(usual) * 1e3,
        Goal("<=", 1.5),
        "an ordinary write",
        {"slowest": max(firsts) * 1e3},
    )


def _save(app: App, title: str) -> None:
    found = Item.get(ctx := app.context(), "P-00000999")
    found.title = title
    found.save(ctx)


def _settle(app: App) -> None:
    """Wait until main is on the root of the node index again."""
    app.graph().nodes.settling.run()


def _merge(app: App, count: int) -> Result:
    """Both sides changed; the branch all of it but one node."""
    versions, rates = app.versions(), []
    for turn in range(3):
        name = f"merge-{turn}"
        versions.create_branch(name)
        _change(app, name, count, name)
        Item(**item_values(10**8 + turn)).save(app.context())
        seconds = clock(partial(versions.merge, MergeRequest(name)))
        rates.append(2 * count / seconds)
    return Result(
        f"three-way merge of {count:,} changed nodes",
        "quads/s",
        median(rates),
        QUADS,
        QUADS,
        Goal(">=", 1),
        "100,000 a second",
        {"rates": rates},
    )


def _snapshot(app: App, count: int, total: int) -> Result:
    """The state before a large commit, read for the first time."""
    seconds = []
    for turn in range(3):
        before = app.context().kg.head.commit
        _change(app, "main", count, f"again {turn}")

        def read(before: str = before) -> None:
            Item.get(app.context(snapshot=before), "P-00000003")

        seconds.append(clock(read))
    return Result(
        f"first read before {count:,} changed nodes of {total:,}",
        "s",
        median(seconds),
        FIRST_READ,
        FIRST_READ,
        Goal("<=", 1),
        "2 s",
    )


def _verification(app: App, *, quick: bool) -> Iterator[Result]:
    """All of it beside loading the same statements, then with branches beside without."""
    graph = app.graph()
    alone = clock(lambda: list(verify(graph, _nothing)))
    with TemporaryDirectory(dir=OUT) as folder:
        store = ox.Store(Path(folder) / "peer")
        text = Path(folder) / "statements.nq"
        with text.open("wb") as file:
            file.writelines(app.export(app.context(), "nquads"))
        load = clock(lambda: store.bulk_load(path=text, format=ox.RdfFormat.N_QUADS))
    yield Result(
        "verify",
        "s",
        alone,
        load,
        load,
        Goal("<=", 3),
        "bare bulk_load of the same statements",
    )
    branches = 20 if quick else BRANCHES
    for number in range(branches):
        app.versions().create_branch(f"live-{number}")
        ctx = app.context(branch=f"live-{number}")
        found = Item.get(ctx, f"P-{number:08}")
        found.score = 1
        found.save(ctx)
    beside = clock(lambda: list(verify(graph, _nothing)))
    yield Result(
        f"verify with {branches} branches",
        "s",
        beside,
        alone,
        alone,
        Goal("<=", 1.2),
        "without branches",
    )


def _nothing(text: str) -> None:
    """Progress that nobody reads."""
