"""NodeIndex: one branch or snapshot in the node file, to read and to write.

Reads go over the layers of its lineage (``layers``). Writes go into its own layer: the
root's tables hold what is there now; a version that a layer grown out of this one
still sees is kept beside them, closed by the commit that replaced it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge as merge_sorted
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from trails.errors import CorruptionError, NotFoundError
from trails.model.fairness import with_pauses
from trails.model.history import Position
from trails.model.iris import decode_id
from trails.model.nodes import LARGE_NODE, NodeState, split_handle
from trails.model.types import PredicateDescriptor, Schema
from trails.model.values.json_values import Json
from trails.views.nodes.file import DraftFile, NodeFile, marks
from trails.views.nodes.key_plans import COLUMN, KeyPlan, keys_in, same_fields
from trails.views.nodes.layers import (
    FOREVER,
    ROOT,
    Layer,
    LayerSql,
    draft_layer_sql_of,
    layer_sql_of,
)
from trails.views.nodes.long_texts import (
    LONG_TEXT,
    MARK,
    LongDocument,
    LongText,
    StoredText,
    read_document,
)
from trails.views.nodes.rows import (
    LONG,
    MISSING,
    PRESENT,
    Extract,
    Slot,
    after_prefix,
    all_slots,
    docs_of,
    seal,
    unseal,
)

if TYPE_CHECKING:
    from trails.model.evidence.graphemes import Sliceable

_HANDLES: Final = 200
_PAGE: Final = 1000
_EMPTY: Final = Schema()
_PATIENT: Final = 500
"""New nodes at a time from which keys are put in order at the end of the write."""
_INSERT_ROW_KEYS: Final = "INSERT OR REPLACE INTO row_keys"
KeyRow = tuple[int, bytes, int]
LayerKeyRow = tuple[int, int, bytes, int, int, int]
"""Layer, slot, key, node, and from when until when it is there."""
T = TypeVar("T")
_UNREADABLE: Final = (
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    msgspec.MsgspecError,
)


class Stored(msgspec.Struct, frozen=True):
    """A node as the index holds it."""

    nid: int
    seq: int
    state: NodeState
    layer: int = ROOT


class Replacement(msgspec.Struct, frozen=True):
    """A node as it is and as it shall be."""

    before: Stored | None
    handle: str
    after: NodeState | None
    nid: int | None = None
    """The number that a new node shall have; None for the next free one."""


class NodeIndex:
    """The index of one branch or snapshot, and how far it has followed the log."""

    def __init__(self, file: NodeFile, name: str) -> None:
        self.file = file
        self._name = name
        self._lineage: list[tuple[int, int]] = []
        self._layer_sql: tuple[LayerSql, ...] = ()
        self._lookup = ""
        self._waiting: list[LayerKeyRow] | None = None
        """Keys that are not in their table yet; None where none have to wait."""
        self._sorted = 0
        """How many of them are in order, last first: all, if none came since."""
        self.follow(_EMPTY)

    @property
    def layer(self) -> Layer:
        """The layer of this branch or snapshot."""
        layers = self.file.layers
        found = layers.refs.get(self._name)
        if found is None:
            raise NotFoundError(f"the node index has no {self._name!r} any more; ask again")
        return layers[found]

    @property
    def known(self) -> bool:
        """Whether the file has this branch or snapshot."""
        return self._name in self.file.layers.refs

    @property
    def position(self) -> Position:
        """How far it has followed the log."""
        return self.layer.position

    def position_in(self, db: sqlite3.Connection) -> Position:
        """How far it has followed the log in what a transaction sees."""
        query = "SELECT seq, head FROM layers WHERE layer = ?"
        row = db.execute(query, (self.layer.number,)).fetchone()
        return self.position if row is None else Position(*row)

    @property
    def layer_sql(self) -> tuple[LayerSql, ...]:
        """Where its rows are, nearest first."""
        lineage = self.file.layers.lineage(self.layer.number)
        if lineage != self._lineage:
            self._lineage, self._layer_sql = lineage, self._layer_sql_of(lineage)
            self._lookup = _lookup_in(self._layer_sql)
        return self._layer_sql

    def _layer_sql_of(self, lineage: list[tuple[int, int]]) -> tuple[LayerSql, ...]:
        return layer_sql_of(lineage)

    def follow(self, schema: Schema) -> None:
        """Use this schema, for which the rows are made already."""
        self.schema = schema
        """The schema that rows are read and written with."""
        self.docs = docs_of(schema)
        self._all_slots: Mapping[str, tuple[Slot, ...]] = all_slots(schema)
        self._unique_slots = {
            name: tuple(slot for slot in slots if slot.unique)
            for name, slots in self._all_slots.items()
        }
        self._plans: dict[str, tuple[KeyPlan, ...]] = {}
        self._changed: dict[tuple[str, str], frozenset[str]] = {}
        """Fields that another schema has with other values, by its digest and their type."""
        self._watched: set[int] = set()
        """The numbers of slots that rules look at."""
        self._epoch = self.file.epoch

    # --- reading ---------------------------------------------------------------

    def find(self, db: sqlite3.Connection, handle: str) -> Stored | None:
        """One node by handle."""
        row = self._look_up(db, handle)
        if row is None:
            return None
        return Stored(row[0], row[1], self.state(db, handle, row[2]), row[3])

    def _look_up(self, db: sqlite3.Connection, handle: str) -> tuple[int, int, bytes, int] | None:
        """The row of a node; one statement for all layers takes a third of the time of one each."""
        if not self.layer_sql:
            return None
        row: tuple[int, int, bytes, int] | None
        row = next(self.file.rows(db, self._lookup, (handle,)), None)
        return row

    def find_all(self, db: sqlite3.Connection, handles: Sequence[str]) -> dict[str, Stored]:
        """Those of many nodes that exist, by handle."""
        found: dict[str, Stored] = {}
        for some in batched(handles, _HANDLES):
            for sql in self.layer_sql:
                query = (
                    f"SELECT n.handle, n.nid, n.seq, n.doc FROM {sql.handled()}"  # noqa: S608
                    f"n.handle IN ({marks(len(some))})"
                )
                for handle, nid, seq, doc in with_pauses(self.file.rows(db, query, some)):
                    found[handle] = Stored(nid, seq, self.state(db, handle, doc), sql.layer)
        return found

    def state(self, db: sqlite3.Connection, handle: str, doc: bytes) -> NodeState:
        """A row's node; the one place where long texts are read whole."""
        try:
            type_name, _, rest = handle.partition("/")
            identifier = decode_id(rest) if "%" in rest else rest
            values = self.docs.decode(type_name, unseal(handle, doc), self.file.texts, db)
            return NodeState(type_name, identifier, values)
        except _UNREADABLE as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> CorruptionError:
        """The error for a document that is not what was stored; the index is rebuilt then."""
        self.file.damaged = True
        return CorruptionError(
            f"the node index holds something unreadable ({error}); it will be rebuilt"
        )

    def find_in_parts(self, db: sqlite3.Connection, handle: str) -> Stored | None:
        """One node by handle; its long texts are read on this connection, as parts are asked for.

        Such a text is a ``StoredText``; of a Json field it is the JSON.
        """
        row = self._look_up(db, handle)
        if row is None:
            return None
        try:
            doc, long = unseal(handle, row[2]), {}
            if doc[0] == MARK:
                found = read_document(doc)
                doc, long = bytes(found.rest), found.long
            type_name, identifier = split_handle(handle)
            values = self.docs.decode(type_name, doc, self.file.texts, db)
        except _UNREADABLE as error:
            raise self.unreadable(error) from error
        for field, mark in long.items():
            values[field] = StoredText(mark, partial(self._read_part, db, mark))
        return Stored(row[0], row[1], NodeState(type_name, identifier, values), row[3])

    def text_of(self, db: sqlite3.Connection, handle: str, field: str) -> Sliceable | None:
        """The text of a String or Json field of one value, of which parts can be read.

        None if there is no such node, value or text.
        """
        found = self.find_in_parts(db, handle)
        value = None if found is None else found.state.values.get(field)
        if isinstance(value, Json):
            return value.text
        return value if isinstance(value, str | StoredText) else None

    def exists(self, db: sqlite3.Connection, handle: str) -> bool:
        """Whether there is such a node."""
        return self._look_up(db, handle) is not None

    def handles_from(self, db: sqlite3.Connection, start: str, limit: int) -> list[str]:
        """The first few handles that begin so, in order."""
        found: list[str] = []
        for sql in self.layer_sql:
            query = (
                f"SELECT n.handle FROM {sql.handled()}"  # noqa: S608
                "n.handle >= ? AND n.handle < ? ORDER BY n.handle LIMIT ?"
            )
            # Handles are ASCII, and this is the last of it.
            rows = self.file.rows(db, query, (start, f"{start}\x7f", limit))
            found.extend(handle for (handle,) in rows)
        return sorted(found)[:limit]

    def holders(self, db: sqlite3.Connection, slot: str, key: bytes, limit: int = -1) -> list[str]:
        """The handles of the nodes that have this key in a slot."""
        sid = self.file.slot_number(slot)
        found: list[tuple[int, str]] = []
        for sql in self.layer_sql:
            query = (
                f"SELECT k.nid, n.handle FROM {sql.keyed(joined=True)}"  # noqa: S608
                "k.sid = ? AND k.key = ? ORDER BY k.nid LIMIT ?"
            )
            found.extend(self.file.rows(db, query, (sid, key, limit)))
        found.sort()
        return [handle for _, handle in (found if limit < 0 else found[:limit])]

    def beginning_with(
        self, db: sqlite3.Connection, slot: str, start: str, limit: int, before: int | None = None
    ) -> list[str]:
        """Handles of nodes with a text in a slot that begins so, as far as keys tell.

        ``before``: only versions that were written before that place in the log.
        """
        sid, low = self.file.slot_number(slot), (PRESENT + start.encode())[:LONG]
        seen = "" if before is None else f" AND n.seq < {before}"
        found: list[str] = []
        for sql in self.layer_sql:
            query = (
                f"SELECT n.handle FROM {sql.keyed(joined=True)}"  # noqa: S608
                f"k.sid = ? AND k.key >= ? AND k.key < ?{seen} LIMIT ?"
            )
            rows = self.file.rows(db, query, (sid, low, after_prefix(low), limit))
            found.extend(handle for (handle,) in rows)
        return found[:limit]

    def count_key(self, db: sqlite3.Connection, slot: str, key: bytes) -> int:
        """How many nodes have this key in a slot."""
        sid = self.file.slot_number(slot)
        return sum(
            next(
                self.file.rows(
                    db,
                    f"SELECT count(*) FROM {sql.keyed()}k.sid = ? AND k.key = ?",  # noqa: S608
                    (sid, key),
                )
            )[0]
            for sql in self.layer_sql
        )

    def count_keys(
        self, db: sqlite3.Connection, slot: str, keys: Sequence[bytes]
    ) -> Counter[bytes]:
        """How many nodes have each of these keys in a slot."""
        sid, found = self.file.slot_number(slot), Counter[bytes]()
        for some in batched(keys, _HANDLES):
            for sql in self.layer_sql:
                query = (
                    f"SELECT k.key, count(*) FROM {sql.keyed()}k.sid = ? "  # noqa: S608
                    f"AND k.key IN ({marks(len(some))}) GROUP BY k.key"
                )
                found.update(dict(self.file.rows(db, query, (sid, *some))))
        return found

    def crowded_keys(self, db: sqlite3.Connection, slot: str, most: int) -> Iterator[bytes]:
        """The keys that more than ``most`` nodes have in a slot, in order; missing values aside."""
        sid, layer_sql = self.file.slot_number(slot), self.layer_sql
        # One layer alone decides by itself; of several, each may have a part of a key's nodes.
        least = most + 1 if len(layer_sql) == 1 else 1
        streams = [self._counted_keys(db, sql, sid, least) for sql in layer_sql]
        merged = streams[0] if len(streams) == 1 else merge_sorted(*streams)
        for key, counts in groupby(merged, key=itemgetter(0)):
            if key != MISSING and sum(count for _, count in counts) > most:
                yield key

    def _counted_keys(
        self, db: sqlite3.Connection, sql: LayerSql, sid: int, least: int
    ) -> Iterator[tuple[bytes, int]]:
        query = (
            f"SELECT k.key, count(*) FROM {sql.keyed()}k.sid = ? AND k.key > ? "  # noqa: S608
            "GROUP BY k.key HAVING count(*) >= ? ORDER BY k.key LIMIT ?"
        )
        after = b""
        while page := list(self.file.rows(db, query, (sid, after, least, _PAGE))):
            yield from page
            after = page[-1][0]

    def existing(self, db: sqlite3.Connection, handles: Sequence[str]) -> set[str]:
        """Those of many handles that name a node."""
        found: set[str] = set()
        for some in batched(handles, _HANDLES):
            for sql in self.layer_sql:
                query = f"SELECT n.handle FROM {sql.handled()}n.handle IN ({marks(len(some))})"  # noqa: S608
                found.update(handle for (handle,) in self.file.rows(db, query, some))
        return found

    def live(self, db: sqlite3.Connection, type_names: Sequence[str]) -> int:
        """How many instances types have."""
        layer = self.layer
        numbers = [self.file.types[name][0] for name in type_names if name in self.file.types]
        if db is self.file.db:
            return sum(layer.live.get(tid, 0) for tid in numbers)
        query = (
            "SELECT coalesce(sum(n), 0) FROM lives "  # noqa: S608
            f"WHERE layer = ? AND tid IN ({marks(len(numbers))})"
        )
        found: int = db.execute(query, (layer.number, *numbers)).fetchone()[0]
        return found

    def has_long_texts(self, db: sqlite3.Connection, type_names: Sequence[str]) -> bool:
        """Whether a document of these types may have a long text; two indexes know."""
        long = "substr(doc, 1, 1) = x'00'"
        query = f"SELECT 1 FROM nodes WHERE {long} AND nid >= ? AND nid < ? LIMIT 1"  # noqa: S608
        if any(db.execute(query, each).fetchone() for each in self.file.ranges(type_names)):
            return True
        if self.layer.number == ROOT:
            return False
        # Of any type: layers are small.
        found = db.execute(f"SELECT 1 FROM rows WHERE {long} LIMIT 1")  # noqa: S608
        return found.fetchone() is not None

    def states(self, db: sqlite3.Connection, type_names: Iterable[str]) -> Iterator[NodeState]:
        """Every instance of types, streamed; of one type in the order of their making."""
        for stored in self.stored(db, type_names):
            yield stored.state

    def stored(self, db: sqlite3.Connection, type_names: Iterable[str]) -> Iterator[Stored]:
        """As ``states``, with the number of each."""
        for name in type_names:
            after = 0
            while page := self.page(db, name, after):
                yield from page
                after = page[-1].nid

    def page(
        self, db: sqlite3.Connection, type_name: str, after: int, limit: int = _PAGE
    ) -> list[Stored]:
        """Instances of exactly one type, some at a time, those after a number."""
        rows: list[tuple[int, int, str, bytes, int]] = []
        for low, high in self.file.ranges((type_name,)):
            for sql in self.layer_sql:
                query = (
                    f"SELECT n.nid, n.seq, n.handle, n.doc, {sql.layer} FROM {sql.noded()}"  # noqa: S608
                    "n.nid > ? AND n.nid < ? ORDER BY n.nid LIMIT ?"
                )
                rows.extend(self.file.rows(db, query, (max(after, low - 1), high, limit)))
        rows.sort()
        return [
            Stored(nid, seq, self.state(db, handle, doc), layer)
            for nid, seq, handle, doc, layer in rows[:limit]
        ]

    def _read_part(self, db: sqlite3.Connection, text: LongText, start: int, end: int) -> str:
        try:
            return self.file.texts.part(db, text, start, end)
        except ValueError as error:
            raise self.unreadable(error) from error

    # --- writing ---------------------------------------------------------------

    def commit(self, position: Position) -> None:
        """Make the changes and the new position visible, in one step."""
        self.move(position)
        self.file.commit()

    def move(self, position: Position) -> None:
        """Reach a position when the transaction is committed."""
        self.file.layers.move(self.layer.number, position, self.schema.digest)

    def put_all(self, seq: int, changes: Sequence[Replacement]) -> list[Replacement]:
        """Apply changes that a commit makes; those whose nodes may be larger than is allowed."""
        with self.file.errors("write the node index"):
            layer = self.layer
            if layer.number == ROOT:
                return self._put_root(layer, seq, changes)
            return self._put_rows(layer, seq, changes)

    def _put_root(
        self, layer: Layer, seq: int, changes: Sequence[Replacement]
    ) -> list[Replacement]:
        if len(changes) >= _PATIENT and all(change.before is None for change in changes):
            return self._put_new(seq, changes)
        db, file = self.file.db, self.file
        file.put_waiting()
        past: list[tuple[str, int]] = []
        kept: list[Stored] = []
        inserts: list[tuple[int, str, int, bytes]] = []
        updates: list[tuple[int, bytes, int]] = []
        pairs: dict[str, list[_Pair]] = {}
        steps: Counter[str] = Counter()
        large: list[Replacement] = []
        for change in with_pauses(changes):
            before, after = change.before, change.after
            if before is not None:
                past.append((change.handle, before.seq))
                if before.seq <= layer.newest_fork:
                    kept.append(before)
            if after is None:
                assert before is not None  # noqa: S101 - nothing to delete otherwise
                past.append((change.handle, seq))
                pairs.setdefault(before.state.type, []).append((before.nid, before.state, None))
                db.execute("DELETE FROM nodes WHERE nid = ?", (before.nid,))
                file.keep_number(change.handle, before.nid)
                steps[before.state.type] -= 1
                continue
            doc, size = self._document(change.handle, after)
            if size > LARGE_NODE:
                large.append(change)
            if before is None:
                nid = change.nid or file.new_node(change.handle, after.type)
                steps[after.type] += 1
                inserts.append((nid, change.handle, seq, doc))
                pairs.setdefault(after.type, []).append((nid, None, after))
            else:
                updates.append((seq, doc, before.nid))
                pairs.setdefault(after.type, []).append((before.nid, before.state, after))
        self._remember_all(past)
        if kept:
            self._keep_versions(layer, seq, kept)
        for type_name, step in steps.items():
            self._count(type_name, step)
        if updates:
            db.executemany("UPDATE nodes SET seq = ?, doc = ? WHERE nid = ?", updates)
        file.insert("INSERT INTO nodes", inserts, 4)
        self._change_keys(pairs)
        return large

    def _change_keys(self, changes: Mapping[str, Sequence[_Pair]]) -> None:
        """Bring the root's keys up to date, by type."""
        gone: list[KeyRow] = []
        come: list[KeyRow] = []
        for type_name, some in changes.items():
            self._compare_keys(type_name, some, gone, come)
        gone.sort()  # neighbours in the table are written together
        come.sort()
        if gone:
            self.file.db.executemany("DELETE FROM keys WHERE sid = ? AND key = ? AND nid = ?", gone)
        self.file.insert("INSERT OR IGNORE INTO keys", come, 3)

    def _compare_keys(
        self, type_name: str, nodes: Sequence[_Pair], gone: list[KeyRow], come: list[KeyRow]
    ) -> None:
        """Add the keys that nodes of a type lose and win; of unchanged fields none are made."""
        nids = [nid for nid, _, _ in nodes]
        olds = [None if old is None else old.values for _, old, _ in nodes]
        news = [None if new is None else new.values for _, _, new in nodes]
        same = same_fields(self._plan(type_name), olds, news)
        for plan in with_pauses(self._plan(type_name)):
            if same.issuperset(plan.fields):
                continue
            was, now = keys_in(plan, nids, olds), keys_in(plan, nids, news)
            kept = set(was).intersection(now)
            lost = [each for each in was if each not in kept]
            won = [each for each in now if each not in kept]
            for sid in plan.sids:
                gone += [(sid, key, nid) for key, nid in lost]
                come += [(sid, key, nid) for key, nid in won]

    def _keep_versions(self, layer: Layer, until: int, versions: Sequence[Stored]) -> None:
        """Keep what is replaced for the layers that grew out of this one and still see it.

        A layer that has a version of its own, as its own layers do, hides this one.
        """
        ends = {each.number: each for each in self.file.layers.children(layer.number)}
        first_fork = {
            number: min((each.fork for each in self.file.layers.children(number)), default=FOREVER)
            for number in ends
        }
        hidden: set[tuple[int, int]] = set()
        for some in batched([each.nid for each in versions], _HANDLES):
            query = f"SELECT nid, layer, seq FROM hides WHERE nid IN ({marks(len(some))})"  # noqa: S608
            for nid, number, seq in self.file.db.execute(query, some):
                if seq <= first_fork.get(number, -1):
                    hidden.add((nid, number))
        kept = [
            each
            for each in with_pauses(versions)
            if any(
                each.seq <= child.fork and (each.nid, number) not in hidden
                for number, child in ends.items()
            )
        ]
        self._insert_rows(layer.number, kept, until)

    def _put_new(self, seq: int, changes: Sequence[Replacement]) -> list[Replacement]:
        """Put many new nodes, one field of all nodes of a type at a time.

        Keys that no rule looks at are put in order at the end of the write.
        """
        types: dict[str, list[tuple[Replacement, NodeState]]] = {}
        for change in changes:
            if change.after is not None:
                types.setdefault(change.after.type, []).append((change, change.after))
        keys: list[KeyRow] = []
        watched: list[KeyRow] = []
        large: list[Replacement] = []
        for type_name, nodes in types.items():
            number = self.file.new_node
            nids = [each.nid or number(each.handle, type_name) for each, _ in nodes]
            rows = []
            for nid, (change, state) in with_pauses(zip(nids, nodes, strict=True)):
                doc, size = self._document(change.handle, state)
                rows.append((nid, change.handle, seq, doc))
                if size > LARGE_NODE:
                    large.append(change)
            self.file.insert("INSERT INTO nodes", rows, 4)
            self._count(type_name, len(nodes))
            values = [state.values for _, state in nodes]
            for plan in with_pauses(self._plan(type_name)):
                each_key = keys_in(plan, nids, values)
                for sid in plan.sids:
                    put = watched if sid in self._watched else keys
                    put += [(sid, key, nid) for key, nid in each_key]
        self.file.wait(keys)
        watched.sort()
        self.file.insert("INSERT OR IGNORE INTO keys", watched, 3)
        return large

    def _keys_under(self, schema: Schema, stored: Stored) -> Iterator[KeyRow]:
        """A node's keys as another schema has them, which may read slots that this one lost."""
        state = stored.state
        if self._changed_ancestors(schema, state.type):
            return  # no state in which a type has other ancestors sees this version
        changed = self._changed_kinds(schema, state.type)
        for slot in all_slots(schema).get(state.type, ()):
            # States in which a field has another kind see no version of a node with a value there.
            if any(each in changed and each in state.values for each in slot.fields):
                continue
            sid = self.file.numbered_slot(slot.name)
            for key in slot.extract(state.values):
                yield sid, key, stored.nid

    def _changed_ancestors(self, schema: Schema, type_name: str) -> bool:
        """Whether a type extends others in another schema, so that its keys are in other slots."""
        mine = self.schema
        known = type_name in mine.by_name and type_name in schema.by_name
        return known and mine.lineage(type_name) != schema.lineage(type_name)

    def _changed_kinds(self, schema: Schema, type_name: str) -> frozenset[str]:
        """The fields of a type that another schema has with other values."""
        found = self._changed.get((schema.digest, type_name))
        if found is None:
            mine, other = (each.by_name.get(type_name) for each in (self.schema, schema))
            fields = {} if mine is None or other is None else other.by_name
            found = self._changed[schema.digest, type_name] = frozenset(
                each.name
                for each in (() if mine is None else mine.fields)
                if each.name in fields and _sort(fields[each.name]) != _sort(each)
            )
        return found

    def _insert_row_keys(self, layer: int, keys: Iterable[KeyRow], seq: int, until: int) -> None:
        rows = [(layer, sid, key, nid, seq, until) for sid, key, nid in keys]
        self.file.insert(_INSERT_ROW_KEYS, rows, 6)

    def _put_rows(
        self, layer: Layer, seq: int, changes: Sequence[Replacement]
    ) -> list[Replacement]:
        number = layer.number
        past: list[tuple[str, int]] = []
        hides: list[tuple[int, int, int]] = []
        ended: list[Stored] = []
        rows: list[Stored] = []
        changed: list[Replacement] = []
        for change in with_pauses(changes):
            before, after = change.before, change.after
            if before is not None:
                past.append((change.handle, before.seq))
                if before.layer != number:
                    hides.append((before.nid, number, seq))
                else:
                    ended.append(before)
            if after is None:
                assert before is not None  # noqa: S101 - nothing to delete otherwise
                past.append((change.handle, seq))
                self.file.keep_number(change.handle, before.nid)
                self._count(before.state.type, -1)
                continue
            if before is None:
                nid = change.nid or self.file.new_node(change.handle, after.type)
                self._count(after.type, 1)
            else:
                nid = before.nid
            rows.append(Stored(nid, seq, after, number))
            changed.append(change)
        self._remember_all(past)
        hides.sort()
        self.file.insert("INSERT OR IGNORE INTO hides", hides, 3)
        if ended:
            self.put_waiting_keys()  # some may be replaced
            self._end_rows(layer, ended, seq)
        sizes = self._insert_rows(number, rows, may_wait=not ended)
        return [change for change, size in zip(changed, sizes, strict=True) if size > LARGE_NODE]

    # --- a layer that nobody reads yet -----------------------------------------------------

    def let_keys_wait(self) -> None:
        """Put no keys of new rows from now on but with ``put_waiting_keys``.

        As they come they would touch most pages of the layer's keys again in each transaction; in
        order they touch each once.
        """
        self._waiting = []

    @property
    def waiting_keys(self) -> int:
        """How many keys wait."""
        return len(self._waiting or ())

    def put_waiting_keys(self, most: int | None = None) -> None:
        """Put the first of the keys that wait, in the order of the table."""
        waiting = self._waiting
        if waiting:
            if self._sorted != len(waiting):
                waiting.sort(reverse=True)
            at = 0 if most is None else max(0, len(waiting) - most)
            some = waiting[at:]
            del waiting[at:]
            self._sorted = at
            with self.file.errors("write the node index"):
                self.file.insert(_INSERT_ROW_KEYS, some[::-1], 6)

    def _end_rows(self, layer: Layer, ended: Sequence[Stored], until: int) -> None:
        """Versions of this layer are replaced: keep them closed, or drop them."""
        db, number = self.file.db, layer.number
        dropped = [each for each in ended if each.seq > layer.newest_fork]
        if dropped:
            self._drop_rows(number, dropped)
        closed = [each for each in ended if each.seq <= layer.newest_fork]
        if not closed:
            return
        db.executemany(
            "UPDATE rows SET until = ? WHERE layer = ? AND nid = ? AND seq = ?",
            [(until, number, each.nid, each.seq) for each in closed],
        )
        db.executemany(
            "UPDATE row_keys SET until = ? WHERE layer = ? AND sid = ? AND key = ? AND nid = ? "
            "AND seq = ?",
            [(until, *row[:-1]) for row in self._row_keys(number, closed, until)],
        )

    def _row_keys(self, layer: int, versions: Sequence[Stored], until: int) -> list[LayerKeyRow]:
        """The keys of versions under this schema and those of the layers that see them."""
        if len(versions) < COLUMN:
            found = [
                (layer, sid, key, each.nid, each.seq, until)
                for each in versions
                for plan in self._plan(each.state.type)
                for key in plan.extract(each.state.values)
                for sid in plan.sids
            ]
        else:
            found = self._many_row_keys(layer, versions, until)
        for digest in self.file.layers.schemas_above(layer):
            if digest != self.schema.digest:
                schema = self.file.schema_of(digest)
                for each in with_pauses(versions):
                    found += [
                        (layer, sid, key, nid, each.seq, until)
                        for sid, key, nid in self._keys_under(schema, each)
                    ]
        found.sort()
        return found

    def _many_row_keys(
        self, layer: int, versions: Sequence[Stored], until: int
    ) -> list[LayerKeyRow]:
        found: list[LayerKeyRow] = []
        types: dict[str, list[Stored]] = {}
        for each in versions:
            types.setdefault(each.state.type, []).append(each)
        for type_name, some in types.items():
            places = [(each.nid, each.seq) for each in some]
            values = [each.state.values for each in some]
            for plan in with_pauses(self._plan(type_name)):
                each_key = keys_in(plan, places, values)
                for sid in plan.sids:
                    found += [(layer, sid, key, nid, seq, until) for key, (nid, seq) in each_key]
        return found

    def restore(self, seq: int, stored: Iterable[Stored]) -> None:
        """Say of nodes, which a write left as they were, that it did not change them."""
        layer = self.layer
        with self.file.errors("write the node index"):
            for each in stored:
                self._restore(layer, seq, each)

    def _restore(self, layer: Layer, seq: int, stored: Stored) -> None:
        db, nid, number = self.file.db, stored.nid, layer.number
        db.execute("DELETE FROM past WHERE handle = ? AND seq = ?", (stored.state.handle, seq))
        if number == ROOT:
            db.execute("UPDATE nodes SET seq = ? WHERE nid = ?", (stored.seq, nid))
            self._drop_rows(number, [stored])  # what was kept of it is what is there again
            return
        self._drop_rows(number, [msgspec.structs.replace(stored, seq=seq)])
        if stored.layer != number:
            db.execute(
                "DELETE FROM hides WHERE nid = ? AND layer = ? AND seq = ?", (nid, number, seq)
            )
        else:
            self._insert_rows(number, [stored])

    def _drop_rows(self, layer: int, versions: Sequence[Stored]) -> None:
        db = self.file.db
        db.executemany(
            "DELETE FROM rows WHERE layer = ? AND nid = ? AND seq = ?",
            [(layer, each.nid, each.seq) for each in versions],
        )
        db.executemany(
            "DELETE FROM row_keys WHERE layer = ? AND sid = ? AND key = ? AND nid = ? AND seq = ?",
            [row[:-1] for row in self._row_keys(layer, versions, 0)],
        )

    def _insert_rows(
        self,
        layer: int,
        versions: Sequence[Stored],
        until: int = FOREVER,
        *,
        may_wait: bool = False,
    ) -> list[int]:
        """Put versions into a layer; the sizes of their values.

        ``may_wait``: their keys need not be in the table before ``put_waiting_keys``.
        """
        documents = [
            self._document(each.state.handle, each.state) for each in with_pauses(versions)
        ]
        rows = [
            (layer, each.nid, each.seq, until, each.state.handle, doc)
            for each, (doc, _) in zip(versions, documents, strict=True)
        ]
        rows.sort()
        self.file.insert("INSERT OR REPLACE INTO rows", rows, 6)
        keys = self._row_keys(layer, versions, until) if versions else []
        if may_wait and self._waiting is not None:
            self._waiting += keys
        else:
            self.file.insert(_INSERT_ROW_KEYS, keys, 6)
        return [size for _, size in documents]

    def _document(self, handle: str, state: NodeState) -> tuple[bytes, int]:
        """A node's document as a row holds it, and its size with all texts."""
        doc = self.docs.encode(state.type, state.values)
        size = len(doc)
        if size > LONG_TEXT:
            texts = self.docs.long_texts(state.type, state.values)
            if texts:
                rest = {name: each for name, each in state.values.items() if name not in texts}
                doc = LongDocument(
                    {name: self.file.texts.store(self.file.db, texts[name]) for name in texts},
                    msgspec.Raw(self.docs.encode(state.type, rest)),
                ).encode()
        return seal(handle, doc), size

    def _remember_all(self, changes: list[tuple[str, int]]) -> None:
        """Commits changed nodes and are no longer the last to have done so."""
        past = sorted({each for each in changes if each[1]})
        self.file.insert("INSERT OR IGNORE INTO past", past, 2)

    def _count(self, type_name: str, step: int) -> None:
        self.file.layers.count(self.layer.number, self.file.type_number(type_name), step)

    def adopt(self, schema: Schema) -> None:
        """Follow another schema from here on: drop the slots it lost, fill those it gained."""
        file, root = self.file, self.layer.number == ROOT
        with file.errors("write the node index"):
            file.put_waiting()
            self.put_waiting_keys()
            before = {name: _names(slots) for name, slots in self._all_slots.items()}
            self.follow(schema)
            after = {name: _names(slots) for name, slots in self._all_slots.items()}
            old: set[str] = set().union(*before.values())
            new: set[str] = set().union(*after.values())
            # What layers that grew out of the root still read stays until they are gone.
            unread = set() if file.layers.children(ROOT) else old - new
            for slot in sorted(unread | (new - old)) if root else ():
                file.db.execute("DELETE FROM keys WHERE sid = ?", (file.slot_number(slot),))
            self._drop_unread(old - new)
            self._drop_orphans(new - old)
            for name in before.keys() & after.keys():
                gained = after[name] - before[name]
                if gained and self.live(file.db, (name,)):
                    self._fill(name, gained, root=root)

    def _drop_unread(self, slots: set[str]) -> None:
        """Delete this layer's keys in slots that neither it nor a layer grown out of it reads."""
        for digest in self.file.layers.schemas_above(self.layer.number):
            for read in all_slots(self.file.schema_of(digest)).values():
                slots = slots - _names(read)
        self.file.db.executemany(
            "DELETE FROM row_keys WHERE layer = ? AND sid = ?",
            [(self.layer.number, self.file.slot_number(slot)) for slot in sorted(slots)],
        )

    def _drop_orphans(self, slots: Iterable[str]) -> None:
        """Delete keys of versions that are gone, from slots that are read from now on.

        A version that is dropped while no rule reads a slot leaves its keys there behind.
        """
        for layer, _ in self.file.layers.lineage(self.layer.number):
            self.file.db.executemany(
                "DELETE FROM row_keys WHERE layer = ? AND sid = ? AND NOT EXISTS (SELECT 1 FROM "
                "rows r WHERE r.layer = row_keys.layer AND r.nid = row_keys.nid "
                "AND r.seq = row_keys.seq AND r.until = row_keys.until)",
                [(layer, self.file.slot_number(slot)) for slot in sorted(slots)],
            )

    def _fill(self, type_name: str, gained: set[str], *, root: bool) -> None:
        slots = [
            (self.file.numbered_slot(slot.name), slot.extract)
            for slot in self._all_slots[type_name]
            if slot.name in gained
        ]
        number = self.layer.number
        for stored in self.stored(self.file.db, (type_name,)):
            state = stored.state
            keys = [(sid, key, stored.nid) for sid, read in slots for key in read(state.values)]
            if root:
                self.file.insert("INSERT OR IGNORE INTO keys", keys, 3)
            elif stored.layer == number:
                self._insert_row_keys(number, keys, stored.seq, FOREVER)
            else:
                # Its layer has no such keys: a copy of the node here can have them.
                self._put_rows(self.layer, stored.seq, [Replacement(stored, state.handle, state)])

    def _plan(self, type_name: str) -> tuple[KeyPlan, ...]:
        """How a type's keys are made."""
        if self._epoch != self.file.epoch:
            self._plans.clear()  # a rollback took back the numbers of new slots
            self._watched.clear()
            self._epoch = self.file.epoch
        plan = self._plans.get(type_name)
        if plan is None:
            held: dict[Extract, tuple[Slot, list[int]]] = {}
            for slot in self._all_slots[type_name]:
                sid = self.file.numbered_slot(slot.name)
                held.setdefault(slot.extract, (slot, []))[1].append(sid)
                if slot.watched:
                    self._watched.add(sid)
            plan = self._plans[type_name] = tuple(
                KeyPlan(slot.extract, slot.column, slot.fields, tuple(sids))
                for slot, sids in held.values()
            )
        return plan

    def unique_slots(self, type_name: str) -> tuple[Slot, ...]:
        """The slots in which no two nodes may have the same key."""
        return self._unique_slots[type_name]

    def dump(self) -> Iterator[tuple[object, ...]]:
        """Everything that can be seen, for comparing two indexes."""
        with self.file.reader() as db:
            for name in sorted(self.file.types):
                count = self.live(db, (name,))
                if count:
                    yield name, count
            everything = [
                (stored.state.handle, self.docs.encode(stored.state.type, stored.state.values))
                for stored in self.stored(db, sorted(self.file.types))
            ]
            yield from sorted(everything)
            keys: list[tuple[object, ...]] = []
            wanted = {slot.name for slots in self._all_slots.values() for slot in slots}
            for sql in self.layer_sql:
                keys += db.execute(
                    "SELECT s.name, k.key, n.handle FROM slots s CROSS JOIN "  # noqa: S608
                    f"{sql.keyed(joined=True)}k.sid = s.sid"
                )
            yield from sorted(key for key in keys if key[0] in wanted)


