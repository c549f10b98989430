"""Call a capability or stored query: coerce its arguments, run it, shape the result.

Every call leaves an activity in the log, whatever its outcome.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial

import msgspec

from trails.authoring.nodes import Node
from trails.authoring.shapes import Shape
from trails.engine.context import GraphContext
from trails.engine.graph import Graph, now
from trails.engine.mutate import local_effect, mutate_sparql
from trails.engine.stored import run_query
from trails.engine.untrusted import Untrusted
from trails.engine.validate import reference_coercer
from trails.errors import FieldError, NotFoundError, TrailsError, ValidationError
from trails.model.answers import Answer
from trails.model.capabilities import Capability
from trails.model.constraints import Coerce, PartsError, compile_field, shorten, showable
from trails.model.history import Activity
from trails.model.ids import uuid7
from trails.model.kinds import DanglingError, KindError
from trails.model.types import JSON, LIST, OBJECT, REF, PredicateDescriptor, ValueType
from trails.registry.registry import Registry


def invoke(graph: Graph, ctx: GraphContext, name: str, arguments: Mapping[str, object]) -> object:
    """Run a capability by id and return its result in JSON form."""
    capability = ctx.registry.capability(name)
    if capability is None:
        near = get_close_matches(name, ctx.registry.capabilities, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotFoundError(f"there is no capability {name!r}{hint}", capability=name)
    with recording(graph, ctx, name, "runtime" if capability.meta is None else "meta") as inner:
        prepared = prepare(graph, inner, capability, arguments)
        result = capability.handler(inner, **prepared)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return plain(graph, result)


def invoke_query(
    graph: Graph,
    untrusted: Untrusted,
    ctx: GraphContext,
    name: str,
    params: Mapping[str, object],
) -> Answer | str | None:
    """Run a stored query by name: the answer of one that reads, the commit of one that changes.

    The text is an author's, not a caller's; so where no process can be confined it is run here.
    """
    query = ctx.registry.queries.get(name)
    if query is None:
        near = get_close_matches(name, ctx.registry.queries, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotFoundError(f"there is no stored query {name!r}{hint}", query=name)
    with recording(graph, ctx, name, "mutation" if query.mutation else "query") as inner:
        return run_query(
            query,
            params,
            partial(_execute, graph, untrusted, inner, mutation=query.mutation),
            schema=inner.kg.schema,
            names=graph.names,
        )


def _execute(
    graph: Graph, untrusted: Untrusted, ctx: GraphContext, text: str, *, mutation: bool
) -> Answer | str | None:
    line, confined = ctx.line, untrusted.sandbox.confinement.complete
    if not mutation:
        return untrusted.run(line, text, caller=ctx.actor) if confined else ctx.kg.sparql(text)
    effect = untrusted.effect(line, caller=ctx.actor) if confined else local_effect(graph, line)
    return mutate_sparql(graph, line, ctx.kg.transaction, text, effect).commit


@contextmanager
def recording(graph: Graph, ctx: GraphContext, name: str, kind: str) -> Iterator[GraphContext]:
    """A context for one call, of which an activity is left behind."""
    activity = uuid7()
    started, outcome, detail = now(), "ok", ""
    try:
        yield ctx.for_activity(activity)
    except TrailsError as error:
        outcome, detail = error.code, error.message[:500]
        raise
    except BaseException as error:
        outcome, detail = "error", type(error).__name__
        raise
    finally:
        graph.log.insert_activities(
            [Activity(activity, ctx.actor, name, started, now(), outcome, kind, detail)]
        )


def prepare(
    graph: Graph, ctx: GraphContext, capability: Capability, arguments: Mapping[str, object]
) -> dict[str, object]:
    """Arguments as the function takes them; every violation at once."""
    fields = capability.descriptor.input_shape
    known = {field.name for field in fields}
    has = ", ".join(sorted(known)) or "none"
    errors = [
        FieldError(
            name,
            "unknown_field",
            f"{capability.id} has no parameter {name!r}; it has {has}",
            showable(value),
        )
        for name, value in arguments.items()
        if name not in known
    ]
    prepared: dict[str, object] = {}
    for field in fields:
        raw = arguments.get(field.name)
        if raw is None and field.default is not None:
            raw = field.default
        value = _check(graph, ctx, field, raw, field.name, errors)
        if value is not None or field.name in arguments or field.default is not None:
            prepared[field.name] = list(value) if isinstance(value, tuple) else value
        elif not field.required:
            prepared[field.name] = [] if field.many else None
    if errors:
        raise ValidationError(errors)
    return prepared


def _check(
    graph: Graph,
    ctx: GraphContext,
    field: PredicateDescriptor,
    raw: object,
    path: str,
    errors: list[FieldError],
) -> object:
    special: dict[str, Coerce] = {
        REF: lambda value: _load(graph, ctx, field.type.scalar, value),
        OBJECT: lambda value: _build(graph, ctx, field.type.scalar, value),
        JSON: lambda value: value,
    }
    return compile_field(field, special, stored=False)(raw, path, errors)


def _load(graph: Graph, ctx: GraphContext, wanted: ValueType, value: object) -> Node:
    """The instance that a reference names."""
    handle = str(reference_coercer(ctx.kg.schema, graph.names)(value))
    target = wanted.target or ""
    if not ctx.kg.schema.is_a(handle.partition("/")[0], target):
        raise DanglingError(f"{handle} is not a {target}")
    row = ctx.kg.find(target, handle)
    if row is None:
        raise DanglingError(f"{handle} does not exist")
    return ctx.hydrate(row)


def _build(
    graph: Graph,
    ctx: GraphContext,
    wanted: ValueType,
    value: object,
) -> object:
    """A shape, or a new instance of a node type, from an object of its fields."""
    registry: Registry = ctx.registry
    target = wanted.target or ""
    cls = registry.shape_classes.get(target) or registry.classes.get(target)
    if cls is None or not isinstance(value, Mapping):
        raise KindError(f"an object with the fields of {target} is expected")
    descriptor = registry.shapes.get(target) or registry.types[target]
    made: dict[str, object] = {}
    errors = [
        FieldError(f".{name}", "unknown_field", f".{name} is not a field of {target}")
        for name in value
        if name not in descriptor.by_name
    ]
    for field in descriptor.fields:
        raw = value.get(field.name)
        if raw is None:
            raw = field.default
        checked = _check(graph, ctx, field, raw, f".{field.name}", errors)
        made[field.name] = list(checked) if isinstance(checked, tuple) else checked
    if errors:
        raise PartsError(errors)
    return cls(**made)


def plain(graph: Graph, value: object) -> object:
    """A result in JSON form: nodes as objects with their IRI, values as their kinds say."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Shape) or _is_declared(value, "fields"):
        descriptor = type(value).__trails__  # type: ignore[attr-defined]
        body = {
            field.name: _plain_field(graph, field, getattr(value, field.name))
            for field in descriptor.fields
        }
        handle = getattr(value, "handle", None)
        if handle is not None:
            return {"iri": graph.names.nodes + handle, "type": descriptor.name, **body}
        return body
    if isinstance(value, Mapping):
        return {str(key): plain(graph, item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(graph, item) for item in value]
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        raise TrailsError(
            f"a capability returned {shorten(value)}, which has no JSON form; return nodes, "
            "shapes, texts, numbers, dates, lists or dictionaries"
        ) from None


def _plain_field(graph: Graph, field: PredicateDescriptor, value: object) -> object:
    if value is None:
        return None
    if field.type.kind == LIST:
        return [_plain_scalar(graph, field.type.scalar, item) for item in value]  # type: ignore[attr-defined]
    return _plain_scalar(graph, field.type, value)


def _plain_scalar(graph: Graph, value_type: ValueType, value: object) -> object:
    if value_type.kind == REF:
        handle = getattr(value, "handle", None) or value
        return graph.names.nodes + str(handle)
    row = value_type.row
    if row is None:
        return plain(graph, value)
    coerced = row.coerce(value)
    return row.plain(coerced) if row.plain is not None else coerced


def _is_declared(value: object, attribute: str) -> bool:
    return hasattr(getattr(type(value), "__trails__", None), attribute)
