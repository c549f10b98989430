"""The values of a record within a bound: small ones whole, long ones by their beginning.

Nothing is cut silently: what is left out of a value is listed with how much of it is shown, and
with the call that reads the rest. Texts are cut between characters, lists between items; a value
that is neither (a vector, JSON) is shown whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from trails.engine.evidence.fields import call_from
from trails.engine.evidence.records import Record
from trails.engine.graph.cursors import Cursors
from trails.imports import later
from trails.model.evidence.windows import window_at
from trails.model.operations.records import ShortenedValue
from trails.model.types import PredicateDescriptor

if TYPE_CHECKING:
    from trails.engine.evidence import texts
else:
    texts = later("trails.engine.evidence.texts")

_NOTE: Final = 400
"""Characters of a note about a value that is left out, the call included."""
_encode: Final = msgspec.json.Encoder().encode


class BoundedValues(msgspec.Struct, frozen=True):
    """The values of a record, as far as there was room."""

    values: Mapping[str, object]
    left_out: tuple[ShortenedValue, ...] = ()


def bounded_values(
    record: Record,
    fields: Iterable[PredicateDescriptor],
    room: int | None,
    cursors: Cursors,
    *,
    blanks: bool = False,
) -> BoundedValues:
    """The values of some fields in about ``room`` characters of JSON; None: all of them.

    ``blanks``: fields without a value are shown as null or as an empty list.
    """
    whole: dict[str, object] = {}
    for field in fields:
        value = record.state.values.get(field.name)
        if value is not None or blanks:
            whole[field.name] = _plain(record, field, value)
    sizes = {name: size_of(value) for name, value in whole.items()}
    if room is None or sum(sizes.values()) + sum(len(name) + 4 for name in whole) <= room:
        return BoundedValues(whole)
    granted = share(sizes, room - sum(len(name) + 4 for name in whole))
    values: dict[str, object] = {}
    left_out: list[ShortenedValue] = []
    for name, value in whole.items():
        if sizes[name] <= granted[name]:
            values[name] = value
        else:
            short, note = _shorten(record, record.field(name), value, granted[name], cursors)
            left_out.append(note)
            if note.shown:
                values[name] = short
    return BoundedValues(values, tuple(left_out))


def _plain(record: Record, field: PredicateDescriptor, value: object) -> object:
    kind = field.type.scalar
    if isinstance(value, tuple) and field.many:
        return [texts.plain_value(kind, each, record.place) for each in value]
    if value is None:
        return [] if field.many else None
    return texts.plain_value(kind, value, record.place)


def share(sizes: Mapping[str, int], room: int) -> dict[str, int]:
    """Room for each: all that a small one needs, and an equal part of the rest for large ones."""
    granted: dict[str, int] = {}
    left = max(room, 0)
    for done, name in enumerate(sorted(sizes, key=sizes.__getitem__)):
        granted[name] = min(sizes[name], left // (len(sizes) - done))
        left -= granted[name]
    return granted


def _shorten(
    record: Record, field: PredicateDescriptor, value: object, room: int, cursors: Cursors
) -> tuple[object, ShortenedValue]:
    at_field = texts.FieldPath(field.name)
    found = texts.text_of(record, at_field)
    room = max(0, room - _NOTE)
    if isinstance(value, str):
        short = cut_json(value, room)
        read = call_from(cursors, record, at_field, len(short), found.digest)
        note = ShortenedValue(
            field=field.name, shown=len(short), of=len(value), unit="characters", read=read
        )
        return short, note
    kept = _first_items(value, room) if isinstance(value, list) and field.many else []
    # Of the JSON text, what follows the items that are shown.
    at = len(_encode(kept).decode()) - 1 if kept else 0
    read = call_from(cursors, record, at_field, at, found.digest)
    if field.many and isinstance(value, list):
        note = ShortenedValue(
            field=field.name, shown=len(kept), of=len(value), unit="items", read=read
        )
    else:
        note = ShortenedValue(
            field=field.name, shown=0, of=len(found.text), unit="characters", read=read
        )
    return kept, note


def _first_items(items: Sequence[object], room: int) -> list[object]:
    kept: list[object] = []
    for each in items:
        room -= size_of(each) + 1
        if room < 0:
            break
        kept.append(each)
    return kept


def cut_json(text: str, room: int) -> str:
    """The beginning of a text whose JSON form takes at most ``room`` characters.

    A quote or a newline takes two characters there, a control character six.
    """
    length = min(room, len(text))
    while length > 0:
        short = window_at(text, 0, length, digest="").text
        size = size_of(short) - 2
        if size <= room:
            return short
        length = min(length - 1, length * room // size)
    return ""


def size_of(value: object) -> int:
    """The characters of a value's JSON text."""
    return len(_encode(value).decode())
