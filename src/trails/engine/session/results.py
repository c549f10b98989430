"""Results in JSON form, and what it costs to compute them.

Nodes are objects with their IRI, values have the form of their kinds. Every successful call of a
capability that declares a cost records the measured values in its activity. ``seconds``, ``bytes``
(of the result) and ``statements`` (added and removed) are measured here; the capability reports any
other measure with ``ctx.spend``. The comparison is folded from those activities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import ceil, isfinite
from time import time_ns
from typing import Final
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
from trails.model.kinds import BY_PYTHON, BigInt, KindError
from trails.model.texts import count
from trails.model.types import LIST, REF, ShapeDescriptor, TypeDescriptor, ValueType
from trails.model.upkeep import Finding, flag, passed
from trails.model.values.json_values import Json
from trails.registry.registry import Declared, Registry, remember

Hook = Callable[[object], object]


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
        return msgspec.to_builtins(value, str_keys=True, enc_hook=hook_of(names, declared))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _formless(value, error) from None


def encoded(names: Names, value: object, declared: Declared | None = None) -> bytes:
    """A result as JSON text; ``declared`` limits the fields of instances."""
    try:
        return msgspec.json.encode(value, enc_hook=hook_of(names, declared))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _formless(value, error) from None


def _formless(value: object, error: Exception) -> TrailsError:
    return TrailsError(
        f"a capability returned {shorten(value)}, which has no JSON form ({error}); return nodes, "
        "shapes, texts, numbers, dates, lists or dictionaries"
    )


def hook_of(names: Names, declared: Declared | None = None) -> Hook:
    """The encoder's hook for types that it does not know."""
    if declared is None:
        return _complete_hook(names)
    return remember(declared, (hook_of, names), lambda: _make_hook(names, declared))


@lru_cache(maxsize=64)
def _complete_hook(names: Names) -> Hook:
    return _make_hook(names, None)


def _make_hook(names: Names, declared: Declared | None) -> Hook:
    # Classes of an application that was reloaded are not kept.
    writers: WeakKeyDictionary[type, Hook] = WeakKeyDictionary()

    def hook(value: object) -> object:
        cls = type(value)
        writer = writers.get(cls)
        if writer is not None:
            return writer(value)
        descriptor = getattr(cls, "__trails__", None)
        if isinstance(descriptor, TypeDescriptor | ShapeDescriptor):
            writer = writers[cls] = _writer_of(names, _as_visible(descriptor, declared))
            return writer(value)
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

    return hook


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


def _writer_of(names: Names, descriptor: TypeDescriptor | ShapeDescriptor) -> Hook:
    """A writer for instances of one type.

    Most values are what JSON has already. A whole instance is looked at in one comparison of
    its values' types, and its fields one by one only where some are something else.
    """
    fields = tuple(field.name for field in descriptor.fields)
    blanks = [(field.name, () if field.many else None) for field in descriptor.fields]
    native = [_json_class(field.type) for field in descriptor.fields]
    floats = [at for at, kind in enumerate(native) if kind is float]
    converters = [converter_of(names, field.type) for field in descriptor.fields]

    def is_native(given: Sequence[object]) -> bool:
        # JSON has no infinity and no NaN: those are refused one by one.
        return list(map(type, given)) == native and all(isfinite(given[at]) for at in floats)  # type: ignore[arg-type]

    def write_fields(value: object) -> dict[str, object]:
        own = vars(value)
        try:
            given = [own[name] for name in fields]
        except KeyError:
            given = _read(value, blanks)
        if not is_native(given):
            given = [
                each if each is None else convert(each)
                for convert, each in zip(converters, given, strict=True)
            ]
        return dict(zip(fields, given, strict=True))

    def write_shape(value: object) -> object:
        own = vars(value)
        if len(own) == len(fields) and is_native([*own.values()]) and tuple(own) == fields:
            return own
        return write_fields(value)

    def write_node(value: object) -> object:
        handle = getattr(value, "handle", None)
        if handle is None:
            return write_fields(value)
        return {"iri": names.nodes + handle, "type": descriptor.name, **write_fields(value)}

    return write_node if isinstance(descriptor, TypeDescriptor) else write_shape


def _read(value: object, blanks: Iterable[tuple[str, object]]) -> list[object]:
    """The fields of an instance, without unfolding it."""
    loaded = state_of(value).loaded if isinstance(value, Node) else None
    if loaded is None:  # a lazy reference, which loads now
        return [getattr(value, name) for name, _ in blanks]
    return [loaded.get(name, blank) for name, blank in blanks]


def _json_class(value_type: ValueType) -> type | None:
    """The class of values that are already JSON and need no conversion."""
    row = value_type.row
    return row.native if row is not None and row.plain is None else None


def converter_of(names: Names, value_type: ValueType) -> Hook:
    """A converter of values of one type to JSON values."""
    if value_type.kind == LIST:
        item = converter_of(names, value_type.scalar)
        return lambda value: [item(each) for each in value]  # type: ignore[attr-defined]
    if value_type.kind == REF:
        return lambda value: names.nodes + str(getattr(value, "handle", None) or value)
    row = value_type.row
    if row is None:
        return lambda value: value
    coerce, show, native = row.coerce, row.plain, _json_class(value_type)
    if native is not None:
        return lambda value: (
            value if type(value) is native and native is not float else coerce(value)
        )
    return coerce if show is None else lambda value: show(coerce(value))


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
