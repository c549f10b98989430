"""Every route, on a real server."""

import gzip
import http.client
import json
import re
import threading

import pytest
from tests.docs.reference_tables import ERRORS

from trails.errors import ValidationError
from trails.model.results import Failure
from trails.projections.problems import PROBLEMS, parse_problem, project_problem
from trails.surfaces.rest.replies import BY_CODE, BY_KIND, status_of


def note(key, **more):
    """An operation that creates a note."""
    data = {"key": key, "title": f"Note {key}", **more}
    return {"op": "upsert", "type": "Note", "data": data}


@pytest.fixture(scope="module", autouse=True)
def notes(client):
    """Three notes, one of them with an awkward id."""
    client.post("mutate", {"operations": [note("a"), note("b", stars=2), note("c/ü %41")]})


def test_health_and_graphs(client):
    """Who is there; a graph in quarantine is not listed, and says why when it is asked."""
    assert json.loads(client.send("GET", "/healthz").body) == {"status": "ok"}
    listed = json.loads(client.send("GET", "/graphs").body)
    assert listed == {"graphs": [{"graph_id": "main", "uri": "trails://acme/main"}]}
    got = client.send("GET", "/graphs/broken/branches")
    assert (got.status, json.loads(got.body)["code"]) == (503, "quarantined")
    assert client.send("GET", "/graphs/nowhere/branches").status == 404


def test_a_snapshot_tells_types_and_counts(client):
    """Of a branch, and of the past."""
    found = client.get("snapshot")
    assert {"type": "Note", "count": 3}.items() <= found["types"][0].items()
    first = client.get("commits", limit=100)["commits"][-1]["commit"]
    assert client.get("snapshot", snapshot=first)["nodes"] == 0


def test_instances_are_listed_in_pages(client):
    """By cursor and offset, filtered by one field, and never more than asked for."""
    page = client.get("kg/Note", limit=2)
    rest = client.get("kg/Note", limit=2, cursor=page["next"])
    labels = [each["label"] for each in page["instances"] + rest["instances"]]
    assert labels == ["Note a", "Note b", "Note c/ü %41"]
    assert rest["next"] is None
    assert client.get("kg/Note", offset=2)["instances"] == rest["instances"]
    assert [each["label"] for each in client.get("kg/Note", where="stars=2")["instances"]] == [
        "Note b"
    ]
    for wrong in ({"limit": 1001}, {"limit": "x"}, {"where": "stars=many"}, {"nonsense": 1}):
        error = client.get("kg/Note", status=422, **wrong)
        assert error["fields"]
    assert client.get("kg/Nope", status=404)["code"] == "not_found"


def test_instances_are_read_on_branches_and_in_the_past(client):
    """Where the query string says."""
    client.post("branches", {"name": "more/notes"})
    client.post("mutate", {"operations": [note("x")], "branch": "more/notes"})
    assert len(client.get("kg/Note", branch="more/notes")["instances"]) == 4
    assert client.get("kg/Note/x", branch="more/notes")["@id"].endswith("/Note/x")
    assert client.get("kg/Note/x", status=404)
    first = client.get("commits", limit=100)["commits"][-1]["commit"]
    assert client.get("kg/Note", snapshot=first)["instances"] == []
    assert client.get("kg/Note", status=404, branch="nowhere")


def test_one_instance_is_json_ld(client):
    """An id is one segment, whatever it holds."""
    got = client.send("GET", "/graphs/main/kg/Note/c%2F%C3%BC%20%2541")
    assert got.headers["content-type"] == "application/ld+json"
    document = json.loads(got.body)
    assert document["@id"] == "trails://acme/main/Note/c%2F%C3%BC%20%2541"
    assert client.send("GET", "/graphs/main/kg/Note/c/%C3%BC").status == 404
    assert b"Nothing found at" in client.send("GET", "/graphs/main/kg/Note/%FF").body
    assert client.get("kg/Note/zzz", status=404)["code"] == "not_found"
    assert client.get("kg/Note/a", status=400, branch="x", snapshot="y")


