"""History as if what an actor may not see had never happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.journeys.access import whole_types
from tests.journeys.access.worlds import (
    HIDDEN_WORDS,
    Narrow,
    World,
    answer,
    hidden_part,
    plain,
    settle,
    whole,
)

from trails import App
from trails.engine.history.change_feed import ChangePage, ChangeQuery
from trails.engine.schema.evolution import adopt_schema
from trails.errors import ConflictError, NotFoundError
from trails.model.history import Commit, CommitPage, MergeRequest
from trails.model.types import Schema
from trails.model.visibility import Visibility

Step = Callable[[World], None]


def _person(world: World, email: str, **values: object) -> None:
    hushed = world.types is whole_types
    gone = () if hushed else ("salary", "grade", "secrets")
    kept = {name: value for name, value in values.items() if name not in gone}
    if kept:
        ctx = world.owner()
        person = world.types.Person.get(ctx, email)  # type: ignore[attr-defined]
        for name, value in kept.items():
            setattr(person, name, value)
        person.save(ctx, message=f"about {email}")


def _hidden(type_name: str, **values: object) -> Step:
    def step(world: World) -> None:
        if world.types is whole_types:
            ctx = world.owner()
            world.new(type_name, **values).save(ctx, upsert=True, message="hush")

    return step


def _seen(type_name: str, **values: object) -> Step:
    def step(world: World) -> None:
        ctx = world.owner()
        world.new(type_name, **values).save(ctx, upsert=True, message=f"about {type_name}")

    return step


def _change(email: str, **values: object) -> Step:
    return lambda world: _person(world, email, **values)


def _carry(laptop: str, since: int) -> Step:
    """Put a hidden asset into a room, or change since when it is there."""

    def step(world: World) -> None:
        if world.types is whole_types:
            ctx = world.owner()
            asset = world.new("Laptop", tag=laptop)
            if world.types.Laptop.objects(ctx).where(tag=laptop).first() is None:
                asset.save(ctx, message="hush")
            room = world.types.Room.get(ctx, "r")
            world.new("Holds", source=room, target=asset, since=since).save(
                ctx, upsert=True, message="hush"
            )

    return step


STEPS: dict[str, Step] = {
    "seen": _change("ann@x", name="Anna"),
    "seen again": _change("ann@x", name="Ann", tags=["q"]),
    "hidden": _change("ann@x", salary=50),
    "hidden set": _change("bob@x", secrets=["hush", "hush hush"]),
    "both": _change("bob@x", name="Bobby", salary=60),
    "both again": _change("bob@x", name="Bob", salary=None, grade=1),
    "a vault": _hidden("Vault", code="w"),
    "a laptop": _hidden("Laptop", tag="L7", serial="S7"),
    "a task": _seen("Task", code="T5", title="Five"),
    "a person": _seen("Person", email="new@x", name="New"),
    "an asset": _seen("Asset", tag="A2"),
    "a desk": _seen("Desk", code="d2", label="Two"),
    "a hidden edge": _carry("L9", 1),
    "the edge again": _carry("L9", 2),
}
NODES = (
    "Person/ann%40x",
    "Person/bob%40x",
    "Task/T5",
    "Vault/w",
    "Laptop/L7",
    "Laptop/no",
    "Nothing/x",
    "Person/no",
)


def pages(world: World, limit: int, **wanted: object) -> list[object]:
    """All commits of a listing, page by page."""
    found: list[object] = []
    after = None
    while True:
        page: CommitPage = world.versions.commits(after=after, limit=limit, **wanted)  # type: ignore[arg-type]
        found += page.commits
        after = page.next
        if after is None:
            return found


def feed(world: World, since: str, **wanted: object) -> list[ChangePage]:
    """The pages of the change feed after a commit."""
    found: list[ChangePage] = []
    while not found or not found[-1].complete:
        query = ChangeQuery(since=since, **wanted)  # type: ignore[arg-type]
        found.append(world.versions.changes(query))
        since = found[-1].since
    return found


def check_same_feed(secretive: World, open_one: World) -> None:
    """The change feed is the same from every visible commit on."""
    theirs = ["0", *(each.id for each in secretive.versions.commits().commits)]
    ours = ["0", *(each.id for each in open_one.versions.commits().commits)]
    for one, other in zip(theirs, ours, strict=True):
        for wanted in ({}, {"limit": 2}, {"types": ("Person",)}, {"types": ("Vault",)}):
            there = answer(lambda: feed(secretive, one, **wanted))  # noqa: B023
            assert there == answer(lambda: feed(open_one, other, **wanted))  # noqa: B023
            assert "Vault" in str(wanted) or not HIDDEN_WORDS.search(str(there))


def check_same_history(secretive: World, open_one: World) -> None:
    """Everything that can be asked about history has the same answer."""
    for limit in (1, 2, 100):
        for wanted in ({}, {"branch": None}, {"actor": "owner"}):
            there = answer(lambda: pages(secretive, limit, **wanted))  # noqa: B023
            here = answer(lambda: pages(open_one, limit, **wanted))  # noqa: B023
            assert there == here
            assert not HIDDEN_WORDS.search(str(there))
    _check_parents(secretive)
    check_same_feed(secretive, open_one)
    for node in NODES:
        there = answer(lambda: pages(secretive, 3, node=node))  # noqa: B023
        assert there == answer(lambda: pages(open_one, 3, node=node))  # noqa: B023
    assert answer(secretive.versions.branches) == answer(open_one.versions.branches)
    theirs = [each.id for each in secretive.versions.commits().commits]
    ours = [each.id for each in open_one.versions.commits().commits]
    for one, other in zip(["main", *theirs], ["main", *ours], strict=True):
        there = answer(lambda: secretive.versions.commit(one))  # noqa: B023
        assert there == answer(lambda: open_one.versions.commit(other))  # noqa: B023
        assert not HIDDEN_WORDS.search(str(there))
        there = answer(lambda: secretive.versions.diff(one, theirs[-1]))  # noqa: B023
        assert there == answer(lambda: open_one.versions.diff(other, ours[-1]))  # noqa: B023
        there = answer(lambda: secretive.versions.diff(theirs[0], one))  # noqa: B023
        assert there == answer(lambda: open_one.versions.diff(ours[0], other))  # noqa: B023


def _check_parents(world: World) -> None:
    """Each commit follows the one that is listed after it, and the last one follows none."""
    found = world.versions.commits().commits
    following = [*((each.id,) for each in found[1:]), ()]
    assert [each.parents for each in found] == following


@pytest.fixture
def both() -> Iterator[tuple[World, World]]:
    """The project with hidden parts, and the one that never had them."""
    with whole() as secretive, plain() as open_one:
        yield settle(secretive), settle(open_one)


@pytest.mark.req("E11a")
def test_history_is_that_of_a_project_without_the_hidden_parts(both: tuple[World, World]) -> None:
    """Lists, pages, commits, counts, parents and differences tell of what is seen alone."""
    for step in STEPS.values():
        for world in both:
            step(world)
    check_same_history(*both)


@pytest.mark.req("E11a")
@settings(max_examples=12)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=8))
def test_any_history_is_that_of_a_project_without_the_hidden_parts(steps: list[str]) -> None:
    """In whatever order things were done, the answers are the same."""
    with whole() as secretive, plain() as open_one:
        for world in (settle(secretive), settle(open_one)):
            for step in steps:
                STEPS[step](world)
        check_same_history(secretive, open_one)


@pytest.mark.req("E11a")
def test_a_head_is_told_and_its_hidden_commit_is_not(both: tuple[World, World]) -> None:
    """Writes are compared with a head, so its id is told; who made it, and why, is not."""
    world = both[0]
    STEPS["seen"](world)
    seen = world.owner().kg.head.commit
    STEPS["hidden"](world)
    head = world.owner().kg.head.commit
    (main,) = world.versions.branches()
    assert (main.head, main.message, main.position) == (head, "about ann@x", 0)
    for reference in ("main", head, head[:12], seen):
        found = world.versions.commit(reference).commit
        assert (found.id, found.payload, found.digest, found.seq) == (seen, "", "", 0)
        assert (found.nonce, found.idempotency_key) == ("", None)
    team = world.new("Team", code="u")
    with pytest.raises(ConflictError):
        team.save(world.ctx(), expected_head=seen)
    team.save(world.ctx(), expected_head=head)


@pytest.mark.req("E11a")
def test_a_commit_of_ones_own_is_told_as_far_as_it_is_seen(both: tuple[World, World]) -> None:
    """What a write returns counts the statements that its actor sees."""
    told = []
    for world in both:
        ctx = world.ctx()
        commit = world.new("Person", email="new@x", name="New").save(ctx)
        told.append(answer(lambda: commit))  # noqa: B023
        detail = world.versions.commit("main")
        assert detail.commit == msgspec.structs.replace(commit, parents=detail.commit.parents)
    assert told[0] == told[1]


@pytest.mark.req("E11a")
def test_a_schema_that_grew_is_told_of_what_is_seen(both: tuple[World, World]) -> None:
    """The message of a commit that changes types names none that are hidden."""
    first = both[0].versions.commits().commits[-1]
    assert first.message.startswith("schema: new type Account; new type Asset; new type Desk;")
    assert not HIDDEN_WORDS.search(first.message)
    assert first.schema == both[1].app.graph().main.schema.digest


@pytest.mark.req("E11a")
def test_a_merge_is_told_where_it_brings_something_that_is_seen() -> None:
    """A merge of what is hidden is in no list; another follows what is seen of both sides."""
    with whole() as world:
        settle(world)
        owner = world.app.service().versions("owner")

        def on_a_branch(step: str) -> None:
            world.fork()
            STEPS[step](world)
            branch, world.branch = world.branch, "main"
            STEPS["a desk" if step == "hidden" else "a vault"](world)
            owner.merge(MergeRequest(branch, message=f"with {step}"))

        on_a_branch("hidden")
        assert [each.message for each in world.versions.commits().commits[:2]] == [
            "about Desk",
            "begin",
        ]
        on_a_branch("a task")
        found = world.versions.commits().commits
        assert [each.message for each in found[:4]] == [
            "with a task",
            "about Task",
            "about Desk",
            "begin",
        ]
        assert found[0].parents == (found[2].id, found[1].id)
        assert (found[0].added, found[1].added) == (4, 4)


@pytest.mark.req("E11a")
def test_a_hidden_type_that_goes_leaves_no_trace() -> None:
    """That a hidden type was declared once, and is not any more, is in no commit that is seen."""
    without = tuple(each for each in whole_types.TYPES if each is not whole_types.Vault)
    sight = Narrow(Visibility(hidden=frozenset({"Vault"})))
    with App(*whole_types.TYPES) as app:
        adopt_schema(app.graph(), _schema_of(without), apply=True)
        versions = app.service().versions("agent", access=sight)
        assert [each.message for each in app.versions().commits().commits][:1] == [
            "schema: type Vault is gone"
        ]
        (first,) = versions.commits().commits
        assert "Vault" not in first.message
        assert versions.branches()[0].message == first.message


def _schema_of(types: tuple[object, ...]) -> Schema:
    with App(*types) as app:
        return app.graph().main.schema


@pytest.mark.req("E11a")
@pytest.mark.parametrize("node", ["Laptop/L0", "Vault/v", "Laptop/never", "Vault/never"])
def test_a_hidden_node_has_no_history(both: tuple[World, World], node: str) -> None:
    """Whether a hidden node exists can't be learned from its commits."""
    with pytest.raises(NotFoundError, match=f"no commit ever changed '{node}'"):
        both[0].versions.commits(node=node)


