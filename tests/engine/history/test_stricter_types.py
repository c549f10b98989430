"""Types become stricter than the data: on opening, by merging, by moving a branch forward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trails import App, Edge, Node, Ref, edge_type, node_type, predicate
from trails.engine.history.branches import create_branch
from trails.engine.history.merge import merge
from trails.engine.schema.rule_check import broken_rules, group_violations
from trails.errors import SchemaMismatchError
from trails.model.history import MergeRequest, MergeResult
from trails.model.texts import count


def declare(**rules: Any) -> tuple[type, ...]:
    """Boxes and links between them, with these rules."""
    target = rules.get("points", "Box")

    @node_type(unique=rules.get("groups", []))
    class Box(Node):
        """Holds values."""

        code: str = predicate(key=True)
        size: int | None = predicate(unique=rules.get("unique", False))
        left: int | None = predicate(max_value=rules.get("most"))
        right: int | None = predicate()
        near: Ref[Box] | None = predicate()

    @node_type
    class Crate(Box):
        """A box of another type."""

    if target == "Crate":

        @node_type
        class Box(Node):  # type: ignore[no-redef]
            """Holds values."""

            code: str = predicate(key=True)
            size: int | None = predicate()
            left: int | None = predicate()
            right: int | None = predicate()
            near: Ref[Crate] | None = predicate()

        @node_type
        class Crate(Box):  # type: ignore[no-redef]
            """A box of another type."""

    @edge_type(
        source=Box,
        target=Box,
        per_source=rules.get("per_source", (0, None)),
        per_target=rules.get("per_target", (0, None)),
    )
    class Link(Edge):
        """Joins boxes."""

    return Box, Crate, Link


class Case(NamedTuple):
    """Rules, the data that breaks them, and how that is reported."""

    rules: dict[str, Any]
    boxes: dict[str, dict[str, Any]]
    links: list[tuple[str, str]]
    rule: str
    times: int


CASES = {
    "unique": Case(
        {"unique": True}, {"a": {"size": 7}, "b": {"size": 7}}, [], "Box.size [unique]", 1
    ),
    "group": Case(
        {"groups": [("left", "right")]},
        {each: {"left": 1, "right": 2} for each in "abc"},
        [],
        "Box.left, right [unique]",
        1,
    ),
    "target": Case(
        {"points": "Crate"},
        {"a": {}, "b": {"near": "Box/a"}, "c": {"near": "Box/a"}},
        [],
        "Box.near [reference]",
        2,
    ),
    "at most as source": Case(
        {"per_source": (0, 1)},
        {each: {} for each in "abc"},
        [("a", "b"), ("a", "c")],
        "Box.source [max_count]",
        1,
    ),
    "at least as source": Case(
        {"per_source": (1, None)},
        {each: {} for each in "abc"},
        [("a", "b")],
        "Box.source [min_count]",
        2,
    ),
    "at most as target": Case(
        {"per_target": (0, 1)},
        {each: {} for each in "abc"},
        [("a", "c"), ("b", "c")],
        "Box.target [max_count]",
        1,
    ),
    "at least as target": Case(
        {"per_target": (1, None)}, {"a": {}}, [], "Box.target [min_count]", 1
    ),
    "own": Case({"most": 5}, {"a": {"left": 6}, "b": {"left": 5}}, [], "Box.left [max_value]", 1),
}


class Boxes:
    """A graph of boxes, whose types change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app = App(*declare(), name="boxes", folder=folder)

    def reopen(self, **rules: Any) -> None:
        """Open with other rules."""
        self.app.close()
        self.app = App(*declare(**rules), name="boxes", folder=self.folder)

    def fill(self, branch: str, case: Case) -> None:
        """Save the data of a case in one commit."""
        ctx = self.app.context(branch=branch)
        classes = ctx.registry.classes
        with ctx.kg.transaction():
            for code, fields in case.boxes.items():
                classes["Box"](code=code, **fields).save(ctx)
            for source, target in case.links:
                classes["Link"](source=f"Box/{source}", target=f"Box/{target}").save(ctx)

    def merge(self, source: str, target: str) -> MergeResult:
        """Merge."""
        return merge(self.app.graph(), MergeRequest(source, target), actor="a")

    def broken(self, branch: str) -> list[str]:
        """The rules that a branch breaks, all of them looked at."""
        line = self.app.graph().checkout(branch)
        with self.app.graph().file.reader() as db:
            found = group_violations(broken_rules(line.nodes, db, line.compiled))
        return [f"{each.type}.{each.field} [{each.code}]" for each in found]


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[Boxes]:
    """An empty graph."""
    found = Boxes(tmp_path / "boxes")
    yield found
    found.app.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
