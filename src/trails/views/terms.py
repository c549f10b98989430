"""Nodes ↔ RDF statements in the form in which the RDF library writes them.

Compiled once for a schema and a graph's names. A node's type is the first part of its IRI, so a
statement can be read without asking any store. The RDF parser takes no token of more than 16 MiB;
nodes can't hold such texts any more, but the log may have older ones: their lines are read here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import IO, Final, cast

import pyoxigraph as ox

from trails.model.fairness import give_way, with_pauses
from trails.model.iris import RDF_TYPE, XSD, Names
from trails.model.nodes import MAX_NODE, NodeState, split_handle
from trails.model.types import PredicateDescriptor, Schema
from trails.model.values.lang_texts import LangText
from trails.views.lines import Change, Lines, TypeLines, UnusualError, parsed
from trails.views.lists import PACKED, expand, pack, unpack

_BLOCK: Final = 1 << 20
_LONGEST: Final = 16 << 20
"""Bytes of a token, and so of a line, that the parser always takes are fewer than these."""
_line = re.compile(
    rb'<([^>]*)> <([^>]*)> "(.*)"(?:\^\^<([^>]*)>|@([a-z0-9-]+))? \.', re.DOTALL
).fullmatch
_escapes = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SHORT: Final = {b"t": b"\t", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"f": b"\f"}


def stored_form(text: bytes) -> bytes:
    """Statements of the log as a store has them: every ordered list as an ``rdf:List``."""
    return expand(text, read_statements)


def load_statements(store: ox.Store, text: bytes) -> None:
    """Add many statements of the log to a store at once."""
    text = stored_form(text)
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
    for lines in _whole_lines(source, _BLOCK):
        yield from _parse_lines(lines, lenient=lenient)


def _whole_lines(source: bytes | IO[bytes], size: int) -> Iterator[bytes]:
    """A text in blocks that end with a line."""
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    begun: list[bytes] = []
    while block := stream.read(size):
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*begun, block[:end]])
            begun = []
        begun.append(block[end:])
    yield b"".join(begun)


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
    subject, predicate, text, datatype, tag = found.groups()
    value = _escapes.sub(_character, text).decode() if b"\\" in text else text.decode()
    literal = (
        ox.Literal(value, language=tag.decode())
        if tag
        else ox.Literal(
            value, datatype=ox.NamedNode(datatype.decode() if datatype else XSD + "string")
        )
    )
    return ox.Quad(ox.NamedNode(subject.decode()), ox.NamedNode(predicate.decode()), literal)


def _character(escape: re.Match[bytes]) -> bytes:
    code = escape[1] or escape[2]
    return _SHORT.get(escape[3], escape[3]) if code is None else chr(int(code, 16)).encode()


_SOME_LINES: Final = 1 << 17
"""Bytes of statements that are read at once, which takes a millisecond or two."""


Values = Mapping[str, object]
Encode = Callable[[object], str]
EncodeAll = Callable[[Sequence[str], Sequence[object]], list[str]]
"""Subjects and a value for each → the statements of each, as one text."""
_COLUMN: Final = 16
"""Nodes of a type from which it pays to go through them field by field."""
Tagged = tuple[str, str]
"""A language tag and a text."""


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
        self.columns: dict[str, EncodeAll] = {}
        self.fields: dict[str, PredicateDescriptor] = {}
        for field in descriptor.fields:
            iri = names.term(field.iri)
            encode = _list_encoder if field.ordered else _tag_encoder if field.tagged else _encoder
            each = field.is_set or field.tagged
            self.encoders[field.name] = (encode(field, iri, names), each)
            self.columns[field.name] = _column_encoder(
                field, iri, names, self.encoders[field.name][0]
            )
            self.fields[iri] = field
        self.lines = TypeLines(self.classes, self.main_class, self.fields)

    def ends(self, name: str, value: object) -> list[str]:
        """What follows the subject in the statements of a field."""
        encode, each = self.encoders[name]
        return [encode(item) for item in _statements_in(value)] if each else [encode(value)]

    def in_order(self, names: Sequence[str]) -> bool:
        """Whether some of the fields are in the order in which they are declared."""
        declared = iter(self.columns)
        return all(name in declared for name in names)


def _around(field: PredicateDescriptor, iri: str, names: Names) -> tuple[str, str]:
    """What a statement has before and after a handle, or the text of a literal."""
    row = field.type.scalar.row
    predicate = f" {ox.NamedNode(iri)} "
    if row is None:
        return f"{predicate}<{names.nodes}", "> .\n"
    end = str(ox.Literal("", datatype=ox.NamedNode(row.datatype))).removeprefix('"')
    return f'{predicate}"', f"{end} .\n"


def _encoder(field: PredicateDescriptor, iri: str, names: Names) -> Encode:
    """Value → what follows the subject. What can't need escaping is spelled out here."""
    row = field.type.scalar.row
    start, end = _around(field, iri, names)
    if row is None:
        return lambda handle: f"{start}{handle}{end}"
    lexical = row.lexical
    if not row.escaped:  # numbers, dates and truth values: plain ASCII
        return lambda value: f"{start}{lexical(value)}{end}"

    def encode(value: object) -> str:
        text = lexical(value)
        return f"{start}{text if _is_plain(text) else _escaped(text)}{end}"

    return encode


