"""Filters: conditions on nodes as SQL.

A *check* is a condition on one node of a statement. A few keys are looked for one by one. Keys are
in the order of values and not of nodes, so of a range either all nodes are collected first, or
the value is read from the node's document. The former is exact and costs as much as the range has
keys; the latter costs the same for each node that is looked at, and what documents can't tell is
left open: such a check also holds for some more nodes, and the condition's test decides.

Types that a ``SchemaFilter`` takes out are checks too: a slot lists a type with everything that
extends it, and hidden rows are left out where they are found, so that pages are full and counts
are right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from trails.model.types import TypeDescriptor
from trails.model.visibility import SchemaFilter
from trails.views.nodes.conditions import CompiledCondition, DocumentTest, Ranges
from trails.views.nodes.file import marks
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import LayerSql
from trails.views.nodes.rows import LONG, PRESENT, after_prefix, slot_name

_FEW_KEYS: Final = 64
"""Keys that are looked for one by one, for each node."""
_MOST_KEYS: Final = 4_096
"""Keys that are listed in a statement; SQLite may take no more than 32,766 values."""
MOST_CHECKS: Final = 64
"""Conditions that one statement checks."""
_DEEPEST: Final = 10
"""How deeply checks may be nested; SQLite's parser has a small stack."""
_MOST_LOOKUPS: Final = 16
"""In how many places the nodes that a check follows references to may be looked up."""
_JSON: Final = "CAST(substr(n.doc, 1, length(n.doc) - 4) AS TEXT)"
"""The document of a row without its checksum."""
_HAS_LONG_TEXTS: Final = "substr(n.doc, 1, 1) = x'00'"
_REFERENCE: Final = (
    f"CASE WHEN length(n.handle) < {LONG} THEN CAST(x'01' || n.handle AS BLOB) "
    "ELSE reference_key(n.handle) END"
)
"""The key of a reference to a node ``n``; Python makes that of a long handle."""
_ALIASES: Final = re.compile(r"\b[kn]\b")

Sql = tuple[str, tuple[object, ...]]
"""A text and the values for its placeholders."""


class Check(msgspec.Struct, frozen=True):
    """A condition on a node, whose key or row is ``k`` and whose row is ``n``."""

    sql: Callable[[LayerSql], str]
    values: tuple[object, ...] = ()
    exact: bool = True
    """Whether it holds for exactly what the condition's test accepts, as far as it can see."""
    reads_document: bool = False
    """Whether it can't see what a document with long texts has."""
    in_row: bool = False
    """Whether it is a check of the node's row, and not of its keys."""
    depth: int = 0
    """How deeply it is nested."""
    size: int = 1
    """How many conditions it has."""


