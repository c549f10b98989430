"""Steps: what each does to types and data, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.schema.world import World, add_type, states_of, steps_of

from trails.engine.schema.diff import diff_schemas, reverse
from trails.engine.visibility.refs import snapshot_checkout
from trails.errors import ConflictError, ValidationError
from trails.model.changes.steps import Step
from trails.model.iris import edge_id

Make = Callable[..., World]

PERSON = add_type("Person", {"name": "code", "key": True}, "name")
TASK = add_type(
    "Task",
    {"name": "code", "key": True},
    {"name": "title", "type": "str"},
    "state",
    {"name": "points", "type": "int | None"},
    {"name": "owner", "type": "Ref[Person] | None"},
    {"name": "tags", "type": "list[str]"},
    index=[["state", "title"]],
)
CHORE = add_type("Chore", "room", extends="Task")
LINK = add_type("Link", "why", source="Task", target="Person")


@pytest.fixture(params=["disk", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a world, on disk and in memory."""
    made: list[World] = []

    def one(*types: Step) -> World:
        folder = tmp_path / "graph" if request.param == "disk" else None
        made.append(World(folder, *types))
        return made[-1]

    yield one
    for each in made:
        each.check()
        each.close()


def filled(make: Make) -> World:
    """A world with two tasks, a chore, a person and a link."""
    world = make(PERSON, TASK, CHORE, LINK)
    world.put("Person", code="p", name="Pia")
    world.put("Task", code="a", title="A", state="open", points=3, owner="p", tags=["x", "y"])
    world.put("Task", code="b", title="B")
    world.put("Chore", code="c", title="C", state="done", room="hall")
    world.put("Link", source="Task/a", target="Person/p", why="because")
    return world


def refused(error: pytest.ExceptionInfo[ValidationError]) -> list[tuple[str, str]]:
    """Field and code of each violation."""
    return [(each.field, each.code) for each in error.value.fields]


def test_types_are_added_by_steps_alone(make: Make) -> None:
    """A graph without declarations gets types, and keeps their rules."""
    world = filled(make)
    assert set(world.schema().by_name) == {"Person", "Task", "Chore", "Link"}
    assert world.state()["Chore/c"] == {
        "code": "c",
        "title": "C",
        "state": "done",
        "room": "hall",
    }
    with pytest.raises(ValidationError):
        world.put("Task", code="d")


def test_a_field_is_renamed_with_its_values(make: Make) -> None:
    """In subtypes, groups and queries too; the commit says so, and older commits read as before."""
    world = filled(make)
    before = world.head()
    result = world.apply({"step": "rename_field", "type": "Task", "field": "state", "to": "status"})
    assert result.plan.updated == 2
    commit = world.graph.ancestry.commit(world.head())
    assert commit.id == result.commit
    assert commit.message == "schema: rename field Task.state to status"
    assert [tuple(each) for each in map(_parts, commit.renames)] == [("Task", "status", "state")]
    state = world.state()
    assert state["Task/a"]["status"] == "open"
    assert state["Chore/c"]["status"] == "done"
    assert "state" not in state["Task/a"]
    assert world.schema().by_name["Chore"].index == (("status", "title"),)
    assert world.ask("SELECT ?s { <Task/a> :status ?s }") == [{"s": "open"}]
    assert world.ask("SELECT ?s { <Task/a> :state ?s }") == []
    old = snapshot_checkout(world.graph, world.graph.ancestry.commit(before))
    assert states_of(old)["Task/a"]["state"] == "open"


def _parts(rename: Any) -> tuple[str, str, str]:
    return rename.type, rename.to, rename.field


def test_a_field_with_an_iri_of_its_own_keeps_it(make: Make) -> None:
    """The statement stays; the name by which it is read changes."""
    field = {"name": "label", "type": "str", "iri": "https://schema.org/name"}
    world = make(add_type("Thing", field))
    handle = world.put("Thing", label="x")
    world.apply({"step": "rename_field", "type": "Thing", "field": "label", "to": "caption"})
    assert world.state() == {handle: {"caption": "x"}}
    assert world.ask("SELECT ?s { ?t <https://schema.org/name> ?s }") == [{"s": "x"}]


