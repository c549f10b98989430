"""How much of a server's time and memory one client may take before it is known."""

from __future__ import annotations

import resource
from typing import Final

import msgspec

_CONNECTIONS: Final = 10_000
_RESERVE: Final = 1024
"""Open files that the server itself may need."""


class Limits(msgspec.Struct, frozen=True):
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
    """Seconds in which somebody who is being answered takes nothing."""
    drain: int = 256 << 10
    """Bytes of a body that nobody wants, which are read so that the connection can go on."""
    linger: float = 2.0
    """Seconds in which what is still sent is read, so that an answer is not lost with it."""
    linger_most: float = 30.0
    """Seconds in which that goes on, as long as something comes."""
    linger_bytes: int = 64 << 20
    """Bytes that are read in that time."""


def limits_of_process() -> Limits:
    """The limits that this process can keep; it is allowed as many open files as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + _RESERVE
    if soft < wanted:
        soft = min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = min(_CONNECTIONS, max(soft - _RESERVE, soft // 2))
    return Limits(connections=room)
