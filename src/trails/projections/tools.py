"""Project capabilities and stored queries into tools.

Pure: knows nothing of actors or of how a call is made. A stored query takes its parameters in
``params``, beside the control arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trails.model.capabilities import Capability, Hints, StoredQuery, Tool
from trails.model.results import LEAST_CHARS, MOST_CHARS
from trails.model.types import (
    ANY,
    LIST,
    OBJECT,
    REF,
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    ValueType,
)
from trails.projections.json_schema import (
    Document,
    TypeLookup,
    is_omissible,
    project_fields,
    project_value,
)
from trails.registry.registry import Registry

RESULT: Final = "result"
"""The key of a result that is not an object."""

BRANCH: Final = PredicateDescriptor(
    name="branch",
    type=ValueType("String", nullable=True),
    default="main",
)
SNAPSHOT: Final = PredicateDescriptor(
    name="snapshot",
    type=ValueType("String", nullable=True),
)
MAX_CHARS: Final = PredicateDescriptor(
    name="max_chars",
    type=ValueType("Int", nullable=True),
    min_value=LEAST_CHARS,
    max_value=MOST_CHARS,
)
OFFSET: Final = PredicateDescriptor(
    name="offset",
    type=ValueType("Int", nullable=True),
    min_value=0,
    max_value=MOST_CHARS,
)
"""The control arguments. A list of tools repeats them, so their descriptions are short; the
instructions of the server explain them once."""
DRY_RUN: Final = PredicateDescriptor(
    name="dry_run",
    type=ValueType("Bool", nullable=True),
    description="Only report what would happen.",
)
PROPOSE: Final = PredicateDescriptor(
    name="propose",
    type=ValueType("Bool", nullable=True),
    description="Make the change on a branch of its own, to be reviewed.",
)
EXPECTED_HEAD: Final = PredicateDescriptor(
    name="expected_head",
    type=ValueType("String", nullable=True),
    max_length=100,
    description="Refuse unless the branch is there.",
)
IDEMPOTENCY_KEY: Final = PredicateDescriptor(
    name="idempotency_key",
    type=ValueType("String", nullable=True),
    min_length=1,
    max_length=200,
    description="A retry with it returns the first outcome.",
)
WRITE_CONTROLS: Final = (DRY_RUN, PROPOSE, EXPECTED_HEAD, IDEMPOTENCY_KEY)
"""Every tool that changes data takes these. A list of tools does not repeat them, unless the
settings ask for proposals: the instructions of the server name them once."""


def project_capability(capability: Capability, declared: TypeLookup) -> Tool:
    """A capability, or a meta-capability, as a tool."""
    given = capability.descriptor
    return Tool(
        name=capability.tool_name,
        title=spell_title(capability.id),
        description=given.description,
        input_schema=project_fields((*given.input_shape, *controls_of(capability)), declared),
        output_schema=project_output(given.output_shape, declared),
        hints=Hints(
            read_only=given.reads_only,
            destructive=not given.reads_only,
            idempotent=given.idempotent or given.reads_only,
            open_world=not given.reads_only,
        ),
        meta=capability.meta,
        action="InvokeCapability" if capability.meta is None else None,
        controls=project_controls(write_controls_of(capability)),
    )


class ProjectedTools:
    """The tools of a registry's capabilities, cached by id and version of their descriptors.

    A tool depends on its descriptor and on the types and shapes that it names. A registry that adds
    capabilities alone therefore takes over what an earlier one has made, and nothing else does.
    """

    def __init__(self, registry: Registry, earlier: ProjectedTools | None = None) -> None:
        self._registry = registry
        kept = earlier.made if earlier is not None and self._declares_same(earlier) else {}
        current = {
            (each.id, each.descriptor.version)
            for each in (*registry.capabilities.values(), *registry.metas.values())
        }
        self.made: dict[tuple[str, str], Tool] = {
            key: tool for key, tool in kept.items() if key in current
        }

    def _declares_same(self, earlier: ProjectedTools) -> bool:
        mine, other = self._registry, earlier._registry
        return mine.classes == other.classes and mine.shape_classes == other.shape_classes

    def of(self, capability: Capability) -> Tool:
        """The tool of a capability of this registry."""
        key = capability.id, capability.descriptor.version
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = project_capability(capability, self._registry)
        return found


def controls_of(capability: Capability) -> tuple[PredicateDescriptor, ...]:
    """The control arguments that are added to a capability's own."""
    if capability.meta is not None:
        return ()
    # A call that changes something is not repeated for a longer answer.
    return (BRANCH, MAX_CHARS) if capability.descriptor.reads_only else (BRANCH,)


