"""Bounded reads of one field: a window on its text, and the cursors that go on from there.

A text is read as it is; any other value is read as its JSON text, and so is a list, unless one item
of it is asked for. A cursor pins the commit and the text: what it reads is the same text, whatever
was written since. If the present text is still the same, it is read; else the graph as of that
commit is. Authorization is for now, not for then: each read opens the branch anew.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any, Final, TypeVar

import msgspec

from trails.engine.evidence.cursors import (
    LIFETIME,
    Cursor,
    Cursors,
    Holder,
    check_subject,
    expiry,
    stale,
    wrong_subject,
)
from trails.engine.evidence.records import (
    Record,
    Reference,
    check_type,
    is_on_branch,
    missing_record,
    open_place,
    parse_reference,
    place_name,
    record_uri,
    settle_place,
)
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.evidence.graphemes import Sliceable, boundary_before
from trails.model.evidence.windows import (
    READ_FIELD,
    Continuation,
    Window,
    text_digest,
    window_at,
    window_before,
)
from trails.model.json_values import Json
from trails.model.nodes import NodeState, split_handle
from trails.model.texts import count
from trails.model.types import PredicateDescriptor, ValueType
from trails.model.uris import HERE, ReadPoint
from trails.views.nodes.long_texts import StoredText

DEFAULT_LENGTH: Final = 8_000
"""Characters of a window, unless a read asks for fewer or more."""
MOST_LENGTH: Final = 1_000_000
_DIGITS: Final = 16
"""Digits of a text's digest in a cursor."""
JSON: Final = "application/json"
TEXT: Final = "text/plain"
_encode: Final = msgspec.json.Encoder().encode


class FieldRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A read of one field."""

    record: str
    field: str
    type: str | None = None
    """The type of the record, if ``record`` is a bare key."""
    item: int | None = None
    offset: int | None = None
    cursor: str | None = None
    before: int | None = None
    """Characters to show before the offset."""
    length: int = DEFAULT_LENGTH
    place: ReadPoint = HERE


class FieldText(msgspec.Struct, frozen=True, eq=False):
    """The text of a field, or of one of its items."""

    text: Sliceable
    digest: str
    media_type: str
    items: int | None = None
    """How many items the list has; None if the field is not a list."""
    missing: bool = False
    """Whether the record has no value there."""


def text_of(record: Record, field: PredicateDescriptor, item: int | None = None) -> FieldText:
    """The text of a field of a record."""
    value = record.state.values.get(field.name)
    if not field.many:
        if item is not None:
            message = f"{field.name} is {field.type}, not a list; leave out item"
            raise ValidationError([FieldError("item", "unknown_field", message, item)])
        return _text(record, field.type, value)
    items = value if isinstance(value, tuple) else ()
    if item is None:
        shown = [plain_value(field.type.scalar, each, record.place) for each in items]
        return _json(shown, len(items))
    if item >= len(items):
        message = (
            f"{field.name} has {count(len(items), 'item')}, counted from 0; there is no {item}"
        )
        raise ValidationError([FieldError("item", "max_value", message, item, len(items) - 1)])
    found = _text(record, field.type.scalar, items[item])
    return msgspec.structs.replace(found, items=len(items))


def _text(record: Record, value_type: ValueType, value: object) -> FieldText:
    if value is None:
        return FieldText("", text_digest(""), TEXT, missing=True)
    row = value_type.row
    if isinstance(value, str) and row is not None and row.text:
        return FieldText(value, text_digest(value), TEXT)
    if isinstance(value, StoredText):
        return FieldText(value, value.digest, TEXT if row is not None and row.text else JSON)
    if isinstance(value, Json):
        return FieldText(value.text, text_digest(value.text), JSON)
    return _json(plain_value(value_type, value, record.place))


def _json(value: object, items: int | None = None) -> FieldText:
    text = _encode(value).decode()
    return FieldText(text, text_digest(text), JSON, items)


def plain_value(value_type: ValueType, value: object, place: ReadPoint = HERE) -> object:
    """A value in JSON form; references are record URIs of the same branch or commit."""
    row = value_type.row
    if row is None:
        type_name, identifier = split_handle(str(value))
        return record_uri(type_name, identifier, place)
    return value if row.plain is None else row.plain(value)


# --- reading -----------------------------------------------------------------------------


class FieldRead(msgspec.Struct, frozen=True, eq=False):
    """A field that was found, with what is needed to show any window of it."""

    request: FieldRequest
    record: Record
    found: FieldText
    cursors: Cursors
    start: int | None
    """Where the window begins; None: it ends at ``end``."""
    end: int = 0

    def window(self, length: int) -> Window:
        """The window that was asked for, of at most so many characters."""
        text, digest = self.found.text, self.found.digest
        if self.start is None:
            return window_before(text, self.end, length, digest=digest)
        return window_at(text, self.start, length, digest=digest)

    def document(self, length: int) -> dict[str, object]:
        """The answer, with at most so many characters of the text."""
        window, record, found = self.window(length), self.record, self.found
        body: dict[str, object] = {
            "id": record.uri,
            "title": record.title,
            "field": self.request.field,
        }
        if found.items is not None:
            body |= {"item": self.request.item, "items": found.items}
        body |= {
            "commit": record.commit,
            "media_type": found.media_type,
            "digest": found.digest,
            **window.document(),
        }
        if found.missing:
            body["notice"] = "the record has no value in this field"
        if window.end < window.total:
            body["next"] = self._call(window.end)
        if window.start > 0:
            body["previous"] = self._call(-window.start)
        if window.truncated:
            body["expires"] = expiry(time() + LIFETIME)
        return body

    def _call(self, at: int) -> Continuation:
        request = self.request
        call = call_from(
            self.cursors, self.record, request.field, request.item, at, self.found.digest
        )
        if request.length == DEFAULT_LENGTH:
            return call
        return {**call, "arguments": {**call["arguments"], "length": request.length}}


def call_from(
    cursors: Cursors, record: Record, field: str, item: int | None, at: int, digest: str
) -> dict[str, Any]:
    """The call that goes on from a place of a field's text or, below 0, up to it."""
    holder = Holder(record.ctx.actor, READ_FIELD, place_name(record.place))
    subject = [record.state.handle, field, item]
    cursor = cursors.sign(holder, record.commit, subject, f"{at}.{digest[:_DIGITS]}")
    of_item = {} if item is None else {"item": item}
    arguments = {"record": record.uri, "field": field, **of_item, "cursor": cursor}
    return {"tool": READ_FIELD, "arguments": arguments}


