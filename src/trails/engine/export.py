"""Write a graph as a file: NDJSON, Turtle, N-Quads or JSON-LD, streamed.

Pure but for the nodes it is handed, in whose order it writes; loading the file
into an empty graph of the same base and types gives the same content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from trails.errors import QueryError
from trails.model.iris import RDF_TYPE, XSD
from trails.model.kinds import Kind
from trails.model.names import suggest
from trails.model.nodes import NodeState
from trails.views.nodes.docs import docs_of
from trails.views.terms import Terms

_BLOCK: Final = 1 << 16
_LONG_NAME: Final = 200
_PORTION: Final = 100
_encode = msgspec.json.encode
_is_local = re.compile(r"[A-Za-z][A-Za-z0-9_]*").fullmatch


def export(terms: Terms, states: Iterable[NodeState], format: str) -> Iterator[bytes]:
    """The nodes as a file in one of ``FORMATS``, in blocks."""
    write = FORMATS.get(format)
    if write is None:
        raise QueryError(f"there is no export format {format!r}; {suggest(format, FORMATS)}")
    return _blocks(write(terms, states))


def _blocks(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Larger pieces, since each takes a way of its own to the reader."""
    some: list[bytes] = []
    size = 0
    for part in parts:
        some.append(part)
        size += len(part)
        if size >= _BLOCK:
            yield b"".join(some)
            some.clear()
            size = 0
    if some:
        yield b"".join(some)


# --- NDJSON --------------------------------------------------------------------------------


def write_ndjson(terms: Terms, states: Iterable[NodeState]) -> Iterator[bytes]:
    """One line a node, as ``load`` takes it.

    A field without a value is left out, unless a default would fill it: then it is null.
    """
    docs = docs_of(terms.schema)
    empty = {
        each.name: {name: None for name, default, _ in each.defaults if default is not None}
        for each in terms.schema.types
    }
    starts = {each.name: b'{"type":%b,' % _encode(each.name) for each in terms.schema.types}
    edges = {each.name for each in terms.schema.types if each.edge is not None}
    keyless = {each.name for each in terms.schema.types if each.key is None}
    for state in states:
        name, values = state.type, {**empty[state.type], **state.values}
        if name in edges:
            source, target = values.pop("source"), values.pop("target")
            start = b'{"edge":%b,"from":%b,"to":%b,' % tuple(map(_encode, (name, source, target)))
        else:
            start = starts[name]
            if name in keyless:
                start += b'"id":%b,' % _encode(state.id)
        yield b'%b"data":%b}\n' % (start, docs.encode(name, values))


# --- RDF -----------------------------------------------------------------------------------


def write_nquads(terms: Terms, states: Iterable[NodeState]) -> Iterator[bytes]:
    """The statements as the log has them."""
    for state in states:
        yield "".join(terms.statements(state)).encode()


def write_turtle(terms: Terms, states: Iterable[NodeState]) -> Iterator[bytes]:
    """A paragraph a node; its statements in the words of N-Quads, with prefixes."""
    vocabulary = terms.names.vocabulary
    yield f"@prefix : <{vocabulary}> .\n@prefix xsd: <{XSD}> .\n".encode()
    short: dict[str, str] = {f"<{RDF_TYPE}>": "a"}

    def shorten(iri: str) -> str:
        found = short.get(iri)
        if found is None:
            local = iri[1:-1].removeprefix(vocabulary)
            found = short[iri] = f":{local}" if _is_local(local) else iri
        return found

    for state in states:
        subject = terms.subject(state.handle)
        lines = []
        for statement in terms.statements(state):
            predicate, _, value = statement[len(subject) + 1 : -3].partition(" ")
            if predicate == f"<{RDF_TYPE}>":
                value = shorten(value)
            elif value.startswith('"') and value.endswith(">"):
                text, mark, datatype = value.rpartition(f"^^<{XSD}")
                if mark:
                    value = f"{text}^^xsd:{datatype[:-1]}"
            lines.append(f"{shorten(predicate)} {value}")
        paragraph = " ;\n  ".join(lines)
        yield f"\n{subject} {paragraph} .\n".encode()


def write_jsonld(terms: Terms, states: Iterable[NodeState]) -> Iterator[bytes]:
    """A document with one object a node; every value but a text says its datatype."""
    yield b'{"@context":%b,"@graph":[' % _encode({"@vocab": terms.names.vocabulary})
    between = b"\n"
    fields = {each.name: _jsonld_fields(terms, each.name) for each in terms.schema.types}
    names, schema = terms.names, terms.schema
    classes = {
        each.name: [names.term(schema.by_name[name].iri) for name in schema.lineage(each.name)]
        for each in schema.types
    }
    for state in states:
        node: dict[str, object] = {
            "@id": names.nodes + state.handle,
            "@type": classes[state.type],
        }
        rest: list[dict[str, object]] = []
        for name, value in state.values.items():
            iri, encode = fields[state.type][name]
            if schema.by_name[state.type].by_name[name].many:
                first, *others = _portions([encode(each) for each in value], node["@id"])  # type: ignore[attr-defined]
                node[iri] = first
                rest += [{"@id": node["@id"], iri: portion} for portion in others]
            else:
                node[iri] = encode(value)
        for each in (node, *rest):
            yield between + _encode(each)
            between = b",\n"
    yield b"\n]}\n"


def _portions(values: list[object], identifier: object) -> Iterator[list[object]]:
    """A list whole, or in parts where each value makes a statement that is far longer than it.

    A file that grows too much by being read is refused as hostile. To say the node's name now and
    then keeps it well within that.
    """
    size = _PORTION if len(str(identifier)) > _LONG_NAME else max(len(values), 1)
    for at in range(0, max(len(values), 1), size):
        yield values[at : at + size]


def _jsonld_fields(
    terms: Terms, type_name: str
) -> dict[str, tuple[str, Callable[[object], object]]]:
    return {
        field.name: (terms.names.term(field.iri), _jsonld_value(terms, field.type.scalar.row))
        for field in terms.schema.by_name[type_name].fields
    }


def _jsonld_value(terms: Terms, row: Kind | None) -> Callable[[object], object]:
    if row is None:
        nodes = terms.names.nodes
        return lambda handle: {"@id": f"{nodes}{handle}"}
    datatype, lexical = row.datatype, row.lexical
    if datatype == XSD + "string":
        return lexical
    return lambda value: {"@value": lexical(value), "@type": datatype}


FORMATS: Final[dict[str, Callable[[Terms, Iterable[NodeState]], Iterator[bytes]]]] = {
    "ndjson": write_ndjson,
    "turtle": write_turtle,
    "nquads": write_nquads,
    "jsonld": write_jsonld,
}
"""The formats that are written."""
