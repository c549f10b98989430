"""What a step means for data of any kind: its effect, and a sentence about it. Pure."""

from __future__ import annotations

from functools import singledispatch

import msgspec

from trails.engine.schema.resolve import is_computed, is_expression
from trails.model.changes.steps import (
    AddField,
    AddShape,
    AddType,
    ChangeField,
    ChangeType,
    DropField,
    DropShape,
    DropType,
    Effect,
    RenameField,
    RenameType,
    SplitField,
    Step,
)
from trails.model.constraints import RULES
from trails.model.types import PredicateDescriptor, Schema


def effect_of(step: Step, before: Schema, after: Schema) -> tuple[Effect, str]:
    """The effect of a step between two schemas, and what it does in words."""
    return _effect(step, before, after)


def describe_steps(steps: tuple[Step, ...] | list[Step], schemas: list[Schema]) -> str:
    """What steps do, in one line, as the message of a commit."""
    lines = [
        effect_of(step, schemas[at], schemas[at + 1])[1].rstrip(".").partition(";")[0]
        for at, step in enumerate(steps)
    ]
    return "schema: " + "; ".join(f"{each[:1].lower()}{each[1:]}" for each in lines)[:2000]


@singledispatch
def _effect(step: object, before: Schema, after: Schema) -> tuple[Effect, str]:
    raise TypeError(step, before, after)


@_effect.register
def _(step: AddType, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before
    what = "edge type" if after.by_name[step.type.name].edge is not None else "type"
    return "safe", f"Add {what} {step.type.name}."


@_effect.register
def _(step: RenameType, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before, after
    renamed = f"Rename type {step.type} to {step.to}"
    return "safe", f"{renamed}; its nodes keep their ids, and references to them follow."


@_effect.register
def _(step: ChangeType, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before, after
    parts = [
        name
        for name in step.__struct_fields__
        if name != "type" and getattr(step, name) not in (None, msgspec.UNSET)
    ]
    if step.extends is None:
        parts.append("extends")
    harmless = {"description", "index", "order", "iri", "" if step.abstract else "abstract"}
    effect: Effect = "safe" if harmless.issuperset(parts) else "needs_data"
    return effect, f"Change {', '.join(sorted(set(parts))) or 'nothing'} of {step.type}."


@_effect.register
def _(step: DropType, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before, after
    if step.hard:
        return "destructive", f"Drop type {step.type}; its nodes are deleted."
    return "needs_data", f"Drop type {step.type}; refused while it has nodes."


@_effect.register
def _(step: AddField, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before
    field = after.by_name[step.type].by_name[step.field.name]
    where = f"{step.type}.{field.name}"
    if is_expression(step.backfill):
        return "needs_data", f"Add field {where}; nodes get a value by an expression."
    if is_computed(step.backfill):
        return "needs_data", f"Add field {where}; nodes get back the value that they had."
    given = step.backfill if step.backfill is not msgspec.UNSET else field.default
    if given is not None and (field.required or step.backfill is not msgspec.UNSET):
        effect: Effect = "needs_data" if field.unique else "safe"
        return effect, f"Add field {where}; nodes get the value {given!r}."
    if field.required:
        return "needs_data", f"Add field {where}, which is required; nodes have no value for it."
    return "safe", f"Add field {where}."


@_effect.register
def _(step: RenameField, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before, after
    return "safe", f"Rename field {step.type}.{step.field} to {step.to}; values stay."


@_effect.register
def _(step: ChangeField, before: Schema, after: Schema) -> tuple[Effect, str]:
    old = before.by_name[step.type].by_name[step.field]
    new = after.by_name[step.type].by_name[step.field]
    where = f"{step.type}.{step.field}"
    if step.convert == "lossy":
        return (
            "destructive",
            f"Change {where} from {old.type} to {new.type}; values are cut to fit.",
        )
    if step.convert is not None or not _same_sort(old, new):
        return "needs_data", f"Change {where} from {old.type} to {new.type}; values are converted."
    if is_wider(old, new, before, after):
        return "safe", f"Change field {where}; all values fit."
    return "needs_data", f"Change field {where}; some values may not fit."


@_effect.register
def _(step: SplitField, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before, after
    names = ", ".join(each.name for each in step.into)
    if step.keep:
        return "needs_data", f"Compute {names} from {step.type}.{step.field}."
    return "destructive", f"Split {step.type}.{step.field} into {names}; its values are removed."


@_effect.register
def _(step: DropField, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before, after
    if step.hard:
        return "destructive", f"Drop field {step.type}.{step.field}; its values are removed."
    return "needs_data", f"Drop field {step.type}.{step.field}; refused while nodes have values."


@_effect.register
def _(step: AddShape, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before, after
    if step.shape.target is None:
        return "safe", f"Add shape {step.shape.name}."
    return "needs_data", f"Add shape {step.shape.name} with rules for {step.shape.target}."


@_effect.register
def _(step: DropShape, before: Schema, after: Schema) -> tuple[Effect, str]:
    del before, after
    return "safe", f"Drop shape {step.shape}."


def _same_sort(old: PredicateDescriptor, new: PredicateDescriptor) -> bool:
    sorts = [(each.type.scalar.kind, each.many, each.ordered) for each in (old, new)]
    return sorts[0] == sorts[1]


def is_wider(
    old: PredicateDescriptor, new: PredicateDescriptor, before: Schema, after: Schema
) -> bool:
    """Whether every value that a field may have now is allowed by the changed field."""
    if not _same_sort(old, new) or old.type.scalar.dimension != new.type.scalar.dimension:
        return False
    if new.min_count > old.min_count or (new.unique and not old.unique):
        return False
    if new.max_count is not None and (old.max_count is None or new.max_count < old.max_count):
        return False
    if old.target is not None and new.target is not None:
        known = before.family(old.target) if old.target in before.by_name else ()
        wider = after.family(new.target) if new.target in after.by_name else ()
        if not set(known) <= set(wider):
            return False
    return all(_wider_limit(rule.code, old, new) for rule in RULES)


def _wider_limit(code: str, old: PredicateDescriptor, new: PredicateDescriptor) -> bool:
    was, now = getattr(old, code), getattr(new, code)
    if now is None or was == now:
        return True
    if was is None:
        return False
    if code == "one_of":
        return set(map(str, was)) <= set(map(str, now))
    if code in {"min_length", "max_length"}:
        return bool(now <= was if code == "min_length" else now >= was)
    if code in {"min_value", "max_value"}:
        row = old.type.scalar.row
        if row is None:
            return False
        least, limit = row.coerce(was), row.coerce(now)
        wider = limit <= least if code == "min_value" else limit >= least  # type: ignore[operator]
        return bool(wider)
    return False