T = TypeVar("T")
Look = Callable[[FieldRead], T]


def read_field(service: GraphService, ctx: GraphContext, request: FieldRequest, look: Look[T]) -> T:
    """What ``look`` makes of a field, at the present or where a cursor goes on.

    A long text is read in parts, as far as ``look`` shows it.
    """
    _check_together(request)
    reference = parse_reference(ctx.names, request.record, request.type)
    place = settle_place(reference.place, request.place)
    reader = _FieldReader(request, reference, place, Cursors(service.graph))
    if request.cursor is None:
        return reader.look(open_place(service, ctx, place), None, look)
    holder = Holder(ctx.actor, READ_FIELD, place_name(place))
    cursor = reader.cursors.read(holder, request.cursor)
    try:
        opened = open_place(service, ctx, place)
    except NotFoundError:
        raise stale(cursor.commit_id) from None
    if not is_on_branch(service, place, cursor.commit_id):
        raise stale(cursor.commit_id)
    try:
        # If the text is still the same, the past need not be opened.
        return reader.look(opened, cursor, look)
    except (NotFoundError, ValidationError, _OtherTextError):
        pass
    try:
        return reader.look(opened.at(cursor.commit_id), cursor, look)
    except _OtherTextError:
        raise wrong_subject() from None


class _OtherTextError(Exception):
    """The text is not the one that a cursor is pinned to."""


class _FieldReader(msgspec.Struct, frozen=True, eq=False):
    """Looks at a field on a branch or at a commit."""

    request: FieldRequest
    reference: Reference
    place: ReadPoint
    cursors: Cursors

    def look(self, ctx: GraphContext, cursor: Cursor | None, look: Look[T]) -> T:
        """What ``look`` makes of the field; with a cursor, of the text that it is pinned to."""
        kg, wanted = ctx.kg, self.reference
        check_type(kg.schema, wanted.type)

        def seen(state: NodeState | None, commit: str) -> tuple[T] | None:
            if state is None:
                return None
            record = Record(ctx, self.place, state, cursor.commit_id if cursor else commit)
            return (look(self._read(record, cursor)),)

        found = kg.look_at(wanted.type, wanted.id, seen)
        if found is None:
            raise missing_record(kg, wanted.type, wanted.id, self.place)
        return found[0]

    def _read(self, record: Record, cursor: Cursor | None) -> FieldRead:
        request = self.request
        found = text_of(record, record.field(request.field), request.item)
        if cursor is None:
            offset = max(0, (request.offset or 0) - (request.before or 0))
            start: int | None = boundary_before(found.text, offset)
            return FieldRead(request, record, found, self.cursors, start)
        at, _, digest = str(cursor.place).partition(".")
        if not found.digest.startswith(digest):
            raise _OtherTextError
        check_subject(cursor, [record.state.handle, request.field, request.item])
        if at.startswith("-"):
            return FieldRead(request, record, found, self.cursors, None, -int(at))
        return FieldRead(request, record, found, self.cursors, int(at))


def _check_together(request: FieldRequest) -> None:
    if request.cursor is not None and request.offset is not None:
        message = "cursor says where to go on; leave out offset"
        raise ValidationError([FieldError("offset", "unknown_field", message, request.offset)])