@pytest.mark.req("E11a")
def test_deleting_a_branch_looks_at_commits_that_are_seen(both: tuple[World, World]) -> None:
    """What is unmerged is counted and named as far as it is seen."""
    told = []
    for world in both:
        world.fork()
        for step in ("hidden", "seen", "a vault", "both", "hidden"):
            STEPS[step](world)
        told.append(answer(lambda: world.versions.delete_branch(world.branch)))  # noqa: B023
        with pytest.raises(ConflictError) as caught:
            world.versions.delete_branch(world.branch)
        listed = {each.id for each in world.versions.commits(world.branch).commits}
        assert set(caught.value.data["unmerged"]) <= listed  # type: ignore[call-overload]
    assert told[0] == told[1]


def test_the_name_of_a_branch_that_may_not_be_read_is_not_told() -> None:
    """A commit that was made on it, and the merge that brought it, do not name it."""
    with whole(Narrow(Visibility(), denied=[("Read", "covert")])) as world:
        settle(world)
        world.app.service().versions("owner").create_branch("covert")
        ctx = world.owner("covert")
        world.new("Team", code="u").save(ctx, message="a team")
        world.new("Team", code="w").save(world.owner(), message="another")
        owner = world.app.service().versions("owner")
        owner.merge(MergeRequest("covert"))
        told = world.versions.commits()
        assert [each.message for each in told.commits[:3]] == ["merge", "another", "a team"]
        assert [each.branch for each in told.commits[:3]] == ["main", "main", ""]
        assert "covert" not in str(told)
        assert "covert" not in str(world.versions.commit("main"))
        assert "covert" not in str(world.versions.branches())
        for reference in ("covert", _other_prefix(ctx.kg.head.commit)):
            with pytest.raises(NotFoundError):
                world.versions.diff("main", reference)


