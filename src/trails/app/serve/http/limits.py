"""How much time and memory of a server one client may take.

Memory is counted for each sender and in all. A body counts from the moment that its length is
known, or that a part of it arrives, until its request is answered; before authentication it counts
for the address that it comes from. Loads are not counted, because they are spooled to disk.
"""

from __future__ import annotations

import resource
from typing import Final

import msgspec
from starlette.types import Message, Receive, Send

from trails.app.serve.http.responses import JsonReply, error_body
from trails.model.actors import Actor

_CONNECTIONS: Final = 10_000
_RESERVE: Final = 1024
"""Open files that the server itself may need."""


class ClientLimits(msgspec.Struct, frozen=True):
    """What one client may take."""

    connections: int = _CONNECTIONS
    """At the same time, of all clients."""
    target: int = 16 << 10
    """Bytes of what a request is for."""
    line: int = 16 << 10
    """Bytes of a header."""
    lines: int = 128
    head: int = 64 << 10
    """Bytes of all headers."""
    idle: float = 60.0
    """Seconds between two requests."""
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    """Until a body is there, and one more for each ``body_rate`` bytes that are."""
    body_rate: int = 1 << 10
    unknown: int = 32 << 20
    """Bytes of requests whose sender is not known yet, for each address."""
    unknown_in_all: int = 128 << 20
    stall: float = 60.0
    """Seconds for which a client may read nothing of its answer."""
    drain: int = 256 << 10
    """Bytes of an unwanted body that are read so that the connection can go on."""
    linger: float = 2.0
    """Seconds in which what is still sent is read, so that an answer is not lost with it."""
    linger_most: float = 30.0
    """Seconds in which that goes on, as long as something comes."""
    linger_bytes: int = 64 << 20
    """Bytes that are read in that time."""


def limits_of_process() -> ClientLimits:
    """The limits that this process can keep; it is allowed as many open files as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + _RESERVE
    if soft < wanted:
        soft = min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = min(_CONNECTIONS, max(soft - _RESERVE, soft // 2))
    return ClientLimits(connections=room)


UNCOUNTED: Final = 16 << 10
"""Bytes of a body that is too small to count."""
_BODIES_EACH: Final = 4
"""Bodies of the largest size that one actor may have under way."""
_BODIES: Final = 16
"""And all actors together."""


class BodyBudget:
    """Bytes of bodies that are under way."""

    def __init__(self, largest: int) -> None:
        """``largest`` is how many bytes one body may have."""
        self._most_each = _BODIES_EACH * largest
        self._most = _BODIES * largest
        self._held: dict[str, int] = {}
        self.total = 0
        """Of all actors."""

    def take(self, whose: str, count: int) -> JsonReply | None:
        """Count some bytes; or the reply to a request for which there is no room."""
        held = self._held.get(whose, 0) + count
        if held > self._most_each:
            message = (
                f"Your unfinished requests have bodies of more than {self._most_each:,} bytes in "
                "total; wait for one to be answered, then send this one again."
            )
            return JsonReply(429, error_body("budget", message), [(b"retry-after", b"1")])
        if self.total + count > self._most:
            message = "Too many request bodies are being sent to this server; try again in a while."
            return JsonReply(503, error_body("busy", message), [(b"retry-after", b"5")])
        self._held[whose] = held
        self.total += count
        return None

    def give_back(self, whose: str, count: int) -> None:
        """Count them no more."""
        self.total -= count
        left = self._held[whose] - count
        if left:
            self._held[whose] = left
        else:
            del self._held[whose]


class ArrivalBudget:
    """Bytes that connections hold and that are not known to be of any actor."""

    def __init__(self, each: int, in_all: int) -> None:
        """``each`` is how many of them one address may have."""
        self._each = each
        self._in_all = in_all
        self._held: dict[str, int] = {}
        self.total = 0

    def change(self, address: str, by: int) -> bool:
        """Count more or fewer bytes; whether there is room for them. They count either way."""
        held = self._held.get(address, 0) + by
        self.total += by
        if held:
            self._held[address] = held
        else:
            self._held.pop(address, None)
        # Behind a Unix socket there may be any number of clients.
        return self.total <= self._in_all and (held <= self._each or not address)


class CountedBody:
    """The body of one request, as far as it has come."""

    def __init__(self, budget: BodyBudget, actor: Actor, client: tuple[str, int] | None) -> None:
        # Without a credential all have the same name.
        address = "" if actor.credential or client is None else client[0]
        self._whose = f"{actor.name} {address}"
        self._budget = budget
        self._size = 0
        self._is_refused = False

    def take(self, count: int) -> JsonReply | None:
        """Count some of it; or the reply if there is no room."""
        reply = self._budget.take(self._whose, count)
        if reply is None:
            self._size += count
        return reply

    def release(self) -> None:
        """Its request is answered."""
        if self._size:
            self._budget.give_back(self._whose, self._size)

    def receive_counted(self, receive: Receive, send: Send) -> Receive:
        """A ``receive`` for a body of unknown length, which ends when there is no room for more."""

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
        """A ``send`` that drops what is said after the body was refused."""

        async def send_part(message: Message) -> None:
            if not self._is_refused:
                await send(message)

        return send_part
