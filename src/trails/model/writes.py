"""Loads, mutations and idempotency keys, as values.

An idempotency key belongs to one actor, one branch and one request. A repeated request is
answered with the first outcome and not run again; another request with the same key is a
conflict. A write that failed stores no key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import IO, Final, Literal

import msgspec

from trails.errors import ConflictError

Mode = Literal["merge", "append", "overwrite"]


class LoadLimits(msgspec.Struct, frozen=True):
    """Limits on the decompressed size of files."""

    expanded: int = 16 << 30
    """Bytes of a file, decompressed."""
    ratio: int = 200
    """The largest compression ratio beyond the first 64 MiB."""
    blank_lines: int = 100_000


LOAD_LIMITS: Final = LoadLimits()


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Files that become one commit on one branch."""

    files: tuple[Path | IO[bytes] | Iterable[bytes], ...]
    format: str | None = None
    """None: taken from the names of the files."""
    mode: Mode = "merge"
    type_name: str | None = None
    """For CSV: the type of the rows."""
    separator: str = "|"
    """For CSV: the separator of list values."""
    branch: str = "main"
    source: str | None = None
    """A branch or commit from which ``branch`` is created if it does not exist."""
    message: str = ""
    expected_head: str | None = None
    idempotency_key: str | None = None


class LoadResult(msgspec.Struct, frozen=True):
    """What a load did."""

    branch: str
    commit: str | None
    """None when nothing changed."""
    nodes: int = 0
    """The number of nodes in the files, including edges."""
    deleted: int = 0
    forked: bool = False
    """Whether the branch was created for it."""
    replayed: bool = False
    """The idempotency key was known: this is the earlier commit; nothing was done now."""


Op = Literal["create", "update", "delete", "upsert"]


class Applied(msgspec.Struct, frozen=True):
    """What one typed operation did, and to which node."""

    op: Op
    type: str
    id: str
    handle: str


class Mutation(msgspec.Struct, frozen=True):
    """The result of a call: its commit, None when nothing changed, and the nodes."""

    commit: str | None
    applied: tuple[Applied, ...] = ()
    replayed: bool = False
    """The idempotency key was known: this is the earlier commit; nothing was done now."""


KEEP_DAYS: Final = 30
"""How long a key is kept, unless the settings say otherwise."""


class KeyedOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a write with a key."""

    branch: str
    actor: str
    key: str
    request: str
    """A digest of the request; empty if written by a version without digests."""
    expires: str
    commit: str | None = None
    """The commit that it created or moved the branch to; None if nothing changed."""
    result: Mapping[str, object] = {}
    """The rest of the operation's result, in JSON form."""


class RequestDigest:
    """A digest of a request, taken in parts: equal requests, equal digest, in any process."""

    def __init__(self, *parts: object) -> None:
        self._hash = sha256()
        for part in parts:
            self.add(part)

    def add(self, part: object) -> None:
        """Add a part: a JSON value, or one with instances of node types."""
        # Not msgspec, which refuses lone surrogates; the request is validated later.
        text = json.dumps(part, sort_keys=True, separators=(",", ":"), default=_plain)
        self._hash.update(text.encode() + b"\n")

    def hex(self) -> str:
        """The digest of all parts so far."""
        return self._hash.hexdigest()


def _plain(value: object) -> object:
    """A value without a JSON form, as one that has a form."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    handle = getattr(value, "handle", None)
    return handle if isinstance(handle, str) else f"{type(value).__name__} {value}"


def expiry(time: str, days: int) -> str:
    """When a key that was used at ``time`` expires."""
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
