"""Values of nodes that a step computes: SPARQL expressions over the fields of a node.

``?title`` is the node's title and ``?node`` its IRI; a field without a value is unbound, and an
expression that fails gives no value. The values of some nodes are listed as ``VALUES`` of a query,
as the RDF library writes them, and the expression is one token sequence in its SELECT clause: it is
checked to have no braces and closed parentheses only, so it can't become another query. The caller
runs the query, confined, because the text may be anybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyoxigraph as ox

from trails.engine.schema.conversions import ConversionError, as_many, convert_value
from trails.errors import LimitError, QueryError
from trails.model.constraints import shorten
from trails.model.iris import Names
from trails.model.kinds import kind_of
from trails.model.names import suggest
from trails.model.results import QueryAnswer
from trails.model.sparql.tokens import check, text_of, tokenize
from trails.model.types import PredicateDescriptor, TypeDescriptor

Ask = Callable[[str], QueryAnswer]
"""Runs a query that reads no data, in the sandbox."""

_ROWS: Final = 200
_BYTES: Final = 40_000
"""Nodes, and bytes of their values, of one query."""
_NODE: Final = "node"
_ROW: Final = "trailsRow"
_VALUE: Final = "trailsValue"


class Expression:
    """One expression over the fields of a type."""

    def __init__(self, text: object, declared: TypeDescriptor) -> None:
        """Raises QueryError if the text is no expression over these fields."""
        if not isinstance(text, str) or not text.strip():
            raise QueryError("an expression is a SPARQL expression, like 'UCASE(?title)'")
        tokens = tokenize(text)
        check(tokens)
        depth = 0
        names: dict[str, None] = {}
        for token in tokens:
            depth += (token.text == "(") - (token.text == ")")
            if token.text in {"{", "}", ";"} or depth < 0 or token.text.upper() == "AS":
                raise QueryError(
                    f"{text[:100]!r} is not one expression: {token.text!r} does not belong here; "
                    "write an expression, like 'CONCAT(?first, \" \", ?last)'"
                )
            if token.kind == "variable":
                names[token.text[1:]] = None
        if depth:
            raise QueryError(f"{text[:100]!r} has a parenthesis that is not closed")
        for name in names:
            field = declared.by_name.get(name)
            if field is None and name != _NODE:
                hint = suggest(name, declared.by_name)
                raise QueryError(f"?{name[:100]} is not a field of {declared.name}; {hint}")
            if field is not None and field.many:
                raise QueryError(
                    f"?{name} has several values; an expression takes fields of one value"
                )
        # A comment at its end would hide what follows.
        self._text = text_of(tokens) + "\n"
        self._fields = {name: declared.by_name.get(name) for name in names}

    def evaluate(
        self, nodes: Sequence[tuple[str, Mapping[str, object]]], names: Names, ask: Ask
    ) -> Iterator[object]:
        """Its value for each node (handle and values); a ConversionError where there is none."""
        batch: list[str] = []
        size = 0
        for handle, values in nodes:
            row = self._row(len(batch), handle, values, names)
            if batch and (size + len(row) > _BYTES or len(batch) >= _ROWS):
                yield from self._ask(batch, ask)
                batch, size = [], 0
                row = self._row(0, handle, values, names)
            batch.append(row)
            size += len(row)
        if batch:
            yield from self._ask(batch, ask)

    def _row(self, at: int, handle: str, values: Mapping[str, object], names: Names) -> str:
        terms = [str(at)]
        for name, field in self._fields.items():
            if field is None:
                terms.append(str(ox.NamedNode(names.nodes + handle)))
            else:
                terms.append(_term(field, values.get(name), names))
        return f"({' '.join(terms)})\n"

    def _ask(self, rows: list[str], ask: Ask) -> Iterator[object]:
        listed = " ".join(f"?{name}" for name in (_ROW, *self._fields))
        query = (
            f"SELECT ?{_ROW} (({self._text}) AS ?{_VALUE}) "
            f"WHERE {{ VALUES ({listed}) {{\n{''.join(rows)}}} }}"
        )
        try:
            answer = ask(query)
        except LimitError as error:
            for _ in rows:
                yield ConversionError(f"the expression can't be computed: {error.message}")
            return
        found = {row[_ROW]: row.get(_VALUE) for row in answer.rows}
        if found.keys() != set(range(len(rows))):
            raise QueryError("the expression does not give one value for each node")
        for at in range(len(rows)):
            yield found[at]


def _term(field: PredicateDescriptor, value: object, names: Names) -> str:
    if value is None:
        return "UNDEF"
    row = field.type.row
    if row is None:
        return str(ox.NamedNode(names.nodes + str(value)))
    return str(ox.Literal(row.lexical(value), datatype=ox.NamedNode(row.datatype)))


def computed_value(value: object, field: PredicateDescriptor, names: Names) -> object:
    """The value of an expression as a field holds it; None if it is nothing."""
    if isinstance(value, ConversionError):
        raise value
    if value is None:
        return None
    if field.target is not None:
        parsed = names.parse_node(str(value))
        if parsed is None:
            raise ConversionError(f"{shorten(value)} is not the IRI of a node")
        made: object = str(value).removeprefix(names.nodes)
    else:
        kind = kind_of(value)
        if kind is None:
            raise ConversionError(f"{shorten(value)} is of no known kind")
        made = convert_value(value, kind.name, field.type.scalar.kind)
    return as_many([made], field) if field.many else made
