"""The built-in tools: what they do with a graph."""

import asyncio
import json
import re

import pytest
from jsonschema import Draft202012Validator

from trails.model.actors import LOCAL
from trails.request.operations import BUILTINS, BY_NAME

READERS = {
    "branch_list",
    "commit_get",
    "commit_list",
    "graph_health",
    "graph_query",
    "graph_snapshot",
    "schema_get",
}
WRITERS = {"branch_delete", "branch_merge", "graph_load", "graph_mutate"}
EMMA = {"op": "create", "type": "Book", "data": {"isbn": "0001", "title": "Emma"}}


def book(**data: object) -> dict:
    """An operation that updates the one book."""
    return {"op": "update", "type": "Book", "id": "0001", "data": data}


@pytest.fixture
def forked(calls):
    """A book on main, and a branch on which it has another title."""
    calls.result("graph_mutate", {"operations": [EMMA], "message": "first"})
    calls.result("branch_create", {"name": "work"})
    calls.result("graph_mutate", {"operations": [book(title="Theirs")], "branch": "work"})
    return calls


@pytest.mark.req("G4")
def test_the_built_in_tools_have_explicit_hints(calls):
    """Readers only read, in a closed world; writers may destroy; making a branch does not."""
    tools = {tool.name: tool for tool in calls.kernel.tools(LOCAL).tools}
    assert READERS | WRITERS | {"branch_create"} <= set(tools)
    for name in READERS:
        hints = tools[name].hints
        assert (hints.read_only, hints.destructive, hints.open_world) == (True, False, False)
    for name in WRITERS:
        hints = tools[name].hints
        assert (hints.read_only, hints.destructive, hints.open_world) == (False, True, False)
    hints = tools["branch_create"].hints
    assert (hints.read_only, hints.destructive, hints.open_world) == (False, False, False)


@pytest.mark.req("G4")
def test_the_built_in_resources_are_listed(calls):
    """Schema and branches can be read by URI."""
    listed = {each.uri for each in calls.kernel.resources(LOCAL).resources}
    assert {"trails://schema", "trails://branches"} <= listed


CONTROLS = {"branch", "snapshot", "offset", "max_chars"}


@pytest.mark.req("G4")
@pytest.mark.parametrize("name", sorted(READERS | WRITERS | {"branch_create"}))
def test_a_built_in_is_described_for_who_has_never_seen_it(calls, name):
    """Each tool and each parameter says what it is; schemas are sound and closed."""
    tool = calls.tool(name)
    assert len(tool.description) > 100
    assert tool.title
    Draft202012Validator.check_schema(tool.input_schema)
    assert tool.input_schema["additionalProperties"] is False
    for parameter, schema in tool.input_schema["properties"].items():
        # The instructions of the server explain the others, once for all tools.
        assert schema.get("description") or parameter in CONTROLS, parameter


@pytest.mark.parametrize("builtin", [*BUILTINS, *BY_NAME], ids=lambda each: each.name)
def test_an_example_names_no_type_of_some_graph(builtin):
    """Tools that every graph has show placeholders, which nobody takes for types that there are."""
    found = re.findall(r'"type": "(\w+)"|\ba :(\w+)|([A-Z]\w+)/', builtin.description)
    assert {name for names in found for name in names if name} <= {"TypeName"}


def test_the_schema_is_given_whole_or_by_type(calls):
    """With fields, constraints and RDF names; an unknown type names the nearest."""
    every = calls.result("schema_get")
    assert [each["type"] for each in every["types"]] == ["Author", "Book"]
    one = calls.result("schema_get", {"types": ["Book"]})
    assert one["types"] == [every["types"][1]]
    fields = one["types"][0]["schema"]["properties"]
    assert (fields["year"]["minimum"], fields["year"]["maximum"]) == (1450, 2100)
    assert "Unique together: title, year." in one["types"][0]["schema"]["description"]
    failure = calls.failure("schema_get", {"types": ["Bok"]})
    assert (failure.kind, failure.code) == ("semantic", "not_found")
    assert "did you mean 'Book'?" in failure.message


