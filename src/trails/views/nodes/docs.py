"""Docs: the values of a node as the JSON document of its row, and back.

SQLite keeps no checksums of its pages: a bit that flips inside a value would be answered as if
it were data. So a document is stored with a checksum of itself and of the handle that it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict
from zlib import crc32

import msgspec

from trails.model.kept import Kept
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor

_kept: Kept[str, Docs] = Kept(64)
_DECODER = msgspec.json.Decoder(dict[str, object])
_SUM: Final = 4
"""Bytes of a checksum."""


def seal(handle: str, doc: bytes) -> bytes:
    """A document as its row holds it: followed by a checksum."""
    return doc + crc32(doc, crc32(handle.encode())).to_bytes(_SUM, "little")


def unseal(handle: str, sealed: bytes) -> bytes:
    """The document of a row; ValueError if it, or the handle, is not what was stored."""
    doc = sealed[:-_SUM]
    if crc32(doc, crc32(handle.encode())).to_bytes(_SUM, "little") != sealed[-_SUM:]:
        raise ValueError("a checksum is wrong")
    return doc


class Docs:
    """Node values ↔ the JSON document of a row."""

    def __init__(self, schema: Schema) -> None:
        self._plain: dict[str, list[tuple[str, Callable[..., object], bool]]] = {}
        self._native: dict[str, list[tuple[str, Callable[..., object]]]] = {}
        self._typed: dict[str, _Reader] = {}
        for descriptor in schema.types:
            plain: list[tuple[str, Callable[..., object], bool]] = []
            native: list[tuple[str, Callable[..., object]]] = []
            for field in descriptor.fields:
                row = field.type.scalar.row
                if row is not None and row.plain is not None:
                    plain.append((field.name, row.plain, field.many))
                restore = None if row is None else row.restore
                if field.many:
                    native.append((field.name, tuple if restore is None else _each(restore)))
                elif restore is not None:
                    native.append((field.name, restore))
            self._plain[descriptor.name] = plain
            self._native[descriptor.name] = native
            self._typed[descriptor.name] = _Reader(descriptor, native)

    def encode(self, type_name: str, values: Mapping[str, object]) -> bytes:
        """Values as stored: the same bytes whichever way they came about."""
        plain = self._plain[type_name]
        if plain:
            values = dict(values)
            for name, convert, many in plain:
                value = values.get(name)
                if value is not None:
                    values[name] = (
                        [convert(item) for item in value] if many else convert(value)  # type: ignore[attr-defined]
                    )
        return msgspec.json.encode(values, order="deterministic")

    def decode(self, type_name: str, doc: bytes) -> dict[str, object]:
        """Values as the engine uses them."""
        typed = self._typed[type_name]
        try:
            values, native = typed.decode(doc), typed.rest
        except msgspec.ValidationError:
            # Written without validation, so perhaps of another type than declared.
            values, native = _DECODER.decode(doc), self._native[type_name]
        for name, restore in native:
            value = values.get(name)
            if value is not None:
                values[name] = restore(value)
        return values


def docs_of(schema: Schema) -> Docs:
    """The documents of a schema, made once: every branch and snapshot has the same."""
    return _kept.get(schema.digest, lambda: Docs(schema))


class _Reader:
    """One type's documents, with the values restored that msgspec can restore itself."""

    def __init__(
        self, descriptor: TypeDescriptor, native: list[tuple[str, Callable[..., object]]]
    ) -> None:
        types = {field.name: _json_type(field) for field in descriptor.fields}
        typed_dict: Any = TypedDict  # made at run time, it is beyond a type checker
        document = typed_dict("document", types, total=False)
        self.decode: Callable[[bytes], dict[str, object]] = msgspec.json.Decoder(document).decode
        self.rest = [each for each in native if types[each[0]] is object]


def _json_type(field: PredicateDescriptor) -> object:
    row = field.type.scalar.row
    native = str if row is None else row.native
    if native is None:
        return object
    return tuple[native, ...] if field.many else native  # type: ignore[valid-type]


def _each(restore: Callable[..., object]) -> Callable[..., object]:
    return lambda items: tuple(map(restore, items))
