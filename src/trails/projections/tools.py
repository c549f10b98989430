"""Project capabilities and stored queries into tools.

Pure: same registry, same tools. Knows nothing of actors or of how a call is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trails.model.capabilities import Capability
from trails.model.tools import Hints, Tool
from trails.model.types import JSON, LIST, OBJECT, REF, PredicateDescriptor, ValueType
from trails.projections.json_schema import (
    Declarations,
    Document,
    project_fields,
    project_value,
)

RESULT: Final = "result"
"""The key under which a result that is no object is put."""

BRANCH: Final = PredicateDescriptor(
    name="branch",
    type=ValueType("String", nullable=True),
    description="The branch to work on; main when left out.",
    default="main",
)
SNAPSHOT: Final = PredicateDescriptor(
    name="snapshot",
    type=ValueType("String", nullable=True),
    description="The id of a past commit to read at, instead of the branch's present state.",
)


def project_capability(capability: Capability, declared: Declarations) -> Tool:
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
    )


def controls_of(capability: Capability) -> tuple[PredicateDescriptor, ...]:
    """The control arguments that are added to a capability's own."""
    return (BRANCH,) if capability.meta is None else ()


def spell_title(name: str) -> str:
    """A name as a person reads it: ``requirements.accept`` is "Requirements accept"."""
    words = name.replace(".", " ").replace("_", " ").replace("-", " ")
    return words[:1].upper() + words[1:]


# --- results -------------------------------------------------------------------


def is_wrapped(output: ValueType | None) -> bool:
    """Whether a result is put into an object, because it is not surely one itself."""
    return output is None or output.nullable or output.kind not in {OBJECT, REF, JSON}


def project_output(output: ValueType | None, declared: Declarations) -> Document:
    """The schema of a result: always of an object."""
    if output is not None and output.kind == JSON and not output.nullable:
        return {"type": "object"}
    if output is None:
        inner: Document = {"type": "null"}
    else:
        inner = _project_result(output, declared, ())
    if not is_wrapped(output):
        return inner
    return {"type": "object", "properties": {RESULT: inner}, "required": [RESULT]}


def _project_result(output: ValueType, declared: Declarations, inside: tuple[str, ...]) -> Document:
    document: Document
    if output.kind == LIST:
        document = {"type": "array", "items": _project_result(output.scalar, declared, inside)}
    elif output.kind in {OBJECT, REF}:
        document = _project_instance(output.target or "", declared, inside)
    else:
        document = project_value(ValueType(output.kind, dimension=output.dimension), declared)
    if output.nullable and "type" in document:
        document["type"] = [document["type"], "null"]
    return document


def _project_instance(name: str, declared: Declarations, inside: tuple[str, ...]) -> Document:
    """An instance as results show it: with its IRI once it is stored, references as IRIs."""
    if name in inside:
        # Inline, a shape that holds itself would never end.
        return {"type": "object", "description": f"Another {name}, with the same fields."}
    shape = declared.shapes.get(name)
    descriptor = shape or declared.schema.by_name[name]
    properties: dict[str, Mapping[str, object]] = {}
    if shape is None:
        properties["iri"] = {"type": "string", "description": f"The IRI of this {name}."}
        properties["type"] = {"type": "string", "description": "Its type."}
    for field in descriptor.fields:
        properties[field.name] = _project_shown(field, declared, (*inside, name))
    document: Document = {
        "type": "object",
        "properties": properties,
        "required": [field.name for field in descriptor.fields],
    }
    if descriptor.description:
        document["description"] = descriptor.description
    return document


def _project_shown(
    field: PredicateDescriptor, declared: Declarations, inside: tuple[str, ...]
) -> Document:
    scalar = field.type.scalar
    if scalar.kind == OBJECT:
        document = _project_instance(scalar.target or "", declared, inside)
    else:
        plain = ValueType(scalar.kind, scalar.target, scalar.dimension)
        document = project_value(plain, declared)
    if field.many:
        document = {"type": "array", "items": document}
    elif "type" in document:
        # An instance that was never saved may lack even what is required.
        document["type"] = [document["type"], "null"]
    if field.description:
        document["description"] = field.description
    return document
