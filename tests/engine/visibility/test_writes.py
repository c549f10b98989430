"""Who may not see something writes as if it had never been there, whatever the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.journeys.access.worlds import (
    HIDDEN_WORDS,
    ORM,
    OUTSIDE,
    WRITERS,
    Narrow,
    Values,
    World,
    answer,
    handle_of,
    hidden_part,
    plain,
    settle,
    whole,
)

from trails.authoring.nodes import state_of
from trails.engine.visibility.access import OPEN
from trails.engine.write.mutate import local_effect, mutate_sparql
from trails.errors import ForbiddenError, NotFoundError, TransactionError, ValidationError
from trails.model.history import MergeRequest
from trails.model.iris import edge_id
from trails.model.visibility import Visibility


@pytest.fixture
def both() -> Iterator[tuple[World, World]]:
    """The project with hidden parts, and the one that never had them."""
    with whole() as secretive, plain() as open_one:
        yield settle(secretive), settle(open_one)


SAME: dict[str, tuple[str, Values]] = {
    "a new person": ("Person", {"email": "new@x", "name": "New", "tags": ["z"], "team": "Team/t"}),
    "a known person": ("Person", {"email": "ann@x", "name": "Anna", "tags": ["c"]}),
    "nothing new": ("Team", {"code": "t", "title": "Team"}),
    "a person without a name": ("Person", {"email": "new@x"}),
    "a name that a shape refuses": ("Person", {"email": "bob@x", "name": "B" * 13}),
    "two that share a badge": ("Person", {"email": "new@x", "name": "New", "badge": "1"}),
    "too many tags": ("Person", {"email": "bob@x", "name": "Bob", "tags": list("abcd")}),
    "a team that is not there": ("Person", {"email": "bob@x", "name": "Bob", "team": "Team/u"}),
    "a task": ("Task", {"code": "T1", "title": "Changed"}),
    "a wrong choice": ("Task", {"code": "T1", "title": "Changed", "state": "lost"}),
    "a label of a desk": ("Desk", {"code": "d", "label": "New", "more": ["Asset/A1"]}),
    "a new desk": ("Desk", {"code": "e", "main": "Asset/A1", "more": ["Asset/A1"]}),
    "a label of a seat": ("Seat", {"code": "s1", "room": "A", "label": "by the door"}),
    "a new seat": ("Seat", {"code": "s9", "room": "A"}),
    "a label of an account": ("Account", {"code": "acc", "label": "New"}),
    "a label of an asset": ("Asset", {"tag": "A1", "serial": "S1", "label": "New"}),
}
UNKNOWN: dict[str, tuple[str, Values]] = {
    "a hidden field": ("Person", {"email": "ann@x", "name": "Ann", "salary": 5}),
    "a hidden set": ("Person", {"email": "ann@x", "name": "Ann", "secrets": ["x"]}),
    "nearly a hidden field": ("Person", {"email": "ann@x", "name": "Ann", "salry": 5}),
    "a hidden type": ("Vault", {"code": "v"}),
    "a type that extends a seen one": ("Laptop", {"tag": "L0", "serial": "S8"}),
    "nearly a hidden type": ("Vaut", {"code": "v"}),
    "a reference to a hidden node": ("Desk", {"code": "e", "main": "Laptop/L0"}),
    "a reference to a node that never was": ("Desk", {"code": "e", "main": "Laptop/no"}),
    "a reference to a hidden type": ("Desk", {"code": "e", "more": ["Vault/v"]}),
}
REFUSED: dict[str, tuple[str, Values]] = {
    "a node with a hidden field that must be given": ("Account", {"code": "new"}),
    "a field that is unique with a hidden one": ("Seat", {"code": "s1", "room": "B"}),
    "the same, where it would do no harm": ("Seat", {"code": "s1", "room": "Z"}),
    "a key that a hidden type shares": ("Asset", {"tag": "L0"}),
    "another one": ("Asset", {"tag": "free"}),
    "a value that is unique among hidden ones": ("Asset", {"tag": "A1", "serial": "S8"}),
    "a free one": ("Asset", {"tag": "A1", "serial": "free"}),
    "a reference that may be a hidden one": ("Desk", {"code": "d", "main": "Asset/A1"}),
    "a set of references": (
        "Desk",
        {"code": "d", "more": ["Asset/A1", "Asset/A1"], "main": "Asset/A1"},
    ),
}
PATHS = sorted(WRITERS)
FEWER = [path for path in PATHS if path.split()[0] not in {"turtle", "nquads", "jsonld"}]
"""Formats of RDF differ in how a text is parsed, which is done before anybody is asked."""
_CREATING = {"save", "typed create", "ndjson append", "csv append", "ntriples append"}


def check_same(both: tuple[World, World], path: str, type_name: str, values: Values) -> None:
    """Both projects answer the same and look the same, and nothing hidden has changed."""
    secretive, open_one = both[0].fork(), both[1].fork()
    before = hidden_part(secretive)
    there = answer(lambda: WRITERS[path](secretive, type_name, values))
    here = answer(lambda: WRITERS[path](open_one, type_name, values))
    assert there == here
    assert secretive.seen() == open_one.seen()
    after = hidden_part(secretive)
    new = handle_of(type_name, values).replace("%40", "@")
    assert {key for key in after if key not in before} <= {f"{new}.grade"}
    assert {key: after[key] for key in before if key in after or _stays(key, new, path)} == {
        key: value for key, value in before.items() if key in after or _stays(key, new, path)
    }


def _stays(key: str, new: str, path: str) -> bool:
    """What is hidden in a node goes with the node, where overwriting leaves that out."""
    return "overwrite" not in path or key.partition("/")[0] != new.partition("/")[0]


@pytest.mark.req("E11a")
@pytest.mark.parametrize("path", PATHS)
def test_a_write_does_what_it_would_do_without_the_hidden_parts(
    both: tuple[World, World], path: str
) -> None:
    """Answers, errors and results are those of a project that never had the hidden parts."""
    for type_name, values in SAME.values():
        if not (type_name == "Task" and "overwrite" in path):  # which would delete tasks
            check_same(both, path, type_name, values)


@pytest.mark.req("E11a")
@pytest.mark.parametrize("path", sorted(OUTSIDE))
def test_what_is_hidden_is_unknown_to_a_writer(both: tuple[World, World], path: str) -> None:
    """A hidden type or field is refused in the words for one that does not exist."""
    for type_name, values in UNKNOWN.values():
        check_same(both, path, type_name, values)


@pytest.mark.req("E11a")
@pytest.mark.parametrize("path", FEWER)
def test_what_hidden_data_could_decide_is_refused_up_front(path: str) -> None:
    """The refusal is the same whatever is hidden, names nothing of it, and leaves nothing."""
    told: list[list[str]] = []
    for secret in range(3):
        with whole() as world:
            settle(world, secret)
            told.append([_refusal(world.fork(), path, *each) for each in REFUSED.values()])
    assert told[0] == told[1] == told[2]
    for answered, (type_name, values) in zip(told[0], REFUSED.values(), strict=True):
        exists = values.get("code", values.get("tag")) in {"s1", "d", "A1"}
        if exists != (path in _CREATING) and (exists or path != "typed update"):
            assert "'forbidden'" in answered, (path, type_name, values)


def _refusal(world: World, path: str, type_name: str, values: Values) -> str:
    before = world.all()
    there = answer(lambda: WRITERS[path](world, type_name, values))
    assert there[0] == "error"
    assert world.all() == before
    assert not HIDDEN_WORDS.search(str(there))
    return str(there)


@pytest.mark.req("E11a")
@pytest.mark.parametrize("path", sorted(ORM))
def test_an_instance_cannot_set_what_its_actor_cannot_see(
    both: tuple[World, World], path: str
) -> None:
    """A class has fields that the actor does not see; setting one is an unknown field."""
    world = both[0]
    before = world.all()
    with pytest.raises(ValidationError) as caught:
        WRITERS[path](world, "Person", {"email": "new@x", "name": "Ann", "salary": 1})
    assert [error.code for error in caught.value.fields] == ["unknown_field"]
    assert "it has email, name, badge, tags, team" in caught.value.message
    with pytest.raises(NotFoundError, match="has no type 'Vault'"):
        WRITERS[path](world, "Vault", {"code": "v"})
    assert world.all() == before


@pytest.mark.req("E11a")
def test_an_instance_that_was_read_keeps_what_was_not(both: tuple[World, World]) -> None:
    """Saving what an actor read and changed leaves the rest of the node as it is."""
    world = both[0]
    before = hidden_part(world)
    ctx = world.ctx()
    person = world.types.Person.get(ctx, "ann@x")  # type: ignore[attr-defined]
    assert (person.salary, person.secrets) == (None, [])
    person.name, person.tags = "Anna", []
    commit = person.save(ctx)
    assert (commit.added, commit.removed) == (1, 3)
    assert hidden_part(world) == before
    assert person.save(ctx) is None


@pytest.mark.req("E11a")
def test_a_default_of_a_hidden_field_is_filled(both: tuple[World, World]) -> None:
    """A node that a restricted actor makes has the defaults of what it does not see."""
    world = both[0]
    commit = world.new("Person", email="new@x", name="New").save(world.ctx())
    assert commit is not None
    assert commit.added == 3
    assert hidden_part(world)["Person/new@x.grade"] == 3


TEXTS = {
    "insert": 'INSERT DATA { <trails://app/main/Team/t> :title "x" }',
    "delete": "DELETE WHERE { ?s ?p ?o }",
    "nothing": 'DELETE DATA { <trails://app/main/Team/no> :title "x" }',
}


@pytest.mark.req("E11a")
@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_not_for_restricted_actors(both: tuple[World, World], text: str) -> None:
    """SPARQL Update and raw statements are refused, before anything is looked at."""
    world = both[0]
    before = world.all()
    with pytest.raises(ForbiddenError):
        world.app.mutate(world.ctx(), TEXTS[text])
    with pytest.raises(ForbiddenError):
        world.ctx().kg.raw_sparql(TEXTS[text])
    assert world.all() == before


N = "trails://app/main/"
HIDDEN_EDGE = edge_id("Room/r", "Laptop/L0")
UPDATES = {
    "a new person": f'INSERT DATA {{ <{N}Person/n%40x> a :Person ; :email "n@x" ; :name "New" }}',
    "a wrong person": f'INSERT DATA {{ <{N}Person/new%40x> a :Person ; :email "new@x" }}',
    "every team": 'DELETE { ?t :title ?x } INSERT { ?t :title "New" } WHERE { ?t :title ?x }',
    "a second name": f'INSERT DATA {{ <{N}Person/ann%40x> :name "Anna" }}',
    "a seat goes": f"DELETE DATA {{ <{N}Seat/s1> a :Seat }}",
    "a person goes that is in use": f"DELETE DATA {{ <{N}Person/bob%40x> a :Person }}",
    "a label": f'INSERT DATA {{ <{N}Desk/e> a :Desk ; :code "e" ; :more <{N}Asset/A1> }}',
    "nothing": f'DELETE DATA {{ <{N}Team/t> :title "Other" }}',
    "an edge that is not there": f"DELETE DATA {{ <{N}Holds/{HIDDEN_EDGE}> a :Holds }}",
}
KEPT_OUT = {
    "a hidden field": f"INSERT DATA {{ <{N}Person/ann%40x> :salary 99 }}",
    "a hidden node": f'INSERT DATA {{ <{N}Vault/w> a :Vault ; :code "w" }}',
    "a shared key": f'INSERT DATA {{ <{N}Asset/x> a :Asset ; :tag "x" }}',
    "a task goes": f"DELETE DATA {{ <{N}Task/T2> a :Task }}",
    "a reference": f"INSERT DATA {{ <{N}Desk/d> :main <{N}Asset/A1> }}",
}


def _stored(world: World, text: str) -> object:
    """Run a text that an author wrote, as a stored mutation does."""
    graph, ctx = world.app.graph(), world.ctx()
    return mutate_sparql(
        graph, graph.main, ctx.kg.transaction, text, local_effect(graph, graph.main)
    )


@pytest.mark.req("E11a")
@pytest.mark.parametrize("case", UPDATES)
def test_an_authors_update_does_what_it_would_without_the_hidden_parts(
    both: tuple[World, World], case: str
) -> None:
    """Statements that a stored mutation makes are of nodes as its caller sees them."""
    secretive, open_one = both
    before = hidden_part(secretive)
    there = answer(lambda: _stored(secretive, UPDATES[case]))
    assert there == answer(lambda: _stored(open_one, UPDATES[case]))
    assert secretive.seen() == open_one.seen()
    after = hidden_part(secretive)
    assert {key: before[key] for key in after if key in before} == {
        key: after[key] for key in after if key in before
    }
    assert before.keys() - after.keys() <= {"Seat/s1.number"}


@pytest.mark.req("E11a")
@pytest.mark.parametrize("case", KEPT_OUT)
def test_an_authors_update_does_not_reach_what_its_caller_may_not(case: str) -> None:
    """Whatever is hidden there, the refusal is the same."""
    told = set()
    for secret in range(2):
        with whole() as world:
            settle(world, secret)
            before = world.all()
            there = answer(lambda: _stored(world, KEPT_OUT[case]))
            assert world.all() == before
            assert not HIDDEN_WORDS.search(str(there))
            told.add(str(there))
    assert len(told) == 1
    assert "'forbidden'" in told.pop()


# --- deleting -------------------------------------------------------------------------------


def _delete(world: World, handle: str, *, cascade: bool, typed: bool) -> object:
    type_name, _, identifier = handle.partition("/")
    ctx = world.ctx()
    if typed:
        operation = {"op": "delete", "type": type_name, "id": identifier, "cascade": cascade}
        return world.app.mutate(ctx, [operation])
    return getattr(world.types, type_name).get(ctx, identifier).delete(ctx, cascade=cascade)


@pytest.mark.req("E11a")
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize(
    "handle",
    [
        "Person/ann@x",
        "Person/bob@x",
        "Team/t",
        "Note/n",
        "Seat/s1",
        "Asset/A1",
        "Desk/d",
        "Task/no",
    ],
)
def test_a_node_is_deleted_as_without_the_hidden_parts(
    both: tuple[World, World], handle: str, *, cascade: bool, typed: bool
) -> None:
    """Who refers to a node, and what goes with it, is told of what is seen."""
    secretive, open_one = both
    there = answer(lambda: _delete(secretive, handle, cascade=cascade, typed=typed))
    here = answer(lambda: _delete(open_one, handle, cascade=cascade, typed=typed))
    assert there == here
    assert secretive.seen() == open_one.seen()


@pytest.mark.req("E11a")
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize("handle", ["Task/T1", "Task/T2"])
def test_what_hidden_nodes_may_refer_to_is_not_deleted(
    handle: str, *, cascade: bool, typed: bool
) -> None:
    """Whether a hidden node refers to it makes no difference to the answer."""
    told = set()
    for secret in range(2):
        with whole() as world:
            settle(world, secret)
            before = world.all()
            there = answer(lambda: _delete(world, handle, cascade=cascade, typed=typed))
            assert there[0] == "error"
            assert world.all() == before
            told.add(str(there))
    assert len(told) == 1
    assert "'forbidden'" in told.pop()


@pytest.mark.req("E11a")
def test_overwriting_does_not_delete_what_hidden_nodes_may_refer_to() -> None:
    """A file that leaves out a task is refused, though nothing hidden refers to that one."""
    with whole() as world:
        settle(world, 1)
        before = world.all()
        text = b'{"type": "Task", "data": {"code": "T1", "title": "Task"}}\n'
        with pytest.raises(ForbiddenError):
            world.load(text, format="ndjson", mode="overwrite")
        assert world.all() == before


@pytest.mark.req("E11a")
@pytest.mark.parametrize("tag", ["L0", "never"])
def test_a_hidden_node_is_not_there_to_be_deleted(both: tuple[World, World], tag: str) -> None:
    """Code that knows a hidden class is told, of any node of it, that it does not exist."""
    world = both[0]
    before = world.all()
    ctx = world.ctx()
    room = world.types.Room.get(ctx, "r")  # type: ignore[attr-defined]
    laptop = world.new("Laptop", tag=tag)
    with pytest.raises(NotFoundError, match=f"^Laptop/{tag} does not exist$"):
        laptop.delete(ctx)
    edge = world.new("Holds", source=room, target=laptop)
    identifier = edge_id("Room/r", f"Laptop/{tag}")
    state_of(edge).id = identifier
    with pytest.raises(NotFoundError, match=f"^Holds/{identifier} does not exist$"):
        edge.delete(ctx)
    assert world.all() == before


@pytest.mark.req("E11a")
def test_overwriting_leaves_hidden_edges_alone(both: tuple[World, World]) -> None:
    """A file with all edges that are seen does not delete those that are not."""
    secretive, open_one = both
    before = hidden_part(secretive)
    text = b'{"edge": "Holds", "from": "Room/r", "to": "Asset/A1", "data": {"since": 5}}\n'
    there = answer(lambda: secretive.load(text, format="ndjson", mode="overwrite"))
    assert there == answer(lambda: open_one.load(text, format="ndjson", mode="overwrite"))
    assert secretive.seen() == open_one.seen()
    assert hidden_part(secretive) == before


# --- what may be seen and not changed ----------------------------------------------------------

FIXED = Narrow(Visibility(fixed=frozenset({"Person", "Note"})))


@pytest.mark.req("G5")
@pytest.mark.parametrize("path", FEWER)
def test_a_type_that_may_not_be_changed_is_not(path: str) -> None:
    """No way of writing changes a node of a type that the actor may only read."""
    with whole(FIXED) as world:
        settle(world)
        before, head = world.all(), world.owner().kg.head
        for values in ({"email": "ann@x", "name": "Anna"}, {"email": "new@x", "name": "New"}):
            with pytest.raises(ForbiddenError, match="you have read-only access to Person"):
                WRITERS[path](world, "Person", values)
        assert world.all() == before
        assert world.owner().kg.head == head
        code = "d" if path == "typed update" else "new"
        assert answer(lambda: WRITERS[path](world, "Desk", {"code": code}))[0] == "ok"


@pytest.mark.parametrize("typed", [False, True])
def test_a_cascade_changes_only_what_the_actor_may(*, typed: bool) -> None:
    """Emptying a reference, and deleting what can't stand alone, are changes of those types."""
    fixed = Narrow(Visibility(fixed=frozenset({"Person"})))
    with whole(fixed) as world:
        settle(world)
        before = world.all()
        assert answer(lambda: _delete(world, "Team/t", cascade=True, typed=typed))[0] == "error"
        assert world.all() == before
    with whole(Narrow(Visibility(fixed=frozenset({"Note"})))) as world:
        settle(world)
        before = world.all()
        there = answer(lambda: _delete(world, "Person/ann@x", cascade=True, typed=typed))
        assert there[1]["code"] == "forbidden"  # type: ignore[index]
        assert world.all() == before


