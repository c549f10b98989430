"""A front's connection to the ``mcp`` socket of an owner.

The lines that an owner and a front exchange around a session on the ``mcp`` socket.

A connection begins with a Hello, answered by a Welcome. Then it carries JSON-RPC, one
message a line. An owner that ends in order says Goodbye.

Ways into an owner: what is asked of whoever comes in by each.

An owner's ports are such ways. Its ``http`` socket has as many as there are programs behind
it: a connection there begins with one line, an Arrival, in which a front says what *it* was
told to ask of its clients, or the command line that it acts for whoever owns the files.
Everything after that line is HTTP, so nothing that a client sends can be taken for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hmac import compare_digest
from typing import Annotated, Final, Self

import msgspec

from trails.app.serve.http.hosts import Bind, HostPolicy
from trails.app.serve.relay.frames import LineReader, LineTooLongError
from trails.app.serve.relay.owners import OwnerAddress
from trails.app.serve.relay.socket_folders import connect_streams
from trails.errors import SettingsError, TrailsError
from trails.model.actors import LOCAL, OPERATOR, Actor, Secret
from trails.model.capabilities import Scope
from trails.model.results import Failure
from trails.request.authenticate import Authenticator

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


_BLOCK: Final = 1 << 16
_PATIENCE: Final = 10.0
"""Seconds that an owner has to answer a hello."""


class SessionRefusedError(TrailsError):
    """An owner has no session for this front; the code is the one that it gave."""

    def __init__(self, welcome: Welcome) -> None:
        super().__init__(welcome.message, **welcome.data)
        self.code = welcome.code


class Link:
    """One connection, opened with a hello that was accepted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines = LineReader(lambda: reader.read(_BLOCK))
        self._writer = writer
        self.welcome = Welcome()
        self.goodbye: Goodbye | None = None
        """What the owner said at the end, if it ended in order."""

    @classmethod
    async def open(cls, address: OwnerAddress, hello: Hello) -> Self:
        """Connect; OSError when nobody is there, RefusedError when the owner says no."""
        reader, writer = await connect_streams(address.mcp)
        link = cls(reader, writer)
        try:
            link.welcome = await link._greet(hello)
        except BaseException:
            link.close()
            raise
        return link

    async def _greet(self, hello: Hello) -> Welcome:
        async with asyncio.timeout(_PATIENCE):
            await self.send([write_hello(hello)])
            line = await self.next()
        if line is None:
            raise ConnectionError
        welcome = msgspec.json.decode(line, type=Welcome)
        if welcome.code:
            raise SessionRefusedError(welcome)
        return welcome

    async def send(self, lines: Sequence[bytes]) -> None:
        """Send lines; OSError when the owner is gone."""
        if lines:
            self._writer.write(b"\n".join(lines) + b"\n")
            await self._writer.drain()

    async def next(self) -> bytes | None:
        """The next line, or None when the owner is gone."""
        try:
            line = await self._lines.next()
        except (OSError, LineTooLongError):
            return None
        if line is not None:
            self.goodbye = read_goodbye(line)
        return None if self.goodbye is not None else line

    def close(self) -> None:
        """Let go of it."""
        self._writer.close()


class Preamble(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a connection to the ``http`` socket: on whose behalf it comes."""

    bind: Bind = Bind()
    scopes: frozenset[Scope] = LOCAL.scopes
    """All that anybody gets there."""
    token: str = ""
    """What may be kept of the token that the front was started with, in hexadecimal."""
    operator: str = ""
    """The owner's key, from whoever may read its file."""

    def line(self) -> bytes:
        """As it is sent."""
        return msgspec.json.encode(self) + b"\n"


class Listener:
    """One way in."""

    def __init__(
        self, policy: HostPolicy, authenticator: Authenticator, *, operator: bool = False
    ) -> None:
        self.policy = policy
        self.authenticator = authenticator
        self.operator = operator

    def recognise(self, authorization: bytes | None) -> Actor | None:
        """Who asks, where that is known at once; None where it has to be found out."""
        if self.operator and authorization is None:
            return OPERATOR
        actor = self.authenticator.recognise(authorization)
        if actor is None or actor.credential or not self.policy.bind.credentials:
            return actor
        return None

    async def identify(self, authorization: bytes | None) -> Actor | Failure:
        """Who asks; where credentials were promised to be asked for, nobody without one."""
        if self.operator and authorization is None:
            return OPERATOR
        actor = await self.authenticator.bearer(authorization)
        if isinstance(actor, Failure) or actor.credential or not self.policy.bind.credentials:
            return actor
        return Failure(
            "unauthenticated",
            "unauthenticated",
            "this address asks for credentials, and the process that serves the project knows of "
            "none: it was started before they were configured. Restart it",
        )


class Entrances:
    """All ways into one owner; ``main`` is what its own ports have."""

    def __init__(self, main: Listener, key: Secret) -> None:
        self.main = main
        self._key = key.reveal().encode()
        self._known = lru_cache(64)(self._open)

    def admit(self, line: bytes) -> Listener | None:
        """The way in that an Arrival asks for; None where it is none."""
        return self._known(line)

    def _open(self, line: bytes) -> Listener | None:
        try:
            arrival = msgspec.json.decode(line, type=Preamble)
            policy = HostPolicy(arrival.bind)
            digest = bytes.fromhex(arrival.token)
        except (msgspec.MsgspecError, SettingsError, ValueError):
            return None
        if arrival.operator and not compare_digest(arrival.operator.encode(), self._key):
            return None
        process = msgspec.structs.replace(LOCAL, scopes=arrival.scopes)
        behind = self.main.authenticator.through(process, digest or None)
        return Listener(policy, behind, operator=bool(arrival.operator))
