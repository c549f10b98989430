"""Changes of types while branches exist: following main, merges across renames, history."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.schema.test_steps import CHORE, LINK, PERSON, TASK
from tests.engine.schema.world import World, add_type, states_of

from trails.engine.evidence.records import find_record
from trails.engine.graph.changes import net_between
from trails.engine.history import merge as merging
from trails.engine.history.blame import blame
from trails.engine.schema.evolution import adopt_on_branch
from trails.engine.visibility.refs import snapshot_checkout
from trails.errors import ConflictError, NotFoundError
from trails.model.nodes import NodeState

RENAME_FIELD = {"step": "rename_field", "type": "Task", "field": "state", "to": "status"}
RENAME_TYPE = {"step": "rename_type", "type": "Task", "to": "Issue"}
RENAME_PERSON = {"step": "rename_type", "type": "Person", "to": "Human"}


@pytest.fixture(params=["planned", "locked"])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    """Two tasks, a chore, a person and a link, and a branch from there.

    Merges are planned outside the writer's lock, and under it.
    """
    if request.param == "locked":
        monkeypatch.setattr(merging, "_PLANS", 0)
    made = filled(tmp_path / "graph")
    yield made
    made.check()
    made.close()


def filled(folder: Path | None) -> World:
    """A world with a branch."""
    made = World(folder, PERSON, TASK, CHORE, LINK)
    made.put("Person", code="p", name="Pia")
    made.put("Task", code="a", title="A", state="open", owner="p", tags=["x", "y"])
    made.put("Task", code="b", title="B", state="new")
    made.put("Chore", code="c", title="C", state="done", room="hall")
    made.put("Link", source="Task/a", target="Person/p", why="because")
    made.branch("side")
    return made


def test_a_branch_keeps_the_types_that_were_changed_on_it(world: World) -> None:
    """A write with declared types does not undo its change; it waits for the merge."""
    world.apply(RENAME_FIELD, branch="side")
    own = world.schema("side")
    adopt_on_branch(world.graph, world.checkout("side"), world.schema())
    assert world.schema("side") == own


def test_a_branch_follows_what_main_renamed(world: World) -> None:
    """Its values move as those of main did."""
    world.put("Task", "side", code="s", title="S", state="mine")
    world.apply(RENAME_FIELD, RENAME_TYPE)
    adopt_on_branch(world.graph, world.checkout("side"), world.schema())
    assert world.schema("side") == world.schema()
    assert world.state("side")["Issue/s"]["status"] == "mine"
    assert world.state("side")["Issue/a"]["status"] == "open"


def links(world: World, branch: str = "main") -> list[tuple[object, object, object]]:
    """Ends and reason of each link."""
    found = (each for handle, each in world.state(branch).items() if handle.startswith("Link/"))
    return sorted((each["source"], each["target"], each.get("why")) for each in found)  # type: ignore[type-var]


def test_edits_on_main_meet_a_rename_on_a_branch(world: World) -> None:
    """What main edited and created meanwhile arrives under the new names; nothing is lost."""
    world.apply(RENAME_FIELD, RENAME_TYPE, branch="side")
    world.put("Issue", "side", code="b", title="B2", status="new")
    world.put("Issue", "side", code="s", title="S", status="side")
    world.put("Task", code="a", title="A", state="edited", owner="p", tags=["y", "z"])
    world.put("Task", code="n", title="N", state="main", owner="p")
    world.put("Link", source="Task/n", target="Person/p", why="new")
    world.put("Link", source="Task/a", target="Person/p", why="edited")
    assert world.merge("side").outcome == "merged"
    state = world.state()
    assert state["Issue/a"] == {
        "code": "a",
        "title": "A",
        "status": "edited",
        "owner": "Person/p",
        "tags": ("y", "z"),
    }
    assert state["Issue/b"]["title"] == "B2"
    assert state["Issue/n"]["status"] == "main"
    assert state["Issue/s"]["status"] == "side"
    assert state["Chore/c"]["status"] == "done"
    assert links(world) == [
        ("Issue/a", "Person/p", "edited"),
        ("Issue/n", "Person/p", "new"),
    ]
    assert not any(handle.startswith("Task/") for handle in state)
    assert world.schema() == world.schema("side")
    commit = world.graph.ancestry.commit(world.head())
    assert {each.to for each in commit.renames} == {"status", "Issue"}


def test_a_branch_with_old_names_is_merged_into_a_renamed_main(world: World) -> None:
    """The same the other way round."""
    world.apply(RENAME_FIELD, RENAME_TYPE, RENAME_PERSON)
    world.put("Task", "side", code="a", title="A", state="edited", owner="p")
    world.put("Task", "side", code="n", title="N", state="side", owner="p")
    world.put("Link", "side", source="Task/n", target="Person/p", why="side")
    world.delete("Task/b", "side")
    assert world.merge("side").outcome == "merged"
    state = world.state()
    assert state["Issue/a"]["status"] == "edited"
    assert state["Issue/n"] == {"code": "n", "title": "N", "status": "side", "owner": "Human/p"}
    assert "Issue/b" not in state
    assert links(world) == [
        ("Issue/a", "Human/p", "because"),
        ("Issue/n", "Human/p", "side"),
    ]
    assert world.merge("main", "side").outcome == "fast_forward"


def test_both_sides_edit_what_one_renamed(world: World) -> None:
    """That is a conflict of this field, under its new name, and settled as any other."""
    world.apply(RENAME_FIELD, branch="side")
    world.put("Task", "side", code="a", title="A", status="theirs", owner="p", tags=["x", "y"])
    world.put("Task", code="a", title="A", state="ours", owner="p", tags=["x", "y"])
    found = world.merge("side")
    assert [each.id for each in found.conflicts] == ["divergent_field:Task/a.status"]
    assert world.merge("side", resolve_all="theirs").outcome == "merged"
    assert world.state()["Task/a"]["status"] == "theirs"


def test_names_on_which_sides_disagree_are_refused(world: World) -> None:
    """With what to do; nothing is written."""
    head = world.apply({**RENAME_FIELD, "to": "phase"}).commit
    world.apply(RENAME_FIELD, branch="side")
    with pytest.raises(ConflictError, match=r"both sides renamed Task\.state, to 'phase'"):
        world.merge("side")
    assert world.head() == head
    world.apply({"step": "rename_field", "type": "Task", "field": "phase", "to": "status"})
    assert world.merge("side").outcome == "merged"


def test_a_new_name_that_the_other_side_uses_is_refused(world: World) -> None:
    """A type of that name was added meanwhile."""
    world.apply(add_type("Issue", "note"))
    world.apply(RENAME_TYPE, branch="side")
    with pytest.raises(ConflictError, match="there is a type 'Issue' already"):
        world.merge("side")


def test_a_rename_and_a_new_field_meet(world: World) -> None:
    """Types merge under the common names."""
    field = {"name": "due", "type": "date | None"}
    world.apply({"step": "add_field", "type": "Task", "field": field})
    world.put("Task", code="a", title="A", state="open", owner="p", due="2026-01-01")
    world.apply(RENAME_TYPE, branch="side")
    assert world.merge("side").outcome == "merged"
    assert str(world.state()["Issue/a"]["due"]) == "2026-01-01"
    assert "due" in world.schema().by_name["Chore"].by_name


def test_in_memory_a_rename_meets_edits_as_conflicts() -> None:
    """There are no drafts, so both sides are not aligned; nothing is lost silently."""
    world = filled(None)
    world.apply(RENAME_FIELD, RENAME_TYPE, branch="side")
    world.put("Task", code="a", title="A", state="edited", owner="p", tags=["x", "y"])
    before = world.state()
    assert world.merge("side").conflicts
    assert world.state() == before
    world.close()


def test_blame_leads_back_over_a_rename(world: World) -> None:
    """To the commit that wrote the value, not to the one that renamed it."""
    written = world.head()
    world.put("Task", code="a", title="A2", state="open", owner="p", tags=["x", "y"])
    edited = world.head()
    world.apply(RENAME_FIELD, RENAME_TYPE, RENAME_PERSON)
    world.put("Issue", code="a", title="A2", status="open", owner="p", tags=["x", "z"])
    newest = world.head()
    state = NodeState("Issue", "a", world.state()["Issue/a"])
    found = {
        (each.field, each.value): each.commit.id
        for each in blame(world.graph, state, newest)
        if each.commit is not None
    }
    first = found["status", "open"]
    assert world.graph.ancestry.is_ancestor(first, written)
    assert found["owner", "Human/p"] == first
    assert found["tags", "x"] == first
    assert found["title", "A2"] == edited
    assert found["tags", "z"] == newest


def test_old_states_are_read_with_their_own_types(world: World) -> None:
    """Snapshots, differences and the feed of changes, on both sides of a rename."""
    before, old = world.head(), world.state()
    world.apply(RENAME_FIELD, RENAME_TYPE)
    after = world.head()
    snapshot = snapshot_checkout(world.graph, world.graph.ancestry.commit(before))
    assert states_of(snapshot) == old
    net = net_between(world.graph, before, after)
    assert not net["Task/a"].stays
    assert net["Issue/a"].values["status"] == (None, "open")
    assert net["Chore/c"].values == {"state": ("done", None), "status": (None, "done")}
    back = net_between(world.graph, after, before)
    assert back["Task/a"].values["state"] == (None, "open")


def test_an_old_name_is_answered_with_the_new_one(world: World) -> None:
    """The type is gone, and the error says what it is called now."""
    world.apply(RENAME_TYPE)
    world.apply({"step": "rename_type", "type": "Issue", "to": "Ticket"})
    kg = world.app.context().kg
    with pytest.raises(NotFoundError, match="it was renamed to 'Ticket'"):
        find_record(kg, "Task", "a")
    kg = world.app.context(branch="side").kg
    assert find_record(kg, "Task", "a")[0].handle == "Task/a"


@pytest.mark.parametrize("seed", range(6))
def test_a_merge_across_renames_is_a_merge_and_then_the_renames(seed: int, tmp_path: Path) -> None:
    """The same edits on both sides; in a twin nothing is renamed before the merge."""
    pick = random.Random(seed)
    renames = pick.sample([RENAME_FIELD, RENAME_PERSON, RENAME_TYPE], pick.randint(1, 3))
    renames.sort(key=lambda each: each is RENAME_TYPE)
    renaming, late = pick.choice(["main", "side"]), pick.random() < 0.5
    edits = [
        (branch, pick.choice("abn"), pick.choice(["x", "y"]), pick.choice(["p", None]))
        for branch in ("main", "side")
        for _ in range(pick.randint(1, 3))
    ]
    worlds = []
    for twin in (False, True):
        world = filled(tmp_path / str(twin))
        named = {"main": ("Task", "state"), "side": ("Task", "state")}

        def rename(world: World, *, twin: bool, named: dict[str, tuple[str, str]]) -> None:
            if not twin:
                world.apply(*renames, branch=renaming)
                field = "status" if RENAME_FIELD in renames else "state"
                named[renaming] = "Issue" if RENAME_TYPE in renames else "Task", field

        if not late:
            rename(world, twin=twin, named=named)
        for branch, code, state, owner in edits:
            type_name, field = named[branch]
            values = {"code": code, "title": "T", field: state}
            if owner is not None:
                values["owner"] = owner
            world.put(type_name, branch, **values)
            if owner is not None:
                end = "Human/p" if "Human" in world.schema(branch).by_name else "Person/p"
                world.put("Link", branch, source=f"{type_name}/{code}", target=end, why=state)
        if late:
            rename(world, twin=twin, named=named)
        world.merge("side", resolve_all="ours")
        if twin:
            world.apply(*renames)
        worlds.append(world)
    assert worlds[0].state() == worlds[1].state()
    assert worlds[0].schema() == worlds[1].schema()
    for world in worlds:
        world.check()
        world.close()
