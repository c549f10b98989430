"""Why something is allowed or denied."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.reference import BRANCHES, actors, judge_by, policy_texts, resources
from tests.policies.test_equivalence import judged

from trails.model.actors import Actor
from trails.model.decisions import Resource
from trails.policies.explain import Question, explain
from trails.policies.vocabulary import GRAPH_ACTIONS

GRAPH = Resource("Graph", "main")
JUDGE = judge_by(
    '@id("readers") permit(principal in Group::"readers", action == Action::"Read", '
    'resource in Graph::"main") when { context.branch == "main" || context.branch like "a*" };'
    '@id("salaries") forbid(principal in Group::"agents", action == Action::"Read", '
    'resource in Field::"Person.salary");'
    '@id("hire") permit(principal, action == Action::"InvokeCapability", '
    'resource == Capability::"people.hire") when { context.branch != "dev" && '
    'principal.scopes.contains("builder") } unless { resource.effects.contains("sends mail") };'
    '@id("ada") permit(principal == Actor::"ada", action == Action::"Export", resource);'
    '@id("odd") permit(principal == Actor::"bo", action == Action::"Export", resource) '
    "when { 9223372036854775807 + 1 > 0 };"
    '@id("types") permit(principal, action == Action::"Change", resource is Type);'
    '@id("people") permit(principal is Actor in Group::"hr", action == Action::"Change", '
    'resource is Type in Graph::"other");'
)
READER = frozenset({"readers"})
CASES = {
    "permitted": (
        Question(Actor("ada", groups=READER), "Read", GRAPH, "main"),
        ("permitted by readers"),
    ),
    "forbidden": (
        Question(
            Actor("ada", groups=frozenset({"readers", "agents"})),
            "Read",
            Resource("Field", "Employee.salary"),
            "main",
        ),
        "forbidden by salaries",
    ),
    "not in the group": (
        Question(Actor("ada", groups=frozenset({"agents"})), "Read", GRAPH, "main"),
        (
            "no policy permits it; the nearest is readers: "
            'it applies to all in Group::"readers", but the '
            "actor is 'ada' in the groups: agents"
        ),
    ),
    "on another branch": (
        Question(Actor("ada", groups=READER), "Read", GRAPH, "dev"),
        (
            'no policy permits it; the nearest is readers: (context.branch == "main") || '
            '(context.branch like "a*") is false (context.branch is "dev")'
        ),
    ),
    "attributes of actor and resource": (
        Question(Actor("ada"), "InvokeCapability", Resource("Capability", "people.hire"), "main"),
        (
            "no policy permits it; the nearest is hire: "
            'principal.scopes.contains("builder") is false '
            '(principal.scopes is ["runtime"]); resource.effects.contains("sends mail") is true '
            '(resource.effects is ["sends mail","spends money"])'
        ),
    ),
    "another resource": (
        Question(Actor("ada"), "InvokeCapability", Resource("Capability", "people.count"), "dev"),
        (
            'no policy permits it; the nearest is hire: it applies to Capability::"people.hire", '
            'but the resource is Capability::"people.count"; context.branch != "dev" is false '
            '(context.branch is "dev")'
        ),
    ),
    "another actor": (
        Question(Actor("cy"), "Export", GRAPH, "main"),
        (
            "no policy permits it; the nearest is ada: "
            "it applies to Actor::\"ada\", but the actor is 'cy' "
            "in the groups: none"
        ),
    ),
    "another kind": (
        Question(Actor("cy"), "Change", GRAPH, "main"),
        (
            "no policy permits it; the nearest is types: "
            'it applies to each Type, but the resource is Graph::"main"'
        ),
    ),
    "of that kind": (
        Question(Actor("cy"), "Change", Resource("Type", "Room"), "main"),
        "permitted by types",
    ),
    "nobody": (Question(Actor("ada"), "Admin", GRAPH), "no policy permits this action"),
    "a failure": (
        Question(Actor("bo"), "Export", GRAPH, "main"),
        (
            "a policy failed to evaluate, so the request is denied: "
            "error while evaluating policy 'odd': "
            "integer overflow while attempting to add the values `9223372036854775807` and `1`"
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reason_is_told(case):
    """Which policy, which part of it, and the value that made the difference."""
    question, told = CASES[case]
    assert explain(JUDGE, question).reason == told


def test_every_policy_about_the_action_is_told():
    """What applies first, then what lacks least."""
    found = explain(JUDGE, CASES["another kind"][0])
    assert [each.policy for each in found.policies] == ["types", "people"]
    assert found.policies[1].missing == (
        "it applies to each Actor in Group::\"hr\", but the actor is 'cy' in the groups: none",
        'it applies to each Type in Graph::"other", but the resource is Graph::"main"',
    )


def test_attributes_are_told_with_their_values():
    """Also of policies that apply."""
    found = explain(JUDGE, CASES["permitted"][0])
    assert found.policies[0].attributes == {"context.branch": "main"}
    assert found.policies[0].applies
    assert (found.policies[0].file, found.policies[0].line) == ("0.cedar", 1)


@settings(max_examples=40)
@given(
    policy_texts,
    actors,
    st.sampled_from(sorted(GRAPH_ACTIONS)),
    resources,
    st.sampled_from(BRANCHES),
)
def test_explanations_agree_with_decisions(text, actor, action, thing, branch):
    """What is said to apply is what Cedar gives as its reasons, and nothing else."""
    judge = judged(text)
    found = explain(judge, Question(actor, action, thing, branch))
    assert found.allowed is judge.allows(actor, action, thing, branch)
    applying = {
        effect: sorted(
            each.policy for each in found.policies if each.applies and each.effect == effect
        )
        for effect in ("permit", "forbid")
    }
    if not found.errors:
        assert sorted(found.decided_by) == (applying["forbid"] or applying["permit"])
        assert found.allowed is bool(applying["permit"] and not applying["forbid"])
