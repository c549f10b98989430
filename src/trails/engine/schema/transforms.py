"""What each step does to a node. Pure, except that the caller's ``Ask`` computes expressions.

A ``NodeDraft`` is a node on its way through the steps, under the names of the step that it has
reached. Its references keep the handles that are stored; ``rewrite`` brings them up to date at the
end, when all renames are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from typing import Final

import msgspec

from trails.engine.schema.conversions import ConversionError, coerce_value, convert_field
from trails.engine.schema.expressions import Ask, Expression, computed_value
from trails.engine.schema.resolve import is_expression
from trails.engine.schema.restore import FormerState, commit_of
from trails.errors import FieldError, QueryError, ValidationError
from trails.model.changes.steps import (
    AddField,
    AddShape,
    AddType,
    ChangeField,
    ChangeType,
    DropField,
    DropShape,
    DropType,
    Offense,
    RenameField,
    RenameType,
    SplitField,
    Step,
)
from trails.model.iris import Names
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema


class NodeDraft(msgspec.Struct):
    """One node on its way through the steps."""

    before: NodeState
    type: str
    values: dict[str, object]
    gone: bool = False


class Tally(msgspec.Struct):
    """What one step did."""

    nodes: int = 0
    lost: int = 0
    offending: int = 0


_REMEMBERED: Final = 100_000


class Findings:
    """Counts what steps do, and collects one page of what forbids them."""

    def __init__(self, steps: int, offset: int = 0, limit: int = 0) -> None:
        self.tallies = [Tally() for _ in range(steps)]
        self.offending = 0
        self.offenses: list[Offense] = []
        self._page = range(offset, offset + limit)
        self._known: set[tuple[str, str]] = set()
        """Id and field of values that were refused, which nothing else is said about."""

    def note(self, offense: Offense) -> None:
        """Note a violation."""
        if self.offending in self._page:
            self.offenses.append(offense)
        self.offending += 1
        self.tallies[offense.step].offending += 1

    def has(self, identifier: str, field: str) -> bool:
        """Whether a value was refused already."""
        return (identifier, field) in self._known

    def refuse(self, step: int, node: NodeDraft, field: str, rule: str, why: str) -> None:
        """Note that a step can't be applied to a value of a node."""
        handle = node.before.handle
        value = node.values.get(field)
        message = f"{handle}.{field}: {why}" if field else f"{handle}: {why}"
        if len(self._known) < _REMEMBERED:
            self._known.add((node.before.id, field))
        self.note(
            Offense(step, handle, field, rule, message, None if value is None else str(value)[:200])
        )


Apply = Callable[[Sequence[NodeDraft]], None]


class Transform(msgspec.Struct, frozen=True):
    """One step for nodes of some types, named as before the step."""

    types: frozenset[str]
    apply: Apply


class StepContext(msgspec.Struct, frozen=True):
    """What the transform of a step needs to know."""

    at: int
    before: Schema
    after: Schema
    names: Names
    ask: Ask | None
    findings: Findings
    former: Mapping[str, FormerState]
    """Commit → what was before it, where a step restores that."""
    stored_name: Callable[[str, str], str]
    """The name on the branch of a field, by its type and name before the step."""

    def family(self, name: str) -> frozenset[str]:
        """A type and those that extend it, before the step."""
        return frozenset(self.before.family(name))

    def expression(self, given: object, type_name: str, part: str) -> Expression:
        """An expression over the fields that a type has before the step."""
        path = f"steps[{self.at}].{part}"
        text = given["expression"] if isinstance(given, Mapping) else given
        if self.ask is None:
            message = f"{path}: expressions are not available here; give a value"
            raise ValidationError([FieldError(path, "expression", message)])
        try:
            return Expression(text, self.before.by_name[type_name])
        except QueryError as error:
            message = f"{path}: {error.message}"
            raise ValidationError(
                [FieldError(path, "expression", message, str(text)[:200])]
            ) from None


def transform_of(step: Step, context: StepContext) -> Transform | None:
    """What a step does to nodes; None if it does nothing."""
    return _transform(step, context)


@singledispatch
def _transform(step: object, context: StepContext) -> Transform | None:
    raise TypeError(step, context)


@_transform.register(AddType)
@_transform.register(AddShape)
@_transform.register(DropShape)
def _(step: Step, context: StepContext) -> Transform | None:
    del step, context
    return None


@_transform.register
def _(step: RenameType, context: StepContext) -> Transform | None:
    def apply(nodes: Sequence[NodeDraft]) -> None:
        for node in nodes:
            node.type = step.to
        context.findings.tallies[context.at].nodes += len(nodes)

    return Transform(frozenset({step.type}), apply)


