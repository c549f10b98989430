"""The endpoint of each graph, as a server offers it."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.worlds.surfaces import LEGACY, MODERN, REVISIONS, ask_app, headers_of, hello, message_of

from trails import App, Node, node_type, predicate
from trails.app.kernels import kernel_of
from trails.app.serve.http.front import HttpInterface
from trails.app.serve.http.hosts import HostPolicy
from trails.model.actors import LOCAL
from trails.request.authenticate import Authenticator

PING = {"name": "trails_meta_ping", "arguments": {}}


@node_type
class Leaf(Node):
    """Something to watch."""

    code: str = predicate(key=True)


@pytest.mark.req("G1")
def test_each_graph_has_its_endpoint():
    """One endpoint a graph speaks every revision, takes POST alone, and offers what it delivers."""
    with App(Leaf) as app:
        kernel = kernel_of(app)
        policy = HostPolicy.for_bind("127.0.0.1")
        interface = HttpInterface(
            {"main": kernel}, app.settings.graphs, Authenticator(LOCAL), policy
        )
        asyncio.run(asyncio.wait_for(visit(interface), 60))
        kernel.close()


async def visit(interface: HttpInterface) -> None:
    """Ask the endpoint everything."""
    async with interface.run():
        for revision in REVISIONS:
            reply = await post(interface, revision, "tools/call", PING)
            assert (reply.status, "result" in reply.message) == (200, True)
            assert ("resultType" in reply.message["result"]) == (revision == MODERN)
            for method in ("GET", "DELETE"):
                headers = headers_of(revision, "tools/list", {})
                path = {"path": "/graphs/main/mcp"}
                refused = await ask_app(interface, headers, [b""], method=method, **path)
                assert (refused.status, dict(refused.headers)[b"allow"]) == (405, b"POST")
        for revision in ("2020-01-01", "2030-01-01", "x"):
            assert (await post(interface, revision, "tools/call", PING)).status == 400
        assert (await post(interface, None, "tools/call", PING, graph="none")).status == 404
        for revision in LEGACY:
            greeting = hello(revision)
            reply = await post(interface, revision, "initialize", greeting)
            offered = reply.message["result"]["capabilities"]
            assert offered["tools"] == {"listChanged": False}
            assert offered["resources"] == {"listChanged": False, "subscribe": False}
            for uri, code in (("trails://kg/Leaf", -32601), ("trails://kg/Lef", -32002)):
                reply = await post(interface, revision, "resources/subscribe", {"uri": uri})
                assert reply.message["error"]["code"] == code
        reply = await post(interface, MODERN, "server/discover", {})
        offered = reply.message["result"]["capabilities"]
        assert offered["tools"] == {"listChanged": True}
        assert offered["resources"] == {"listChanged": True, "subscribe": True}


async def post(interface, revision, method, params, graph="main"):
    """One request to the endpoint of a graph."""
    body = json.dumps(message_of(revision, method, params)).encode()
    headers = headers_of(revision, method, params)
    return await ask_app(interface, headers, [body], path=f"/graphs/{graph}/mcp")