class ConditionSql:
    """Writes conditions as SQL, for one branch or snapshot."""

    def __init__(self, index: NodeIndex) -> None:
        self._number = index.file.slot_number
        self._layer_sql = index.layer_sql

    # --- keys ----------------------------------------------------------------------

    def keys(self, tree: CompiledCondition, alias: str = "k") -> Sql | None:
        """The keys that matching nodes have, where they are of one slot."""
        ranges = tree.ranges
        if ranges is None:
            return None
        number = self._number(ranges.slot)
        if tree.op == "hop":
            targets = self._targets(tree)
            if targets is None:
                return None
            return f"{alias}.sid = ? AND {alias}.key IN ({targets[0]})", (number, *targets[1])
        spans = ranges.spans
        if ranges.point:
            return f"{alias}.sid = ? AND {alias}.key = ?", (number, spans[0][0])
        if len(spans) == 1:
            text = f"{alias}.sid = ? AND {alias}.key >= ? AND {alias}.key < ?"
            return text, (number, *spans[0])
        if len(spans) > _MOST_KEYS:
            return None
        text = f"{alias}.sid = ? AND {alias}.key IN ({marks(len(spans))})"
        return text, (number, *(low for low, _ in spans))

    def _targets(self, tree: CompiledCondition) -> Sql | None:
        """The keys of references to what the last part of a path allows, followed back to here."""
        hops: list[Ranges] = []
        inner = tree.parts[0]
        while inner.op == "hop" and inner.ranges is not None:
            hops.append(inner.ranges)
            inner = inner.parts[0]
        keys = self.keys(inner)
        if keys is None:
            return None
        tables: list[str] = []
        values: list[object] = []
        for at, ranges in enumerate([None, *reversed(hops)]):
            if ranges is not None:
                keys = (
                    f"k.sid = ? AND k.key IN (SELECT key FROM r{at - 1})",  # noqa: S608
                    (self._number(ranges.slot),),
                )
            parts = [
                f"SELECT {_REFERENCE} FROM {sql.keyed(joined=True)}{keys[0]}"  # noqa: S608
                for sql in self._layer_sql
            ]
            tables.append(f"r{at} (key) AS ({' UNION ALL '.join(parts)})")
            values += keys[1] * len(parts)
        return f"WITH {', '.join(tables)} SELECT key FROM r{len(hops)}", tuple(values)  # noqa: S608

    # --- checks --------------------------------------------------------------------

    def exact(self, tree: CompiledCondition) -> Check | None:
        """A check that holds for exactly what the test accepts, by keys; None if there is none."""
        if tree.op in _GROUPS:
            known = [each for part in tree.parts if (each := self.exact(part)) is not None]
            return _group(tree.op, known) if len(known) == len(tree.parts) else None
        if tree.ranges is None or not tree.ranges.exact:
            return None
        return self._keyed(tree, few=tree.op != "hop" and _are_points(tree.ranges))

    def _keyed(self, tree: CompiledCondition, *, few: bool) -> Check | None:
        keys = self.keys(tree, "p")
        if keys is None:
            return None
        text, form = keys[0], LayerSql.probe if few else LayerSql.among
        exact = tree.ranges is not None and tree.ranges.exact
        return Check(lambda sql: form(sql, text), keys[1], exact)

    def quick(self, tree: CompiledCondition, *, surely: bool = False) -> Check | None:
        """A check that costs little for each node; None if there is none.

        It holds for all nodes that the test accepts, and perhaps for more; ``surely``, it holds
        for none that the test refuses.
        """
        if tree.op == "not":
            part = self.quick(tree.parts[0], surely=not surely)
            return None if part is None else _group("not", [part])
        if tree.op in _GROUPS:
            quick = (self.quick(part, surely=surely) for part in tree.parts)
            known = [part for part in quick if part is not None]
            if len(known) == len(tree.parts):
                return _group(tree.op, known)
            # The parts that can't be checked are taken to hold, or surely not to hold.
            rest_decides = (tree.op == "or") is surely
            group = _group(tree.op, known) if rest_decides else None
            return None if group is None else msgspec.structs.replace(group, exact=False)
        ranges, document = tree.ranges, tree.document
        if ranges is not None and tree.op != "hop" and _are_points(ranges):
            return self._keyed(tree, few=True) if ranges.exact or not surely else None
        if document is None or (surely and not document.exact):
            return None
        path, otherwise = f'$."{document.field}"', int(not surely)
        if tree.op == "hop":
            return self._linked(tree, path, otherwise, surely=surely)
        if document.plain:
            return _found_in_bytes(document)
        text = document.sql.format(f"json_extract({_JSON}, ?)")
        whole = _unless_long(f"({text}) IS TRUE", otherwise)
        values = (path, *document.values)
        return Check(lambda _: whole, values, document.exact, reads_document=True, in_row=True)

    def _linked(
        self, tree: CompiledCondition, path: str, otherwise: int, *, surely: bool
    ) -> Check | None:
        """Whether a node refers to one that passes another check."""
        inner = self.quick(tree.parts[0], surely=surely)
        lookups = len(self._layer_sql) ** _hops(tree)
        if inner is None or tree.ranges is None or max(lookups, _hops(tree)) > _MOST_LOOKUPS:
            return None
        # References in a list are rows of their own; the one of a field is compared directly.
        many = tree.ranges.many
        source = f"json_each({_JSON}, ?) e CROSS JOIN " if many else ""
        handle = "e.value" if many else f"json_extract({_JSON}, ?)"
        alias = f"t{_hops(tree)}"
        parts = [
            "EXISTS (SELECT 1 FROM {source}"  # noqa: S608
            + _ALIASES.sub(alias, f"{sql.handled()}n.handle = {{handle}} AND {inner.sql(sql)}")
            + ")"
            for sql in self._layer_sql
        ]
        text = " OR ".join(parts).replace("{source}", source).replace("{handle}", handle)
        whole, values = _unless_long(f"({text})", otherwise), (path, *inner.values) * len(parts)
        exact = tree.ranges.exact and inner.exact and not inner.reads_document
        return Check(
            lambda _: whole, values, exact, reads_document=True, in_row=True, depth=inner.depth + 1
        )


