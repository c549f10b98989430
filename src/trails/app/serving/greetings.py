"""The lines that an owner and a front exchange around a session on the ``mcp`` socket.

A connection begins with a Hello, answered by a Welcome. Then it carries JSON-RPC, one
message a line. An owner that ends in order says Goodbye.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trails.model.actors import LOCAL, Actor

_GOODBYE: Final = b'{"goodbye":'


class Hello(msgspec.Struct, frozen=True):
    """What a front asks for: a session on a graph, or, without one, to know when the owner ends."""

    graph: str | None = None
    actor: Actor = LOCAL


class Welcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer: all is well, or why there is no session."""

    code: str = ""
    message: str = ""
    data: Mapping[str, object] = {}


class Goodbye(msgspec.Struct, frozen=True):
    """The last line of an owner: how many lines of JSON-RPC it took. They are all answered."""

    goodbye: int


def read_goodbye(line: bytes) -> Goodbye | None:
    """Whether a line is the owner's last."""
    return msgspec.json.decode(line, type=Goodbye) if line.startswith(_GOODBYE) else None
