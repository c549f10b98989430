"""What a judge answers, whatever it is asked by whomever."""

import logging

import pytest
from tests.policies.reference import judge_by

from trails.model.actors import Actor
from trails.model.decisions import Resource
from trails.policies import judge as judge_module

GRAPH = Resource("Graph", "main")
SALARY = Resource("Field", "Person.salary")
READERS = 'permit(principal in Group::"readers", action == Action::"Read", resource);'
ADA = Actor("ada", groups=frozenset({"readers"}))
HOSTILE = [
    'x", action, resource); permit(principal, action, resource); //',
    '"; permit(principal, action, resource); //',
    'ada"',
    "ada\\",
    "line\nbreak\r\n",
    "nul\0",
    "\u202eada",
    "ada\u0301",
    "\U0001d51e\U0001d521\U0001d51e",
    '{"__entity": {"type": "Group", "id": "readers"}}',
    'Group::"readers"',
    "",
    " readers",
    "readers\u200b",
    "READERS",
    "x" * 100_000,
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_is_only_a_name(name):
    """No actor, group or branch gets in by how it is called."""
    judge = judge_by(READERS, 'permit(principal == Actor::"ada", action, resource);')
    assert not judge.allows(Actor(name), "Read", GRAPH, "main")
    assert not judge.allows(Actor("bo", groups=frozenset({name})), "Read", GRAPH, "main")
    assert not judge.allows(Actor("bo"), "Read", GRAPH, name, name)
    assert not judge.allows(Actor("bo"), "Read", Resource("Type", name), "main")
    assert judge.allows(Actor(name, groups=frozenset({"readers"})), "Read", GRAPH, name)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_is_matched_as_it_is(name):
    """A policy that names somebody means that one alone, whatever characters the name has."""
    judge = judge_by(
        "permit(principal, action, resource) when { principal.name == context.branch };"
    )
    assert judge.allows(Actor(name), "Read", GRAPH, name)
    assert not judge.allows(Actor(name), "Read", GRAPH, f"{name}x")


@pytest.mark.parametrize("broken", ["\ud800", "a\udfff"])
def test_what_is_no_text_is_denied(broken):
    """Half a surrogate pair can't be asked about, and so is not allowed."""
    judge = judge_by("permit(principal, action, resource);")
    assert judge.allows(ADA, "Read", GRAPH, "main")
    assert not judge.allows(Actor(broken), "Read", GRAPH, "main")
    assert not judge.allows(Actor("a", groups=frozenset({broken})), "Read", GRAPH, "main")
    assert not judge.allows(ADA, "Read", GRAPH, broken)
    assert not judge.allows_somewhere(Actor(broken), "Read", GRAPH, ["main", "b"])


def test_a_forbid_that_fails_denies(caplog):
    """Cedar would skip it and allow; here whatever fails denies, and is logged once."""
    judge = judge_by(
        "permit(principal, action, resource);",
        '@id("odd") forbid(principal, action == Action::"Read", resource) '
        'when { principal.name == "ada" && 9223372036854775807 + 1 > 0 };',
    )
    with caplog.at_level(logging.WARNING, "trails"):
        assert not judge.allows(ADA, "Read", GRAPH, "main")
        assert not judge.allows(ADA, "Read", GRAPH, "dev")
        assert not judge.allows_somewhere(ADA, "Read", GRAPH, ["main", "dev"])
    assert judge.allows(Actor("bo"), "Read", GRAPH, "main")
    assert judge.allows(ADA, "Change", GRAPH, "main")
    assert [each.getMessage() for each in caplog.records if "'odd'" in each.getMessage()]
    assert len(caplog.records) == 1


def test_a_permit_that_fails_denies():
    """Even if another permits."""
    judge = judge_by(
        "permit(principal, action, resource);",
        "permit(principal, action, resource) when { 9223372036854775807 + 1 > 0 };",
    )
    assert not judge.allows(ADA, "Read", GRAPH, "main")


@pytest.mark.parametrize(
    "unknown",
    [
        Resource("Graph", "other"),
        Resource("Query", "gone"),
        Resource("Capability", "gone"),
        Resource("Server", "x"),
    ],
    ids=str,
)
def test_what_does_not_exist_is_denied(unknown):
    """Even where everything is permitted."""
    judge = judge_by("permit(principal, action, resource);")
    assert not judge.allows(ADA, "Read", unknown, "main")
    assert not judge.allows_somewhere(ADA, "Read", unknown, ["main", "dev"])


def test_data_of_the_past_is_like_all_data_unless_policies_tell_data_apart():
    """A type that is declared no more may have been part of one that is forbidden."""
    old, field = Resource("Type", "Gone"), Resource("Field", "Gone.x")
    judge = judge_by(READERS)
    assert judge.allows(ADA, "Read", old, "main")
    assert judge.allows(ADA, "Read", field, "main")
    assert not judge.allows(Actor("bo"), "Read", old, "main")
    careful = judge_by(READERS, 'forbid(principal, action, resource in Type::"Room");')
    assert careful.allows(ADA, "Read", SALARY, "main")
    assert not careful.allows(ADA, "Read", old, "main")
    assert not careful.allows(ADA, "Read", field, "main")


def test_answers_depend_on_groups_and_scopes():
    """The same name with other groups or scopes is another actor."""
    judge = judge_by(
        READERS,
        'permit(principal == Actor::"ada", action == Action::"Admin", resource) '
        'when { principal.scopes.contains("dev") };',
    )
    for _ in range(2):
        assert judge.allows(ADA, "Read", GRAPH, "main")
        assert not judge.allows(Actor("ada"), "Read", GRAPH, "main")
        assert not judge.allows(Actor("ada"), "Admin", GRAPH, "main")
        assert judge.allows(Actor("ada", frozenset({"dev"})), "Admin", GRAPH, "main")
        assert not judge.allows_somewhere(Actor("ada"), "Read", GRAPH, ["main", "b"])
        assert judge.allows_somewhere(ADA, "Read", GRAPH, ["main", "b"])


def test_what_is_remembered_is_bounded(monkeypatch):
    """Nobody fills the memory by asking about ever new branches, or under ever new names."""
    monkeypatch.setattr(judge_module, "_DECISIONS", 20)
    judge = judge_by(READERS)
    for number in range(100):
        assert judge.allows(ADA, "Read", GRAPH, f"b{number}")
        assert not judge.allows(Actor(f"a{number}"), "Read", GRAPH, "main")
        assert len(judge._decided) <= 20
    for number in range(300):
        judge.allows(Actor(f"c{number}"), "Read", GRAPH, "main")
        judge.allows_somewhere(ADA, "Read", GRAPH, [f"b{number}", "main"])
    assert len(judge._actors._made) <= 256
    assert len(judge._somewhere._made) <= 8


def test_fields_that_no_policy_tells_apart_are_asked_about_once(monkeypatch):
    """A graph with many fields costs as many decisions as policies can tell apart."""
    judge = judge_by(READERS, 'forbid(principal, action, resource in Field::"Person.salary");')
    asked = []
    decide = judge.decide
    monkeypatch.setattr(judge, "decide", lambda *given: asked.append(given[2]) or decide(*given))
    fields = [each for each in judge.classes.world.entities if each.kind == "Field"]
    allowed = [each.id for each in fields if judge.allows(ADA, "Read", each, "main")]
    assert "Employee.salary" not in allowed
    assert "Person.salary" not in allowed
    assert {"Employee.desk", "Employee.name", "Person.name", "Room.number"} <= set(allowed)
    assert len(asked) == 3


def test_branches_that_no_policy_tells_apart_are_alike():
    """Each branch has one on which everything is decided alike, for an actor."""
    judge = judge_by(
        'permit(principal in Group::"readers", action == Action::"Read", resource) '
        'when { context.branch like "a*" };',
        'permit(principal in Group::"others", action == Action::"Read", resource) '
        'when { context.branch like "b*" };',
    )
    branches = ["main", "a1", "a2", "b1"]
    assert judge.alike(ADA, branches) == {"main": "main", "a1": "a1", "a2": "a1", "b1": "main"}
    assert judge.alike(Actor("bo"), branches) == dict.fromkeys(branches, "main")
    opaque = judge_by("permit(principal, action, resource) when { [context.branch].isEmpty() };")
    assert opaque.alike(ADA, branches) == {each: each for each in branches}
