"""What an operation on versions costs follows its change, not the graph, its past or its branches.

Work is counted, not timed: instructions of SQLite on all connections, and statements that are read
from the log. A cost that grows is a cliff, however fast it is on a small graph.
"""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO, Any, Final
from unittest.mock import patch

import msgspec
import pytest

from trails import App, MergeRequest, node_type, predicate
from trails.engine.history.branches import create_branch, delete_branch
from trails.engine.history.change_feed import ChangeQuery
from trails.engine.session.context import GraphContext
from trails.log import sqlite as log_module
from trails.log.payloads import DeltaPart

_EVERY: Final = 10
"""Instructions of SQLite that are counted as one."""


@node_type
class Item:
    """Something with a number."""

    code: str = predicate(key=True)
    value: int = predicate()


class World(msgspec.Struct, frozen=True):
    """How large everything is that an operation may meet."""

    nodes: int = 300
    change: int = 20
    """Nodes that a branch has changed, in each of two commits."""
    past: int = 300
    """Commits before the branch was made."""
    branches: int = 2
    """Other branches."""


SMALL: Final = World()


class Costs:
    """What was counted."""

    def __init__(self) -> None:
        self.steps = self.statements = 0

    def open_part(self, part: DeltaPart, folder: Any) -> IO[bytes]:
        """Count the statements of a half of a commit."""
        text = open_part(part, folder).read()
        self.statements += text.count(b"\n")
        return io.BytesIO(text)

    def step(self) -> int:
        """Count instructions."""
        self.steps += 1
        return 0


open_part = log_module.open_part


@contextmanager
def counting() -> Iterator[Costs]:
    """Count what is done with the graphs that are opened in the block."""
    costs = Costs()
    connect = sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*arguments, **options)
        db.set_progress_handler(costs.step, _EVERY)
        return db

    with (
        patch.object(sqlite3, "connect", connected),
        patch.object(log_module, "open_part", costs.open_part),
    ):
        yield costs


def save(ctx: GraphContext, first: int, count: int, value: int) -> None:
    """Give so many items a value, in one commit."""
    items = (Item(code=f"i{number}", value=value) for number in range(first, first + count))
    ctx.kg.save_all(items, upsert=True)


class Made:
    """A graph with a branch that has changed some nodes."""

    def __init__(self, world: World) -> None:
        self.app = App(Item, name="costs")
        main, graph = self.app.context(), self.app.graph()
        for first in range(0, world.nodes, 20):  # commits as large as those of any other graph
            save(main, first, 20, 0)
        for number in range(world.past):
            save(main, 10 + number % 5, 1, number + 1)
        for number in range(world.branches):
            create_branch(graph, f"other{number}", actor="me")
        self.fork = main.kg.head.commit
        create_branch(graph, "side", actor="me")
        self.side = self.app.context(branch="side")
        save(self.side, 0, world.change, 5_000)
        save(self.side, world.nodes // 2, world.change, 5_001)
        save(main, 15, 1, 5_002)
        # What is kept in memory is read once a process.
        self.app.versions().diff("main", "side")
        self.app.versions().commits("main", node="Item/i3")

    def branch(self, name: str, source: str = "main") -> None:
        """Make a branch."""
        create_branch(self.app.graph(), name, source=source, actor="me")

    def blame(self, code: str) -> None:
        """Who wrote the values of a node of the branch."""
        state = self.side.kg.find("Item", code)
        assert state is not None
        found = self.app.versions().blame(state, self.side.kg.head.commit)
        assert all(each.commit is not None for each in found)


OPERATIONS: Final[dict[str, Callable[[Made], object]]] = {
    "list branches": lambda made: made.app.versions().branches(),
    "read from a branch": lambda made: Item.get(made.app.context(branch="side"), "i3"),
    "count on a branch": lambda made: Item.objects(made.app.context(branch="side")).count(),
    "ask a branch in SPARQL": lambda made: made.side.kg.sparql("ASK { ?item :code 'i3' }"),
    "compare branches": lambda made: made.app.versions().diff("main", "side"),
    "compare commits": lambda made: made.app.versions().diff(made.fork, "side"),
    "preview a merge": lambda made: made.app.versions().merge(MergeRequest("side", dry_run=True)),
    "list commits": lambda made: made.app.versions().commits("side", limit=5),
    "list commits of all branches": lambda made: made.app.versions().commits(None, limit=5),
    "list commits of a node": lambda made: made.app.versions().commits("side", node="Item/i3"),
    "list commits of a node, everywhere": lambda made: made.app.versions().commits(
        None, node="Item/i3"
    ),
    "show a commit": lambda made: made.app.versions().commit(made.side.kg.head.commit),
    "follow changes": lambda made: made.app.versions().changes(ChangeQuery("side", made.fork)),
    "blame a changed node": lambda made: made.blame("i3"),
    "blame a node that was left alone": lambda made: made.blame("i130"),
    "open a snapshot": lambda made: Item.get(made.app.context(snapshot=made.fork), "i3"),
    "create a branch": lambda made: made.branch("new"),
    "create a branch of a branch": lambda made: made.branch("newer", "side"),
    "create a branch at a commit": lambda made: made.branch("newest", made.fork),
    "write to a branch": lambda made: save(made.side, 1, 1, 6_000),
    "delete a branch": lambda made: delete_branch(made.app.graph(), "side", force=True, actor="me"),
}
"""In the order in which they are done in each world."""
FLAT: Final = {
    "nodes": World(nodes=3_000),
    "past": World(past=900),
    "branches": World(branches=20),
}
"""The same change in a larger world."""
MORE: Final = World(nodes=3_000, change=200)
"""Ten times the change, in one of them."""


@cache
def costs_in(world: World) -> dict[str, tuple[int, int]]:
    """What each operation takes: instructions, and statements of the log."""
    found = {}
    with counting() as costs:
        made = Made(world)
        for name, operation in OPERATIONS.items():
            steps, statements = costs.steps, costs.statements
            operation(made)
            found[name] = costs.steps - steps, costs.statements - statements
        made.app.close()
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_cost_follows_the_change(operation: str) -> None:
    """As much in a larger graph, after more commits, beside more branches; ten times for ten."""
    steps, statements = costs_in(SMALL)[operation]
    for name, world in FLAT.items():
        found = costs_in(world)[operation]
        assert found[0] <= 1.3 * steps + 20, (name, found, steps)
        assert found[1] <= statements, (name, found, statements)
    found = costs_in(MORE)[operation]
    assert found[0] <= 11 * steps + 20, (found, steps)
    assert found[1] <= 10 * statements, (found, statements)
