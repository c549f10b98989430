"""Results in JSON form: nodes as objects with their IRI, values as their kinds say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from trails.errors import TrailsError
from trails.model.constraints import shorten
from trails.model.iris import Names
from trails.model.kinds import BigInt
from trails.model.types import (
    LIST,
    REF,
    PredicateDescriptor,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
)

Hook = Callable[[object], object]


def plain(names: Names, value: object) -> object:
    """A result as JSON values."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=hook_of(names))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _formless(value, error) from None


def encoded(names: Names, value: object) -> bytes:
    """A result as JSON text."""
    try:
        return msgspec.json.encode(value, enc_hook=hook_of(names))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _formless(value, error) from None


def _formless(value: object, error: Exception) -> TrailsError:
    return TrailsError(
        f"a capability returned {shorten(value)}, which has no JSON form ({error}); return nodes, "
        "shapes, texts, numbers, dates, lists or dictionaries"
    )


@lru_cache(maxsize=64)
def hook_of(names: Names) -> Hook:
    """How what the encoder does not know by itself is written."""

    def hook(value: object) -> object:
        descriptor = getattr(type(value), "__trails__", None)
        if isinstance(descriptor, TypeDescriptor | ShapeDescriptor):
            body = {
                field.name: _plain_field(names, field, getattr(value, field.name))
                for field in descriptor.fields
            }
            handle = getattr(value, "handle", None)
            if handle is not None:
                return {"iri": names.nodes + handle, "type": descriptor.name, **body}
            return body
        if isinstance(value, BigInt | str):
            return str(value)
        if isinstance(value, Mapping):
            return dict(value)
        raise TypeError(f"{type(value).__name__} has none")

    return hook


def _plain_field(names: Names, field: PredicateDescriptor, value: object) -> object:
    if value is None:
        return None
    if field.type.kind == LIST:
        return [_plain_scalar(names, field.type.scalar, item) for item in value]  # type: ignore[attr-defined]
    return _plain_scalar(names, field.type, value)


def _plain_scalar(names: Names, value_type: ValueType, value: object) -> object:
    if value_type.kind == REF:
        handle = getattr(value, "handle", None) or value
        return names.nodes + str(handle)
    row = value_type.row
    if row is None:
        return value
    coerced = row.coerce(value)
    return row.plain(coerced) if row.plain is not None else coerced
