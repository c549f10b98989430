"""How policies use branches, case by case: somewhere is what every place together gives."""

from itertools import product

import pytest
from tests.policies.reference import judge_by

from trails.model.actors import Actor
from trails.model.decisions import Resource
from trails.policies.places import OPAQUE, names_of_each_kind, read_conditions

GRAPH = Resource("Graph", "main")
ADA = Actor("ada", frozenset({"runtime", "dev"}), frozenset({"agents"}))
BRANCHES = frozenset({"main", "ada", "dev", "x", "y", "agents/x", "agents/y", "release-1"})
CONDITIONS = {
    'context.branch == "x"': True,
    '"x" == context.branch': True,
    'context.branch == "gone"': False,
    'context.branch != "x"': True,
    'context.branch like "agents/*"': True,
    'context.branch like "a*" && context.branch like "*/y"': True,
    'context.branch like "a*" && context.branch like "r*"': False,
    '!(context.branch like "*")': False,
    '["gone", "y"].contains(context.branch)': True,
    '["gone", "lost"].contains(context.branch)': False,
    "context.branch == principal.name": True,
    "principal.name == context.branch": True,
    "principal.scopes.contains(context.branch)": True,
    '["gone", principal.name].contains(context.branch)': True,
    '["dev", principal.name].contains(context.branch) && context.branch != "ada"': True,
    "context.branch == context.branch": True,
    "context has branch": True,
    "!(context has target)": False,
    'if context.branch == "x" then principal.name == "bo" else context.branch == "y"': True,
    'context.branch == "x" && 9223372036854775807 + 1 > 0': False,
    'context.branch == "x" || context.branch == "y" && 9223372036854775807 + 1 > 0': True,
    '[context.branch].contains("y")': True,
    'context == {branch: "y", target: ""}': True,
    '(if context.branch == "y" then "y" else "gone") == context.branch': True,
    'context.target == ""': True,
    'context.target == "x"': False,
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("word", ["when", "unless"])
def test_somewhere_is_on_some_branch(condition, word):
    """Asking about all branches at once is asking about each."""
    text = f'permit(principal, action == Action::"Change", resource) {word} {{ {condition} }};'
    judge, other = judge_by(text), judge_by(text)
    each = {branch: other.allows(ADA, "Change", GRAPH, branch) for branch in BRANCHES}
    assert judge.allows_somewhere(ADA, "Change", GRAPH, BRANCHES) is any(each.values())
    if word == "when":
        assert any(each.values()) is CONDITIONS[condition]
    alike = judge.alike(ADA, BRANCHES)
    assert {branch: each[alike[branch]] for branch in BRANCHES} == each


MERGES = [
    'context.branch == "x" && context.target == "main"',
    'context.branch == "x" && context.target == "gone"',
    "context.branch == context.target",
    "context.branch != context.target",
    'context.branch != context.target && context.branch like "ag*" && context.target like "ag*"',
    'context.branch != context.target && context.branch == "x" && context.target == "x"',
    'context.branch like "agents/*" && ["main", "dev"].contains(context.target)',
    "context.target == principal.name && context.branch != principal.name",
    "context.target == principal.name && context.branch == principal.name",
    'context.branch like "agents/*" && context.branch like "release-*"',
]


@pytest.mark.parametrize("condition", MERGES)
@pytest.mark.parametrize("branches", [BRANCHES, frozenset({"main", "x"}), frozenset({"main"})])
def test_a_merge_somewhere_is_between_some_two(condition, branches):
    """Whatever pair it takes, also a branch and itself."""
    text = f'permit(principal, action == Action::"BranchMerge", resource) when {{ {condition} }};'
    judge, other = judge_by(text), judge_by(text)
    expected = any(
        other.allows(ADA, "BranchMerge", GRAPH, *pair) for pair in product(branches, branches)
    )
    assert judge.allows_somewhere(ADA, "BranchMerge", GRAPH, branches) is expected


FORKS = {
    'context.target like "agents/*"': True,
    'context.target == "new"': True,
    'context.branch == "" && context.target == "new"': True,
    'context.branch == "gone"': False,
    'context.target like "agents/*" && context.target like "*/ada"': True,
    'context.target like "agents/*" && !(context.target like "*a*")': False,
    'context.target like "*.lock"': False,
    'context.target like "*."': False,
    'context.target like "a..b*"': False,
    'context.target like "/*"': False,
    'context.target == ""': False,
    'context.target like "a*" && !(context.target like "ab*") && context.target != "a"': True,
    "context.target == principal.name": True,
    "context.target == context.branch": True,  # can't be foreseen
    '!(context.target like "*")': False,
    'context.target like "a*" && context.target like "*b" && context.target like "*c*"': True,
    f'context.target like "{"x" * 90}*{"y" * 20}"': False,
    f'context.target like "{"x" * 90}*{"y" * 10}"': True,
}


@pytest.mark.parametrize("condition", FORKS)
def test_a_fork_somewhere_is_to_some_name(condition):
    """Some name that a branch can have, from some branch or from a commit."""
    text = f'permit(principal, action == Action::"BranchCreate", resource) when {{ {condition} }};'
    judge = judge_by(text)
    assert judge.allows_somewhere(ADA, "BranchCreate", GRAPH, BRANCHES) is FORKS[condition]


@pytest.mark.parametrize("action", ["BranchCreate", "BranchMerge"])
def test_pairs_that_can_not_be_foreseen_are_decided_one_by_one(action):
    """The tool is there for whom a policy may permit it, and for nobody else."""
    text = (
        f'permit(principal in Group::"agents", action == Action::"{action}", resource) '
        "when { [context.branch].contains(context.target) };"
    )
    judge = judge_by(text)
    assert judge.allows_somewhere(ADA, action, GRAPH, BRANCHES)
    assert not judge.allows_somewhere(Actor("ada"), action, GRAPH, BRANCHES)
    assert not judge.allows(ADA, action, GRAPH, "x", "y")


def test_too_many_pairs_are_decided_one_by_one():
    """Policies that tell thousands of pairs apart do not make a list slow."""
    pairs = [f'(context.branch == "b{n}" && context.target == "c{n}")' for n in range(60)]
    text = " || ".join(pairs)
    judge = judge_by(
        f'permit(principal, action == Action::"BranchMerge", resource) when {{ {text} }};'
    )
    names = frozenset(f"{letter}{number}" for letter in "bc" for number in range(60))
    assert judge.allows_somewhere(ADA, "BranchMerge", GRAPH, names)
    assert not judge._decided
    assert not judge.allows(ADA, "BranchMerge", GRAPH, "b1", "c2")


def test_patterns_that_need_too_many_states_are_not_told_apart():
    """Then a fork is decided when it is tried."""
    letters = "abcdefghijklmnop"
    globs = frozenset((None, each, None, other, None) for each in letters for other in letters)
    assert names_of_each_kind(globs) is None


def test_what_policies_do_with_branches_is_read():
    """Texts, patterns and what the actor brings; anything else is opaque."""
    judge = judge_by(
        "permit(principal, action, resource) when "
        '{ context.branch like "a*" && context.target == principal.name };'
        "permit(principal, action, resource) when { [context.branch].contains(context.target) };"
    )
    first, second = judge.policies.policies
    read = read_conditions(first.says).for_actor(ADA)
    assert [each.pattern for each in read.branch] == [("a", None)]
    assert [each.texts for each in read.target] == [frozenset({"ada"})]
    assert not read.opaque
    assert not read.same
    assert read_conditions(second.says) == OPAQUE
