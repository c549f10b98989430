"""Compare two node files that should hold the same states: one as it is, one folded anew.

States share most of their rows. So one state of each schema is compared row by row, and
every other by its difference from a neighbour: where nothing that could make them differ
lies between them, in either file, they are equal if the neighbours are. Keys are compared
with the documents that they are made of, each version once.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec

from trails.model.texts import count
from trails.model.types import Schema
from trails.views.nodes.file import marks
from trails.views.nodes.layers import (
    FOREVER,
    ROOT,
    ROOT_NAME,
    UNFINISHED,
    Layers,
    LayerSql,
    layer_sql_of,
)
from trails.views.nodes.long_texts import LongTexts
from trails.views.nodes.rows import Docs, Extract, all_slots, docs_of, unseal

_HANDLES: Final = 200
_SHOWN: Final = 3
UNREADABLE: Final = (
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    msgspec.MsgspecError,
)
# When a layer began or ceased to show a version of a node, or to hide its parent's.
_MOVES: Final = f"""
CREATE TEMP TABLE moves AS
SELECT {ROOT} AS layer, seq AS at, handle FROM nodes WHERE seq > ?
UNION ALL SELECT layer, seq, handle FROM rows
UNION ALL SELECT layer, until, handle FROM rows WHERE until < {FOREVER}
UNION ALL SELECT h.layer, h.seq, coalesce(
    (SELECT n.handle FROM nodes n WHERE n.nid = h.nid),
    (SELECT r.handle FROM rows r WHERE r.nid = h.nid AND r.layer IN (SELECT layer FROM layers))
) FROM hides h
"""  # noqa: S608 - constants


class States:
    """The states in one node file, as one connection sees them."""

    def __init__(self, db: sqlite3.Connection, schema_of: Callable[[str], Schema]) -> None:
        self._db = db
        self._schema_of = schema_of
        self.layers = Layers.read(db)
        half = db.execute("SELECT value FROM meta WHERE name = 'half_folded'").fetchone()
        if half is not None and half[0]:
            del self.layers.refs[ROOT_NAME]  # it is on the way from one state to another
        for name in [each for each in self.layers.refs if each.startswith(UNFINISHED)]:
            del self.layers.refs[name]
        self._types: dict[int, str] = dict(db.execute("SELECT tid, name FROM types"))
        self._slots: dict[str, int] = dict(db.execute("SELECT name, sid FROM slots"))
        self._has_moves = False
        self.texts: _Texts = LongTexts(), db

    def wrong_texts(self) -> int:
        """How many long texts are not what was stored."""
        return self.texts[0].wrong(self._db)

    def close(self) -> None:
        """Remove what comparing needed."""
        self._db.execute("DROP TABLE IF EXISTS temp.moves")

    # --- what there is -----------------------------------------------------------------

    def schema(self, name: str) -> Schema:
        """The types with which a state is read."""
        digest = self.layers[self.layers.refs[name]].schema
        return self._schema_of(digest) if digest else Schema()

    def lineage(self, name: str) -> list[tuple[int, int]]:
        """The layers over which a state is spread, nearest first."""
        return self.layers.lineage(self.layers.refs[name])

    def groups(self) -> Iterator[list[str]]:
        """The states of each schema, those next to each other that share most of their layers."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.layers.refs:
            found[self.schema(name).digest].append(name)
        for names in found.values():
            yield sorted(names, key=self._place)

    def _place(self, name: str) -> tuple[list[tuple[int, int]], str]:
        steps = [(layer, -bound) for layer, bound in reversed(self.lineage(name))]
        return steps, name

    def commit(self, name: str) -> str:
        """The commit that a state says it is at."""
        return self.layers[self.layers.refs[name]].position.commit

    def counts(self, name: str) -> dict[str, int]:
        """How many nodes of each type a state says that it has."""
        live = self.layers[self.layers.refs[name]].live
        return {self._types.get(tid, str(tid)): count for tid, count in live.items() if count}

    def documents(self, name: str) -> Iterator[tuple[str, bytes]]:
        """(handle, document) of all nodes of a state, in the order of handles."""
        parts = [
            self._db.execute(f"SELECT n.handle, n.doc FROM {sql.handled()}1 ORDER BY n.handle")  # noqa: S608
            for sql in self._layer_sql(name)
        ]
        return merge(*parts, key=itemgetter(0))

    def find(self, name: str, handles: Iterable[str]) -> dict[str, list[bytes]]:
        """Handle → the documents that a state has under it: one, if all is well, or none."""
        found: dict[str, list[bytes]] = {handle: [] for handle in handles}
        wanted = list(found)
        for at in range(0, len(wanted), _HANDLES):
            some = wanted[at : at + _HANDLES]
            for sql in self._layer_sql(name):
                query = (
                    f"SELECT n.handle, n.doc FROM {sql.handled()}"  # noqa: S608
                    f"n.handle IN ({marks(len(some))})"
                )
                for handle, doc in self._db.execute(query, some):
                    found[handle].append(doc)
        return found

    def _layer_sql(self, name: str) -> tuple[LayerSql, ...]:
        return layer_sql_of(self.lineage(name))

    # --- the root, row by row ------------------------------------------------------------

    def root_rows(self) -> Iterator[tuple[int, str, bytes]]:
        """(number, handle, document) of all nodes of the root, type by type."""
        return self._db.execute("SELECT nid, handle, doc FROM nodes NOT INDEXED ORDER BY nid")

    def root_schemas(self) -> dict[str, Schema]:
        """The schemas with which nodes of the root are read, by digest."""
        read = (self.schema(name) for name in self.layers.refs)
        return {schema.digest: schema for schema in read}

    def handle_rows(self) -> tuple[Iterator[tuple[str]], Iterator[tuple[str]]]:
        """The handle and number of each node: as the table has them, and the index of handles."""
        query = "SELECT handle || ':' || nid FROM nodes "
        index = "INDEXED BY sqlite_autoindex_nodes_1 ORDER BY handle"
        return self._db.execute(f"{query}NOT INDEXED"), self._db.execute(f"{query}{index}")

    def slot(self, name: str) -> int:
        """The number of a slot; -1, which no row has, if it has none."""
        return self._slots.get(name, -1)

    def key_rows(self, sid: int) -> Iterator[tuple[bytes]]:
        """The keys of the root in a slot, each with the number of its node."""
        query = "SELECT CAST(key || '/' || nid AS BLOB) FROM keys WHERE sid = ?"
        return self._db.execute(query, (sid,))

    # --- what may be different ---------------------------------------------------------

    def between(self, one: str, other: str) -> set[str]:
        """The handles under which two states may differ; all others show the same rows in both."""
        self._collect_moves()
        ours, theirs = dict(self.lineage(one)), dict(self.lineage(other))
        found: set[str] = set()
        for layer in ours.keys() | theirs.keys():
            bounds = ours.get(layer), theirs.get(layer)
            if bounds[0] == bounds[1]:
                continue
            low, high = (-1, FOREVER) if None in bounds else sorted(each or 0 for each in bounds)
            query = "SELECT handle FROM moves WHERE layer = ? AND at > ? AND at <= ?"
            rows = self._db.execute(query, (layer, low, high))
            found.update(handle for (handle,) in rows if handle is not None)
        return found

    def _collect_moves(self) -> None:
        if self._has_moves:
            return
        oldest = min(dict(self.lineage(name))[ROOT] for name in self.layers.refs)
        self.close()  # of a comparison before this one
        self._db.execute(_MOVES, (oldest,))
        self._db.execute("CREATE INDEX temp.moves_at ON moves (layer, at)")
        self._has_moves = True

    # --- keys ----------------------------------------------------------------------------

    def wrong_keys(self, *, of_root: bool = True) -> Iterator[str]:
        """The handles of nodes whose keys are not those of their documents, where that is seen.

        ``of_root``: also of nodes that the root has now.
        """
        readers: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for name in self.layers.refs:
            for layer, _ in self.lineage(name):
                readers[layer][self.schema(name).digest].append(name)
        known: dict[str, _Keys] = {}
        for layer, nid, seq, until, handle, doc, keys in self._versions(of_root=of_root):
            for digest, names in readers[layer].items():
                if digest not in known:
                    known[digest] = _Keys(self._schema_of(digest), self._slots, self.texts)
                if known[digest].fit(handle, doc, keys):
                    continue
                place = layer, nid, seq
                if any(self._is_seen(name, place, until, handle) for name in names):
                    yield handle or f"the node with number {nid}"
                    break

    def _versions(self, *, of_root: bool) -> Iterator[_Version]:
        """Every version of every node, with its keys; keys without a node have no handle."""
        if of_root:
            yield from self._root_versions()
        yield from self._other_versions()

    def _root_versions(self) -> Iterator[_Version]:
        nodes = self._db.execute("SELECT nid, seq, handle, doc FROM nodes ORDER BY nid")
        keys = self._db.execute("SELECT nid, sid, key FROM keys ORDER BY nid")
        for (nid,), row, some in _joined(nodes, keys, 1):
            seq, handle, doc = row or (0, "", b"")
            yield ROOT, nid, seq, None, handle, doc, some

    def _other_versions(self) -> Iterator[_Version]:
        rows = self._db.execute(
            "SELECT layer, nid, seq, until, handle, doc FROM rows ORDER BY layer, nid, seq"
        )
        keys = self._db.execute(
            "SELECT layer, nid, seq, until, sid, key FROM row_keys ORDER BY layer, nid, seq"
        )
        for (layer, nid, seq), row, some in _joined(rows, keys, 3):
            until, handle, doc = row or (FOREVER, "", b"")
            # A key that ends at another time than its node is none of its keys.
            own = [(sid, key) for end, sid, key in some if end == until]
            yield layer, nid, seq, until, handle, doc, own

    def _is_seen(
        self, name: str, place: tuple[int, int, int], until: int | None, handle: str
    ) -> bool:
        """Whether a state shows a version, or reads keys that belong to none."""
        for sql in self._layer_sql(name):
            if sql.layer != place[0] or (until is None) != (not sql.fixed):
                continue
            if handle:
                query = f"SELECT 1 FROM {sql.noded()}n.nid = ? AND n.seq = ?"  # noqa: S608
            elif sql.fixed:
                query = f"SELECT 1 FROM {sql.keyed()}k.nid = ? AND k.seq = ?"  # noqa: S608
            else:
                return not sql.needs_node
            if self._db.execute(query, place[1:]).fetchone() is not None:
                return True
        return False


