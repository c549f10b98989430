"""The lines that an owner and a front exchange around a session on the ``mcp`` socket.

A connection begins with a Hello, answered by a Welcome. Then it carries JSON-RPC, one
message a line. An owner that ends in order says Goodbye.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from trails.model.capabilities import Scope
from trails.model.secrets import Secret

_GOODBYE: Final = b'{"goodbye":'


class Hello(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a front asks for: a session on a graph, or, without one, to know when the owner ends."""

    graph: str | None = None
    scopes: tuple[Scope, ...] = ("runtime",)
    """What the client may use at most."""
    token: Secret | None = None
    """What the front presents for its client."""
    wanted: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """The hash, in hexadecimal, of a token that the front wants from its client; or nothing."""


class Welcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer: all is well, or why there is no session."""

    code: str = ""
    message: str = ""
    data: Mapping[str, object] = {}


class Goodbye(msgspec.Struct, frozen=True):
    """The last line of an owner: how many lines of JSON-RPC it took. They are all answered."""

    goodbye: int


def write_hello(hello: Hello) -> bytes:
    """A hello as a line; it goes into a socket of this user and nowhere else."""
    return msgspec.json.encode(hello, enc_hook=_reveal)


def read_hello(line: bytes) -> Hello:
    """The hello that a line is, or msgspec's error."""
    return msgspec.json.decode(line, type=Hello, dec_hook=_conceal)


def _reveal(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError


def _conceal(kind: type, value: object) -> object:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise ValueError("a token is a text")


def read_goodbye(line: bytes) -> Goodbye | None:
    """Whether a line is the owner's last."""
    return msgspec.json.decode(line, type=Goodbye) if line.startswith(_GOODBYE) else None
