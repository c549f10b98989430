"""``trails.meta.query.*`` and ``trails.meta.policy.*``: what an agent checks before it changes."""

from __future__ import annotations

import pytest
from tests.worlds.graphs import Calls
from tests.worlds.projects import NOTES, NOTES_QUERIES, make_project

from trails import App
from trails.model.actors import Actor

BUILDER = Actor("bob", frozenset({"runtime", "builder"}), frozenset({"staff"}), "token")
POLICIES = """
@id("staff") permit(principal in Group::"staff", action, resource);
@id("no stars")
forbid(principal == Actor::"bob", action == Action::"Read", resource == Field::"Note.stars");
@id("no query") forbid(principal == Actor::"bob", action, resource == Query::"finish_all");
"""
HEADER = "#+ description: Titles.\n"
GOOD = """\
#+ description: Open notes.
#+ params:
#+   least: Int
SELECT ?t { ?n a :Note ; :title ?t ; :stars ?s FILTER (?s >= $least) }"""


@pytest.fixture
def calls(tmp_path):
    """A project without policies."""
    folder = make_project(tmp_path / "p", NOTES, queries=NOTES_QUERIES)
    found = Calls(App.open(folder))
    yield found
    found.close()


@pytest.fixture
def guarded(tmp_path):
    """A project with policies."""
    folder = make_project(
        tmp_path / "g", NOTES, queries=NOTES_QUERIES, policies={"all.cedar": POLICIES}
    )
    found = Calls(App.open(folder))
    yield found
    found.close()


def ask(calls, operation, /, **given):
    """The result of an operation."""
    return calls.result(f"trails_meta_{operation}", given, BUILDER)


def test_a_text_is_described_as_the_query_that_it_would_be(calls):
    """Parameters, columns, and what it can read."""
    found = ask(calls, "query_check", name="best", text=GOOD)
    assert found["valid"]
    assert found["tool"] == "best"
    assert found["columns"] == ["t"]
    assert found["params"]["properties"]["params"]["required"] == ["least"]
    assert found["reach"]["types"] == ["Note"]
    assert set(found["reach"]["fields"]) >= {"Note.title", "Note.stars"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT ?t { ?n :titel ?t }", "title"),
        ("SELECT ?t { ?n :title $name }", "declared"),
        ("SELECT ?t { ?n :title ?t", ""),
        ("DROP ALL", "DROP"),
    ],
)
def test_each_mistake_has_a_line_and_a_way_out(calls, text, message):
    """Unknown fields, parameters, syntax and forms."""
    found = ask(calls, "query_check", name="best", text=f"{HEADER}{text}")
    assert not found["valid"]
    assert found["problems"][0]["line"] == 2
    assert any(message in each["message"] for each in found["problems"])


def test_a_name_that_is_taken_is_found(calls):
    """A tool of another kind, or a built-in, has it."""
    for name in ("search", "notes_finish"):
        found = ask(calls, "query_check", name=name, text=f"{HEADER}SELECT ?t {{ ?n :title ?t }}")
        assert "taken" in found["problems"][0]["message"]
    assert ask(calls, "query_check", name="by_status", text=GOOD)["valid"]


def test_a_new_query_is_a_diff_that_can_be_applied(calls):
    """Its file is not written; a name that leads elsewhere is refused."""
    found = ask(calls, "query_add", name="best", text=GOOD)
    (change,) = found["diff"]["files"]
    assert (change["path"], change["change"], change["base"]) == ("queries/best.rq", "create", None)
    assert change["content"] == GOOD + "\n"
    assert not (calls.app.folder / "queries/best.rq").exists()
    changed = ask(calls, "query_add", name="by_status", text=GOOD)["diff"]["files"][0]
    assert changed["change"] == "modify"
    refused = calls.failure("trails_meta_query_add", {"name": "../x", "text": GOOD}, BUILDER)
    assert refused.code == "validation"
    wrong = calls.failure("trails_meta_query_add", {"name": "x", "text": "SELECT"}, BUILDER)
    assert "x.rq:1" in wrong.message


def test_a_query_is_explained_by_what_it_touches(calls):
    """With numbers of nodes; one that can match anything is called so."""
    for key in "abc":
        data = {"key": key, "title": f"Note {key}"}
        calls.result(
            "graph_mutate", {"operations": [{"op": "create", "type": "Note", "data": data}]}
        )
    found = ask(calls, "query_explain", name="by_status")
    assert found["nodes"] == 3
    assert found["types"][0]["type"] == "Note"
    anything = ask(calls, "query_explain", text="SELECT ?s { ?s ?p ?o }")
    assert anything["query"]["reach"]["anything"]
    assert anything["notes"]
    unknown = calls.failure("trails_meta_query_explain", {"name": "by_statu"}, BUILDER)
    assert "by_status" in unknown.message


def test_hidden_fields_and_queries_are_unknown(guarded):
    """A query can't be checked against what its author may not see."""
    found = ask(guarded, "query_check", name="best", text=GOOD)
    assert not found["valid"]
    hidden = guarded.failure("trails_meta_query_explain", {"name": "finish_all"}, BUILDER)
    missing = guarded.failure("trails_meta_query_explain", {"name": "finish_not"}, BUILDER)
    assert hidden.message.replace("finish_all", "finish_not") == missing.message


def test_policies_are_checked_as_their_files_are_now(guarded):
    """A mistake is found before it is in use."""
    assert ask(guarded, "policy_check")["forbids"] == 2
    file = guarded.app.folder / "policies/all.cedar"
    file.write_text(POLICIES + '\npermit(principal, action == Action::"Fly", resource);\n')
    found = ask(guarded, "policy_check")
    assert found["problems"][0]["line"] == 7
    assert "Fly" in found["problems"][0]["message"]


def test_decisions_are_tested_and_explained(guarded):
    """Cases in the call, or in the file beside the policies."""
    case = {"actor": "ann", "groups": ["staff"], "action": "Read", "resource": "Field::Note.stars"}
    found = ask(guarded, "policy_test", cases=[{**case, "expect": "allow"}])
    assert (found["passed"], found["failed"]) == (1, 0)
    bob = {**case, "actor": "bob", "expect": "allow"}
    assert ask(guarded, "policy_test", cases=[bob])["failed"] == 1
    (guarded.app.folder / "policies/tests.toml").write_text(
        '[[case]]\nactor = "ann"\ngroups = ["staff"]\naction = "Change"\nexpect = "allow"\n'
    )
    assert ask(guarded, "policy_test")["passed"] == 1
    denied = ask(guarded, "policy_explain", **{**case, "actor": "bob"})
    assert not denied["allowed"]
    assert denied["decided_by"] == ["no stars"]
    wrong = guarded.failure("trails_meta_policy_test", {"cases": [{"actor": "ann"}]}, BUILDER)
    assert "cases[0]" in wrong.message


def test_who_may_do_what_is_for_administrators(guarded):
    """Denied is answered as unknown, and the scope is needed."""
    eve = Actor("eve", frozenset({"runtime", "builder"}), frozenset(), "token")
    assert guarded.failure("trails_meta_policy_check", {}, eve).code == "unknown"
    least = Actor("ann", frozenset({"runtime"}), frozenset({"staff"}), "token")
    assert guarded.failure("trails_meta_policy_check", {}, least).code == "scope"