def test_tools_are_listed_and_invoked(client):
    """A capability, a stored query and a built-in alike, as agents do."""
    names = [each["name"] for each in client.get("capabilities")["capabilities"]]
    assert names == sorted(names)
    assert {"notes.finish", "by_status", "graph_query"} <= set(names)
    client.post("branches", {"name": "calls"})
    done = client.post("invoke/notes.finish", {"note": "Note/a", "stars": 3, "branch": "calls"})
    assert (done["status"], done["stars"]) == ("done", 3)
    assert client.post("invoke/graph_health", {})["status"] == "ok"
    assert client.send("POST", "/graphs/main/invoke/graph_health").status == 200
    found = client.post("invoke/by_status", {"params": {"status": "done"}, "branch": "calls"})
    assert found["rows"] == [{"title": "Note a"}]
    error = client.post("invoke/notes.refuse", {}, status=422)
    assert (error["code"], error["detail"]) == ("capability", "not today")
    assert error["data"] == {"until": "tomorrow"}
    assert client.post("invoke/nonsense", {}, status=404)["code"] == "unknown"


def test_a_reference_is_sent_in_any_form(client):
    """An IRI, a handle, Type/id or the key mean the same; one that is missing is an error."""
    client.post("branches", {"name": "forms"})
    for form in ("a", "Note/a", "trails://kg/Note/a", "trails://acme/main/Note/a"):
        got = client.post("invoke/notes.finish", {"note": form, "branch": "forms"})
        assert got["iri"] == "trails://acme/main/Note/a"
    error = client.post("invoke/notes.finish", {"note": "Note/zz"}, status=422)
    assert error["fields"][0]["code"] == "reference"
    assert "note: there is no Note 'Note/zz'; there are Note/a, Note/b" in error["detail"]


@pytest.mark.parametrize("through", ["mutate", "load", "invoke"])
def test_a_write_that_breaks_rules_fails_as_the_orm_does(client, project, through):
    """The same fields with the same codes, and nothing is written."""
    module = project.registry().classes["Note"]
    with pytest.raises(ValidationError) as caught:
        module(key="bad", title="x", status="lost", stars=9).save(project.context())
    expected = {(each.field, each.code) for each in caught.value.fields}
    assert len(expected) == 3
    before = client.get("branches")["branches"][0]["head"]
    data = {"key": "bad", "title": "x", "status": "lost", "stars": 9}
    operations = {"operations": [{"op": "create", "type": "Note", "data": data}]}
    if through == "mutate":
        error = client.post("mutate", operations, status=422)
    elif through == "invoke":
        error = client.post("invoke/graph_mutate", operations, status=422)
    else:
        line = json.dumps({"type": "Note", "data": data})
        got = client.send("POST", "/graphs/main/load", line, content_type="application/x-ndjson")
        assert got.status == 422
        error = json.loads(got.body)
    told = error["fields"]
    fields = {(re.split("[. ]", each["field"])[-1], each["code"]) for each in told}
    assert fields == expected
    assert all(each["message"] in error["detail"] for each in error["fields"])
    assert client.get("branches")["branches"][0]["head"] == before


def test_stored_queries_run_by_name(client):
    """By link or by body; one that agents are not offered is there as well."""
    listed = {each["name"]: each for each in client.get("queries")["queries"]}
    assert set(listed) == {"by_status", "finish_all"}
    found = client.send("GET", "/graphs/main/queries/by_status?status=open")
    assert len(json.loads(found.body)["rows"]) == 3
    found = client.send("GET", "/graphs/main/queries/by_status?status=open&stars=2")
    assert json.loads(found.body)["rows"] == [{"title": "Note b"}]
    wrong = json.loads(client.send("GET", "/graphs/main/queries/by_status?status=opn").body)
    assert wrong["fields"][0]["field"] == "params.status"
    client.post("branches", {"name": "stored"})
    asked = {"params": {"start": "Note a"}, "branch": "stored"}
    followed = client.send("GET", "/graphs/main/queries/finish_all?start=Note&branch=stored")
    assert followed.status == 400
    assert b"POST" in followed.body
    assert re.fullmatch("[0-9a-f]{32}", client.post("queries/finish_all", asked)["commit"])
    assert client.post("queries/finish_all", asked)["commit"] is None
    found = client.post("queries/by_status", {"params": {"status": "done"}, "branch": "stored"})
    assert found["rows"] == [{"title": "Note a"}]
    assert client.post("queries/nonsense", {}, status=404)["code"] == "not_found"


