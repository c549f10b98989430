"""Results in JSON form, and what it costs to compute them.

Nodes are objects with their IRI, values have the form of their kinds. Every successful call of a
capability that declares a cost records the measured values in its activity. ``seconds``, ``bytes``
(of the result) and ``statements`` (added and removed) are measured here; the capability reports any
other measure with ``ctx.spend``. The comparison is folded from those activities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import lru_cache
from math import ceil, isfinite
from time import time_ns
from typing import Annotated, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from trails.authoring.nodes import Node, state_of
from trails.engine.graph.activities import CallRecord
from trails.engine.graph.graph import Graph
from trails.errors import ForbiddenError, TrailsError
from trails.model.capabilities import Capability
from trails.model.constraints import shorten
from trails.model.history import Activity
from trails.model.iris import Names
from trails.model.kinds import BY_PYTHON, FLOAT_MAX, INT_MAX, INT_MIN, BigInt, KindError
from trails.model.texts import count
from trails.model.types import (
    ANY,
    LIST,
    MAP,
    OBJECT,
    REF,
    PredicateDescriptor,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
)
from trails.model.upkeep import Finding, flag, passed
from trails.model.values.json_values import Json
from trails.registry.registry import Declared, Registry, remember

Converter = Callable[[object], object]


def conformer(name: str, output: ValueType | None) -> Callable[[object], object]:
    """A converter of results to the declared type; it reports what does not fit."""
    row = None if output is None else output.scalar.row
    if output is None:
        return lambda _: None
    if row is None:
        return lambda result: result
    many, nullable = output.kind == LIST, output.nullable
    coerce, spell = row.coerce, row.plain

    def convert(value: object) -> object:
        coerced = coerce(value)
        return coerced if spell is None else spell(coerced)

    def conform(result: object) -> object:
        if result is None and nullable:
            return None
        try:
            if not many:
                return convert(result)
            if isinstance(result, list | tuple | set | frozenset):
                return [convert(item) for item in result]
        except KindError:
            pass
        raise TrailsError(
            f"{name} declares that it returns {output}, but returned {shorten(result)}; correct it"
        )

    return conform


def plain(names: Names, value: object, declared: Declared | None = None) -> object:
    """A result as JSON values; ``declared`` limits the fields of instances."""
    try:
        return msgspec.to_builtins(
            value, str_keys=True, enc_hook=_writers_of(names, declared).write_any
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _formless(value, error) from None


def encoded(names: Names, value: object, declared: Declared | None = None) -> bytes:
    """A result as JSON text; ``declared`` limits the fields of instances."""
    writers = _writers_of(names, declared)
    try:
        return msgspec.json.encode(writers.write_list(value), enc_hook=writers.write_any)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _formless(value, error) from None


def _formless(value: object, error: Exception) -> TrailsError:
    return TrailsError(
        f"a capability returned {shorten(value)}, which has no JSON form ({error}); return nodes, "
        "shapes, texts, numbers, dates, lists or dictionaries"
    )


def _writers_of(names: Names, declared: Declared | None) -> _Writers:
    if declared is None:
        return _complete_writers(names)
    return remember(declared, (_writers_of, names), lambda: _Writers(names, declared))


@lru_cache(maxsize=64)
def _complete_writers(names: Names) -> _Writers:
    return _Writers(names, None)


class _Writers:
    """Writes what the encoder does not know: instances of declared types, values of kinds."""

    def __init__(self, names: Names, declared: Declared | None) -> None:
        self._names = names
        self._declared = declared
        # Classes of an application that was reloaded are not kept.
        self._known: WeakKeyDictionary[type, _Writer] = WeakKeyDictionary()

    def write_any(self, value: object) -> object:
        """The encoder's hook: any value that has a JSON form."""
        cls = type(value)
        writer = self._known.get(cls) or self._find(cls)
        if writer is not None:
            return writer.write(value)
        if isinstance(value, BigInt | str):
            return str(value)
        kind = BY_PYTHON.get(cls)
        if kind is not None and kind.plain is not None:
            return kind.plain(value)
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, Json):
            return value.value
        if isinstance(value, int | float):
            return int(value) if isinstance(value, int) else float(value)
        raise TypeError(f"{cls.__name__} has none")

    def write_list(self, value: object) -> object:
        """A list of instances of one class, written at once; any other value as it is."""
        if type(value) is not list or not value:
            return value
        cls = type(value[0])
        if set(map(type, value)) != {cls}:
            return value
        writer = self._known.get(cls)
        if writer is None:
            try:
                writer = self._find(cls)
            except ForbiddenError:  # raised again when the first of them is written
                return value
        return value if writer is None else writer.write_all(value)

    def _find(self, cls: type) -> _Writer | None:
        descriptor = getattr(cls, "__trails__", None)
        if not isinstance(descriptor, TypeDescriptor | ShapeDescriptor):
            return None
        visible = _as_visible(descriptor, self._declared)
        held = frozenset(getattr(cls, "__trails_held__", ()))
        writer = self._known[cls] = _Writer(self._names, visible, held, self.write_list)
        return writer