def _is_plain(text: str) -> bool:
    """Whether a text, or several of them joined, is its own form in a literal."""
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


def _escaped(text: str) -> str:
    """A text between the quotes of a literal."""
    return str(ox.Literal(text))[1:-1]


def _column_encoder(
    field: PredicateDescriptor, iri: str, names: Names, encode: Encode
) -> EncodeAll:
    """The statements of one field of many nodes: what ``encode`` writes, in fewer steps."""
    if field.is_set or field.tagged:
        return lambda subjects, column: [
            "".join([subject + encode(item) for item in _statements_in(value)])
            for subject, value in zip(subjects, column, strict=True)
        ]
    if field.ordered:
        return lambda subjects, column: [
            subject + encode(value) for subject, value in zip(subjects, column, strict=True)
        ]
    row = field.type.scalar.row
    lexical = str if row is None else row.lexical
    is_escaped = row is not None and row.escaped
    start, end = _around(field, iri, names)

    def encode_all(subjects: Sequence[str], column: Sequence[object]) -> list[str]:
        texts = list(map(lexical, column))
        if is_escaped and not _is_plain("".join(texts)):
            texts = [text if _is_plain(text) else _escaped(text) for text in texts]
        return [
            f"{subject}{start}{text}{end}" for subject, text in zip(subjects, texts, strict=True)
        ]

    return encode_all


def _tag_encoder(field: PredicateDescriptor, iri: str, names: Names) -> Encode:
    """A language tag and a text → what follows the subject."""
    del field, names
    predicate = f" {ox.NamedNode(iri)} "

    def encode(value: object) -> str:
        tag, text = cast(Tagged, value)
        return f"{predicate}{ox.Literal(text, language=tag)} .\n"

    return encode


def _statements_in(value: object) -> Iterable[object]:
    """What a value has a statement for each of."""
    return value.items() if isinstance(value, LangText) else value  # type: ignore[return-value]


def _list_encoder(field: PredicateDescriptor, iri: str, names: Names) -> Encode:
    """The items of an ordered list → what follows the subject: one literal."""
    row = field.type.scalar.row
    predicate, packed = f" {ox.NamedNode(iri)} ", ox.NamedNode(PACKED)

    def encode(value: object) -> str:
        items: Iterable[object] = value  # type: ignore[assignment]
        if row is None:
            text = pack(None, [f"{names.nodes}{handle}" for handle in items])
        else:
            text = pack(row.datatype, list(map(row.lexical, items)))
        return f"{predicate}{ox.Literal(text, datatype=packed)} .\n"

    return encode