def test_a_refusal_spoils_its_transaction() -> None:
    """Who catches the refusal of a part can't commit the rest."""
    with whole(FIXED) as world:
        settle(world)
        before = world.all()
        ctx = world.ctx()
        bob = world.types.Person.get(ctx, "bob@x")  # type: ignore[attr-defined]

        def go_on() -> None:
            with ctx.kg.transaction():
                world.new("Task", code="T3", title="Three").save(ctx)
                with pytest.raises(ForbiddenError):
                    bob.delete(ctx, cascade=True)

        with pytest.raises(TransactionError, match="rolled back"):
            go_on()
        assert world.all() == before


@pytest.mark.parametrize("path", FEWER)
def test_a_branch_that_may_not_be_changed_is_not(path: str) -> None:
    """No way of writing writes on a branch where the actor may not change anything."""
    with whole(Narrow(Visibility(), denied=[("Change", "main")])) as world:
        settle(world)
        before = world.all()
        there = answer(lambda: WRITERS[path](world, "Team", {"code": "t", "title": "New"}))
        assert there[1]["code"] in {"forbidden", "not_found"}  # type: ignore[index]
        assert world.all() == before


def test_texts_do_not_change_what_their_actor_may_not() -> None:
    """Updates and raw statements are judged by the types of the nodes that they change."""
    with whole(FIXED) as world:
        settle(world)
        before = world.all()
        text = 'INSERT DATA { <trails://app/main/Person/bob%40x> :badge "7" }'
        with pytest.raises(ForbiddenError, match="Person"):
            world.app.mutate(world.ctx(), text)
        with pytest.raises(ForbiddenError, match="Person"):
            world.ctx().kg.raw_sparql(text)
        assert world.all() == before


