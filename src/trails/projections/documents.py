"""Project schema, registry and nodes into documents for readers.

Pure. The schema document and the Markdown reference state constraints from the same table that
enforces them. A node becomes JSON-LD with expanded names and no context to fetch; a JSON-LD
processor reads from it exactly the stored statements: every literal has its stored form and its
datatype, because a JSON number would lose digits. A field without a value is null or an empty
array, which JSON-LD ignores, so that readers see which fields exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from trails.model.capabilities import Capability, StoredQuery, Tool
from trails.model.constraints import rules_of
from trails.model.iris import Names
from trails.model.kinds import KINDS
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema, ShapeDescriptor, TypeDescriptor
from trails.projections.json_schema import Document, project_type
from trails.registry.registry import Registry


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


def project_schema_definitions(schema: Schema, names: Names) -> Document:
    """All types as one JSON Schema, with a definition for each."""
    declared = _Stored(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": names.vocabulary.rstrip("#"),
        "$comment": f"The types of this graph; their digest is {schema.digest}.",
        "$defs": {each.name: project_type(each, declared) for each in schema.types},
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
    if descriptor.abstract:
        document["abstract"] = True
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


def project_outline(schema: Schema, names: Names) -> Document:
    """All types on a few lines each: the first sentence, and the names and kinds of fields."""
    return {
        "base_iri": names.base,
        "vocabulary": names.vocabulary,
        "digest": schema.digest,
        "types": [_outline(each) for each in schema.types],
    }


def _outline(descriptor: TypeDescriptor) -> Document:
    document: Document = {
        "type": descriptor.name,
        "description": _first_line(descriptor.description),
    }
    if descriptor.extends is not None:
        document["extends"] = descriptor.extends
    if descriptor.abstract:
        document["abstract"] = True
    if descriptor.edge is not None:
        document["joins"] = f"{descriptor.edge.source} → {descriptor.edge.target}"
    document["fields"] = ", ".join(map(_spell_field, descriptor.fields))
    return document


def _spell_field(field: PredicateDescriptor) -> str:
    """A field in a few words, like ``status String required``."""
    marks = ("key" if field.key else "required" if field.required else "",)
    return " ".join((field.name, str(field.type), *filter(None, marks)))


def project_reference(registry: Registry, title: str) -> str:
    """A page that lists every type, shape, capability and stored query."""
    lines = [f"# {title}", "", *_section("Types", map(_type, registry.types.values()))]
    lines += _section("Shapes", map(_shape, registry.shapes.values()))
    lines += _section("Capabilities", map(_capability, registry.capabilities.values()))
    lines += _section("Meta-capabilities", map(_capability, registry.metas.values()))
    lines += _section("Stored queries", map(_query, registry.queries.values()))
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, entries: Iterable[Iterator[str]]) -> list[str]:
    lines = [line for entry in entries for line in entry]
    return [f"## {title}", "", *lines] if lines else []


def _type(descriptor: TypeDescriptor) -> Iterator[str]:
    yield f"### {descriptor.name}"
    yield ""
    yield _paragraph(descriptor.meaning)
    yield ""
    edge = descriptor.edge
    if edge is not None:
        yield f"An edge from {edge.source} to {edge.target}."
        yield ""
    if descriptor.extends is not None:
        yield f"Extends {descriptor.extends}."
        yield ""
    yield from _fields("field", descriptor.fields)
    for group in descriptor.unique:
        yield f"Unique together: {', '.join(group)}."
        yield ""


def _shape(descriptor: ShapeDescriptor) -> Iterator[str]:
    yield f"### {descriptor.name}"
    yield ""
    yield _paragraph(descriptor.description)
    yield ""
    if descriptor.target is not None:
        yield f"Adds rules to {descriptor.target}."
        yield ""
    yield from _fields("field", descriptor.fields)


def _capability(capability: Capability) -> Iterator[str]:
    descriptor = capability.descriptor
    yield f"### {descriptor.id}"
    yield ""
    yield _paragraph(descriptor.description)
    yield ""
    returns = descriptor.output_shape
    facts = [f"returns {returns}" if returns is not None else "returns nothing"]
    if descriptor.idempotent:
        facts.append("idempotent")
    if capability.meta is not None:
        facts.append(f"scope {capability.meta.scope}")
    facts += [f"requires: {each}" for each in descriptor.preconditions]
    facts += ["only reads"] if descriptor.reads_only else descriptor.side_effects
    yield f"*{'; '.join(facts)}.*"
    yield ""
    yield from _fields("parameter", descriptor.input_shape)


def _query(query: StoredQuery) -> Iterator[str]:
    yield f"### {query.name}"
    yield ""
    yield _paragraph(query.description)
    yield ""
    facts = ["changes data" if query.mutation else "reads"]
    if query.columns:
        facts.append(f"returns {', '.join(query.columns)}")
    if query.tool_name:
        facts.append(f"tool name {query.tool_name}")
    if not query.expose:
        facts.append("not offered to agents")
    yield f"*{'; '.join(facts)}.*"
    yield ""
    yield from _fields("parameter", query.params)


def _fields(what: str, fields: Iterable[PredicateDescriptor]) -> Iterator[str]:
    rows = [_row(field) for field in fields]
    if rows:
        yield f"| {what} | type | rules | meaning |"
        yield "|---|---|---|---|"
        yield from rows
        yield ""


def _row(field: PredicateDescriptor) -> str:
    cells = (f"`{field.name}`", str(field.type), "; ".join(_rules(field)), field.description)
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _rules(field: PredicateDescriptor) -> Iterator[str]:
    if field.many:
        high = "any number" if field.max_count is None else field.max_count
        if field.min_count or field.max_count is not None:
            yield f"{field.min_count} to {high} values"
        if field.ordered:
            yield "ordered"
    else:
        yield "required" if field.required else "optional"
    for mark in ("key", "unique", "label", "search"):
        if getattr(field, mark):
            yield mark
    for rule, limit in rules_of(field):
        shown = ", ".join(map(str, limit)) if isinstance(limit, tuple) else limit
        yield f"{rule.code.replace('_', ' ')}: `{shown}`"
    if field.default is not None:
        yield f"default `{field.default}`"


def _paragraph(text: str) -> str:
    return text.strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


Encode = Callable[[object], object]
_STRING = KINDS["String"].datatype


class JsonLd:
    """The documents of one schema's nodes; compiled once a type."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self._schema = schema
        self._names = names
        self._types: dict[str, _TypeDocument] = {}

    def document(self, state: NodeState) -> dict[str, object]:
        """One node."""
        compiled = self._types.get(state.type)
        if compiled is None:
            compiled = _TypeDocument(self._schema, state.type, self._names)
            self._types[state.type] = compiled
        return compiled.document(self._names.nodes + state.handle, state)