_Texts = tuple[LongTexts, sqlite3.Connection]
_Sides = tuple[list[bytes], list[bytes]]
"""The documents of ours, and of the fresh file."""
_Version = tuple[int, int, int, int | None, str, bytes, list[tuple[int, bytes]]]
_Row = tuple[Any, ...]


class _Keys:
    """Which keys a node has under a schema, by the numbers that one file gives to slots."""

    def __init__(self, schema: Schema, numbers: dict[str, int], texts: _Texts) -> None:
        self._docs = docs_of(schema)
        self._texts = texts
        self._plans: dict[str, list[tuple[Extract, list[int]]]] = {}
        self._wanted: set[int] = set()
        for type_name, slots in all_slots(schema).items():
            plan: dict[Extract, list[int]] = {}
            for slot in slots:
                plan.setdefault(slot.extract, []).append(numbers.get(slot.name, -1))
            self._plans[type_name] = list(plan.items())
            self._wanted.update(*plan.values())

    def fit(self, handle: str, doc: bytes, keys: list[tuple[int, bytes]]) -> bool:
        """Whether these, of all slots that the schema has, are the keys of a document."""
        given = {key for key in keys if key[0] in self._wanted}
        type_name = handle.partition("/")[0]
        if not handle:
            return not given
        try:
            values = self._docs.decode(type_name, unseal(handle, doc), *self._texts)
            return given == {
                (sid, key)
                for extract, sids in self._plans[type_name]
                for key in extract(values)
                for sid in sids
            }
        except UNREADABLE:
            return False


