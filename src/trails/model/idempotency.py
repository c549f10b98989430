"""Idempotency keys: the first outcome of a write, kept so that a retry gets it again.

A key belongs to one actor and one branch, and stands for one request. Sent again, the
request is not repeated but answered with what came of it the first time; another request
with the same key is a conflict. A write that failed leaves no key behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec

from trails.errors import ConflictError

KEEP_DAYS: Final = 30
"""For how long a key is kept, unless the settings say otherwise."""


class KeyedOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a write that was sent with a key."""

    branch: str
    actor: str
    key: str
    request: str
    """A digest of what was asked for; empty where a version before digests wrote it."""
    expires: str
    commit: str | None = None
    """The commit that it made or moved the branch to; None where nothing changed."""
    result: Mapping[str, object] = {}
    """What else the operation answered, in JSON form."""


class RequestDigest:
    """A digest of a request, taken in parts: equal requests, equal digest, in any process."""

    def __init__(self, *parts: object) -> None:
        self._hash = sha256()
        for part in parts:
            self.add(part)

    def add(self, part: object) -> None:
        """Take one more part: anything that JSON can say, and instances of node types."""
        # Not msgspec, which refuses lone surrogates; what a request holds is checked later.
        text = json.dumps(part, sort_keys=True, separators=(",", ":"), default=_plain)
        self._hash.update(text.encode() + b"\n")

    def hex(self) -> str:
        """The digest of all parts so far."""
        return self._hash.hexdigest()


def _plain(value: object) -> object:
    """What JSON has no form for, as something that it has one for."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    handle = getattr(value, "handle", None)
    return handle if isinstance(handle, str) else f"{type(value).__name__} {value}"


def expiry(time: str, days: int) -> str:
    """When a key that was used at a time is forgotten."""
    end = datetime.fromisoformat(time) + timedelta(days=days)
    return end.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_request(found: KeyedOutcome, request: str) -> None:
    """Refuse a key that was used for another request."""
    if found.request in {"", request}:
        return
    raise ConflictError(
        f"the idempotency key {found.key!r} was used for another request on branch "
        f"{found.branch!r}; nothing was written. Use a new key for a new change, and repeat the "
        "same arguments to retry an earlier one",
        branch=found.branch,
        idempotency_key=found.key,
    )
