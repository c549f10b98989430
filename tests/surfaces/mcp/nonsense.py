"""Requests that a fuzzer makes of valid ones; the same seed makes the same requests."""

from __future__ import annotations

import json
import random

from tests.worlds.surfaces import MODERN, REVISIONS, Headers, headers_of, hello, message_of

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
    message = message_of(revision, method, dict(params), rng.choice([1, "a", 2**70, None, 1.5]))
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
            value[key] = rng.choice(VALUES)
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
