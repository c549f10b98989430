"""``trails serve --stdio --server``: a client that can only start commands, on a server elsewhere.

The behaviour tests of the protocol run over it too: ``bridge`` in ``tests/worlds/mcp_clients``.
"""

import asyncio
import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import pytest
from mcp import Client, StdioServerParameters
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from tests.worlds.processes import (
    PATIENCE,
    Bridge,
    Process,
    Web,
    command,
    is_running,
    wait_until,
)
from tests.worlds.projects import give_token, id_of, make_notebook, make_workshop, tokens_of
from tests.worlds.surfaces import INITIALIZED, META, hello, message_of

from trails.app.serve.relay.legacy_watch import LATEST

NOTES = "trails://kg/Note"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """A project that is served to everybody on this machine."""
    with Web(make_notebook(tmp_path_factory.mktemp("remote") / "notebook")) as web:
        yield web


def called(name, **arguments):
    """The parameters of a call."""
    return {"name": name, "arguments": arguments}


def test_a_session_is_served_and_ends_with_its_input(notebook):
    """Odd lines cost one answer, nothing but the protocol is printed, and no process is left."""
    with Bridge(notebook.url) as client:
        assert client.initialize()["serverInfo"]["name"] == "notebook/main"
        assert client.call("notes.add", text="one") == {"result": "one"}
        for garbage in (b"garbage", b"[]", b'"x"', b"{}", b"\xff\xfe", b'{"id":1}', b"1" * 5000):
            client.send(garbage)
        assert client.call("notes.measure", text="x" * 10_000_000) == {"result": 10_000_000}
        assert client.call("notes.measure", text="日本\u0000語 🧭\u2028") == {"result": 7}
        assert client.close() == 0
        assert client.line() is None
        assert client.errors == ""
    assert not is_running(client.pid)


def test_what_was_sent_before_the_end_is_answered(notebook):
    """A client may send all of its messages at once and close its side."""
    with Process("serve", "--stdio", "--server", notebook.url, "--graph", "main") as process:
        lines = [
            message_of(None, "initialize", hello(), 0),
            INITIALIZED,
            message_of(None, "tools/call", called("notes.measure", text="four"), 1),
            message_of(None, "resources/subscribe", {"uri": NOTES}, 2),
            message_of(None, "nonsense", {}, 3),
        ]
        process.stdin.write(b"".join(json.dumps(each).encode() + b"\n" for each in lines))
        assert process.close() == 0
        found = {}
        while (line := process.line()) is not None:
            answer = json.loads(line)
            found[answer["id"]] = answer
        assert found.keys() == {0, 1, 2, 3}
        assert found[1]["result"]["structuredContent"] == {"result": 4}
        assert found[2]["result"] == {}
        assert found[3]["error"]["code"] == -32601


@pytest.mark.parametrize("mode", ["legacy", LATEST])
def test_the_official_client_starts_it(notebook, mode):
    """As its configuration says: a command with arguments."""
    arguments = command("serve", "--stdio", "--server", notebook.url)[1:]
    started = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))

    async def run():
        async with Client(started, mode=mode) as client, asyncio.timeout(PATIENCE):
            names = [each.name for each in (await client.list_tools()).tools]
            assert "notes.measure" in names
            answer = await client.call_tool("notes.measure", {"text": "four"})
            assert answer.structured_content == {"result": 4}

    asyncio.run(run())
    assert LATEST in MODERN_PROTOCOL_VERSIONS


def test_a_cancelled_call_ends_on_the_server(notebook, tmp_path):
    """The connection of the call is closed, and no answer is sent."""
    begun = tmp_path / "begun"
    with Bridge(notebook.url) as client:
        client.initialize()
        slow = client.ask("tools/call", called("notes.look", begun=str(begun)))
        wait_until(begun.exists)
        cancelled = {"requestId": slow, "reason": "enough"}
        client.send(message_of(None, "notifications/cancelled", cancelled))
        assert client.call("notes.measure", text="four") == {"result": 4}
        (tmp_path / "begun-go").touch()
        assert client.call("notes.measure", text="five!") == {"result": 5}
        assert client.close() == 0
        assert client.line() is None
        assert slow not in client._answers


def test_a_session_survives_the_server(tmp_path):
    """Reads are repeated, writes with a key as well; what may have been written is told."""
    folder, begun = make_notebook(tmp_path / "notebook"), tmp_path / "begun"
    with Web(folder) as first, Bridge(first.url) as old, Bridge(first.url) as new:
        port = urlsplit(first.url).port
        old.initialize()
        old.request("tools/list")
        old.request("resources/subscribe", {"uri": NOTES})
        wanted = {"resourceSubscriptions": [NOTES], "toolsListChanged": True}
        listen = new.ask("subscriptions/listen", {"notifications": wanted, "_meta": META})
        new.wait_for("notifications/subscriptions/acknowledged")
        slow = old.ask("tools/call", called("notes.slow", text="two", begun=str(begun)))
        look = old.ask("tools/call", called("notes.look", begun=f"{begun}-look"))
        wait_until(begun.exists)
        wait_until((tmp_path / "begun-look").exists)
        for client in (old, new):
            client.notified.clear()
        first.kill()
        (tmp_path / "begun-look-go").touch()
        late = old.ask("tools/call", called("notes.add", text="three"))
        with Web(folder, "--port", port):
            unknown = old.answer(slow)["result"]
            assert unknown["isError"] is True
            assert "commit_list" in unknown["content"][0]["text"]
            assert old.answer(look)["result"]["structuredContent"]["result"] >= 1
            assert old.answer(late)["result"]["structuredContent"] == {"result": "three"}
            for client in (old, new):
                client.wait_for("notifications/resources/updated")
                client.wait_for("notifications/tools/list_changed")
                client.notified.clear()
            old.call("notes.add", text="four")
            for client in (old, new):
                client.wait_for("notifications/resources/updated")
        assert listen not in new._answers
        assert "connected to" in old.errors


