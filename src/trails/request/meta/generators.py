"""``trails.meta.gen.*`` for declarations: node types, edge types, shapes and capabilities.

Each returns a diff of the graph's module and writes nothing. Names that are taken, and specs that
can't be declared, are refused with all their faults before anything is generated.
"""

from __future__ import annotations

import keyword
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from trails.authoring.specs import (
    describe_fields,
    describe_shape,
    describe_type,
    parse_value_type,
)
from trails.engine.session.context import GraphContext
from trails.errors import DeclarationError, FieldError, ValidationError
from trails.imports import later
from trails.model.changes.file_diffs import FileDiff, make_diff
from trails.model.changes.steps import ShapeSpec, TypeSpec
from trails.model.names import (
    BUILTIN_TOOLS,
    check_capability_id,
    check_parameter_name,
    portable_name,
    suggest,
)
from trails.model.operations.authoring import GeneratedFiles
from trails.model.types import (
    ANY,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
    can_constrain,
)
from trails.projections.python.declarations import RESERVED
from trails.projections.python.functions import CapabilitySource, Does
from trails.projections.python.layout import INDENT, WIDTH, wrap
from trails.registry.registry import Registry
from trails.request.builtins.declare import READER, Builtin, ToolContext, field, meta_operation
from trails.request.meta.spec_arguments import FIELD, FIELDS, read_fields, read_spec
from trails.request.workspace import Workspace, need_workspace

if TYPE_CHECKING:
    from trails.projections.python import changes
else:
    changes = later("trails.projections.python.changes")

_LONGEST: Final = 2000
_NEXT: Final = (
    "call trails_meta_files_apply with files = diff.files; with reload = true the change is in use "
    "at once"
)


def generated(diff: FileDiff, *notes: str) -> GeneratedFiles:
    """The result of a generator."""
    return GeneratedFiles(diff, notes, _NEXT)


def generator(operation: str, **declared: Any) -> Builtin:  # noqa: ANN401
    """An operation that returns a diff."""
    given = {"result": GeneratedFiles, "hints": READER, "action": "Admin", **declared}
    return meta_operation(f"trails.meta.gen.{operation}", "dev", **given)


def line_width(workspace: Workspace) -> int:
    """The columns of a line, as the project's formatter is set."""
    for path, tables in (("ruff.toml", ()), ("pyproject.toml", ("tool", "ruff"))):
        text = workspace.read(path)
        if text is None:
            continue
        try:
            found: object = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            continue
        for table in tables:
            found = found.get(table) if isinstance(found, dict) else None
        width = found.get("line-length") if isinstance(found, dict) else None
        if isinstance(width, int) and 40 <= width <= 320:
            return width
    return WIDTH


def _wrapped(workspace: Workspace, text: str) -> str:
    return wrap(text.strip(), line_width(workspace) - len(INDENT))


def _free_type_name(registry: Registry, name: str) -> None:
    taken = None
    if name in registry.types:
        taken = "a type"
    elif name in registry.shapes:
        taken = "a shape"
    elif name in RESERVED:
        taken = "a class that declarations use"
    if taken is not None:
        message = f"name: {name!r} is {taken} already; choose another name"
        raise ValidationError([FieldError("name", "taken", message, name)])


def _add(
    workspace: Workspace, found: TypeDescriptor | ShapeDescriptor, schema: Schema
) -> GeneratedFiles:
    app = workspace.layout.app
    width = line_width(workspace)
    made = changes.add_classes(workspace.read, app, [found], schema, width=width)
    return generated(make_diff(made.texts), *made.notes)


def _type(tool: ToolContext, given: Mapping[str, object]) -> GeneratedFiles:
    workspace, registry = need_workspace(tool.options.workspace), tool.service.registry
    fields = read_fields(given.get("fields"), "fields")  # type: ignore[arg-type]
    text = _wrapped(workspace, str(given.get("description") or ""))
    spec = read_spec(TypeSpec, {**given, "fields": None, "description": text}, "name")
    spec = msgspec.structs.replace(spec, fields=fields)
    _free_type_name(registry, spec.name)
    found = describe_type(spec, registry.schema, where="")
    for other in registry.types.values():
        if other.iri == found.iri:
            message = f"iri: {found.iri!r} is the class of {other.name} already; choose another"
            raise ValidationError([FieldError("iri", "taken", message, found.iri)])
    return _add(workspace, found, Schema.of((*registry.schema.types, found)))


