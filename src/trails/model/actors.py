"""Actors, their credentials and their tokens.

An ``Actor`` is who makes a request, with the most that its credential permits. A ``Secret``
holds a token that must not be shown; this module also finds tokens that were put into other
texts by mistake. A ``TokenRecord`` is what people see of a token. Long work (streams,
uploads) ends with the credential that began it, which is checked again every second.
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
    """A resolved caller; surfaces hand it on, and never a token."""

    name: str
    scopes: frozenset[Scope] = frozenset({"runtime"})
    groups: frozenset[str] = frozenset()
    credential: str = ""
    """The id of the credential that it came with, never the credential; empty where it had none."""


LOCAL: Final = Actor("local")
"""Whoever sits at this machine."""

OPERATOR: Final = Actor("local", frozenset(SCOPES), credential="operator")
"""Whoever may read the project's own files: the command line, on the machine that they are on."""


def is_limited(actor: Actor | None) -> bool:
    """Whether quotas are for it: without a credential all callers have the same name."""
    return actor is not None and actor.credential not in {"", OPERATOR.credential}


def checked_actor(actor: str) -> str:
    """An actor's name, if it can be one."""
    if not actor or len(actor) > _LONGEST or not actor.isprintable():
        raise TrailsError(f"{actor[:_LONGEST]!r} can't be an actor: 1 to 256 printable characters")
    return actor


MISPLACED: Final = (
    "A token was found outside the Authorization header, where it could be logged or displayed. "
    "The request was rejected. Send the token in the Authorization header, or over stdio in the "
    "client info. If anyone else may have seen it, revoke it."
)
"""The error of a request that has a token where it does not belong."""
BEGINNING: Final = b"trails_"
_TOKEN: Final = re.compile(rb"trails_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
_WHOLE: Final = re.compile(r"trails_[0-9a-f]{12}_([A-Za-z0-9_-]{43})")
_LEAST: Final = 16
"""Characters of a token that is looked for by its text: a shorter one may stand anywhere."""


class Secret:
    """A token on its way to whoever checks it: it can be passed on, and shows itself to nobody."""

    __slots__ = ("_spelled", "_text", "of_project")

    def __init__(self, text: str) -> None:
        self._text = text
        self.of_project: Final = _WHOLE.fullmatch(text) is not None
        """Whether it has the form of a project's token."""
        self._spelled: tuple[bytes, ...] | None = None

    def reveal(self) -> str:
        """The text itself; for comparing and hashing alone."""
        return self._text

    def stands_in(self, data: bytes) -> bool:
        """Whether it is there as it is, or as JSON spells it; one that is short is never found.

        Of a project's token the secret part is enough: with the id, which lists show, it is one.
        """
        if self._spelled is None:
            self._spelled = _spell(self._text) if len(self._text) >= _LEAST else ()
        return any(each in data for each in self._spelled)

    def __repr__(self) -> str:
        """Nothing of it, not even its length."""
        return "Secret(…)"

    __str__ = __repr__

    def __reduce__(self) -> Never:
        """Refuse to be written anywhere."""
        raise TypeError("a secret can't be pickled or copied")


def holds_token(data: bytes, presented: Secret | None = None) -> bool:
    """Whether a token of a project stands somewhere in it, or the one that came with it."""
    if BEGINNING in data and _TOKEN.search(data) is not None:
        return True
    return presented is not None and presented.stands_in(data)


def may_hide(data: bytes, presented: Secret | None = None) -> bool:
    """Whether JSON may spell a token in another way; of a project's it can only be by number."""
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
    """What is known of a token."""

    id: str
    """Names it, opens nothing."""
    actor: str
    groups: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ("runtime",)
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    def state(self, now: datetime) -> TokenState:
        """Whether it is good at some time, or why not."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "valid"


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is asked for."""

    actor: str
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("runtime",)
    expires: str | None = None
    """A duration (``30d``) or a time; never if it is None."""


class IssuedToken(msgspec.Struct, frozen=True):
    """A new token: the only time that it can be shown."""

    record: TokenRecord
    token: Secret


IsCurrent = Callable[[Actor], bool]
"""Whether an actor that was resolved some time ago would be resolved again."""


class Lasting(Protocol):
    """Something that goes on for its actors."""

    def actors(self) -> set[Actor]:
        """For whom."""

    def end_those_of(self, actors: set[Actor]) -> None:
        """Stop it for some of them."""


def end_stale(kind: Lasting, is_current: IsCurrent) -> None:
    """Stop what goes on for actors that are not current any more."""
    stale = {actor for actor in kind.actors() if not is_current(actor)}
    if stale:
        kind.end_those_of(stale)
