"""NodeIndex: the tables, the one writer, and point reads.

The writer works inside one transaction that the engine opens before it
validates and commits after the log has the commit: so the rules that look at
other nodes are checked on the state *after* the change, and a refused change
leaves nothing behind. Other connections see committed states only.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import StorageError
from trails.log.storage import connect, storage_errors
from trails.model.history import Position
from trails.model.nodes import NodeState, split_handle
from trails.model.types import Schema
from trails.views.nodes.keys import Slot, all_slots

INDEX_FORMAT: Final = 1
_TYPE_BITS: Final = 44
"""A node number is its type's number, then a counter: a type is one range of rows."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS types (
    tid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, next INTEGER NOT NULL, live INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS slots (sid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS nodes (
    nid INTEGER PRIMARY KEY, handle TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL, doc BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS keys (
    sid INTEGER NOT NULL, key BLOB NOT NULL, nid INTEGER NOT NULL, PRIMARY KEY (sid, key, nid)
) WITHOUT ROWID;
"""


class Stored(msgspec.Struct, frozen=True):
    """A node as the index holds it."""

    nid: int
    seq: int
    state: NodeState


class Docs:
    """Node values ↔ the JSON document of a row."""

    def __init__(self, schema: Schema) -> None:
        self._plain: dict[str, list[tuple[str, Callable[..., object], bool]]] = {}
        self._native: dict[str, list[tuple[str, Callable[..., object] | None, bool]]] = {}
        for descriptor in schema.types:
            plain, native = [], []
            for field in descriptor.fields:
                row = field.type.scalar.row
                if row is not None and row.plain is not None:
                    plain.append((field.name, row.plain, field.many))
                restore = None if row is None else row.restore
                if field.many or restore is not None:
                    native.append((field.name, restore, field.many))
            self._plain[descriptor.name] = plain
            self._native[descriptor.name] = native

    def encode(self, type_name: str, values: Mapping[str, object]) -> bytes:
        """Values as stored."""
        plain = self._plain[type_name]
        if plain:
            values = dict(values)
            for name, convert, many in plain:
                value = values.get(name)
                if value is not None:
                    values[name] = (
                        [convert(item) for item in value] if many else convert(value)  # type: ignore[attr-defined]
                    )
        return msgspec.json.encode(values)

    def decode(self, type_name: str, doc: bytes) -> dict[str, object]:
        """Values as the engine uses them."""
        values: dict[str, object] = _DECODER.decode(doc)
        for name, convert, many in self._native[type_name]:
            value = values.get(name)
            if value is not None:
                if convert is None:
                    values[name] = tuple(value)  # type: ignore[arg-type]
                elif many:
                    values[name] = tuple(convert(item) for item in value)  # type: ignore[attr-defined]
                else:
                    values[name] = convert(value)
        return values


_DECODER = msgspec.json.Decoder(dict[str, object])


class NodeIndex:
    """The index of one branch, in a file or in memory, and how far it has followed the log."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._memory_lock = threading.RLock()
        self._idle: list[tuple[int, sqlite3.Connection]] = []
        self._generation = 0
        self._db = self._open()
        self._schema = Schema()
        self._load_numbers()
        self.follow(Schema())

    # --- opening and closing ---------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._prepare()
        except StorageError:
            # A view is a copy: one that can't be read is rebuilt from the log.
            self._remove_files()
            return self._prepare()

    def _prepare(self) -> sqlite3.Connection:
        db = connect(self._path, synchronous="NORMAL")
        try:
            with storage_errors("open the node index"):
                db.execute("PRAGMA cache_size = -65536")
                found = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                db.executescript(_TABLES)
                if not found:
                    db.execute("INSERT INTO meta VALUES ('format', ?)", (INDEX_FORMAT,))
                row = db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
            if row is None or row[0] != INDEX_FORMAT:
                raise StorageError("the node index has another format")  # noqa: TRY301
        except BaseException:
            db.close()
            raise
        return db

    def _remove_files(self) -> None:
        if self._path is not None:
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _load_numbers(self) -> None:
        """Read the small tables that the writer keeps in memory."""
        with storage_errors("read the node index"):
            row = self._db.execute("SELECT value FROM meta WHERE name = 'position'").fetchone()
            self.position = Position(0, "") if row is None else Position.parse(row[0])
            types = self._db.execute("SELECT name, tid, next, live FROM types").fetchall()
            slots = self._db.execute("SELECT name, sid FROM slots").fetchall()
        self._types: dict[str, list[int]] = {
            name: [tid, nxt, live] for name, tid, nxt, live in types
        }
        self._slots: dict[str, int] = dict(slots)
        self._touched_types: set[str] = set()

    def follow(self, schema: Schema) -> None:
        """Use this schema from now on."""
        self._schema = schema
        self.docs = Docs(schema)
        self._all_slots: Mapping[str, tuple[Slot, ...]] = all_slots(schema)

    def clear(self) -> None:
        """Forget everything; the log will be applied from its start."""
        self.close()
        self._remove_files()
        self._db = self._open()
        self._load_numbers()
        self.follow(self._schema)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._generation += 1
            for _, reader in self._idle:
                reader.close()
            self._idle.clear()
        self._db.close()

    # --- reading ---------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees committed states; in memory the only one there is."""
        if self._path is None:
            with self._memory_lock, storage_errors("read the node index"):
                yield self._db
            return
        generation, connection = self._borrow()
        try:
            with storage_errors("read the node index"):
                yield connection
        finally:
            with self._lock:
                if generation == self._generation:
                    self._idle.append((generation, connection))
                else:
                    connection.close()

    def _borrow(self) -> tuple[int, sqlite3.Connection]:
        """An idle reader, or a new one; as many exist as reads ever ran at once."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            generation = self._generation
        connection = connect(self._path, synchronous="NORMAL")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA cache_size = -16384")
        return generation, connection

    @contextmanager
    def writer(self) -> Iterator[sqlite3.Connection]:
        """The writing connection, which sees its own uncommitted changes."""
        with storage_errors("read the node index"):
            yield self._db

    def find(self, db: sqlite3.Connection, handle: str) -> Stored | None:
        """One node by handle."""
        row = db.execute("SELECT nid, seq, doc FROM nodes WHERE handle = ?", (handle,)).fetchone()
        if row is None:
            return None
        return Stored(row[0], row[1], self.state(handle, row[2]))

    def state(self, handle: str, doc: bytes) -> NodeState:
        """A row's node."""
        type_name, identifier = split_handle(handle)
        return NodeState(type_name, identifier, self.docs.decode(type_name, doc))

    def exists(self, db: sqlite3.Connection, handle: str) -> bool:
        """Whether there is such a node."""
        return db.execute("SELECT 1 FROM nodes WHERE handle = ?", (handle,)).fetchone() is not None

    def holders(self, db: sqlite3.Connection, slot: str, key: bytes, limit: int = -1) -> list[str]:
        """The handles of the nodes that have this key in a slot."""
        sid = self._slots.get(slot)
        if sid is None:
            return []
        rows = db.execute(
            "SELECT n.handle FROM keys k JOIN nodes n USING (nid) "
            "WHERE k.sid = ? AND k.key = ? ORDER BY k.nid LIMIT ?",
            (sid, key, limit),
        )
        return [handle for (handle,) in rows]

    def count_key(self, db: sqlite3.Connection, slot: str, key: bytes) -> int:
        """How many nodes have this key in a slot."""
        sid = self._slots.get(slot)
        if sid is None:
            return 0
        found: int = db.execute(
            "SELECT count(*) FROM keys WHERE sid = ? AND key = ?", (sid, key)
        ).fetchone()[0]
        return found

    def slot_number(self, slot: str) -> int:
        """The number of a slot; -1, which no row has, before its first key."""
        return self._slots.get(slot, -1)

    def ranges(self, type_names: Iterable[str]) -> list[tuple[int, int]]:
        """The node numbers of types, as ranges in number order."""
        numbers = sorted(self._types[name][0] for name in type_names if name in self._types)
        return [(tid << _TYPE_BITS, (tid + 1) << _TYPE_BITS) for tid in numbers]

    def live(self, db: sqlite3.Connection, type_names: Sequence[str]) -> int:
        """How many instances types have."""
        if db is self._db:
            return sum(self._types[name][2] for name in type_names if name in self._types)
        marks = ",".join("?" * len(type_names))
        found: int = db.execute(
            f"SELECT coalesce(sum(live), 0) FROM types WHERE name IN ({marks})",  # noqa: S608
            tuple(type_names),
        ).fetchone()[0]
        return found

    def states(self, db: sqlite3.Connection, type_names: Iterable[str]) -> Iterator[NodeState]:
        """Every instance of types, streamed."""
        for low, high in self.ranges(type_names):
            after = low - 1
            while rows := db.execute(
                "SELECT nid, handle, doc FROM nodes WHERE nid > ? AND nid < ? "
                "ORDER BY nid LIMIT 1000",
                (after, high),
            ).fetchall():
                for nid, handle, doc in rows:
                    after = nid
                    yield self.state(handle, doc)

    # --- writing ---------------------------------------------------------------

    def begin(self) -> None:
        """Open the writer's transaction."""
        self._memory_lock.acquire()
        try:
            with storage_errors("write the node index"):
                self._db.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._memory_lock.release()
            raise

    def commit(self, position: Position) -> None:
        """Make the changes and the new position visible, in one step."""
        with storage_errors("write the node index"):
            self._db.executemany(
                "UPDATE types SET next = ?, live = ? WHERE tid = ?",
                [
                    (nxt, live, tid)
                    for tid, nxt, live in (self._types[name] for name in self._touched_types)
                ],
            )
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('position', ?)", (str(position),))
            self._db.execute("COMMIT")
        self._touched_types.clear()
        self.position = position
        self._memory_lock.release()

    def rollback(self) -> None:
        """Forget the changes since ``begin``."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._load_numbers()
        finally:
            self._memory_lock.release()

    def put_all(
        self,
        seq: int,
        changes: Sequence[tuple[Stored | None, str, NodeState | None, int | None]],
    ) -> None:
        """Apply changes: (what is there, handle, what shall be, number to reuse or None)."""
        with storage_errors("write the node index"):
            gone_keys: list[tuple[int, bytes, int]] = []
            new_keys: list[tuple[int, bytes, int]] = []
            inserts: list[tuple[int, str, int, bytes]] = []
            for before, handle, after, reuse in changes:
                old = self._keys(before.nid, before.state) if before is not None else ()
                if after is None:
                    assert before is not None  # noqa: S101 - nothing to delete otherwise
                    gone_keys.extend(old)
                    self._db.execute("DELETE FROM nodes WHERE nid = ?", (before.nid,))
                    self._count(before.state.type, -1)
                    continue
                doc = self.docs.encode(after.type, after.values)
                if before is None:
                    nid = self._number(after.type) if reuse is None else reuse
                    self._count(after.type, 1)
                    inserts.append((nid, handle, seq, doc))
                    new_keys.extend(self._keys(nid, after))
                    continue
                new = self._keys(before.nid, after)
                kept = set(old).intersection(new)
                gone_keys.extend(key for key in old if key not in kept)
                new_keys.extend(key for key in new if key not in kept)
                self._db.execute(
                    "UPDATE nodes SET seq = ?, doc = ? WHERE nid = ?", (seq, doc, before.nid)
                )
            if inserts:
                self._db.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?)", inserts)
            if gone_keys:
                self._db.executemany(
                    "DELETE FROM keys WHERE sid = ? AND key = ? AND nid = ?", gone_keys
                )
            if new_keys:
                new_keys.sort()  # neighbours in the table are written together
                self._db.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", new_keys)

    def _keys(self, nid: int, state: NodeState) -> list[tuple[int, bytes, int]]:
        slots, values = self._slots, state.values
        out = []
        for slot in self._all_slots[state.type]:
            sid = slots.get(slot.name)
            if sid is None:
                sid = self._new_slot(slot.name)
            out += [(sid, key, nid) for key in slot.extract(values)]
        return out

    def _new_slot(self, name: str) -> int:
        sid = len(self._slots) + 1
        self._db.execute("INSERT INTO slots VALUES (?, ?)", (sid, name))
        self._slots[name] = sid
        return sid

    def _type(self, name: str) -> list[int]:
        found = self._types.get(name)
        if found is None:
            found = self._types[name] = [len(self._types) + 1, 0, 0]
            self._db.execute("INSERT INTO types VALUES (?, ?, 0, 0)", (found[0], name))
        self._touched_types.add(name)
        return found

    def _number(self, type_name: str) -> int:
        found = self._type(type_name)
        found[1] += 1
        return (found[0] << _TYPE_BITS) + found[1]

    def _count(self, type_name: str, step: int) -> None:
        self._type(type_name)[2] += step

    def slots_for(self, type_name: str) -> tuple[Slot, ...]:
        """The slots in which instances of a type have keys."""
        return self._all_slots[type_name]

    def dump(self) -> Iterator[tuple[object, ...]]:
        """Every row, for comparing two indexes."""
        with self.reader() as db:
            for query in (
                "SELECT name, live FROM types WHERE live > 0 ORDER BY name",
                "SELECT handle, seq, doc FROM nodes ORDER BY handle",
                (
                    "SELECT s.name, k.key, n.handle FROM keys k JOIN slots s USING (sid) "
                    "JOIN nodes n USING (nid) ORDER BY 1, 2, 3"
                ),
            ):
                yield from db.execute(query)
