"""Whatever is sent, the surface answers and lives on."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from tests.campaigns import sized
from tests.surfaces.mcp.nonsense import make
from tests.worlds.surfaces import (
    MODERN,
    OneCaller,
    TrivialBackend,
    ask_app,
    headers_of,
    hello,
    message_of,
)

from trails.model.actors import LOCAL
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.mcp.streams import serve_stream

CALL = {"name": "echo", "arguments": {"a": 1}}


async def bombard(app: McpApp, seed: int, count: int) -> None:
    """Send requests, some at a time; each must be answered in order."""
    rng = random.Random(seed)
    for _ in range(count // 20):
        requests = [make(rng) for _ in range(20)]
        replies = await asyncio.gather(
            *(ask_app(app, headers, [body]) for headers, body in requests)
        )
        for request, reply in zip(requests, replies, strict=True):
            assert 200 <= reply.status < 500, request
            assert b"-32603" not in reply.body, request
            if reply.body.startswith(b"{"):
                assert json.loads(reply.body)["jsonrpc"] == "2.0"


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_requests(seed):
    """Of five hundred fuzzed requests none is a server's error, and the next one is served."""
    _fuzz(seed, 500)


@pytest.mark.long(cases=10_000)
@pytest.mark.parametrize("seed", range(100, 100 + sized(10, nightly=1)))
def test_many_fuzzed_requests(seed):
    """The same, two hundred times longer."""
    _fuzz(seed, 10_000)


def _fuzz(seed: int, count: int) -> None:
    app = McpApp(TrivialBackend(), legacy_sessions=seed % 2 == 1)

    async def main():
        async with app.run():
            await bombard(app, seed, count)
            headers = headers_of(MODERN, "tools/call", CALL)
            body = json.dumps(message_of(MODERN, "tools/call", CALL)).encode()
            assert (await ask_app(app, headers, [body])).status == 200

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
def test_fuzzed_lines(seed, revision):
    """A session survives a thousand fuzzed lines and answers the next request."""
    rng = random.Random(seed)
    opening = ("tools/list", {}) if revision == MODERN else ("initialize", hello(revision))
    lines = [json.dumps(message_of(revision, *opening, id_="first")).encode()]
    lines += [make(rng)[1].replace(b"\n", b" ") for _ in range(1000)]
    lines.append(json.dumps(message_of(revision, "tools/call", CALL, id_="last")).encode())
    given, answers = iter(lines), []

    async def receive():
        await asyncio.sleep(0)
        return next(given, None)

    async def send(line):
        answers.append(json.loads(line))

    asyncio.run(serve_stream(TrivialBackend(), receive, send, callers=OneCaller(LOCAL)))
    by_id = {answer["id"]: answer for answer in answers if isinstance(answer.get("id"), str)}
    assert "result" in by_id["first"]
    assert by_id["last"]["result"]["structuredContent"] == {"a": 1}
    assert all(answer.get("error", {}).get("code") != -32603 for answer in answers)
    assert all(answer.get("error", {}).get("code") != 0 for answer in answers)


@pytest.mark.parametrize("revision", [None, MODERN])
def test_nesting_bombs(revision):
    """Arrays within arrays are refused, however deep, and never exhaust a stack."""

    async def main():
        app = McpApp(TrivialBackend())
        async with app.run():
            for depth in (101, 255, 1_000, 100_000, 3_000_000):
                for body in (b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth):
                    reply = await ask_app(app, headers_of(revision, "tools/call", CALL), [body])
                    assert (reply.status, reply.message["error"]["code"]) == (400, -32700)

    asyncio.run(main())
