"""Resolve steps against a schema: the types after each step, or every mistake at once.

Pure. A step sees the types that the steps before it leave. References between types may point
forward, so they are checked when all steps are done. What a step renames is renamed wherever it is
named: in inherited fields, references, ends of edges, shapes, and groups of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import singledispatchmethod

import msgspec

from trails.authoring.specs import describe_field, describe_fields
from trails.authoring.types import compose_shape
from trails.engine.schema.inheritance import describe_own_type, own_declarations, whole_type
from trails.errors import DeclarationError, FieldError, ValidationError
from trails.model.changes.steps import (
    AddField,
    AddShape,
    AddType,
    ChangeField,
    ChangeType,
    DropField,
    DropShape,
    DropType,
    FieldSpec,
    RenameField,
    RenameType,
    SplitField,
    Step,
)
from trails.model.constraints import showable
from trails.model.names import check_field_name, check_term, check_type_name, suggest
from trails.model.types import (
    EdgeEnds,
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
    can_constrain,
)

Groups = tuple[tuple[str, ...], ...]
Rewrite = Callable[[str], str]


def resolve(schema: Schema, steps: Sequence[Step]) -> tuple[Schema, ...]:
    """The schema after each step; ValidationError with all mistakes, by ``steps[i].…``."""
    resolver = Resolver(schema)
    found = [resolver.take(at, step) for at, step in enumerate(steps)]
    resolver.check_whole()
    if resolver.errors:
        raise ValidationError(resolver.errors)
    return tuple(found)


class _StepError(Exception):
    """A step that can't be resolved: which part of it, the rule, and the message."""

    def __init__(self, part: str, code: str, message: str, value: object = None) -> None:
        super().__init__(message)
        self.part, self.code, self.message, self.value = part, code, message, value