def test_branches_are_made_listed_and_deleted(forked):
    """An unmerged one only by force."""
    names = [each["name"] for each in forked.result("branch_list")["branches"]]
    assert names == ["main", "work"]
    again = forked.failure("branch_create", {"name": "work"})
    assert (again.kind, again.code) == ("semantic", "conflict")
    refused = forked.failure("branch_delete", {"name": "work"})
    assert refused.code == "conflict"
    assert forked.result("branch_delete", {"name": "work", "force": True})["deleted"]["name"] == (
        "work"
    )
    assert len(forked.result("branch_list")["branches"]) == 1
    assert forked.failure("branch_create", {"name": "a b"}).kind == "semantic"
    at = forked.result("commit_list")["commits"][-1]["commit"]
    assert forked.result("branch_create", {"name": "old", "from": at})["branch"]["head"] == at


def test_a_merge_without_conflicts(forked):
    """A dry run writes nothing; then it is done, and again there is nothing to do."""
    before = forked.result("graph_snapshot")["head"]
    dry = forked.result("branch_merge", {"source": "work", "dry_run": True})
    assert (dry["outcome"], dry["dry_run"]) == ("fast_forward", True)
    counts = dry["created"], dry["updated"], dry["deleted"]
    assert sum(counts) > 0
    assert forked.result("graph_snapshot")["head"] == before
    done = forked.result("branch_merge", {"source": "work"})
    assert done["outcome"] == "fast_forward"
    assert (done["created"], done["updated"], done["deleted"]) == counts
    assert forked.result("graph_snapshot")["head"] == done["commit"] != before
    assert forked.result("branch_merge", {"source": "work"})["outcome"] == "already_up_to_date"


def test_a_merge_with_conflicts_lists_every_one_and_how_to_settle_it(forked):
    """The text alone suffices to send the right resolutions."""
    forked.result("graph_mutate", {"operations": [book(title="Ours", status="lost")]})
    forked.result("graph_mutate", {"operations": [book(status="shelved")], "branch": "work"})
    failure = forked.failure("branch_merge", {"source": "work"})
    assert (failure.kind, failure.code) == ("semantic", "conflict")
    conflicts = failure.data["conflicts"]
    assert [each["field"] for each in conflicts] == ["status", "title"]
    for each in conflicts:
        assert each["id"] in failure.message
        assert each["message"] in failure.message
        assert [one["take"] for one in each["resolutions"]] == ["ours", "theirs", "value"]
    assert (conflicts[1]["base"], conflicts[1]["ours"], conflicts[1]["theirs"]) == (
        "Emma",
        "Ours",
        "Theirs",
    )
    dry = forked.result("branch_merge", {"source": "work", "dry_run": True})
    assert (dry["outcome"], dry["conflicts"]) == ("conflicts", json.loads(json.dumps(conflicts)))
    settled = [
        conflicts[0]["resolutions"][1],
        {"conflict": conflicts[1]["id"], "take": "value", "value": "Both"},
    ]
    arguments = {"source": "work", "resolutions": settled, "message": "settled"}
    assert forked.result("branch_merge", arguments)["outcome"] == "merged"
    rows = forked.result("graph_query", {"query": "SELECT ?t ?s { ?b :title ?t ; :status ?s }"})
    assert rows["rows"] == [{"t": "Both", "s": "shelved"}]


def test_resolutions_are_checked_like_other_arguments(forked):
    """Each in its own place."""
    wrong = [{"conflict": "x", "take": "our"}, {"take": "ours", "more": 1}, 7]
    failure = forked.failure("branch_merge", {"source": "work", "resolutions": wrong})
    found = {each["field"]: each["code"] for each in failure.data["fields"]}
    assert found == {
        "resolutions[0].take": "one_of",
        "resolutions[1].conflict": "required",
        "resolutions[1].more": "unknown_field",
        "resolutions[2]": "datatype",
    }


