"""What a new schema means for the data that is there.

A change is safe when the stored nodes keep every rule of the new schema, each for itself and
between them, and none of their values disappears from sight. That is decided by looking at the
nodes, not by guessing from the declarations, and only where the declarations changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from trails.engine.graph.checkouts import Checkout
from trails.engine.validation.validate import Validator
from trails.errors import FieldError, SchemaMismatchError
from trails.model.nodes import NodeState
from trails.model.texts import count
from trails.model.types import Schema, TypeDescriptor

ACTOR = "trails"


_EXAMPLES: Final = 3


class BrokenRule(msgspec.Struct):
    """One rule that is broken: how often, and a few examples."""

    type: str
    field: str
    code: str
    count: int = 0
    examples: list[str] = msgspec.field(default_factory=list)

    def note(self, message: str) -> None:
        """Take down a violation."""
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(message)

    def __str__(self) -> str:
        """On one line."""
        more = self.count - len(self.examples)
        rest = f" (and {more} more)" if more else ""
        place = f"{self.type}.{self.field}" if self.field else self.type
        return f"{place} [{self.code}]: {'; '.join(self.examples)}{rest}"


def change_message(old: Schema, new: Schema) -> str:
    """What the message of a commit says that changes types."""
    return "schema: " + "; ".join(describe_changes(old, new))[:2000]


_SHOWN = 20


def describe_changes(old: Schema, new: Schema) -> list[str]:
    """The differences, a line each, in words."""
    lines = []
    for name in sorted({*old.by_name, *new.by_name}):
        before, after = old.by_name.get(name), new.by_name.get(name)
        if before is None:
            lines.append(f"new type {name}")
        elif after is None:
            lines.append(f"type {name} is gone")
        elif before != after:
            lines += [f"{name}: {line}" for line in _field_changes(before, after)]
    if old.shapes != new.shapes:
        lines.append("constraints of attached shapes changed")
    return lines


def _field_changes(before: TypeDescriptor, after: TypeDescriptor) -> Iterator[str]:
    for name in sorted({*before.by_name, *after.by_name}):
        old, new = before.by_name.get(name), after.by_name.get(name)
        if old is None:
            yield f"new field {name}"
        elif new is None:
            yield f"field {name} is gone"
        elif old != new:
            yield f"field {name} changed"
    for what in ("description", "iri", "extends", "unique", "index", "edge"):
        if getattr(before, what) != getattr(after, what):
            yield f"{what} changed"


def refuse_misfit(problems: Sequence[BrokenRule]) -> None:
    """Raise SchemaMismatchError where stored nodes do not fit a new schema."""
    if not problems:
        return
    found = count(sum(each.count for each in problems), "problem")
    kinds = count(len(problems), "kind")
    listed = [str(each) for each in problems]
    raise SchemaMismatchError(
        f"the declared types do not fit the data of this graph ({found} of {kinds}): "
        f"{'; '.join(listed[:_SHOWN])}. Correct the declarations; or declare the former types "
        "again, change the data, and then the types",
        problems=listed,
    )


def lost_data(checkout: Checkout, db: sqlite3.Connection, new: Schema) -> list[BrokenRule]:
    """What a branch holds that a new schema could not read, by type and field."""
    found: dict[tuple[str, str], BrokenRule] = {}
    for name in checkout.schema.by_name:
        changed = dict(changed_reading(checkout.schema, new, name))
        if not changed or not checkout.nodes.live(db, (name,)):
            continue
        for state in checkout.nodes.states(db, (name,)):
            for field in changed.keys() & {"", *state.values}:
                rule = found.setdefault((name, field), BrokenRule(name, field, "schema"))
                rule.note(f"{state.handle}{field and '.'}{field} would be lost: {changed[field]}")
    return list(found.values())


def changed_reading(old: Schema, new: Schema, name: str) -> Iterator[tuple[str, str]]:
    """(field, why) where stored statements of a type would no longer be read as they were.

    The field is empty where the type itself is meant.
    """
    before, after = old.by_name[name], new.by_name.get(name)
    if after is None:
        yield "", f"type {name} is gone"
        return
    if before.iri != after.iri or old.lineage(name) != new.lineage(name):
        yield "", f"the class or the ancestors of {name} changed"
    if (before.key and before.key.name) != (after.key and after.key.name):
        yield "", f"the key of {name} changed, and ids are derived from it"
    if before.edge is not None and after.edge is None:
        yield "", f"{name} is no longer an edge type"
    for field in before.fields:
        changed = after.by_name.get(field.name)
        if changed is None:
            yield field.name, "the field is gone"
        elif (field.iri, field.type.scalar.kind, field.many) != (
            changed.iri,
            changed.type.scalar.kind,
            changed.many,
        ):
            yield field.name, f"{field.type} became {changed.type}"


def new_defaults(before: TypeDescriptor | None, after: TypeDescriptor) -> dict[str, object]:
    """The defaults of fields that have to have a value from now on."""
    known = {} if before is None else before.by_name
    return {
        field.name: field.default
        for field in after.fields
        if field.required
        and field.default is not None
        and not (field.name in known and known[field.name].required)
    }


def with_defaults(
    validator: Validator, defaults: Mapping[str, object], state: NodeState
) -> NodeState:
    """A node with defaults where it has no value; the node itself where it has them all."""
    missing = defaults.keys() - state.values.keys()
    if not missing:
        return state
    errors: list[FieldError] = []  # the caller that puts the node reports what is wrong with it
    checked = validator.check(state.type, {**defaults, **state.values}, "", errors)
    filled = {name: checked[name] for name in missing & checked.keys()}
    return NodeState(state.type, state.id, {**state.values, **filled})
