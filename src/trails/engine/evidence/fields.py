"""Bounded reads of one field: a window on its text, and the cursors that go on from there.

A window begins at an offset, before a match of a query, or where a cursor goes on. A cursor pins
the commit and the text: what it reads is the same text, whatever was written since. If the present
text is still the same, it is read; else the graph as of that commit is. Each read opens the branch
anew, so it is authorized by what the actor may read now.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Final, TypeVar

import msgspec

from trails.engine.evidence.records import (
    Record,
    RecordReference,
    check_type,
    missing_record,
    open_place,
    parse_reference,
    place_name,
    record_uri,
    reopen_place,
    settle_place,
)
from trails.engine.evidence.texts import FieldPath, FieldText, matcher_of, show_blob, text_of
from trails.engine.graph.cursors import (
    LIFETIME,
    Cursors,
    Holder,
    SignedCursor,
    check_subject,
    expiry,
    wrong_subject,
)
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.constraints import shorten
from trails.model.evidence.graphemes import boundary_before
from trails.model.evidence.windows import (
    READ_FIELD,
    Window,
    window_at,
    window_before,
)
from trails.model.nodes import NodeState
from trails.model.operations.pages import Call
from trails.model.operations.records import FieldWindow
from trails.model.texts import count
from trails.model.uris import HERE, ReadPoint

DEFAULT_LENGTH: Final = 8_000
"""Characters of a window, unless a read asks for fewer or more."""
MOST_LENGTH: Final = 1_000_000
_DIGITS: Final = 16
"""Digits of a text's digest in a cursor."""
_BEFORE: Final = 200
"""Characters that are shown before a match."""


class FieldRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A read of one field."""

    record: str
    field: str
    type: str | None = None
    """The type of the record, if ``record`` is a bare key."""
    item: int | None = None
    path: str | None = None
    offset: int | None = None
    cursor: str | None = None
    query: str | None = None
    """What to find in the text; without an offset or cursor the window is around a match."""
    match: int | None = None
    """Which match, from 1."""
    before: int | None = None
    """Characters to show before the offset or match."""
    length: int = DEFAULT_LENGTH
    max_chars: int | None = None
    """The most characters of the answer, which the next call repeats."""
    place: ReadPoint = HERE

    @property
    def at(self) -> FieldPath:
        """The field, or the part of it that is read."""
        return FieldPath(self.field, self.item, self.path)


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
    more_matches: bool = False
    """Whether there are matches after the one that the window is around."""

    def window(self, length: int) -> Window:
        """The window that was asked for, of at most so many characters."""
        text, digest, query = self.found.text, self.found.digest, self.request.query
        if self.start is None:
            window = window_before(text, self.end, length, digest=digest)
        else:
            window = window_at(text, self.start, length, digest=digest)
        if query is None:
            return window
        matcher = matcher_of(self.record, self.request.field, query)
        return msgspec.structs.replace(window, matches=matcher.in_window(text, window))

    def show(self, length: int) -> FieldWindow:
        """The answer, with at most so many characters of the text."""
        window, record, found = self.window(length), self.record, self.found
        at = self.request.at
        return FieldWindow(
            id=record.uri,
            title=record.title,
            field=at.field,
            item=at.item,
            path=at.path,
            items=found.items,
            commit=record.commit,
            media_type=found.media_type,
            digest=found.digest,
            text=window.text,
            start=window.start,
            end=window.end,
            total=window.total,
            complete=window.complete,
            truncated=window.truncated,
            matches=window.matched(),
            blob=None if found.blob is None else show_blob(record, found.blob),
            notice="the record has no value in this field" if found.missing else None,
            next=self._call(window.end) if window.end < window.total else None,
            previous=self._call(-window.start) if window.start > 0 else None,
            next_match=self._next_match() if self.more_matches else None,
            expires=expiry(time() + LIFETIME) if window.truncated else None,
        )

    def _call(self, at: int) -> Call:
        request = self.request
        call = call_from(self.cursors, self.record, request.at, at, self.found.digest)
        return Call(call.tool, {**call.arguments, **self._options()})

    def _next_match(self) -> Call:
        """The window around the next match, at the same commit."""
        state, commit = self.record.state, ReadPoint(commit=self.record.commit)
        arguments = {
            "record": record_uri(state.type, state.id, commit),
            **self.request.at.arguments(),
            "match": (self.request.match or 1) + 1,
            **self._options(),
        }
        return Call(READ_FIELD, arguments)

    def _options(self) -> dict[str, object]:
        """What the next call repeats."""
        request = self.request
        length = None if request.length == DEFAULT_LENGTH else request.length
        given = {"query": request.query, "length": length, "max_chars": request.max_chars}
        return {name: value for name, value in given.items() if value is not None}


def call_from(cursors: Cursors, record: Record, field: FieldPath, at: int, digest: str) -> Call:
    """The call that goes on from a place of a field's text or, below 0, up to it."""
    holder = Holder(record.ctx.actor, READ_FIELD, place_name(record.place))
    subject = _subject(record, field)
    cursor = cursors.sign(holder, record.commit, subject, f"{at}.{digest[:_DIGITS]}")
    return Call(READ_FIELD, {"record": record.uri, **field.arguments(), "cursor": cursor})