def _nodetype(tool: ToolContext, ctx: GraphContext, **given: object) -> GeneratedFiles:
    del ctx
    return _type(tool, given)


def _edgetype(tool: ToolContext, ctx: GraphContext, **given: object) -> GeneratedFiles:
    del ctx
    return _type(tool, given)


def _shape(tool: ToolContext, ctx: GraphContext, **given: object) -> GeneratedFiles:
    del ctx
    workspace, registry = need_workspace(tool.options.workspace), tool.service.registry
    fields = read_fields(given.get("fields"), "fields")  # type: ignore[arg-type]
    text = _wrapped(workspace, str(given.get("description") or ""))
    spec = read_spec(ShapeSpec, {**given, "fields": None, "description": text}, "name")
    spec = msgspec.structs.replace(spec, fields=fields)
    _free_type_name(registry, spec.name)
    found = describe_shape(spec, registry.schema, shapes=registry.shapes, where="")
    if found.target is not None:
        _check_target(registry, found)
    return _add(workspace, found, registry.schema)


def _check_target(registry: Registry, shape: ShapeDescriptor) -> None:
    """A shape with a target constrains fields that the target has."""
    target = registry.types[str(shape.target)]
    errors = []
    for at, each in enumerate(shape.fields):
        if not can_constrain(target, each):
            known = suggest(each.name, list(target.by_name))
            message = (
                f"fields[{at}]: {target.name} has no field {each.name!r} of the type {each.type}; "
                f"{known}"
            )
            errors.append(FieldError(f"fields[{at}]", "field", message, each.name))
    if errors:
        raise ValidationError(errors)


# --- capabilities ------------------------------------------------------------


class CapabilityArguments(msgspec.Struct, frozen=True):
    """What a capability is generated from."""

    id: str
    description: str
    does: Does | None = None
    type: str | None = None
    fields: tuple[str, ...] = ()
    parameters: tuple[Mapping[str, object], ...] = ()
    returns: str | None = None
    reads: bool = False


def _capability(tool: ToolContext, ctx: GraphContext, **arguments: object) -> GeneratedFiles:
    del ctx
    workspace, registry = need_workspace(tool.options.workspace), tool.service.registry
    given = read_spec(CapabilityArguments, arguments, "id")
    errors = _capability_faults(registry, given)
    if errors:
        raise ValidationError(errors)
    known = {*registry.types, *registry.shapes}
    text = _wrapped(workspace, given.description)
    if given.does is not None and given.type is not None:
        found = registry.types[given.type]
        chosen = tuple(found.by_name[name] for name in given.fields)
        source = CapabilitySource(given.id, text, chosen, does=given.does, type=found)
    else:
        specs = read_fields(given.parameters, "parameters")
        described = describe_fields(given.id, specs, stored=False, where="parameters", known=known)
        output = None if given.returns is None else _result(given.returns, known)
        parameters = tuple(described.values())
        source = CapabilitySource(given.id, text, parameters, output, reads=given.reads)
    app = workspace.layout.app
    made = changes.add_capability(workspace.read, app, source, width=line_width(workspace))
    note = f"{given.id} raises CapabilityError until its body is written in {app}"
    notes = (note,) if given.does is None else ()
    return generated(make_diff(made.texts), *made.notes, *notes)


def _result(text: str, known: set[str]) -> ValueType | None:
    return None if text == "None" else parse_value_type(text, "returns", known)


def _capability_faults(registry: Registry, given: CapabilityArguments) -> list[FieldError]:
    errors = []
    try:
        check_capability_id(given.id)
    except DeclarationError as error:
        errors.append(FieldError("id", "pattern", f"id: {error.message}", given.id))
    taken = {portable_name(name) for name in (*registry.tools, *BUILTIN_TOOLS)}
    if portable_name(given.id) in taken:
        message = f"id: {given.id!r} has the tool name of something else; choose another"
        errors.append(FieldError("id", "taken", message, given.id))
    errors += _parameter_faults(given)
    if (given.does is None) != (given.type is None):
        message = "does: it needs the type of the nodes; give does and type together, or neither"
        errors.append(FieldError("does", "type", message, given.does))
    elif given.does is not None and (given.parameters or given.returns is not None):
        message = (
            "parameters: what is written for 'does' has its own parameters and result; name "
            "fields of the type in 'fields', or leave 'does' out"
        )
        errors.append(FieldError("parameters", "does", message))
    elif given.type is not None:
        errors += _field_faults(registry, given.type, given.fields)
    return errors


