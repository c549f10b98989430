"""Whatever is sent, the surface answers and lives on."""

from __future__ import annotations

import asyncio
import json
import random
from copy import deepcopy

import pytest
from tests.campaigns import sized
from tests.worlds.surfaces import (
    MODERN,
    REVISIONS,
    Headers,
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

SEEDS = [
    ("tools/call", {"name": "echo", "arguments": {"a": [1, 2.5, None, "é"]}}),
    ("tools/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "test://note"}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "test://line/{n}"},
            "argument": {"name": "n", "value": "1"},
        },
    ),
    ("initialize", hello()),
    ("server/discover", {}),
    ("ping", {}),
    ("logging/setLevel", {"level": "debug"}),
    ("notifications/cancelled", {"requestId": 1}),
]
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b":",
    b"null",
    b"1e999",
    b"-",
    b"\\ud800",
    b"\xff",
    b"\x00",
    b"\r\n",
    b"9" * 5000,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"true",
    b'"id":{}',
    b'"jsonrpc":"2.0"',
]
VALUES = [None, True, 0, -1, 2**70, 1.5, "", "x", [], {}, [None], {"a": None}]


def make(rng: random.Random) -> tuple[Headers, bytes]:
    """A request with something wrong, mostly."""
    revision = rng.choice(REVISIONS)
    method, params = rng.choice(SEEDS)
    message = message_of(revision, method, deepcopy(params), rng.choice([1, "a", 2**70, None, 1.5]))
    if rng.random() < 0.4:
        _spoil(message, rng)
    body = json.dumps(message, ensure_ascii=rng.random() < 0.5).encode()
    for _ in range(rng.choice([0, 0, 1, 2, 5])):
        body = _bend(body, rng)
    headers = headers_of(revision, method, params)
    if rng.random() < 0.3:
        headers = _mangle(headers, rng)
    return headers, body


def _spoil(value: object, rng: random.Random) -> None:
    """Put something else somewhere into a message."""
    while isinstance(value, dict) and value:
        key = rng.choice(list(value))
        if rng.random() < 0.4 or not isinstance(value[key], dict):
            value[key] = deepcopy(rng.choice(VALUES))  # it may be spoilt in turn
            return
        value = value[key]


def _bend(body: bytes, rng: random.Random) -> bytes:
    """Cut, repeat, flip or put in bytes."""
    at, to = sorted(rng.randrange(len(body) + 1) for _ in range(2))
    match rng.randrange(4):
        case 0:
            return body[:at] + body[to:]
        case 1:
            return body[:to] + body[at:]
        case 2:
            return body[:at] + rng.choice(PIECES) + body[at:]
        case _:
            flipped = bytes([rng.randrange(256)]) if body else b""
            return body[:at] + flipped + body[at + 1 :]


def _mangle(headers: Headers, rng: random.Random) -> Headers:
    """Drop, double or change a header."""
    at = rng.randrange(len(headers))
    name, value = headers[at]
    changed = rng.choice(
        [
            [],
            [(name, value), (name, value)],
            [(name, rng.randbytes(rng.randrange(20)))],
            [(name, b" " + value + b"\t")],
            [(name, MODERN.encode())],
        ]
    )
    return [*headers[:at], *changed, *headers[at + 1 :]]


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
