"""Rows of the node index: its tables, documents with the values of a node, and sort keys.

SQLite keeps no checksums of its pages: a bit that flips inside a value would be answered as if it
were data. So a document is stored with a checksum of itself and of the handle that it is for.

Sort keys are bytes that compare like the values that they encode. Every scalar field of every node
has one key (a list has one a value), so any field can be filtered and sorted without a declared
index. A missing value has a key too, after all others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, TypedDict
from zlib import crc32

import msgspec

from trails.model.caches import LRUCache
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.model.values.lang_texts import LangText
from trails.views.nodes.chains import CHAIN_TABLES
from trails.views.nodes.long_texts import (
    LONG_DRAFT_TABLES,
    LONG_TABLES,
    LONG_TEXT,
    MARK,
    LongText,
    LongTexts,
    read_document,
)

TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS types (
    tid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, next INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS slots (sid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
-- the root layer as it is now
CREATE TABLE IF NOT EXISTS nodes (
    nid INTEGER PRIMARY KEY, handle TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL, doc BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS keys (
    sid INTEGER NOT NULL, key BLOB NOT NULL, nid INTEGER NOT NULL, PRIMARY KEY (sid, key, nid)
) WITHOUT ROWID;
-- other layers, and what the root held when one of them left it
CREATE TABLE IF NOT EXISTS rows (
    layer INTEGER NOT NULL, nid INTEGER NOT NULL, seq INTEGER NOT NULL, until INTEGER NOT NULL,
    handle TEXT NOT NULL, doc BLOB NOT NULL, PRIMARY KEY (layer, nid, seq)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rows_handle ON rows (handle, layer);
CREATE TABLE IF NOT EXISTS row_keys (
    layer INTEGER NOT NULL, sid INTEGER NOT NULL, key BLOB NOT NULL, nid INTEGER NOT NULL,
    seq INTEGER NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (layer, sid, key, nid, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hides (
    nid INTEGER NOT NULL, layer INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (nid, layer)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS hides_layer ON hides (layer);
-- the tree of layers, their names, and how many nodes they have
CREATE TABLE IF NOT EXISTS layers (
    layer INTEGER PRIMARY KEY, parent INTEGER, fork INTEGER NOT NULL,
    seq INTEGER NOT NULL, head TEXT NOT NULL, schema TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS refs (
    name TEXT PRIMARY KEY, layer INTEGER NOT NULL, used INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lives (
    layer INTEGER NOT NULL, tid INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (layer, tid)
) WITHOUT ROWID;
-- earlier commits that changed a node
CREATE TABLE IF NOT EXISTS past (
    handle TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (handle, seq)
) WITHOUT ROWID;
-- the numbers of deleted nodes
CREATE TABLE IF NOT EXISTS gone (handle TEXT PRIMARY KEY, nid INTEGER NOT NULL) WITHOUT ROWID;
{CHAIN_TABLES}
{LONG_TABLES}
-- keys of a large write, which are put in order at its end
CREATE TEMP TABLE IF NOT EXISTS waiting (sid INTEGER, key BLOB, nid INTEGER);
"""
DRAFT_TABLES: Final = f"""
{LONG_DRAFT_TABLES}
CREATE TEMP TABLE types (tid INTEGER PRIMARY KEY, name TEXT NOT NULL, next INTEGER NOT NULL);
CREATE TEMP TABLE slots (sid INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TEMP TABLE rows (
    layer INTEGER NOT NULL, nid INTEGER NOT NULL, seq INTEGER NOT NULL, until INTEGER NOT NULL,
    handle TEXT NOT NULL, doc BLOB NOT NULL, PRIMARY KEY (layer, nid, seq)
) WITHOUT ROWID;
CREATE INDEX temp.rows_handle ON rows (handle, layer);
CREATE TEMP TABLE row_keys (
    layer INTEGER NOT NULL, sid INTEGER NOT NULL, key BLOB NOT NULL, nid INTEGER NOT NULL,
    seq INTEGER NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (layer, sid, key, nid, seq)
) WITHOUT ROWID;
CREATE TEMP TABLE hides (
    nid INTEGER NOT NULL, layer INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (nid, layer)
) WITHOUT ROWID;
CREATE TEMP TABLE gone (handle TEXT PRIMARY KEY, nid INTEGER NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE refs (
    name TEXT PRIMARY KEY, layer INTEGER NOT NULL, used INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TEMP TABLE past (
    handle TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (handle, seq)
) WITHOUT ROWID;
"""
"""Of a draft: SQLite takes a name without a database for these before the file's own."""

_kept: LRUCache[str, Docs] = LRUCache(64)
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


_Convert = tuple[str, Callable[..., object], bool]
"""A field that has to be converted: its name, how, and whether it has several values."""


