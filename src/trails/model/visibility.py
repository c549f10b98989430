"""What one actor may see and change of a graph's types.

``Visibility`` names the hidden types and fields; policies decide it, and the engine applies
it. ``SchemaFilter`` removes them from schemas and nodes: the result is what there would be if
they had never been declared. ``ChangeKey`` says what a change is about (a type, a field, the
type of a reference). Whether an actor sees a change depends on its key alone, and there are
few keys however many nodes change, so changes are reported by key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import combinations
from typing import Final, NamedTuple

import msgspec

from trails.model.caches import LRUCache
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema, ShapeDescriptor, TypeDescriptor

ENDS: Final = ("source", "target")
"""The fields of an edge that name its two nodes."""


class ChangeKey(NamedTuple):
    """What a statement is about: the existence of a node, or one of its fields."""

    type: str
    field: str = ""
    """Empty for the node itself."""
    target: str = ""
    """The type of the referenced node."""
    ends: tuple[str, ...] = ()
    """The types of the two nodes of an edge; then two types of items, if their order changed."""


def change_keys_between(
    schema: Schema, before: NodeState | None, after: NodeState | None
) -> Iterator[ChangeKey]:
    """The keys of a node's changes; it was created or deleted if one state is None."""
    state = before if after is None else after
    if state is None:
        return
    descriptor = schema.by_name.get(state.type)
    ends: tuple[str, ...] = ()
    if descriptor is not None and descriptor.edge is not None:
        ends = tuple(type_of(state.values.get(end)) for end in ENDS)
    if before is None or after is None:
        yield ChangeKey(state.type, ends=ends)
        return
    fields = {} if descriptor is None else descriptor.by_name
    old, new = before.values, after.values
    for name in old.keys() | new.keys():
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        field = fields.get(name)
        if field is None or field.target is None:
            yield ChangeKey(state.type, name, "", ends)
        elif field.ordered:
            parts, others = list_parts(_items(was)), list_parts(_items(now))
            for types in parts.keys() | others.keys():
                if parts.get(types) != others.get(types):
                    yield list_key(ChangeKey(state.type, name, "", ends), types)
        else:
            for target in {type_of(each) for each in _members(was) ^ _members(now)}:
                yield ChangeKey(state.type, name, target, ends)


def type_of(handle: object) -> str:
    """The type of the referenced node."""
    return str(handle).partition("/")[0]


