"""Branches and merges across a change of the types."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tests.engine.history.repo import Repo

from trails import App, Node, node_type, predicate
from trails.engine.graph.graph import Graph
from trails.engine.history.branches import create_branch
from trails.engine.history.commits import diff
from trails.engine.history.merge import merge
from trails.engine.schema.evolution import apply_schema
from trails.engine.upkeep.verify import verify
from trails.engine.write.edits import apply_states
from trails.engine.write.write import Write
from trails.model.history import MergeRequest, MergeResult
from trails.model.nodes import NodeState, Order, Selection
from trails.model.types import Schema, ShapeDescriptor


def old() -> type[Node]:
    """Tasks as they were."""

    @node_type
    class Task(Node):
        """Work."""

        code: str = predicate(key=True)
        title: str | None = predicate()
        size: int | None = predicate()

    return Task


def with_owner() -> type[Node]:
    """A field more, and an index."""

    @node_type(index=[("title", "size")])
    class Task(Node):
        """Work."""

        code: str = predicate(key=True)
        title: str | None = predicate()
        size: int | None = predicate()
        owner: str | None = predicate(unique=True)

    return Task


def small() -> type[Node]:
    """A constraint more."""

    @node_type
    class Task(Node):
        """Work."""

        code: str = predicate(key=True)
        title: str | None = predicate()
        size: int | None = predicate(max_value=5)

    return Task


def without_size() -> type[Node]:
    """A field less."""

    @node_type
    class Task(Node):
        """Work."""

        code: str = predicate(key=True)
        title: str | None = predicate()

    return Task


def with_labels() -> type[Node]:
    """A set more."""

    @node_type
    class Task(Node):
        """Work."""

        code: str = predicate(key=True)
        title: str | None = predicate()
        size: int | None = predicate()
        labels: list[str] = predicate()

    return Task


def with_due() -> type[Node]:
    """A time more."""

    @node_type
    class Task(Node):
        """Work."""

        code: str = predicate(key=True)
        title: str | None = predicate()
        size: int | None = predicate()
        due: datetime | None = predicate()

    return Task


def other() -> type[Node]:
    """Another type."""

    @node_type
    class Note(Node):
        """Text."""

        code: str = predicate(key=True)

    return Note


class Tasks(Repo):
    """A graph of tasks, whose types change."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, (old(),))
        self.save("main", "t0", title="a", size=1)
        self.save("main", "t1", title="b", size=2)
        self.branch("b")

    def save(self, branch: str, code: str, **values: object) -> None:
        """Create or change a task with the class of the day."""
        ctx = self.ctx(branch)
        cls = ctx.registry.classes["Task"]
        found = ctx.kg.find("Task", code)
        node = cls(code=code) if found is None else ctx.hydrate(found)
        for name, value in values.items():
            setattr(node, name, value)
        node.save(ctx)

    def rows(self, branch: str) -> dict[str, dict[str, object]]:
        """All tasks of a branch."""
        ctx = self.ctx(branch)
        cls = ctx.registry.classes["Task"]
        return {row.id: dict(row.values) for row in ctx.kg.select(cls.objects(ctx).selection).rows}

    def adopt(self, *types: type) -> None:
        """Declare other types, which main then has."""
        self.reopen(types)

    def merged(self, source: str, target: str) -> MergeResult:
        """Merge."""
        return merge(self.graph, MergeRequest(source, target), actor="a")


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    """Two tasks on main and b."""
    found = Tasks(tmp_path)
    yield found
    found.sound()
    found.app.close()