def _joined(
    rows: Iterable[_Row], keys: Iterable[_Row], width: int
) -> Iterator[tuple[_Row, _Row | None, list[_Row]]]:
    """Rows with the keys that begin with the same columns; both come in their order."""
    parts = merge(
        ((row[:width], 0, row[width:]) for row in rows),
        ((key[:width], 1, key[width:]) for key in keys),
        key=itemgetter(0, 1),
    )
    for place, some in groupby(parts, key=itemgetter(0)):
        row: _Row | None = None
        found: list[_Row] = []
        for _, is_key, rest in some:
            if is_key:
                found.append(rest)
            else:
                row = rest
        yield place, row, found


class Differences(msgspec.Struct):
    """What comparing found."""

    rows: int = 0
    """How many rows were looked at."""
    problems: list[str] = msgspec.field(default_factory=list)


def compare(ours: States, fresh: States) -> Differences:
    """Compare every state that a file has with the same state folded anew."""
    found = Differences()
    for names in ours.groups():
        docs = docs_of(ours.schema(names[0]))
        for at, name in enumerate(names):
            if at == 0:
                rows, differing = _compare_whole(ours, fresh, name, docs)
            else:
                rows, differing = _compare_between(ours, fresh, names[at - 1], name, docs)
            found.rows += rows
            if differing:
                found.problems.append(f"{differing} of {rows} rows of {name} differ from the log")
            if ours.counts(name) != fresh.counts(name):
                found.problems.append(f"the numbers of nodes of {name} differ from the log")
    damaged = ours.wrong_texts()
    if damaged:
        found.problems.append(f"{count(damaged, 'long text')} can't be read, or changed")
    wrong = list(ours.wrong_keys())
    if wrong:
        shown = ", ".join(wrong[:_SHOWN])
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        found.problems.append(f"keys of {shown}{more} are not those of their values")
    return found


