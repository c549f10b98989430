"""NDJSON: one node or one edge per line.

``{"type": "Task", "data": {…}}`` with ``"id"`` if the type has no key, and
``{"edge": "owner", "from": …, "to": …}`` with ``"data"`` if the edge is a type of its own. A
reference is an IRI, ``Type/id`` or a key. Blank lines are allowed. Any other line is reported with
its number, and no input can make the reader fail or grow.

``FastLines`` is a shortcut for valid lines: one decoder checks nearly everything while it reads.
It accepts less than the validator, never more, and gives the same values; all other lines take
the slow path, which reports errors. A rule that the decoder can't express is checked by the
validator's own function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from datetime import date
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, Required, TypedDict, Union

import msgspec

from trails.engine.transfer.items import OPEN, EndError, Ends, LoadItem, Problems
from trails.engine.transfer.source import LoadSource
from trails.engine.transfer.staging import Reference, Spool
from trails.engine.validation.validate import References, reference_coercer
from trails.errors import FieldError, LimitError
from trails.model.caches import LRUCache
from trails.model.constraints import (
    Check,
    Coerce,
    compile_field,
    compile_pattern,
    rules_of,
    shorten,
)
from trails.model.fairness import give_way
from trails.model.iris import MAX_ID_BYTES, Names, id_problem, normal_id, uuid7
from trails.model.kinds import Kind
from trails.model.names import suggest
from trails.model.nodes import MAX_NODE
from trails.model.texts import describe_json_error
from trails.model.types import REF, PredicateDescriptor, Schema, TypeDescriptor
from trails.model.visibility import ENDS

_EXACT: Final = 2**53
"""Integers below it are exact as floats, so limits mean the same for both."""

_is_plain = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*").fullmatch
named_keys = re.compile(rb'"[ \t\r]*:').findall
"""Matches every key of a line of JSON, and possibly more."""


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
            elif field.type.row is not None and field.type.row.native is float:
                self.floats.append(field.name)
            elif field.pattern is not None:
                self.patterns.append((field.name, compile_pattern(field.pattern)))
            # Fields with a default are required here: the slow path fills them.
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
    """Reads valid lines with nodes; None for all others."""

    def __init__(self, schema: Schema, names: Names) -> None:
        special: dict[str, Coerce] = {REF: reference_coercer(References(schema, names))}
        types = [
            _Type(each, special)
            for each in schema.types
            if each.edge is None and not each.abstract and not schema.shapes_of(each.name)
        ]
        self._types = {each.line: each for each in types}
        self._decode: Callable[[bytes], Any] = _decode_nothing
        if types:
            lines: Any = Union[tuple(self._types)]  # noqa: UP007 - of as many as there are
            self._decode = msgspec.json.Decoder(lines).decode

    def read(self, number: int, line: bytes) -> LoadItem | None:
        """A node with values in the validator's form."""
        try:
            given = self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        values: dict[str, object] = given.data
        # The decoder skips unknown fields and repeated keys. Every key is followed by a colon:
        # if there are no more colons than keys were read, there are neither.
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
        return LoadItem(
            number, f"line {number}: ", kind.name, values, identifier, handle, checked=True
        )


_kept: LRUCache[tuple[str, Names], FastLines] = LRUCache(8)


def fast_lines(schema: Schema, names: Names) -> FastLines:
    """The cached reader for a schema; its generated classes are expensive."""
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
    """The type that the decoder checks completely, except for a pattern; None if none."""
    row = field.type.row
    if row is None or row.native not in _DECODED:
        return None
    decode, checked = _DECODED[row.native]
    if any(rule.code not in checked for rule, _ in rules_of(field)):
        return None
    return decode(field, row)


def _text(field: PredicateDescriptor, _: Kind) -> object:
    if field.one_of is not None:
        if (field.min_length, field.max_length, field.pattern) != (None, None, None):
            return None
        return Literal[field.one_of]
    return Annotated[
        str, msgspec.Meta(min_length=field.min_length or 0, max_length=field.max_length)
    ]


def _integer(field: PredicateDescriptor, row: Kind) -> object:
    low: Any = row.schema["minimum"] if field.min_value is None else row.coerce(field.min_value)
    high: Any = row.schema["maximum"] if field.max_value is None else row.coerce(field.max_value)
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


