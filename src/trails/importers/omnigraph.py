"""Omnigraph: a schema (``.pg``) with its queries (``.gq``), which become stored SPARQL queries.

A query without a translation is left out, with a note that says what has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from trails.importers.lexer import TokenReader, quoted
from trails.importers.omnigraph_mutations import translate_mutation
from trails.importers.omnigraph_queries import (
    ImportedTypes,
    QueryParameter,
    QueryWriter,
    UntranslatedError,
)
from trails.importers.omnigraph_schema import read_omnigraph_schema
from trails.importers.result import ImportedQuery, ImportedSchema, Notes
from trails.model.names import CONTROL_ARGUMENTS

_KINDS: Final = {
    "String": "String",
    "Bool": "Bool",
    "I32": "Int",
    "I64": "Int",
    "U32": "Int",
    "U64": "BigInt",
    "F32": "Float",
    "F64": "Float",
    "Date": "Date",
    "DateTime": "DateTime",
}
_CHANGES: Final = frozenset({"insert", "update", "delete"})
_NAME: Final = re.compile(r"[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")


def read_omnigraph(
    text: str, queries: Mapping[str, str] | None = None, file: str = "schema.pg"
) -> ImportedSchema:
    """The types of a schema, and the queries of some files (name → text)."""
    schema, notes = read_omnigraph_schema(text, file), Notes()
    known = ImportedTypes(schema.types)
    found: dict[str, ImportedQuery] = {}
    for name, source in sorted((queries or {}).items()):
        for query in _read_queries(source, known, notes, name):
            if found.setdefault(query.name, query) is not query:
                notes.left_out(name, f"query {query.name} is declared before")
    return msgspec.structs.replace(
        schema, queries=tuple(found.values()), notes=(*schema.notes, *notes.done())
    )


def _write_query(
    name: str, description: str, parameters: Iterable[QueryParameter], text: str
) -> ImportedQuery:
    """The file of a stored query."""
    lines = [f"#+ description: {quoted(description)}"]
    given = list(parameters)
    if given:
        lines.append("#+ params:")
    for each in given:
        optional = ", nullable: true" if each.nullable else ""
        lines.append(f"#+   {each.name}: {{ type: {each.kind}{optional} }}")
    return ImportedQuery(name, "\n".join([*lines, text, ""]))


def _read_queries(
    text: str, known: ImportedTypes, notes: Notes, file: str
) -> Iterator[ImportedQuery]:
    """The stored queries of a ``.gq`` file, as far as they can be translated."""
    tokens = TokenReader(text, file)
    while tokens.now.kind != "end":
        place = tokens.place
        if not tokens.skip("query"):
            tokens.fail("expected query")
        name = tokens.kind("word", "the name of a query")
        start = tokens.position
        try:
            yield _read_query(name, tokens, known, notes, place)
        except UntranslatedError as error:
            notes.left_out(place, f"query {name}: {error}")
            tokens.position = start
            _skip_query(tokens)


def _skip_query(tokens: TokenReader) -> None:
    """Read up to the end of a query's block."""
    depth = 0
    while tokens.now.kind != "end":
        sign = tokens.take().text
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "}" and depth == 0:
            return


def _read_query(
    name: str, tokens: TokenReader, types: ImportedTypes, notes: Notes, place: str
) -> ImportedQuery:
    parameters = _parameters(tokens, notes, place)
    said = []
    while tokens.skip("@"):
        tokens.kind("word", "description or instruction")
        tokens.expect("(")
        said.append(tokens.string())
        tokens.expect(")")
    tokens.expect("{")
    writer = QueryWriter(tokens, types, parameters)
    changes = tokens.has(*_CHANGES)
    body = translate_mutation(writer) if changes else writer.read()
    tokens.expect("}")
    description = " ".join(said) or name.replace("_", " ").capitalize() + "."
    return _write_query(name, description, parameters.values(), body)


def _parameters(tokens: TokenReader, notes: Notes, place: str) -> dict[str, QueryParameter]:
    """Name in the file → parameter."""
    found: dict[str, QueryParameter] = {}
    tokens.expect("(")
    while not tokens.skip(")"):
        given = tokens.kind("variable", "a parameter")[1:]
        name = given
        if name in CONTROL_ARGUMENTS or not re.fullmatch(
            r"[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*", name
        ):
            name = f"given_{given.strip('_')}"
            notes.changed(place, f"the parameter ${given} is called ${name} here")
        tokens.expect(":")
        found[given] = QueryParameter(name, _kind(tokens), tokens.skip("?"))
        tokens.skip(",")
    return found


def _kind(tokens: TokenReader) -> str:
    if tokens.skip("["):
        inner = _kind(tokens)
        tokens.expect("]")
        return f"[{inner}]"
    name = tokens.kind("word", "a type")
    if name not in _KINDS:
        raise UntranslatedError(f"parameters of type {name} can't be used in SPARQL")
    return _KINDS[name]
