"""Check the JSON arguments of a call and turn them into what the function takes.

Compiled once for each capability or stored query of a registry snapshot; a call only runs the
checks. All violations of all parameters are reported at once.

``check_rules`` then applies the policy rules of the capability. A rule reads what its caller may
read and writes nothing. Only ``True`` permits the call; an error in a rule denies it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Final
from uuid import uuid4

from trails.engine.graph.activities import CallRecord
from trails.engine.session.context import GraphContext
from trails.errors import DeniedError, FieldError, ValidationError
from trails.model.capabilities import Capability, PolicyRule, StoredQuery
from trails.model.constraints import Coerce, PartsError, compile_field, showable
from trails.model.kinds import Iri, KindError
from trails.model.names import suggest
from trails.model.nodes import NodeState
from trails.model.origins import current_trace
from trails.model.types import ANY, OBJECT, REF, PredicateDescriptor, ValueType
from trails.projections.json_schema import TypeLookup
from trails.projections.tools import params_field
from trails.registry.registry import Declared, Registry, remember

_context: ContextVar[GraphContext] = ContextVar("trails_arguments")
"""The context in which references are resolved while arguments are checked."""

Special = Callable[[ValueType], Mapping[str, Coerce]]
"""The coercers of the kinds that need more than a value: references, objects."""


class Arguments:
    """The compiled check of some parameters."""

    def __init__(
        self,
        owner: str,
        fields: Iterable[PredicateDescriptor],
        special: Special,
        prefix: str = "",
        held: Mapping[str, Callable[[object], object]] | None = None,
    ) -> None:
        """``held``: how the function takes some of the values."""
        self._owner = owner
        self._held = held or {}
        self._prefix = prefix
        self.fields = tuple(fields)
        self.names = {field.name: None for field in self.fields}.keys()
        self._checks = [
            (
                field.name,
                prefix + field.name,
                field.default,
                compile_field(field, special(field.type.scalar), stored=False),
            )
            for field in self.fields
        ]
        self._looks_up = any(field.type.scalar.kind in {REF, OBJECT} for field in self.fields)

    def prepare(
        self, ctx: GraphContext, given: Mapping[str, object], beside: Iterable[str] = ()
    ) -> dict[str, object]:
        """The values by parameter name, or ValidationError with everything that is wrong.

        ``beside`` are further accepted names, which another reader handles.
        """
        errors: list[FieldError] = []
        if self._looks_up:
            token = _context.set(ctx)
            try:
                prepared = self.check(given, errors, beside)
            finally:
                _context.reset(token)
        else:
            prepared = self.check(given, errors, beside)
        if errors:
            raise ValidationError(errors)
        return prepared

    def check(
        self,
        given: Mapping[str, object],
        errors: list[FieldError],
        beside: Iterable[str] = (),
    ) -> dict[str, object]:
        """The values; violations are added to ``errors``. Missing and null are the same."""
        if not given.keys() <= self.names:
            errors.extend(self._unknown(given, (*self.names, *beside)))
        prepared: dict[str, object] = {}
        for name, path, default, check in self._checks:
            raw = given.get(name)
            value = check(default if raw is None else raw, path, errors)
            prepared[name] = list(value) if type(value) is tuple else value
        for name, hold in self._held.items():
            prepared[name] = hold(prepared[name])
        return prepared

    def read_object(self, value: object) -> dict[str, object]:
        """The checked values of an object inside other arguments."""
        if not isinstance(value, Mapping):
            raise KindError
        errors: list[FieldError] = []
        prepared = self.check(value, errors)
        if errors:
            raise PartsError(errors)
        return prepared

    def _unknown(self, given: Mapping[str, object], known: Sequence[str]) -> Iterable[FieldError]:
        for name, value in given.items():
            if name not in self.names:
                path = f"{self._prefix}{str(name)[:100]}"
                hint = suggest(str(name), known) if known else "it has none"
                message = f"{path} is not a parameter of {self._owner}; {hint}"
                yield FieldError(path, "unknown_field", message, showable(value))


class ArgumentChecks:
    """The checks of everything that one registry snapshot can call, each made when first used."""

    def __init__(self, registry: Registry, declared: TypeLookup) -> None:
        self._registry = registry
        self._declared = declared
        self._capabilities: dict[str, Arguments] = {}
        self._queries: dict[str, Arguments] = {}
        self._objects: dict[str, Arguments] = {}

    def of_capability(self, capability: Capability) -> Arguments:
        """The check of a capability's arguments; references are loaded, objects are built."""
        found = self._capabilities.get(capability.id)
        if found is None:
            shape = capability.descriptor.input_shape
            found = self._capabilities[capability.id] = Arguments(
                capability.id, shape, self.built, held=capability.held
            )
        return found

    def of_query(self, query: StoredQuery) -> Arguments:
        """The check of a query's ``params``; references in it stay IRIs."""
        found = self._queries.get(query.name)
        if found is None:
            inner = Arguments(query.name, query.params, named, prefix=".")
            found = self._queries[query.name] = Arguments(
                query.effective_tool_name,
                (params_field(query),),
                lambda _: {OBJECT: inner.read_object},
            )
        return found

    def built(self, wanted: ValueType) -> Mapping[str, Coerce]:
        """References as instances, objects as instances of their class."""
        return {REF: _loader(wanted), OBJECT: self._builder(wanted), ANY: _same}

    def _builder(self, wanted: ValueType) -> Coerce:
        """A shape, or a new instance of a node type, from an object of its fields."""
        registry = self._registry
        target = wanted.target or ""
        cls = registry.shape_classes.get(target) or registry.classes.get(target)

        def build(value: object) -> object:
            if cls is None:
                raise KindError(f"there is no class for {target}")
            return cls(**self._fields_of(target).read_object(value))

        return build

    def _fields_of(self, target: str) -> Arguments:
        """The check of a type's fields; made on first use, because types can be recursive."""
        found = self._objects.get(target)
        if found is None:
            declared = self._declared
            descriptor = declared.shapes.get(target) or declared.schema.by_name[target]
            found = self._objects[target] = Arguments(
                target, descriptor.fields, self.built, prefix="."
            )
        return found


