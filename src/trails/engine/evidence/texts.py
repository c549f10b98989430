"""The text of a field as it is read: what it is, and where a query matches in it.

A text is read as it is; any other value is read as its JSON text, and so is a list, unless one
item of it is asked for. A JSON pointer leads to a part of a Json value. Matches are found with the
analysis of the field's text index, so whatever a search found is found here.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec

from trails.engine.evidence.records import Record, record_uri
from trails.engine.graph.texts.fields import text_fields
from trails.errors import FieldError, ValidationError
from trails.model.evidence.graphemes import Sliceable
from trails.model.evidence.windows import Span, Window, text_digest
from trails.model.nodes import split_handle
from trails.model.operations.records import BlobInfo
from trails.model.texts import count
from trails.model.types import PredicateDescriptor, ValueType
from trails.model.uris import HERE, ReadPoint
from trails.model.values.blobs import Blob
from trails.model.values.json_values import Json, JsonError
from trails.model.values.lang_texts import LangText
from trails.views.nodes.long_texts import StoredText
from trails.views.text.analysis import Analyzer
from trails.views.text.grammar import parse
from trails.views.text.matching import Finder

JSON: Final = "application/json"
TEXT: Final = "text/plain"
_PREVIEW: Final = 2_000
"""Bytes of a blob that are shown, if it is text."""
_AROUND: Final = 500
"""Code points around a window that are looked at for matches that reach into it."""
_encode: Final = msgspec.json.Encoder().encode


class FieldPath(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field of a record, or a part of it."""

    field: str
    item: int | None = None
    """Of a list: which item, from 0."""
    path: str | None = None
    """Of a Json value: a JSON pointer (RFC 6901)."""

    def arguments(self) -> dict[str, object]:
        """As ``read_record_field`` takes it."""
        found: dict[str, object] = msgspec.to_builtins(self)
        return found


class FieldText(msgspec.Struct, frozen=True, eq=False):
    """The text of a field, or of a part of it."""

    text: Sliceable
    digest: str
    media_type: str
    items: int | None = None
    """How many items the list has; None if the field is not a list."""
    missing: bool = False
    """Whether the record has no value there."""
    blob: Blob | None = None
    """The content that the text names, if the graph keeps it."""


def text_of(record: Record, at: FieldPath) -> FieldText:
    """The text of a field of a record."""
    field = record.field(at.field)
    value = record.state.values.get(field.name)
    if not field.many:
        if at.item is not None:
            message = f"{field.name} is {field.type}, not a list; leave out item"
            raise _wrong("item", message, at.item)
        return _text(field.type, _part(field, value, at.path), record.place)
    items = value if isinstance(value, tuple) else ()
    if at.item is None:
        if at.path is not None:
            message = f"{field.name} is a list; give item, and path inside of it"
            raise _wrong("path", message, at.path)
        shown = [plain_value(field.type.scalar, each, record.place) for each in items]
        return _json(shown, len(items))
    if at.item >= len(items):
        has = f"{field.name} has {count(len(items), 'item')}, counted from 0"
        raise _wrong("item", f"{has}; there is no {at.item}", at.item)
    found = _text(field.type.scalar, _part(field, items[at.item], at.path), record.place)
    return msgspec.structs.replace(found, items=len(items))


def _wrong(argument: str, message: str, value: object) -> ValidationError:
    return ValidationError([FieldError(argument, "unknown_field", message, value)])


class _Part(msgspec.Struct, frozen=True):
    """What a JSON pointer leads to."""

    value: object


def _part(field: PredicateDescriptor, value: object, path: str | None) -> object:
    if path is None or value is None:
        return value
    if isinstance(value, LangText):
        found = value.get(path.removeprefix("/"))
        if found is None:
            message = f"path: {field.name} has no text at {path!r}; it has /{', /'.join(value)}"
            raise _wrong("path", message, path)
        return _Part(found)
    if field.type.scalar.kind != "Json":
        raise _wrong("path", f"{field.name} is {field.type}, not Json; leave out path", path)
    whole = Json.trusted(value[:]) if isinstance(value, StoredText) else value
    assert isinstance(whole, Json)  # noqa: S101 - that is what such a field holds
    try:
        return _Part(whole.at(path))
    except JsonError as error:
        raise _wrong("path", f"path: {error}", path) from None


def _text(value_type: ValueType, value: object, place: ReadPoint) -> FieldText:
    row = value_type.row
    is_text = row is not None and row.text
    if value is None:
        return FieldText("", text_digest(""), TEXT, missing=True)
    if isinstance(value, _Part):
        return _plain_text(value.value) if isinstance(value.value, str) else _json(value.value)
    if isinstance(value, StoredText):
        return FieldText(value, value.digest, TEXT if is_text else JSON)
    if isinstance(value, Blob) and value.facts is not None:
        return FieldText(value, text_digest(value), TEXT, blob=value)
    if isinstance(value, str) and is_text:
        return _plain_text(value)
    if isinstance(value, Json):
        return FieldText(value.text, text_digest(value.text), JSON)
    return _json(plain_value(value_type, value, place))


def show_blob(record: Record, blob: Blob) -> BlobInfo:
    """What is known of content that the graph keeps and, if it is text, how it begins."""
    facts = blob.facts
    assert facts is not None  # noqa: S101 - the graph keeps it
    known: dict[str, object] = msgspec.structs.asdict(facts)
    if facts.is_text:
        start = record.ctx.kg.blobs.read(blob, 0, _PREVIEW)
        is_cut = facts.size > len(start)
        with suppress(UnicodeDecodeError):
            known["preview"] = getincrementaldecoder("utf-8")().decode(start, not is_cut)
            known["truncated"] = is_cut
    return BlobInfo(**known)  # type: ignore[arg-type]


def _plain_text(text: str) -> FieldText:
    return FieldText(text, text_digest(text), TEXT)


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


# --- matches -----------------------------------------------------------------------------


class Matcher(msgspec.Struct, frozen=True, eq=False):
    """Finds a query in the texts of one field."""

    finder: Finder

    def nth(self, text: str, number: int) -> tuple[list[Span], bool]:
        """The matches up to a number, from 1, and whether there are more."""
        found = [Span(*each) for each in self.finder.find(text, number + 1)]
        return found[:number], len(found) > number

    def in_window(self, text: Sliceable, window: Window) -> tuple[Span, ...]:
        """The matches in a window, found by looking at it and a little around it."""
        start = max(0, window.start - _AROUND)
        near = text[start : window.end + _AROUND]
        found = (Span(each.start + start, each.end + start) for each in self.finder.find(near))
        return tuple(each for each in found if each.start < window.end and each.end > window.start)


def matcher_of(record: Record, field: str, query: str) -> Matcher:
    """A matcher with the analysis of the field's text index, or with the default one."""
    known = text_fields(record.ctx.kg.schema, record.ctx.names).get((record.state.type, field))
    analyzer = _default() if known is None else known.analyzer
    return Matcher(Finder(parse(query, (field,)), analyzer, field))


@lru_cache(1)
def _default() -> Analyzer:
    return Analyzer(stop_words=False)