_Pair = tuple[int, NodeState | None, NodeState | None]
"""The number of a node, and its state before and after."""


class DraftIndex(NodeIndex):
    """A branch or snapshot in a draft of the node file."""

    def __init__(self, file: DraftFile, name: str) -> None:
        self._draft = file
        super().__init__(file, name)

    def grow(self, source: str = "") -> None:
        """Stand on a layer of the draft's own, which can be written.

        ``source`` is the branch or snapshot that it grows out of; by default this one.
        """
        layers = self.file.layers
        parent = layers.refs[source] if source else self.layer.number
        self._draft.own.add(layers.fork(self.file.db, self._name, parent))

    def _layer_sql_of(self, lineage: list[tuple[int, int]]) -> tuple[LayerSql, ...]:
        return draft_layer_sql_of(lineage, self._draft.own)


def _lookup_in(layer_sql: Iterable[LayerSql]) -> str:
    """The query for the one row that shows a node."""
    parts = (
        f"SELECT n.nid, n.seq, n.doc, {sql.layer} FROM {sql.handled()}n.handle = ?1"  # noqa: S608
        for sql in layer_sql
    )
    return f"{' UNION ALL '.join(parts)} LIMIT 1"


def _names(slots: Iterable[Slot]) -> set[str]:
    return {slot.name for slot in slots}


def _sort(field: PredicateDescriptor) -> tuple[str, bool, bool]:
    """What sort of values a field has."""
    return field.type.scalar.kind, field.many, field.ordered


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Items, some at a time."""
    for at in range(0, len(items), size):
        yield items[at : at + size]