class Terms:
    """Writes and reads the statements of one graph under one schema."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self.schema = schema
        self.names = names
        self._reread: dict[tuple[str, str], frozenset[str]] = {}
        """Type, and the digest of another schema → the fields that it reads otherwise."""
        self._types = {each.name: _TypeTerms(schema, each.name, names) for each in schema.types}
        self._lines = Lines(names.nodes, {name: each.lines for name, each in self._types.items()})

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
            lines += [subject + end for end in terms.ends(name, value)]
        return lines

    def new_statements(self, nodes: Mapping[str, NodeState]) -> tuple[str, int]:
        """All statements of many nodes, by handle, and how many they are.

        The text is that of ``statements``, made for one field of all nodes at a time.
        """
        texts, total = list[str](), 0
        for type_name, group in groupby(nodes.items(), lambda node: node[1].type):
            some = list(group)
            terms = self._types[type_name]
            shapes = {tuple(state.values) for _, state in some}
            if len(some) >= _COLUMN and all(map(terms.in_order, shapes)):
                text = self._columns(terms, some)
                texts.append(text)
                total += text.count("\n")  # those in literals are escaped
            else:
                lines = [line for _, state in some for line in self.statements(state)]
                texts += lines
                total += len(lines)
        return "".join(texts), total

    def _columns(self, terms: _TypeTerms, nodes: Sequence[tuple[str, NodeState]]) -> str:
        """The statements of nodes of one type, whose values are in the order of its fields."""
        columns = self._by_field(terms, [(handle, state.values) for handle, state in nodes])
        return "".join(chain.from_iterable(zip(*columns, strict=True)))

    def unordered(self, type_name: str, nodes: Sequence[tuple[str, Values]]) -> Iterator[str]:
        """All statements of nodes of one type, by handle: a text for each class and field.

        LookupError if a node has a field that the type has not.
        """
        terms = self._types[type_name]
        for shape in {tuple(values) for _, values in nodes}:
            if not terms.columns.keys() >= set(shape):
                raise LookupError(f"{type_name} has not all of the fields {', '.join(shape)}")
        yield from map("".join, self._by_field(terms, nodes))

    def _by_field(
        self, terms: _TypeTerms, nodes: Sequence[tuple[str, Values]]
    ) -> Iterator[list[str]]:
        """For each class and field the statements of each node."""
        subjects = [f"<{self.names.nodes}{handle}>" for handle, _ in nodes]
        for line in terms.class_lines:
            yield [subject + line for subject in subjects]
        for name, encode_all in terms.columns.items():
            column = [values.get(name) for _, values in nodes]
            if None in column:
                given = [at for at, value in enumerate(column) if value is not None]
                written = encode_all([subjects[at] for at in given], [column[at] for at in given])
                texts = dict(zip(given, written, strict=True))
                yield [texts.get(at, "") for at in range(len(nodes))]
            else:
                yield encode_all(subjects, column)

    def values(self, state: NodeState) -> Iterator[tuple[str, object, str]]:
        """Each value of a node, member of a set and text of a language, with its statement."""
        terms, subject = self._types[state.type], self.subject(state.handle)
        for name, value in state.values.items():
            encode, each = terms.encoders[name]
            for item in _statements_in(value) if each else (value,):
                shown = LangText.of(dict((item,))) if isinstance(value, LangText) else item  # type: ignore[arg-type]
                yield name, shown, subject + encode(item)

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
        if former is None:
            return self._changed(before, after)
        old, new = former.statements(before), self.statements(after)
        kept = set(old).intersection(new)
        if former is not self:
            kept -= self._read_otherwise(before, after, former)
        return (
            [line for line in old if line not in kept],
            [line for line in new if line not in kept],
        )

    def _changed(self, before: NodeState, after: NodeState) -> tuple[list[str], list[str]]:
        """The statements by which two states of a node differ, of the fields that differ."""
        was, now = before.values, after.values
        if was == now:
            return [], []
        held = was.get
        changed = [name for name, value in now.items() if held(name) is not value]
        if was.keys() <= now.keys():
            lost = [name for name in changed if name in was]
        else:
            lost = [name for name, value in was.items() if now.get(name) is not value]
        terms, subject = self._types[after.type], self.subject(after.handle)
        old = [subject + end for name in lost for end in terms.ends(name, was[name])]
        new = [subject + end for name in changed for end in terms.ends(name, now[name])]
        kept = set(old).intersection(new)
        if kept:
            old = [line for line in old if line not in kept]
            new = [line for line in new if line not in kept]
        return old, new

    def _read_otherwise(self, before: NodeState, after: NodeState, former: Terms) -> set[str]:
        """Statements whose text stays, and that the two schemas read as different values.

        They are removed and added again: whoever follows the log reads each side with its types.
        """
        if before.type != after.type:
            return set()
        known = (before.type, former.schema.digest)
        changed = self._reread.get(known)
        if changed is None:
            was, now = (each.by_name[before.type].by_name for each in (former.schema, self.schema))
            changed = self._reread[known] = frozenset(
                name
                for name, field in now.items()
                if name in was and _sort(was[name]) != _sort(field)
            )
        if changed.isdisjoint(after.values):
            return set()
        return {line for name, _, line in self.values(after) if name in changed}

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
        if "#" in handle:  # a cell of a list
            return None
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

    def read_changes(self, text: IO[bytes], *, adding: bool) -> Iterator[dict[str, Change]]:
        """What statements of a log add or remove, as ``changes`` has it, in parts.

        A part with unusual lines goes through the parser.
        """
        for lines in _whole_lines(text, _SOME_LINES):
            give_way()
            try:
                yield self._lines.read(lines.decode(), adding=adding)
            except UnusualError:
                quads = _parse_lines(lines, lenient=False)
                yield self.changes((), quads) if adding else self.changes(quads, ())

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
        if field.ordered:
            packed = unpack(term)
            return None if packed is None else self.read_items(field, packed.terms())
        return self._read_one(field, term)

    def read_items(
        self, field: PredicateDescriptor, items: Iterable[object]
    ) -> tuple[object, ...] | None:
        """The values of an ordered list; None if one of them is not of the field's kind."""
        values = tuple(self._read_one(field, each) for each in items)
        return None if None in values else values

    def list_statement(
        self, state: NodeState, field: PredicateDescriptor, handle: str | None = None
    ) -> ox.Quad:
        """The one statement of an ordered list that a node has."""
        encode, _ = self._types[state.type].encoders[field.name]
        line = self.subject(handle or state.handle) + encode(state.values[field.name])
        (quad,) = read_statements(line.encode())
        return quad

    def _read_one(self, field: PredicateDescriptor, term: object) -> object:
        row = field.type.scalar.row
        if row is None:
            return self.handle_of(term)
        if row.tagged:
            tag = term.language if isinstance(term, ox.Literal) else None
            return None if tag is None else (tag, term.value)  # type: ignore[attr-defined]
        if not isinstance(term, ox.Literal) or term.datatype.value != row.datatype:
            return None
        return parsed(row.parse, term.value)

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
            if field.is_set:
                current = values.get(field.name, ())
                merged = set(current).difference(gone or ()).union(come or ())  # type: ignore[call-overload]
                row = field.type.scalar.row
                value: object = tuple(sorted(merged, key=row.sort_key if row else None))
                keep = bool(merged)
            elif field.tagged:
                texts = dict(values.get(field.name) or {})  # type: ignore[call-overload]
                for tag, text in cast(list[Tagged], gone or ()):
                    if texts.get(tag) == text:
                        del texts[tag]
                value = LangText.of(texts | dict(come or ()))  # type: ignore[arg-type]
                keep = value is not None
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


def _sort(field: PredicateDescriptor) -> tuple[str, bool, bool]:
    """What decides how a statement of a field is read."""
    return field.type.scalar.kind, field.many, field.ordered
