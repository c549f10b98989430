"""Stored queries as tools: one each, or two together."""

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.worlds.graphs import Calls

from trails import App
from trails.model.actors import LOCAL
from trails.model.results import Failure

BOOKS = "\n".join(
    f'{{"type": "Book", "data": {{"isbn": "000{n}", "title": "Title {n}", "year": {2000 + n}}}}}'
    for n in range(4)
)


@pytest.fixture
def filled(opened: Calls) -> Calls:
    """Four books, all of them ordered."""
    opened.result("graph_load", {"data": BOOKS})
    return opened


@pytest.mark.req("G9")
def test_a_query_tool_nests_its_parameters_beside_the_control_arguments(filled):
    """Params beside the controls, nothing else; a mutation takes no snapshot."""
    reads, writes = filled.tool("by_status"), filled.tool("lose_all")
    controls = ["branch", "snapshot", "offset", "max_chars"]
    assert list(reads.input_schema["properties"]) == ["params", *controls]
    assert list(writes.input_schema["properties"]) == ["params", "branch"]
    for tool in (reads, writes):
        assert tool.input_schema["additionalProperties"] is False
        assert tool.input_schema["properties"]["params"]["additionalProperties"] is False
    assert reads.input_schema["required"] == ["params"]
    assert "required" not in writes.input_schema
    params = reads.input_schema["properties"]["params"]
    assert params["required"] == ["status"]
    assert params["properties"]["year"]["type"] == ["integer", "null"]
    assert params["properties"]["status"]["enum"] == ["ordered", "shelved", "lost"]
    assert (reads.hints.read_only, reads.hints.destructive) == (True, False)
    assert (writes.hints.read_only, writes.hints.destructive) == (False, True)


@pytest.mark.req("G9")
@pytest.mark.parametrize(
    "arguments",
    [
        {"params": {"status": "ordered"}},
        {"params": {"status": "ordered", "year": None}},
        {"params": {"status": "ordered", "year": 2001}},
        {"params": {"status": "ordered", "year": "2001"}},
        {"params": {"status": None}},
        {"params": {"status": "gone"}},
        {"params": {"status": "ordered", "more": 1}},
        {"params": {}},
        {"params": None},
        {"params": []},
        {},
        {"params": {"status": "ordered"}, "branch": "main"},
        {"params": {"status": "ordered"}, "branch": None, "snapshot": None},
        {"params": {"status": "ordered"}, "branch": 7},
        {"params": {"status": "ordered"}, "dry_run": True},
        {"status": "ordered"},
    ],
)
def test_a_query_accepts_what_its_schema_accepts(filled, arguments):
    """Nullable means that it may be left out and may be null."""
    accepted = Draft202012Validator(filled.tool("by_status").input_schema).is_valid(arguments)
    outcome = filled.outcome("by_status", arguments)
    assert isinstance(outcome, Failure) is not accepted, outcome
    if not accepted:
        assert outcome.kind == "validation"


def test_a_query_that_reads_gives_columns_and_rows(filled):
    """At the present, or at a past commit."""
    before = filled.result("graph_snapshot")["head"]
    found = filled.result("by_status", {"params": {"status": "ordered", "year": 2001}})
    assert found == {
        "columns": ["book", "title"],
        "rows": [{"book": "trails://library/main/Book/0001", "title": "Title 1"}],
        "truncated": False,
    }
    assert filled.result("lose_all")["changed"]
    arguments = {"params": {"status": "ordered"}}
    assert filled.result("by_status", arguments)["rows"] == []
    assert len(filled.result("by_status", {**arguments, "snapshot": before})["rows"]) == 4


def test_a_query_that_changes_gives_its_commit(filled):
    """On the branch that is named; null when nothing changed."""
    filled.result("branch_create", {"name": "work"})
    done = filled.result("lose_all", {"branch": "work"})
    assert done == {"commit": done["commit"], "changed": True}
    assert filled.result("branch_list")["branches"][1]["head"] == done["commit"]
    assert filled.result("lose_all", {"branch": "work"}) == {"commit": None, "changed": False}
    found = filled.result("by_status", {"params": {"status": "lost"}})
    assert found["rows"] == []
    assert filled.activities()[-2].kind == "mutation"


def test_rows_that_were_cut_off_are_told(project: Path):
    """With what to do to see the others."""
    text = (project / "trails.toml").read_text()
    (project / "trails.toml").write_text(text + "[sandbox]\nrows = 2\n")
    calls = Calls(App.open(project, strict=True))
    calls.result("graph_load", {"data": BOOKS})
    for tool, arguments in (
        ("by_status", {"params": {"status": "ordered"}}),
        ("graph_query", {"query": "SELECT ?t { ?b :title ?t }"}),
    ):
        found = calls.result(tool, arguments)
        assert found["truncated"] is True
        assert len(found["rows"]) == 2
        assert "OFFSET 2" in found["notice"]
    calls.close()