class _TypeDocument:
    """The documents of one type's nodes."""

    def __init__(self, schema: Schema, name: str, names: Names) -> None:
        self._classes = [names.term(schema.by_name[each].iri) for each in schema.lineage(name)]
        self._fields = [
            (field.name, names.term(field.iri), _encoder(field, names), field.many, field.ordered)
            for field in schema.by_name[name].fields
        ]

    def document(self, iri: str, state: NodeState) -> dict[str, object]:
        """A node's statements."""
        body: dict[str, object] = {"@id": iri, "@type": self._classes}
        values = state.values
        for name, predicate, encode, many, ordered in self._fields:
            value = values.get(name)
            if many:
                items = [encode(each) for each in value or ()]  # type: ignore[attr-defined]
                body[predicate] = {"@list": items} if ordered else items
            else:
                body[predicate] = None if value is None else encode(value)
        return body


def _encoder(field: PredicateDescriptor, names: Names) -> Encode:
    """Value → its form in the document."""
    row = field.type.scalar.row
    if row is None:
        nodes = names.nodes
        return lambda handle: {"@id": f"{nodes}{handle}"}
    if row.tagged:
        return lambda texts: [
            {"@value": text, "@language": tag}
            for tag, text in texts.items()  # type: ignore[attr-defined]
        ]
    datatype, lexical = row.datatype, row.lexical
    if datatype == _STRING:
        return lambda value: {"@value": lexical(value)}
    return lambda value: {"@value": lexical(value), "@type": datatype}


