"""How a value of one kind becomes a value of another.

The usual conversions lose nothing: a value that would lose something is refused, and listed. With
``lossy``, numbers are rounded and times cut. Conversions by expression are in ``expressions``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Final

from trails.model.constraints import shorten
from trails.model.kinds import KINDS, Kind, KindError
from trails.model.types import PredicateDescriptor


class ConversionError(Exception):
    """A value has no counterpart of the new kind; the text says why."""


Convert = Callable[..., object]


def _exactly(value: object, converted: object, back: object, *, lossy: bool) -> object:
    if value != back and not lossy:
        raise ConversionError(f"{shorten(value)} would become {shorten(converted)}")
    return converted


def _to_float(value: int | Decimal, *, lossy: bool) -> object:
    made = float(value)
    return _exactly(value, made, type(value)(made) if abs(made) < 1e300 else None, lossy=lossy)


def _to_int(value: float | Decimal, *, lossy: bool) -> object:
    made = round(value)
    return _exactly(value, made, made, lossy=lossy)


def _to_bool(value: int, *, lossy: bool) -> object:
    return _exactly(value, bool(value), int(bool(value)), lossy=lossy)


def _day_of(value: datetime, *, lossy: bool) -> object:
    moment = value.astimezone(UTC)
    return _exactly(value, moment.date(), _midnight(moment.date(), lossy=True), lossy=lossy)


def _midnight(value: date, *, lossy: bool) -> object:
    del lossy
    return datetime.combine(value, time(), UTC)


def _plainly(make: Callable[..., object]) -> Convert:
    def convert(value: object, *, lossy: bool) -> object:
        del lossy
        return make(value)

    return convert


_TABLE: Final[Mapping[tuple[str, str], Convert]] = {
    ("Int", "Float"): _to_float,
    ("BigInt", "Float"): _to_float,
    ("Decimal", "Float"): _to_float,
    ("Int", "Decimal"): _plainly(lambda value: str(int(value))),
    ("BigInt", "Decimal"): _plainly(lambda value: str(int(value))),
    ("Float", "Decimal"): _plainly(lambda value: format(Decimal(repr(value)), "f")),
    ("Float", "Int"): _to_int,
    ("Decimal", "Int"): _to_int,
    ("Float", "BigInt"): _to_int,
    ("Decimal", "BigInt"): _to_int,
    ("Int", "BigInt"): _plainly(int),
    ("BigInt", "Int"): _plainly(int),
    ("Bool", "Int"): _plainly(int),
    ("Int", "Bool"): _to_bool,
    ("Date", "DateTime"): _midnight,
    ("DateTime", "Date"): _day_of,
    ("Iri", "Blob"): _plainly(str),
    ("Blob", "Iri"): _plainly(str),
}
"""Beside these, every kind but vectors becomes a String, and a String is read as any kind."""


def convertible(old: str, new: str) -> bool:
    """Whether there is a usual conversion between two kinds of values."""
    return (
        old == new
        or (old, new) in _TABLE
        or (new in {"String", "Json"} and old in KINDS and old != "Vector")
        or (old == "String" and new in KINDS)
    )


def convert_value(value: object, old: str, new: str, *, lossy: bool = False) -> object:
    """A value of the new kind; ConversionError if it has no counterpart."""
    if old == new:
        return value
    row, former = KINDS[new], KINDS[old]
    try:
        if (old, new) in _TABLE:
            return row.coerce(_TABLE[old, new](value, lossy=lossy))
        if new == "String":
            return row.coerce(former.lexical(value))
        if old == "String":
            return row.coerce(row.read(str(value)))
        if new == "Json":
            return row.coerce(value if former.plain is None else former.plain(value))
    except (KindError, ValueError, ArithmeticError) as error:
        if isinstance(error, ConversionError):
            raise
        raise ConversionError(f"{shorten(value)} is not {row.expected}") from None
    raise ConversionError(f"there is no usual conversion from {old} to {new}")


def convert_field(
    value: object, old: PredicateDescriptor, new: PredicateDescriptor, *, lossy: bool = False
) -> object:
    """All that a field holds, as the changed field holds it; None if that is nothing."""
    items = value if isinstance(value, tuple) and old.many else (value,)
    kinds = old.type.scalar.kind, new.type.scalar.kind
    made = [convert_value(each, *kinds, lossy=lossy) for each in items]
    if not new.many:
        if len(made) > 1:
            raise ConversionError(f"it has {len(made)} values, and the field holds one")
        return made[0] if made else None
    values = as_many(made, new, lossy=lossy)
    if old.ordered and not new.ordered and not lossy and values != tuple(made):
        raise ConversionError("its order would be lost")
    return values


def as_many(items: list[object], field: PredicateDescriptor, *, lossy: bool = False) -> object:
    """Items as a field of many values holds them; None if there are none."""
    if field.ordered:
        return tuple(items) or None
    distinct = list(dict.fromkeys(items))
    if len(distinct) < len(items) and not lossy:
        raise ConversionError("several of its values would become the same")
    row: Kind | None = field.type.scalar.row
    key = str if row is None or row.sort_key is None else row.sort_key
    return tuple(sorted(distinct, key=key)) or None


def coerce_value(value: object, field: PredicateDescriptor) -> object:
    """A JSON or Python value as the field holds it; None if that is nothing."""
    row = field.type.scalar.row
    items = value if isinstance(value, list | tuple) and field.many else [value]
    try:
        made = [
            each if row is None else row.coerce(each)
            for each in items  # references by handle
        ]
    except KindError:
        expected = "" if row is None else row.expected
        raise ConversionError(f"{shorten(value)} is not {expected}") from None
    return as_many(made, field, lossy=True) if field.many else made[0]
