"""No answer to a model is longer than it should be, and none hides that it is not everything.

Northline with much data: thousands of nodes, long texts, hundreds of branches, a merge with many
conflicts. Every tool is called over both doors of MCP, and the calls that continue are followed.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jsonschema
import msgspec
import pytest
from tests.worlds.surfaces import OLD, Wires

from trails import App
from trails.model.actors import LOCAL
from trails.model.results import DEFAULT_CHARS, Success

NORTHLINE = Path(__file__).parents[2] / "examples" / "northline"
INCIDENTS = 5000
BRANCHES = 300
CONFLICTS = 400
LONG = 'It was raining, and "the tram" stood still — 停电了.\n' * 130


@pytest.fixture(scope="module")
def wires(tmp_path_factory):
    """Northline with much data, over every wire."""
    folder = tmp_path_factory.mktemp("sizes") / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    with App.open(folder) as app, Wires(app) as opened:
        fill(opened)
        yield opened


def fill(wires):
    """Load incidents in one commit, some with long texts; make branches and conflicts."""
    data = "\n".join(
        json.dumps({"type": "Incident", "data": incident(n)}) for n in range(INCIDENTS)
    )
    do(wires, "graph_load", {"data": data, "message": "Load incidents"})
    for n in range(BRANCHES):
        do(wires, "branch_create", {"name": f"work/{n:03}"})
    for branch in ("main", "work/000"):
        changes = [
            {
                "op": "update",
                "type": "Incident",
                "id": key(n),
                "data": {"title": f"Title on {branch} {n}"},
            }
            for n in range(CONFLICTS)
        ]
        do(wires, "graph_mutate", {"operations": changes, "branch": branch})


def key(n):
    """The key of an incident."""
    return f"INC-{2030 + n // 1000}-{n % 1000:03}"


def incident(n):
    """The fields of an incident."""
    return {
        "inc_id": key(n),
        "title": f"Something happened, number {n}",
        "happened": "2030-01-01T00:00:00Z",
        "outcome": "near_miss",
        "narrative": LONG[:5900] if n % 50 == 0 else LONG[:220],
        "component": "VEH-001",
        "reporter": "ruta.kazlauskiene",
    }


def do(wires, name, arguments):
    """Call a tool once, as a program: the whole answer."""
    done = wires.doors.run(wires.kernel.invoke(LOCAL, name, arguments))
    assert isinstance(done, Success), done
    return json.loads(done.body)


def call(wires, name, arguments):
    """The structured content, after the text and the other door are found to say the same."""
    fast, slow = wires.by_doors(OLD, "tools/call", {"name": name, "arguments": arguments})
    assert fast.body == slow.body
    result = fast.message["result"]
    text = result["content"][0]["text"]
    assert json.loads(text) == result["structuredContent"]
    assert len(text) <= arguments.get("max_chars", DEFAULT_CHARS), (name, len(text))
    assert not result["isError"], text
    return result["structuredContent"]


def pages(wires, name, arguments):
    """The answer of a call, and those of the calls that continue."""
    seen = set()
    while True:
        found = call(wires, name, arguments)
        yield found
        following = found.get("next")
        if following is None:
            return
        assert not following.get("repeat")
        name, arguments = following["tool"], following["arguments"]
        key = json.dumps([name, arguments], sort_keys=True)
        assert key not in seen
        seen.add(key)


def gather(wires, name, arguments, member):
    """The items of all pages."""
    return [item for page in pages(wires, name, arguments) for item in page[member]]


def test_the_list_of_tools_is_short(wires):
    """And has a description and a closed schema for each."""
    fast, slow = wires.by_doors(OLD, "tools/list", {})
    assert fast.body == slow.body
    assert len(fast.body) <= 32 << 10
    for tool in fast.message["result"]["tools"]:
        assert tool["description"]
        assert tool["inputSchema"]["additionalProperties"] is False


LATEST = "SELECT ?x WHERE { ?x a :Incident }"
EVERYTHING = "SELECT ?x ?p ?o WHERE { ?x ?p ?o }"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("schema_get", {}),
        ("schema_get", {"max_chars": 3000}),
        ("graph_snapshot", {}),
        ("graph_snapshot", {"max_chars": 1000}),
        ("graph_query", {"query": EVERYTHING}),
        ("graph_query", {"query": "DESCRIBE <Incident/INC-2030-000>", "max_chars": 1000}),
        ("branch_list", {"limit": 1000}),
        ("commit_list", {"all_branches": True, "limit": 1000}),
        ("commit_list", {"max_chars": 1000}),
        ("commit_get", {"commit": "main"}),
        ("commit_get", {"commit": "main", "limit": 10000, "max_chars": 100_000}),
        ("branch_merge", {"source": "work/000", "dry_run": True}),
        ("supplier_exposure", {"max_chars": 1000}),
        ("requirement_trace", {"params": {"req_id": "REQ-001"}, "max_chars": 1000}),
        ("hazards.open", {}),
        ("hazards.open", {"max_chars": 1000}),
        ("programme.summary", {"max_chars": 1000}),
        ("components.impact", {"component": "LIN-001", "max_chars": 1000}),
    ],
)
def test_an_answer_is_bounded_and_says_what_is_missing(wires, name, arguments):
    """It validates against the tool's schema, and what is left out has a size and a next call."""
    found = call(wires, name, arguments)
    fast, _ = wires.by_doors(OLD, "tools/list", {})
    schemas = {each["name"]: each["outputSchema"] for each in fast.message["result"]["tools"]}
    jsonschema.validate(found, schemas[name])
    said = found.get("left_out")
    if said is not None:
        assert "max_chars" in said["notice"]
        assert "next" in found or "next" in said or said["values"]
    whole = do(wires, name, {k: each for k, each in arguments.items() if k != "max_chars"})
    limit = arguments.get("max_chars", DEFAULT_CHARS)
    long = len(msgspec.json.encode(whole).decode()) > limit
    outlined = name == "schema_get" and "notice" in found
    assert long == (said is not None or outlined)