def test_texts_are_asked_as_json_or_as_themselves(client):
    """SPARQL with its own media type; parameters are bound, never glued."""
    text = "SELECT ?t WHERE { ?n a :Note ; :title ?t ; :stars $s }"
    assert client.post("query", {"query": text, "params": {"s": 2}})["rows"] == [{"t": "Note b"}]
    sparql = {"content_type": "application/sparql-query; charset=utf-8"}
    got = client.send("POST", "/graphs/main/query", "ASK { ?n a :Note }", **sparql)
    assert json.loads(got.body)["truth"] is True
    update = "INSERT DATA { <trails://acme/main/Note/a> :stars 4 }"
    client.post("branches", {"name": "texts"})
    got = client.send(
        "POST",
        "/graphs/main/mutate?branch=texts&message=Four",
        update,
        content_type="application/sparql-update",
    )
    assert got.status == 200, got.body
    newest = client.get("commits", branch="texts", limit=1)["commits"][0]
    assert (newest["commit"], newest["message"]) == (json.loads(got.body)["commit"], "Four")
    assert client.post("query", {"query": "SELECT nonsense"}, status=400)["code"] == "query"
    assert client.post("query", {"query": text, "params": {"s": [1]}}, status=400)
    assert client.post("mutate", {}, status=422)["fields"]


def test_versions(client):
    """Branches whose names have slashes, their differences, merges, conflicts, commits."""
    made = client.post("branches", {"name": "a/b", "from": "main"})["branch"]
    assert made["name"] == "a/b"
    assert client.post("branches", {"name": "a/b"}, status=409)["code"] == "conflict"
    client.post("mutate", {"operations": [note("b", stars=4)], "branch": "a/b"})
    changed = client.get("branches/a%2Fb/diff")
    assert changed["changes"][0]["fields"] == [{"field": "stars", "before": 2, "after": 4}]
    assert client.get("diff", **{"from": "a/b", "to": "main"})["updated"] == 1
    client.post("branches", {"name": "rival"})
    client.post("mutate", {"operations": [note("b", stars=5)], "branch": "rival"})
    merge = {"source": "a/b", "target": "rival"}
    error = client.post("branches/merge", merge, status=409)
    conflict = error["data"]["conflicts"][0]
    assert (conflict["handle"], conflict["field"]) == ("Note/b", "stars")
    merge["resolutions"] = [{"conflict": conflict["id"], "take": "theirs"}]
    done = client.post("branches/merge", merge)
    assert done["outcome"] == "merged"
    shown = client.get(f"commits/{done['commit'][:12]}")
    assert shown["commit"] == done["commit"]
    assert client.get("commits/a%2Fb")["branch"] == "a/b"
    gone = client.send("DELETE", "/graphs/main/branches/a%2Fb")
    assert json.loads(gone.body)["deleted"]["name"] == "a/b"
    refused = client.send("DELETE", "/graphs/main/branches/rival")
    assert refused.status == 409
    assert client.send("DELETE", "/graphs/main/branches/rival?force=true").status == 200
    assert client.send("DELETE", "/graphs/main/branches/rival").status == 404
    client.post("branches", {"name": "merge"})
    assert client.send("DELETE", "/graphs/main/branches/merge").status == 200
    head = {"operations": [note("z")], "expected_head": "0" * 32}
    assert client.post("mutate", head, status=409)["code"] == "conflict"


def test_files_go_in_and_come_out(client):
    """In every form, compressed or not; what is exported can be loaded again."""
    got = client.send("GET", "/graphs/main/export?format=turtle&type=Note")
    assert got.headers["content-type"].startswith("text/turtle")
    for body, headers in (
        (got.body, {"content_type": "text/turtle"}),
        (gzip.compress(got.body), {"content_type": "text/turtle", "content_encoding": "gzip"}),
    ):
        done = client.send("POST", "/graphs/main/load?branch=copy&from=main", body, **headers)
        assert done.status == 200, done.body
        assert json.loads(done.body)["nodes"] == 3
    table = "key,title\nn1,From a table\n"
    path = "/graphs/main/load?branch=copy&type=Note&message=Table"
    done = client.send("POST", path, table, content_type="text/csv")
    assert json.loads(done.body)["nodes"] == 1
    lines = client.send("GET", "/graphs/main/export?branch=copy").body.splitlines()
    assert len(lines) == 4
    for path, headers, status in (
        ("load", {"content_type": "text/plain"}, 415),
        ("load", {"content_type": "text/csv", "content_encoding": "br"}, 415),
        ("load?mode=sideways", {"content_type": "text/csv"}, 422),
        ("load?branch=nowhere", {"content_type": "application/x-ndjson"}, 404),
        ("load?path=/etc/passwd", {"content_type": "application/x-ndjson"}, 422),
        ("load", {"content_type": "application/x-ndjson", "content_encoding": "gzip"}, 422),
    ):
        got = client.send("POST", f"/graphs/main/{path}", b"[", **headers)
        assert got.status == status, (path, got.body)
    assert client.get("export", status=400, format="xml")["code"] == "query"
    assert client.get("export", status=404, type="Nope")["code"] == "not_found"


