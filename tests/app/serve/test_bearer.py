"""A server that was given a token answers nobody without it, before any protocol."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.worlds.surfaces import REVISIONS, ask_app, headers_of, message_of

from trails import App
from trails.app.access import access_of
from trails.app.kernels import kernel_of
from trails.app.serve.http.front import HttpInterface
from trails.app.serve.http.hosts import HostPolicy
from trails.model.actors import LOCAL

TOKEN = "canary-3f1b"
PING = {"name": "trails_meta_ping", "arguments": {}}
HOST = (b"host", b"localhost")


def ask(environment, asked):
    """What a server with some environment answers to some requests, in order."""

    async def visit(interface):
        async with interface.run():
            return [
                await ask_app(interface, [HOST, *headers], [body], method=method, path=path)
                for method, path, headers, body in asked
            ]

    with TemporaryDirectory() as folder, App() as app:
        kernel = kernel_of(app)
        policy = HostPolicy.for_bind("127.0.0.1")
        authenticator = access_of(Path(folder), app.settings, environment).authenticator
        interface = HttpInterface({"main": kernel}, app.settings.graphs, authenticator, policy)
        try:
            return asyncio.run(visit(interface))
        finally:
            kernel.close()


def ping(revision, *headers):
    """A call in some revision, with more headers."""
    given = [each for each in headers_of(revision, "tools/call", PING) if each[0] != b"host"]
    body = json.dumps(message_of(revision, "tools/call", PING)).encode()
    return "POST", "/graphs/main/mcp", [*given, *headers], body


WRONG = [
    (),
    ((b"authorization", b"Bearer nope"),),
    ((b"authorization", b"Bearer"),),
    ((b"authorization", b"Bearer "),),
    ((b"authorization", b"Basic " + TOKEN.encode()),),
    ((b"authorization", TOKEN.encode()),),
    ((b"authorization", b"Bearer " + TOKEN.encode() + b"x"),),
    ((b"authorization", b"Bearer " + TOKEN.encode()[:-1]),),
    ((b"authorization", b"Bearer \xff\xfe"),),
    ((b"authorization", b"Bearer " + TOKEN.encode()), (b"authorization", b"Bearer nope")),
]


@pytest.mark.req("G13")
@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_a_missing_or_bad_bearer_is_401_before_the_protocol(revision):
    """Also for a body that is no message at all; the answer is no JSON-RPC, and says what to do."""
    asked = [ping(revision, *headers) for headers in WRONG]
    asked.append(("POST", "/graphs/main/mcp", [], b"no json"))
    asked.append(("GET", "/graphs/main/snapshot", [], b""))
    for reply in ask({"TRAILS_MCP_TOKEN": TOKEN}, asked):
        assert reply.status == 401
        assert dict(reply.headers)[b"www-authenticate"] == b"Bearer"
        assert json.loads(reply.body)["code"] == "unauthenticated"
        assert TOKEN.encode() not in reply.body


@pytest.mark.req("G13")
@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_the_right_bearer_passes(revision):
    """Whatever the case of the scheme; without a token in the settings nothing is asked."""
    right = ping(revision, (b"authorization", b"Bearer " + TOKEN.encode()))
    lower = ping(revision, (b"authorization", b"bearer  " + TOKEN.encode()))
    replies = ask({"TRAILS_MCP_TOKEN": TOKEN}, [right, lower])
    replies += ask({}, [ping(revision)])
    replies += ask({"TRAILS_MCP_TOKEN": ""}, [ping(revision, *WRONG[1])])
    for reply in replies:
        assert reply.status == 200
        assert reply.message["result"]["structuredContent"]["actor"] == LOCAL.name


def test_whether_it_lives_is_told_to_everybody():
    """A probe needs no token, and learns nothing else."""
    (reply,) = ask({"TRAILS_MCP_TOKEN": TOKEN}, [("GET", "/healthz", [], b"")])
    assert (reply.status, json.loads(reply.body)) == (200, {"status": "ok"})
