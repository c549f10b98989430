"""Nodes ↔ RDF statements in the form in which the RDF library writes them.

Compiled once for a schema and a graph's names. A node's type is the first part of its IRI, so a
statement can be read without asking any store. The RDF parser takes no token of more than 16 MiB;
nodes can't hold such texts any more, but the log may have older ones: their lines are read here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Final

import pyoxigraph as ox

from trails.model.fairness import with_pauses
from trails.model.iris import RDF_TYPE, XSD, Names
from trails.model.kinds import Kind
from trails.model.nodes import MAX_NODE, NodeState, split_handle
from trails.model.types import PredicateDescriptor, Schema

_BLOCK: Final = 1 << 20
_LONGEST: Final = 16 << 20
"""Bytes of a token, and so of a line, that the parser always takes are fewer than these."""
_line = re.compile(rb'<([^>]*)> <([^>]*)> "(.*)"(?:\^\^<([^>]*)>)? \.', re.DOTALL).fullmatch
_escapes = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SHORT: Final = {b"t": b"\t", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"f": b"\f"}


def load_statements(store: ox.Store, text: bytes) -> None:
    """Add many statements to a store at once."""
    try:
        store.bulk_load(text, format=ox.RdfFormat.N_QUADS, lenient=True)
    except MemoryError:  # a token is too long
        store.extend(read_statements(text, lenient=True))


def long_token(error: MemoryError) -> str | None:
    """What to say of a file with a token that the parser does not take; None if it is not that."""
    if "buffer maximal size" not in str(error):
        return None
    return (
        f"it has a value that is too long to be read; a node may take {MAX_NODE:,} bytes, so keep "
        "large content as a blob and name it in a Blob field"
    )


def read_statements(source: bytes | IO[bytes], *, lenient: bool = False) -> Iterator[ox.Quad]:
    """The statements of N-Quads text with one on each line; ``lenient`` trusts their IRIs."""
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    begun: list[bytes] = []
    while block := stream.read(_BLOCK):
        end = block.rfind(b"\n") + 1
        if end:
            yield from _parse_lines(b"".join([*begun, block[:end]]), lenient=lenient)
            begun = []
        begun.append(block[end:])
    yield from _parse_lines(b"".join(begun), lenient=lenient)


def _parse_lines(lines: bytes, *, lenient: bool) -> Iterator[ox.Quad]:
    if len(lines) < _LONGEST:
        yield from ox.parse(lines, format=ox.RdfFormat.N_QUADS, lenient=lenient)
        return
    for line in lines.split(b"\n"):
        if len(line) < _LONGEST:
            yield from ox.parse(line, format=ox.RdfFormat.N_QUADS, lenient=lenient)
        else:
            yield _parse_long(line)


def _parse_long(line: bytes) -> ox.Quad:
    found = _line(line)
    if found is None:
        raise SyntaxError("a statement of more than 16 MiB has no literal at its end")
    subject, predicate, text, datatype = found.groups()
    value = _escapes.sub(_character, text).decode() if b"\\" in text else text.decode()
    literal = ox.Literal(
        value, datatype=ox.NamedNode(datatype.decode() if datatype else XSD + "string")
    )
    return ox.Quad(ox.NamedNode(subject.decode()), ox.NamedNode(predicate.decode()), literal)


def _character(escape: re.Match[bytes]) -> bytes:
    code = escape[1] or escape[2]
    return _SHORT.get(escape[3], escape[3]) if code is None else chr(int(code, 16)).encode()


Values = Mapping[str, object]
Encode = Callable[[object], str]


class Change:
    """What one commit says about one node, field by field."""

    __slots__ = ("added", "gone", "new", "removed")

    def __init__(self) -> None:
        self.new = False
        self.gone = False
        self.added: dict[str, list[object]] = {}
        self.removed: dict[str, list[object]] = {}


class _TypeTerms:
    """One type's statements."""

    def __init__(self, schema: Schema, name: str, names: Names) -> None:
        descriptor = schema.by_name[name]
        classes = [names.term(schema.by_name[each].iri) for each in schema.lineage(name)]
        self.classes = frozenset(classes)
        self.main_class = classes[0]
        rdf_type = str(ox.NamedNode(RDF_TYPE))
        self.class_lines = [f" {rdf_type} {ox.NamedNode(each)} .\n" for each in classes]
        self.encoders: dict[str, tuple[Encode, bool]] = {}
        self.fields: dict[str, PredicateDescriptor] = {}
        for field in descriptor.fields:
            iri = names.term(field.iri)
            self.encoders[field.name] = (_encoder(field, iri, names), field.many)
            self.fields[iri] = field


def _encoder(field: PredicateDescriptor, iri: str, names: Names) -> Encode:
    """Value → what follows the subject. What can't need escaping is spelled out here."""
    row = field.type.scalar.row
    predicate = f" {ox.NamedNode(iri)} "
    if row is None:
        start = f"{predicate}<{names.nodes}"
        return lambda handle: f"{start}{handle}> .\n"
    datatype, lexical = ox.NamedNode(row.datatype), row.lexical
    start = f'{predicate}"'
    end = str(ox.Literal("", datatype=datatype)).removeprefix('"') + " .\n"
    if not row.escaped:  # numbers, dates and truth values: plain ASCII
        return lambda value: f"{start}{lexical(value)}{end}"

    def encode(value: object) -> str:
        text = lexical(value)
        if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
            return f"{start}{text}{end}"
        return f"{predicate}{ox.Literal(text, datatype=datatype)} .\n"

    return encode


