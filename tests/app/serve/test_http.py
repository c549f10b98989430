"""``trails serve``: a port that stays open whoever owns the folder."""

import http.client
import json
import signal
import socket
import threading
from urllib.parse import urlsplit

import pytest
from tests.worlds.processes import PATIENCE, Process, Stdio, Web, wait_until
from tests.worlds.projects import make_notebook
from tests.worlds.surfaces import MODERN, message_of

from trails.app.serve.relay.owners import find_owner


@pytest.fixture
def folder(tmp_path):
    """A project."""
    return make_notebook(tmp_path / "notebook")


def ask(url, method="POST", path="/graphs/main/mcp", body=None, **headers):
    """Make a request on a connection of its own; status and JSON."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, json.dumps(body) if body else None, given)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def call(url, name, **arguments):
    """Call a tool with the newest revision."""
    body = message_of(MODERN, "tools/call", {"name": name, "arguments": arguments})
    headers = {"Mcp_Method": "tools/call", "Mcp_Name": name, "MCP_Protocol_Version": MODERN}
    return ask(url, body=body, **headers)


def test_a_person_is_told_where_it_is_served(folder):
    """In words, with the address."""
    with Process("serve", "-p", folder, "--port", 0) as web:
        assert b"notebook is served at http://127.0.0.1:" in web.line()


def test_the_owner_serves_its_port_itself(folder):
    """All graphs, REST beside MCP, with the lines that a client needs; nothing else gets in."""
    with Web(folder) as web:
        served = web.served
        url = served["url"]
        assert served["owner"] is True
        assert served["pid"] == web.pid
        (graph,) = served["graphs"]
        assert graph["url"] == f"{url}/graphs/main/mcp"
        assert graph["add"] == f"claude mcp add --transport http notebook {graph['url']}"
        status, answer = call(url, "notes.add", text="one")
        assert (status, answer["result"]["structuredContent"]) == (200, {"result": "one"})
        assert ask(url, "GET", "/healthz")[0] == 200
        assert ask(url, "GET", "/graphs/nope/mcp")[0] == 404
        assert ask(url, "GET", "/healthz", Host="evil.example")[0] == 403
        assert ask(url, "GET", "/healthz", Origin="http://evil.example")[0] == 403
        assert ask(url, "GET", "/healthz", Origin="http://localhost:3000")[0] == 200
        port = urlsplit(url).port
        with Process("serve", "-p", folder, "--port", port) as second:
            assert second.close() == 2
            assert "--port" in second.errors
        assert web.close(signal.SIGINT) == 130
        assert "Traceback" not in web.errors
    assert find_owner(folder) is None


def test_a_port_is_passed_on_and_taken_over(folder, tmp_path):
    """The guard holds there too; a request whose owner is killed is answered all the same."""
    begun = tmp_path / "begun"
    with Stdio(folder) as owner:
        owner.initialize()
        with Web(folder) as web:
            url = web.url
            assert web.served["owner"] is False
            assert web.served["pid"] == owner.pid
            call(url, "notes.add", text="one")
            assert owner.call("notes.count") == {"result": 1}
            assert ask(url, "GET", "/healthz", Host="evil.example")[0] == 403
            answers = []
            arguments = {"text": "two", "begun": str(begun)}
            slow = threading.Thread(
                target=lambda: answers.append(call(url, "notes.slow", **arguments))
            )
            slow.start()
            wait_until(begun.exists)
            owner.kill()
            slow.join()
            ((status, answer),) = answers
            assert status == 502
            assert answer["error"]["data"] == {"code": "interrupted"}
            assert call(url, "notes.count")[1]["result"]["structuredContent"] == {"result": 2}
            served = web.next_served()
            assert served["owner"] is True
            assert find_owner(folder).pid == web.pid
            assert web.close() == 0


def test_calls_are_finished_when_a_server_ends(folder, tmp_path):
    """A front that is not the owner waits for the answer that is due, too."""
    with Web(folder) as owner, Web(folder) as front:
        for number, web in enumerate((front, owner)):
            begun = tmp_path / f"begun{number}"
            answers = []
            arguments = {"text": f"slow{number}", "begun": str(begun)}
            url = web.url
            slow = threading.Thread(
                target=lambda u=url, a=arguments, to=answers: to.append(call(u, "notes.slow", **a))
            )
            slow.start()
            wait_until(begun.exists)
            web.process.send_signal(signal.SIGTERM)
            (tmp_path / f"begun{number}-go").touch()
            assert web.process.wait(PATIENCE) == 0
            slow.join()
            assert answers[0][0] == 200


def test_large_bodies_pass_both_ways(folder):
    """Backpressure, not memory, is what a slow side meets; a bad request does not end the front."""
    with Web(folder), Web(folder) as front:
        url = front.url
        text = "x" * 10_000_000
        status, answer = call(url, "notes.measure", text=text)
        assert (status, answer["result"]["structuredContent"]) == (200, {"result": len(text)})
        for garbage in (b"garbage\r\n\r\n", b"", b"POST / HTTP/1.1\r\n", b"\x00" * 1000):
            with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as raw:
                raw.sendall(garbage)
        assert ask(url, "GET", "/healthz")[0] == 200


def test_a_broken_graph_is_named_and_the_others_are_served(tmp_path):
    """By the owner, and by a front that is not."""
    folder = make_notebook(tmp_path / "two", graphs=("main", "other"), broken=("other",))
    with Web(folder) as owner, Web(folder) as front:
        for web in (owner, front):
            assert [each["graph"] for each in web.served["graphs"]] == ["main"]
            assert "nothing_like_this" in web.served["quarantined"]["other"]
            url = web.url
            status, answer = ask(url, path="/graphs/other/mcp", body={})
            assert (status, answer["code"]) == (503, "quarantined")
            assert call(url, "notes.count")[0] == 200


def test_a_server_does_not_leave_this_machine(folder):
    """An address that others reach is refused, with the reason."""
    with Process("serve", "-p", folder, "--host", "0.0.0.0") as process:  # noqa: S104 - refused
        assert process.close() == 2
        assert "access control" in process.errors