def _parameter_faults(given: CapabilityArguments) -> Iterator[FieldError]:
    for at, each in enumerate(given.parameters):
        place, name = f"parameters[{at}].name", str(each["name"])
        try:
            check_parameter_name(given.id, name)
        except DeclarationError as error:
            yield FieldError(place, "name", f"{place}: {error.message}", name)
        if keyword.iskeyword(name) or name == "ctx":
            message = f"{place}: {name!r} can't name a parameter of a function; choose another"
            yield FieldError(place, "name", message, name)


def _field_faults(registry: Registry, name: str, fields: Sequence[str]) -> list[FieldError]:
    found = registry.types.get(name)
    if found is None:
        message = f"type: there is no type {name[:64]!r}; {suggest(name, list(registry.types))}"
        return [FieldError("type", "type", message, name[:64])]
    known = list(found.by_name)
    return [
        FieldError(
            f"fields[{at}]",
            "field",
            f"fields[{at}]: {name} has no field {each[:64]!r}; {suggest(each, known)}",
            each[:64],
        )
        for at, each in enumerate(fields)
        if each not in known
    ]


_NAME: Final = field("name", "A capitalised word, like TestCase.", required=True, max_length=64)
_DESCRIPTION: Final = field(
    "description", "What it is, for readers and models.", max_length=_LONGEST
)
_GROUPS: Final = (
    field("unique", 'Groups of fields that differ together, like [["code", "version"]].', ANY),
    field("index", "Pairs: filtered by the first field, sorted by the second.", ANY),
    field("iri", "Its RDF class.", max_length=500),
)

NODETYPE: Final = generator(
    "nodetype",
    title="Generate a node type",
    description=(
        "Write a node type as a class of the graph's module; returns the diff, changes nothing."
    ),
    fields=(
        _NAME,
        FIELDS,
        _DESCRIPTION,
        field("extends", "A type whose fields it takes over.", max_length=64),
        field("abstract", "Whether only subtypes have nodes.", "Bool", default=False),
        *_GROUPS,
    ),
    shapes=(FIELD,),
    run=_nodetype,
)

_ENDS: Final = "[least, most] edges of a node there; most null: any number."
EDGETYPE: Final = generator(
    "edgetype",
    title="Generate an edge type",
    description=(
        "Write an edge type (a relation with fields) as a class of the graph's module; returns the "
        "diff, changes nothing."
    ),
    fields=(
        _NAME,
        field("source", "The type at which edges start.", required=True, max_length=64),
        field("target", "The type at which they end.", required=True, max_length=64),
        FIELDS,
        _DESCRIPTION,
        field("per_source", _ENDS, ANY),
        field("per_target", _ENDS, ANY),
        *_GROUPS,
    ),
    shapes=(FIELD,),
    run=_edgetype,
)

SHAPE: Final = generator(
    "shape",
    title="Generate a shape",
    description=(
        "Write a shape (a structured value of capabilities, or with target more rules for a type) "
        "as a class of the graph's module; returns the diff, changes nothing."
    ),
    fields=(
        _NAME,
        FIELDS,
        _DESCRIPTION,
        field("target", "A type whose fields it has rules for.", max_length=64),
    ),
    shapes=(FIELD,),
    run=_shape,
)

CAPABILITY: Final = generator(
    "capability",
    title="Generate a capability",
    description=(
        "Write a capability as a function of the graph's module. With does and type it is "
        "complete; else its body raises an error until somebody writes it. Returns the diff, "
        "changes nothing."
    ),
    fields=(
        field("id", "Dotted words, like tasks.finish.", required=True, max_length=128),
        field(
            "description",
            "What it does; agents choose by it.",
            required=True,
            min_length=1,
            max_length=_LONGEST,
        ),
        field("does", "What is written for it.", one_of=list(get_args(Does))),
        field("type", "The type of the nodes, with does.", max_length=64),
        field(
            "fields",
            "Fields of that type that become parameters; by default all, and none for list.",
            many=True,
        ),
        msgspec.structs.replace(
            FIELDS, name="parameters", iri="parameters", description="Without does: its parameters."
        ),
        field("returns", "Without does: the type of its result; by default None.", max_length=200),
        field("reads", "Without does: whether it only reads.", "Bool", default=False),
    ),
    shapes=(FIELD,),
    run=_capability,
)

META: Final = (NODETYPE, EDGETYPE, SHAPE, CAPABILITY)