def test_rows_are_given_once_each_at_one_commit(wires):
    """Even if the branch moves on while they are read."""
    expected = {key(n) for n in range(INCIDENTS)}
    found = []
    for number, page in enumerate(pages(wires, "graph_query", {"query": LATEST})):
        found += [each["x"].rpartition("/")[2] for each in page["rows"]]
        if not number:
            assert page["truncated"]
            new = {**incident(INCIDENTS), "title": "Something happened meanwhile"}
            operation = {"op": "create", "type": "Incident", "data": new}
            do(wires, "graph_mutate", {"operations": [operation]})
    assert number > 5
    assert max(Counter(found).values()) == 1
    assert expected <= set(found)
    assert key(INCIDENTS) not in found
    gone = {"op": "delete", "type": "Incident", "id": key(INCIDENTS)}
    do(wires, "graph_mutate", {"operations": [gone]})


def test_changes_of_a_commit_are_given_once_each(wires):
    """With their values; long ones are shortened only where one does not fit at all."""
    loaded = do(wires, "commit_list", {"node": "Incident/" + key(0)})["commits"][-1]["commit"]
    arguments = {"commit": loaded, "limit": 10_000, "max_chars": 1_000_000}
    found = gather(wires, "commit_get", arguments, "changes")
    whole = wires.rest("GET", f"/commits/{loaded}", query=b"limit=10000").message
    assert len(found) == INCIDENTS
    assert found == whole["changes"]


def rest_of(wires, read):
    """The text that a call begins to read, to its end."""
    found = ""
    while read is not None:
        window = call(wires, read["tool"], read["arguments"])
        found += window["text"]
        read = window.get("next")
    return found


