"""The short way for lines that are right: one decoder checks nearly everything as it reads.

It accepts less than the validator and never more, and gives the same values:
what it does not accept goes the long way, where errors are told. A rule that
the decoder can't express is tested by the validator's own check of the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Final, Literal, Required, TypedDict, Union

import msgspec

from trails.engine.load.items import Item
from trails.engine.references import References
from trails.engine.validate import reference_coercer
from trails.errors import FieldError
from trails.model.constraints import Check, Coerce, compile_field
from trails.model.ids import uuid7
from trails.model.iris import MAX_ID_BYTES, Names
from trails.model.kept import Kept
from trails.model.kinds import INT_MAX, INT_MIN, Kind
from trails.model.patterns import compile_pattern
from trails.model.types import REF, PredicateDescriptor, Schema, TypeDescriptor

_EXACT: Final = 2**53
"""Below it, an integer is the same number as a float, so limits mean the same for both."""

_is_plain = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*").fullmatch
named_keys = re.compile(rb'"[ \t\r]*:').findall
"""Every key of a line of JSON, and perhaps more."""


class _Type:
    """How lines of one type are read."""

    def __init__(self, descriptor: TypeDescriptor, special: dict[str, Coerce]) -> None:
        self.name = descriptor.name
        self.key = descriptor.key
        self.lexical = _lexical(self.key)
        self.floats: list[str] = []
        self.patterns: list[tuple[str, Callable[[str], bool]]] = []
        self.checks: list[tuple[str, Check]] = []
        types: dict[str, object] = {}
        for field in descriptor.fields:
            decoded = _decoded(field)
            if decoded is None:
                decoded = object
                self.checks.append((field.name, compile_field(field, special, stored=True)))
            elif field.type.kind == "Float":
                self.floats.append(field.name)
            elif field.pattern is not None:
                self.patterns.append((field.name, compile_pattern(field.pattern)))
            # A field with a default must be there as well: the long way fills it.
            needed = field.required or field.default is not None
            types[field.name] = Required[decoded] if needed else decoded
        typed_dict: Any = TypedDict  # made at run time, it is beyond a type checker
        self.line: Any = msgspec.defstruct(
            "line",
            [("data", typed_dict("data", types, total=False)), ("id", str | None, None)],
            tag_field="type",
            tag=self.name,
            forbid_unknown_fields=True,
            gc=False,
        )


class FastLines:
    """Reads lines with nodes that are right; None for all others."""

    def __init__(self, schema: Schema, names: Names) -> None:
        special: dict[str, Coerce] = {REF: reference_coercer(References(schema, names))}
        types = [
            _Type(each, special)
            for each in schema.types
            if each.edge is None and not schema.shapes_of(each.name)
        ]
        self._types = {each.line: each for each in types}
        self._decode: Callable[[bytes], Any] = _decode_nothing
        if types:
            lines: Any = Union[tuple(self._types)]  # noqa: UP007 - of as many as there are
            self._decode = msgspec.json.Decoder(lines).decode

    def read(self, number: int, line: bytes) -> Item | None:
        """A node whose values are as the validator would give them."""
        try:
            given = self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        values: dict[str, object] = given.data
        # The decoder skips fields that it does not know, and a key that comes twice. Every
        # key is followed by a colon: no more colons than keys were read means neither.
        keys = len(values) + (2 if given.id is None else 3)
        if line.count(b":") != keys and len(named_keys(line)) != keys:
            return None
        kind = self._types[type(given)]
        for name, holds in kind.patterns:
            if name in values and not holds(values[name]):  # type: ignore[arg-type]
                return None
        for name in kind.floats:
            if values.get(name) == 0:
                values[name] = 0.0  # the decoder reads -0.0 as it is written
        if kind.checks and not _check(kind, values):
            return None
        identifier = given.id
        if kind.key is not None:
            found = kind.lexical(values[kind.key.name])
            if identifier not in {None, found}:
                return None
            identifier = found
        elif identifier is None:
            identifier = uuid7()
        if not _is_plain(identifier) or len(identifier) > MAX_ID_BYTES:
            return None
        handle = f"{kind.name}/{identifier}"
        return Item(number, f"line {number}: ", kind.name, values, identifier, handle, checked=True)


_kept: Kept[tuple[str, Names], FastLines] = Kept(8)


def fast_lines(schema: Schema, names: Names) -> FastLines:
    """The reader for a schema, made once: it has classes of its own, which cost much to make."""
    return _kept.get((schema.digest, names), lambda: FastLines(schema, names))


def _decode_nothing(line: bytes) -> object:
    raise msgspec.DecodeError(f"no line of {len(line)} bytes is read this way")


def _lexical(key: PredicateDescriptor | None) -> Callable[..., str]:
    return str if key is None or key.type.row is None else key.type.row.lexical


def _check(kind: _Type, values: dict[str, object]) -> bool:
    for name, check in kind.checks:
        if name in values:
            errors: list[FieldError] = []
            value = check(values[name], name, errors)
            if errors or value is None:
                return False
            if value == ():
                del values[name]
            else:
                values[name] = value
    return True


def _decoded(field: PredicateDescriptor) -> object:
    """The type that the decoder checks completely, but for a pattern; None if there is none."""
    row = field.type.row
    if row is None or row.native not in _DECODED:
        return None
    return _DECODED[row.native](field, row)


def _text(field: PredicateDescriptor, _: Kind) -> object:
    if field.one_of is not None:
        if (field.min_length, field.max_length, field.pattern) != (None, None, None):
            return None
        return Literal[field.one_of]
    return Annotated[
        str, msgspec.Meta(min_length=field.min_length or 0, max_length=field.max_length)
    ]


def _integer(field: PredicateDescriptor, row: Kind) -> object:
    if field.one_of is not None:
        return None
    low: Any = INT_MIN if field.min_value is None else row.coerce(field.min_value)
    high: Any = INT_MAX if field.max_value is None else row.coerce(field.max_value)
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


def _float(field: PredicateDescriptor, row: Kind) -> object:
    low: Any = None if field.min_value is None else row.coerce(field.min_value)
    high: Any = None if field.max_value is None else row.coerce(field.max_value)
    wide = any(each is not None and abs(each) >= _EXACT for each in (low, high))
    if wide or field.one_of is not None:
        return None
    return Annotated[float, msgspec.Meta(ge=low, le=high)]


def _plain(field: PredicateDescriptor, row: Kind) -> object:
    limits = (field.one_of, field.min_value, field.max_value)
    return row.native if limits == (None, None, None) else None


_DECODED: Final[dict[type | None, Callable[[PredicateDescriptor, Kind], object]]] = {
    str: _text,
    int: _integer,
    float: _float,
    bool: _plain,
    date: _plain,
}