class TestOneSide:
    def test_a_branch_of_before_is_read(self, tasks: Tasks) -> None:
        """Main has a field more; the branch reads as it was, filters and orders included."""
        tasks.adopt(with_owner())
        tasks.save("main", "t0", owner="ada")
        assert tasks.rows("b") == {
            "t0": {"code": "t0", "title": "a", "size": 1},
            "t1": {"code": "t1", "title": "b", "size": 2},
        }
        ctx = tasks.ctx("b")
        cls = ctx.registry.classes["Task"]
        assert [each.id for each in cls.objects(ctx).where(size__gt=1).order_by("-size")] == ["t1"]

    def test_a_branch_of_before_takes_over_types_when_written(self, tasks: Tasks) -> None:
        """Writing with the new class brings the types along; then both merge."""
        tasks.adopt(with_owner())
        tasks.save("main", "t0", owner="ada")
        tasks.save("b", "t1", owner="bob")
        assert tasks.merged("b", "main").outcome == "merged"
        rows = tasks.rows("main")
        assert (rows["t0"]["owner"], rows["t1"]["owner"]) == ("ada", "bob")
        ctx = tasks.ctx()
        cls = ctx.registry.classes["Task"]
        assert cls.objects(ctx).where(owner="bob").count() == 1

    def test_uniqueness_of_a_new_field_between_sides(self, tasks: Tasks) -> None:
        """Nodes that the two sides gave the same value conflict."""
        tasks.adopt(with_owner())
        tasks.save("main", "t0", owner="ada")
        tasks.save("b", "t1", owner="ada")
        result = tasks.merged("b", "main")
        assert [each.kind for each in result.conflicts] == ["uniqueness"]

    @pytest.mark.parametrize("into", ["main", "b"])
    def test_data_of_before_meets_a_new_field(self, tasks: Tasks, into: str) -> None:
        """One side changed the types, the other the data."""
        tasks.save("b", "t0", size=9)
        tasks.adopt(with_owner())
        tasks.save("main", "t1", owner="ada")
        source = "b" if into == "main" else "main"
        assert tasks.merged(source, into).outcome == "merged"
        rows = tasks.rows(into)
        assert (rows["t0"]["size"], rows["t1"]["owner"]) == (9, "ada")
        assert tasks.graph.checkout(into).schema == tasks.graph.main.schema
        ctx = tasks.ctx(into)
        cls = ctx.registry.classes["Task"]
        assert [each.id for each in cls.objects(ctx).where(owner="ada")] == ["t1"]
        assert [each.id for each in cls.objects(ctx).where(title="a", size=9)] == ["t0"]

    @pytest.mark.req("T21b")
    @pytest.mark.parametrize("into", ["main", "b"])
    def test_data_of_before_breaks_a_new_constraint(self, tasks: Tasks, into: str) -> None:
        """A value that the other side's types forbid is a conflict, whichever way it merges."""
        tasks.save("b", "t0", size=9)
        tasks.adopt(small())
        tasks.save("main", "t1", title="z")
        head = tasks.head(into)
        result = tasks.merged("b" if into == "main" else "main", into)
        assert [(each.kind, each.handle, each.field) for each in result.conflicts] == [
            ("constraint", "Task/t0", "size")
        ]
        assert tasks.head(into) == head

    def test_a_new_constraint_that_holds(self, tasks: Tasks) -> None:
        """Valid data merges."""
        tasks.save("b", "t0", size=4)
        tasks.adopt(small())
        tasks.save("main", "t1", title="z")
        assert tasks.merged("main", "b").outcome == "merged"
        assert tasks.graph.checkout("b").schema == tasks.graph.main.schema

    @pytest.mark.req("T21b")
    @pytest.mark.parametrize("into", ["main", "b"])
    def test_a_field_that_one_side_removed_and_the_other_filled(
        self, tasks: Tasks, into: str
    ) -> None:
        """A value for which there is no field any more can't land."""
        for code in ("t0", "t1"):
            tasks.save("main", code, size=None)
        assert tasks.merged("main", "b").outcome == "fast_forward"
        tasks.save("b", "t0", size=3)
        tasks.adopt(without_size())
        tasks.save("main", "t1", title="z")
        head = tasks.head(into)
        result = tasks.merged("b" if into == "main" else "main", into)
        found = result.conflicts[0]
        assert (found.id, found.handle, found.field) == ("schema:Task.size", "Task", "size")
        assert "one side removed or changed it, and the other uses it" in found.message
        assert tasks.head(into) == head

    @pytest.mark.req("T21b")
    @pytest.mark.parametrize("into", ["main", "b"])
    def test_a_set_that_one_side_removed_and_the_other_filled(
        self, tasks: Tasks, into: str
    ) -> None:
        """Likewise for the members of a set."""
        tasks.adopt(with_labels())
        assert tasks.merged("main", "b").outcome == "fast_forward"
        tasks.save("b", "t0", labels=["x"])
        tasks.adopt(old())
        tasks.save("main", "t1", title="z")
        result = tasks.merged("b" if into == "main" else "main", into)
        assert [each.id for each in result.conflicts] == ["schema:Task.labels"]

    @pytest.mark.req("T21b")
    @pytest.mark.parametrize("into", ["main", "b"])
    def test_a_type_that_one_side_removed_and_the_other_used(self, tasks: Tasks, into: str) -> None:
        """Nodes can't lose their type."""
        note = other()
        tasks.adopt(old(), note)
        assert tasks.merged("main", "b").outcome == "fast_forward"
        note(code="n0").save(tasks.ctx("b"))
        tasks.adopt(old())
        tasks.save("main", "t1", title="z")
        head = tasks.head(into)
        result = tasks.merged("b" if into == "main" else "main", into)
        assert [each.id for each in result.conflicts] == ["schema:Note"]
        assert tasks.head(into) == head

    def test_a_difference_shows_a_field_that_is_gone(self, tasks: Tasks) -> None:
        """Its values have the form that they had while it was declared."""
        tasks.adopt(with_due())
        tasks.save("main", "t0", due=datetime(2026, 3, 1, 9, 30, tzinfo=UTC))
        start = tasks.head()
        tasks.save("main", "t0", due=None)
        tasks.adopt(old())
        (change,) = diff(tasks.graph, start, "main").changes
        assert [(each.field, each.before) for each in change.fields] == [
            ("due", "2026-03-01T09:30:00Z")
        ]