def _subject(record: Record, field: FieldPath) -> object:
    return [record.state.handle, field.field, field.item, field.path]


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
    opened = reopen_place(service, ctx, place, cursor.commit_id)
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
    reference: RecordReference
    place: ReadPoint
    cursors: Cursors

    def look(self, ctx: GraphContext, cursor: SignedCursor | None, look: Look[T]) -> T:
        """What ``look`` makes of the field; with a cursor, of the text that it is pinned to."""
        kg, wanted = ctx.kg, self.reference
        check_type(kg.schema, wanted.type, kg)

        def seen(state: NodeState | None, commit: str) -> tuple[T] | None:
            if state is None:
                return None
            record = Record(ctx, self.place, state, cursor.commit_id if cursor else commit)
            return (look(self._read(record, cursor)),)

        found = kg.look_at(wanted.type, wanted.id, seen)
        if found is None:
            raise missing_record(kg, wanted.type, wanted.id, self.place)
        return found[0]

    def _read(self, record: Record, cursor: SignedCursor | None) -> FieldRead:
        request = self.request
        found = text_of(record, request.at)
        if cursor is None:
            start, more = _start(record, found, request)
            return FieldRead(request, record, found, self.cursors, start, more_matches=more)
        at, _, digest = str(cursor.place).partition(".")
        if not found.digest.startswith(digest):
            raise _OtherTextError
        check_subject(cursor, _subject(record, request.at))
        if at.startswith("-"):
            return FieldRead(request, record, found, self.cursors, None, -int(at))
        return FieldRead(request, record, found, self.cursors, int(at))


def _start(record: Record, found: FieldText, request: FieldRequest) -> tuple[int, bool]:
    """Where a window begins: before an offset or a match; whether there are more matches."""
    if request.query is None or request.offset is not None:
        offset = (request.offset or 0) - (request.before or 0)
        return boundary_before(found.text, offset), False
    number = request.match or 1
    matcher = matcher_of(record, request.field, request.query)
    matches, more = matcher.nth(found.text[:], number)
    if len(matches) < number:
        some = count(len(matches), "match", "matches")
        raise NotFoundError(
            f"{request.field} of {record.uri} has {some} of {shorten(request.query)}, and no match "
            f"{number}; leave out query to read it from the start",
            matches=len(matches),
        )
    before = min(_BEFORE if request.before is None else request.before, request.length // 2)
    return boundary_before(found.text, matches[-1].start - before), more


def _check_together(request: FieldRequest) -> None:
    """Refuse two ways to say where to read."""
    given = {"offset": request.offset, "match": request.match, "cursor": request.cursor}
    said = [name for name, value in given.items() if value is not None]
    if len(said) > 1:
        message = f"{' and '.join(said)} each say where to read; give one of them"
        raise ValidationError([FieldError(said[0], "unknown_field", message, given[said[0]])])
    if request.match is not None and request.query is None:
        message = "match is the number of a match; give query, what to find"
        raise ValidationError([FieldError("query", "required", message)])