class Docs:
    """Node values ↔ the JSON document of a row."""

    def __init__(self, schema: Schema) -> None:
        self._held: dict[str, list[_Convert]] = {}
        self._plain: dict[str, list[_Convert]] = {}
        self._native: dict[str, list[tuple[str, Callable[..., object]]]] = {}
        self._typed: dict[str, _Reader] = {}
        for descriptor in schema.types:
            held: list[_Convert] = []
            plain: list[_Convert] = []
            native: list[tuple[str, Callable[..., object]]] = []
            for field in descriptor.fields:
                row = field.type.scalar.row
                restore = None if row is None else row.restore
                if row is not None and row.plain is not None:
                    plain.append((field.name, row.plain, field.many))
                    if row.native is date:
                        pass  # msgspec writes the same
                    elif row.trusted is None:
                        held.append(plain[-1])
                    else:
                        held.append((field.name, row.lexical, field.many))
                        restore = row.trusted
                if field.many:
                    native.append((field.name, tuple if restore is None else _each(restore)))
                elif restore is not None:
                    native.append((field.name, restore))
            self._held[descriptor.name] = held
            self._plain[descriptor.name] = plain
            self._native[descriptor.name] = native
            self._typed[descriptor.name] = _Reader(descriptor, native)

    def encode(self, type_name: str, values: Mapping[str, object]) -> bytes:
        """Values as stored: the same bytes whichever way they came about."""
        return _encode(values, self._held[type_name])

    def long_texts(self, type_name: str, values: Mapping[str, object]) -> dict[str, str]:
        """The texts, as documents hold them, that are too long to be in one."""
        held = {name: convert for name, convert, many in self._held[type_name] if not many}
        texts = {
            name: held[name](value) if name in held else value for name, value in values.items()
        }
        return {
            name: text
            for name, text in texts.items()
            if isinstance(text, str) and len(text) > LONG_TEXT
        }

    def encode_plain(self, type_name: str, values: Mapping[str, object]) -> bytes:
        """Values in their JSON form, as everybody else reads them."""
        return _encode(values, self._plain[type_name])

    def decode(
        self,
        type_name: str,
        doc: bytes,
        texts: LongTexts,
        db: sqlite3.Connection,
        *,
        declared: bool = False,
    ) -> dict[str, object]:
        """Values as the engine uses them; long texts are read from where they are.

        ``declared``: refuse values that are of another type than their fields.
        """
        long: Mapping[str, LongText] | None = None
        if doc[0] == MARK:
            found = read_document(doc)
            doc, long = bytes(found.rest), found.long
        typed = self._typed[type_name]
        try:
            values, native = typed.decode(doc), typed.rest
        except msgspec.ValidationError:
            if declared:
                raise
            # Written without validation, so perhaps of another type than declared.
            values, native = _DECODER.decode(doc), self._native[type_name]
        if long is not None:
            values |= {name: texts.read(db, each) for name, each in long.items()}
            values = dict(sorted(values.items()))
        for name, restore in native:
            value = values.get(name)
            if value is not None:
                values[name] = restore(value)
        return values


def _encode(values: Mapping[str, object], converts: list[_Convert]) -> bytes:
    if converts:
        values = dict(values)
        for name, convert, many in converts:
            value = values.get(name)
            if value is not None:
                values[name] = (
                    [convert(item) for item in value] if many else convert(value)  # type: ignore[attr-defined]
                )
    return msgspec.json.encode(values, order="deterministic")


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


PRESENT: Final = b"\x01"
MISSING: Final = b"\x02"
LONG: Final = 64
"""Bytes of a long key that are kept as they are; a digest of the whole follows."""

Values = Mapping[str, object]
Extract = Callable[[Values], tuple[bytes, ...]]
KeyColumn = Callable[[Sequence[Values]], list[bytes]]
"""The values of many nodes → the one key of each."""


class Slot(msgspec.Struct, frozen=True):
    """One sorted list of keys: ``Type.field``, or ``Type(a,b)`` for several fields."""

    name: str
    extract: Extract
    unique: tuple[str, ...] = ()
    """The fields that this slot keeps unique, if any."""
    refers: bool = False
    """Whether its keys are references."""
    fields: tuple[str, ...] = ()
    """The fields that its keys are made of."""
    column: KeyColumn | None = None
    """The same keys as ``extract``, of many nodes; None where a node may have several."""

    @property
    def watched(self) -> bool:
        """Whether rules about other nodes look at it while a write is under way."""
        return self.refers or bool(self.unique)


def encoder(field: PredicateDescriptor) -> Callable[[object], bytes] | None:
    """Value → key; None for kinds that have no order."""
    to_bytes = _sort_key(field)
    if to_bytes is None:
        return None

    def encode(value: object) -> bytes:
        key = PRESENT + to_bytes(value)
        return key if len(key) <= LONG else _cut(key)

    return encode


def _sort_key(field: PredicateDescriptor) -> Callable[..., bytes] | None:
    row = field.type.scalar.row
    return _handle_bytes if row is None or row.tagged else row.sort_key


def handle_key(handle: str) -> bytes:
    """The key of a reference to a node."""
    key = PRESENT + _handle_bytes(handle)
    return key if len(key) <= LONG else _cut(key)


def _cut(key: bytes) -> bytes:
    return key[:LONG] + sha256(key).digest()[:16]