def test_refused_parameters_are_repaired(filled):
    """As arguments of any tool are."""
    failure = filled.failure("by_status", {"params": {"status": "orderd", "year": "2001"}})
    assert failure.data["corrected_arguments"] == {"params": {"status": "ordered", "year": 2001}}


def test_parameters_beside_params_are_put_into_it(filled):
    """The mistake that is made most: the call is given back as it should have been."""
    failure = filled.failure("by_status", {"status": "ordered", "branch": "main"})
    wanted = {"params": {"status": "ordered"}, "branch": "main"}
    assert failure.data["corrected_arguments"] == wanted
    assert filled.result("by_status", wanted)["columns"]


# --- two tools for all ---------------------------------------------------------------------


def modes(project: Path, mode: str, threshold: int) -> Calls:
    """The project with settings for stored queries."""
    with (project / "trails.toml").open("a") as file:
        file.write(f'[graphs.main.mcp]\nstored_query_mode = "{mode}"\n')
        file.write(f"stored_query_threshold = {threshold}\n")
    return Calls(App.open(project, strict=True))


@pytest.mark.req("G8")
@pytest.mark.parametrize(
    ("mode", "threshold", "by_name"),
    [
        ("auto", 3, False),
        ("auto", 2, True),  # two are exposed; the third does not count
        ("auto", 1, True),
        ("per_query", 1, False),
        ("meta", 24, True),
    ],
)
def test_the_mode_and_the_threshold_decide_how_queries_are_offered(
    project, logged, mode, threshold, by_name
):
    """Counted over the exposed queries; the switch is logged."""
    calls = modes(project, mode, threshold)
    names = {tool.name for tool in calls.kernel.tools(LOCAL).tools}
    assert len({"by_status", "lose_all"} & names) == (0 if by_name else 2)
    assert ({"stored_query_list", "stored_query_run"} <= names) is by_name
    told = [each for each in logged.messages if "stored_query_list" in each]
    assert len(told) == by_name
    assert calls.failure("by_status" if by_name else "stored_query_run").kind == "unknown"
    calls.close()


@pytest.mark.req("G8")
def test_queries_are_listed_and_run_by_name(project):
    """Filtered, in three levels of detail; run with the checks of the query itself."""
    calls = modes(project, "meta", 1)
    calls.result("graph_load", {"data": BOOKS})
    listed = calls.result("stored_query_list")["queries"]
    assert [each["name"] for each in listed] == ["by_status", "lose_all"]
    assert listed[1] == {
        "name": "lose_all",
        "description": "Mark every book as lost.",
        "changes_data": True,
    }
    assert calls.result("stored_query_list", {"filter": "STATUS", "detail_level": "names"}) == {
        "queries": [{"name": "by_status"}]
    }
    full = calls.result("stored_query_list", {"detail_level": "full"})["queries"][0]
    assert full["params"]["required"] == ["status"]
    assert full["columns"] == ["book", "title"]
    schema = calls.tool("stored_query_run").output_schema
    params = {"status": "ordered", "year": 2002}
    found = calls.result("stored_query_run", {"name": "by_status", "params": params})
    assert [row["title"] for row in found["rows"]] == ["Title 2"]
    Draft202012Validator(schema).validate(found)
    assert [each.name for each in calls.activities()][-1] == "by_status"
    wrong = calls.failure("stored_query_run", {"name": "by_status", "params": {"status": 7}})
    assert [each["field"] for each in wrong.data["fields"]] == ["params.status"]
    for name in ("hidden", "nope"):
        missing = calls.failure("stored_query_run", {"name": name})
        assert (missing.kind, missing.code) == ("semantic", "not_found")
    head = calls.result("graph_snapshot")["head"]
    past = calls.failure("stored_query_run", {"name": "lose_all", "snapshot": head})
    assert past.data["fields"][0]["field"] == "snapshot"
    done = calls.result("stored_query_run", {"name": "lose_all"})
    assert done["changed"]
    Draft202012Validator(schema).validate(done)
    calls.close()


def test_a_stored_mutation_is_tried_proposed_and_retried(opened):
    """As every write: by its own tool, with the arguments that a list of tools does not repeat."""
    for isbn in ("0001", "0002"):
        book = {"isbn": isbn, "title": f"Book {isbn}"}
        opened.result("books.add", {"book": book})
    head = opened.graph.log_head("main").commit
    dry = opened.result("lose_all", {"dry_run": True})
    assert (dry["updated"], dry["result"]) == (2, {"commit": None, "changed": True})
    assert opened.graph.log_head("main").commit == head
    report = opened.result("lose_all", {"propose": True})
    assert (report["updated"], report["result"]["commit"]) == (2, report["commit"])
    assert opened.graph.log_head("main").commit == head
    first = opened.result("lose_all", {"idempotency_key": "once", "expected_head": head})
    assert first["changed"] is True
    assert opened.result("lose_all", {"idempotency_key": "once", "expected_head": head}) == first
    assert opened.failure("lose_all", {"expected_head": head}).code == "conflict"
    assert "dry_run" not in opened.tool("lose_all").input_schema["properties"]