def _are_points(ranges: Ranges) -> bool:
    return ranges.point or 1 < len(ranges.spans) <= _FEW_KEYS


def _hops(tree: CompiledCondition) -> int:
    """How many references a condition follows."""
    return 1 + _hops(tree.parts[0]) if tree.op == "hop" else 0


def _found_in_bytes(document: DocumentTest) -> Check:
    """A check of a field whose name occurs once in a document, which need not be parsed then.

    Quotes in a text are escaped, so a quoted name with a colon is a name. It is not looked for in
    the checksum.
    """
    name = f'"{document.field}":'.encode()
    value = document.plain.format("instr(n.doc, ?) + ?")
    text = f"(instr(n.doc, ?) BETWEEN 1 AND length(n.doc) - ? AND {document.sql.format(value)})"
    values = (name, len(name) + 4, name, len(name), *document.values)
    return Check(lambda _: text, values, document.exact, in_row=True)


def _unless_long(text: str, otherwise: int) -> str:
    """A condition on a document; one that has long texts can't be read by SQLite."""
    return f"CASE WHEN {_HAS_LONG_TEXTS} THEN {otherwise} ELSE {text} END"


_GROUPS: Final = {"and": " AND ", "or": " OR ", "not": ""}


def _group(op: str, parts: Sequence[Check]) -> Check | None:
    depth = 1 + max((part.depth for part in parts), default=_DEEPEST)
    size = sum(part.size for part in parts)
    if depth > _DEEPEST or size > MOST_CHECKS:
        return None
    start = "NOT (" if op == "not" else "("
    return Check(
        lambda sql: f"{start}{_GROUPS[op].join(part.sql(sql) for part in parts)})",
        values_of(parts),
        all(part.exact for part in parts),
        any(part.reads_document for part in parts),
        any(part.in_row for part in parts),
        depth,
        size,
    )


def fitting(checks: Iterable[Check | None]) -> list[Check | None]:
    """The same, as far as one statement has room for them."""
    left, found = MOST_CHECKS, list[Check | None]()
    for check in checks:
        fits = check is not None and check.size <= left
        left -= check.size if check is not None and fits else 0
        found.append(check if fits else None)
    return found


def values_of(checks: Sequence[Check]) -> tuple[object, ...]:
    """The values of checks that follow each other."""
    return tuple([value for check in checks for value in check.values])


def one_of(nids: Collection[int]) -> Check:
    """A check for some nodes."""
    numbers = msgspec.json.encode(sorted(nids)).decode()
    text = "k.nid IN (SELECT value FROM json_each(?))"
    return Check(lambda _: text, (numbers,))


class HiddenRows(msgspec.Struct, frozen=True):
    """Checks that leave out what an actor can't see; none where everything is seen."""

    checks: tuple[Check, ...] = ()
    edges: bool = False
    """Whether single edges are hidden, and not whole types alone."""

    @classmethod
    def of(
        cls, index: NodeIndex, schema_filter: SchemaFilter, descriptor: TypeDescriptor
    ) -> HiddenRows:
        """What is left out of the lists of a type."""
        family = index.schema.family(descriptor.name)
        hidden_spans = index.file.ranges(schema_filter.hidden.intersection(family))
        checks = [Check(_outside, span) for span in hidden_spans]
        partial = sorted(schema_filter.partial_edges.intersection(family))
        for name in partial:
            for end in ("source", "target"):
                target = index.schema.by_name[name].by_name[end].target or ""
                sid = index.file.slot_number(slot_name(name, (end,)))
                for hidden in sorted(
                    schema_filter.hidden.intersection(index.schema.family(target))
                ):
                    start = (PRESENT + f"{hidden}/".encode())[:LONG]
                    checks.append(Check(_not_among, (sid, start, after_prefix(start))))
        return cls(tuple(checks), edges=bool(partial))


NOTHING: Final = HiddenRows()


def _outside(sql: LayerSql) -> str:
    del sql
    return "NOT (k.nid >= ? AND k.nid < ?)"


def _not_among(sql: LayerSql) -> str:
    return f"NOT {sql.among('p.sid = ? AND p.key >= ? AND p.key < ?')}"