class TestBothSides:
    def test_different_types(self, tasks: Tasks) -> None:
        """Types that came one after the other, before and after the branch was written."""
        note = other()
        tasks.adopt(old(), note)
        tasks.save("b", "t0", size=7)
        note(code="n0").save(tasks.ctx())
        tasks.adopt(with_owner(), note)
        tasks.save("main", "t1", owner="ada")
        assert tasks.merged("b", "main").outcome == "merged"
        assert tasks.rows("main")["t0"]["size"] == 7
        assert note.objects(tasks.ctx()).count() == 1

    def test_the_same_type_differently(self, tasks: Tasks) -> None:
        """Types that do not fit together are a conflict that names them, and nothing lands."""
        tasks.adopt(small())
        tasks.save("b", "t0", title="q")  # the branch takes over the type, apart from main
        tasks.branch("c", "b")
        tasks.adopt(with_owner())
        tasks.save("main", "t1", owner="ada")
        head = tasks.head()
        result = tasks.merged("c", "main")
        assert [(each.kind, each.handle) for each in result.conflicts] == [("schema", "Task")]
        assert "Task: both sides changed it" in result.conflicts[0].message
        assert tasks.head() == head

    def test_a_fast_forward_over_a_change_of_types(self, tasks: Tasks) -> None:
        """The branch has main's types then."""
        tasks.adopt(with_owner())
        assert tasks.merged("main", "b").outcome == "fast_forward"
        tasks.save("b", "t0", owner="bob")
        assert tasks.merged("b", "main").outcome == "fast_forward"
        tasks.save("main", "t1", owner="eve")
        assert {row["owner"] for row in tasks.rows("main").values()} == {"bob", "eve"}

    def test_snapshots_keep_their_types(self, tasks: Tasks) -> None:
        """The past is read with the types that it had."""
        before = tasks.head()
        tasks.adopt(with_owner())
        tasks.save("main", "t0", owner="ada")
        ctx = tasks.app.context(snapshot=before)
        assert "owner" not in ctx.kg.schema.by_name["Task"].by_name
        cls = ctx.registry.classes["Task"]
        rows = ctx.kg.select(cls.objects(ctx).where(size=1).selection).rows
        assert [row.values for row in rows] == [{"code": "t0", "title": "a", "size": 1}]