def test_a_type_is_renamed_with_its_nodes_and_all_references(make: Make) -> None:
    """Ids stay, handles follow; so do edges, whose ids come from their ends, and subtypes."""
    world = filled(make)
    world.apply(
        {"step": "rename_type", "type": "Person", "to": "Human"},
        {"step": "rename_type", "type": "Task", "to": "Issue"},
    )
    state = world.state()
    assert state["Issue/a"]["owner"] == "Human/p"
    assert state["Human/p"] == {"code": "p", "name": "Pia"}
    assert state["Chore/c"]["room"] == "hall"
    (link,) = (each for handle, each in state.items() if handle.startswith("Link/"))
    assert link == {"source": "Issue/a", "target": "Human/p", "why": "because"}
    schema = world.schema()
    assert schema.lineage("Chore") == ("Chore", "Issue")
    assert schema.by_name["Link"].edge is not None
    assert schema.by_name["Link"].edge.source == "Issue"
    assert world.ask("SELECT ?x { ?x a :Issue } ORDER BY ?x", "main") != []
    assert len(world.ask("SELECT ?x { ?x a :Issue }")) == 3
    assert world.ask("SELECT ?x { ?x a :Task }") == []
    world.put("Issue", code="d", title="D", owner="p")
    # The same edge again is the same node.
    world.put("Link", source="Issue/a", target="Human/p", why="still")
    assert sum(handle.startswith("Link/") for handle in world.state()) == 1


def test_a_new_field_gets_its_default_or_a_backfill(make: Make) -> None:
    """A required one its default, any other a value or an expression over the other fields."""
    world = filled(make)
    world.apply(
        {
            "step": "add_field",
            "type": "Task",
            "field": {"name": "kind", "type": "str", "default": "plain"},
        },
        {
            "step": "add_field",
            "type": "Task",
            "field": {"name": "size", "type": "float | None"},
            "backfill": 1,
        },
        {
            "step": "add_field",
            "type": "Task",
            "field": {"name": "shout", "type": "str | None"},
            "backfill": {"expression": 'CONCAT(UCASE(?title), "!", STR(?points))'},
        },
    )
    state = world.state()
    assert [state[each]["kind"] for each in ("Task/a", "Task/b", "Chore/c")] == ["plain"] * 3
    assert state["Task/b"]["size"] == 1.0
    assert state["Task/a"]["shout"] == "A!3"
    assert "shout" not in state["Task/b"]  # points has no value, so there is none


def test_a_required_field_without_a_value_lists_the_nodes(make: Make) -> None:
    """By pages, in a stable order; nothing is written."""
    world = filled(make)
    head = world.head()
    step = {"step": "add_field", "type": "Task", "field": {"name": "kind", "type": "str"}}
    plan = world.plan(step, limit=2)
    assert plan.offending == 3
    assert [each.node for each in plan.offenses] == ["Chore/c", "Task/a"]
    assert plan.next == 2
    rest = world.plan(step, offset=2, limit=2)
    assert [(each.node, each.field, each.rule) for each in rest.offenses] == [
        ("Task/b", "kind", "required")
    ]
    assert rest.next is None
    with pytest.raises(ValidationError) as error:
        world.apply(step)
    assert refused(error) == [
        (f"{handle}.kind", "required") for handle in ("Chore/c", "Task/a", "Task/b")
    ]
    assert world.head() == head