@pytest.mark.req("E11a")
def test_what_is_hidden_on_one_side_is_not_in_a_difference() -> None:
    """A difference shows what is seen of both states."""

    class Sided(Narrow):
        """Hides salaries on ``main`` alone."""

        def visibility(self, schema: object, branches: object) -> Visibility:
            del schema
            hidden = "work" not in tuple(branches)  # type: ignore[arg-type]
            return Visibility(hidden_fields={"Person": frozenset({"salary"})} if hidden else {})

    with whole(Sided()) as world:
        settle(world)
        world.app.service().versions("owner").create_branch("work")
        world.branch = "work"
        _person(world, "ann@x", salary=77)
        assert world.versions.commit("work").difference.changes[0].fields[0].after == 77
        assert world.versions.diff("work", "work").changes == ()
        world.branch = "main"
        _person(world, "ann@x", salary=99)
        assert world.versions.diff("main", "work").changes == ()
        assert hidden_part(world, "work")["Person/ann@x.salary"] == 77


def test_a_listing_reads_no_commit_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many hidden edges there are, and whether they were made, changed or deleted."""
    with whole() as world:
        settle(world)
        ctx = world.owner()
        room = world.types.Room.get(ctx, "r")
        laptops = [world.new("Laptop", tag=f"L{each}x") for each in range(30)]
        edges = [world.new("Holds", source=room, target=each, since=1) for each in laptops]
        ctx.kg.save_all([*laptops, *edges])
        for each in edges:
            each.since = 2
        ctx.kg.save_all(edges, upsert=True)
        for each in edges:
            each.since = 3
        with ctx.kg.transaction():
            for each in edges[:10]:
                each.save(ctx, upsert=True)
        with ctx.kg.transaction():
            for each in edges[:10]:
                each.delete(ctx)
        read: list[str] = []
        folding = world.app.graph().folding
        statements = folding.statements

        def note(commit: Commit, *more: object) -> object:
            read.append(commit.id)
            return statements(commit, *more)  # type: ignore[arg-type]

        monkeypatch.setattr(folding, "statements", note)
        first = world.versions.commits()
        assert len(first.commits) == 2
        assert len(read) <= 2 * 7  # each once for what is seen, and once for what edges join
        read.clear()
        assert world.versions.commits() == first
        assert read == []


def test_edges_that_are_gone_are_told_as_they_were_seen() -> None:
    """What they joined is found in the log, for all edges of a commit."""
    with whole() as secretive, plain() as open_one:
        for world in (secretive, open_one):
            settle(world)
            ctx = world.owner()
            room = world.types.Room.get(ctx, "r")  # type: ignore[attr-defined]
            assets = [world.new("Asset", tag=f"A{each}x") for each in range(8)]
            if world is secretive:
                assets += [world.new("Laptop", tag=f"L{each}x") for each in range(2)]
            edges = [world.new("Holds", source=room, target=each, since=1) for each in assets]
            ctx.kg.save_all([*assets, *edges], message="made")
            for how in (2, 3, None):
                with ctx.kg.transaction(message=f"since {how}"):
                    for edge in edges:
                        edge.since = how  # type: ignore[attr-defined]
                        edge.save(ctx, upsert=True)
            with ctx.kg.transaction(message="gone"):
                for edge in edges:
                    edge.delete(ctx)
        check_same_history(secretive, open_one)
        told = secretive.versions.commits().commits
        assert [(each.added, each.removed) for each in told[1:4]] == [(0, 8), (8, 8), (8, 8)]


def _other_prefix(commit):
    """The beginning of an id, almost that of a commit."""
    return commit[:9] + ("1" if commit[9] == "0" else "0")