def _handle_bytes(value: object) -> bytes:
    return str(value).encode()


def is_long(key: bytes) -> bool:
    """Whether a key was cut, so that its order is right only up to the cut."""
    return len(key) > LONG


def escape(part: bytes) -> bytes:
    """One part of a key of several fields: ends before anything longer begins."""
    return part.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def after_prefix(prefix: bytes) -> bytes:
    """The least byte string that is greater than all that start with ``prefix``."""
    return prefix.rstrip(b"\xff")[:-1] + bytes([prefix.rstrip(b"\xff")[-1] + 1])


def slot_name(type_name: str, fields: tuple[str, ...]) -> str:
    """How a slot is known."""
    return f"{type_name}.{fields[0]}" if len(fields) == 1 else f"{type_name}({','.join(fields)})"


def slots_of(schema: Schema, type_name: str) -> tuple[Slot, ...]:
    """All slots in which an instance of a type has keys, its ancestors' lists included."""
    descriptor = schema.by_name[type_name]
    slots: list[Slot] = []
    lineage = schema.lineage(type_name)
    for field in descriptor.fields:
        extract, column = _extract_one(field), _key_column(field)
        if extract is None:
            continue
        holders = [name for name in lineage if field.name in schema.by_name[name].by_name]
        # The topmost holder's list spans all subtypes: uniqueness is decided there. A key of
        # one type alone needs no rule, since the ids that are derived from it can't repeat.
        shared_key = field.key and len(schema.family(holders[-1])) > 1
        for name in holders:
            distinct = (field.unique or shared_key) and name == holders[-1]
            unique = (field.name,) if distinct else ()
            refers, own = field.target is not None, (field.name,)
            slots.append(Slot(slot_name(name, own), extract, unique, refers, own, column))
    for groups, distinct in ((descriptor.unique, True), (descriptor.index, False)):
        for group in groups:
            holders = [
                name
                for name in lineage
                if group
                in (schema.by_name[name].unique if distinct else schema.by_name[name].index)
            ]
            fields = [descriptor.by_name[name] for name in group]
            extract = _extract_group(fields, unique=distinct)
            column = None if distinct else _group_column(fields)
            for name in holders if not distinct else holders[-1:]:
                label = slot_name(name, group) + ("!" if distinct else "")
                together = group if distinct else ()
                slots.append(Slot(label, extract, together, fields=group, column=column))
    return tuple(slots)


def _key_column(field: PredicateDescriptor) -> KeyColumn | None:
    to_bytes, name = _sort_key(field), field.name
    if to_bytes is None or field.many or field.tagged:
        return None
    encode = to_bytes

    def column(nodes: Sequence[Values]) -> list[bytes]:
        found = [values.get(name) for values in nodes]
        if None in found:
            keys = [MISSING if value is None else PRESENT + encode(value) for value in found]
        else:
            keys = [PRESENT + key for key in map(encode, found)]
        if max(map(len, keys), default=0) > LONG:
            keys = [key if len(key) <= LONG else _cut(key) for key in keys]
        return keys

    return column


def _group_column(fields: list[PredicateDescriptor]) -> KeyColumn | None:
    columns = [each for each in map(_key_column, fields) if each is not None]
    if len(columns) < len(fields):
        return None

    def column(nodes: Sequence[Values]) -> list[bytes]:
        parts = [map(escape, each(nodes)) for each in columns]
        return list(map(b"".join, zip(*parts, strict=True)))

    return column


def _extract_one(field: PredicateDescriptor) -> Extract | None:
    encode = encoder(field)
    if encode is None:
        return None
    name, ordered = field.name, field.ordered
    missing = (MISSING,)
    if field.tagged:

        def extract_texts(values: Values) -> tuple[bytes, ...]:
            value = values.get(name)
            if not isinstance(value, LangText):
                return missing
            return tuple(dict.fromkeys(map(encode, value.values())))

        return extract_texts
    if field.many:

        def extract_many(values: Values) -> tuple[bytes, ...]:
            items = values.get(name)
            if not items:
                return missing
            keys = (encode(item) for item in items)  # type: ignore[attr-defined]
            return tuple(dict.fromkeys(keys)) if ordered else tuple(keys)

        return extract_many

    def extract(values: Values) -> tuple[bytes, ...]:
        value = values.get(name)
        return missing if value is None else (encode(value),)

    return extract


def _extract_group(fields: list[PredicateDescriptor], *, unique: bool) -> Extract:
    encoders = [(field.name, encoder(field)) for field in fields]

    def extract(values: Values) -> tuple[bytes, ...]:
        parts = []
        for name, encode in encoders:
            value = values.get(name)
            if value is None:
                if unique:
                    return ()  # as in SQL, a group with a gap is never a duplicate
                parts.append(escape(MISSING))
            elif encode is not None:
                parts.append(escape(encode(value)))
        return (b"".join(parts),)

    return extract


@lru_cache(maxsize=64)
def all_slots(schema: Schema) -> Mapping[str, tuple[Slot, ...]]:
    """The slots of every type."""
    return {each.name: slots_of(schema, each.name) for each in schema.types}
