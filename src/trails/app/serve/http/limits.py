"""Limits on the time and memory that one client may use.

Memory is counted for each sender and in total. A body counts from the moment that its length is
known, or that a part of it arrives, until its request is answered; before authentication it counts
for the sender's address. Loads are not counted, because they are spooled to disk.
"""

from __future__ import annotations

import resource
from typing import Final

import msgspec
from starlette.types import Message, Receive, Send

from trails.app.serve.http.responses import JsonReply, problem_reply
from trails.model.actors import Actor

_CONNECTIONS: Final = 10_000
_RESERVE: Final = 1024
"""Open files that are reserved for the server itself."""


class ClientLimits(msgspec.Struct, frozen=True):
    """The limits of one client."""

    connections: int = _CONNECTIONS
    """Open connections of all clients."""
    target: int = 16 << 10
    """Bytes of the request target."""
    line: int = 16 << 10
    """Bytes of one header line."""
    lines: int = 128
    head: int = 64 << 10
    """Bytes of all headers."""
    idle: float = 60.0
    """Seconds between two requests."""
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    """Seconds for a body, plus one for each ``body_rate`` bytes of it that have arrived."""
    body_rate: int = 1 << 10
    unknown: int = 32 << 20
    """Bytes of requests of unknown senders, for each address."""
    unknown_in_all: int = 128 << 20
    stall: float = 60.0
    """Seconds without reading after which a client is cut off."""
    drain: int = 256 << 10
    """Bytes of an unwanted body that are read to keep the connection usable."""
    linger: float = 2.0
    """Seconds of silence until a connection that ends is closed."""
    linger_most: float = 30.0
    """Seconds until it is closed at the latest."""
    linger_bytes: int = 64 << 20
    """Bytes that are read in that time."""


def limits_of_process() -> ClientLimits:
    """The limits that the open files of this process allow, after raising their number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + _RESERVE
    if soft < wanted:
        soft = min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = min(_CONNECTIONS, max(soft - _RESERVE, soft // 2))
    return ClientLimits(connections=room)


UNCOUNTED: Final = 16 << 10
"""Smaller bodies (in bytes) are not counted."""
_BODIES_EACH: Final = 4
"""Bodies of the largest size that one actor may send at the same time."""
_BODIES: Final = 16
"""The same for all actors together."""


class BodyBudget:
    """Counts the bytes of bodies that are being received or answered."""

    def __init__(self, largest: int) -> None:
        """``largest``: bytes of the largest body."""
        self._most_each = _BODIES_EACH * largest
        self._most = _BODIES * largest
        self._held: dict[str, int] = {}
        self.total = 0
        """The bytes of all actors."""

    def take(self, whose: str, count: int) -> JsonReply | None:
        """Count bytes, or return the refusal if they exceed the limit."""
        held = self._held.get(whose, 0) + count
        if held > self._most_each:
            message = (
                f"Your unfinished requests have bodies of more than {self._most_each:,} bytes in "
                "total; wait for one to be answered, then send this one again."
            )
            return problem_reply(429, "budget", message, more=[(b"retry-after", b"1")])
        if self.total + count > self._most:
            message = "Too many request bodies are being sent to this server; try again in a while."
            return problem_reply(503, "busy", message, more=[(b"retry-after", b"5")])
        self._held[whose] = held
        self.total += count
        return None

    def give_back(self, whose: str, count: int) -> None:
        """Stop counting bytes."""
        self.total -= count
        left = self._held[whose] - count
        if left:
            self._held[whose] = left
        else:
            del self._held[whose]


class ArrivalBudget:
    """Counts the bytes that connections hold for unknown senders."""

    def __init__(self, each: int, in_all: int) -> None:
        """``each``: the limit for one address."""
        self._each = each
        self._in_all = in_all
        self._held: dict[str, int] = {}
        self.total = 0

    def change(self, address: str, by: int) -> bool:
        """Count more or fewer bytes; returns whether they are within the limit."""
        held = self._held.get(address, 0) + by
        self.total += by
        if held:
            self._held[address] = held
        else:
            self._held.pop(address, None)
        # Behind a Unix socket there may be any number of clients.
        return self.total <= self._in_all and (held <= self._each or not address)


class CountedBody:
    """The received part of one body."""

    def __init__(self, budget: BodyBudget, actor: Actor, client: tuple[str, int] | None) -> None:
        # Without a credential, all callers share a name.
        address = "" if actor.credential or client is None else client[0]
        self._whose = f"{actor.name} {address}"
        self._budget = budget
        self._size = 0
        self._is_refused = False

    def take(self, count: int) -> JsonReply | None:
        """Count bytes, or return the refusal."""
        reply = self._budget.take(self._whose, count)
        if reply is None:
            self._size += count
        return reply

    def release(self) -> None:
        """Stop counting: the request is answered."""
        if self._size:
            self._budget.give_back(self._whose, self._size)

    def receive_counted(self, receive: Receive, send: Send) -> Receive:
        """A ``receive`` for a body of unknown length, which stops at the limit."""

        async def receive_part() -> Message:
            message = await receive()
            reply = self.take(len(message.get("body", b"")))
            if reply is None:
                return message
            self._is_refused = True
            await reply.send(send)
            return {"type": "http.disconnect"}

        return receive_part

    def send_unless_refused(self, send: Send) -> Send:
        """A ``send`` that drops the application's answer if the body was refused."""

        async def send_part(message: Message) -> None:
            if not self._is_refused:
                await send(message)

        return send_part