class Resolver:
    """The types while steps are taken."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        """As the steps so far leave it."""
        self._own = own_declarations(schema)
        self._at = 0
        self._whole = dict(schema.by_name)
        self._sources = {name: (own, self._parent(own)) for name, own in self._own.items()}
        """What each whole type was made of, so that only what changed is made again."""
        self._shapes = {each.name: each for each in schema.shapes}
        self._doubtful: set[str] = set()
        """Types that a wrong step would have changed, so later steps may be right about them."""
        self._last: dict[str, int] = {}
        """Type or shape → the last step that named it."""
        self.errors: list[FieldError] = []

    def _parent(self, own: TypeDescriptor) -> TypeDescriptor | None:
        return None if own.extends is None else self._whole.get(own.extends)

    def take(self, at: int, step: Step) -> Schema:
        """The schema after a step; without it, if it is wrong."""
        kept = dict(self._own), dict(self._shapes), dict(self._whole), dict(self._sources)
        names = list(_names_of(step))
        self._at = at
        self._last.update(dict.fromkeys(names, at))
        try:
            self._take(step)
            self._rebuild()
        except _StepError as mistake:
            self._refuse(at, names, mistake.part, mistake.code, mistake.message, mistake.value)
        except DeclarationError as error:
            self._refuse(at, names, _part_of(step), "declaration", error.message, None)
        except ValidationError as error:  # of a declaration, with its place in the steps
            self.errors += error.fields
            self._doubtful.update(names)
        else:
            self.schema = Schema.of(self._whole.values(), self._shapes.values())
            return self.schema
        self._own, self._shapes, self._whole, self._sources = kept
        return self.schema

    def attempt(self, step: Step) -> bool:
        """Take a step if it can be taken now."""
        known, doubtful = len(self.errors), set(self._doubtful)
        self.take(0, step)
        taken = len(self.errors) == known and self._doubtful == doubtful
        del self.errors[known:]
        self._doubtful = doubtful
        return taken

    def _refuse(
        self, at: int, names: list[str], part: str, code: str, message: str, value: object
    ) -> None:
        # A mistake in one step must not be reported again for each step that builds on it.
        if not (code == "unknown" and self._doubtful.intersection(names)):
            path = f"steps[{at}].{part}" if part else f"steps[{at}]"
            self.errors.append(FieldError(path, code, f"{path}: {message}", showable(value)))
        self._doubtful.update(names)

    def _where(self, part: str) -> str:
        return f"steps[{self._at}].{part}"

    # --- steps -----------------------------------------------------------------------------

    @singledispatchmethod
    def _take(self, step: object) -> None:
        raise TypeError(step)

    @_take.register
    def _add_type(self, step: AddType) -> None:
        own = describe_own_type(step.type, self._where("type"))
        self._check_free("type.name", own.name)
        if own.extends is not None:
            self._check_parent("type.extends", own.name, own.extends)
        self._own[own.name] = own

    @_take.register
    def _rename_type(self, step: RenameType) -> None:
        self._type("type", step.type)
        check_type_name(step.to)
        self._check_free("to", step.to)
        self._rename_everywhere(step.type, step.to)

    @_take.register
    def _change_type(self, step: ChangeType) -> None:
        own = self._type("type", step.type)
        changes: dict[str, object] = {
            name: value
            for name in ("description", "unique", "index", "abstract")
            if (value := getattr(step, name)) is not None
        }
        if step.iri is not None:
            check_term(own.name, step.iri)
            changes["iri"] = step.iri or own.name
        if step.extends is not msgspec.UNSET:
            if step.extends is not None:
                self._check_parent("extends", own.name, step.extends)
            changes["extends"] = step.extends
        if step.abstract and own.edge is not None:
            message = f"{own.name} is an edge type, and only a node type can be abstract"
            raise _StepError("abstract", "declaration", message)
        ends = {
            name: value
            for name in ("source", "target", "per_source", "per_target")
            if (value := getattr(step, name)) is not None
        }
        if ends:
            changes["edge"] = self._changed_ends(own, ends)
        if step.order is not None:
            changes["fields"] = self._ordered(own, step.order)
        self._own[own.name] = msgspec.structs.replace(own, **changes)

    def _changed_ends(self, own: TypeDescriptor, ends: Mapping[str, object]) -> EdgeEnds:
        part = next(iter(ends))
        if own.edge is None:
            message = f"{own.name} is not an edge type, so it has no {part}; leave it out"
            raise _StepError(part, "unknown", message)
        for name in ("per_source", "per_target"):
            limits = ends.get(name)
            if isinstance(limits, tuple):
                low, high = limits
                if low < 0 or (high is not None and high < max(low, 1)):
                    raise _StepError(
                        name,
                        "declaration",
                        f"{list(limits)} leaves no legal number of edges; use [least, most] with "
                        "0 <= least <= most, or null for no upper limit",
                    )
        return msgspec.structs.replace(own.edge, **ends)

    def _ordered(
        self, own: TypeDescriptor, order: Sequence[str]
    ) -> tuple[PredicateDescriptor, ...]:
        known = {each.name: each for each in own.fields}
        if sorted(order) != sorted(known):
            message = (
                f"order names {', '.join(order) or 'nothing'}; it has to name each own field of "
                f"{own.name} once: {', '.join(known) or 'none'}"
            )
            raise _StepError("order", "declaration", message)
        return tuple(known[name] for name in order)

    @_take.register
    def _drop_type(self, step: DropType) -> None:
        self._type("type", step.type)
        children = sorted(each.name for each in self._own.values() if each.extends == step.type)
        if children:
            raise _StepError(
                "type",
                "in_use",
                f"{', '.join(children)} {'extends' if len(children) == 1 else 'extend'} "
                f"{step.type}; drop them first, or change what they extend",
            )
        del self._own[step.type]
        self._shapes = {
            name: shape for name, shape in self._shapes.items() if shape.target != step.type
        }

    @_take.register
    def _add_field(self, step: AddField) -> None:
        own = self._type("type", step.type)
        self._check_new_field(own, "field.name", step.field.name)
        field = describe_field(own.name, step.field, where=self._where("field"))
        _check_given(field, step.backfill, "backfill", own.name, step.field)
        self._own[own.name] = msgspec.structs.replace(own, fields=(*own.fields, field))

    @_take.register
    def _rename_field(self, step: RenameField) -> None:
        own, field = self._field("field", step.type, step.field)
        check_field_name(own.name, step.to)
        self._check_new_field(own, "to", step.to)
        renamed = _renamed_field(field, step.to)
        self._replace_field(own, field, (renamed,))
        self._follow_field(own.name, lambda name: step.to if name == step.field else name)

    @_take.register
    def _change_field(self, step: ChangeField) -> None:
        own, field = self._field("field", step.type, step.field)
        if step.to.name != step.field:
            raise _StepError(
                "to.name",
                "declaration",
                f"{step.to.name!r} is another name than {step.field!r}; rename the field in a "
                "step of its own (rename_field)",
                step.to.name,
            )
        changed = describe_field(own.name, step.to, where=self._where("to"))
        if field.key and (changed.type.kind != field.type.kind or not changed.key):
            raise _StepError(
                "to",
                "key",
                f"{own.name}.{field.name} is the key, and ids are derived from it: its kind can't "
                "change; add another field, or a type with another key",
            )
        if changed.key and not field.key:
            raise _StepError(
                "to.key",
                "key",
                f"{own.name}.{field.name} can't become the key, since the ids of nodes would "
                "change; add a type with that key",
            )
        if isinstance(step.convert, str) and step.convert != "lossy":
            message = (
                f"{step.convert[:100]!r} is not a conversion; leave it out, or give 'lossy' or "
                '{"expression": …}'
            )
            raise _StepError("convert", "one_of", message, step.convert)
        _check_given(changed, step.backfill, "backfill", own.name, step.to)
        self._replace_field(own, field, (changed,))

    @_take.register
    def _split_field(self, step: SplitField) -> None:
        own, field = self._field("field", step.type, step.field)
        if field.key and not step.keep:
            message = f"{own.name}.{field.name} is the key; it can only be split with keep=true"
            raise _StepError("keep", "key", message)
        if not step.into:
            raise _StepError("into", "min_count", "give at least one field to split into")
        added: list[PredicateDescriptor] = []
        for place, spec in enumerate(step.into):
            taken = {each.name for each in added}
            if spec.name in taken or spec.name != step.field or step.keep:
                self._check_new_field(own, f"into[{place}].name", spec.name, taken)
            where = self._where(f"into[{place}]")
            added.append(describe_field(own.name, spec, where=where))
            if spec.name not in step.values:
                message = f'there is no value for {spec.name}; give {{"expression": …}}'
                raise _StepError("values", "required", message)
        unknown = sorted(step.values.keys() - {each.name for each in added})
        if unknown:
            message = f"{unknown[0]!r} is not one of the new fields: {_list(added)}"
            raise _StepError("values", "unknown", message, unknown[0])
        if step.keep:
            self._replace_field(own, field, (field, *added))
        else:
            self._check_ungrouped(own.name, step.field)
            self._replace_field(own, field, tuple(added))
            self._forget_rules(own.name, step.field)

    @_take.register
    def _drop_field(self, step: DropField) -> None:
        own, field = self._field("field", step.type, step.field)
        self._check_ungrouped(own.name, step.field)
        self._replace_field(own, field, ())
        self._forget_rules(own.name, step.field)

    @_take.register
    def _add_shape(self, step: AddShape) -> None:
        given = step.shape
        stored = given.target is not None
        where = self._where("shape.fields")
        fields = describe_fields(given.name, given.fields, stored=stored, where=where)
        shape = compose_shape(given.name, fields, given.description, given.target)
        if shape.name in self._own:
            message = f"{shape.name} is a type; a shape needs another name"
            raise _StepError("shape.name", "taken", message, shape.name)
        self._shapes[shape.name] = shape

    @_take.register
    def _drop_shape(self, step: DropShape) -> None:
        if step.shape not in self._shapes:
            raise self._unknown("shape", "shape", step.shape, self._shapes)
        del self._shapes[step.shape]

    # --- what a step names -------------------------------------------------------------------

    def _unknown(self, part: str, what: str, name: str, known: Collection[str]) -> _StepError:
        hint = suggest(name, known) if known else "there is none yet"
        return _StepError(part, "unknown", f"there is no {what} {name[:100]!r}; {hint}", name)

    def _type(self, part: str, name: str) -> TypeDescriptor:
        if name not in self._own:
            raise self._unknown(part, "type", name, self._own)
        return self._own[name]

    def _field(
        self, part: str, type_name: str, name: str
    ) -> tuple[TypeDescriptor, PredicateDescriptor]:
        own = self._type("type", type_name)
        found = next((each for each in own.fields if each.name == name), None)
        if found is not None:
            return own, found
        inherited = self._whole[type_name].by_name.get(name)
        if inherited is None:
            known = self._whole[type_name].by_name
            hint = suggest(name, known) if known else "it has none"
            message = f"{type_name} has no field {name[:100]!r}; {hint}"
            raise _StepError(part, "unknown", message, name)
        if own.edge is not None and name in {"source", "target"}:
            raise _StepError(
                part,
                "declaration",
                f"every edge has its {name}; to change its type, change {name} of {type_name} "
                "(change_type)",
            )
        raise _StepError(
            part,
            "inherited",
            f"{type_name} inherits {name} from {inherited.declared_in}; name "
            f"{inherited.declared_in} as the type",
            type_name,
        )

    def _check_free(self, part: str, name: str) -> None:
        if name in self._own:
            message = f"there is a type {name!r} already; choose another name"
            raise _StepError(part, "taken", message, name)

    def _check_parent(self, part: str, name: str, parent: str) -> None:
        if parent not in self._own:
            raise self._unknown(part, "type", parent, self._own)
        if self._own[parent].edge is not None:
            message = f"{parent} is an edge type, and only node types can be extended"
            raise _StepError(part, "declaration", message, parent)
        above: str | None = parent
        while above is not None:
            if above == name:
                message = f"{parent} extends {name} itself; a type can't extend its own subtypes"
                raise _StepError(part, "cycle", message, parent)
            above = self._own[above].extends

    def _check_new_field(
        self, own: TypeDescriptor, part: str, name: str, more: Collection[str] = ()
    ) -> None:
        for each in self._family(own.name):
            if name in self._whole[each].by_name or (each == own.name and name in more):
                message = f"{each} has a field {name!r} already; choose another name"
                raise _StepError(part, "taken", message, name)

    def _check_ungrouped(self, type_name: str, field: str) -> None:
        for each in self._family(type_name):
            for what in ("unique", "index"):
                for group in getattr(self._own[each], what):
                    if field in group:
                        raise _StepError(
                            "field",
                            "in_use",
                            f"{each} names {field} in {what}={list(group)}; change {what} of "
                            f"{each} first (change_type)",
                            field,
                        )

    def _family(self, name: str) -> Iterator[str]:
        """A type and all that extend it."""
        yield name
        for each in self._own.values():
            if each.extends == name:
                yield from self._family(each.name)

    # --- changes that spread -------------------------------------------------------------------

    def _replace_field(
        self,
        own: TypeDescriptor,
        field: PredicateDescriptor,
        by: tuple[PredicateDescriptor, ...],
    ) -> None:
        at = own.fields.index(field)
        fields = (*own.fields[:at], *by, *own.fields[at + 1 :])
        self._own[own.name] = msgspec.structs.replace(own, fields=fields)

    def _follow_field(self, type_name: str, rename: Rewrite) -> None:
        """Rename a field in the groups and shapes of a type and of those that extend it."""
        family = set(self._family(type_name))
        for name in family:
            own = self._own[name]
            unique, index = (_renamed_groups(each, rename) for each in (own.unique, own.index))
            if (unique, index) != (own.unique, own.index):
                self._own[name] = msgspec.structs.replace(own, unique=unique, index=index)
        for shape in list(self._shapes.values()):
            if shape.target in family:
                fields = tuple(
                    each
                    if rename(each.name) == each.name
                    else _renamed_field(each, rename(each.name))
                    for each in shape.fields
                )
                self._shapes[shape.name] = msgspec.structs.replace(shape, fields=fields)

    def _forget_rules(self, type_name: str, field: str) -> None:
        """Drop the rules of shapes for a field that is gone."""
        family = set(self._family(type_name))
        for shape in list(self._shapes.values()):
            if shape.target in family and field in shape.by_name:
                fields = tuple(each for each in shape.fields if each.name != field)
                del self._shapes[shape.name]
                if fields:
                    self._shapes[shape.name] = msgspec.structs.replace(shape, fields=fields)

    def _rename_everywhere(self, old: str, new: str) -> None:
        def rename(name: str) -> str:
            return new if name == old else name

        self._own = {rename(name): _renamed_type(own, rename) for name, own in self._own.items()}
        self._shapes = {name: _renamed_shape(shape, rename) for name, shape in self._shapes.items()}

    def _rebuild(self) -> None:
        """Make the types whole again: those whose declaration or parent changed."""
        before, made = self._whole, dict[str, TypeDescriptor]()
        sources: dict[str, tuple[TypeDescriptor, TypeDescriptor | None]] = {}

        def whole(name: str) -> TypeDescriptor:
            if name not in made:
                own = self._own[name]
                parent = None if own.extends is None else whole(own.extends)
                sources[name] = own, parent
                known = self._sources.get(name)
                same = known is not None and known[0] is own and known[1] is parent
                made[name] = before[name] if same else whole_type(own, parent)
            return made[name]

        for name in self._own:
            whole(name)
        self._whole, self._sources = made, sources

    # --- the whole -------------------------------------------------------------------------------

    def check_whole(self) -> None:
        """Check what types say about each other, when all steps are done."""
        if self.errors:
            return
        classes: dict[str, str] = {}
        for each in self._whole.values():
            if classes.setdefault(each.iri, each.name) != each.name:
                message = (
                    f"{each.name} and {classes[each.iri]} have the same class IRI {each.iri!r}"
                )
                self._note(each.name, "taken", message)
            for field in each.fields:
                target = field.target
                if (
                    target is not None
                    and target not in self._whole
                    and field.declared_in in {each.name, ""}
                ):
                    hint = suggest(target, self._whole)
                    message = (
                        f"{each.name}.{field.name} refers to {target}, which is not a type; {hint}"
                    )
                    self._note(each.name, "unknown", message, target)
        for shape in self._shapes.values():
            for message in self._shape_problems(shape):
                self._note(shape.name, "shape", message)

    def _shape_problems(self, shape: ShapeDescriptor) -> Iterator[str]:
        if shape.target is None:
            return
        target = self._whole.get(shape.target)
        if target is None:
            hint = suggest(shape.target, self._whole)
            yield f"shape {shape.name} has the target {shape.target}, which is not a type; {hint}"
            return
        for field in shape.fields:
            if not can_constrain(target, field):
                found = target.by_name.get(field.name)
                yield (
                    f"shape {shape.name} has rules for {target.name}.{field.name} as "
                    f"{field.type}, but {'it is ' + str(found.type) if found else 'it is gone'}; "
                    "change or drop the shape in the same steps"
                )
            elif target.by_name[field.name].target != field.target:
                yield (
                    f"shape {shape.name} refers to {field.target} in {field.name}, but "
                    f"{target.name} to {target.by_name[field.name].target}; change the shape too"
                )

    def _note(self, name: str, code: str, message: str, value: object = None) -> None:
        at = self._last.get(name)
        path = "steps" if at is None else f"steps[{at}]"
        self.errors.append(FieldError(path, code, f"{path}: {message}", showable(value)))


def _names_of(step: Step) -> Iterator[str]:
    """The types and shapes that a step is about."""
    if isinstance(step, AddType):
        yield step.type.name
    elif isinstance(step, AddShape):
        yield step.shape.name
    elif isinstance(step, DropShape):
        yield step.shape
    else:
        yield step.type
        if isinstance(step, RenameType):
            yield step.to


def _part_of(step: Step) -> str:
    """The part of a step that is a declaration."""
    parts = {AddType: "type", AddField: "field", ChangeField: "to", SplitField: "into"}
    return {**parts, AddShape: "shape", RenameField: "to", RenameType: "to"}.get(type(step), "")


def _check_given(
    field: PredicateDescriptor, value: object, part: str, owner: str, spec: FieldSpec
) -> None:
    """Check a value for existing nodes by the rules of its field."""
    given = value is not msgspec.UNSET and value is not None
    if not given or is_computed(value) or field.target is not None:
        return
    try:
        describe_field(owner, msgspec.structs.replace(spec, default=value, key=False), where=part)
    except ValidationError as error:
        message = error.fields[0].message.replace("give a valid default", "give another value")
        raise _StepError(part, "datatype", message.removeprefix(f"{part}: "), value) from None


def is_computed(value: object) -> bool:
    """Whether a value of a step is computed, or restored from a commit."""
    return isinstance(value, Mapping) and value.keys() in ({"expression"}, {"commit"})


def is_expression(value: object) -> bool:
    """Whether a value of a step is computed by an expression."""
    return isinstance(value, Mapping) and value.keys() == {"expression"}


def _list(fields: Iterable[PredicateDescriptor]) -> str:
    return ", ".join(each.name for each in fields)


def _renamed_field(field: PredicateDescriptor, name: str) -> PredicateDescriptor:
    """A field under another name; an IRI of its own stays."""
    iri = name if field.iri == field.name else field.iri
    return msgspec.structs.replace(field, name=name, iri=iri)


def _renamed_groups(groups: Groups, rename: Rewrite) -> Groups:
    return tuple(tuple(map(rename, group)) for group in groups)


def _renamed_target(value_type: ValueType, rename: Rewrite) -> ValueType:
    if value_type.item is not None:
        item = _renamed_target(value_type.item, rename)
        return msgspec.structs.replace(value_type, item=item)
    if value_type.target is None:
        return value_type
    return msgspec.structs.replace(value_type, target=rename(value_type.target))


def _renamed_owner(field: PredicateDescriptor, rename: Rewrite) -> PredicateDescriptor:
    return msgspec.structs.replace(
        field,
        type=_renamed_target(field.type, rename),
        declared_in=rename(field.declared_in),
    )


def _renamed_type(own: TypeDescriptor, rename: Rewrite) -> TypeDescriptor:
    """A type's own declaration with a type renamed; itself where that changes nothing."""
    edge = own.edge
    if edge is not None:
        edge = msgspec.structs.replace(edge, source=rename(edge.source), target=rename(edge.target))
    name = rename(own.name)
    renamed = msgspec.structs.replace(
        own,
        name=name,
        iri=name if own.iri == own.name else own.iri,
        extends=None if own.extends is None else rename(own.extends),
        fields=tuple(_renamed_owner(each, rename) for each in own.fields),
        edge=edge,
    )
    return own if renamed == own else renamed


def _renamed_shape(shape: ShapeDescriptor, rename: Rewrite) -> ShapeDescriptor:
    return msgspec.structs.replace(
        shape,
        target=None if shape.target is None else rename(shape.target),
        fields=tuple(
            msgspec.structs.replace(each, type=_renamed_target(each.type, rename))
            for each in shape.fields
        ),
    )
