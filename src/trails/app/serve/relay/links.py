"""Connections between a front and an owner: their opening lines, and how an owner is found.

On the ``mcp`` socket, a connection begins with a Hello, answered by a Welcome, then carries
JSON-RPC, one message a line; an owner that ends gracefully says Goodbye.

On the ``http`` socket, a connection begins with one line, a Preamble: a front says what it
requires of its clients, or the command line shows the owner's key. Everything after that line
is HTTP, so nothing that a client sends can be mistaken for a Preamble. A ``Listener`` is one
way in.

``attach`` and ``own_or_find`` find the owner of a folder, or become it, whichever is possible
first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from hmac import compare_digest
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final, Self, TypeVar

import msgspec

from trails.app.ownership import Ownership
from trails.app.serve.http.hosts import Bind, HostPolicy
from trails.app.serve.relay.owners import OwnerAddress, connect_streams, find_owner
from trails.app.settings import DATA_FOLDER
from trails.errors import LockedError, SettingsError, TrailsError
from trails.identity.oauth.challenges import PLAIN, Challenges
from trails.imports import later
from trails.model.actors import LOCAL, Secret
from trails.model.capabilities import Scope

if TYPE_CHECKING:
    from trails.app.serve.relay import frames
    from trails.request import authenticate
    from trails.request.authenticate import Authenticator
else:
    frames = later("trails.app.serve.relay.frames")
    authenticate = later("trails.request.authenticate")

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
        self._lines = frames.LineReader(lambda: reader.read(_BLOCK))
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
        except (OSError, frames.LineTooLongError):
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
        self.callers = authenticate.HttpCallers(
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


_SHORTEST: Final = 0.01
_LONGEST: Final = 0.25
"""Seconds between two attempts."""
_SOON: Final = 1.0
"""Seconds of waiting that are not reported."""
_COMMAND_WAITS: Final = 10.0
"""Seconds that a command waits for a folder."""
_HOPELESS: Final = {"elsewhere": 0.0, "orphaned": _COMMAND_WAITS, "unreachable": _COMMAND_WAITS}
"""Seconds after which waiting is useless, by the reason of the lock."""

_T = TypeVar("_T")


async def attach(
    folder: Path,
    connect: Callable[[OwnerAddress], Awaitable[_T]],
    report: Callable[[str], None],
    wait: Callable[[float, LockedError], Awaitable[None]] | None = None,
) -> Ownership | _T:
    """Own a folder, or connect to its owner.

    While neither is possible, because another process starts, ends or uses the folder alone,
    ``wait`` is called after each attempt with the seconds waited and the reason; ``report`` reports
    it once. Raises LockedError if this process can never reach the one that holds the lock.
    """
    began = monotonic()
    pause = _SHORTEST
    reported = False
    while True:
        try:
            return Ownership(folder / DATA_FOLDER, patience=0)
        except LockedError as error:
            locked = error
        address = find_owner(folder)
        if address is not None:
            try:
                return await connect(address)
            except OSError:
                pass  # it is ending, or has ended since its file was read
        waited = monotonic() - began
        _check_waiting(locked, waited)
        if waited > _SOON and not reported:
            reported = True
            report(f"waiting: {locked.message}")
        if wait is not None:
            await wait(waited, locked)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)


def own_or_find(folder: Path, report: Callable[[str], None]) -> Ownership | OwnerAddress:
    """Own a folder for a while, or find the process that serves it.

    A new owner needs a moment until it serves; LockedError reports one that does not.
    """
    began = monotonic()
    while True:
        address = find_owner(folder)
        if address is not None:
            return address
        try:
            return Ownership(folder / DATA_FOLDER)
        except LockedError as locked:
            _check_waiting(locked, waited := monotonic() - began)
            if waited > _COMMAND_WAITS:
                raise
            report(f"waiting for process {locked.data['pid']}, which has this project open")


def _check_waiting(locked: LockedError, waited: float) -> None:
    """Stop waiting for a lock that will not be released."""
    if waited >= _HOPELESS.get(str(locked.data["reason"]), float("inf")):
        raise locked
