"""Cursors: where a read goes on, as a signed text.

A cursor holds the commit that it reads, until when it may be used, a digest of what is read, and
the place where the read goes on. It is signed with a key of the graph (HMAC-SHA256) together with
the actor, the tool and the branch, which it does not hold: altered, or used by another actor,
with another tool or on another branch, it is refused. Nothing in it is secret, and it gives no
right: every read is authorized anew.

The key is in a private file in the graph's folder, so cursors survive a restart. The key of a
graph in memory, or of one that can't be written and has none, lives as long as the graph is open.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from threading import Lock
from time import time
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from trails.engine.graph.graph import Graph
from trails.errors import CursorError, StaleError
from trails.files import replace_file
from trails.model.iris import canonical
from trails.model.nodes import PageEnd

KEY_FILE: Final = "cursors.key"
LIFETIME: Final = 24 * 3600
"""Seconds for which a cursor can be used, at least."""
STEP: Final = 3600
"""Cursors expire at multiples of this, so that the tag of a page does not change each second."""
_KEY: Final = 32
_SIGNATURE: Final = 16
_DIGEST: Final = 8


class SignedCursor(msgspec.Struct, frozen=True, array_like=True):
    """What a cursor holds."""

    expires: int
    """Seconds since 1970."""
    commit: bytes
    """The state that is read."""
    subject: bytes
    """A digest of what is read: the record and field, or the selection."""
    place: int | str | PageEnd
    """Where to go on: whatever the tool needs."""

    @property
    def offset(self) -> int:
        """The place, of a tool whose places are numbers."""
        assert isinstance(self.place, int)  # noqa: S101 - the signature is for that tool
        return self.place

    @property
    def position(self) -> PageEnd:
        """The place, of a tool that goes on in a selection."""
        assert isinstance(self.place, PageEnd)  # noqa: S101 - the signature is for that tool
        return self.place

    @property
    def commit_id(self) -> str:
        """The commit, as it is known everywhere else."""
        return self.commit.hex()


class Holder(msgspec.Struct, frozen=True):
    """Who may use a cursor, and for what."""

    actor: str
    tool: str
    branch: str
    """The branch, or the snapshot as ``@<commit>``."""


class Cursors:
    """Signs and reads the cursors of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._key = _key_of(graph)

    def sign(self, holder: Holder, commit: str, subject: object, place: int | str | PageEnd) -> str:
        """A cursor for a place of what is read at a commit."""
        expires = (int(time()) // STEP + 1) * STEP + LIFETIME
        made = SignedCursor(expires, bytes.fromhex(commit), _digest(subject), place)
        payload = msgspec.msgpack.encode(made)
        signed = payload + self._signature(holder, payload)
        return urlsafe_b64encode(signed).rstrip(b"=").decode()

    def read(self, holder: Holder, text: str) -> SignedCursor:
        """What a cursor holds; refused unless it was signed for this holder, and is in time."""
        try:
            signed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (TypeError, ValueError):  # a program may pass anything
            raise _invalid() from None
        payload, signature = signed[:-_SIGNATURE], signed[-_SIGNATURE:]
        # Decoding ignores characters outside the alphabet, and the last one has unused bits.
        if urlsafe_b64encode(signed).rstrip(b"=").decode() != text or not hmac.compare_digest(
            signature, self._signature(holder, payload)
        ):
            raise _invalid()
        found = msgspec.msgpack.decode(payload, type=SignedCursor)
        if found.expires < time():
            raise StaleError(
                f"this cursor expired at {expiry(found.expires)}; begin again without a cursor",
                expired=expiry(found.expires),
            )
        return found

    def _signature(self, holder: Holder, payload: bytes) -> bytes:
        about = canonical([holder.actor, holder.tool, holder.branch])
        length = len(about).to_bytes(8, "big")
        return hmac.digest(self._key, length + about + payload, "sha256")[:_SIGNATURE]


def check_subject(cursor: SignedCursor, subject: object) -> None:
    """Refuse a cursor of another record, field or selection."""
    if cursor.subject != _digest(subject):
        raise wrong_subject()


def wrong_subject() -> CursorError:
    """The error for a cursor of something else."""
    return CursorError(
        "this cursor belongs to other arguments; send those of next or previous exactly as an "
        "earlier answer gave them, or begin again without a cursor"
    )


def stale(commit: str) -> StaleError:
    """The error for a state that can't be read any more."""
    return StaleError(
        f"commit {commit} that this cursor reads is gone, or is not on this branch any more; "
        "begin again without a cursor",
        commit=commit,
    )


def expiry(seconds: float) -> str:
    """A moment as answers show it."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def _invalid() -> CursorError:
    return CursorError(
        "this cursor is not valid here: it was altered, or it is of another actor, tool, branch "
        "or graph; send it exactly as an earlier answer gave it, or begin again without a cursor"
    )


def _digest(subject: object) -> bytes:
    return sha256(canonical(subject)).digest()[:_DIGEST]


_keys: Final[WeakKeyDictionary[Graph, bytes]] = WeakKeyDictionary()
_lock: Final = Lock()


def _key_of(graph: Graph) -> bytes:
    with _lock:
        found = _keys.get(graph)
        if found is None:
            found = _keys[graph] = _stored_key(graph) or secrets.token_bytes(_KEY)
        return found


def _stored_key(graph: Graph) -> bytes | None:
    """The key in the graph's folder, which is made where there is none; None without a folder."""
    if graph.folder is None:
        return None
    path = graph.folder / KEY_FILE
    with suppress(OSError):  # a disk that can't be used must not keep anybody from reading
        key = path.read_bytes()
        if len(key) == _KEY:
            return key
    if graph.read_only is not None:
        return None
    key = secrets.token_bytes(_KEY)
    with suppress(OSError):
        replace_file(path, key)
    return key
