"""Answers that are not older than a commit, at whatever server they are asked for."""

import json
from itertools import cycle

import httpx2
import msgspec
import pytest
from tests.journeys.cluster.conftest import make_server, put
from tests.worlds.graphs import Calls
from tests.worlds.processes import Stdio, Web, run_command

import trails
from trails.app.remote.pool import MadeCommits
from trails.engine.graph.graph import Graph
from trails.log.postgres import connections as connections_module
from trails.model.origins import ORIGIN, Origin, split_commits


@pytest.fixture
def deaf(two, monkeypatch):
    """Two servers, of which the second hears of nothing by itself."""
    monkeypatch.setattr(two[1].graph().follower, "_wake", lambda: None)
    two[1].graph().log._wake = lambda: None
    return two


def ask(calls, tool, commits, **arguments):
    """The outcome of a call that must not be older than some commits."""
    token = ORIGIN.set(Origin("rest", at_least=commits))
    try:
        return calls.outcome(tool, arguments)
    finally:
        ORIGIN.reset(token)


def test_a_read_waits_for_a_commit(deaf):
    """Without it, what the server has is shown."""
    a, b = deaf
    first = put(a, "ann", score=1)
    calls = Calls(b)
    assert ask(calls, "branch_list", (first,)).commit is None
    found = ask(calls, "graph_snapshot", (first,))
    assert found.commit == first
    second = put(a, "ann", score=2)
    assert calls.outcome("graph_snapshot").commit == first
    assert ask(calls, "graph_snapshot", (first,)).commit == first
    assert ask(calls, "graph_snapshot", (first, second)).commit == second


def test_a_branch_of_another_server_is_found(deaf):
    """Created, written, and merged by moving main: the answer is as new as the log."""
    a, b = deaf
    first = put(a, "ann", score=1)
    calls = Calls(b)
    ask(calls, "graph_snapshot", (first,))
    a.versions().create_branch("side")
    found = ask(calls, "branch_list", (first,))
    assert [each["name"] for each in json.loads(found.body)["branches"]] == ["main", "side"]
    side = put(a, "ann", branch="side", score=2)
    assert ask(calls, "graph_snapshot", (side,), branch="side").commit == side
    assert ask(calls, "graph_snapshot", (side,)).commit == first
    moved = Calls(a).outcome("branch_merge", {"source": "side"})
    assert (moved.commit, moved.made) == (side, True)
    assert ask(calls, "graph_snapshot", (side,)).commit == side


def test_a_commit_that_is_not_there_is_refused(deaf, monkeypatch, postgres):
    """In the same words, whether it is unknown or the log does not answer in time."""
    monkeypatch.setattr(connections_module, "RETRY_SECONDS", 0.1)
    a, b = deaf
    known = put(a, "ann", score=1)
    calls = Calls(b)
    calls.kernel._options = msgspec.structs.replace(calls.kernel._options, wait_seconds=0.2)
    missing = ask(calls, "graph_snapshot", ("0" * 32,))
    assert missing.code == "lagging"
    assert ask(calls, "graph_snapshot", ("nonsense",)).code == "lagging"
    assert ask(calls, "graph_snapshot", (known,)).commit == known
    newer = put(a, "ann", score=2)
    postgres.stop()
    try:
        late = ask(calls, "graph_snapshot", (newer,))
        assert late.code == "lagging"
        assert late.message.replace(newer, "0" * 32) == missing.message
        assert ask(calls, "graph_snapshot", (known,)).commit == known
    finally:
        postgres.start()


def test_a_server_that_is_up_to_date_asks_nothing(two, monkeypatch):
    """An answer that includes the commit anyway costs no look at the log."""
    a, _ = two
    commits = [put(a, "ann", score=number) for number in range(3)]
    calls = Calls(a)
    ask(calls, "graph_snapshot", (commits[0],))
    monkeypatch.setattr(Graph, "reach", None)
    for each in commits:
        assert ask(calls, "graph_snapshot", (each,)).commit == commits[-1]