def _compare_whole(ours: States, fresh: States, name: str, docs: Docs) -> tuple[int, int]:
    """(rows, how many differ) of a state."""
    parts = merge(
        ((handle, 0, doc) for handle, doc in ours.documents(name)),
        ((handle, 1, doc) for handle, doc in fresh.documents(name)),
        key=itemgetter(0, 1),
    )
    rows, differing, readers = 0, 0, (ours.texts, fresh.texts)
    for handle, some in groupby(parts, key=itemgetter(0)):
        sides: _Sides = [], []
        for _, side, doc in some:
            sides[side].append(doc)
        rows += 1
        differing += not _same(handle, sides, docs, readers)
    return rows, differing


def _compare_between(
    ours: States, fresh: States, neighbour: str, name: str, docs: Docs
) -> tuple[int, int]:
    """The same of a state whose neighbour has been compared."""
    handles = ours.between(neighbour, name) | fresh.between(neighbour, name)
    mine, theirs = ours.find(name, handles), fresh.find(name, handles)
    readers = ours.texts, fresh.texts
    differing = sum(not _same(each, (mine[each], theirs[each]), docs, readers) for each in handles)
    return len(handles), differing


def _same(handle: str, sides: _Sides, docs: Docs, readers: tuple[_Texts, _Texts]) -> bool:
    """Whether documents are equal, or mean the same under the types of a state."""
    mine, theirs = sides
    if mine == theirs:
        return True
    if len(mine) != len(theirs):
        return False
    type_name = handle.partition("/")[0]

    def plain(documents: list[bytes], texts: _Texts) -> Counter[bytes]:
        return Counter(
            docs.encode(type_name, docs.decode(type_name, unseal(handle, each), *texts))
            for each in documents
        )

    try:
        return plain(mine, readers[0]) == plain(theirs, readers[1])
    except UNREADABLE:
        return False