def test_a_long_value_is_shown_by_its_beginning(wires):
    """With its size, and the call that reads the rest of the field at that commit."""
    loaded = do(wires, "commit_list", {"node": "Incident/" + key(0)})["commits"][-1]["commit"]
    page = call(wires, "commit_get", {"commit": loaded, "limit": 1, "max_chars": 2000})
    (change,) = page["changes"]
    (cut,) = page["left_out"]["values"]
    shown = next(each for each in change["fields"] if each["field"] == "narrative")["after"]
    assert LONG.startswith(shown)
    assert (cut["shown"], cut["of"], cut["unit"]) == (len(shown), 5900, "characters")
    record = f"trails://at/{loaded}/kg/Incident/{key(0)}"
    arguments = {"record": record, "field": "narrative", "offset": len(shown)}
    assert cut["read"] == {"tool": "read_record_field", "arguments": arguments}
    assert shown + rest_of(wires, cut["read"]) == LONG[:5900]
    query = "SELECT ?x ?t WHERE { ?x :inc_id 'INC-2030-000' ; :narrative ?t }"
    rows = call(wires, "graph_query", {"query": query, "max_chars": 2000})
    (cut,) = rows["left_out"]["values"]
    read = cut["read"]["arguments"]
    assert (read["field"], read["offset"]) == ("narrative", cut["shown"])
    assert read["record"].endswith(f"/kg/Incident/{key(0)}")
    assert rest_of(wires, cut["read"]) == LONG[cut["shown"] : 5900]
    odd = query.replace("?t WHERE", "(UCASE(?t) AS ?u) WHERE")
    rows = call(wires, "graph_query", {"query": odd, "max_chars": 2000})
    again = rows["left_out"]["values"][0]["read"]
    whole = call(wires, again["tool"], again["arguments"])
    assert whole["rows"][0]["u"] == LONG[:5900].upper()


def test_branches_commits_and_conflicts_are_given_once_each(wires):
    """However small the answers are."""
    names = [each["name"] for each in gather(wires, "branch_list", {"limit": 1000}, "branches")]
    assert names == ["main", *(f"work/{n:03}" for n in range(BRANCHES))]
    whole = [each["commit"] for each in do(wires, "commit_list", {"limit": 1000})["commits"]]
    small = {"limit": 1000, "max_chars": 1000}
    assert [each["commit"] for each in gather(wires, "commit_list", small, "commits")] == whole
    merging = {"source": "work/000", "dry_run": True}
    found = list(pages(wires, "branch_merge", merging))
    assert len(found) > 3
    ids = [each["id"] for page in found for each in page["conflicts"]]
    settled = [each["conflict"] for page in found for each in page["suggested"]]
    assert len(ids) == len(set(ids)) == CONFLICTS
    assert sorted(ids) == sorted(settled)


def test_a_refused_merge_is_bounded_too(wires):
    """It has the first conflicts, and the call that lists the others."""
    params = {"name": "branch_merge", "arguments": {"source": "work/000"}}
    fast, slow = wires.by_doors(OLD, "tools/call", params)
    assert fast.body == slow.body
    result = fast.message["result"]
    text = result["content"][0]["text"]
    assert result["isError"]
    assert len(text) <= DEFAULT_CHARS
    message, _, data = text.partition("\n")
    assert f"{CONFLICTS} conflicts" in message
    data = json.loads(data)
    following = data["next"]
    rest = gather(wires, following["tool"], following["arguments"], "conflicts")
    ids = [each["id"] for each in (*data["conflicts"], *rest)]
    assert len(ids) == len(set(ids)) == CONFLICTS == len(data["conflicts"]) + data["more"]


def test_the_schema_is_given_whole_in_parts(wires):
    """The outline names every type; the named types come whole, over as many calls as it takes."""
    whole = do(wires, "schema_get", {})["types"]
    outline = gather(wires, "schema_get", {"max_chars": 1500}, "types")
    assert [each["type"] for each in outline] == [each["type"] for each in whole]
    assert "inc_id String key" in next(e for e in outline if e["type"] == "Incident")["fields"]
    names = [each["type"] for each in whole]
    assert gather(wires, "schema_get", {"types": names, "max_chars": 9000}, "types") == whole


