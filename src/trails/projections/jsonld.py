"""Project a node into JSON-LD: expanded names, no context to fetch.

Pure. A JSON-LD processor reads from the document exactly the statements that the graph
holds of the node: every literal is spelled in its stored form beside its datatype, since
a JSON number would lose digits. A field without a value is there too, as null or as an
empty array, which say nothing in JSON-LD but tell a reader what could be there.
"""

from __future__ import annotations

from collections.abc import Callable

from trails.model.iris import Names
from trails.model.kinds import KINDS
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema

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
            (field.name, names.term(field.iri), _encoder(field, names), field.many)
            for field in schema.by_name[name].fields
        ]

    def document(self, iri: str, state: NodeState) -> dict[str, object]:
        """A node's statements."""
        body: dict[str, object] = {"@id": iri, "@type": self._classes}
        values = state.values
        for name, predicate, encode, many in self._fields:
            value = values.get(name)
            if many:
                body[predicate] = [encode(each) for each in value or ()]  # type: ignore[attr-defined]
            else:
                body[predicate] = None if value is None else encode(value)
        return body


def _encoder(field: PredicateDescriptor, names: Names) -> Encode:
    """Value → what stands for it in the document."""
    row = field.type.scalar.row
    if row is None:
        nodes = names.nodes
        return lambda handle: {"@id": f"{nodes}{handle}"}
    datatype, lexical = row.datatype, row.lexical
    if datatype == _STRING:
        return lambda value: {"@value": lexical(value)}
    return lambda value: {"@value": lexical(value), "@type": datatype}