def _float(field: PredicateDescriptor, row: Kind) -> object:
    low: Any = None if field.min_value is None else row.coerce(field.min_value)
    high: Any = None if field.max_value is None else row.coerce(field.max_value)
    wide = any(each is not None and abs(each) >= _EXACT for each in (low, high))
    return None if wide else Annotated[float, msgspec.Meta(ge=low, le=high)]


def _plain(_: PredicateDescriptor, row: Kind) -> object:
    return row.native


_TEXTS: Final = frozenset({"min_length", "max_length", "pattern", "one_of"})
_RANGES: Final = frozenset({"min_value", "max_value"})
_DECODED: Final[
    dict[type | None, tuple[Callable[[PredicateDescriptor, Kind], object], frozenset[str]]]
] = {
    str: (_text, _TEXTS),
    int: (_integer, _RANGES),
    float: (_float, _RANGES),
    bool: (_plain, frozenset()),
    date: (_plain, frozenset()),
}
"""By native type: what the decoder checks, and the constraints that this covers.

A field with any other constraint is checked by the validator.
"""


MAX_LINE: Final = 2 * MAX_NODE
"""Room for any node, even with more escapes than exports have."""
_DENSE: Final = 1 << 16
"""Lines of a block that are split in one step."""
_SOME: Final = 256
"""Lines that are read without a pause, many of which may be blank."""
_BOM: Final = b"\xef\xbb\xbf"
_KEYS: Final = ("type", "id", "data", "edge", "from", "to")
_unknown = re.compile(r"unknown field `(.*)`").search