# --- merging -------------------------------------------------------------------------------------


def _branched(world: World) -> None:
    """A branch that changed a person and a task, and a target that moved on."""
    service = world.app.service()
    service.versions("owner").create_branch("work")
    ctx = world.owner("work")
    person = world.types.Person.get(ctx, "bob@x")  # type: ignore[attr-defined]
    person.name = "Robert"
    person.save(ctx)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_merge_brings_in_only_what_its_actor_may_change(*, ahead: bool, dry_run: bool) -> None:
    """Forward or with a commit: changes of a type that the actor may not change stay out."""
    with whole(FIXED) as world:
        settle(world)
        _branched(world)
        if ahead:
            world.new("Task", code="T9", title="Nine").save(world.owner())
        before, head = world.all(), world.owner().kg.head
        with pytest.raises(ForbiddenError, match="Person"):
            world.versions.merge(MergeRequest("work", dry_run=dry_run))
        assert (world.all(), world.owner().kg.head) == (before, head)
        world.access = Narrow(Visibility(fixed=frozenset({"Task"})))
        assert world.versions.merge(MergeRequest("work", dry_run=dry_run)).conflicts == ()


@pytest.mark.req("E11a")
@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("secret", [False, True])
def test_only_who_sees_all_merges(*, secret: bool, dry_run: bool) -> None:
    """A merge is refused in the same words whether or not anything hidden is in it."""
    with whole() as world:
        settle(world)
        _branched(world)
        if secret:
            for branch, salary in (("work", 20), ("main", 30)):
                ctx = world.owner(branch)
                person = world.types.Person.get(ctx, "ann@x")  # type: ignore[attr-defined]
                person.salary = salary
                person.save(ctx)
        before = world.all()
        with pytest.raises(ForbiddenError) as caught:
            world.versions.merge(MergeRequest("work", dry_run=dry_run))
        assert caught.value.message == (
            "a merge requires access to all types and fields of both sides; ask an "
            "administrator; nothing was written"
        )
        assert world.all() == before


@pytest.mark.parametrize("path", FEWER)
def test_a_sight_that_hides_nothing_limits_nothing(path: str) -> None:
    """An actor with every right does what somebody without any limits does."""
    values = {"code": "d", "label": path}
    with whole(Narrow(Visibility())) as world, whole(OPEN) as other:
        settle(world)
        settle(other)
        assert answer(lambda: WRITERS[path](world, "Desk", values)) == answer(
            lambda: WRITERS[path](other, "Desk", values)
        )
        assert world.seen() == world.all() == other.all()