def test_a_kind_changes_with_its_values(make: Make) -> None:
    """Where every value has a counterpart; the others are listed."""
    world = filled(make)
    change = {"step": "change_field", "type": "Task", "field": "points"}
    world.apply({**change, "to": {"name": "points", "type": "str | None"}})
    assert world.state()["Task/a"]["points"] == "3"
    world.put("Task", code="b", title="B", points="many")
    with pytest.raises(ValidationError) as error:
        world.apply({**change, "to": {"name": "points", "type": "int | None"}})
    assert refused(error) == [("Task/b.points", "convert")]
    world.put("Task", code="b", title="B")
    world.apply({**change, "to": {"name": "points", "type": "int | None"}})
    assert world.state()["Task/a"]["points"] == 3
    world.apply({**change, "to": {"name": "points", "type": "list[float]"}})
    assert world.state()["Task/a"]["points"] == (3.0,)
    tags = {"step": "change_field", "type": "Task", "field": "tags"}
    with pytest.raises(ValidationError) as error:
        world.apply({**tags, "to": {"name": "tags", "type": "str | None"}})
    assert refused(error) == [("Task/a.tags", "convert")]


def test_a_set_becomes_ordered_and_a_set_again(make: Make) -> None:
    """Without loss: an order or a duplicate that a set can't keep is refused unless allowed."""
    world = filled(make)
    change = {"step": "change_field", "type": "Task", "field": "tags"}
    ordered = {"name": "tags", "type": "list[str]", "ordered": True}
    unordered = {"name": "tags", "type": "list[str]"}
    world.apply({**change, "to": ordered})
    assert world.state()["Task/a"]["tags"] == ("x", "y")
    world.apply({**change, "to": unordered})
    world.apply({**change, "to": ordered})
    for tags in (["y", "x"], ["x", "x"]):
        world.put("Task", code="a", title="A", tags=tags)
        with pytest.raises(ValidationError) as error:
            world.apply({**change, "to": unordered})
        assert refused(error) == [("Task/a.tags", "convert")]
    world.apply({**change, "to": unordered, "convert": "lossy"}, allow_data_loss=True)
    assert world.state()["Task/a"]["tags"] == ("x",)


def test_values_are_lost_only_where_that_is_allowed(make: Make) -> None:
    """A soft drop is refused while there are values, a hard one unless that is allowed."""
    world = filled(make)
    drop = {"step": "drop_field", "type": "Task", "field": "points"}
    with pytest.raises(ValidationError) as error:
        world.apply(drop)
    assert refused(error) == [("Task/a.points", "in_use")]
    with pytest.raises(ValidationError) as error:
        world.apply({**drop, "hard": True})
    assert refused(error) == [("steps[0]", "data_loss")]
    world.apply({**drop, "hard": True}, allow_data_loss=True)
    assert "points" not in world.state()["Task/a"]
    with pytest.raises(ValidationError) as error:
        world.apply({"step": "drop_type", "type": "Link"})
    assert refused(error)[0][1] == "in_use"
    world.apply({"step": "drop_type", "type": "Link", "hard": True}, allow_data_loss=True)
    assert not any(handle.startswith("Link/") for handle in world.state())
    with pytest.raises(ValidationError) as error:
        world.apply(
            {"step": "drop_type", "type": "Chore", "hard": True},
            {"step": "drop_type", "type": "Person"},
        )
    assert [code for _, code in refused(error)] == ["unknown"]  # Task.owner refers to it


def test_a_field_is_split(make: Make) -> None:
    """Into fields that are computed from it."""
    world = make(add_type("Person", {"name": "name", "type": "str"}))
    handle = world.put("Person", name="Ada Lovelace")
    world.apply(
        {
            "step": "split_field",
            "type": "Person",
            "field": "name",
            "into": [{"name": "first", "type": "str"}, {"name": "last", "type": "str"}],
            "values": {
                "first": {"expression": 'STRBEFORE(?name, " ")'},
                "last": {"expression": 'STRAFTER(?name, " ")'},
            },
        },
        allow_data_loss=True,
    )
    assert world.state() == {handle: {"first": "Ada", "last": "Lovelace"}}


