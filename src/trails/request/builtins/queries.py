"""``graph_query``: ask anything in SPARQL."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from trails.engine.context import GraphContext
from trails.errors import FieldError, ValidationError
from trails.model.constraints import showable
from trails.model.kinds import KINDS, Iri, Kind, KindError
from trails.projections.tools import BRANCH, SNAPSHOT
from trails.request.answers import ANSWER, show_answer
from trails.request.builtins.declare import READER, Builtin, Desk, field


def _query(
    desk: Desk, ctx: GraphContext, query: str, params: Mapping[str, object] | None
) -> object:
    return show_answer(desk.service.ask(ctx, query, bound_params(params)))


def bound_params(params: Mapping[str, object] | None) -> dict[str, object]:
    """Parameters as SPARQL takes them."""
    return {name: _term(name, value) for name, value in (params or {}).items()}


def _term(name: str, value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"@id"}:
        return Iri(str(value["@id"]))
    if set(value) == {"@value", "@type"}:
        for row in reversed([*KINDS.values()]):  # BigInt before Int, Blob before Iri: literals
            if row.datatype == value["@type"] and row.name != "Vector":
                with suppress(KindError, ValueError, ArithmeticError):
                    return _literal(row, value["@value"])
    message = f'params.{name} must be a text, a number, true, false, {{"@id": …}}, or '
    message += f'{{"@value": …, "@type": …}} with a value of that XML Schema type, not {value}'
    raise ValidationError([FieldError(f"params.{name}", "datatype", message, showable(value))])


def _literal(row: Kind, value: object) -> object:
    """A value in its JSON form, or a literal's text."""
    try:
        return row.coerce(value)
    except KindError:
        if not isinstance(value, str):
            raise
    return row.coerce(row.parse(value))


GRAPH_QUERY: Final = Builtin(
    name="graph_query",
    title="Query with SPARQL",
    description=(
        "Run a SPARQL 1.1 query (SELECT, ASK, CONSTRUCT or DESCRIBE) and get the rows. The empty "
        "prefix stands for this graph's own classes and fields, so no PREFIX line is needed: "
        "'SELECT ?x ?found WHERE { ?x a :TypeName ; :a_field ?found ; :another $value } LIMIT 20' "
        'with params {"value": "…"}. rdf:, rdfs:, xsd:, owl: and skos: are declared too, and '
        "<TypeName/id> is an instance. Call schema_get first to learn classes and fields. "
        "Pass values in params, never glued into the text. Only reads; SERVICE and FROM are not "
        "available; time, memory and rows are limited. Returns columns and rows; when rows were "
        "cut off, truncated is true and notice says how to go on; notice also names what in "
        "the text can't match anything."
    ),
    fields=(
        field("query", "The SPARQL text.", required=True, min_length=1),
        field(
            "params",
            "Values for $name in the text, by name: texts, numbers, truth values, "
            '{"@id": "TypeName/its-id"} for a node, {"@id": "<iri>"} for an IRI, or '
            '{"@value": "2026-03-01", "@type": '
            '"http://www.w3.org/2001/XMLSchema#date"} for a date.',
            "Map",
        ),
    ),
    controls=(BRANCH, SNAPSHOT),
    output=ANSWER,
    hints=READER,
    action="Read",
    whole=True,
    run=_query,
)
