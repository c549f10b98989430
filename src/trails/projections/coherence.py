"""Compare projections with the descriptors that they come from.

A descriptor is the truth, a projection is a view of it: what several projections say of one
capability (``SharedFields``) must be equal once the form of each is taken off. Every kind of
document that lists callables has a row in ``PROJECTIONS``, which reads them back; another
projection joins the comparison as another row. Pure: a document is passed in, whether it is
served, stored or freshly made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

import msgspec

from trails.model.capabilities import Capability, StoredQuery, Tool
from trails.model.iris import canonical
from trails.projections.json_schema import Document, TypeLookup, project_fields
from trails.projections.mcp_tools import REGISTRY_META, TOOL_META
from trails.projections.openapi import CONTROLS, IDEMPOTENT, REGISTRY, TOOL
from trails.projections.tools import controls_of, project_output, project_query_input

_ANY_OBJECT: Final[Document] = {"type": "object"}


class SharedFields(msgspec.Struct, frozen=True):
    """What every projection of a callable says, with schemas in canonical form."""

    id: str
    """The name under which it is called."""
    description: str
    idempotent: bool
    input: object
    output: object


FIELDS: Final = SharedFields.__struct_fields__


class Divergence(msgspec.Struct, frozen=True):
    """A field of a projection that says something else than the descriptor."""

    projection: str
    name: str
    """The callable."""
    field: str
    """One of ``FIELDS``; empty if it is about how often the projection has the callable."""
    expected: object
    found: object


# --- from descriptors ----------------------------------------------------------------------


def describe(source: Capability | StoredQuery, declared: TypeLookup) -> SharedFields:
    """What projections must say of a capability or stored query, by its descriptor alone."""
    if isinstance(source, StoredQuery):
        return SharedFields(
            source.effective_tool_name,
            source.description,
            not source.mutation,
            canonical_schema(project_query_input(source, declared)),
            canonical_schema(_ANY_OBJECT),
        )
    given = source.descriptor
    fields = (*given.input_shape, *controls_of(source))
    return SharedFields(
        source.tool_name,
        given.description,
        given.idempotent or given.reads_only,
        canonical_schema(project_fields(fields, declared)),
        canonical_schema(project_output(given.output_shape, declared)),
    )


def describe_tool(tool: Tool) -> SharedFields:
    """The same of a tool; for a built-in, whose declaration is a tool."""
    return SharedFields(
        tool.name,
        tool.description,
        tool.hints.idempotent,
        canonical_schema(tool.input_schema),
        canonical_schema(tool.output_schema or _ANY_OBJECT),
    )


# --- from projections ------------------------------------------------------------------------


class Projection(msgspec.Struct, frozen=True):
    """A kind of document that lists callables."""

    title: str
    is_of: Callable[[Document], bool]
    """Whether a document is of this kind."""
    entries: Callable[[Document], Iterable[tuple[str, Document]]]
    """The callables in a document, by name."""
    read: Callable[[str, Document], SharedFields]
    digest: Callable[[Document], object]
    """The digest of the registry that a document says it comes from."""

    def callables(self, document: Document) -> dict[str, SharedFields]:
        """What a document says of each callable."""
        return {name: self.read(name, each) for name, each in self.entries(document)}


def read_mcp_tool(name: str, entry: Document) -> SharedFields:
    """An entry of MCP's ``tools/list``; what only reads is idempotent, and no hint repeats that."""
    hints = _object(entry.get("annotations"))
    return SharedFields(
        name,
        _text(entry.get("description")),
        bool(hints.get("idempotentHint", hints.get("readOnlyHint", False))),
        canonical_schema(_without(_object(entry.get("inputSchema")), _mark(entry).get("controls"))),
        canonical_schema(_object(entry.get("outputSchema", _ANY_OBJECT))),
    )


def read_action(name: str, entry: Document) -> SharedFields:
    """An action of a card."""
    return SharedFields(
        name,
        _text(entry.get("description")),
        bool(entry.get("idempotent", False)),
        canonical_schema(_object(entry.get("input"))),
        canonical_schema(_object(entry.get("output"))),
    )


def read_listed(name: str, entry: Document) -> SharedFields:
    """An entry of ``GET /capabilities`` or of ``trails tools --json``."""
    return SharedFields(
        name,
        _text(entry.get("description")),
        bool(_object(entry.get("hints")).get("idempotent", False)),
        canonical_schema(_object(entry.get("input_schema"))),
        canonical_schema(_object(entry.get("output_schema") or _ANY_OBJECT)),
    )


def read_operation(name: str, entry: Document) -> SharedFields:
    """An operation of OpenAPI that calls a tool; a result that is a struct is any object."""
    body = _content(entry.get("requestBody"))
    result = _content(_object(entry.get("responses")).get("200"))
    return SharedFields(
        name,
        _text(entry.get("description")),
        bool(entry.get(IDEMPOTENT, False)),
        canonical_schema(_without(body, entry.get(CONTROLS))),
        canonical_schema(_ANY_OBJECT if "$ref" in result or "anyOf" in result else result),
    )


def _mark(entry: Document) -> Document:
    return _object(_object(entry.get("_meta")).get(TOOL_META))


def _without(schema: Document, names: object) -> Document:
    """A schema without the arguments that every tool that writes has."""
    gone, properties = _list(names), _object(schema.get("properties"))
    if not gone:
        return schema
    kept = {name: each for name, each in properties.items() if name not in gone}
    return {**schema, "properties": kept}