def test_commits_come_in_pages_with_the_call_that_continues(forked):
    """Following next gives every commit once."""
    arguments: dict | None = {"limit": 1, "branch": "work"}
    seen = []
    while arguments is not None:
        page = forked.result("commit_list", arguments)
        seen += [each["commit"] for each in page["commits"]]
        following = page.get("next")
        assert following is None or following["tool"] == "commit_list"
        arguments = None if following is None else following["arguments"]
    assert len(seen) == len(set(seen)) == 3
    node = forked.result("commit_list", {"node": "Book/0001"})["commits"]
    assert [each["message"] for each in node] == ["first"]
    assert forked.result("commit_list", {"actor": "nobody"})["commits"] == []
    assert forked.failure("commit_list", {"after": "x"}).code == "cursor"


def test_a_commit_is_shown_with_its_changes(forked):
    """Before and after, node by node; a cut is told."""
    shown = forked.result("commit_get", {"commit": "work"})
    assert shown["changes"] == [
        {
            "handle": "Book/0001",
            "change": "updated",
            "fields": [{"field": "title", "before": "Emma", "after": "Theirs"}],
        }
    ]
    assert (shown["updated"], shown["truncated"]) == (1, False)
    more = [
        {"op": "create", "type": "Author", "data": {"slug": each * 2, "name": "Ann"}}
        for each in "abc"
    ]
    forked.result("graph_mutate", {"operations": more})
    cut = forked.result("commit_get", {"commit": "main", "limit": 2})
    assert (len(cut["changes"]), cut["truncated"], cut["created"]) == (2, True, 3)
    following = {"commit": cut["commit"], "limit": 2, "after": cut["changes"][-1]["handle"]}
    assert cut["next"] == {"tool": "commit_get", "arguments": following}
    rest = forked.result("commit_get", following)
    assert (len(rest["changes"]), rest["truncated"], rest.get("next")) == (1, False, None)
    assert forked.failure("commit_get", {"commit": "nope"}).code == "not_found"


def test_a_query_takes_typed_parameters(forked):
    """Values are bound, never pasted; IRIs are written as {"@id": …}."""
    query = "SELECT ?t WHERE { $b :title ?t }"
    iri = forked.result("graph_query", {"query": "SELECT ?b { ?b a :Book }"})["rows"][0]["b"]
    found = forked.result("graph_query", {"query": query, "params": {"b": {"@id": iri}}})
    assert found["rows"] == [{"t": "Emma"}]
    text = {"query": "SELECT ?b { ?b :title $t }", "params": {"t": 'E" } DROP ALL'}}
    assert forked.result("graph_query", text)["rows"] == []
    for params in ([], "x", 7):
        failure = forked.failure("graph_query", {"query": query, "params": params})
        assert [each["field"] for each in failure.data["fields"]] == ["params"]


@pytest.mark.parametrize(
    "query", ["SELECT", "DROP ALL", "SELECT * { SERVICE <http://x/> { ?s ?p ?o } }", "{" * 4000]
)
def test_a_query_that_can_t_run_is_a_semantic_failure(calls, query):
    """It says why."""
    failure = calls.failure("graph_query", {"query": query})
    assert failure.kind == "semantic"
    assert failure.code in {"query", "limit"}


def test_values_of_queries_have_a_json_form(calls):
    """Also those that JSON has no word for."""
    query = """SELECT ?a ?b ?c ?d ?e WHERE { BIND("INF"^^<http://www.w3.org/2001/XMLSchema#double>
        AS ?a) BIND(12.50 AS ?b) BIND(NOW() AS ?c) BIND(<http://x/y> AS ?d)
        BIND(true AS ?e) }"""
    row = calls.result("graph_query", {"query": query})["rows"][0]
    assert (row["a"], row["b"], row["d"], row["e"]) == ("inf", "12.5", "http://x/y", True)
    assert row["c"].startswith("20")