class NdjsonLine(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from"}, gc=False):
    """A line as it is written."""

    type: str | msgspec.UnsetType = msgspec.UNSET
    id: object = msgspec.UNSET
    data: dict[str, object] | msgspec.UnsetType = msgspec.UNSET
    edge: str | msgspec.UnsetType = msgspec.UNSET
    start: object = msgspec.UNSET
    to: object = msgspec.UNSET


_decode = msgspec.json.Decoder(NdjsonLine).decode


class LineError(ValueError):
    """An invalid line; the message says why."""

    def __init__(self, message: str, code: str = "syntax") -> None:
        super().__init__(message)
        self.code = code


def _pieces(source: LoadSource) -> Iterator[bytes]:
    """Blocks with few enough lines that splitting one does not block other threads."""
    for block in source.blocks():
        if block.count(b"\n") <= _DENSE:
            yield block
        else:
            yield from (block[at : at + _DENSE] for at in range(0, len(block), _DENSE))


def numbered(source: LoadSource) -> Iterator[tuple[int, bytes | None]]:
    """(number, line) of all lines; None for a line that is too long."""
    number, skipping, blank = 1, False, 0
    begun, length = list[bytes](), 0  # the blocks of a line that has not ended
    for block in _pieces(source):
        lines = block.split(b"\n")
        if begun and len(lines) > 1:
            lines[0] = b"".join([*begun, lines[0]])
            begun, length = [], 0
        rest = lines.pop()
        if skipping and lines:
            del lines[0]
            number, skipping = number + 1, False
        for line in lines:
            if not line or line.isspace():
                blank += 1
                if blank > source.limits.blank_lines:
                    raise _too_blank(source.limits.blank_lines)
            yield number, line if len(line) <= MAX_LINE else None
            number += 1
            if not number % _SOME:
                give_way()
        if skipping or not rest:
            continue
        begun.append(rest)
        length += len(rest)
        if length > MAX_LINE:
            yield number, None
            begun, length, skipping = [], 0, True
    if begun:
        yield number, b"".join(begun)


def _too_blank(most: int) -> LimitError:
    return LimitError(
        f"the file has more than {most:,} blank lines; remove them, or raise "
        "'[loads] blank_lines' in trails.toml",
        limit="blank_lines",
        value=most,
    )


class NdjsonFile:
    """The nodes and edges of an NDJSON file."""

    def __init__(self, schema: Schema, names: Names, ends: Ends, problems: Problems) -> None:
        self._schema = schema
        self._fast = fast_lines(schema, names)
        self._ends = ends
        self._problems = problems

    # --- before: what edge lines say about reference fields ------------------------------

    def note_references(self, source: LoadSource, spool: Spool) -> None:
        """Find and keep the edge lines whose edge is a reference field."""
        for number, line in numbered(source):
            # Only these can contain the key "edge", which may be written with escapes.
            if line is None or (b'"edge"' not in line and b"\\u" not in line):
                continue
            try:
                given = _read(line)
            except LineError:
                continue  # reported when the nodes are read
            if given is None or given.edge is msgspec.UNSET or self._edge_type(given.edge):
                continue
            try:
                spool.refer(self._reference(number, given))
            except (LineError, EndError) as error:
                self._problems.add(f"line {number}: ", str(error), error.code)
            if self._problems.full:
                return

    def _edge_type(self, name: str) -> TypeDescriptor | None:
        found = self._schema.by_name.get(name)
        return None if found is None or found.edge is None else found

    def _reference(self, number: int, given: NdjsonLine) -> Reference:
        edge = str(given.edge)
        if edge in self._schema.by_name:
            raise LineError(f'{edge} is not an edge type; write {{"type": "{edge}", "data": …}}')
        start, to = _ends_of(given)
        owner, field = self._ends.reference(edge, start)
        if given.data:
            raise LineError(
                f"{edge!r} is a reference field, which holds no data of its own; leave out "
                '"data", or declare an edge type'
            )
        if field.ordered:
            raise LineError(
                f"{edge!r} is an ordered list, in which an edge line gives no place; give the "
                "whole list in the data of the node"
            )
        return Reference(owner, number, field.name, self._ends.node(to, field.target or ""))

    # --- nodes, edges of an edge type among them -----------------------------------------

    def items(self, source: LoadSource) -> Iterator[LoadItem]:
        """All nodes; bad lines are collected."""
        fast = self._fast.read
        for number, line in numbered(source):
            item = None if line is None else fast(number, line)
            if item is not None:
                yield item
                continue
            try:
                item = self._item(number, line)
            except (LineError, EndError) as error:
                self._problems.add(f"line {number}: ", str(error), error.code)
                if self._problems.full:
                    return
                continue
            if item is not None:
                yield item

    def _item(self, number: int, line: bytes | None) -> LoadItem | None:
        if line is None:
            raise LineError(
                f"it is longer than {MAX_LINE:,} bytes, and a node may take {MAX_NODE:,}; keep "
                "large content as a blob and name it in a Blob field"
            )
        if number == 1 and line.startswith(_BOM):
            raise LineError("it begins with a byte order mark; save the file as plain UTF-8")
        given = _read(line)
        if given is None:
            return None
        if given.edge is not msgspec.UNSET:
            return self._edge(number, given, given.edge)
        if given.type is msgspec.UNSET:
            message = 'it has no "type" (a node) and no "edge"; give one of them'
            raise LineError(message, "required")
        if given.start is not msgspec.UNSET or given.to is not msgspec.UNSET:
            hint = ""
            if self._edge_type(given.type) is not None:
                hint = f'; write "edge": "{given.type}" in place of "type": "{given.type}"'
            raise LineError(f'"from" and "to" belong to an edge; this line has a "type"{hint}')
        name = given.type
        if name not in self._schema.by_name:
            hint = suggest(name, self._schema.by_name)
            raise LineError(f"there is no type {name!r}; {hint}", "unknown_field")
        data = {} if given.data is msgspec.UNSET else given.data
        return self._referring(LoadItem(number, f"line {number}: ", name, data, _id(given.id)))

    def _edge(self, number: int, given: NdjsonLine, name: str) -> LoadItem | None:
        if given.type is not msgspec.UNSET:
            raise LineError('a line has a "type" (a node) or an "edge", not both')
        descriptor = self._edge_type(name)
        if descriptor is None or descriptor.edge is None:
            return None  # a reference field: noted before
        if given.id is not msgspec.UNSET:
            raise LineError('an edge has no "id" of its own; it follows from its ends and key')
        start, to = _ends_of(given)
        values: dict[str, object] = {} if given.data is msgspec.UNSET else given.data
        if "source" in values or "target" in values:
            raise LineError('the ends of an edge are "from" and "to", not "data"')
        source = values["source"] = _end(self._ends, "from", start, descriptor.edge.source)
        target = values["target"] = _end(self._ends, "to", to, descriptor.edge.target)
        item = LoadItem(number, f"line {number}: ", name, values)
        item.open = source.startswith(OPEN) or target.startswith(OPEN)
        return self._referring(item, but=ENDS)

    # --- references by key ---------------------------------------------------------------

    def _referring(self, item: LoadItem, but: Collection[str] = ()) -> LoadItem:
        """The node with the keys in its reference fields, ``but`` some, read as references."""
        values = item.values
        for field in self._schema.by_name[item.type].fields:
            if field.target is None or field.name in but or values.get(field.name) is None:
                continue
            given = values[field.name]
            several = given if isinstance(given, list) else [given]
            read = [self._refer(each, field.target) for each in several]
            values[field.name] = read if isinstance(given, list) else read[0]
            item.open = item.open or any(map(_is_open, read))
        return item

    def _refer(self, value: object, target: str) -> object:
        try:
            return self._ends.node(value, target)
        except EndError:
            if _is_open(value):
                raise
            return value  # the validator reports it


def _is_open(value: object) -> bool:
    return isinstance(value, str) and value.startswith(OPEN)


def _end(ends: Ends, side: str, value: object, type_name: str) -> str:
    try:
        return ends.node(value, type_name)
    except EndError as error:
        raise EndError(f'"{side}": {error}', error.code) from None


def _ends_of(given: NdjsonLine) -> tuple[object, object]:
    missing = [
        f'"{name}"'
        for name, value in (("from", given.start), ("to", given.to))
        if value is msgspec.UNSET or value is None
    ]
    if missing:
        message = f"an edge needs {' and '.join(missing)}: an IRI, 'Type/id' or a key"
        raise LineError(message, "required")
    return given.start, given.to


def _id(value: object) -> str | None:
    if value is msgspec.UNSET or value is None:
        return None
    if not isinstance(value, str):
        raise LineError(f'"id" must be a string, not {shorten(value)}')
    identifier = normal_id(value)
    problem = id_problem(identifier)
    if problem is not None:
        raise LineError(f'"id" {shorten(value)} can\'t be an id: {problem}')
    return identifier


def _read(line: bytes) -> NdjsonLine | None:
    """A line of JSON; None for a blank one."""
    try:
        given = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if not line.strip():
            return None
        unknown = _unknown(str(error))
        if unknown is not None:
            raise LineError(_misplaced(unknown[1]), "unknown_field") from None
        raise LineError(_why(line, error)) from None
    data = given.data
    keys = 0 if data is msgspec.UNSET else len(data)
    for value in (given.type, given.id, data, given.edge, given.start, given.to):
        keys += value is not msgspec.UNSET
    # Every key is followed by a colon, so no more colons than keys means no key twice.
    if line.count(b":") != keys and len(named_keys(line)) != keys:
        _refuse_repeated_keys(line)
    return given


def _refuse_repeated_keys(line: bytes) -> None:
    def check(pairs: list[tuple[str, object]]) -> None:
        names = [name for name, _ in pairs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise LineError(f"the key {shorten(repeated[0])} appears twice in one object")

    try:
        json.loads(line, object_pairs_hook=check, parse_int=str, parse_float=str)
    except RecursionError:
        raise LineError("it is nested too deeply") from None


def _misplaced(name: str) -> str:
    """The hint for an unknown key of a line, which is most likely a field."""
    near = get_close_matches(name, _KEYS, n=1, cutoff=0.7)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(_KEYS)}."
    return f'{name!r} is not a key of a line{hint} Fields go into "data"'


def _why(line: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text ({error.reason})"
    if isinstance(error, msgspec.ValidationError):
        reason = str(error).replace("`", "'").replace(" - at '$.", " in '").replace("[...]", "")
        if not line.lstrip().startswith(b"{"):
            return f"it is not a JSON object ({reason}); write one object a line"
        return f"it can't be used: {reason}"
    message = (
        describe_json_error(line, error) if isinstance(error, msgspec.DecodeError) else str(error)
    )
    return f"it is not valid JSON ({message.removeprefix('JSON is malformed: ')})"