def test_an_orderly_restart_is_not_noticed(tmp_path):
    """A server that stops ends its streams; they are opened again."""
    folder = make_notebook(tmp_path / "notebook")
    with Web(folder) as first, Bridge(first.url) as client:
        client.initialize()
        client.request("resources/subscribe", {"uri": NOTES})
        assert first.close() == 0
        with Web(folder, "--port", urlsplit(first.url).port):
            assert client.call("notes.add", text="one") == {"result": "one"}
            client.wait_for("notifications/resources/updated")


PROGRESS = (
    b': hello\r\n\r\nevent: message\r\ndata: {"jsonrpc":"2.0","method":"notifications/progress",'
    b'"params":{"progressToken":"p","progress":1}}\r\n\r\n'
    b'event: message\r\ndata: {"jsonrpc":"2.0",\r\ndata: "id":1,"result":{}}\r\n\r\n'
)


class Stranger(BaseHTTPRequestHandler):
    """A server that isn't Trails."""

    def do_POST(self):
        """Redirect, show a page, or answer with something else."""
        self.rfile.read(int(self.headers["content-length"]))
        status, media, body = {
            "moved": (307, "text/plain", b""),
            "page": (200, "text/html", b"<h1>Welcome</h1>"),
            "missing": (404, "text/html", b"<h1>Not found</h1>"),
            "json": (200, "application/json", b'{"hello": "world"}'),
            "stream": (200, "text/event-stream", PROGRESS),
        }[self.path.split("/")[2]]
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        """Say nothing."""


@pytest.fixture(scope="module")
def stranger():
    """The address of a server that isn't Trails."""
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("graph", ["moved", "page", "missing", "json"])
def test_a_server_that_is_not_trails(stranger, graph):
    """The error says so, and names the address."""
    with Bridge(stranger, "--graph", graph) as client:
        error = client.answer(client.ask("initialize", hello()))["error"]
        assert error["code"] == -32000
        assert error["data"]["code"] == "unreachable"
        assert stranger in error["message"]
        assert "unlike a Trails server" in error["message"]
        assert client.close() == 0


def test_an_answer_may_be_a_stream(stranger):
    """Progress comes before the result, each on a line of its own."""
    with Bridge(stranger, "--graph", "stream") as client:
        assert client.answer(client.ask("ping")) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        (progress,) = client.notified
        assert progress["params"] == {"progressToken": "p", "progress": 1}


def test_a_server_that_is_not_there():
    """Each request is answered at once, so that a client does not wait for nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Bridge(url) as client:
            for _ in range(2):
                error = client.answer(client.ask("initialize", hello()))["error"]
                assert error["data"] == {"code": "unreachable"}
                assert "Connection refused; start one with 'trails serve'" in error["message"]
            listen = {"notifications": {"toolsListChanged": True}, "_meta": META}
            assert "error" in client.answer(client.ask("subscriptions/listen", listen))
            assert client.close() == 0
            assert client.errors.count(url) == 1


def test_tokens(tmp_path):
    """The token comes from the environment; without a valid one, the error says what to do."""
    folder = make_workshop(tmp_path / "workshop")
    token = give_token(folder)
    with Web(folder) as web:
        for given in ({}, {"TRAILS_TOKEN": "trails_wrong"}):
            with Bridge(web.url, "--graph", "main", env=given) as client:
                error = client.answer(client.ask("initialize", hello()))["error"]
                assert (error["code"], error["data"]["code"]) == (-32001, "unauthenticated")
                assert "trails_wrong" not in json.dumps(error) + client.errors
        with Bridge(web.url, "--graph", "main", env={"TRAILS_TOKEN": token}) as client:
            client.initialize()
            assert client.call("trails_meta_ping")["actor"] == "ann"
        with Bridge(web.url, "--graph", "main", env={"TRAILS_TOKEN": token}) as client:
            wanted = {"notifications": {"toolsListChanged": True}, "_meta": META}
            listen = client.ask("subscriptions/listen", wanted)
            client.wait_for("notifications/subscriptions/acknowledged")
            other = give_token(folder, "bob")
            tokens_of(folder).revoke([id_of(token)], None)
            assert client.answer(listen)["error"]["code"] == -32001
        token = other
        with Bridge(web.url, "--graph", "nope", env={"TRAILS_TOKEN": token}) as client:
            error = client.answer(client.ask("initialize", hello()))["error"]
            assert error["data"]["code"] == "not_found"
            assert "nope" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--server", "http://h/graphs/main/mcp", "--stdio"), "without '/graphs/main/mcp'"),
        (("--server", "ftp://h", "--stdio"), "is not a server address"),
        (("--server", "http://h"), "--server requires --stdio"),
        (("--server", "http://h", "--stdio", "-p", "."), "cannot be combined"),
        (("--server", "http://h", "--stdio", "--read-only"), "cannot be combined"),
    ],
)
def test_wrong_options(arguments, says):
    """They are refused before anything is served."""
    with Process("serve", *arguments) as process:
        assert process.close() == 2
        assert says in process.errors


def test_scopes_are_those_of_the_token():
    """A variable that would be ignored is refused: whoever set it relies on it."""
    given = {"TRAILS_MCP_SCOPES": "runtime"}
    with Process("serve", "--stdio", "--server", "http://127.0.0.1:1", env=given) as process:
        assert process.close() == 2
        assert "a token with fewer scopes" in process.errors
