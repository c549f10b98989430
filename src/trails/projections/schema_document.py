"""Project a schema into a document for readers: types, fields, constraints, RDF names.

Pure. What a field allows is the JSON Schema that calls and writes are judged by.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trails.model.iris import Names
from trails.model.types import Schema, ShapeDescriptor, TypeDescriptor
from trails.projections.json_schema import Document, project_type


class _Stored(msgspec.Struct, frozen=True):
    """A stored schema as declarations; its shapes are those that constrain types."""

    schema: Schema
    shapes: Mapping[str, ShapeDescriptor] = {}


def project_schema(schema: Schema, names: Names) -> Document:
    """All types, in name order."""
    declared = _Stored(schema)
    return {
        "base_iri": names.base,
        "vocabulary": names.vocabulary,
        "digest": schema.digest,
        "types": [_project(each, declared, names) for each in schema.types],
    }


def _project(descriptor: TypeDescriptor, declared: _Stored, names: Names) -> Document:
    document: Document = {
        "type": descriptor.name,
        "description": descriptor.description,
        "iri": names.term(descriptor.iri),
        "uri": f"trails://kg/{descriptor.name}",
    }
    if descriptor.extends is not None:
        document["extends"] = descriptor.extends
    family = declared.schema.family(descriptor.name)
    if extended_by := [each for each in family if each != descriptor.name]:
        document["extended_by"] = extended_by
    if descriptor.edge is not None:
        document["joins"] = {"source": descriptor.edge.source, "target": descriptor.edge.target}
    if descriptor.key is not None:
        document["key"] = descriptor.key.name
    if descriptor.label is not None:
        document["label"] = descriptor.label.name
    document["predicates"] = {each.name: names.term(each.iri) for each in descriptor.fields}
    document["schema"] = project_type(descriptor, declared)
    return document