@_transform.register
def _(step: DropType, context: StepContext) -> Transform | None:
    tally = context.findings.tallies[context.at]

    def apply(nodes: Sequence[NodeDraft]) -> None:
        for node in nodes:
            if not step.hard:
                why = f"{step.type} has nodes; delete them first, or drop the type hard"
                context.findings.refuse(context.at, node, "", "in_use", why)
            node.gone = True
            tally.nodes += 1
            tally.lost += step.hard

    return Transform(frozenset({step.type}), apply)


@_transform.register
def _(step: ChangeType, context: StepContext) -> Transform | None:
    if step.extends is msgspec.UNSET:
        return None
    family = context.family(step.type)
    lost = {
        name: context.before.by_name[name].by_name.keys()
        - context.after.by_name[name].by_name.keys()
        for name in family
    }

    def apply(nodes: Sequence[NodeDraft]) -> None:
        for node in nodes:
            context.findings.tallies[context.at].nodes += 1
            for field in sorted(lost[node.type] & node.values.keys()):
                why = f"{node.type} would no longer inherit this field; drop it first"
                context.findings.refuse(context.at, node, field, "in_use", why)
                del node.values[field]

    return Transform(family, apply)


@_transform.register
def _(step: RenameField, context: StepContext) -> Transform | None:
    def apply(nodes: Sequence[NodeDraft]) -> None:
        for node in nodes:
            if step.field in node.values:
                node.values[step.to] = node.values.pop(step.field)
                context.findings.tallies[context.at].nodes += 1

    return Transform(context.family(step.type), apply)


@_transform.register
def _(step: DropField, context: StepContext) -> Transform | None:
    tally = context.findings.tallies[context.at]

    def apply(nodes: Sequence[NodeDraft]) -> None:
        for node in nodes:
            if step.field not in node.values:
                continue
            if not step.hard:
                why = "it has a value; remove it first, or drop the field hard"
                context.findings.refuse(context.at, node, step.field, "in_use", why)
            value = node.values.pop(step.field)
            tally.nodes += 1
            if step.hard:
                tally.lost += len(value) if isinstance(value, tuple) else 1

    return Transform(context.family(step.type), apply)


@_transform.register
def _(step: AddField, context: StepContext) -> Transform | None:
    field = context.after.by_name[step.type].by_name[step.field.name]
    fill = _filling(context, step.type, field, step.backfill)
    return None if fill is None else Transform(context.family(step.type), fill)


@_transform.register
def _(step: ChangeField, context: StepContext) -> Transform | None:
    old = context.before.by_name[step.type].by_name[step.field]
    new = context.after.by_name[step.type].by_name[step.field]
    fill = _filling(context, step.type, new, step.backfill)
    sorts = [(each.type.scalar.kind, each.many, each.ordered) for each in (old, new)]
    convert: Apply | None = None
    if isinstance(step.convert, Mapping):
        convert = _computing(context, step.type, {step.field: new}, {step.field: step.convert}, old)
    elif sorts[0] != sorts[1]:
        convert = _converting(context, old, new, lossy=step.convert == "lossy")
    if (commit := commit_of(step.backfill)) is not None:
        stored = context.stored_name(step.type, step.field)
        convert = _undoing(context, context.former[commit], new, stored, convert)
    parts = [each for each in (convert, fill) if each is not None]

    def apply(nodes: Sequence[NodeDraft]) -> None:
        for part in parts:
            part(nodes)

    return Transform(context.family(step.type), apply) if parts else None


@_transform.register
def _(step: SplitField, context: StepContext) -> Transform | None:
    old = context.before.by_name[step.type].by_name[step.field]
    fields = {each.name: context.after.by_name[step.type].by_name[each.name] for each in step.into}
    compute = _computing(context, step.type, fields, step.values, old)
    tally = context.findings.tallies[context.at]

    def apply(nodes: Sequence[NodeDraft]) -> None:
        compute(nodes)
        if not step.keep and step.field not in fields:
            for node in nodes:
                tally.lost += node.values.pop(step.field, None) is not None

    return Transform(context.family(step.type), apply)