_MOST: Final = 40


def project_instructions(
    project: str, graph: str, types: Sequence[TypeDescriptor], tools: Sequence[Tool]
) -> str:
    """Instructions for a model: what this server is, where to begin, how errors look.

    ``types`` and ``tools`` are those that it may see and use; nothing else is named.
    """
    names = {each.name for each in tools}
    own = [each.name for each in tools if each.action == "InvokeCapability"]
    begin = [text for needed, text in _BEGIN if needed <= names]
    change = [text for needed, text in _CHANGE if needed <= names]
    lines = [_WHAT.format(graph=graph, project=project), "", *_list_types(types), ""]
    if begin:
        lines.append(f"Where to begin: {' '.join(begin)}")
    lines += _list_tools(own)
    if change:
        lines.append(" ".join(change))
    if any("propose" in each.controls for each in tools):
        lines.append(_DRAFTS + (_REVIEWS if "branch_list" in names else ""))
    if any(each.lists_controls for each in tools):
        lines.append(_PROPOSES)
    return "\n".join([*lines, _ANSWERS, _ERRORS])


_WHAT: Final = (
    "This is the knowledge graph '{graph}' of the project '{project}': typed, validated and "
    "versioned data that you can read, query and change."
)
_Texts = tuple[tuple[frozenset[str], str], ...]
"""Sentences, each with the tools that it names."""
_BEGIN: Final[_Texts] = (
    (
        frozenset({"graph_snapshot", "schema_get"}),
        (
            "graph_snapshot lists the types, schema_get the fields of a type. Read "
            "instances at trails://kg/<Type> and trails://kg/<Type>/<id>."
        ),
    ),
    (
        frozenset({"search", "fetch"}),
        (
            "search finds records by their texts and shows the text that proves each hit; cite "
            "only what evidence shows or what you have read. fetch shows a whole record."
        ),
    ),
    (
        frozenset({"node_list", "node_get", "read_record_field"}),
        (
            "node_list lists records, node_get gets one, and read_record_field reads a window of "
            "a long text; ids like trails://kg/<Type>/<id> go into all of them as they are shown."
        ),
    ),
    (
        frozenset({"graph_query"}),
        "Ask questions over many of them with graph_query (SPARQL).",
    ),
)
_CHANGE: Final[_Texts] = (
    (
        frozenset({"graph_mutate"}),
        (
            "To change data use the tool made for the task; where there is none, graph_mutate. "
            "Each change is one commit, or none when it breaks a rule."
        ),
    ),
    (
        frozenset({"branch_create", "branch_merge"}),
        "To try something first, branch_create, pass branch to each call, then branch_merge.",
    ),
)
_DRAFTS: Final = (
    "Every tool that changes data also takes dry_run (true: only report what it would change), "
    "propose (true: write to a new branch, and return the call that merges it), expected_head and "
    "idempotency_key, whether or not its schema lists them."
)
_REVIEWS: Final = " branch_list with the prefix proposals/ lists what waits for a review."
_PROPOSES: Final = (
    "What you write to main becomes a proposal, which someone else reviews and merges; to change "
    "a proposal of yours, pass its name as branch."
)
_ANSWERS: Final = (
    "Where tools take them: branch is the branch to work on, snapshot a past commit to read at, "
    "and max_chars the length of the answer. If not everything fits, left_out says what is "
    "missing, and next is the exact call that continues."
)
_ERRORS: Final = (
    "Errors name the field, the value, the rule and what to do next. A failed check lists all "
    "fields at once in data.fields, each with a suggestion where there is one; "
    "data.corrected_arguments, where given, can be sent as they are."
)


def _list_types(types: Sequence[TypeDescriptor]) -> list[str]:
    if not types:
        return ["There are no types."]
    listed = [f"- {each.name}: {_first_line(each.description)}" for each in types[:_MOST]]
    if len(types) > _MOST:
        listed.append(f"- and {len(types) - _MOST} more; schema_get describes them all")
    return ["Its types:", *listed]


def _list_tools(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    shown = ", ".join(names[:_MOST])
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return [f"The project's own tools: {shown}{more}."]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0] or "(no description)"