def _as_visible(
    descriptor: TypeDescriptor | ShapeDescriptor, declared: Declared | None
) -> TypeDescriptor | ShapeDescriptor:
    """The visible part of a type; refused if the whole type is hidden."""
    if declared is None:
        return descriptor
    known: Mapping[str, TypeDescriptor | ShapeDescriptor] = (
        declared.schema.by_name if isinstance(descriptor, TypeDescriptor) else declared.shapes
    )
    found = known.get(descriptor.name)
    if found is None:
        raise ForbiddenError("you do not have read access to this result")
    return found


class _Writer:
    """Writes instances of one class.

    Most values are what JSON has already. They are checked and gathered by msgspec, in a record:
    a struct whose fields are the visible ones with their types. Where a value is not of its type,
    the instance is written field by field, which converts the value or reports it.
    """

    def __init__(
        self,
        names: Names,
        descriptor: TypeDescriptor | ShapeDescriptor,
        held: frozenset[str],
        write_list: Converter,
    ) -> None:
        fields = descriptor.fields
        self._nodes = names.nodes
        self._type = descriptor.name if isinstance(descriptor, TypeDescriptor) else None
        self._first = fields[0].name if fields else None
        self._blanks = {field.name: () if field.many else None for field in fields}
        self._converters = {field.name: converter_of(names, field.type) for field in fields}
        types = {
            field.name: None if field.name in held else _json_type(field.type) for field in fields
        }
        self._converted = [
            (field.name, _twice(field, self._converters[field.name]))
            for field in fields
            if types[field.name] is None and field.type.kind not in _PASSED
        ]
        self._lists = [
            (field.name, write_list)
            for field in fields
            if field.many and field.type.scalar.kind == OBJECT
        ]
        self._record = _make_record(descriptor.name, types, is_node=self._type is not None)
        self._records = list[self._record]  # type: ignore[name-defined]

    def write(self, value: object) -> object:
        """An instance as a record, or as a dictionary if it does not fit in one."""
        try:
            return msgspec.convert(self._gather(value, self._lists), self._record)
        except _UNFIT:
            return self._write_fields(value)

    def write_all(self, values: list[object]) -> list[object]:
        """Instances as records; as they are if one does not fit."""
        try:
            if self._type is None and not self._converted:
                gathered = [value.__dict__ for value in values]
            else:
                gathered = [self._gather(value, ()) for value in values]
            found: list[object] = msgspec.convert(gathered, self._records)
        except _UNFIT:
            return values
        return found

    def _gather(self, value: object, lists: Iterable[tuple[str, Converter]]) -> dict[str, object]:
        """The members of a record."""
        found = self._gather_node(value) if self._type is not None else {**vars(value)}
        for name, convert in self._converted:
            each = found[name]
            if each is not None:
                found[name] = convert(each)
        for name, convert in lists:
            found[name] = convert(found[name])
        return found

    def _gather_node(self, value: object) -> dict[str, object]:
        handle = value.handle  # type: ignore[attr-defined]
        if handle is None:
            raise ValueError("a node without an id has no IRI")
        own = vars(value)
        if self._first is not None and self._first not in own:
            loaded = state_of(value).loaded  # type: ignore[arg-type]
            if loaded is None:
                raise ValueError("a reference that is not loaded")
            own = {**self._blanks, **loaded}
        return {**own, "iri": self._nodes + handle, "type": self._type}

    def _write_fields(self, value: object) -> dict[str, object]:
        own = vars(value)
        try:
            given = {name: own[name] for name in self._blanks}
        except KeyError:
            given = self._read(value)
        written = {
            name: each if each is None else self._converters[name](each)
            for name, each in given.items()
        }
        handle = None if self._type is None else getattr(value, "handle", None)
        if handle is None:
            return written
        return {"iri": self._nodes + handle, "type": self._type, **written}

    def _read(self, value: object) -> dict[str, object]:
        """The fields of an instance, without unfolding it."""
        loaded = state_of(value).loaded if isinstance(value, Node) else None
        if loaded is None:  # a lazy reference, which loads now
            return {name: getattr(value, name) for name in self._blanks}
        return {name: loaded.get(name, blank) for name, blank in self._blanks.items()}


_UNFIT: Final = (AttributeError, LookupError, TypeError, ValueError, OverflowError)
"""Why an instance does not fit in a record, which writing it field by field reports."""


def _twice(field: PredicateDescriptor, convert: Converter) -> Converter:
    """A converter of values that can be read again, if another field does not fit."""
    if not field.many:
        return convert

    def convert_list(value: object) -> object:
        if not isinstance(value, list | tuple | set | frozenset):
            raise TypeError("an iterator can be read only once")
        return convert(value)

    return convert_list


def _make_record(name: str, types: Mapping[str, Any], *, is_node: bool) -> type[msgspec.Struct]:
    members: dict[str, Any] = {"iri": str, "type": str} if is_node else {}
    for field, known in types.items():
        members[field] = Any if known is None else known | None
    return msgspec.defstruct(
        name,
        # Any name may be that of a field, but not of an attribute.
        [
            (f"field_{at}", known, msgspec.field(name=member))
            for at, (member, known) in enumerate(members.items())
        ],
        gc=False,  # nothing refers to a record
    )