def test_every_mistake_in_steps_is_reported_at_once(make: Make) -> None:
    """With the place in the steps, and what is near."""
    world = filled(make)
    with pytest.raises(ValidationError) as error:
        world.plan(
            {"step": "rename_field", "type": "Task", "field": "titel", "to": "name"},
            {"step": "rename_type", "type": "Person", "to": "Task"},
            {"step": "rename_field", "type": "Chore", "field": "title", "to": "name"},
            {"step": "add_type", "type": {"name": "Sub", "extends": "Tsk"}},
            {"step": "add_field", "type": "Sub", "field": {"name": "x"}},
            {"step": "change_type", "type": "Task", "extends": "Chore"},
            {"step": "add_field", "type": "Task", "field": {"name": "y", "type": "nope"}},
        )
    assert refused(error) == [
        ("steps[0].field", "unknown"),
        ("steps[1].to", "taken"),
        ("steps[2].field", "inherited"),
        ("steps[3].type.extends", "unknown"),
        ("steps[5].extends", "cycle"),
        ("steps[6].field.type", "type"),
    ]
    assert "did you mean 'title'?" in error.value.fields[0].message


def test_apply_can_require_the_plan_that_was_reviewed(make: Make) -> None:
    """A branch that has moved since needs another plan."""
    world = filled(make)
    step = {"step": "rename_field", "type": "Task", "field": "state", "to": "status"}
    plan = world.plan(step)
    assert plan.steps[0].effect == "safe"
    world.put("Task", code="z", title="Z")
    with pytest.raises(ConflictError):
        world.apply(step, plan=plan.digest)
    done = world.apply(step, plan=world.plan(step).digest, dry_run=True)
    assert done.commit is None
    assert "state" in world.schema().by_name["Task"].by_name
    assert world.apply(step, plan=world.plan(step).digest).commit == world.head()


def test_a_change_on_a_branch_leaves_main_alone(make: Make) -> None:
    """Each branch has its own types."""
    world = filled(make)
    world.branch("side")
    world.apply({"step": "rename_type", "type": "Task", "to": "Issue"}, branch="side")
    assert "Issue/a" in world.state("side")
    assert "Task/a" in world.state()
    world.put("Task", code="n", title="N")
    assert "Issue/n" not in world.state("side")


def test_what_steps_dropped_comes_back(make: Make) -> None:
    """The reverse of steps, with their commit, leaves types and data as they were."""
    world = filled(make)
    world.put("Task", code="d", title="Two words", points=7)
    before, schema = world.state(), world.schema()
    points = {"name": "points", "type": "bool | None"}
    steps = steps_of(
        {"step": "rename_type", "type": "Task", "to": "Issue"},
        {"step": "rename_field", "type": "Issue", "field": "title", "to": "name"},
        {"step": "drop_field", "type": "Issue", "field": "tags", "hard": True},
        {"step": "drop_field", "type": "Issue", "field": "owner", "hard": True},
        {
            "step": "change_field",
            "type": "Issue",
            "field": "points",
            "to": points,
            "convert": "lossy",
        },
        {"step": "drop_type", "type": "Link", "hard": True},
        {"step": "drop_type", "type": "Person", "hard": True},
        {"step": "change_type", "type": "Issue", "index": []},
        {
            "step": "split_field",
            "type": "Issue",
            "field": "name",
            "into": [{"name": "first", "type": "str"}, {"name": "rest", "type": "str | None"}],
            "values": {
                "first": {"expression": "SUBSTR(?name, 1, 1)"},
                "rest": {"expression": "SUBSTR(?name, 2)"},
            },
        },
        {
            "step": "add_field",
            "type": "Issue",
            "field": {"name": "extra", "type": "int"},
            "backfill": 1,
        },
    )
    done = world.apply(*steps, allow_data_loss=True)
    assert world.state()["Issue/d"] == {
        "code": "d",
        "extra": 1,
        "first": "T",
        "points": True,
        "rest": "wo words",
    }
    world.put("Issue", code="e", first="E", points=False, extra=2)
    world.delete("Issue/e")
    undone = world.apply(*reverse(steps, schema, done.commit), allow_data_loss=True)
    assert undone.plan.created == 2
    assert world.state() == before
    assert diff_schemas(world.schema(), schema) == ()


