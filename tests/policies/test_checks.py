"""Policies that can't be meant are refused, with where, why and what to do."""

import pytest
from tests.policies.reference import KNOWN, judge_by

from trails.errors import PolicyError
from trails.policies.judge import know_server, make_judge
from trails.policies.sources import PolicyFile, split_source

ALL = "permit(principal, action, resource)"
MISTAKES = {
    "a token too few": (f"{ALL} when {{ context.branch == }};", ":1: policy 1: unexpected token"),
    "no end": (f"{ALL};\n\n{ALL}", ":3: policy 2: .*end with ';'"),
    "no end before the next": (f"{ALL}\n{ALL};", ":2: policy 1: unexpected token"),
    "an open text": (f'{ALL};\n{ALL} when {{ context.branch == "main }};', ":2: policy 2: "),
    "a token too few on a later line": (
        '// reads\n@id("mine")\npermit(\n  principal,\n  action\n  resource\n);',
        ":6: policy 1: unexpected token `resource`",
    ),
    "a wrong operator on a later line": (
        f'{ALL}\nwhen {{ context.branch == "a=b" }} // =\nwhen {{ context.branch = "main" }};',
        ":3: policy 1: '=' is not a valid operator",
    ),
    "a type on a later line": (
        'permit(\n  principal, // Type::"Persn"\n  action,\n  resource in Type::"Persn"\n);',
        ":4: .*did you mean 'Person'",
    ),
    "an attribute on a later line": (
        f'{ALL}\nwhen {{ context.branch == "main" }}\nwhen {{ context.brnch == "main" }};',
        ":3: .*brnch",
    ),
    "no policy at all": ("allow everything;", ":1: policy 1: "),
    "a template": (
        "permit(principal == ?principal, action, resource);",
        r":1: policy 1: .*\?principal.*name the principal",
    ),
    "an action": (
        '@id("mine")\npermit(principal, action == Action::"Raed", resource);',
        ":2: mine: unknown action 'Raed'; did you mean 'Read'",
    ),
    "an action of the server": (
        'permit(principal, action == Action::"GraphList", resource);',
        r"GraphList is decided by \[server\] policies",
    ),
    "a kind of thing": (
        'permit(principal in Grup::"x", action, resource);',
        "unknown entity type 'Grup'; did you mean 'Group'",
    ),
    "a type": (
        'forbid(principal, action, resource in Type::"Persn");',
        "Type::\"Persn\" does not exist; did you mean 'Person'",
    ),
    "a field": (
        'forbid(principal, action, resource == Field::"Person.salry");',
        "did you mean 'Person.salary'",
    ),
    "a query": (
        'permit(principal, action == Action::"InvokeQuery", resource == Query::"nmes");',
        "did you mean 'names'",
    ),
    "a capability": (
        'permit(principal, action, resource == Capability::"people.hier");',
        "did you mean 'people.hire'",
    ),
    "a graph": ('permit(principal, action, resource in Graph::"mian");', "did you mean 'main'"),
    "a thing in a condition": (
        f'{ALL} when {{ resource in Type::"Rom" }};',
        "did you mean 'Room'",
    ),
    "a thing in a set in a condition": (
        f'{ALL} unless {{ resource in [Type::"Room", Type::"Zzz"] }};',
        'Type::"Zzz" does not exist; known are Employee, Person, Room',
    ),
    "what was declared once": (
        'forbid(principal, action, resource in Type::"");',
        'Type::"" does not exist',
    ),
    "an attribute": (
        f'{ALL} when {{ principal.nme == "x" }};',
        "attribute `nme`.*did you mean 'name'",
    ),
    "an attribute of the context": (
        f'{ALL} when {{ context.brnch == "x" }};',
        "attribute `brnch`.*did you mean 'branch'",
    ),
    "a type of value": (f"{ALL} when {{ context.branch > 3 }};", "expected Long but saw String"),
    "no condition": (f"{ALL} when {{ context.branch }};", "expected Bool but saw String"),
    "an action that nothing of the kind can undergo": (
        'permit(principal, action == Action::"Change", resource == Field::"Person.salary");',
        "would never apply; the actions are Read: Graph, Type, Field",
    ),
    "a branch that can't be": (
        f'{ALL} when {{ context.branch == "my branch" }};',
        "context.branch can't be 'my branch'",
    ),
    "a branch in a set that can't be": (
        f'{ALL} when {{ ["main", "émil"].contains(context.target) }};',
        "context.target can't be 'émil'",
    ),
    "a scope": (
        f'{ALL} when {{ principal.scopes.contains("bulder") }};',
        "principal.scopes can't contain 'bulder'; did you mean 'builder'",
    ),
    "scopes in a set": (
        f'{ALL} when {{ principal.scopes.containsAny(["dev", "root"]) }};',
        "can't contain 'root'",
    ),
    "the same name twice": (
        f'@id("a") {ALL};\n@id("b") {ALL};\n@id("a") {ALL};',
        ":3: a: the policy at 0.cedar:1 has the same @id",
    ),
    "a condition that is too deep": (
        f"{ALL} when {{ {'!(' * 200}true{')' * 200} }};",
        "policy 1: ",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told(mistake):
    """Each names the file, the line, the policy, what is wrong and what to write."""
    text, told = MISTAKES[mistake]
    with pytest.raises(
        PolicyError, match=f"(?s)0.cedar{told}" if told[0] == ":" else told
    ) as caught:
        judge_by(text)
    problem = caught.value.data["problems"][0]
    assert problem.file == "0.cedar"
    assert problem.line >= 1
    assert problem.policy


def test_all_mistakes_are_told_at_once():
    """Those of all files, in their order; each policy that Cedar refuses for ours, once."""
    wrong = f'{ALL} when {{ principal.nme == "x" }};\n'
    unknown = 'permit(principal, action == Action::"A", resource);'
    with pytest.raises(PolicyError) as caught:
        judge_by(wrong + unknown, 'forbid(principal, action, resource in Type::"Nope");')
    told = [(each.file, each.line) for each in caught.value.data["problems"]]
    assert told == [("0.cedar", 1), ("0.cedar", 2), ("1.cedar", 1)]


def test_files_are_parsed_one_by_one():
    """The end of one file and the beginning of the next are not one policy."""
    with pytest.raises(PolicyError, match=r"0\.cedar:1"):
        judge_by(ALL, 'when { context.branch == "main" };')


def test_a_policy_of_a_graph_is_none_of_the_servers():
    """Server policies are about the server alone."""
    known = know_server(("main",))
    text = 'permit(principal, action == Action::"Read", resource);'
    with pytest.raises(PolicyError, match="Read is decided by the policies of a graph"):
        make_judge([PolicyFile("s.cedar", text)], known, "")
    with pytest.raises(PolicyError, match="unrecognized entity type `Type`"):
        make_judge(
            [PolicyFile("s.cedar", "permit(principal, action, resource is Type);")], known, ""
        )


def test_policies_know_their_lines():
    """Comments, texts with semicolons and escapes do not confuse where a policy begins."""
    text = (
        "// a; b\n\n"
        '@id("x;\\" y")\npermit(principal, action, resource) // ; c\n'
        'when { principal.name == "a;\\\\" };\n'
        "// the end;\n"
        "forbid(principal, action, resource) unless { true }; permit(principal, action, resource);"
        "\n// last\n"
    )
    found = list(split_source(PolicyFile("a", text)))
    assert [(each.line, each.number) for each in found] == [(3, 1), (7, 2), (7, 3)]
    assert found[0].text.startswith("@id")
    judge = judge_by(text)
    assert [each.label for each in judge.policies.policies] == ['x;" y', "0.cedar:7", "0.cedar:7"]


@pytest.mark.parametrize("text", ["", "// nothing\n", "\n\n"])
def test_a_file_may_be_empty(text):
    """No policy is no mistake, and permits nothing."""
    assert judge_by(text).policies.policies == ()


def test_other_graphs_of_the_project_may_be_named():
    """Graphs can share a folder of policies."""
    assert "other" in KNOWN.graphs
    judge_by('permit(principal, action, resource in Graph::"other");')
