"""A judge answers as bare Cedar does, and finds out about all branches from a few."""

from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.campaigns import sized
from tests.policies.reference import BRANCHES, Bare, actors, judge_by, policy_texts, resources

from trails.errors import PolicyError
from trails.model.actors import Actor
from trails.model.decisions import Resource
from trails.policies.judge import CedarJudge
from trails.policies.places import (
    compile_glob,
    is_branch_name,
    join_conditions,
    names_of_each_kind,
    places_for,
)
from trails.policies.vocabulary import GRAPH_ACTIONS

GRAPH = Resource("Graph", "main")
SINGLE = sorted(set(GRAPH_ACTIONS) - {"BranchMerge", "BranchCreate"})
SHORT = [
    name
    for size in range(1, 5)
    for name in map("".join, product("ab/", repeat=size))
    if is_branch_name(name)
]
MORE = [*SHORT, *BRANCHES, "zzz", "agents/q/x", "agents/", "ada", "bo", "dev", "runtime"]


def judged(text: str) -> CedarJudge:
    """The judge of valid policies; impossible ones are none of these tests' business."""
    try:
        return judge_by(text)
    except PolicyError:
        assume(False)
        raise


DECISIONS = given(
    policy_texts,
    actors,
    st.sampled_from(sorted(GRAPH_ACTIONS)),
    st.lists(resources, min_size=1, max_size=4),
    st.sampled_from(BRANCHES),
    st.sampled_from(("", *BRANCHES)),
)


@settings(max_examples=50)
@DECISIONS
def test_a_decision_is_cedars(text, actor, action, things, branch, target):
    """Asking about what stands for a thing gives what asking about the thing itself gives."""
    compare_decisions(text, actor, action, things, (branch, target))


@pytest.mark.long
@settings(max_examples=sized(3000, nightly=300))
@DECISIONS
def test_many_decisions_are_cedars(text, actor, action, things, branch, target):
    """The same, on more policies."""
    compare_decisions(text, actor, action, things, (branch, target))


def compare_decisions(text, actor, action, things, place):
    """Ask a judge and bare Cedar; the judge twice, since it remembers."""
    judge, bare = judged(text), Bare(text)
    for thing in (*things, *things):
        assert judge.allows(actor, action, thing, *place) is bare.allows(
            actor, action, thing, *place
        )


PLACES = given(
    policy_texts,
    actors,
    st.sampled_from(SINGLE),
    resources,
    st.frozensets(st.sampled_from(BRANCHES)),
)


@settings(max_examples=50)
@PLACES
def test_somewhere_is_on_some_branch(text, actor, action, thing, branches):
    """Whether it is allowed on any branch is what asking on every branch gives."""
    compare_branches(text, actor, action, thing, branches)


@pytest.mark.long
@settings(max_examples=sized(3000, nightly=300))
@PLACES
def test_somewhere_is_on_some_of_many_branches(text, actor, action, thing, branches):
    """The same, on more policies."""
    compare_branches(text, actor, action, thing, branches)


def compare_branches(text, actor, action, thing, branches):
    """Ask about all branches at once, and one by one; likewise on one of each kind."""
    judge, other = judged(text), judge_by(text)
    each = {branch: other.allows(actor, action, thing, branch) for branch in branches}
    assert judge.allows_somewhere(actor, action, thing, branches) is any(each.values())
    assert judge.allows_somewhere(actor, action, thing, sorted(branches)) is any(each.values())
    alike = judge.alike(actor, branches)
    assert {branch: each[alike[branch]] for branch in branches} == each


@settings(max_examples=50)
@given(policy_texts, actors, st.frozensets(st.sampled_from(BRANCHES), max_size=5))
def test_a_merge_somewhere_is_between_some_two(text, actor, branches):
    """A merge is allowed somewhere if it is from some branch into some; yes where unforeseeable."""
    judge = judged(text)
    expected = any(
        judge.allows(actor, "BranchMerge", GRAPH, *pair) for pair in product(branches, branches)
    )
    given = judge_by(text).allows_somewhere(actor, "BranchMerge", GRAPH, branches)
    if opaque(judge, actor, "BranchMerge"):
        assert given or not expected
    else:
        assert given is expected


@settings(max_examples=40)
@given(policy_texts, actors, st.frozensets(st.sampled_from(BRANCHES), max_size=3))
def test_a_fork_somewhere_is_to_some_name(text, actor, branches):
    """A fork that is allowed to any name is allowed somewhere, and not if it is to none."""
    judge = judged(text)
    places = product((*branches, ""), MORE)
    found = any(judge.allows(actor, "BranchCreate", GRAPH, *place) for place in places)
    given = judge_by(text).allows_somewhere(actor, "BranchCreate", GRAPH, branches)
    assert given or not found
    if given and not found and not opaque(judge, actor, "BranchCreate"):
        places = wanted(judge, actor, "BranchCreate", branches)
        assert any(judge.allows(actor, "BranchCreate", GRAPH, *place) for place in places)
        assert all(is_branch_name(target) for _, target in places)


def wanted(judge, actor, action, branches):
    """Where a judge would ask."""
    concerned = judge.concerned(actor, action, GRAPH)
    conditions = join_conditions(each.conditions for each in concerned)
    return places_for(action, conditions.for_actor(actor), branches)


def opaque(judge, actor, action):
    """Whether it can't be foreseen."""
    return wanted(judge, actor, action, frozenset()) is None


GLOBS = st.lists(st.sampled_from(["a", "b", "/", None]), max_size=4).map(tuple)


@settings(max_examples=100)
@given(st.frozensets(GLOBS, max_size=4))
def test_every_kind_of_name_has_one_that_stands_for_it(globs):
    """Whatever patterns a name matches, one of the chosen names matches just those."""
    chosen = names_of_each_kind(globs)
    kinds = {kind_of(name, globs) for name in chosen}
    assert all(map(is_branch_name, chosen))
    assert {kind_of(name, globs) for name in SHORT} <= kinds


def kind_of(name, globs):
    """Which patterns a name matches."""
    return frozenset(each for each in globs if compile_glob(each).fullmatch(name))


def test_names_are_valid_at_their_ends():
    """A branch can't end in a dot or in .lock, so no such name is chosen."""
    dotted = (None, ".")
    locked = (None, *".lock")
    assert not [name for name in names_of_each_kind(frozenset({dotted, locked})) if "." in name]
    assert names_of_each_kind(frozenset({(*"a", None, *".lock", None)})) == ("a", "a.locka")


@pytest.mark.parametrize("count", [1, 300])
def test_many_branches_cost_no_more_decisions(count, monkeypatch):
    """However many branches there are, one of each kind is asked about."""
    judge = judge_by(
        'permit(principal, action == Action::"Change", resource) when '
        '{ context.branch like "agents/*" && context.branch != "agents/ada" };'
    )
    asked = []
    decide = judge.decide
    monkeypatch.setattr(judge, "decide", lambda *given: asked.extend(given[3]) or decide(*given))
    branches = frozenset({"main", *(f"topic-{each}" for each in range(count))})
    assert not judge.allows_somewhere(Actor("ada"), "Change", GRAPH, branches)
    assert len(asked) == 1
    assert not judge.allows_somewhere(Actor("ada"), "Change", GRAPH, branches | {"agents/ada"})
    assert judge.allows_somewhere(Actor("ada"), "Change", GRAPH, branches | {"agents/bo"})
    assert len(asked) <= 6