def test_an_expression_runs_in_the_sandbox(make: Make) -> None:
    """A text that is no single expression never gets there."""
    world = filled(make)
    step = {"step": "add_field", "type": "Task", "field": {"name": "x", "type": "str | None"}}
    for text in (
        "?titel",
        "?tags",
        "1) AS ?y) (2",
        "1 # comment",
        "EXISTS { ?s ?p ?o }",
        "(1",
        "",
        "SERVICE <http://example.org/> { }",
    ):
        given = {**step, "backfill": {"expression": text}}
        if text == "1 # comment":
            assert world.plan(given).offending == 0
            continue
        with pytest.raises(ValidationError) as error:
            world.plan(given)
        assert refused(error)[0][1] == "expression", text


def test_edges_with_a_key_keep_it_when_their_ends_are_renamed(make: Make) -> None:
    """Their ids follow from both ends and the key, under whatever names these have."""
    visit = add_type("Visit", {"name": "day", "key": True}, source="Task", target="Person")
    world = make(PERSON, TASK, visit)
    world.put("Person", code="p")
    world.put("Task", code="a", title="A")
    for day in ("mon", "tue"):
        world.put("Visit", source="Task/a", target="Person/p", day=day)
    world.apply(
        {"step": "rename_type", "type": "Person", "to": "Human"},
        {"step": "rename_field", "type": "Visit", "field": "day", "to": "when"},
    )
    visits = {handle: each for handle, each in world.state().items() if handle[:5] == "Visit"}
    assert visits == {
        f"Visit/{edge_id('Task/a', 'Human/p', day)}": {
            "source": "Task/a",
            "target": "Human/p",
            "when": day,
        }
        for day in ("mon", "tue")
    }


def test_a_type_becomes_abstract_by_a_step(make: Make) -> None:
    """Not while it has nodes, which are listed; the step can be reversed."""
    world = filled(make)
    step = {"step": "change_type", "type": "Task", "abstract": True}
    plan = world.plan(step)
    assert plan.offending == 2
    assert [each.node for each in plan.offenses] == ["Task/a", "Task/b"]
    assert all("Task is abstract" in each.message for each in plan.offenses)
    for handle in ("Task/a", "Task/b"):
        world.delete(handle)
    before = world.schema()
    world.apply(step)
    assert world.schema().by_name["Task"].abstract
    world.put("Chore", code="d", title="D")
    with pytest.raises(ValidationError, match=r"Task is abstract, so no node .* use Chore"):
        world.put("Task", code="e", title="E")
    world.apply(*reverse(tuple(steps_of(step)), before))
    assert world.schema() == before
    with pytest.raises(ValidationError) as error:
        world.apply({"step": "change_type", "type": "Link", "abstract": True})
    assert refused(error) == [("steps[0].abstract", "declaration")]


@pytest.mark.req("T21e")
def test_an_invalid_value_fails_alike_in_a_write_and_in_a_change(make: Make) -> None:
    """The same rule, field and message, whether a node is put or its type changes."""
    world = filled(make)
    kind = {"name": "kind", "type": "str | None", "one_of": ["x", "y"]}
    added = {"step": "add_field", "type": "Task", "field": kind}
    with pytest.raises(ValidationError) as changed:
        world.apply({**added, "backfill": {"expression": "?code"}})
    world.apply(added)
    with pytest.raises(ValidationError) as written:
        world.put("Task", code="a", title="A", kind="a")
    (direct,) = written.value.fields
    found = next(each for each in changed.value.fields if each.field == "Task/a.kind")
    assert (found.code, found.value) == (direct.code, direct.value) == ("one_of", "a")
    assert found.message == f"Task/a.{direct.message}"
