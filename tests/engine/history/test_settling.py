"""Every conflict can be settled with each resolution that is offered, one by one or all at once."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from tests.engine.history.repo import Repo
from tests.engine.history.test_schema_merge import Tasks, small, with_due, without_size
from tests.engine.history.test_stricter_types import CASES, Boxes, Case
from tests.worlds.processes import Shell

from trails import Node, node_type, predicate
from trails.engine.history.branches import create_branch
from trails.engine.history.merge import merge
from trails.errors import ValidationError
from trails.model.history import MergeRequest, MergeResult, Resolution


class Joined(Boxes):
    """Boxes of which each may have one link as a source."""

    def link(self, branch: str, source: str, target: str) -> str:
        """Join two boxes; the handle of the edge."""
        ctx = self.app.context(branch=branch)
        made = ctx.registry.classes["Link"](source=f"Box/{source}", target=f"Box/{target}")
        made.save(ctx)
        return str(made.handle)

    def settle(self, source: str, target: str, **more: object) -> MergeResult:
        """Merge with resolutions."""
        return merge(self.app.graph(), MergeRequest(source, target, **more), actor="a")

    def links(self, branch: str) -> set[str]:
        """The edges of a branch."""
        ctx = self.app.context(branch=branch)
        return {str(each.handle) for each in ctx.registry.classes["Link"].objects(ctx)}


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Joined]:
    """Three boxes; main and b each join the first to another one."""
    found = Joined(tmp_path)
    found.reopen(per_source=(0, 1))
    found.fill("main", Case({}, {each: {} for each in "abc"}, [], "", 0))
    create_branch(found.app.graph(), "b", actor="a")
    yield found
    found.app.close()


@pytest.mark.parametrize("take", ["ours", "theirs"])
def test_too_many_edges_are_settled_by_a_side(joined: Joined, take: str) -> None:
    """Both sides' edges are shown, and either's can be kept."""
    ours, theirs = joined.link("main", "a", "b"), joined.link("b", "a", "c")
    (found,) = joined.merge("b", "main").conflicts
    assert (found.id, found.takes) == (
        "constraint:Box/a.Link.source:max_count",
        ("ours", "theirs"),
    )
    sides = found.ours, found.theirs
    assert [[each.rpartition("/")[2] for each in side] for side in sides] == [
        [ours.partition("/")[2]],
        [theirs.partition("/")[2]],
    ]
    done = joined.settle("b", "main", resolutions={found.id: Resolution(take)})
    assert done.outcome == "merged"
    assert joined.links("main") == {ours if take == "ours" else theirs}
    assert joined.broken("main") == []


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("into", ["main", "b"])
def test_every_resolution_of_a_stricter_type_works(tmp_path: Path, case: Case, into: str) -> None:
    """Whichever side the rule came from; what is suggested settles everything."""
    boxes = Joined(tmp_path)
    create_branch(boxes.app.graph(), "b", actor="a")
    boxes.fill("b", case)
    boxes.reopen(**case.rules)
    source = "b" if into == "main" else "main"
    found = boxes.merge(source, into)
    for each in found.conflicts:
        assert {*each.takes} & {"ours", "theirs"}
        for take in {*each.takes} - {"value"}:
            result = boxes.settle(
                source, into, dry_run=True, resolutions={each.id: Resolution(take)}
            )
            assert each.id not in {other.id for other in result.conflicts}
    chosen = {name: Resolution(side) for name, side in found.suggested.items()}
    assert boxes.settle(source, into, resolutions=chosen).outcome == "merged"
    assert boxes.broken(into) == []
    boxes.app.close()


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Repo]:
    """Items on main, and a branch."""
    found = Repo(tmp_path)
    found.put("main", "Team/t0")
    found.put("main", "Item/i0", team="Team/t0")
    found.put("main", "Item/i1", peers=["Item/i0"])
    found.link("main", "Item/i0", "Item/i1", weight=1)
    found.branch("b")
    yield found
    found.sound()
    found.app.close()


def each_way(result: MergeResult) -> Iterator[dict[str, Resolution | str]]:
    """Every combination of the sides that are offered."""
    sides = [[take for take in each.takes if take != "value"] for each in result.conflicts]
    for chosen in product(*sides):
        yield {each.id: take for each, take in zip(result.conflicts, chosen, strict=True)}


@pytest.mark.parametrize("into", ["main", "b"])
def test_a_cascade_against_an_edit(repo: Repo, into: str) -> None:
    """Settling one conflict may dissolve another, whose resolution is then not needed."""
    repo.drop("main", "Item/i0", cascade=True)
    repo.put("b", "Item/i0", note="changed")
    repo.link("b", "Item/i0", "Item/i1", weight=2)
    repo.put("b", "Item/i2", peers=["Item/i0"])
    source = "b" if into == "main" else "main"
    result = repo.merge(source, into)
    assert len(result.conflicts) >= 2
    for take in ("ours", "theirs"):
        settled, done = dict[str, Resolution | str](), result
        for _ in range(3):  # a resolution may bring about another conflict, which is then listed
            settled |= {each.id: take for each in done.conflicts}
            done = repo.merge(source, into, take=settled, dry_run=True)
        assert done.outcome == "merged"
        assert repo.merge(source, into, resolve_all=take, dry_run=True).outcome == "merged"
    for settled in each_way(result):
        done = repo.merge(source, into, take=settled, dry_run=True)
        if done.conflicts:  # a mixture may need more decisions, which are then suggested
            done = repo.merge(source, into, take={**settled, **done.suggested}, dry_run=True)
        assert done.outcome == "merged", settled
    assert repo.merge(source, into, take=dict(result.suggested)).outcome == "merged"


@pytest.mark.parametrize("into", ["main", "b"])
def test_references_to_what_was_deleted_are_listed_one_by_one(repo: Repo, into: str) -> None:
    """The same conflicts whichever way it is merged."""
    repo.put("b", "Item/i2", team="Team/t0")
    repo.put("b", "Item/i1", team="Team/t0")
    repo.drop("main", "Team/t0", cascade=True)
    result = repo.merge("b" if into == "main" else "main", into)
    assert sorted(each.id for each in result.conflicts) == [
        "dangling_reference:Item/i1+Team/t0.team",
        "dangling_reference:Item/i2+Team/t0.team",
    ]
    for each in result.conflicts:
        assert each.takes == ("ours", "theirs", "value")
    settled = {each.id: Resolution("value", None) for each in result.conflicts}
    assert repo.merge("b" if into == "main" else "main", into, take=settled).outcome == "merged"


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    """The size of tasks is dropped on main, and given on b."""
    found = Tasks(tmp_path)
    for code in ("t0", "t1"):
        found.save("main", code, size=None)
    assert found.merged("main", "b").outcome == "fast_forward"
    found.save("b", "t0", size=3, title="b")
    found.adopt(without_size())
    found.save("main", "t1", title="main")
    yield found
    found.sound()
    found.app.close()


@pytest.mark.parametrize("into", ["main", "b"])
@pytest.mark.parametrize("take", ["ours", "theirs"])
def test_a_field_that_one_side_dropped(tasks: Tasks, into: str, take: str) -> None:
    """One side keeps the field with its values, the other drops both; snapshots know better."""
    before = tasks.head(into)
    source = "b" if into == "main" else "main"
    chosen = {"schema:Task.size": Resolution(take)}
    asked = MergeRequest(source, into, resolutions=chosen)
    done = merge(tasks.graph, asked, actor="a")
    assert done.outcome == "merged"
    keeps = (take == "theirs") == (into == "main")
    state = tasks.graph.checkout(into)
    assert ("size" in state.schema.by_name["Task"].by_name) == keeps
    rows = tasks.rows(into)
    assert rows["t0"] == {"code": "t0", "title": "b"} | ({"size": 3} if keeps else {})
    assert rows["t1"]["title"] == "main"
    old_row = tasks.app.context(snapshot=before).kg.find("Task", "t0")
    assert old_row.values.get("size") == (3 if into == "b" else None)


def test_a_branch_that_uses_a_dropped_field_can_be_written(tasks: Tasks) -> None:
    """It keeps its types until its data fits the new ones; nothing is lost by saving."""
    tasks.save("b", "t0", title="again")
    assert tasks.rows("b")["t0"] == {"code": "t0", "title": "again", "size": 3}
    ctx = tasks.ctx("b")
    ctx.registry.classes["Task"].get(ctx, "t0").delete(ctx)
    assert set(tasks.rows("b")) == {"t1"}
    result = tasks.merged("b", "main")
    assert result.outcome == "merged"
    assert set(tasks.rows("main")) == {"t1"}


def test_a_write_that_needs_the_new_types_says_why_they_are_not_there(tmp_path: Path) -> None:
    """The error has the rule that keeps the branch from having them."""
    tasks = Tasks(tmp_path)
    tasks.save("b", "t0", size=9)

    @node_type
    class Task(Node):
        """Work."""

        code: str = predicate(key=True)
        title: str | None = predicate()
        size: int | None = predicate(max_value=5)
        owner: str | None = predicate()

    tasks.adopt(Task)
    with pytest.raises(
        ValidationError, match=r"owner is not a field.*keeps its current types.*at most 5"
    ):
        tasks.save("b", "t1", owner="ada")
    tasks.save("b", "t0", size=4)
    tasks.graph.checkout("b").misfit = None  # it is tried again after a while
    tasks.save("b", "t1", owner="ada")
    assert tasks.rows("b")["t1"]["owner"] == "ada"
    tasks.app.close()


def test_data_that_the_other_side_emptied_is_no_conflict(tmp_path: Path) -> None:
    """A field that main emptied and dropped is dropped on a branch that never touched it."""
    tasks = Tasks(tmp_path)
    for code in ("t0", "t1"):
        tasks.save("main", code, size=None)
    tasks.adopt(without_size())
    tasks.save("b", "t0", title="b")
    assert tasks.merged("main", "b").outcome == "merged"
    assert tasks.rows("b") == {
        "t0": {"code": "t0", "title": "b"},
        "t1": {"code": "t1", "title": "b"},
    }
    tasks.sound()
    tasks.app.close()


@pytest.mark.parametrize("take", ["ours", "theirs"])
def test_types_that_both_sides_changed(tmp_path: Path, take: str) -> None:
    """Either declaration can be taken; the data that does not fit it is settled with it."""
    tasks = Tasks(tmp_path)
    tasks.adopt(small())
    tasks.save("b", "t0", title="q")
    tasks.branch("c", "b")
    tasks.adopt(with_due())
    tasks.save("main", "t1", size=7)
    result = tasks.merged("c", "main")
    assert [each.id for each in result.conflicts] == ["schema:Task"]
    chosen = {name: Resolution(side) for name, side in result.suggested.items()}
    assert (
        merge(tasks.graph, MergeRequest("c", resolutions=chosen, dry_run=True), actor="a").outcome
        == "merged"
    )
    done = merge(tasks.graph, MergeRequest("c", resolve_all=take), actor="a")
    if take == "ours":
        assert done.outcome == "merged"
    else:  # the value that main gave breaks the rule that it takes over, and is not thrown away
        assert [each.id for each in done.conflicts] == []
    tasks.sound()
    tasks.app.close()


APP = '''
from trails import Edge, Node, Ref, edge_type, node_type, predicate


@node_type
class Box(Node):
    """A box."""

    code: str = predicate(key=True)
    size: int | None = predicate(unique=True)
    near: Ref["Box"] | None = predicate()


@edge_type(source=Box, target=Box, per_source=(0, 1))
class Link(Edge):
    """Joins boxes."""
'''


def test_the_printed_command_works_as_it_is(tmp_path: Path) -> None:
    """With conflicts of every sort at once, and a message that needs quotes."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "boxes"\n', encoding="utf-8")
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    shell = Shell(tmp_path)

    def mutate(branch: str, *operations: dict[str, object]) -> None:
        name = shell.write("change.json", list(operations))
        shell.run("mutate", "--operations", name, "--branch", branch)

    def box(op: str, code: str, **data: object) -> dict[str, object]:
        if op == "create":
            return {"op": op, "type": "Box", "data": {"code": code, **data}}
        return {"op": op, "type": "Box", "id": code} | ({"data": data} if data else {})

    def link(source: str, target: str) -> dict[str, object]:
        ends = {"source": f"Box/{source}", "target": f"Box/{target}"}
        return {"op": "create", "type": "Link", "data": ends}

    mutate("main", *(box("create", each) for each in "abcd"))
    shell.run("branch", "create", "agents/its")
    mutate("main", box("update", "a", size=1), box("delete", "d"), link("a", "b"))
    mutate("main", box("create", "e", size=5))
    mutate("agents/its", box("update", "a", size=2), box("update", "b", size=5), link("a", "c"))
    mutate("agents/its", box("update", "c", near="Box/d"))
    where = Shell(tmp_path.parent)  # from another folder, with everything that can be said
    head = shell.json("branch", "list")["branches"][0]["head"]
    asked = ("--graph", "main", "--expected-head", head, "--idempotency-key", "its merge")
    place = ("--project", tmp_path.name)
    text = where.out(
        "branch", "merge", "agents/its", "-m", "Bring it's work", *asked, *place, code=1
    )
    assert "4 conflicts" in text
    command = text.split("resolves all conflicts:")[1].replace("\\\n", " ")
    said = where.out(*shlex.split(command)[1:])
    assert "Merged agents/its into main" in said
    assert "already done" in where.out(*shlex.split(command)[1:])
    assert "Bring it's work" in shell.out("commit", "list")
