"""The steps that turn one schema into another, and the steps that undo steps. Pure.

``diff_schemas`` never guesses a rename: a renamed field looks like one that is gone and a new one.
Renames are given as hints, and ``likely_renames`` names those that it could be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from trails.authoring.specs import field_spec, shape_spec
from trails.engine.schema.inheritance import own_declarations, own_spec
from trails.engine.schema.resolve import Resolver, resolve
from trails.model.changes.steps import (
    AddField,
    AddShape,
    AddType,
    ChangeField,
    ChangeType,
    DropField,
    DropShape,
    DropType,
    RenameField,
    RenameType,
    SplitField,
    Step,
)
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor

Groups = tuple[tuple[str, ...], ...]


def diff_schemas(
    old: Schema, new: Schema, renames: Sequence[RenameType | RenameField] = ()
) -> tuple[Step, ...]:
    """Steps from one schema to another; ``renames`` are taken first. Drops are soft."""
    return _Difference(old, new, renames).steps()


class _Difference:
    """Works out one difference, each step on the types that the steps before it leave."""

    def __init__(
        self, old: Schema, new: Schema, renames: Sequence[RenameType | RenameField]
    ) -> None:
        self._found: list[Step] = [*renames]
        self._resolver = Resolver(resolve(old, renames)[-1] if renames else old)
        self._new = new
        self._wanted = own_declarations(new)

    def steps(self) -> tuple[Step, ...]:
        """All of them."""
        self._drop_shapes()
        self._loosen_groups()
        self._work(list(self._changes()))
        for name in sorted(self._wanted):
            self._finish_type(name)
        for shape in self._new.shapes:
            if shape not in self._resolver.schema.shapes:
                self._take(AddShape(shape_spec(shape)))
        return tuple(self._found)

    @property
    def _now(self) -> dict[str, TypeDescriptor]:
        return own_declarations(self._resolver.schema)

    def _take(self, step: Step) -> bool:
        if not self._resolver.attempt(step):
            return False
        self._found.append(step)
        return True

    def _kept(self) -> Iterator[tuple[TypeDescriptor, TypeDescriptor]]:
        """The types that stay what they are, an edge type or none, before and after."""
        for name, before in self._now.items():
            after = self._wanted.get(name)
            if after is not None and (before.edge is None) == (after.edge is None):
                yield before, after

    def _drop_shapes(self) -> None:
        for shape in self._resolver.schema.shapes:
            if shape not in self._new.shapes:
                self._take(DropShape(shape.name))

    def _loosen_groups(self) -> None:
        """Take out the groups that change, or whose fields do."""
        current, wanted = self._resolver.schema, self._new
        for before, after in list(self._kept()):
            name = before.name
            fields = wanted.by_name[name].by_name
            stable = {
                each.name
                for each in current.by_name[name].fields
                if fields.get(each.name) == each and current.lineage(name) == wanted.lineage(name)
            }
            left: dict[str, Any] = {}
            for what in ("unique", "index"):
                own: Groups = getattr(before, what)
                kept = tuple(
                    each for each in own if each in getattr(after, what) and stable.issuperset(each)
                )
                if kept != own:
                    left[what] = kept
            if left:
                self._take(ChangeType(name, **left))

    def _changes(self) -> Iterator[Step]:
        """What has to happen to types and fields, in the order that most often works."""
        kept = {before.name: (before, after) for before, after in self._kept()}
        for before, after in kept.values():
            names = {each.name for each in after.fields}
            yield from (
                DropField(before.name, each.name)
                for each in before.fields
                if each.name not in names
            )
        for before, after in kept.values():
            if before.extends != after.extends:
                yield ChangeType(before.name, extends=after.extends)
        for name in self._now:
            if name not in kept:
                yield DropType(name)
        for name, after in self._wanted.items():
            if name not in kept:
                bare = msgspec.structs.replace(after, unique=(), index=())
                yield AddType(own_spec(after if after.extends is None else bare))
        for before, after in kept.values():
            yield from _field_changes(before, after)

    def _work(self, pending: list[Step]) -> None:
        """Take steps as soon as they can be taken."""
        while pending:
            left = [step for step in pending if not self._take(step)]
            if len(left) == len(pending):
                left = self._detour(left)
            pending = left

    def _detour(self, left: list[Step]) -> list[Step]:
        """Take another way where no step can be taken."""
        for at, step in enumerate(left):
            rest = [*left[:at], *left[at + 1 :]]
            if isinstance(step, ChangeField) and self._take(DropField(step.type, step.field)):
                return [AddField(step.type, step.to), *rest]
            if (
                isinstance(step, ChangeType)
                and step.extends is not None
                and self._now[step.type].extends is not None
                and self._take(ChangeType(step.type, extends=None))
            ):
                return left
        return []

    def _finish_type(self, name: str) -> None:
        """What a type says beside its fields, and their order."""
        now, wanted = self._now.get(name), self._wanted[name]
        if now is None:
            return
        changes: dict[str, Any] = {
            what: getattr(wanted, what)
            for what in ("description", "unique", "index", "abstract")
            if getattr(now, what) != getattr(wanted, what)
        }
        if now.iri != wanted.iri:
            changes["iri"] = "" if wanted.iri == name else wanted.iri
        if now.edge is not None and wanted.edge is not None:
            for what in ("source", "target", "per_source", "per_target"):
                if getattr(now.edge, what) != getattr(wanted.edge, what):
                    changes[what] = getattr(wanted.edge, what)
        order = tuple(each.name for each in wanted.fields)
        if order != tuple(each.name for each in now.fields):
            changes["order"] = order
        if changes:
            self._take(ChangeType(name, **changes))


def _field_changes(before: TypeDescriptor, after: TypeDescriptor) -> Iterator[Step]:
    known = {each.name: each for each in before.fields}
    for field in after.fields:
        if field.name not in known:
            yield AddField(before.name, field_spec(field))
        elif known[field.name] != field:
            yield ChangeField(before.name, field.name, field_spec(field))


def likely_renames(old: Schema, new: Schema) -> tuple[RenameType | RenameField, ...]:
    """Renames that a difference could be: what is gone looks exactly like something new."""
    found: list[RenameType | RenameField] = []
    before, after = own_declarations(old), own_declarations(new)
    added = [each for name, each in after.items() if name not in before]
    for name, own in before.items():
        if name not in after:
            alike = [each.name for each in added if _resembles(own, each)]
            found += [RenameType(name, alike[0])] if len(alike) == 1 else []
            continue
        fields = {each.name: each for each in after[name].fields}
        known = {each.name for each in own.fields}
        for field in own.fields:
            if field.name not in fields:
                same = [
                    each.name
                    for each in fields.values()
                    if each.name not in known and _anonymous(each) == _anonymous(field)
                ]
                found += [RenameField(name, field.name, same[0])] if len(same) == 1 else []
    return tuple(found)


def _resembles(own: TypeDescriptor, other: TypeDescriptor) -> bool:
    names = [{each.name for each in one.fields} for one in (own, other)]
    same = names[0] & names[1]
    return (own.edge is None) == (other.edge is None) and 2 * len(same) > len(names[0] | names[1])


def _anonymous(field: PredicateDescriptor) -> PredicateDescriptor:
    return msgspec.structs.replace(field, name="", iri="", description="", label=False)


# --- undoing ---------------------------------------------------------------------------------


def reverse(steps: Sequence[Step], before: Schema, commit: str | None = None) -> tuple[Step, ...]:
    """The steps that undo steps; ``before`` is the schema that they were applied to.

    What they dropped is restored from history, if the ``commit`` that dropped it is given.
    """
    schemas = [before, *resolve(before, steps)]
    undone: list[Step] = []
    for at in reversed(range(len(steps))):
        undone += _undo(steps[at], schemas[at], schemas[at + 1], commit)
    return tuple(undone)


def _undo(step: Step, before: Schema, after: Schema, commit: str | None) -> Iterable[Step]:
    restored: object = msgspec.UNSET if commit is None else {"commit": commit}
    if isinstance(step, RenameType):
        return [RenameType(step.to, step.type)]
    if isinstance(step, RenameField):
        return [RenameField(step.type, step.to, step.field)]
    if isinstance(step, AddField):
        return [DropField(step.type, step.field.name, hard=True)]
    if isinstance(step, AddType):
        return [DropType(step.type.name, hard=True)]
    if isinstance(step, DropField) or (isinstance(step, SplitField) and not step.keep):
        field = before.by_name[step.type].by_name[step.field]
        into = step.into if isinstance(step, SplitField) else ()
        names = {each.name for each in into}
        if step.field in names:
            first: list[Step] = [ChangeField(step.type, step.field, field_spec(field))]
        else:
            first = [AddField(step.type, field_spec(field), backfill=restored)]
        drops = [DropField(step.type, each, hard=True) for each in names if each != step.field]
        return [*first, *drops, *_rest(step.type, before, after)]
    if isinstance(step, SplitField):
        return [DropField(step.type, each.name, hard=True) for each in step.into]
    if isinstance(step, DropType):
        own = own_declarations(before)[step.type]
        shapes = [AddShape(shape_spec(each)) for each in before.shapes if each.target == step.type]
        return [AddType(own_spec(own), restore=commit if step.hard else None), *shapes]
    if isinstance(step, ChangeField):
        field = before.by_name[step.type].by_name[step.field]
        return [ChangeField(step.type, step.field, field_spec(field), backfill=restored)]
    if isinstance(step, ChangeType):
        return _rest(step.type, before, after)
    former = next((each for each in before.shapes if each.name == _shape_of(step)), None)
    if former is not None:
        return [AddShape(shape_spec(former))]
    known = any(each.name == _shape_of(step) for each in after.shapes)
    return [DropShape(_shape_of(step))] if known else []


def _shape_of(step: AddShape | DropShape) -> str:
    return step.shape if isinstance(step, DropShape) else step.shape.name


def _rest(name: str, before: Schema, after: Schema) -> list[Step]:
    """Bring back what a type said beside its fields."""
    was, now = own_declarations(before)[name], own_declarations(after)[name]
    changes: dict[str, Any] = {
        what: getattr(was, what)
        for what in ("description", "unique", "index", "extends", "abstract")
        if getattr(was, what) != getattr(now, what)
    }
    if was.iri != now.iri:
        changes["iri"] = "" if was.iri == name else was.iri
    if was.edge is not None and now.edge is not None:
        for what in ("source", "target", "per_source", "per_target"):
            if getattr(was.edge, what) != getattr(now.edge, what):
                changes[what] = getattr(was.edge, what)
    order = tuple(each.name for each in was.fields)
    names = {each.name for each in was.fields}
    if sorted(order) != sorted(names) or order != tuple(each.name for each in now.fields):
        changes["order"] = order
    steps: list[Step] = [ChangeType(name, **changes)] if changes else []
    shapes = [each for each in before.shapes if each not in after.shapes]
    return [*steps, *(AddShape(shape_spec(each)) for each in shapes)]
