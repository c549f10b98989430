"""Clients that do harm, each until it is stopped: ``python -m bench.serving.hostile_clients``.

Arguments are the pattern, the port and a token. Says a line when the first of its real requests was
answered or sent. Imports little, so that it begins at once.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from time import sleep
from typing import Final

_TIMEOUT: Final = 120
_LOWEST: Final = 19
"""The priority of these clients: what is measured is what the server does, not how clients share
the processors of one machine."""
_LOOP: Final = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}


class Client:
    """One connection at a time; whatever goes wrong, the next request has a new one."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.headers = {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None
        self._is_begun = False

    def begin(self) -> None:
        """Say that the harm has begun, once."""
        if not self._is_begun:
            self._is_begun = True
            sys.stdout.write("begun\n")
            sys.stdout.flush()

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
        """What is answered; nothing when the connection breaks."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(
                    "127.0.0.1", self.port, timeout=_TIMEOUT
                )
            path = f"/graphs/main{path}"
            self._connection.request(method, path, body, {**self.headers, **given})
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection = None
            return b""
        if answer.status in {401, 404}:
            raise RuntimeError(f"{path} does no harm: {answer.status} {text[:200]!r}")
        if "branch_create" not in path:
            self.begin()
        return text

    def post(self, path: str, document: object) -> bytes:
        """What comes of a JSON document."""
        body = json.dumps(document).encode()
        return self.send("POST", path, body, content_type="application/json")

    def call(self, tool: str, **arguments: object) -> bytes:
        """Call a tool."""
        return self.post(f"/invoke/{tool}", arguments)

    def socket(self) -> socket.socket:
        """A bare connection."""
        self.begin()
        return socket.create_connection(("127.0.0.1", self.port), _TIMEOUT)

    def head(self, method: str, path: str, *more: str) -> bytes:
        """The head of a request."""
        lines = [f"{method} /graphs/main{path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *more]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def bombs(client: Client) -> None:
    """Four MiB that grow to four GiB of blank lines."""
    body = gzip.compress(b"\n" * (64 << 20), 9) * 64
    client.call("branch_create", name="mal/bomb")
    path = "/load?branch=mal/bomb"
    kind = {"content_type": "application/x-ndjson", "content_encoding": "gzip"}
    while True:
        client.send("POST", path, body, **kind)


def merges(client: Client) -> None:
    """Merges of thousands of nodes, tried and done."""
    line = '{"type": "Item", "data": {"code": "m%d", "name": "x", "rank": %d}}\n'
    client.call("branch_create", name="mal/target")
    for turn in count():
        name = f"mal/source{turn}"
        body = "".join(line % (each, turn) for each in range(3000)).encode()
        path = f"/load?branch={name}&from=main"
        answer = client.send("POST", path, body, content_type="application/x-ndjson")
        if b"budget" in answer:
            sleep(0.05)
            continue
        for _ in range(5):
            client.call("branch_merge", source=name, target="mal/target", dry_run=True)
        client.call("branch_merge", source=name, target="mal/target")
        client.call("branch_delete", name=name, force=True)


def loads(client: Client) -> None:
    """Files of thousands of nodes, one after the other."""
    line = '{"type": "Item", "data": {"code": "l%d", "name": "x", "rank": %d}}\n'
    client.call("branch_create", name="mal/load")
    for turn in count():
        body = "".join(line % (each, turn) for each in range(20_000)).encode()
        path = "/load?branch=mal/load"
        if b"budget" in client.send("POST", path, body, content_type="application/x-ndjson"):
            sleep(0.05)


def snapshots(client: Client) -> None:
    """States far from every branch, each of which has to be built."""
    line = '{"type": "Item", "data": {"code": "s%d", "name": "x", "rank": %d}}\n'
    client.call("branch_create", name="mal/first")
    for turn in count():
        name = f"mal/far{turn}"
        body = "".join(line % (each, turn) for each in range(5_000)).encode()
        path = f"/load?branch={name}&from=main"
        answer = client.send("POST", path, body, content_type="application/x-ndjson")
        if b"budget" in answer:
            sleep(0.05)
            continue
        client.call("branch_delete", name=name, force=True)
        client.send("GET", f"/kg/Item?snapshot={json.loads(answer)['commit']}")


def documents(client: Client) -> None:
    """Thirty MiB of brackets."""
    body = b'{"x": [' + b"[[]]," * (6 << 20) + b"0]}"
    while True:
        client.send("POST", "/invoke/graph_snapshot", body, content_type="application/json")


def loops(client: Client) -> None:
    """Queries that never end."""
    while True:
        if b"budget" in client.post("/query", {"query": _LOOP}):
            sleep(0.05)


def branches(client: Client) -> None:
    """As many branches as there may be, made and listed again and again."""
    for number in count():
        client.call("branch_create", name=f"mal/{number}")
        client.call("branch_list", limit=1000)


def watches(client: Client) -> None:
    """As many streams as there may be, on everything."""
    asked = {"notifications": {"resourceSubscriptions": ["trails://kg/Item"]}, "_meta": _META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": asked}
    body = json.dumps(message).encode()
    more = (
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: subscriptions/listen",
        f"Content-Length: {len(body)}",
    )
    opened: list[socket.socket] = []
    while True:
        with suppress(OSError):
            opened.append(client.socket())
            opened[-1].sendall(client.head("POST", "/mcp", *more) + body)
        for each in opened[:-150]:
            each.close()
        del opened[:-150]
        sleep(0.005)


def unfinished(client: Client) -> None:
    """Bodies that are announced and never sent to their end."""
    head = client.head(
        "POST",
        "/invoke/graph_snapshot",
        "Content-Type: application/json",
        "Content-Length: 33000000",
    )
    opened: list[socket.socket] = []
    while True:
        with suppress(OSError):
            opened.append(client.socket())
            opened[-1].settimeout(1)
            opened[-1].sendall(head + b'{"x": "' + b"x" * (1 << 20))
        for each in opened[:-60]:
            each.close()
        del opened[:-60]
        sleep(0.01)


def junk(client: Client) -> None:
    """Requests without a pause between them, and what is no request."""
    many = client.head("GET", "/nothing") * 200 + b"\x00\xff junk \r\n\r\n" * 50
    while True:
        with suppress(OSError), client.socket() as connection:
            connection.settimeout(5)
            connection.sendall(many)
            while connection.recv(1 << 16):
                pass


def pings(client: Client) -> None:
    """What anybody may call, without a pause."""
    while True:
        client.call("trails_meta_ping")


PATTERNS: Final[dict[str, Callable[[Client], None]]] = {
    each.__name__: each
    for each in (
        bombs,
        loads,
        merges,
        snapshots,
        documents,
        loops,
        branches,
        watches,
        unfinished,
        junk,
        pings,
    )
}


if __name__ == "__main__":
    os.nice(_LOWEST)
    PATTERNS[sys.argv[1]](Client(int(sys.argv[2]), sys.argv[3]))
