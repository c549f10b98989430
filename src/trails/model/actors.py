"""Who makes a request, and what its credential permits at most."""

from __future__ import annotations

from typing import Final

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