def test_a_mutation_takes_operations_or_an_update(forked):
    """One of the two; a key makes a retry safe, an expected head refuses a surprise."""
    for wrong in ({}, {"operations": [EMMA], "update": "DELETE WHERE { ?s ?p ?o }"}):
        failure = forked.failure("graph_mutate", wrong)
        assert [each["field"] for each in failure.data["fields"]] == ["operations"]
    update = 'DELETE { ?b :title ?t } INSERT { ?b :title "New" } WHERE { ?b :title ?t }'
    arguments = {"update": update, "idempotency_key": "k", "message": "renamed"}
    first = forked.result("graph_mutate", arguments)
    assert (first["changed"], first["replayed"]) == (True, False)
    again = forked.result("graph_mutate", arguments)
    assert (again["commit"], again["changed"], again["replayed"]) == (first["commit"], False, True)
    stale = forked.failure("graph_mutate", {"operations": [book(year=1900)], "expected_head": "x"})
    assert (stale.kind, stale.code) == ("semantic", "conflict")
    nothing = forked.result("graph_mutate", {"operations": [book(title="New")]})
    assert (nothing["commit"], nothing["changed"]) == (None, False)


def test_a_load_is_one_commit_or_none(calls):
    """A missing branch is an error without from, and forked with it."""
    line = '{"type": "Author", "data": {"slug": "%s", "name": "Ann"}}\n'
    good = {"data": line % "a" + line % "b"}
    missing = calls.failure("graph_load", {**good, "branch": "new"})
    assert (missing.kind, missing.code) == ("semantic", "not_found")
    done = calls.result("graph_load", {**good, "branch": "new", "from": "main"})
    assert (done["nodes"], done["forked"], done["branch"]) == (2, True, "new")
    assert calls.result("graph_snapshot")["nodes"] == 0
    bad = calls.failure("graph_load", {"data": line % "c" + line % "D D"})
    assert bad.kind == "validation"
    assert "line 2" in bad.data["fields"][0]["field"] + bad.message
    assert calls.result("graph_snapshot")["nodes"] == 0
    replaced = {"data": line % "z", "branch": "new", "mode": "overwrite"}
    assert calls.result("graph_load", replaced)["deleted"] == 2
    refused = {"data": line % "z", "branch": "new", "mode": "append"}
    assert calls.failure("graph_load", refused).kind == "validation"
    turtle = '<trails://app/main/Author/t> a :Author ; :slug "t" ; :name "Tom" .'
    prefix = "@prefix : <trails://app/main/schema#> .\n"
    assert calls.result("graph_load", {"data": prefix + turtle, "format": "turtle"})["nodes"] == 1
    assert calls.failure("graph_load", {"data": "", "format": "xml"}).kind == "validation"


def test_instructions_introduce_the_server(calls):
    """Project, graph, types with a line each, tools, where to begin and how errors look."""
    told = calls.kernel.instructions(LOCAL)
    for words in (
        "graph 'main' of the project 'app'",
        "- Author: Somebody who writes.",
        "- Book: Something to read.",
        "books.add",
        "schema_get",
        "data.corrected_arguments",
    ):
        assert words in told
    assert calls.kernel.name == "app/main"


@pytest.mark.parametrize("branch", ["main", "agents/ann"])
def test_what_was_written_is_read_back_by_the_handle_that_is_shown(calls, branch):
    """On a branch a node's own IRI would lead to main, where it is not, or another."""
    if branch != "main":
        calls.result("branch_create", {"name": branch})
    operation = {"op": "create", "type": "Author", "data": {"slug": "ann", "name": "Ann"}}
    done = calls.result("graph_mutate", {"operations": [operation], "branch": branch})
    handle = done["applied"][0]["iri"]
    (content, *_) = asyncio.run(calls.kernel.read(LOCAL, handle))
    assert '"@value":"Ann"' in content.text
    change = {"op": "update", "type": "Author", "id": handle, "data": {"name": "Anna"}}
    again = calls.result("graph_mutate", {"operations": [change], "branch": branch})
    assert again["applied"][0]["iri"] == handle