_PASSED: Final = frozenset({OBJECT, ANY, MAP})
"""Kinds of values that are left to the encoder, and to its hook."""
_JSON_TYPES: Final[Mapping[type | None, Any]] = {
    str: str,
    bool: bool,
    int: Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)],
    float: Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)],  # not NaN either
    date: date,
}


def _json_type(value_type: ValueType) -> Any:  # noqa: ANN401 - a type that msgspec checks
    """The type of values that msgspec writes as converters do; None where they have to."""
    if value_type.kind == LIST:
        item = _json_type(value_type.scalar)
        return None if item is None else list[item]  # type: ignore[valid-type]
    row = value_type.row
    if row is None or row.plain not in {None, date.isoformat}:  # which is how msgspec writes dates
        return None
    return _JSON_TYPES.get(row.native)


def converter_of(names: Names, value_type: ValueType) -> Converter:
    """A converter of values of one type to JSON values."""
    if value_type.kind == LIST:
        item = converter_of(names, value_type.scalar)
        return lambda value: [item(each) for each in value]  # type: ignore[attr-defined]
    if value_type.kind == REF:
        return lambda value: names.nodes + str(getattr(value, "handle", None) or value)
    row = value_type.row
    if row is None:
        return lambda value: value
    coerce, show, native = row.coerce, row.plain, row.native
    if show is not None:
        return lambda value: show(coerce(value))
    if native is float:
        return lambda value: value if type(value) is float and isfinite(value) else coerce(value)
    return lambda value: value if type(value) is native else coerce(value)


_MARK: Final = "cost "
"""The prefix of such an activity's detail."""
_LATELY: Final = 10_000
"""How many activities of any kind are read."""
_ENOUGH: Final = 5
"""Calls that are needed to judge an estimate."""
_MUCH: Final = 4
"""The factor by which a wrong estimate is off."""


class Measured(msgspec.Struct, frozen=True):
    """An estimate and the measured costs of calls."""

    capability: str
    measure: str
    estimate: float
    calls: int
    mean: float
    high: float
    """The 95th percentile."""

    @property
    def is_off(self) -> bool:
        """Whether the estimate is wrong."""
        if self.calls < _ENOUGH:
            return False
        return self.mean > _MUCH * self.estimate or self.mean * _MUCH < self.estimate


def describe_cost(capability: Capability, call: CallRecord, result: object) -> str:
    """The measured cost for the activity of a call; empty if nothing was estimated.

    ``result`` is in JSON form, or is its text.
    """
    estimated = capability.descriptor.cost
    if not estimated:
        return ""
    taken: dict[str, float] = {
        **(call.spent or {}),
        "seconds": (time_ns() - call.started) / 1e9,
        "bytes": len(result if isinstance(result, bytes) else msgspec.json.encode(result)),
        "statements": call.statements,
    }
    return _MARK + " ".join(f"{name}={taken[name]:.6g}" for name in estimated if name in taken)


def fold_costs(activities: Iterable[Activity], registry: Registry) -> list[Measured]:
    """Every estimate with its measurements, by capability and measure."""
    taken: dict[tuple[str, str], list[float]] = {}
    for activity in activities:
        if activity.outcome == "ok" and activity.detail.startswith(_MARK):
            for name, amount in _read_cost(activity.detail).items():
                taken.setdefault((activity.name, name), []).append(amount)
    return [
        _measure(capability.id, name, estimate, sorted(found))
        for capability in (*registry.capabilities.values(), *registry.metas.values())
        for name, estimate in capability.descriptor.cost.items()
        if (found := taken.get((capability.tool_name, name)) or taken.get((capability.id, name)))
    ]


def examine_costs(graph: Graph, registry: Registry) -> Iterator[Finding]:
    """Report wrong estimates, based on the latest calls."""
    known = fold_costs(graph.activities.newest(_LATELY, archived=False), registry)
    off = [each for each in known if each.is_off]
    for each in off:
        detail = (
            f"{each.capability} is estimated at {each.estimate:g} {each.measure}, but "
            f"{each.calls} calls took {each.mean:.3g} on average, and 95 % of them at most "
            f"{each.high:.3g}"
        )
        fix = f"declare cost={{{each.measure!r}: {each.mean:.3g}}}"
        yield flag("cost_off", detail, fix, where=each.capability)
    if known and not off:
        estimates = count(len(known), "estimate agrees", "estimates agree")
        yield passed("costs", f"{estimates} with what calls took")


def _read_cost(detail: str) -> Mapping[str, float]:
    pairs = (each.partition("=") for each in detail.removeprefix(_MARK).split())
    return {name: float(amount) for name, _, amount in pairs}


def _measure(capability: str, name: str, estimate: float, found: list[float]) -> Measured:
    high = found[ceil(0.95 * len(found)) - 1]
    return Measured(capability, name, estimate, len(found), sum(found) / len(found), high)