def test_headers_name_few_commits():
    """What is too much is left out."""
    assert split_commits("a, b; made ,, c") == ("a", "b", "c")
    assert len(split_commits(",".join("x" * 20))) == 8
    assert split_commits("") == split_commits(" , ;") == ()


def test_a_session_remembers_what_it_made():
    """The last commit; all of those that were made at the same time."""
    made = MadeCommits()
    begun, headers = made.begin()
    assert headers == {}
    made.learn(begun, "a; made")
    early, headers = made.begin()
    assert headers == {"trails-at-least": "a"}
    made.learn(early, "read")
    late, headers = made.begin()
    assert headers == {"trails-at-least": "a"}
    made.learn(late, "b; made")
    made.learn(early, "c; made")
    begun, headers = made.begin()
    assert headers == {"trails-at-least": "b, c"}
    made.learn(begun, "d; made")
    assert made.begin()[1] == {"trails-at-least": "d"}


def test_models_name_a_commit_too(cluster):
    """In ``_meta``, whose key also asks for the commit of the answer."""
    folder = make_server(cluster.folder / "b", cluster.url)
    with Stdio(folder) as b:
        b.initialize()
        a = cluster.start("a")
        made = put(a, "ann", score=1)

        def call(commit):
            meta = {"dev.trails/at_least": commit}
            given = {"name": "graph_snapshot", "arguments": {}, "_meta": meta}
            return b.request("tools/call", given)

        found = call(made)
        assert not found.get("isError"), found
        assert found["_meta"]["dev.trails/commit"] == made
        stale = call("0" * 32)
        assert stale["isError"]
        assert stale["_meta"]["dev.trails/error"]["code"] == "lagging"


def test_commands_name_a_commit_too(cluster):
    """In the environment."""
    with Web(make_server(cluster.folder / "a", cluster.url)) as a:
        command = ["branch", "list", "--server", a.url]
        assert run_command(command, cluster.folder).returncode == 0
        done = run_command(command, cluster.folder, environment={"TRAILS_AT_LEAST": "0" * 32})
        assert done.returncode != 0
        assert "does not have commit 0000" in done.stderr


def test_clients_read_what_they_wrote_at_any_server(cluster, monkeypatch):
    """Two processes behind one address, as a load balancer has them."""
    folders = [make_server(cluster.folder / name, cluster.url) for name in ("a", "b")]
    with (
        Web(folders[0]) as a,
        Web(folders[1]) as b,
        httpx2.Client(base_url=a.url) as one,
        httpx2.Client(base_url=b.url) as two,
    ):
        made = ""
        for number in range(20):
            change = {"op": "upsert", "type": "Person", "id": "ann", "data": {"name": "ann"}}
            change["data"]["score"] = number
            writer, reader = (one, two) if number % 2 else (two, one)
            answer = writer.post("/graphs/main/mutate", json={"operations": [change]})
            assert answer.status_code == 200, answer.text
            made = answer.headers["trails-commit"]
            assert made.endswith("; made")
            found = reader.get(
                "/graphs/main/kg/Person/ann",
                headers={"Trails-At-Least": made, "Accept": "application/json"},
            )
            assert found.json()["score"] == number, found.text
            assert found.headers["trails-commit"] == made.partition(";")[0]
        stale = one.get("/graphs/main/kg/Person/ann", headers={"Trails-At-Least": "0" * 32})
        assert (stale.status_code, stale.json()["code"]) == (503, "lagging")
        send, ports = httpx2.HTTPTransport.handle_request, cycle([one, two])

        def balance(transport, request):
            request.url = request.url.copy_with(port=next(ports).base_url.port)
            return send(transport, request)

        monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", balance)
        with trails.connect(a.url) as client:
            for number in range(20):
                change = {"op": "update", "type": "Person", "id": "ann", "data": {"score": -number}}
                done = client.mutate([change])
                for _ in range(1 + number % 2):
                    found = client.operation("fetch", id="Person/ann")
                    assert found.metadata.commit == done.commit
