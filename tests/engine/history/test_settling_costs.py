"""What is left to do after a fast-forward is done in small parts, whatever it brought.

Work is counted in rows that transactions change, and in instructions of SQLite's virtual machine.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.history.test_costs import Item, counted, save

from trails import App
from trails.engine.graph import node_indexes
from trails.engine.graph.graph import Graph
from trails.engine.graph.node_indexes import Settling
from trails.engine.history.branches import create_branch, delete_branch
from trails.engine.history.merge import merge
from trails.engine.upkeep.verify import verify
from trails.model.fairness import WorkInProgress, give_way
from trails.model.history import MergeRequest
from trails.views.nodes.layers import ROOT


@pytest.fixture
def unthreaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is settled unless the test does it."""
    monkeypatch.setattr(Settling, "begin", lambda self: None)


def values(app: App, branch: str = "main") -> dict[str, int]:
    """What a branch holds."""
    return {item.code: item.value for item in Item.objects(app.context(branch=branch))}


def check(app: App) -> None:
    """Every view agrees with the log."""
    assert not [each for each in verify(app.graph(), lambda _: None) if each.severity != "ok"]


def forward(app: App, name: str, count: int, value: int) -> None:
    """Move main to a new branch that gave so many items a value."""
    create_branch(app.graph(), name, actor="me")
    save(app.context(branch=name), count, value)
    assert merge(app.graph(), MergeRequest(name), actor="me").outcome == "fast_forward"


def rows_of(graph: Graph, table: str) -> int:
    """How many rows layers have in a table."""
    query = f"SELECT count(*) FROM {table} WHERE layer <> {ROOT}"
    found: int = graph.file.db.execute(query).fetchone()[0]
    return found


class Transactions:
    """The most rows that one transaction of the node index changed."""

    def __init__(self, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
        self.largest = self.number = 0
        self._file = graph.file
        self._commit = self._file.commit
        self._before = self._file.db.total_changes
        monkeypatch.setattr(self._file, "commit", self.commit)

    def commit(self) -> None:
        """Commit, and note what that was."""
        changes = self._file.db.total_changes - self._before
        self.largest, self.number = max(self.largest, changes), self.number + 1
        self._commit()
        self._before = self._file.db.total_changes


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[int], App]]:
    """Opens a graph with so many items."""
    apps: list[App] = []

    def open_app(count: int) -> App:
        app = App(Item, name="costs", folder=tmp_path / str(len(apps)))
        apps.append(app)
        save(app.context(), count, 1)
        return app

    yield open_app
    for each in apps:
        each.close()


@pytest.mark.usefixtures("unthreaded")
def test_a_move_the_next_write_and_reads_cost_the_same_whatever_it_brings(
    make: Callable[[int], App],
) -> None:
    """In instructions, and in rows that change."""

    def cost(count: int) -> tuple[int, int]:
        app = make(1_000)
        create_branch(app.graph(), "side", actor="me")
        save(app.context(branch="side"), count, 2)
        db = app.graph().file.db
        before = db.total_changes
        with counted(app) as steps:
            merge(app.graph(), MergeRequest("side"), actor="me")
            found = Item.get(app.context(), "i3")
            found.value = 3
            found.save(app.context())
            assert Item.get(app.context(), "i4").value == 2
            return steps(), db.total_changes - before

    few, many = cost(10), cost(1_000)
    assert many[0] <= few[0] + 5
    assert many[1] <= few[1]


@pytest.mark.usefixtures("unthreaded")
def test_no_part_of_settling_and_sweeping_is_long(
    make: Callable[[int], App], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one neither, nor the deletion of the branch."""
    app = make(600)
    transactions = Transactions(app.graph(), monkeypatch)
    create_branch(app.graph(), "side", actor="me")
    save(app.context(branch="side"), 600, 2)
    merge(app.graph(), MergeRequest("side"), actor="me")
    transactions.largest = 0
    delete_branch(app.graph(), "side", actor="me")
    Item(code="next", value=5).save(app.context())
    app.graph().nodes.settling.run()
    assert app.graph().nodes.settled
    assert transactions.number > 600 * 2 / node_indexes.AT_ONCE
    assert transactions.largest < node_indexes.AT_ONCE * 12 + node_indexes._SWEPT
    assert not app.graph().file.layers.unused
    for table in ("rows", "row_keys", "hides"):
        assert not rows_of(app.graph(), table)
    assert values(app) == {f"i{n}": 2 for n in range(600)} | {"next": 5}
    check(app)


@pytest.mark.usefixtures("unthreaded")
def test_layers_that_are_swept_in_part_are_harmless(make: Callable[[int], App]) -> None:
    """Others are made, written and verified; the rest goes later, also after a crash."""
    app = make(300)
    create_branch(app.graph(), "side", actor="me")
    save(app.context(branch="side"), 300, 2)
    create_branch(app.graph(), "above", source="side", actor="me")
    save(app.context(branch="above"), 200, 3)
    commit = app.context(branch="side").kg.head.commit
    for name in ("above", "side"):
        delete_branch(app.graph(), name, force=True, actor="me")
    settling, layers = app.graph().nodes.settling, app.graph().file.layers
    assert len(layers.unused) == 2
    rounds = 0
    while settling._sweep():
        rounds += 1
        if rounds == 2:
            create_branch(app.graph(), "new", actor="me")
            save(app.context(branch="new"), 250, 4)
            layers = app.graph().file.layers
            assert layers.unused
            assert layers.refs["new"] not in layers.unused
            save(app.context(), 300, 5)
        if rounds == 3:
            expected = {f"i{n}": 4 if n < 250 else 1 for n in range(300)}
            assert values(app, "new") == expected
            app.graph().file.rollback()
            app.graph().file._load(app.graph().file.db)  # as after a crash
    assert rounds > 5
    assert values(app, "new") == expected
    assert set(values(app).values()) == {5}
    ctx = app.context(snapshot=commit)
    assert {item.value for item in Item.objects(ctx)} == {2}
    check(app)


def test_moves_all_day_pile_up_no_layers(make: Callable[[int], App]) -> None:
    """The thread keeps up with small branches, or brings main back to the root soon after."""
    app = make(50)
    layers = app.graph().file.layers
    for turn in range(100):
        forward(app, f"turn-{turn}", 3, turn)
        delete_branch(app.graph(), f"turn-{turn}", actor="me")
        depth = len(app.graph().file.layers.lineage(app.graph().main.nodes.layer.number))
        assert depth <= node_indexes._DEEPEST + 1
    app.graph().nodes.settling.run()
    layers = app.graph().file.layers
    assert app.graph().nodes.settled
    assert [each.number for each in layers] == [ROOT]
    assert values(app) == {f"i{n}": 99 if n < 3 else 1 for n in range(50)}
    check(app)


def test_long_work_gives_way_to_the_write_of_a_program(
    make: Callable[[int], App], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is no request of a server."""
    slept: list[float] = []
    monkeypatch.setattr("trails.model.fairness.sleep", slept.append)
    app = make(1)
    with app.graph().writing("me"):

        def work() -> None:
            long = WorkInProgress(is_long=True)
            try:
                give_way()
            finally:
                long.end()

        contextvars.Context().run(work)
    assert slept
    slept.clear()
    contextvars.Context().run(work)
    assert not slept
