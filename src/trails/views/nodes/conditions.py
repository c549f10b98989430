"""Conditions, compiled: each is a test on a node's values, and often a range of keys.

The test decides. The ranges say which keys matching nodes have, and the document tests what is to
be found in their documents; ``filters`` makes SQL of both.
"""

from __future__ import annotations

import operator
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import MAXYEAR, MINYEAR, datetime
from typing import Final

import msgspec

from trails.errors import QueryError
from trails.model.constraints import Coerce, coercer_of, shorten
from trails.model.kinds import KINDS, KindError
from trails.model.names import suggest
from trails.model.nodes import Condition, Group
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor, ValueType
from trails.model.visibility import SchemaFilter
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.rows import (
    LONG,
    MISSING,
    PRESENT,
    after_prefix,
    encoder,
    is_long,
    slot_name,
)

_MAX_DEPTH: Final = 100

Values = Mapping[str, object]
Test = Callable[[Values], bool]
Load = Callable[[str], Values | None]
"""Handle → the values of the node that a reference points to."""


class Ranges(msgspec.Struct, frozen=True):
    """Keys of one slot, each range from ``low`` up to but not including ``high``."""

    slot: str
    field: str
    spans: tuple[tuple[bytes, bytes], ...]
    exact: bool
    """Whether the ranges hold exactly what the test accepts."""
    point: bool
    """Whether it is one single key."""
    many: bool
    """Whether one node can have several keys here."""


class DocumentTest(msgspec.Struct, frozen=True):
    """A test, in SQL, of one field as documents have it."""

    field: str
    sql: str = ""
    """With ``{}`` in place of the field's JSON; empty for a hop, which looks up what it names."""
    values: tuple[object, ...] = ()
    exact: bool = False
    """Whether it holds for exactly what the test accepts; if not, it also holds for some more."""
    plain: str = ""
    """The field as SQL finds it in the bytes of a document, with ``{}`` for the place where it
    begins; empty where the document has to be parsed."""


class CompiledCondition(msgspec.Struct, frozen=True):
    """A condition or group, ready to run."""

    test: Test
    ranges: Ranges | None = None
    op: str = ""
    parts: tuple[CompiledCondition, ...] = ()
    document: DocumentTest | None = None