def _filling(
    context: StepContext, type_name: str, field: PredicateDescriptor, backfill: object
) -> Apply | None:
    """Give nodes without a value of a field one: the backfill, or its default if it is required."""
    given = backfill
    if (commit := commit_of(given)) is not None:
        return _restoring(context, context.former[commit], field)
    if given is msgspec.UNSET:
        given = field.default if field.required else None
    if given is None:
        return None
    name, tally = field.name, context.findings.tallies[context.at]
    if is_expression(given):
        compute = _computing(context, type_name, {name: field}, {name: given}, None)
        return lambda nodes: compute([each for each in nodes if name not in each.values])
    value = coerce_value(given, field)

    def apply(nodes: Sequence[NodeDraft]) -> None:
        for node in nodes:
            if name not in node.values:
                node.values[name] = value
                tally.nodes += 1

    return apply


def _restoring(context: StepContext, former: FormerState, field: PredicateDescriptor) -> Apply:
    """Give nodes back a value of a field that they had before a commit."""
    name, tally = field.name, context.findings.tallies[context.at]

    def apply(nodes: Sequence[NodeDraft]) -> None:
        found = [each for each in nodes if name not in each.values]
        handles = [each.before.handle for each in found]
        values, results = former.values(handles, name), former.results(handles, name)
        for node in found:
            was, value = values.get(node.before.handle, (field, None))
            _, left = results.get(node.before.handle, (field, None))
            if value is None or left is not None:  # what the commit left was removed by an edit
                continue
            tally.nodes += 1
            try:
                node.values[name] = convert_field(value, was, field)
            except ConversionError as error:
                context.findings.refuse(context.at, node, name, "convert", str(error))

    return apply


def _undoing(
    context: StepContext,
    former: FormerState,
    new: PredicateDescriptor,
    stored: str,
    otherwise: Apply | None,
) -> Apply:
    """Undo a change of a field: values that are still its result become what they were before.

    A value that was edited since is changed as any other (``otherwise``).
    """
    name, tally = new.name, context.findings.tallies[context.at]

    def apply(nodes: Sequence[NodeDraft]) -> None:
        handles = [each.before.handle for each in nodes]
        before = former.values(handles, stored, renamed=True)
        results = former.results(handles, stored, renamed=True)
        rest: list[NodeDraft] = []
        for node in nodes:
            was, value = before.get(node.before.handle, (new, None))
            _, result = results.get(node.before.handle, (new, None))
            current = node.values.get(name)
            if node.before.handle not in before or current is None or current != result:
                rest.append(node)
            elif value is None:
                del node.values[name]
            else:
                node.values[name] = convert_field(value, was, new, lossy=True)
            tally.nodes += node.values.get(name) != current
        if otherwise is not None:
            otherwise(rest)

    return apply


def _converting(
    context: StepContext, old: PredicateDescriptor, new: PredicateDescriptor, *, lossy: bool
) -> Apply:
    name, tally = old.name, context.findings.tallies[context.at]

    def apply(nodes: Sequence[NodeDraft]) -> None:
        for node in nodes:
            if name not in node.values:
                continue
            value = node.values[name]
            try:
                made = convert_field(value, old, new, lossy=lossy)
            except ConversionError as error:
                context.findings.refuse(context.at, node, name, "convert", str(error))
                made = None
            else:
                tally.nodes += 1
                tally.lost += lossy and _loses(value, old, new)
            del node.values[name]
            if made is not None:
                node.values[name] = made

    return apply


def _loses(value: object, old: PredicateDescriptor, new: PredicateDescriptor) -> bool:
    try:
        convert_field(value, old, new)
    except ConversionError:
        return True
    return False


def _computing(
    context: StepContext,
    type_name: str,
    fields: Mapping[str, PredicateDescriptor],
    given: Mapping[str, object],
    source: PredicateDescriptor | None,
) -> Apply:
    """Compute fields by expressions; with a source, for the nodes that have a value of it."""
    constants = {
        name: coerce_value(value, fields[name])
        for name, value in given.items()
        if not is_expression(value)
    }
    expressions = {
        name: context.expression(value, type_name, f"expression of {name}")
        for name, value in given.items()
        if name not in constants
    }
    tally = context.findings.tallies[context.at]

    def apply(nodes: Sequence[NodeDraft]) -> None:
        found = [each for each in nodes if source is None or source.name in each.values]
        if not found or context.ask is None:
            return
        known = [(each.before.handle, dict(each.values)) for each in found]
        for node in found:
            node.values.update(constants)
        for name, expression in expressions.items():
            made = expression.evaluate(known, context.names, context.ask)
            for node, value in zip(found, made, strict=True):
                node.values.pop(name, None)
                try:
                    computed = computed_value(value, fields[name], context.names)
                except ConversionError as error:
                    context.findings.refuse(context.at, node, name, "convert", str(error))
                    continue
                if computed is not None:
                    node.values[name] = computed
        tally.nodes += len(found)

    return apply
