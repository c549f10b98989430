"""The load generator: some connections that each send the next request when answered.

Raw HTTP/1.1 on a bare asyncio protocol, so that it costs a fraction of what any
server here does. How busy the server's core was is measured too: a figure where the
generator held the server up shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, cast

import msgspec
import uvloop

CONNECTIONS: Final = 16


class Case(msgspec.Struct, frozen=True):
    """Requests that are sent in turn, and what an answer must hold."""

    port: int
    requests: Sequence[bytes]
    expect: bytes
    pid: int


class Slice(msgspec.Struct, frozen=True):
    """What came of loading one server for a moment."""

    rate: float
    """Answers a second."""
    busy: float
    """The server's share of its core."""

    @property
    def cpu(self) -> float:
        """Seconds of the server's processor for one answer."""
        return self.busy / self.rate


def get(path: str) -> bytes:
    """A whole HTTP request without a body."""
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:8000\r\n\r\n".encode()


def post(path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A whole HTTP request."""
    lines = [
        f"POST {path} HTTP/1.1",
        "host: 127.0.0.1:8000",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, case: Case, first: int, until: float, ended: asyncio.Future[None]) -> None:
        self.answers = 0
        self._case = case
        self._until = until
        self._ended = ended
        self._asked = first
        self._pieces: list[bytes] = []
        self._open = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask first."""
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Count a whole answer and ask again."""
        self._pieces.append(data)
        if self._open:
            self._open -= len(data)
        else:
            self._open = self._remaining(data)
        if self._open:
            return
        if not self.answers:
            self._check(b"".join(self._pieces))
        self._pieces.clear()
        self.answers += 1
        if perf_counter() < self._until:
            self._ask()
        else:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """A server that hangs up spoils the measurement."""
        if not self._ended.done():
            self._ended.set_exception(exc or ConnectionError("the server hung up"))

    def _ask(self) -> None:
        self._asked = (self._asked + 1) % len(self._case.requests)
        self._transport.write(self._case.requests[self._asked])

    def _remaining(self, data: bytes) -> int:
        """How much of an answer is still to come, from its head."""
        head = data.find(b"\r\n\r\n")
        lowered = data[:head].lower()
        at = lowered.find(b"\r\ncontent-length:")
        if head < 0 or at < 0:
            raise ValueError(f"no length in the head of {data[:300]!r}")
        length = int(lowered[at + 17 :].split(b"\r\n", 1)[0])
        return head + 4 + length - len(data)

    def _check(self, answer: bytes) -> None:
        if not answer.startswith(b"HTTP/1.1 200") or self._case.expect not in answer:
            self._ended.set_exception(ValueError(f"unexpected answer: {answer[:600]!r}"))

    def _finish(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        self._transport.close()


def load(case: Case, seconds: float) -> Slice:
    """Ask one server as fast as it answers."""
    return uvloop.run(_load(case, seconds))


def _same(client: Client) -> Client:
    return client


async def _load(case: Case, seconds: float) -> Slice:
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    ends: list[asyncio.Future[None]] = []
    start, used = perf_counter(), processor_seconds(case.pid)
    for number in range(CONNECTIONS):
        ended: asyncio.Future[None] = loop.create_future()
        client = Client(case, number * 61, start + seconds, ended)
        await loop.create_connection(partial(_same, client), "127.0.0.1", case.port)
        clients.append(client)
        ends.append(ended)
    async with asyncio.timeout(seconds + 60):
        await asyncio.gather(*ends)
    wall = perf_counter() - start
    busy = (processor_seconds(case.pid) - used) / wall
    return Slice(sum(client.answers for client in clients) / wall, busy)


def processor_seconds(pid: int) -> float:
    """What a process has used so far, in all its threads."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text(encoding="ascii").split()[0]) for each in threads) / 1e9


def take_turns(
    cases: Mapping[str, Case], seconds: float, rounds: int
) -> dict[str, Sequence[Slice]]:
    """Load several servers in turns, so that a slow moment of the machine hits all alike."""
    names = list(cases)
    for name in names:
        load(cases[name], seconds / 2)
    found: dict[str, list[Slice]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            found[name].append(load(cases[name], seconds))
    return {name: tuple(each) for name, each in found.items()}