def list_parts(handles: Sequence[str]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """An ordered list of references as it looks to those who see one or two of the types in it.

    These parts determine the list: the order of two items is in that of their two types.
    """
    types = sorted({type_of(each) for each in handles})
    shown = [(each,) for each in types] + list(combinations(types, 2))
    return {each: tuple(one for one in handles if type_of(one) in each) for each in shown}


def list_key(field: ChangeKey, types: tuple[str, ...]) -> ChangeKey:
    """What a change of such a part is about."""
    if len(types) == 1:
        return field._replace(target=types[0])
    return field._replace(ends=field.ends + types)


def _items(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, tuple) else ()


def _members(value: object) -> frozenset[object]:
    if value is None:
        return frozenset()
    return frozenset(value) if isinstance(value, tuple) else frozenset((value,))


_ENDS: Final = ("source", "target")


class SchemaFilter(msgspec.Struct, frozen=True):
    """The visible part of a schema and of its nodes.

    The identity of an instance can't be hidden alone, because its IRI reveals it: a type whose
    key is hidden is hidden as a whole, and so is an edge type with a hidden end.
    """

    schema: Schema
    """The visible types."""
    hidden: frozenset[str]
    """The hidden types."""
    hidden_fields: Mapping[str, frozenset[str]]
    """The hidden fields of visible types, including references to hidden types."""
    partial_refs: Mapping[str, frozenset[str]]
    """Fields by type that may refer to instances of hidden types; such values are removed."""
    partial_edges: frozenset[str]
    """Edge types that may join instances of hidden types; such edges are removed."""
    partly_hidden: Mapping[str, frozenset[str]]
    """Fields by type whose stored and visible values may differ."""

    def knows(self, handle: str) -> bool:
        """Whether the type of this handle is visible."""
        return handle.partition("/")[0] in self.schema.by_name

    def shows(self, key: ChangeKey) -> bool:
        """Whether a change is visible."""
        descriptor, types = self.schema.by_name.get(key.type), self.schema.by_name
        return (
            descriptor is not None
            and (not key.field or key.field in descriptor.by_name)
            and (not key.target or key.target in types)
            and all(each in types for each in key.ends)
        )

    def apply(self, state: NodeState) -> NodeState | None:
        """The visible part of a node; None if the node is hidden."""
        name, values = state.type, state.values
        descriptor = self.schema.by_name.get(name)
        if descriptor is None:
            return None
        if name in self.partial_edges and not all(
            self.knows(str(values.get(end, ""))) for end in _ENDS
        ):
            return None
        # Keep known fields instead of dropping hidden ones: a field that was declared after
        # this filter was made must not be shown.
        known, partial = descriptor.by_name, self.partial_refs.get(name, ())
        if not partial and values.keys() <= known.keys():
            return state
        left = {each: value for each, value in values.items() if each in known}
        for field in partial:
            self._drop_hidden(left, field)
        return NodeState(name, state.id, left)

    def _drop_hidden(self, values: dict[str, object], field: str) -> None:
        """Remove references to hidden nodes from a field."""
        value = values.get(field)
        if isinstance(value, tuple):
            kept = tuple(each for each in value if self.knows(str(each)))
            if kept:
                values[field] = kept
            else:
                del values[field]
        elif value is not None and not self.knows(str(value)):
            del values[field]


def make_schema_filter(
    schema: Schema, hidden_types: Iterable[str], hidden_fields: Mapping[str, frozenset[str]]
) -> SchemaFilter:
    """A filter that hides types and fields, and everything that depends on them."""
    hidden, partial, gone = _close(schema, hidden_types, hidden_fields)
    types = [_restrict_type(schema, each, hidden, gone) for each in schema.types]
    seen = Schema.of(
        (each for each in types if each is not None),
        _restrict_shapes(schema, hidden, gone),
    )
    partial_refs = {
        each.name: frozenset(
            field.name
            for field in each.fields
            if field.target is not None and not hidden.isdisjoint(schema.family(field.target))
        )
        for each in seen.types
    }
    partly_hidden = {
        each.name: partial_refs[each.name].union(
            *(gone[name] for name in schema.family(each.name) if name not in hidden)
        )
        for each in seen.types
    }
    return SchemaFilter(
        seen,
        hidden,
        {name: fields for name, fields in gone.items() if fields and name not in hidden},
        {name: fields for name, fields in partial_refs.items() if fields},
        partial - hidden,
        {name: fields for name, fields in partly_hidden.items() if fields},
    )


def _close(
    schema: Schema, hidden_types: Iterable[str], hidden_fields: Mapping[str, frozenset[str]]
) -> tuple[frozenset[str], frozenset[str], dict[str, frozenset[str]]]:
    """Everything that must be hidden: types, partly hidden edge types, fields.

    Hiding one thing may require hiding others, so this repeats until nothing changes.
    """
    hidden = frozenset(hidden_types) & schema.by_name.keys()
    while True:
        partial = frozenset(
            each.name
            for each in schema.types
            if each.edge is not None
            and any(not hidden.isdisjoint(schema.family(end)) for end in _ends(each))
        )
        out_of_reach = hidden.union(
            # A reference must not reveal whether such an edge exists.
            *(schema.lineage(name) for name in partial)
        )
        gone = {
            each.name: frozenset(
                field.name
                for field in each.fields
                if field.name in hidden_fields.get(each.name, ()) or field.target in out_of_reach
            )
            for each in schema.types
        }
        more = {
            each.name for each in schema.types if not gone[each.name].isdisjoint(_identity(each))
        }
        if more <= hidden:
            return hidden, partial, gone
        hidden |= more


def _ends(descriptor: TypeDescriptor) -> tuple[str, ...]:
    edge = descriptor.edge
    return () if edge is None else (edge.source, edge.target)


def _identity(descriptor: TypeDescriptor) -> Iterable[str]:
    """The fields that an instance's id is derived from."""
    ends = () if descriptor.edge is None else _ENDS
    return ends if descriptor.key is None else (*ends, descriptor.key.name)


def _restrict_type(
    schema: Schema,
    descriptor: TypeDescriptor,
    hidden: frozenset[str],
    gone: Mapping[str, frozenset[str]],
) -> TypeDescriptor | None:
    name = descriptor.name
    if name in hidden:
        return None
    lineage = [each for each in schema.lineage(name) if each not in hidden]
    lost = gone[name]

    def own(field: PredicateDescriptor) -> PredicateDescriptor:
        holders = [
            each
            for each in lineage
            if field.name in schema.by_name[each].by_name and field.name not in gone[each]
        ]
        declared_in = holders[-1] if field.declared_in else ""
        return msgspec.structs.replace(field, declared_in=declared_in)

    return msgspec.structs.replace(
        descriptor,
        fields=tuple(own(field) for field in descriptor.fields if field.name not in lost),
        extends=lineage[1] if len(lineage) > 1 else None,
        unique=tuple(group for group in descriptor.unique if lost.isdisjoint(group)),
        index=tuple(group for group in descriptor.index if lost.isdisjoint(group)),
    )


def _restrict_shapes(
    schema: Schema, hidden: frozenset[str], gone: Mapping[str, frozenset[str]]
) -> Iterable[ShapeDescriptor]:
    """Rules for visible fields; rules of a hidden type move to its visible subtypes."""
    for shape in schema.shapes:
        for target in _topmost(schema, shape.target or "", hidden):
            fields = tuple(each for each in shape.fields if each.name not in gone[target])
            if fields:
                yield msgspec.structs.replace(shape, target=target, fields=fields)


def _topmost(schema: Schema, name: str, hidden: frozenset[str]) -> Iterable[str]:
    """The type if it is visible, else its nearest visible subtypes."""
    if name not in hidden:
        yield name
        return
    for each in schema.types:
        if each.extends == name:
            yield from _topmost(schema, each.name, hidden)


class Visibility(msgspec.Struct, frozen=True, dict=True):
    """What is hidden from an actor, and what it may not change. By default nothing."""

    hidden: frozenset[str] = frozenset()
    """Types that the actor can't see; all types if it may read nothing."""
    hidden_fields: Mapping[str, frozenset[str]] = {}
    """Fields of visible types that it can't see; inherited fields are listed under each type."""
    fixed: frozenset[str] = frozenset()
    """Types that it may see but not change."""

    @property
    def reads_all(self) -> bool:
        """Whether nothing is hidden."""
        return not self.hidden and not any(self.hidden_fields.values())

    @cached_property
    def key(self) -> Hashable:
        """Equal if the same is hidden; a cache key."""
        fields = ((name, frozenset(hidden)) for name, hidden in self.hidden_fields.items())
        return self.hidden, frozenset(fields)

    def filter(self, schema: Schema) -> SchemaFilter:
        """The filter for a schema; cached."""
        make = partial(make_schema_filter, schema, self.hidden, self.hidden_fields)
        return _filters.get((schema.digest, self.key), make)

    def restrict(self, schema: Schema) -> Schema:
        """The schema without what is hidden."""
        return schema if self.reads_all else self.filter(schema).schema


FULL: Final = Visibility()

_filters: Final[LRUCache[tuple[str, Hashable], SchemaFilter]] = LRUCache(256)