class TestEveryRule:
    def test_a_stricter_type_is_refused_on_opening(self, boxes: Boxes, case: Case) -> None:
        """With the rule, how often it is broken, and nodes; the former types still open."""
        boxes.fill("main", case)
        head = boxes.app.graph().log_head("main")
        with pytest.raises(SchemaMismatchError) as refused:
            boxes.reopen(**case.rules)
        assert f"({count(case.times, 'problem')} of 1 kind): {case.rule}" in str(refused.value)
        assert "Box/" in str(refused.value)
        boxes.reopen()
        assert boxes.app.graph().log_head("main") == head
        assert boxes.broken("main") == []

    @pytest.mark.parametrize("into", ["main", "b"])
    def test_a_stricter_type_meets_the_data_in_a_merge(
        self, boxes: Boxes, case: Case, into: str
    ) -> None:
        """Each side is right by itself; together they are a conflict, whichever way they merge."""
        create_branch(boxes.app.graph(), "b", actor="a")
        boxes.fill("b", case)
        boxes.reopen(**case.rules)
        head = boxes.app.graph().log_head(into)
        result = boxes.merge("b" if into == "main" else "main", into)
        assert result.outcome == "conflicts"
        assert len(result.conflicts) == case.times
        assert boxes.app.graph().log_head(into) == head
        assert boxes.broken(into) == []

    def test_data_that_keeps_the_rule_gets_it(self, boxes: Boxes, case: Case) -> None:
        """One node that breaks nothing does not keep the types from changing."""
        classes = boxes.app.context().registry.classes
        ctx = boxes.app.context()
        with ctx.kg.transaction():
            classes["Crate"](code="x", size=1, left=1, right=1).save(ctx)
            classes["Link"](source="Crate/x", target="Crate/x").save(ctx)
        boxes.reopen(**case.rules)
        assert boxes.broken("main") == []


def test_a_branch_that_breaks_a_rule_is_not_moved_to(
    boxes: Boxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branches were once given stricter types unchecked; such a branch does not reach main."""
    case = CASES["unique"]
    create_branch(boxes.app.graph(), "b", actor="a")
    boxes.fill("b", case)
    boxes.reopen(**case.rules)
    with monkeypatch.context() as patched:
        patched.setattr("trails.engine.history.merge_plan.broken_rules", lambda *_: iter(()))
        assert boxes.merge("main", "b").outcome == "merged"
    assert boxes.broken("b") == [case.rule]
    result = boxes.merge("b", "main")
    assert [each.kind for each in result.conflicts] == ["uniqueness"]
    assert boxes.broken("main") == []


def test_a_branch_of_before_is_refused_types_that_its_data_breaks(boxes: Boxes) -> None:
    """The branch is left with its own types, and with its data."""
    create_branch(boxes.app.graph(), "b", actor="a")
    boxes.fill("b", CASES["unique"])
    boxes.reopen(unique=True)
    assert not boxes.app.graph().checkout("b").schema.by_name["Box"].by_name["size"].unique
    assert boxes.broken("b") == []


def test_a_default_that_breaks_an_old_rule_is_refused(tmp_path: Path) -> None:
    """Two nodes get the same value of a unique field: the change does not fit the data."""

    def declared(**rules: Any) -> type:
        @node_type
        class Pump(Node):
            """Has a number that is unique."""

            code: str = predicate(key=True)
            number: int = predicate(unique=True, **rules)

        return Pump

    before = declared(required=False)
    app = App(before, name="pumps", folder=tmp_path)
    ctx = app.context()
    ctx.kg.save_all(before(code=code) for code in "ab")
    app.close()
    with pytest.raises(SchemaMismatchError, match=r"number must be unique|Pump\.number \[unique\]"):
        App(declared(default=0), name="pumps", folder=tmp_path).context()


def test_what_is_no_end_of_an_edge_is_not_counted(tmp_path: Path) -> None:
    """Two edges lead to a node of a wrong type: that they are two is not reported as well."""

    def declared(*, narrow: bool) -> tuple[type, type, type]:
        @node_type
        class Pump(Node):
            """Anything that pumps."""

            code: str = predicate(key=True)

        @node_type
        class Spare(Pump):
            """A pump on the shelf."""

        @edge_type(
            source=Pump, target=Spare if narrow else Pump, per_target=(0, 1 if narrow else 2)
        )
        class Replaces(Edge):
            """Which pump replaces which."""

        return Pump, Spare, Replaces

    before = declared(narrow=False)
    with App(*before, name="pumps", folder=tmp_path) as app:
        ctx = app.context()
        ctx.kg.save_all(before[0](code=code) for code in "abc")
        for code in "bc":
            before[2](source=f"Pump/{code}", target="Pump/a").save(ctx)
    with pytest.raises(SchemaMismatchError) as refused:
        App(*declared(narrow=True), name="pumps", folder=tmp_path).context()
    assert "Replaces.target [reference]" in str(refused.value)
    assert "max_count" not in str(refused.value)
