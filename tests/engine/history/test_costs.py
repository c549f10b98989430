"""What reading and making versions costs follows the difference, not the size of a layer.

Work is counted in instructions of SQLite's virtual machine, which do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from trails import App, node_type, predicate
from trails.engine.history.branches import create_branch
from trails.engine.session.context import GraphContext
from trails.model.history import MergeRequest
from trails.views.nodes.index import NodeIndex, Replacement


@node_type
class Item:
    """Something with a number."""

    code: str = predicate(key=True)
    value: int = predicate()


def save(ctx: GraphContext, count: int, value: int) -> None:
    """Give so many items a value, in one commit."""
    items = (Item(code=f"i{number}", value=value) for number in range(count))
    ctx.kg.save_all(items, upsert=True)


@contextmanager
def counted(app: App) -> Iterator[Callable[[], int]]:
    """Count the instructions that reads and writes of the node index take, in hundreds."""
    file, steps = app.graph().file, [0]

    def step() -> int:
        steps[0] += 1
        return 0

    with file.reader() as reader:
        for db in (reader, file.db):
            db.set_progress_handler(step, 100)
    try:
        yield lambda: steps[0]
    finally:
        with file.reader() as reader:
            for db in (reader, file.db):
                db.set_progress_handler(None, 0)


def steps_of_reading(count: int) -> int:
    """What it takes to read twenty nodes of a branch that changed so many."""
    app = App(Item, name="costs")
    save(app.context(), count, 1)
    create_branch(app.graph(), "side", actor="me")
    side = app.context(branch="side")
    save(side, count, 2)
    with counted(app) as steps:
        for number in range(20):
            assert Item.get(side, f"i{number}").value == 2
        return steps()


def steps_of_going_back(count: int) -> float:
    """What the state before a merge of so many nodes takes, a node."""
    app = App(Item, name="costs")
    save(app.context(), count, 1)
    create_branch(app.graph(), "side", actor="me")
    save(app.context(branch="side"), count, 2)
    Item(code="own", value=1).save(app.context())
    before = app.context().kg.head.commit
    app.versions().merge(MergeRequest("side"))
    with counted(app) as steps:
        assert Item.get(app.context(snapshot=before), "i1").value == 1
        return steps() / count


def test_a_half_without_statements_is_not_read() -> None:
    """The record of a commit says how many each half has."""
    app = App(Item, name="costs")
    save(app.context(), 2, 1)
    graph = app.graph()
    (commit,) = graph.ancestry.path("", graph.main.head.commit).redo[-1:]
    assert (commit.removed, commit.added > 0) == (0, True)
    with (
        patch.object(type(graph.log), "open_removed", side_effect=AssertionError),
        graph.folding.statements(commit) as (removed, added),
    ):
        assert removed.read() == b""
        assert added.read()


def test_going_back_commit_by_commit_piles_up_no_layers() -> None:
    """A snapshot is made from one near by only while that has few layers."""
    app = App(Item, name="costs")
    commits = []
    for value in range(30):
        save(app.context(), 5, value)
        commits.append(app.context().kg.head.commit)
    layers = app.graph().file.layers
    for value, commit in reversed(list(enumerate(commits))):
        assert Item.get(app.context(snapshot=commit), "i3").value == value
        assert len(layers.lineage(layers.refs[f"@{commit}"])) <= 8


def test_a_snapshot_is_counted_once() -> None:
    """What older snapshots hold is not counted again for each new one."""
    app = App(Item, name="costs")
    commits = []
    for value in range(8):
        save(app.context(), 10, value)
        commits.append(app.context().kg.head.commit)
    told: list[str] = []
    app.graph().file.db.set_trace_callback(told.append)
    for commit in commits:
        app.context(snapshot=commit)
    app.graph().file.db.set_trace_callback(None)
    assert 0 < sum("count(*) FROM rows" in text for text in told) < len(commits)


def test_a_large_commit_is_undone_once_a_node_and_its_keys_are_put_in_order(
    tmp_path: Path,
) -> None:
    """Neither both halves of a commit one by one, nor the keys of each part by themselves."""
    count, told = 3_000, list[str]()
    app = App(Item, name="costs", folder=tmp_path)
    save(app.context(), count, 1)
    before = app.context().kg.head.commit
    save(app.context(), count, 2)
    app.graph().file.db.set_trace_callback(told.append)
    with patch.object(NodeIndex, "put_all", autospec=True, side_effect=NodeIndex.put_all) as put:
        snapshot = app.context(snapshot=before)
    app.graph().file.db.set_trace_callback(None)
    assert Item.get(snapshot, "i7").value == 1
    assert sum(len(call.args[2]) for call in put.call_args_list) == count
    keys = [0]
    for text in told:
        if text == "COMMIT":
            keys.append(0)
        keys[-1] += "INTO row_keys" in text
    assert sum(keys) <= 2 * count / 100 + 10  # a hundred a statement
    assert max(keys) <= 50  # and writers have their turn between parts
    app.close()


@pytest.mark.parametrize("cost", [steps_of_reading, steps_of_going_back])
def test_the_cost_of_a_node_does_not_grow_with_its_layer(cost: Callable[[int], float]) -> None:
    """Eight times as many changed nodes make none of them dearer."""
    assert cost(1200) < 2 * cost(150) + 1


def test_a_merge_puts_each_node_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is planned without putting anything into a draft of the index, and writes what is new."""
    with App(Item, name="costs", folder=tmp_path) as app:
        save(app.context(), 600, 1)
        create_branch(app.graph(), "side", actor="me")
        save(app.context(branch="side"), 600, 2)
        Item(code="own", value=1).save(app.context())
        put, count = NodeIndex.put_all, [0]

        def counted_put(
            self: NodeIndex, seq: int, changes: Sequence[Replacement]
        ) -> list[Replacement]:
            count[0] += len(changes)
            return put(self, seq, changes)

        monkeypatch.setattr(NodeIndex, "put_all", counted_put)
        assert app.versions().merge(MergeRequest("side")).updated == 600
        assert count == [600]
