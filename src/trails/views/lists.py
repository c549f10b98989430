r"""Ordered lists in RDF: one statement in the log, a standard ``rdf:List`` in stores and files.

A list changes as a whole, so the log has one statement for it, whose literal holds the items::

    <Recipe/bread> :steps "{\"@type\":\"…\",\"@list\":[\"Mix\",\"Bake\"]}"^^trails:list .

Folding, differences, merge, blame and visibility then treat it like any single value. A store gets
cells instead (``expand``), so that SPARQL can ask for the items::

    <Recipe/bread> :steps <Recipe/bread#steps/0000000> .
    <Recipe/bread#steps/0000000> rdf:first "Mix" ; rdf:rest <Recipe/bread#steps/0000001> .
    <Recipe/bread#steps/0000001> rdf:first "Bake" ; rdf:rest rdf:nil .

A cell is named after node, field and position, so the same list has the same statements
everywhere, and the names of cells sort like the items. ``read_list`` reads a list back, whatever
its cells are called: from an update, a file or a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import quote, unquote

import msgspec
import pyoxigraph as ox

from trails.model.iris import RDF_FIRST, RDF_NIL, RDF_REST, TRAILS, Names

CELL_PREDICATES: Final = frozenset({RDF_FIRST, RDF_REST})
PACKED: Final = TRAILS + "list"
"""The datatype of a list as one literal."""
_MARK: Final = f"^^<{PACKED}> .".encode()
_REFERENCE: Final = "@id"
"""In place of a datatype: the items are IRIs."""
_DIGITS: Final = 7
"""Of a position: a node has room for fewer than ten million items."""

Item = ox.NamedNode | ox.Literal


class PackedList(msgspec.Struct, frozen=True):
    """The content of a literal; the order of its members is part of the form."""

    datatype: str = msgspec.field(name="@type")
    items: list[str] = msgspec.field(name="@list")
    """The texts of the literals, or the IRIs."""

    def terms(self) -> Iterator[Item]:
        """The items as RDF terms."""
        if self.datatype == _REFERENCE:
            yield from map(ox.NamedNode, self.items)
            return
        datatype = ox.NamedNode(self.datatype)
        yield from (ox.Literal(each, datatype=datatype) for each in self.items)


_decode = msgspec.json.Decoder(PackedList).decode


def pack(datatype: str | None, items: list[str]) -> str:
    """The literal of a list; without a datatype the items are IRIs."""
    return msgspec.json.encode(PackedList(datatype or _REFERENCE, items)).decode()


def unpack(term: object) -> PackedList | None:
    """The list in a literal, or None for any other term."""
    if not isinstance(term, ox.Literal) or term.datatype.value != PACKED:
        return None
    try:
        return _decode(term.value)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


# --- cells ---------------------------------------------------------------------------------


def cell_names(node: str, predicate: str) -> Iterator[str]:
    """The IRIs of a list's cells, without end: ``<node>#steps/0000000`` and so on.

    A field with a predicate of another vocabulary is named by that predicate, escaped.
    """
    base = node.rsplit("/", 2)[0]
    local = predicate.removeprefix(f"{base}/schema#")
    start = f"{node}#{local if local.isidentifier() else quote(predicate, safe='')}/"
    at = 0
    while True:
        yield f"{start}{at:0{_DIGITS}}"
        at += 1


def owner_of(cell: str, names: Names) -> tuple[str, str] | None:
    """(IRI of the node, predicate) of the list that a cell's IRI belongs to; None for others."""
    node, hash_, fragment = cell.partition("#")
    field, slash, position = fragment.rpartition("/")
    if not (hash_ and slash and position.isdigit() and node.startswith(names.nodes)):
        return None
    return node, unquote(field) if "%" in field else names.vocabulary + field


def cells_of(node: str, predicate: str, items: Iterable[Item]) -> Iterator[ox.Quad]:
    """The statements of a list with its cells."""
    called = map(ox.NamedNode, cell_names(node, predicate))
    owner, link = ox.NamedNode(node), ox.NamedNode(predicate)
    for item, cell in zip(items, called, strict=False):
        yield ox.Quad(owner, link, cell)
        yield ox.Quad(cell, ox.NamedNode(RDF_FIRST), item)
        owner, link = cell, ox.NamedNode(RDF_REST)
    yield ox.Quad(owner, link, ox.NamedNode(RDF_NIL))


class _Parse(Protocol):
    def __call__(self, source: bytes, /, *, lenient: bool) -> Iterator[ox.Quad]: ...


def expand(lines: bytes, parse: _Parse) -> bytes:
    """The statements of the log as a store has them: every list as cells."""
    if _MARK not in lines:
        return lines
    return b"".join(
        _expanded(line, parse) if line.rstrip().endswith(_MARK) else line
        for line in lines.splitlines(keepends=True)
    )


def _expanded(line: bytes, parse: _Parse) -> bytes:
    for quad in parse(line, lenient=True):
        found = unpack(quad.object)
        if found is not None and isinstance(quad.subject, ox.NamedNode):
            cells = cells_of(quad.subject.value, quad.predicate.value, found.terms())
            return ox.serialize(cells, format=ox.RdfFormat.N_QUADS) or b""
    return line


# --- reading lists back --------------------------------------------------------------------


class ListError(ValueError):
    """Statements do not form a list; the text says why."""


Parts = Mapping[str, Sequence[object]]
"""``rdf:first`` and ``rdf:rest`` → what a cell has of each."""


def read_list(
    head: object, parts_of: Callable[[object], Parts]
) -> tuple[list[object], list[object]]:
    """The items of the list that begins at a term, and its cells."""
    items: list[object] = []
    cells: dict[object, None] = {}
    cell = head
    while not (isinstance(cell, ox.NamedNode) and cell.value == RDF_NIL):
        if cell in cells:
            raise ListError(f"{cell} is in it twice, so it has no end")
        parts = parts_of(cell)
        first, rest = parts.get(RDF_FIRST, ()), parts.get(RDF_REST, ())
        if not first and not rest:
            raise ListError(f"{cell} is not a list")
        if len(first) != 1 or len(rest) != 1:
            raise ListError(
                f"the cell {cell} has {len(first)} rdf:first and {len(rest)} rdf:rest, and needs "
                "one of each"
            )
        cells[cell] = None
        items.append(first[0])
        cell = rest[0]
    return items, list(cells)


class Cells:
    """Statements about cells, by cell."""

    def __init__(self) -> None:
        self._parts: dict[object, dict[str, list[object]]] = {}

    def add(self, quad: ox.Quad) -> None:
        """Add a statement with ``rdf:first`` or ``rdf:rest``."""
        values = self._parts.setdefault(quad.subject, {}).setdefault(quad.predicate.value, [])
        if quad.object not in values:
            values.append(quad.object)

    def discard(self, quad: ox.Quad) -> None:
        """Remove a statement, if it is there."""
        values = self._parts.get(quad.subject, {}).get(quad.predicate.value, [])
        if quad.object in values:
            values.remove(quad.object)

    def parts(self, cell: object) -> Parts:
        """What is stated about one cell."""
        return self._parts.get(cell, {})
