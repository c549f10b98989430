"""Batches: calls in order, each authorized and answered on its own."""

import json

import pytest
from tests.worlds.clients import Desk
from tests.worlds.processes import Web
from tests.worlds.projects import NOTES, give_token, make_project

from trails.surfaces.rest import batches

POLICIES = """\
permit(principal in Group::"staff", action, resource);
permit(principal in Group::"guests", action == Action::"Read", resource);
"""


def note(key, **more):
    """A call that creates a note."""
    data = {"key": key, "title": f"Note {key}", **more}
    operations = [{"op": "create", "type": "Note", "data": data}]
    return {"name": "graph_mutate", "arguments": {"operations": operations}}


def send(client, *calls, status=200, **more):
    """The results of a batch."""
    found = client.post("batch", {"calls": list(calls), **more}, status)
    return found["results"] if status == 200 else found


def test_calls_are_made_in_order_and_answered_on_their_own(client):
    """Built-ins, capabilities and stored queries; a later call sees what an earlier one wrote."""
    results = send(
        client,
        note("b1"),
        {"name": "notes.finish", "arguments": {"note": "Note/b1", "stars": 9}},
        {"name": "notes.finish", "arguments": {"note": "Note/b1", "stars": 5}},
        {"name": "notes.refuse"},
        {"name": "nothing.like.this", "arguments": {}},
        {"name": "by_status", "arguments": {"params": {"status": "done", "stars": 5}}},
        {"name": "commit_list", "arguments": {"limit": 2}},
    )
    assert [each["status"] for each in results] == [200, 422, 200, 422, 404, 200, 200]
    made, wrong, finished, refused, unknown, query, commits = results
    assert made["result"]["commit"]
    assert wrong["problem"]["fields"][0]["field"] == "stars"
    assert finished["result"]["status"] == "done"
    assert (refused["problem"]["code"], refused["problem"]["status"]) == ("capability", 422)
    assert unknown["problem"]["type"] == "/errors/unknown"
    assert query["result"]["rows"] == [{"title": "Note b1"}]
    assert commits["result"] == client.get("commits", limit=2)


def test_a_batch_can_end_with_the_first_failure(client):
    """What was not made is said, and was not made."""
    before = client.get("commits", limit=1)["commits"][0]
    results = send(client, {"name": "notes.refuse"}, note("b2"), stop_on_error=True)
    assert [each["status"] for each in results] == [422, 424]
    assert results[1]["problem"]["code"] == "not_executed"
    assert client.get("commits", limit=1)["commits"][0] == before


def test_results_are_bounded(client, monkeypatch):
    """No further call is made when there are too many bytes."""
    monkeypatch.setattr(batches, "_LARGEST", 10)
    results = send(client, {"name": "graph_health"}, {"name": "graph_health"})
    assert [each["status"] for each in results] == [200, 424]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["calls"]),
        ({"calls": []}, ["calls"]),
        ({"calls": [{"name": "graph_health"}] * 101}, ["calls"]),
        ({"calls": "graph_health"}, ["calls"]),
        ({"calls": [7, {"arguments": 3}, {"name": "a", "x": 1}]}, 4),
        ({"calls": [{"name": "graph_health"}], "atomic": True}, ["atomic"]),
        ({"calls": [{"name": "graph_health"}], "stop_on_error": "yes", "z": 1}, 2),
    ],
)
def test_a_batch_that_is_wrong_is_not_begun(client, body, fields):
    """All that is wrong is said at once."""
    found = client.post("batch", body, 422)
    named = [each["field"] for each in found["fields"]]
    assert named == fields if isinstance(fields, list) else len(named) == fields


def test_odd_texts_are_answered(client):
    """Whatever a name or an argument is."""
    odd = ["\x00", "\ud800", "a" * 10_000, "../..", "💥", ""]
    calls = [{"name": each, "arguments": {each: each}} for each in odd]
    body = json.dumps({"calls": calls}).encode()
    got = client.send("POST", "/graphs/main/batch", body, content_type="application/json")
    assert got.status in {200, 400}
    if got.status == 200:
        assert {each["status"] for each in json.loads(got.body)["results"]} <= {404, 422, 400}
    header = client.send(
        "POST", "/graphs/main/batch", b"{}", content_type="application/json", idempotency_key="k"
    )
    assert (header.status, json.loads(header.body)["code"]) == (400, "header")


def test_each_call_is_authorized_and_counted(tmp_path):
    """A guest may read and not write, in one batch; the budget counts each call."""
    settings = '[project]\nname = "acme"\n[graphs.main.budgets]\ncalls_per_minute = 4\n'
    folder = make_project(tmp_path, NOTES, settings=settings, policies={"all.cedar": POLICIES})
    guest = give_token(folder, "guest", groups=("guests",))
    with Web(folder) as web:
        health = {"name": "commit_list", "arguments": {"limit": 1}}
        calls = [health, note("x"), {"name": "notes.refuse"}, health, health, health, health]
        got = Desk(web).ask("POST", "/graphs/main/batch", guest, {"calls": calls})
        assert got.status == 200, got.body
        statuses = [each["status"] for each in got.json["results"]]
        assert statuses == [200, 404, 404, 200, 200, 200, 429]