@pytest.mark.parametrize("into", ["main", "b"])
def test_a_shape_loses_rules_for_a_field_that_the_other_side_dropped(into: str) -> None:
    """Else no node of the type could be written any more."""
    task, small_task = old().__trails__, without_size().__trails__  # type: ignore[attr-defined]
    rule = ShapeDescriptor("Sized", (msgspec.structs.replace(task.by_name["size"], min_count=1),))
    more = msgspec.structs.replace(rule, target="Task")
    app = App(old(), name="shapes")
    graph = app.graph()
    create_branch(graph, "b", actor="a")
    apply_schema(graph, graph.main, Schema.of([task], [more]))
    apply_schema(graph, graph.checkout("b"), Schema.of([small_task]))
    source = "b" if into == "main" else "main"
    assert merge(graph, MergeRequest(source, into), actor="a").outcome == "merged"
    line = graph.checkout(into)
    assert (line.schema.by_name["Task"].by_name.keys(), line.schema.shapes) == (
        {"code", "title"},
        (),
    )
    app.close()


def boxes(*, extends: bool) -> Schema:
    """Boxes and crates, which are boxes or not."""

    @node_type
    class Box(Node):
        """A box."""

        code: str = predicate(key=True)
        size: int | None = predicate(unique=True)

    @node_type
    class Part(Box):
        """A part that is a box."""

    crate = Part.__trails__  # type: ignore[attr-defined]
    if not extends:
        own = [msgspec.structs.replace(each, declared_in="Part") for each in crate.fields]
        crate = msgspec.structs.replace(crate, extends=None, fields=tuple(own))
    return Schema.of([Box.__trails__, crate])  # type: ignore[attr-defined]


def test_a_type_that_extends_another_on_a_later_branch_alone() -> None:
    """Its nodes are not found among those of the other type where they do not belong to it."""
    app = App(name="boxes")
    graph = app.graph()
    apply_schema(graph, graph.main, boxes(extends=True))
    create_branch(graph, "b", actor="a")
    save(graph, "b", NodeState("Box", "1", {"code": "1", "size": 1}))
    create_branch(graph, "c", source="b", actor="a")  # it reads the rows of b with its own types
    save(graph, "c", NodeState("Box", "2", {"code": "2", "size": 2}))
    apply_schema(graph, graph.checkout("b"), boxes(extends=False))
    save(graph, "b", NodeState("Part", "k", {"code": "k", "size": 1}))
    for branch, found in (("b", ["1"]), ("c", ["1", "2"])):
        asked = Selection("Box", order=(Order("code"),))
        rows = app.context(branch=branch).kg.select(asked).rows
        assert [each.id for each in rows] == found
    assert all(each.severity == "ok" for each in verify(graph, lambda _: None))
    app.close()


def save(graph: Graph, branch: str, state: NodeState) -> None:
    """Write one node."""
    write = Write(graph, graph.checkout(branch), actor="a")
    write.begin()
    apply_states(write.nodes, {state.handle: state}, [], validate=True, alone=False)
    write.finish()


def with_priority() -> type[Node]:
    """A field more, which has to have a value."""

    @node_type
    class Task(Node):
        """Work."""

        code: str = predicate(key=True)
        title: str | None = predicate()
        size: int | None = predicate(unique=True)
        priority: int = predicate(default=3)

    return Task


@pytest.mark.parametrize("into", ["main", "b"])
@pytest.mark.parametrize("take", ["ours", "theirs"])
def test_a_merge_fills_in_defaults_as_a_change_of_types_does(
    tasks: Tasks, into: str, take: str
) -> None:
    """Nodes that one side made without the new field get its default, also by a resolution."""
    tasks.save("b", "x", size=7)
    tasks.save("b", "y", size=8)
    tasks.adopt(with_priority())
    tasks.save("main", "z", size=7, priority=4)
    source = "b" if into == "main" else "main"
    result = tasks.merged(source, into)
    assert [each.id for each in result.conflicts] == ["uniqueness:Task/x+Task/z.size"]
    done = merge(tasks.graph, MergeRequest(source, into, resolve_all=take), actor="a")  # type: ignore[arg-type]
    assert done.outcome == "merged"
    kept = {"z": 4} if (take == "ours") == (into == "main") else {"x": 3}
    found = {name: each["priority"] for name, each in tasks.rows(into).items()}
    assert found == {"t0": 3, "t1": 3, "y": 3, **kept}
