"""Connections between a front and an owner: their opening lines, and what callers must show.

On the ``mcp`` socket, a connection begins with a Hello, answered by a Welcome, then carries
JSON-RPC, one message a line; an owner that ends gracefully says Goodbye.

On the ``http`` socket, a connection begins with one line, a Preamble: a front says what it
requires of its clients, or the command line shows the owner's key. Everything after that line
is HTTP, so nothing that a client sends can be mistaken for a Preamble. A ``Listener`` is one
way in.
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
from trails.identity.oauth.challenges import PLAIN, Challenges
from trails.model.actors import LOCAL, Secret
from trails.model.capabilities import Scope
from trails.request.authenticate import Authenticator, HttpCallers

_GOODBYE: Final = b'{"goodbye":'


class Hello(msgspec.Struct, frozen=True, omit_defaults=True):
    """A front's first line: it wants a session on a graph or, without one, to watch the owner."""

    graph: str | None = None
    scopes: tuple[Scope, ...] = ("runtime",)
    """The most that the client may use."""
    token: Secret | None = None
    """The token that the front presents for its client."""
    wanted: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """The hash (hexadecimal) of a token that the front requires of its client, if any."""


class Welcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer: accepted, or why there is no session."""

    code: str = ""
    message: str = ""
    data: Mapping[str, object] = {}


class Goodbye(msgspec.Struct, frozen=True):
    """An owner's last line: how many JSON-RPC lines it took, all of which are answered."""

    goodbye: int


def write_hello(hello: Hello) -> bytes:
    """Encode a hello; it is only sent to a socket of this user."""
    return msgspec.json.encode(hello, enc_hook=_reveal)


def read_hello(line: bytes) -> Hello:
    """Decode a hello; raises msgspec's errors."""
    return msgspec.json.decode(line, type=Hello, dec_hook=_conceal)


def _reveal(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError


def _conceal(kind: type, value: object) -> object:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise ValueError("a token must be a string")


def read_goodbye(line: bytes) -> Goodbye | None:
    """Return the Goodbye that a line is, or None."""
    return msgspec.json.decode(line, type=Goodbye) if line.startswith(_GOODBYE) else None


_BLOCK: Final = 1 << 16
_PATIENCE: Final = 10.0
"""Seconds that an owner has to answer a hello."""


class SessionRefusedError(TrailsError):
    """An owner refused the session; the code is the owner's."""

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
        """The owner's goodbye, if it ended gracefully."""

    @classmethod
    async def open(cls, address: OwnerAddress, hello: Hello) -> Self:
        """Connect; raise OSError if there is no owner, SessionRefusedError if it refuses."""
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
        """Send lines; raise OSError if the owner is gone."""
        if lines:
            self._writer.write(b"\n".join(lines) + b"\n")
            await self._writer.drain()

    async def next(self) -> bytes | None:
        """Return the next line, or None if the owner is gone."""
        try:
            line = await self._lines.next()
        except (OSError, LineTooLongError):
            return None
        if line is not None:
            self.goodbye = read_goodbye(line)
        return None if self.goodbye is not None else line

    def close(self) -> None:
        self._writer.close()


class Preamble(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a connection to the ``http`` socket: who it acts for."""

    bind: Bind = Bind()
    scopes: frozenset[Scope] = LOCAL.scopes
    """The most that any caller may use there."""
    token: str = ""
    """The hash (hexadecimal) of the token that the front was started with."""
    operator: str = ""
    """The owner's key, known to those who may read its file."""

    def line(self) -> bytes:
        """Return the line as it is sent."""
        return msgspec.json.encode(self) + b"\n"


class Listener:
    """One way in: the hosts that it accepts, and how its callers authenticate."""

    def __init__(
        self,
        policy: HostPolicy,
        authenticator: Authenticator,
        challenges: Challenges = PLAIN,
        *,
        operator: bool = False,
    ) -> None:
        self.policy = policy
        self.authenticator = authenticator
        self.callers = HttpCallers(
            authenticator, challenges, operator=operator, mandatory=policy.bind.credentials
        )


class Listeners:
    """All ways into one owner; ``main`` is that of its own ports."""

    def __init__(self, main: Listener, key: Secret) -> None:
        self.main = main
        self._key = key.reveal().encode()
        self._known = lru_cache(64)(self._open)

    def admit(self, line: bytes) -> Listener | None:
        """Return the way in for a Preamble; None if it is invalid."""
        return self._known(line)

    def _open(self, line: bytes) -> Listener | None:
        try:
            preamble = msgspec.json.decode(line, type=Preamble)
            policy = HostPolicy(preamble.bind)
            digest = bytes.fromhex(preamble.token)
        except (msgspec.MsgspecError, SettingsError, ValueError):
            return None
        if preamble.operator and not compare_digest(preamble.operator.encode(), self._key):
            return None
        process = msgspec.structs.replace(LOCAL, scopes=preamble.scopes)
        behind = self.main.authenticator.through(process, digest or None)
        challenges = self.main.callers.challenges
        return Listener(policy, behind, challenges, operator=bool(preamble.operator))
