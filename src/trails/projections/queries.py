"""Project stored queries into tools: parameters in ``params``, beside the control arguments."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trails.model.capabilities import StoredQuery
from trails.model.tools import Hints, Tool
from trails.model.types import OBJECT, PredicateDescriptor, Schema, ShapeDescriptor, ValueType
from trails.projections.json_schema import Declarations, Document, is_omissible, project_fields
from trails.projections.tools import BRANCH, SNAPSHOT, spell_title

PARAMS = "params"


class _WithParams(msgspec.Struct, frozen=True):
    """Declarations of a query's tool."""

    shapes: Mapping[str, ShapeDescriptor]
    schema: Schema


def project_query(query: StoredQuery, declared: Declarations, output: Mapping[str, object]) -> Tool:
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
    )


def project_query_input(query: StoredQuery, declared: Declarations) -> Document:
    """The schema of a query's arguments."""
    fields = (params_field(query), *query_controls(query))
    return project_fields(fields, with_params(query, declared))


def with_params(query: StoredQuery, declared: Declarations) -> Declarations:
    """Declarations beside which the parameters of a query are a shape."""
    shape = ShapeDescriptor(PARAMS, query.params)
    return _WithParams({**declared.shapes, PARAMS: shape}, declared.schema)


def params_field(query: StoredQuery) -> PredicateDescriptor:
    """``params`` as a field; it may be left out when all parameters may be."""
    required = not all(is_omissible(param) for param in query.params)
    return PredicateDescriptor(
        name=PARAMS,
        type=ValueType(OBJECT, target=PARAMS, nullable=not required),
        description="The query's parameters, by name." if query.params else "It has none.",
        min_count=int(required),
        default=None if required else {},
    )


def query_controls(query: StoredQuery) -> tuple[PredicateDescriptor, ...]:
    """The control arguments; a query that changes data can't change the past."""
    return (BRANCH,) if query.mutation else (BRANCH, SNAPSHOT)
