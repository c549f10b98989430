"""SPARQL with typed parameters, and its answers as Python values.

Parameters are written ``$name``. Each is replaced, as a token, by its value as
the RDF library writes it, so a value can never become syntax; in a SELECT
clause it becomes ``(value AS ?name)``, and after ``LIMIT`` and ``OFFSET`` digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Final

import pyoxigraph as ox

from trails.engine.graph import Graph
from trails.engine.lines import Line
from trails.engine.number_hints import add_number_notices
from trails.errors import QueryError
from trails.model.answers import Answer
from trails.model.constraints import shorten
from trails.model.iris import XSD
from trails.model.kinds import KINDS, BigInt, Blob, Iri, KindError
from trails.model.sparql import Token


def ask_line(graph: Graph, line: Line, text: str) -> Answer:
    """Run a query, its parameters in place, on a branch or snapshot."""
    names = graph.names
    try:
        answer = graph.reading_quads(line, lambda quads: read_answer(quads.query(text, names)))
    except SyntaxError as error:
        raise QueryError(f"the query can't be parsed: {error}") from None
    except (ValueError, RuntimeError) as error:
        raise QueryError(f"the query can't be run: {error}") from None
    return add_number_notices(answer, text, line.compiled.vocabulary)


def bind(tokens: list[Token], params: Mapping[str, object]) -> str:
    """The text with every parameter in place of its token."""
    terms = {name: write_term(name, value) for name, value in params.items()}
    unused = set(terms)
    out: list[str] = []
    in_projection = False
    depth, previous = 0, ""
    for token in tokens:
        upper = token.text.upper()
        depth += (token.kind == "open") - (token.kind == "close")
        if token.kind == "word":
            if upper == "SELECT":
                in_projection, projection_depth = True, depth
            elif upper in {"WHERE", "FROM"}:
                in_projection = False
        elif token.text == "{":
            in_projection = False
        name = token.text[1:] if token.kind == "variable" else ""
        if name in terms:
            unused.discard(name)
            if previous == "AS":
                raise QueryError(f"?{name} is a parameter, so nothing else can be bound to it")
            bare = in_projection and depth == projection_depth
            term = _count(name, params[name]) if previous in _COUNTS else terms[name]
            out.append(f"({term} AS ?{name})" if bare else term)
        elif token.text.startswith("$") and token.kind == "variable":
            raise QueryError(f"the query has ${name}, but no such parameter was given")
        else:
            out.append(token.text)
        if token.kind != "space":
            previous = upper
    if unused:
        name = min(unused)
        raise QueryError(f"parameter {name!r} is not in the query; write it there as ${name}")
    return "".join(out)


_COUNTS: Final = frozenset({"LIMIT", "OFFSET"})


def _count(name: str, value: object) -> str:
    """A number after ``LIMIT`` or ``OFFSET``, where only digits can stand."""
    if type(value) is not int or value < 0:
        told = shorten(value)
        raise QueryError(f"${name} stands after LIMIT or OFFSET and must be a count, not {told}")
    return str(value)


_PYTHON_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "Bool"),
    (BigInt, "BigInt"),
    (int, "Int"),
    (float, "Float"),
    (Decimal, "Decimal"),
    (datetime, "DateTime"),
    (date, "Date"),
    (Blob, "Blob"),
    (str, "String"),
)


def write_term(name: str, value: object) -> str:
    """A Python value as the RDF library writes it."""
    if isinstance(value, Iri):
        try:
            return str(ox.NamedNode(value))
        except ValueError:
            raise QueryError(f"parameter {name!r}: {shorten(value)} is not an IRI") from None
    for python_type, kind_name in _PYTHON_KINDS:
        if isinstance(value, python_type):
            kind = KINDS[kind_name]
            try:
                lexical = kind.lexical(kind.coerce(value))
            except KindError:
                raise QueryError(
                    f"parameter {name!r}: {shorten(value)} is not {kind.expected}"
                ) from None
            return str(ox.Literal(lexical, datatype=ox.NamedNode(kind.datatype)))
    raise QueryError(
        f"parameter {name!r}: a {type(value).__name__} can't be bound; give a text, number, date, "
        "truth value, Iri or node"
    )


_DATATYPES: Final = {
    kind.datatype: kind for kind in KINDS.values() if kind.name not in {"BigInt", "Blob", "Iri"}
}


def read_term(term: object) -> object:
    """An RDF term as a Python value; a literal of an unknown kind is its text."""
    if isinstance(term, ox.NamedNode):
        return Iri(term.value)
    if isinstance(term, ox.BlankNode):
        return Iri("_:" + term.value)
    if isinstance(term, ox.Literal):
        if term.datatype.value == XSD + "anyURI":
            return Iri(term.value)
        kind = _DATATYPES.get(term.datatype.value)
        if kind is None:
            return term.value
        try:
            return kind.parse(term.value)
        except (ValueError, ArithmeticError):
            return term.value
    return None if term is None else str(term)


def read_answer(
    found: ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples,
) -> Answer:
    """A result of the store as Python values."""
    if isinstance(found, ox.QueryBoolean):
        return Answer((), (), truth=bool(found))
    if isinstance(found, ox.QuerySolutions):
        names = tuple(variable.value for variable in found.variables)
        return Answer(
            names,
            tuple({name: read_term(row[name]) for name in names} for row in found),
        )
    names = ("subject", "predicate", "object")
    return Answer(
        names,
        tuple({name: read_term(getattr(triple, name)) for name in names} for triple in found),
    )
