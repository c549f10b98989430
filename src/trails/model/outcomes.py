"""What comes of a request: a result in JSON, or a failure of a known kind.

Surfaces translate both; they decide nothing. A result is encoded once, here,
and its bytes are handed on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

FailureKind = Literal[
    "unknown",  # no such tool, or one that the actor may not see
    "validation",  # arguments or data that break rules; data["fields"] has all of them
    "unauthenticated",  # a credential that is missing or wrong
    "scope",  # a scope that the credential lacks
    "denied",  # a rule that denies these arguments of a visible tool
    "budget",  # an actor that has used up what it may use
    "semantic",  # anything else that the caller can do something about
    "internal",  # anything that it can't; data["trace_id"] finds it in the server's log
]


class Success(msgspec.Struct, frozen=True):
    """A result: the JSON text of an object."""

    body: bytes
    """As msgspec encodes it, so that decoding and encoding it again gives the same bytes."""


class Failure(msgspec.Struct, frozen=True):
    """What went wrong, said so that the caller can act on it."""

    kind: FailureKind
    code: str
    """Stable, from the error tree: ``not_found``, ``conflict``, …"""
    message: str
    """Complete in itself: names the field, the value, the rule and the next step."""
    data: Mapping[str, object] = {}
    """JSON-ready."""


Outcome = Success | Failure
