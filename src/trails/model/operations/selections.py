"""A selection of records as a program sends it, and the records that it gets back.

Both ends of ``node_select`` use this module: the client writes a selection and reads records, the
server reads the selection and writes the records. Values have the JSON form of their kind, and
references are handles (``Type/id``), so that nothing is lost on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from trails.errors import QueryError
from trails.model.kinds import kind_of
from trails.model.nodes import LOOKUPS, Condition, Group, NodeState, Order
from trails.model.operations.records import AtCommit
from trails.model.types import PredicateDescriptor, TypeDescriptor

MOST_CONDITIONS: Final = 100
MOST_VALUES: Final = 1_000
"""Values of the lookup ``in``."""
_MAX_DEPTH: Final = 100
_FORM: Final = (
    '{"field": "owner__name", "lookup": "exact", "value": …}, or {"and": […]}, {"or": […]}, '
    '{"not": …}'
)


class SelectedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record with all of its values."""

    type: str
    id: Annotated[str, Meta(description="Its key, or its generated id.")]
    values: Annotated[
        Mapping[str, object],
        Meta(
            description="Field → value; a reference is Type/id. Fields without a value are absent."
        ),
    ]
    score: Annotated[float | None, Meta(description="With near: how near it is.")] = None

    def state(self, descriptor: TypeDescriptor) -> NodeState:
        """The record as a value, with the fields that a type has."""
        return NodeState(self.type, self.id, read_values(descriptor, self.values))


class SelectedRecords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records that meet conditions, all of one commit."""

    commit: AtCommit
    records: tuple[SelectedRecord, ...] = msgspec.field(default=())
    count: Annotated[
        int | None, Meta(description="With count: how many there are; no records are read.")
    ] = None
    missing: Annotated[
        str | None, Meta(description="With record: why there is none, and what is similar.")
    ] = None
    cursor: Annotated[str | None, Meta(description="Continues after these; absent at the end.")] = (
        None
    )


# --- conditions --------------------------------------------------------------------------


def write_conditions(tree: Condition | Group) -> dict[str, object]:
    """Return conditions in JSON form."""
    if isinstance(tree, Condition):
        given = {"field": "__".join(tree.path), "value": _plain(tree.value)}
        return given if tree.lookup == "exact" else {**given, "lookup": tree.lookup}
    if tree.op == "not":
        return {"not": write_conditions(tree.parts[0])}
    return {tree.op: [write_conditions(part) for part in tree.parts]}


def _plain(value: object) -> object:
    """Return the value of a condition in JSON form; an instance is its handle."""
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    handle = getattr(value, "handle", None)
    if isinstance(handle, str):
        return handle
    kind = kind_of(value)
    return value if kind is None or kind.plain is None else kind.plain(value)


def read_conditions(given: object) -> Condition | Group:
    """Read conditions; QueryError says what is wrong with them."""
    return _Reader().read(given, 0)


class _Reader:
    def __init__(self) -> None:
        self._count = 0

    def read(self, given: object, depth: int) -> Condition | Group:
        self._count += 1
        if self._count > MOST_CONDITIONS or depth > _MAX_DEPTH:
            raise QueryError(
                f"where may have at most {MOST_CONDITIONS} conditions in {_MAX_DEPTH} levels; "
                "use the lookup in for many values"
            )
        if not isinstance(given, Mapping):
            raise QueryError(f"where has {str(given)[:100]!r}; write {_FORM}")
        if "field" in given:
            return self._condition(given)
        if len(given) == 1:
            op, parts = next(iter(given.items()))
            if op == "not":
                return Group("not", (self.read(parts, depth + 1),))
            if op in {"and", "or"} and isinstance(parts, Sequence) and not isinstance(parts, str):
                return Group(op, tuple(self.read(part, depth + 1) for part in parts))
        raise QueryError(f"where has {', '.join(map(str, given))[:100]!r}; write {_FORM}")

    @staticmethod
    def _condition(given: Mapping[str, object]) -> Condition:
        name, lookup = given["field"], given.get("lookup", "exact")
        unknown = given.keys() - {"field", "lookup", "value"}
        if not isinstance(name, str) or not name or unknown:
            raise QueryError(f"where has {str(dict(given))[:100]!r}; write {_FORM}")
        if not isinstance(lookup, str) or lookup not in LOOKUPS:
            raise QueryError(
                f"where has the lookup {str(lookup)[:100]!r}; use one of "
                f"{', '.join(sorted(LOOKUPS))}"
            )
        value = given.get("value")
        if isinstance(value, list) and len(value) > MOST_VALUES:
            raise QueryError(
                f"where has {len(value):,} values for {name[:100]!r}; give at most {MOST_VALUES:,} "
                "at once"
            )
        if value is None and lookup == "exact":
            lookup, value = "isnull", True
        return Condition(tuple(name.split("__")), str(lookup), value)


def write_order(order: Sequence[Order]) -> list[str]:
    """Return an order in JSON form: names of fields, with ``-`` where it descends."""
    return [f"-{each.field}" if each.descending else each.field for each in order]


def read_order(names: Sequence[str]) -> tuple[Order, ...]:
    return tuple(Order(each.removeprefix("-"), descending=each.startswith("-")) for each in names)


# --- values ------------------------------------------------------------------------------


def write_values(descriptor: TypeDescriptor, values: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a record in JSON form."""
    fields = descriptor.by_name
    return {
        name: _write_value(fields[name], value)
        for name, value in values.items()
        if name in fields and value is not None
    }


def _write_value(field: PredicateDescriptor, value: object) -> object:
    row = field.type.scalar.row
    plain = str if row is None else row.plain
    if field.many and isinstance(value, list | tuple):
        return list(value) if plain is None else [plain(each) for each in value]
    return value if plain is None else plain(value)


def read_values(descriptor: TypeDescriptor, values: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a record from their JSON form; those of unknown fields are dropped."""
    fields = descriptor.by_name
    return {
        name: _read_value(fields[name], value) for name, value in values.items() if name in fields
    }


def _read_value(field: PredicateDescriptor, value: object) -> object:
    row = field.type.scalar.row
    restore = None if row is None else row.restore
    if field.many and isinstance(value, list):
        return tuple(value) if restore is None else tuple(restore(each) for each in value)
    return value if restore is None else restore(value)