class Compiler:
    """Compiles the conditions on one type."""

    def __init__(
        self,
        schema: Schema,
        special: Mapping[str, Coerce],
        load: Load,
        partly_hidden: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """``partly_hidden`` are fields by type whose keys say more than their values may."""
        self._partly_hidden = partly_hidden or {}
        self._schema = schema
        self._special = special
        self._load = load

    def compile(
        self, type_name: str, tree: Condition | Group | None, depth: int = 0
    ) -> CompiledCondition | None:
        """Compile a tree; None means that everything matches."""
        if depth > _MAX_DEPTH:
            raise QueryError(f"the conditions nest deeper than {_MAX_DEPTH} levels; flatten them")
        if tree is None:
            return None
        if isinstance(tree, Condition):
            return self._condition(self._schema.by_name[type_name], tree)
        parts = tuple(
            part
            for each in tree.parts
            if (part := self.compile(type_name, each, depth + 1)) is not None
        )
        tests = [part.test for part in parts]
        if tree.op == "not":
            negated = tests[0]
            return CompiledCondition(lambda values: not negated(values), op="not", parts=parts)
        if tree.op == "or":
            return CompiledCondition(
                lambda values: any(test(values) for test in tests), op="or", parts=parts
            )
        return CompiledCondition(
            lambda values: all(test(values) for test in tests), op="and", parts=parts
        )

    def _condition(self, descriptor: TypeDescriptor, condition: Condition) -> CompiledCondition:
        name, *rest = condition.path
        if name == "id" and not rest:
            raise QueryError(f"use {descriptor.name}.get(ctx, id) to find a node by its id")
        field = descriptor.by_name.get(name)
        if field is None:
            raise _unknown_field(descriptor, name)
        if rest:
            return self._hop(descriptor, field, condition)
        compiled = LOOKUPS.get(condition.lookup)
        if compiled is None:
            raise QueryError(f"{condition.lookup!r} is not a lookup; use {', '.join(LOOKUPS)}")
        found = compiled(self, descriptor, field, condition.value)
        if not self._is_partly_hidden(descriptor, field):
            return found
        if condition.lookup == "isnull":
            return CompiledCondition(found.test)
        return _inexact(found)

    def _is_partly_hidden(self, descriptor: TypeDescriptor, field: PredicateDescriptor) -> bool:
        return field.name in self._partly_hidden.get(descriptor.name, ())

    def _hop(
        self, descriptor: TypeDescriptor, field: PredicateDescriptor, condition: Condition
    ) -> CompiledCondition:
        if field.target is None:
            raise QueryError(
                f"{descriptor.name}.{field.name} is {field.type}, not a reference, so it has no "
                f"{condition.path[1]!r}; lookups are {', '.join(LOOKUPS)}"
            )
        inner = self._condition(
            self._schema.by_name[field.target],
            Condition(condition.path[1:], condition.lookup, condition.value),
        )
        name, load = field.name, self._load

        def test(values: Values) -> bool:
            found = values.get(name)
            handles = found if isinstance(found, tuple) else (found,) if found else ()
            return any(
                (target := load(str(handle))) is not None and inner.test(target)
                for handle in handles
            )

        exact = inner.ranges is not None and inner.ranges.exact
        found = CompiledCondition(
            test,
            # Its keys depend on which targets match.
            _ranges(descriptor, field, (), exact=exact),
            "hop",
            (inner,),
            DocumentTest(field.name, exact=True),
        )
        return _inexact(found) if self._is_partly_hidden(descriptor, field) else found

    def are_plain(self, descriptor: TypeDescriptor) -> bool:
        """Whether documents of a type have no objects in them, so that each name occurs once."""
        types = [self._schema.by_name[name] for name in self._schema.family(descriptor.name)]
        fields = (field for each in types for field in each.fields)
        return all(
            field.target is not None or (field.type.scalar.kind in KINDS and not field.tagged)
            for field in fields
        )

    def value(self, field: PredicateDescriptor, value: object) -> object:
        """A condition's value in the field's type."""
        scalar: ValueType = field.type.scalar
        coerce, expected = coercer_of(scalar, self._special)
        if field.tagged:  # compared with the text of any language
            coerce, expected = KINDS["String"].coerce, "a text"
        try:
            return coerce(value)
        except KindError:
            raise QueryError(
                f"{field.name} is compared with {shorten(value)}, which is not {expected}",
                field=field.name,
                reason="type_mismatch",
                expected_datatype=scalar.kind,
            ) from None


def _inexact(found: CompiledCondition) -> CompiledCondition:
    """The same condition on a field of which more is stored than is visible."""
    ranges, document = found.ranges, found.document
    return msgspec.structs.replace(
        found,
        ranges=None if ranges is None else msgspec.structs.replace(ranges, exact=False),
        document=None if document is None else msgspec.structs.replace(document, exact=False),
    )


def _unknown_field(descriptor: TypeDescriptor, name: str) -> QueryError:
    hint = suggest(name, descriptor.by_name)
    return QueryError(f"{descriptor.name} has no field {name!r}; {hint}", field=name)


Lookup = Callable[[Compiler, TypeDescriptor, PredicateDescriptor, object], CompiledCondition]


def _any_value(field: PredicateDescriptor, holds: Callable[[object], bool]) -> Test:
    """A test on a field's value; of a list one item suffices, of a LangText one language."""
    name = field.name
    if field.tagged:
        return lambda values: any(map(holds, dict(values.get(name) or {}).values()))  # type: ignore[call-overload]
    if field.many:
        return lambda values: any(holds(item) for item in values.get(name) or ())  # type: ignore[attr-defined]

    def test(values: Values) -> bool:
        value = values.get(name)
        return value is not None and holds(value)

    return test


def _ranges(
    descriptor: TypeDescriptor,
    field: PredicateDescriptor,
    spans: Iterable[tuple[bytes, bytes]],
    *,
    exact: bool = True,
    point: bool = False,
) -> Ranges:
    slot = slot_name(descriptor.name, (field.name,))
    several = field.many or field.tagged
    return Ranges(slot, field.name, tuple(spans), exact, point, several)


def _encode(field: PredicateDescriptor, lookup: str) -> Callable[[object], bytes]:
    encode = encoder(field)
    if encode is None:
        raise QueryError(f"{field.name} is {field.type}, which {lookup!r} can't compare")
    return encode


def _span(key: bytes) -> tuple[bytes, bytes]:
    return key, key + b"\x00"


def _exact(
    c: Compiler, d: TypeDescriptor, f: PredicateDescriptor, value: object
) -> CompiledCondition:
    wanted = c.value(f, value)
    key = _encode(f, "exact")(wanted)
    return CompiledCondition(
        _any_value(f, lambda each: each == wanted), _ranges(d, f, [_span(key)], point=True)
    )


def _in(c: Compiler, d: TypeDescriptor, f: PredicateDescriptor, value: object) -> CompiledCondition:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise QueryError(f"{f.name}__in needs a list of values, not {shorten(value)}")
    wanted = {c.value(f, each) for each in value}
    encode = _encode(f, "in")
    spans = sorted(_span(encode(each)) for each in wanted)
    return CompiledCondition(_any_value(f, wanted.__contains__), _ranges(d, f, spans))


def _isnull(
    c: Compiler, d: TypeDescriptor, f: PredicateDescriptor, value: object
) -> CompiledCondition:
    del c
    if not isinstance(value, bool):
        raise QueryError(f"{f.name}__isnull needs True or False, not {shorten(value)}")
    name = f.name
    document = DocumentTest(name, "{} IS NULL" if value else "{} IS NOT NULL", exact=True)
    if encoder(f) is None:
        return CompiledCondition(
            lambda values: (values.get(name) is None) is value, document=document
        )
    spans = [_span(MISSING)] if value else [(PRESENT, MISSING)]
    return CompiledCondition(
        lambda values: (not values.get(name) and values.get(name) in (None, ())) is value,
        _ranges(d, f, spans, point=value),
        document=document,
    )


def _comparison(lookup: str) -> Lookup:
    def compile_comparison(
        c: Compiler, d: TypeDescriptor, f: PredicateDescriptor, value: object
    ) -> CompiledCondition:
        limit = c.value(f, value)
        if f.type.scalar.kind == "Bool" or f.target is not None or encoder(f) is None:
            raise QueryError(f"{f.name} is {f.type}, which has no order for {lookup!r}")
        holds = _COMPARE[lookup]
        key = _encode(f, lookup)(limit)
        if lookup in {"gt", "gte"}:
            low = key + b"\x00" if lookup == "gt" and not is_long(key) else key[:LONG]
            span = (low, MISSING)
        else:
            after = after_prefix(key[:LONG]) if is_long(key) else key + b"\x00"
            span = (PRESENT, key if lookup == "lt" and not is_long(key) else after)
        return CompiledCondition(
            _any_value(f, lambda each: holds(each, limit)),
            # Where the limit was cut, so were keys on either side of it.
            _ranges(d, f, [span], exact=not is_long(key)),
            document=_compared(f, lookup, limit, plain=c.are_plain(d)),
        )

    return compile_comparison


_SIGNS: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_NEAR: Final = 1e-9
"""SQLite reads a fraction with a smaller relative error than this."""
_SECONDS: Final = len("2000-01-01T00:00:00")


def _compared(
    f: PredicateDescriptor, lookup: str, limit: object, *, plain: bool
) -> DocumentTest | None:
    """The comparison in SQL, where JSON in SQLite has an order that can stand for the field's."""
    if f.many or f.tagged:
        return None
    below = lookup in {"lt", "lte"}
    loose = "{} <= ?" if below else "{} >= ?"
    match f.type.scalar.kind:
        case "Int":
            whole = "CAST(substr(n.doc, {}, 20) AS INTEGER)" if plain else ""
            return DocumentTest(f.name, f"{{}} {_SIGNS[lookup]} ?", (limit,), True, whole)
        case "Date":
            day = "CAST(substr(n.doc, {} + 1, 10) AS TEXT)" if plain else ""
            return DocumentTest(f.name, f"{{}} {_SIGNS[lookup]} ?", (str(limit),), True, day)
        case "Float" if isinstance(limit, float):
            near = abs(limit) * _NEAR + sys.float_info.min
            return DocumentTest(f.name, loose, (limit + near if below else limit - near,))
        case "DateTime" if isinstance(limit, datetime):
            if limit.year in {MINYEAR, MAXYEAR}:  # where values may be in another zone than UTC
                return None
            text = limit.isoformat()[:_SECONDS]
            return DocumentTest(f.name, loose, (f"{text}~" if below else text,))
        case "String" if isinstance(limit, str) and _is_plain(limit):
            return DocumentTest(f.name, loose, (limit,))
        case _:
            return None


def _is_plain(text: str) -> bool:
    """Whether SQLite compares a text as we do; it ends one of JSON at a NUL."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


_COMPARE: Final[Mapping[str, Callable[..., bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def _text(f: PredicateDescriptor, lookup: str, value: object) -> str:
    row = f.type.scalar.row
    if row is None or not row.text:
        raise QueryError(f"{f.name} is {f.type}; {lookup!r} works on text")
    if not isinstance(value, str):
        raise QueryError(f"{f.name}__{lookup} needs a string, not {shorten(value)}")
    return value


def _startswith(
    c: Compiler, d: TypeDescriptor, f: PredicateDescriptor, value: object
) -> CompiledCondition:
    del c
    text = _text(f, "startswith", value)
    whole = PRESENT + text.encode("utf-8", "surrogatepass")
    prefix = whole[:LONG]
    document = None
    if f.type.scalar.kind == "String" and not f.many and _is_plain(text):
        document = DocumentTest(f.name, "substr({}, 1, ?) = ?", (len(text), text))
    return CompiledCondition(
        _any_value(f, lambda each: str(each).startswith(text)),
        _ranges(d, f, [(prefix, after_prefix(prefix))], exact=prefix == whole),
        document=document,
    )


def _icontains(
    c: Compiler, d: TypeDescriptor, f: PredicateDescriptor, value: object
) -> CompiledCondition:
    del c, d
    text = _text(f, "icontains", value).casefold()
    return CompiledCondition(_any_value(f, lambda each: text in str(each).casefold()))


LOOKUPS: Final[Mapping[str, Lookup]] = {
    "exact": _exact,
    "in": _in,
    "isnull": _isnull,
    "gt": _comparison("gt"),
    "gte": _comparison("gte"),
    "lt": _comparison("lt"),
    "lte": _comparison("lte"),
    "startswith": _startswith,
    "icontains": _icontains,
}


def first_handles(
    index: NodeIndex,
    db: sqlite3.Connection,
    start: str,
    limit: int,
    schema_filter: SchemaFilter | None,
) -> list[str]:
    """The first few handles that begin so, of nodes that are seen."""
    found = index.handles_from(db, start, limit)
    if schema_filter is None or start.partition("/")[0] not in schema_filter.partial_edges:
        return found
    seen: list[str] = []
    asked = limit
    while True:
        stored = index.find_all(db, found)
        seen = [
            each for each in found if each in stored and schema_filter.apply(stored[each].state)
        ]
        if len(seen) >= limit or len(found) < asked:
            return seen[:limit]
        asked *= 4
        found = index.handles_from(db, start, asked)