def _content(value: object) -> Document:
    """The schema of a body or response as JSON."""
    content = _object(_object(value).get("content"))
    return _object(_object(content.get("application/json")).get("schema"))


def _operations(document: Document) -> Iterator[tuple[str, Document]]:
    for path, methods in _object(document.get("paths")).items():
        operation = _object(_object(methods).get("post"))
        if "/invoke/" in path and TOOL in operation:
            yield _text(operation[TOOL]), operation


def _named(key: str) -> Callable[[Document], Iterator[tuple[str, Document]]]:
    """The entries of a list, by their names."""

    def entries(document: Document) -> Iterator[tuple[str, Document]]:
        for each in map(_object, _list(document.get(key))):
            yield _text(each.get("name")), each

    return entries


def _actions(document: Document) -> Iterator[tuple[str, Document]]:
    for name, each in _object(document.get("actions")).items():
        yield name, _object(each)


def _is_mcp(document: Document) -> bool:
    listed = _list(document.get("tools"))
    return "tools" in document and not any("input_schema" in _object(each) for each in listed)


MCP: Final = Projection(
    "MCP tool",
    _is_mcp,
    _named("tools"),
    read_mcp_tool,
    lambda document: _object(document.get("_meta")).get(REGISTRY_META),
)
CARD: Final = Projection(
    "card action",
    lambda document: "actions" in document,
    _actions,
    read_action,
    lambda document: document.get("trails:registry"),
)
REST: Final = Projection(
    "REST capability",
    lambda document: "capabilities" in document,
    _named("capabilities"),
    read_listed,
    lambda document: document.get("registry"),
)
CLI: Final = Projection(
    "CLI tool",
    lambda document: "tools" in document,
    _named("tools"),
    read_listed,
    lambda document: document.get("registry"),
)
OPENAPI: Final = Projection(
    "OpenAPI operation",
    lambda document: "openapi" in document,
    _operations,
    read_operation,
    lambda document: _object(document.get("info")).get(REGISTRY),
)
PROJECTIONS: Final = (MCP, CARD, OPENAPI, REST, CLI)
"""In this order a document is recognised."""


def recognise(document: object) -> tuple[Projection, Document] | None:
    """The kind of a document, which may be in a JSON-RPC response; None if it is of no kind."""
    found = _object(document)
    if isinstance(found.get("result"), Mapping):
        found = _object(found["result"])
    return next(((each, found) for each in PROJECTIONS if each.is_of(found)), None)


# --- comparison ------------------------------------------------------------------------------


def compare(
    projection: Projection, expected: Mapping[str, SharedFields], document: Document
) -> Iterator[Divergence]:
    """Every difference between what descriptors say and what a document says."""
    title, found = projection.title, projection.callables(document)
    listed = Counter(name for name, _ in projection.entries(document))
    for name in sorted(expected.keys() | found.keys()):
        if listed[name] != (name in expected):
            yield Divergence(title, name, "", int(name in expected), listed[name])
            continue
        for field in FIELDS:
            mine, theirs = getattr(expected[name], field), getattr(found[name], field)
            if canonical(mine) != canonical(theirs):
                yield Divergence(title, name, field, mine, theirs)


# --- canonical schemas -------------------------------------------------------------------------

_SAID: Final = ("title", "description", "default")
_SETS: Final = frozenset({"required", "enum"})


def canonical_schema(schema: Mapping[str, object]) -> Document:
    """A JSON Schema in one of its spellings.

    Types are lists, and sets are sorted. A Thing Description has one type for each value and writes
    alternatives in ``oneOf``, where a tool lists types: both become the list.
    """
    found: Document = {}
    for name, value in schema.items():
        if name == "properties" and isinstance(value, Mapping):
            found[name] = {key: canonical_schema(_object(each)) for key, each in value.items()}
        elif name == "oneOf" and isinstance(value, Sequence):
            found[name] = [canonical_schema(_object(each)) for each in value]
        elif name in {"items", "additionalProperties", "contains"} and isinstance(value, Mapping):
            found[name] = canonical_schema(value)
        elif name in _SETS and isinstance(value, Sequence):
            found[name] = sorted(value, key=canonical)
        elif name == "type":
            found[name] = sorted(map(str, value)) if isinstance(value, list | tuple) else [value]
        elif name != "$schema":
            found[name] = value
    if found.get("default") == {}:
        del found["default"]  # no more than that it may be left out
    if not found.get("required", True):
        del found["required"]  # an empty set says nothing
    return _joined(found)


def _joined(schema: Document) -> Document:
    """Alternatives that differ in their types alone, as one schema with several types."""
    choices = schema.get("oneOf")
    if not isinstance(choices, list) or not all(set(each) >= {"type"} for each in choices):
        return schema
    types = sorted({kind for each in choices for kind in each["type"]})
    rests = [
        {name: value for name, value in each.items() if name != "type"}
        for each in choices
        if each["type"] != ["null"]
    ]
    own = {name: value for name, value in schema.items() if name != "oneOf"}
    same = not rests or all(each == rests[0] for each in rests)
    if not same or not own.keys() <= set(_SAID) or "type" in own:
        return schema
    rest = dict(rests[0]) if rests else {}
    if "null" in types and isinstance(rest.get("enum"), list):
        rest["enum"] = sorted([*cast(list[object], rest["enum"]), None], key=canonical)
    return {**own, **rest, "type": types}


def _object(value: object) -> Document:
    return dict(value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