class Terms:
    """Writes and reads the statements of one graph under one schema."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self.schema = schema
        self.names = names
        self._types = {each.name: _TypeTerms(schema, each.name, names) for each in schema.types}

    # --- writing ---------------------------------------------------------------

    def subject(self, handle: str) -> str:
        """A node as a term; a handle is percent-encoded, so it needs no escaping."""
        return f"<{self.names.nodes}{handle}>"

    def statements(self, state: NodeState) -> list[str]:
        """All statements of a node."""
        terms = self._types[state.type]
        subject = self.subject(state.handle)
        lines = [subject + line for line in terms.class_lines]
        for name, value in state.values.items():
            encode, many = terms.encoders[name]
            if many:
                lines += [subject + encode(item) for item in value]  # type: ignore[attr-defined]
            else:
                lines.append(subject + encode(value))
        return lines

    def values(self, state: NodeState) -> Iterator[tuple[str, object, str]]:
        """Each value of a node, and each item of a list: field, value and statement."""
        terms, subject = self._types[state.type], self.subject(state.handle)
        for name, value in state.values.items():
            encode, many = terms.encoders[name]
            for item in value if many else (value,):  # type: ignore[attr-defined]
                yield name, item, subject + encode(item)

    def difference(
        self, before: NodeState | None, after: NodeState | None, former: Terms | None = None
    ) -> tuple[list[str], list[str]]:
        """The statements to remove and to add between two states of a node.

        ``former`` wrote the state before, where the types have changed since.
        """
        if before is None:
            return [], [] if after is None else self.statements(after)
        if after is None:
            return (former or self).statements(before), []
        if before.values == after.values and former is None:
            return [], []
        old, new = (former or self).statements(before), self.statements(after)
        kept = set(old).intersection(new)
        return (
            [line for line in old if line not in kept],
            [line for line in new if line not in kept],
        )

    # --- reading ---------------------------------------------------------------

    def parse(self, text: bytes | IO[bytes]) -> Iterator[ox.Quad]:
        """The statements of N-Quads text."""
        return read_statements(text)

    def handle_of(self, subject: object) -> str | None:
        """The handle of a node's IRI, or None for anything else."""
        iri = subject.value if isinstance(subject, ox.NamedNode) else ""
        nodes = self.names.nodes
        if not iri.startswith(nodes):
            return None
        handle = iri[len(nodes) :]
        return handle if handle.partition("/")[0] in self._types else None

    def describes(self, quad: ox.Quad) -> bool:
        """Whether a statement says something that a declared type can hold."""
        handle = self.handle_of(quad.subject)
        if handle is None or not isinstance(quad.graph_name, ox.DefaultGraph):
            return False
        terms = self._types[handle.partition("/")[0]]
        if quad.predicate.value == RDF_TYPE:
            return getattr(quad.object, "value", None) in terms.classes
        field = terms.fields.get(quad.predicate.value)
        return field is not None and self._read(field, quad.object) is not None

    def field_of(self, handle: str, predicate: str) -> PredicateDescriptor | None:
        """The declared field of a node that a predicate names."""
        return self._types[handle.partition("/")[0]].fields.get(predicate)

    def changes(self, removed: Iterable[ox.Quad], added: Iterable[ox.Quad]) -> dict[str, Change]:
        """Group statements by node; what fits no declared field or kind is left out."""
        found: dict[str, Change] = {}
        for quads, adding in ((removed, False), (added, True)):
            for quad in with_pauses(quads):
                handle = self.handle_of(quad.subject)
                if handle is not None:
                    change = found.get(handle)
                    if change is None:
                        change = found[handle] = Change()
                    self._note(change, self._types[handle.partition("/")[0]], quad, adding=adding)
        return found

    def _note(self, change: Change, terms: _TypeTerms, quad: ox.Quad, *, adding: bool) -> None:
        predicate = quad.predicate.value
        if predicate == RDF_TYPE:
            if getattr(quad.object, "value", None) == terms.main_class:
                change.new, change.gone = (True, change.gone) if adding else (change.new, True)
            return
        field = terms.fields.get(predicate)
        if field is None:
            return
        value = self._read(field, quad.object)
        if value is not None:
            side = change.added if adding else change.removed
            side.setdefault(field.name, []).append(value)

    def _read(self, field: PredicateDescriptor, term: object) -> object:
        row = field.type.scalar.row
        if row is None:
            return self.handle_of(term)
        if not isinstance(term, ox.Literal) or term.datatype.value != row.datatype:
            return None
        return _parse(row, term.value)

    def state_after(
        self, handle: str, before: NodeState | None, change: Change
    ) -> NodeState | None:
        """Fold a change onto a node; None when there is no node afterwards."""
        if before is None and not change.new:
            return None
        if change.gone and not change.new:
            return None
        type_name, identifier = split_handle(handle)
        values = dict(before.values) if before is not None else {}
        for field in self.schema.by_name[type_name].fields:
            gone, come = change.removed.get(field.name), change.added.get(field.name)
            if gone is None and come is None:
                continue
            if field.many:
                current = values.get(field.name, ())
                merged = set(current).difference(gone or ()).union(come or ())  # type: ignore[call-overload]
                row = field.type.scalar.row
                value: object = tuple(sorted(merged, key=row.sort_key if row else None))
                keep = bool(merged)
            elif come is not None:
                value, keep = come[-1], True
            else:
                value = values.get(field.name)
                keep = value is not None and value not in (gone or ())
            if keep:
                values[field.name] = value
            else:
                values.pop(field.name, None)
        return NodeState(type_name, identifier, values)


def _parse(row: Kind, text: str) -> object:
    try:
        return row.parse(text)
    except (ValueError, ArithmeticError):
        return None
