"""Cursors: where a page ended, as an opaque text that continues it."""

from __future__ import annotations

import base64
from typing import Annotated

import msgspec

from trails.errors import QueryError
from trails.model.digests import digest_of
from trails.model.selections import Selection


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """Where a page ended: the selection it belongs to, and the last key and node."""

    selection: str
    key: bytes
    nid: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


def write_cursor(position: Cursor) -> str:
    """As a page returns it."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(position)).decode().rstrip("=")


def read_cursor(text: str | None, signature: str) -> Cursor | None:
    """The inverse; a cursor of another selection is refused."""
    if text is None:
        return None
    try:
        padded = text + "=" * (-len(text) % 4)
        position = msgspec.msgpack.decode(base64.urlsafe_b64decode(padded), type=Cursor)
    except (TypeError, ValueError, msgspec.MsgspecError):
        raise QueryError(
            "this cursor can't be read; use one exactly as an earlier page returned it"
        ) from None
    if position.selection != signature:
        raise QueryError(
            "this cursor belongs to another selection; keep graph, type, conditions and order "
            "the same from page to page"
        )
    return position


def signature_of(graph: str, selection: Selection) -> str:
    """What must stay the same from page to page: the graph, and what is selected of it."""
    order = msgspec.to_builtins(selection.order)
    return digest_of([graph, selection.type, order, repr(selection.where)])[:16]
