"""``trails.meta.schema.import``: schemas of other languages, as a diff of the project's files.

RDF is parsed in the sandbox; the other languages are read by ``importers``. Nothing is written: the
result is the diff that declares the types and adds the queries, and a note for everything that is
different here. A graph that owns its types gets the steps for ``schema_apply`` instead of a module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, cast

import pyoxigraph as ox

from trails.authoring.specs import describe_types
from trails.engine.session.context import GraphContext
from trails.errors import FieldError, ValidationError
from trails.importers.result import LARGEST, ImportedSchema
from trails.imports import later
from trails.model.changes.file_diffs import make_diff
from trails.model.changes.steps import AddType, TypeSpec
from trails.model.operations.authoring import ImportedFiles, ImportNote
from trails.model.types import MAP, Schema
from trails.projections.python.changes import change_declarations
from trails.request.builtins.declare import READER, ToolContext, field, meta_operation
from trails.request.meta.queries import read_query
from trails.request.workspace import need_workspace

if TYPE_CHECKING:
    from trails.engine.sparql import stored_queries
    from trails.importers import json_schema, linkml, omnigraph, shacl
    from trails.importers.shacl import ShaclValue, Statement
else:
    stored_queries = later("trails.engine.sparql.stored_queries")
    json_schema = later("trails.importers.json_schema")
    linkml = later("trails.importers.linkml")
    omnigraph = later("trails.importers.omnigraph")
    shacl = later("trails.importers.shacl")

Language = Literal["shacl", "json_schema", "linkml", "omnigraph"]
_SUFFIXES: Final[Mapping[str, Language]] = {
    ".ttl": "shacl",
    ".nt": "shacl",
    ".jsonld": "shacl",
    ".json": "json_schema",
    ".yaml": "linkml",
    ".yml": "linkml",
    ".pg": "omnigraph",
}
_MOST_TYPES: Final = 300
"""Types of one import: each is an edit of the module, which takes longer the longer it gets."""
_RDF: Final = {".ttl": "turtle", ".nt": "ntriples", ".jsonld": "jsonld"}


def _import(
    tool: ToolContext,
    ctx: GraphContext,
    text: str,
    file: str,
    language: str | None,
    queries: Mapping[str, object] | None,
) -> ImportedFiles:
    workspace = need_workspace(tool.options.workspace)
    layout, known = workspace.layout, ctx.registry.schema
    found = _read(tool, ctx, text, file, language, queries)
    new = [each for each in found.types if each.name not in known.by_name]
    notes = [*found.notes, *_repeated(found.types, known)]
    if len(found.types) > _MOST_TYPES:
        message = (
            f"text: {file[:100]} has {len(found.types):,} types, and at most {_MOST_TYPES:,} are "
            "imported at once; import it in parts"
        )
        raise ValidationError([FieldError("text", "max_count", message, len(found.types))])
    if not new and not found.queries:
        message = f"text: every type of {file} is declared already; there is nothing to import"
        raise ValidationError([FieldError("text", "name", message)])
    described = describe_types(new, known)
    after = Schema.of((*known.types, *described.values()), known.shapes)
    texts: dict[str, tuple[str | None, str | None]] = {}
    steps: tuple[AddType, ...] = ()
    if layout.schema == "graph":
        steps = tuple(AddType(each) for each in _in_order(new))
    elif new:
        changed = change_declarations(workspace.read, layout.app, known, after)
        texts |= changed.texts
        notes += [ImportNote(layout.app, "changed", each) for each in changed.notes]
    added = []
    for query in found.queries:
        problems = read_query(tool, ctx, query.name, query.text, after).problems
        path = f"{layout.queries}/{query.name}{stored_queries.SUFFIX}"
        if problems:
            message = f"query {query.name}: {problems[0].message}"
            notes.append(ImportNote(path, "left_out", message))
        elif workspace.read(path) is not None:
            notes.append(ImportNote(path, "left_out", f"query {query.name}: the file exists"))
        else:
            texts[path] = (None, query.text)
            added.append(query.name)
    return ImportedFiles(
        make_diff(texts),
        tuple(each.name for each in new),
        tuple(added),
        tuple(notes),
        steps,
    )


def _repeated(types: tuple[TypeSpec, ...], known: Schema) -> Iterator[ImportNote]:
    for each in types:
        if each.name in known.by_name:
            yield ImportNote(each.name, "left_out", "a type of this name is declared already")


def _in_order(types: list[TypeSpec]) -> list[TypeSpec]:
    """Types after what they extend and join; references may come before their targets."""
    done: dict[str, TypeSpec] = {}
    waiting = list(types)
    while waiting:
        ready = [
            each
            for each in waiting
            if not {each.extends, each.source, each.target}
            & {other.name for other in waiting} - {each.name}
        ] or waiting[:1]
        done |= {each.name: each for each in ready}
        waiting = [each for each in waiting if each.name not in done]
    return list(done.values())


# --- reading ------------------------------------------------------------------------------


def _read(
    tool: ToolContext,
    ctx: GraphContext,
    text: str,
    file: str,
    language: str | None,
    queries: Mapping[str, object] | None,
) -> ImportedSchema:
    suffix = PurePosixPath(file).suffix.lower()
    chosen = cast("Language | None", language) or _SUFFIXES.get(suffix)
    if chosen is None:
        message = (
            f"file: the language of {file[:100]!r} is not known by its name; give language, one of "
            "shacl, json_schema, linkml, omnigraph"
        )
        raise ValidationError([FieldError("file", "pattern", message, file[:100])])
    if queries and chosen != "omnigraph":
        message = "queries: only Omnigraph has queries that can be imported; leave them out"
        raise ValidationError([FieldError("queries", "unknown_field", message)])
    if chosen == "shacl":
        statements = _statements(tool, ctx, text, _RDF.get(suffix, "turtle"))
        return shacl.read_shacl(statements, ctx.names.vocabulary, file)
    if chosen == "json_schema":
        return json_schema.read_json_schema(text, file)
    if chosen == "linkml":
        return linkml.read_linkml(text, file)
    return omnigraph.read_omnigraph(text, _texts(queries or {}), file)


def _texts(queries: Mapping[str, object]) -> dict[str, str]:
    wrong = [name for name, value in queries.items() if not isinstance(value, str)]
    if wrong:
        message = f"queries.{wrong[0][:100]}: must be the text of a .gq file"
        raise ValidationError([FieldError("queries", "datatype", message)])
    return {name: str(value) for name, value in queries.items()}


def _statements(tool: ToolContext, ctx: GraphContext, text: str, format: str) -> list[Statement]:
    """The statements of a file of others, which is parsed in the sandbox."""
    blocks = tool.service.untrusted.parse(
        [text.encode()], format, ctx.names.nodes, caller=ctx.actor
    )
    parsed = ox.parse(b"".join(blocks), format=ox.RdfFormat.N_QUADS)
    return [(_name(each.subject), each.predicate.value, _value(each.object)) for each in parsed]


def _name(term: object) -> str:
    if isinstance(term, ox.BlankNode):
        return f"_:{term.value}"
    return term.value if isinstance(term, ox.NamedNode) else str(term)


def _value(term: object) -> ShaclValue:
    if isinstance(term, ox.Literal):
        return shacl.ShaclValue(term.value, term.datatype.value)
    return shacl.ShaclValue(_name(term))


IMPORT: Final = meta_operation(
    "trails.meta.schema.import",
    "dev",
    title="Import a schema",
    description=(
        "Turn a schema in SHACL, JSON Schema, LinkML or Omnigraph's .pg (with its .gq queries) "
        "into a diff of the project's files: types, and stored queries where they translate. Notes "
        "name everything that is different or left out. Nothing is written."
    ),
    fields=(
        field("text", "The schema.", required=True, min_length=1, max_length=LARGEST),
        field(
            "file",
            "Its file name, which tells the language: .ttl, .json, .yaml or .pg.",
            default="schema",
            max_length=255,
        ),
        field(
            "language",
            "What it is written in, if the name does not say.",
            one_of=["shacl", "json_schema", "linkml", "omnigraph"],
        ),
        field("queries", "Omnigraph's queries: file name → text.", MAP),
    ),
    result=ImportedFiles,
    hints=READER,
    action="SchemaApply",
    run=_import,
)

META: Final = (IMPORT,)