def checks_of(registry: Registry, declared: Registry | Declared | None = None) -> ArgumentChecks:
    """The compiled checks of a registry snapshot, or of its visible part."""
    key = declared or registry
    return remember(key, ArgumentChecks, lambda: ArgumentChecks(registry, key))


def named(wanted: ValueType) -> Mapping[str, Coerce]:
    """Coercers that turn references into the IRIs of existing nodes."""

    def coerce(value: object) -> object:
        return Iri(_context.get().kg.iri(_resolve(value, wanted).handle))

    return {REF: coerce, ANY: _same}


def _loader(wanted: ValueType) -> Coerce:
    """The instance that a reference names."""
    return lambda value: _context.get().hydrate(_resolve(value, wanted))


def _resolve(value: object, wanted: ValueType) -> NodeState:
    """The node that an argument names: a string from JSON, or an instance from a program."""
    given = getattr(value, "handle", None) if hasattr(value, "__trails__") else value
    if not isinstance(given, str):
        raise KindError
    return _context.get().kg.resolve(wanted.target or "", given)


def _same(value: object) -> object:
    return value


_logger: Final = logging.getLogger("trails")


def check_rules(ctx: GraphContext, capability: Capability, arguments: Mapping[str, object]) -> None:
    """Raise DeniedError unless every rule of a capability permits a call with these arguments."""
    for rule in ctx.registry.rules_of(capability):
        _apply(ctx, capability.id, rule, arguments)


def _apply(
    ctx: GraphContext, called: str, rule: PolicyRule, arguments: Mapping[str, object]
) -> None:
    reading = ctx.for_call(CallRecord(ctx.actor, f"the rule {rule.name!r}", "rule", reads=True))
    try:
        said = rule.judge(reading, **rule.select(arguments))
    except DeniedError as denial:
        raise _denied(called, rule, denial.message, denial.data) from None
    except Exception as error:  # noqa: BLE001 - a rule that can't decide permits nothing
        raise _undecided(called, rule, error) from None
    if said is True:
        return
    if said is False:
        raise _denied(called, rule, "these arguments are not permitted")
    if isinstance(said, str):
        raise _denied(called, rule, said or "these arguments are not permitted")
    raise _undecided(
        called,
        rule,
        TypeError(f"it returned {type(said).__name__}; return True to permit, or a text"),
    )


def _denied(
    called: str, rule: PolicyRule, why: str, data: Mapping[str, object] | None = None
) -> DeniedError:
    message = f"{called} is denied by the rule {rule.name!r}: {why}"
    return DeniedError(message, **{**(data or {}), "rule": rule.name})


def _undecided(called: str, rule: PolicyRule, error: Exception) -> DeniedError:
    trace = current_trace() or uuid4().hex
    _logger.error(
        "%s is denied: the rule %r failed (trace %s)",
        called,
        rule.name,
        trace,
        exc_info=error,
        extra={"event": "rule.failed"},
    )
    return DeniedError(
        f"{called} is denied: the rule {rule.name!r} failed (trace {trace}); details are in the "
        "server log",
        rule=rule.name,
        trace_id=trace,
    )