def test_what_was_loaded_is_not_kept(client, project, monkeypatch, tmp_path):
    """The file that a body was taken to is gone, whether it was loaded or refused."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for body, status in ((b"", 200), (b"nonsense", 422)):
        sent = client.send("POST", "/graphs/main/load", body, content_type="application/x-ndjson")
        assert sent.status == status
    assert not list(tmp_path.iterdir())
    assert not list((project.folder / ".trails/graphs/main/tmp").iterdir())


def test_a_sender_that_goes_away_writes_nothing(client, project):
    """Half a body is no load, and the next writer does not wait for the rest of it."""
    before = client.get("branches")["branches"][0]["head"]
    sender = http.client.HTTPConnection("127.0.0.1", client.port)
    sender.putrequest("POST", "/graphs/main/load")
    sender.putheader("Content-Type", "application/x-ndjson")
    sender.putheader("Content-Length", "1000000")
    sender.endheaders()
    sender.send(b'{"type": "Note", "data": {"key": "half", "title": "Half"}}\n')
    client.post("branches", {"name": "meanwhile"})
    client.post("mutate", {"operations": [note("m")], "branch": "meanwhile"})
    sender.close()
    ended = threading.Event()
    while not ended.wait(0.05):
        project.graph().activities.flush()
        found = [each for _, each in project.graph().activities.read() if each.name == "graph_load"]
        if found and found[-1].outcome == "disconnected":  # others may be written after it
            break
    assert client.get("branches")["branches"][0]["head"] == before


def test_every_error_has_one_form(client):
    """Whatever is wrong with a request: a status that says so, and code and message in JSON."""
    large = b'{"x": "' + b"a" * (33 << 20) + b'"}'
    sent = {"content_type": "application/json"}
    for method, path, body, headers, status in (
        ("GET", "/nothing", None, {}, 404),
        ("GET", "/graphs/", None, {}, 404),
        ("GET", "/graphs/main", None, {}, 404),
        ("GET", "/graphs/main/nothing", None, {}, 404),
        ("POST", "/healthz", b"", {}, 405),
        ("PUT", "/graphs/main/branches", b"", {}, 405),
        ("PATCH", "/graphs/main/query", b"", {}, 405),
        ("POST", "/graphs/main/query", b"{", sent, 400),
        ("POST", "/graphs/main/query", b"[1]", sent, 400),
        ("POST", "/graphs/main/query", b"[" * 100_000, sent, 400),
        ("POST", "/graphs/main/query", b'{"query": "\xff"}', sent, 400),
        ("POST", "/graphs/main/query", b"query=1", {"content_type": "text/html"}, 415),
        ("POST", "/graphs/main/query", b"{}", {}, 415),
        ("POST", "/graphs/main/query", large, sent, 413),
        ("GET", "/graphs/main/commits?limit=1&limit=2", None, {}, 400),
        ("GET", "/graphs/main/commits?limit=0", None, {}, 422),
        ("GET", "/graphs/main/commits?nonsense=1", None, {}, 422),
        ("GET", "/graphs/main/commits/zzzz", None, {}, 404),
        ("GET", "/graphs/main/diff?from=main", None, {}, 422),
        ("GET", "/graphs/main/snapshot?branch=nope", None, {}, 404),
    ):
        got = client.send(method, path, body, **headers)
        assert got.status == status, (method, path, got.status, got.body)
        error = json.loads(got.body)
        assert set(error) - {"fields", "data"} == {"type", "title", "status", "detail", "code"}
        assert (error["status"], error["type"]) == (status, f"/errors/{error['code']}")
        assert error["title"]
        assert error["detail"]
        assert got.headers["content-type"] == "application/problem+json"
        page = client.send("GET", error["type"])
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert f"<h1>{error['title']}</h1>" in page.body.decode()
        assert ("allow" in got.headers) == (status == 405)


@pytest.mark.parametrize("path", ["kg/Note", "kg/Note/a"])
@pytest.mark.parametrize("name", ["branch", "snapshot"])
def test_an_empty_place_is_told_by_its_name(client, path, name):
    """In words of the query string and not of the URI that it stands for."""
    error = client.get(f"{path}?{name}=", status=400)
    assert error["code"] == "query_string"
    assert error["detail"] == f"{name} is empty; give it a value or leave it out"


def test_half_a_character_is_told_as_such(client):
    """A lone surrogate is no cut body; one that was cut is."""
    for text, told in (
        (rb'{"query": "\ud800"}', "half of a surrogate pair"),
        (rb'{"query": "\udc00 and more"}', "half of a surrogate pair"),
        (rb'{"query": "\ud800', "truncated"),
        (b'{"query": "a', "truncated"),
    ):
        got = client.send("POST", "/graphs/main/query", text, content_type="application/json")
        assert (got.status, told in json.loads(got.body)["detail"]) == (400, True), text


def test_the_last_of_two_equal_keys_counts(client):
    """As over MCP."""
    body = b'{"query": "ASK {}", "params": {"a": {}}, "params": {}}'
    got = client.send("POST", "/graphs/main/query", body, content_type="application/json")
    assert (got.status, json.loads(got.body)["truth"]) == (200, True)


def test_a_body_that_does_not_tell_its_size_is_bounded_too(client):
    """Chunks are counted as they come."""
    chunks = (b" " * (1 << 20) for _ in range(33))
    got = client.send("POST", "/graphs/main/query", chunks, content_type="application/json")
    assert (got.status, json.loads(got.body)["code"]) == (413, "too_large")


def test_a_number_below_zero_is_a_number(client):
    """It breaks the rule about the least, not that about the kind."""
    error = client.get("commits", status=422, limit="-1")
    assert error["fields"][0]["code"] == "min_value"
    assert "limit must be at least 1, not -1" in error["detail"]


def test_a_path_that_there_is_not_names_no_other_that_may_not_be_there(client):
    """Who may not list graphs is not sent there."""
    error = client.get("nothing", status=404)
    assert error["detail"].endswith("Paths of a graph look like /graphs/main/snapshot.")


def test_methods_that_are_not_work_tell_what_is(client):
    """HEAD is GET without its body, OPTIONS names the methods."""
    got = client.send("OPTIONS", "/graphs/main/branches")
    assert (got.status, got.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    head = client.send("HEAD", "/graphs/main/branches")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 10


def test_every_code_is_explained(client):
    """Those of the error tree and of both tables; one of an application is not."""
    raised = {each.code for each in ERRORS}
    here = {"settings", "install", "unreachable"}  # never sent by a server
    sent = raised - here | set(BY_CODE) | (set(BY_KIND) - {"semantic"})
    assert sent - PROBLEMS.keys() == set()
    index = client.send("GET", "/errors").body.decode()
    for code in PROBLEMS:
        assert f"'/errors/{code}'" in index
    assert client.send("GET", "/errors/nonsense").status == 404
    assert json.loads(project_problem(422, "of_an_app", "no", {"fields": [], "x": 1})) == {
        "type": "about:blank",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": "no",
        "code": "of_an_app",
        "fields": [],
        "data": {"x": 1},
    }


def test_a_problem_is_read_back_as_the_failure_that_it_was():
    """By a client; anything else is not taken for one."""
    fields = [{"field": "a", "code": "b"}]
    for data in ({}, {"x": 1}, {"fields": fields}, {"fields": fields, "x": [None]}):
        body = project_problem(400, "query", "no", data)
        assert parse_problem(body) == Failure("semantic", "query", "no", data)
    for body in (b"", b"[]", b"{}", b"\xff", b'{"code": 1, "detail": ""}', b"<html>"):
        with pytest.raises(ValueError, match=r"."):
            parse_problem(body)


def test_failures_have_the_statuses_of_the_table():
    """By kind, else by code; a bug is 500 and a request that can't be read 400."""
    for kind, status in BY_KIND.items():
        assert status_of(Failure(kind, "x", "")) == status
    for code, status in BY_CODE.items():
        assert status_of(Failure("semantic", code, "")) == status
    assert status_of(Failure("semantic", "unheard_of", "")) == 400
    assert status_of(Failure("internal", "internal", "")) == 500
    assert status_of(Failure("internal", "storage_full", "")) == 503
