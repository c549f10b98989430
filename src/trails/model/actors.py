"""Actors, their credentials and their tokens.

An ``Actor`` is who makes a request, with the most that its credential permits. A ``Secret``
holds a token that must not be shown; this module also finds tokens that were put into other
texts by mistake. A ``TokenRecord`` is what people see of a token. Long work (streams,
uploads) ends with the credential that began it, which is checked again every second.

The HTTP front authenticates a request and puts the result into its ASGI scope under the keys at
the end; MCP and REST read them there. Neither side imports the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal, Never, Protocol

import msgspec

from trails.errors import TrailsError
from trails.model.capabilities import SCOPES, Scope

_LONGEST: Final = 256


class Actor(msgspec.Struct, frozen=True, cache_hash=True):
    """An authenticated caller. Surfaces pass this on, never a token."""

    name: str
    scopes: frozenset[Scope] = frozenset({"runtime"})
    groups: frozenset[str] = frozenset()
    credential: str = ""
    """The id of the credential, never the credential itself; empty without one."""


LOCAL: Final = Actor("local")
"""The user of this machine."""

OPERATOR: Final = Actor("local", frozenset(SCOPES), credential="operator")
"""The operator: a user who can read the project's files, through the command line."""


WEBHOOK: Final = "webhook"
"""The credential of an actor for whom a webhook reads: the operator's settings name it."""


def is_limited(actor: Actor | None) -> bool:
    """Whether quotas apply: without a credential all callers have the same name."""
    return actor is not None and actor.credential not in {"", OPERATOR.credential}


def checked_actor(actor: str) -> str:
    """The name, if it is a legal actor name."""
    if not actor or len(actor) > _LONGEST or not actor.isprintable():
        raise TrailsError(f"{actor[:_LONGEST]!r} can't be an actor: 1 to 256 printable characters")
    return actor


MISPLACED: Final = (
    "A token was found outside the Authorization header, where it could be logged or displayed. "
    "The request was rejected. Send the token in the Authorization header, or over stdio in the "
    "client info. If anyone else may have seen it, revoke it."
)
"""The error for a request with a token outside the Authorization header."""
BEGINNING: Final = b"trails_"
_TOKEN: Final = re.compile(rb"trails_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
_WHOLE: Final = re.compile(r"trails_[0-9a-f]{12}_([A-Za-z0-9_-]{43})")
_LEAST: Final = 16
"""Shorter tokens are not searched for by their text: they could occur anywhere."""


class Secret:
    """A token on its way to verification. It can be passed on, but not printed or pickled."""

    __slots__ = ("_spelled", "_text", "of_project")

    def __init__(self, text: str) -> None:
        self._text = text
        self.of_project: Final = _WHOLE.fullmatch(text) is not None
        """Whether it has the format of a project token."""
        self._spelled: tuple[bytes, ...] | None = None

    def reveal(self) -> str:
        """The text itself, for comparing and hashing only."""
        return self._text

    def occurs_in(self, data: bytes | bytearray) -> bool:
        """Whether the data contains it, plain or in a JSON spelling; short tokens are never found.

        For a project token, the secret part counts: with the id, which lists show, it is complete.
        """
        if self._spelled is None:
            self._spelled = _spell(self._text) if len(self._text) >= _LEAST else ()
        for each in self._spelled:  # noqa: SIM110 - a generator takes longer than the search
            if each in data:
                return True
        return False

    def __repr__(self) -> str:
        """Reveal nothing, not even the length."""
        return "Secret(…)"

    __str__ = __repr__

    def __reduce__(self) -> Never:
        """Refuse to be pickled."""
        raise TypeError("a secret can't be pickled or copied")


def holds_token(data: bytes | bytearray, presented: Secret | None = None) -> bool:
    """Whether the data contains a project token, or the one that was presented."""
    if BEGINNING in data and _TOKEN.search(data) is not None:
        return True
    return presented is not None and presented.occurs_in(data)


def redact_tokens(data: bytes) -> bytes:
    """The data with the secrets of project tokens replaced; their ids stay."""
    return (
        _TOKEN.sub(lambda found: found[0][:20] + b"[redacted]", data) if BEGINNING in data else data
    )


def may_hide(data: bytes | bytearray, presented: Secret | None = None) -> bool:
    """Whether escapes may hide a token; in a project token only numeric escapes can."""
    return (b"\\u" if presented is None or presented.of_project else b"\\") in data


def _spell(text: str) -> tuple[bytes, ...]:
    project = _WHOLE.fullmatch(text)
    if project is not None:
        return (project[1].encode(),)
    raw = text.encode(errors="surrogateescape")
    quoted = msgspec.json.encode(raw.decode(errors="replace"))[1:-1]
    return (raw,) if quoted == raw else (raw, quoted)


TokenState = Literal["valid", "expired", "revoked"]


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A token's metadata."""

    id: str
    """Identifies the token; grants nothing."""
    actor: str
    groups: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ("runtime",)
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    def state(self, now: datetime) -> TokenState:
        """``valid`` at a time, or why not."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "valid"


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A token to be created."""

    actor: str
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("runtime",)
    expires: str | None = None
    """A duration (``30d``) or a time; None: it does not expire."""


class IssuedToken(msgspec.Struct, frozen=True):
    """A new token, with the secret, which is shown only once."""

    record: TokenRecord
    token: Secret


IsCurrent = Callable[[Actor], bool]
"""Whether an actor's credential is still valid."""


class Lasting(Protocol):
    """Long work for actors: streams, watches, uploads."""

    def actors(self) -> set[Actor]:
        """The actors that it runs for."""

    def end_those_of(self, actors: set[Actor]) -> None:
        """Stop it for these actors."""


def end_stale(kind: Lasting, is_current: IsCurrent) -> None:
    """Stop work for actors whose credential has ended."""
    stale = {actor for actor in kind.actors() if not is_current(actor)}
    if stale:
        kind.end_those_of(stale)


ACTOR_KEY: Final = "trails.actor"
"""The ``Actor`` that sends the request."""
CHALLENGE_KEY: Final = "trails.challenge"
"""A function from a missing scope to the ``WWW-Authenticate`` value that asks for it, or None."""
PRESENTED_KEY: Final = "trails.presented"
"""The ``Secret`` that came in the ``Authorization`` header."""
SECURITY_KEY: Final = "trails.security"
"""The ``Security`` that the card of a graph describes."""
LISTENER_KEY: Final = "trails.listener"
"""The ``Listener`` that accepted the connection: its host policy and its authenticator."""
MAX_BODY: Final = 32 << 20
"""Bytes of a message or body that is read as a whole, unless the application sets another limit."""