def test_programs_get_everything_unless_they_ask_for_less(wires):
    """REST: whole without max_chars; with it, what the tool answers."""
    loaded = do(wires, "commit_list", {"node": "Incident/" + key(0)})["commits"][-1]["commit"]
    path = f"/commits/{loaded}"
    whole = wires.rest("GET", path, query=b"limit=10000").message
    assert len(whole["changes"]) == INCIDENTS
    reply = wires.rest("GET", path, query=b"limit=10000&max_chars=5000")
    assert len(reply.body.decode()) <= 5000
    arguments = {"commit": loaded, "limit": 10000, "max_chars": 5000}
    assert reply.message == call(wires, "commit_get", arguments)
    refused = wires.rest("GET", path, query=b"max_chars=5")
    assert refused.status == 422
    assert refused.message["fields"][0]["field"] == "max_chars"


# --- resources --------------------------------------------------------------------------------


def read(wires, uri):
    """The contents of a resource, after both doors are found to give the same."""
    fast, slow = wires.by_doors(OLD, "resources/read", {"uri": uri})
    assert fast.body == slow.body or uri in {"trails://prov/latest", "trails://doctor"}
    contents = fast.message["result"]["contents"]
    assert sum(len(each["text"]) for each in contents) <= DEFAULT_CHARS, uri
    return contents


@pytest.mark.req("E4")
def test_no_resource_is_longer_than_an_answer(wires):
    """Neither those that are listed nor the longest that templates name."""
    fast, _ = wires.by_doors(OLD, "resources/list", {})
    uris = [each["uri"] for each in fast.message["result"]["resources"]]
    commit = do(wires, "commit_list", {})["commits"][0]["commit"]
    uris += [
        "trails://kg/Incident?limit=1000",
        "trails://kg/Incident?where=outcome=near_miss&limit=1000",
        "trails://branch/work%2F000/kg/Incident?limit=1000",
        f"trails://at/{commit}/kg/Incident?limit=1000",
        f"trails://at/{commit}/schema",
        "trails://kg/Incident/" + key(0),
        "trails://queries/supplier_exposure",
    ]
    for uri in uris:
        assert read(wires, uri)


@pytest.mark.req("E4")
def test_pages_of_a_list_are_of_one_commit(wires):
    """Every instance once, however many fit on a page, while others write."""
    uri, seen = "trails://kg/Incident?limit=1000", []
    while uri is not None:
        page, *note = read(wires, uri)
        seen += [each["iri"].rpartition("/")[2] for each in json.loads(page["text"])]
        if len(seen) < 1000:
            new = {**incident(INCIDENTS + 1), "title": "Something happened meanwhile"}
            made = {"op": "create", "type": "Incident", "data": new}
            do(wires, "graph_mutate", {"operations": [made]})
            gone = {"op": "delete", "type": "Incident", "id": key(INCIDENTS + 1)}
            do(wires, "graph_mutate", {"operations": [gone]})
        uri = note[0]["uri"] if note else None
    assert max(Counter(seen).values()) == 1
    assert {key(n) for n in range(INCIDENTS)} <= set(seen)
    assert key(INCIDENTS + 1) not in seen


def test_branches_of_the_resource_go_on_with_the_tool(wires):
    """The first ones, and the call for the others."""
    contents = read(wires, "trails://branches")
    names = [each["name"] for each in json.loads(contents[0]["text"])]
    following = json.loads(contents[1]["text"])["left_out"]["next"]
    rest = gather(wires, following["tool"], following["arguments"], "branches")
    names += [each["name"] for each in rest]
    assert names == ["main", *(f"work/{n:03}" for n in range(BRANCHES))]


def test_programs_read_all_of_a_resource(wires):
    """REST has no budget unless one is given."""
    page = wires.rest("GET", "/kg/Incident", query=b"limit=1000").message
    assert len(page["instances"]) == 1000
