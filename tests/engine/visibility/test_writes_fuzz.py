"""Whatever a restricted actor writes, in whatever order: nothing hidden decides or changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import sized
from tests.journeys.access.worlds import (
    HIDDEN_WORDS,
    WRITERS,
    World,
    answer,
    hidden_part,
    plain,
    settle,
    whole,
)

from trails.model.history import MergeRequest

PEOPLE = ("ann@x", "bob@x", "cat@x")
_PERSON = {
    "email": st.sampled_from(PEOPLE),
    "name": st.sampled_from(["Ann", "Cat", "", "n" * 13]),
}
_MORE = {
    "badge": st.sampled_from(["1", "2", None]),
    "tags": st.lists(st.sampled_from("abcd"), max_size=4),
    "team": st.sampled_from(["Team/t", "Team/no", "Laptop/L0", "Vault/v", None]),
    "salary": st.just(5),
    "secrets": st.just(["x"]),
}
VALUES: Mapping[str, st.SearchStrategy[dict[str, object]]] = {
    "Person": st.fixed_dictionaries(_PERSON, optional=_MORE),
    "Task": st.fixed_dictionaries(
        {"code": st.sampled_from(["T1", "T2", "T3"]), "title": st.sampled_from(["Task", "no"])},
        optional={
            "owner": st.sampled_from([*(f"Person/{each}" for each in PEOPLE), None]),
            "state": st.sampled_from(["open", "done", "lost"]),
        },
    ),
    "Note": st.fixed_dictionaries(
        {"code": st.sampled_from("nmo"), "about": st.sampled_from(["Person/ann%40x", "Person/no"])}
    ),
    "Account": st.fixed_dictionaries(
        {"code": st.sampled_from(["acc", "new"])},
        optional={"label": st.sampled_from(["A", None]), "pin": st.just("1")},
    ),
    "Seat": st.fixed_dictionaries(
        {"code": st.sampled_from(["s1", "s2", "s3", "s4"])},
        optional={
            "room": st.sampled_from(["A", "B", None]),
            "label": st.sampled_from(["x", None]),
            "number": st.just(1),
        },
    ),
    "Asset": st.fixed_dictionaries(
        {"tag": st.sampled_from(["A1", "A2", "L0", "L1"])},
        optional={
            "serial": st.sampled_from(["S1", "S8", "S9", None]),
            "label": st.sampled_from(["x", None]),
        },
    ),
    "Desk": st.fixed_dictionaries(
        {"code": st.sampled_from(["d", "e"])},
        optional={
            "label": st.sampled_from(["x", None]),
            "main": st.sampled_from(["Asset/A1", "Laptop/L0", None]),
            "more": st.lists(st.sampled_from(["Asset/A1", "Laptop/L0", "Asset/no"]), max_size=2),
        },
    ),
    "Laptop": st.just({"tag": "L0"}),
    "Vault": st.just({"code": "v"}),
}
PATHS = (
    "typed create",
    "typed upsert",
    "typed update",
    "ndjson merge",
    "ndjson append",
    "ndjson overwrite",
    "csv merge",
)
HANDLES = (
    "Person/ann@x",
    "Person/bob@x",
    "Team/t",
    "Task/T2",
    "Seat/s1",
    "Asset/A1",
    "Laptop/L0",
    "Desk/d",
    "Note/n",
    "Room/r",
    "Account/acc",
)
EDGES = (
    "Member Person/ann%40x Team/t",
    "Member Person/bob%40x Team/t",
    "Holds Room/r Asset/A1",
    "Holds Room/r Laptop/L0",
)


@st.composite
def operations(draw: st.DrawFn) -> tuple[str, str, object]:
    """What to do, to what, and how."""
    kind = draw(st.sampled_from(["put"] * 6 + ["delete"] * 2 + ["edge", "edge", "cut", "branch"]))
    if kind == "put":
        path, name = draw(st.sampled_from(PATHS)), draw(st.sampled_from(sorted(VALUES)))
        return path, name, draw(VALUES[name])
    if kind == "delete":
        return kind, draw(st.sampled_from(HANDLES)), draw(st.booleans())
    if kind == "branch":
        return kind, draw(st.sampled_from(["create", "delete", "merge", "diff"])), None
    return kind, draw(st.sampled_from(EDGES)), draw(st.sampled_from([1, None]))


def do(world: World, operation: tuple[str, str, object]) -> object:
    """Do one thing as the actor."""
    how, what, more = operation
    if how in PATHS:
        assert isinstance(more, dict)
        return WRITERS[how](world, what, more)
    if how == "branch":
        return _use_branch(world, what)
    if how == "delete":
        name, _, identifier = what.partition("/")
        delete = {"op": "delete", "type": name, "id": identifier, "cascade": more}
        return world.app.mutate(world.ctx(), [delete])
    edge, start, end = what.split(" ")
    if how == "cut":
        return world.load(
            json.dumps({"edge": edge, "from": start, "to": end}).encode(),
            mode="overwrite",
            format="ndjson",
        )
    ends = {"source": start, "target": end, "since": more}
    return world.app.mutate(world.ctx(), [{"op": "upsert", "type": edge, "data": ends}])


def _use_branch(world: World, what: str) -> object:
    versions = world.versions
    if what == "create":
        return versions.create_branch("side").name
    if what == "delete":
        return versions.delete_branch("side").name
    if what == "merge":
        return versions.merge(MergeRequest("side"))
    return versions.diff("side", "main").changes


def look(world: World) -> object:
    """All that the actor can learn of the state and of how it came about."""
    page = world.versions.commits(None)
    return answer(
        lambda: [
            world.seen(),
            page.commits,
            [world.versions.commit(each.id) for each in page.commits[:1]],
            [each.message for each in world.versions.branches()],
        ]
    )


def without_gone(hidden: Mapping[str, object], there: Mapping[str, object]) -> dict[str, object]:
    """What was hidden, but for nodes that are gone as a whole."""
    nodes = {key.partition(".")[0] if "@" not in key else key.rpartition(".")[0] for key in there}
    return {
        key: value
        for key, value in hidden.items()
        if key in there or (key.rpartition(".")[0] or key) in nodes
    }


def check_non_interference(steps: list[tuple[str, str, object]]) -> None:
    """Projects that differ in hidden data alone give the same answers, and keep that data."""
    with ExitStack() as stack:
        worlds = [settle(stack.enter_context(whole()), secret) for secret in range(3)]
        for step in steps:
            before = [hidden_part(world) for world in worlds]
            told = [answer(lambda: do(world, step)) for world in worlds]  # noqa: B023
            assert told[0] == told[1] == told[2]
            looks = [look(world) for world in worlds]
            assert looks[0] == looks[1] == looks[2]
            assert not HIDDEN_WORDS.search(str(looks[0]))
            for was, world in zip(before, worlds, strict=True):
                now = hidden_part(world)
                assert without_gone(was, now) == {key: now[key] for key in now if key in was}


def check_against_plain(steps: list[tuple[str, str, object]]) -> None:
    """What is not refused does what it does where there is nothing hidden."""
    with whole() as secretive, plain() as open_one:
        settle(secretive)
        settle(open_one)
        for step in steps:
            there = answer(lambda: do(secretive, step))  # noqa: B023
            if there[0] == "error" and there[1]["code"] == "forbidden":  # type: ignore[index]
                continue
            assert there == answer(lambda: do(open_one, step))  # noqa: B023
            assert look(secretive) == look(open_one)


STEPS = st.lists(operations(), min_size=1, max_size=6)


@pytest.mark.req("E11a")
@settings(max_examples=15)
@given(STEPS)
def test_hidden_data_decides_nothing(steps: list[tuple[str, str, object]]) -> None:
    """Answers depend on nothing hidden, and hidden values stay what they are."""
    check_non_interference(steps)


@pytest.mark.req("E11a")
@settings(max_examples=15)
@given(STEPS)
def test_what_is_allowed_is_what_it_would_be(steps: list[tuple[str, str, object]]) -> None:
    """A sequence of writes does the same in a project without the hidden parts."""
    check_against_plain(steps)


@pytest.mark.req("E11a")
@pytest.mark.long
@settings(max_examples=sized(1500, nightly=60))
@given(st.lists(operations(), min_size=1, max_size=12))
def test_hidden_data_decides_nothing_in_long_sequences(
    steps: list[tuple[str, str, object]],
) -> None:
    """The same, for many and longer sequences."""
    check_non_interference(steps)


@pytest.mark.req("E11a")
@pytest.mark.long
@settings(max_examples=sized(1500, nightly=60))
@given(st.lists(operations(), min_size=1, max_size=12))
def test_what_is_allowed_is_what_it_would_be_in_long_sequences(
    steps: list[tuple[str, str, object]],
) -> None:
    """The same, for many and longer sequences."""
    check_against_plain(steps)
