"""What is under way on the connections of a server: answers that are sent, bodies that arrive.

It ends with the credential that it was asked for with. That is looked at from outside, once a
second, so a request costs none of it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final, Protocol

from trails.app.serving.responses import write_refusal
from trails.model.actors import Actor

ENDED: Final = write_refusal(
    401,
    "unauthenticated",
    "the credential of this request was revoked or has expired while it was under way, so it was "
    "broken off; with another one, see whether it took effect before you send it again",
    [(b"www-authenticate", b'Bearer error="invalid_token"')],
)
"""The answer to a request that has none yet."""
_AT_ONCE: Final = struct.pack("ii", 1, 0)


class Connection(Protocol):
    """One connection, as far as it matters here."""

    def served(self) -> Actor | None:
        """For whom something is under way on it."""

    def cut(self) -> None:
        """End that, unless this is the first time that it is asked for: it may end in order."""


class Underway:
    """Everything that is under way."""

    def __init__(self, connections: Collection[Connection]) -> None:
        """``connections`` are those that there are at any time."""
        self._connections = connections

    def actors(self) -> set[Actor]:
        """For whom."""
        return {actor for _, actor in self._served()}

    def end_those_of(self, actors: set[Actor]) -> None:
        """End it for some of them."""
        for each, actor in self._served():
            if actor in actors:
                each.cut()

    def _served(self) -> Iterator[tuple[Connection, Actor]]:
        for each in tuple(self._connections):
            actor = each.served()
            if actor is not None:
                yield each, actor


def break_off(transport: asyncio.Transport) -> None:
    """End a connection so that nobody can take what was sent for all of it.

    What waits to be sent is dropped, here and in the system.
    """
    with suppress(OSError):  # it is gone already
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()