def write_controls_of(source: Capability | StoredQuery) -> tuple[PredicateDescriptor, ...]:
    """The control arguments that are accepted beside those of the schema."""
    if isinstance(source, StoredQuery):
        return WRITE_CONTROLS if source.mutation else ()
    changes = source.meta is None and not source.descriptor.reads_only
    return WRITE_CONTROLS if changes else ()


def project_controls(fields: tuple[PredicateDescriptor, ...]) -> Document:
    """The schemas of control arguments, by name."""
    found = project_fields(fields)["properties"]
    assert isinstance(found, dict)  # noqa: S101 - it is made so
    return found


def spell_title(name: str) -> str:
    """A name as a person reads it: ``requirements.accept`` is "Requirements accept"."""
    words = name.replace(".", " ").replace("_", " ").replace("-", " ")
    return words[:1].upper() + words[1:]


# --- results -------------------------------------------------------------------


def is_wrapped(output: ValueType | None) -> bool:
    """Whether a result is wrapped in an object, because it may not be one."""
    return output is None or output.nullable or output.kind not in {OBJECT, REF, ANY}


def project_output(output: ValueType | None, declared: TypeLookup) -> Document:
    """The schema of a result: always of an object."""
    if output is not None and output.kind == ANY and not output.nullable:
        return {"type": "object"}
    if output is None:
        inner: Document = {"type": "null"}
    else:
        inner = _project_result(output, declared)
    if not is_wrapped(output):
        return inner
    return {"type": "object", "properties": {RESULT: inner}, "required": [RESULT]}


def _project_result(output: ValueType, declared: TypeLookup) -> Document:
    document: Document
    if output.kind == LIST:
        document = {"type": "array", "items": _project_result(output.scalar, declared)}
    elif output.kind in {OBJECT, REF}:
        document = _project_instance(output.target or "", declared)
    else:
        document = project_value(ValueType(output.kind, dimension=output.dimension), declared)
        document = {"type": document["type"]} if "type" in document else document
    if output.nullable and "type" in document:
        document["type"] = [document["type"], "null"]
    return document


def _project_instance(name: str, declared: TypeLookup) -> Document:
    """An instance: of a node type, what leads to its fields; of a shape, their names.

    A list of tools has the schemas of all results, so the fields of a type are not repeated here.
    """
    shape = declared.shapes.get(name)
    if shape is None:
        return {"type": "object", "description": f"A {name}: see schema_get."}
    return {"type": "object", "properties": {each.name: {} for each in shape.fields}}


PARAMS = "params"


class _WithParams(msgspec.Struct, frozen=True):
    """Declarations of a query's tool."""

    shapes: Mapping[str, ShapeDescriptor]
    schema: Schema


def project_query(query: StoredQuery, declared: TypeLookup, output: Mapping[str, object]) -> Tool:
    """A stored query as a tool."""
    return Tool(
        name=query.effective_tool_name,
        title=spell_title(query.name),
        description=query.description,
        input_schema=project_query_input(query, declared),
        output_schema=output,
        hints=Hints(
            read_only=not query.mutation,
            destructive=query.mutation,
            idempotent=not query.mutation,
        ),
        action="InvokeQuery",
        controls=project_controls(write_controls_of(query)),
    )


def project_query_input(query: StoredQuery, declared: TypeLookup) -> Document:
    """The schema of a query's arguments."""
    fields = (params_field(query), *query_controls(query))
    return project_fields(fields, with_params(query, declared))


def with_params(query: StoredQuery, declared: TypeLookup) -> TypeLookup:
    """The declarations, with the parameters of a query as a shape."""
    shape = ShapeDescriptor(PARAMS, query.params)
    return _WithParams({**declared.shapes, PARAMS: shape}, declared.schema)


def params_field(query: StoredQuery) -> PredicateDescriptor:
    """``params`` as a field; it may be left out when all parameters may be."""
    required = not all(is_omissible(param) for param in query.params)
    return PredicateDescriptor(
        name=PARAMS,
        type=ValueType(OBJECT, target=PARAMS, nullable=not required),
        min_count=int(required),
        default=None if required else {},
    )


def query_controls(query: StoredQuery) -> tuple[PredicateDescriptor, ...]:
    """The control arguments; a query that changes data can't run on a snapshot."""
    return (BRANCH,) if query.mutation else (BRANCH, SNAPSHOT, OFFSET, MAX_CHARS)
