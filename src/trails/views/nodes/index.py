"""NodeIndex: the tables, the one writer, and point reads.

The writer works inside one transaction that the engine opens before it
validates and commits after the log has the commit: so the rules that look at
other nodes are checked on the state *after* the change, and a refused change
leaves nothing behind. Other connections see committed states only.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from trails.errors import CorruptionError, StorageError, StorageFullError
from trails.log.storage import connect, storage_errors
from trails.model.history import Position
from trails.model.iris import decode_id
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.views.nodes.docs import Docs
from trails.views.nodes.keys import Extract, Slot, all_slots
from trails.views.turns import Turns

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


_ROWS: Final = 100
_HANDLES: Final = 200
KeyRow = tuple[int, bytes, int]
Plan = list[tuple[Extract, tuple[int, ...]]]


class Stored(msgspec.Struct, frozen=True):
    """A node as the index holds it."""

    nid: int
    seq: int
    state: NodeState


def _position(row: tuple[str] | None, types: list[tuple[object, ...]]) -> Position:
    try:
        if row is not None:
            return Position.parse(row[0])
    except (AttributeError, ValueError):
        raise CorruptionError("the node index does not say how far it is") from None
    if types:
        raise CorruptionError("the node index has nodes, but does not say how far it is")
    return Position(0, "")


def _names(slots: Iterable[Slot]) -> set[str]:
    return {slot.name for slot in slots}


class NodeIndex:
    """The index of one branch, in a file or in memory, and how far it has followed the log."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._memory_lock = threading.RLock()
        self._turns = Turns()
        self._idle: list[sqlite3.Connection] = []
        self._writing = False
        self.damaged = False
        """Whether something unreadable was found; only ``clear`` helps."""
        self.whole = True
        """Whether it is the graph as of its position, and not on the way there."""
        self._schema = Schema()
        self._db = self._open()
        self.follow(Schema())

    # --- opening and closing ---------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._prepare()
        except StorageFullError:
            raise
        except StorageError:
            # A view is a copy: one that can't be read is rebuilt from the log.
            self.whole = False
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
            self._load_numbers(db)
        except BaseException:
            db.close()
            raise
        return db

    def _remove_files(self) -> None:
        if self._path is not None:
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _load_numbers(self, db: sqlite3.Connection) -> None:
        """Read the small tables that the writer keeps in memory."""
        with self._errors("read the node index"):
            row = db.execute("SELECT value FROM meta WHERE name = 'position'").fetchone()
            types = db.execute("SELECT name, tid, next, live FROM types").fetchall()
            slots = db.execute("SELECT name, sid FROM slots").fetchall()
            self.position = _position(row, types)
        self._types: dict[str, list[int]] = {
            name: [tid, nxt, live] for name, tid, nxt, live in types
        }
        self._slots: dict[str, int] = dict(slots)
        self._touched_types: set[str] = set()
        self._plans: dict[str, Plan] = {}

    @property
    def schema(self) -> Schema:
        """The schema that rows are read and written with."""
        return self._schema

    def follow(self, schema: Schema) -> None:
        """Use this schema, for which the rows are made already."""
        self._schema = schema
        self.docs = Docs(schema)
        self._all_slots: Mapping[str, tuple[Slot, ...]] = all_slots(schema)
        self._unique_slots = {
            name: tuple(slot for slot in slots if slot.unique)
            for name, slots in self._all_slots.items()
        }
        self._plans.clear()

    def clear(self) -> None:
        """Forget everything; the log will be applied from its start."""
        with self._turns.exclusive():
            self.close()
            self.damaged = self.whole = False
            self.position = Position(0, "")
            self._remove_files()
            self._db = self._open()
            self.follow(self._schema)

    def close(self) -> None:
        """Close all connections; a reader closed later would remove the next file's WAL."""
        with self._turns.exclusive(), self._lock:
            for reader in self._idle:
                reader.close()
            self._idle.clear()
            self._db.close()

    def _errors(self, doing: str) -> AbstractContextManager[None]:
        """Storage errors, with damage remembered."""
        return storage_errors(doing, self._note_damage)

    def _note_damage(self) -> None:
        self.damaged = True

    # --- reading ---------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees committed states; in memory the only one there is."""
        if self._path is None:
            with self._memory_lock, self._errors("read the node index"):
                yield self._db
            return
        with self._turns.shared(), self._errors("read the node index"):
            connection = self._borrow()
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.close()  # an error kept it open, and it would never see news
                else:
                    with self._lock:
                        self._idle.append(connection)

    def _borrow(self) -> sqlite3.Connection:
        """An idle reader, or a new one; as many exist as reads ever ran at once."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        connection = connect(self._path, synchronous="NORMAL")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA cache_size = -16384")
        return connection

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the files in place while they are read."""
        with self._turns.shared():
            yield

    @contextmanager
    def writer(self) -> Iterator[sqlite3.Connection]:
        """The writing connection, which sees its own uncommitted changes."""
        with self._errors("read the node index"):
            yield self._db

    def find(self, db: sqlite3.Connection, handle: str) -> Stored | None:
        """One node by handle."""
        query = "SELECT nid, seq, doc FROM nodes WHERE handle = ?"
        row = next(self._rows(db, query, (handle,)), None)
        if row is None:
            return None
        return Stored(row[0], row[1], self.state(handle, row[2]))

    def find_all(self, db: sqlite3.Connection, handles: Sequence[str]) -> dict[str, Stored]:
        """Those of many nodes that exist, by handle."""
        found: dict[str, Stored] = {}
        for at in range(0, len(handles), _HANDLES):
            some = handles[at : at + _HANDLES]
            query = f"SELECT handle, nid, seq, doc FROM nodes WHERE handle IN ({marks(len(some))})"  # noqa: S608
            for handle, nid, seq, doc in self._rows(db, query, some):
                found[handle] = Stored(nid, seq, self.state(handle, doc))
        return found

    def state(self, handle: str, doc: bytes) -> NodeState:
        """A row's node."""
        try:
            type_name, _, segment = handle.partition("/")
            identifier = decode_id(segment) if "%" in segment else segment
            return NodeState(type_name, identifier, self.docs.decode(type_name, doc))
        except (KeyError, TypeError, ValueError, ArithmeticError, msgspec.MsgspecError) as error:
            self.damaged = True
            raise CorruptionError(
                f"the node index holds something unreadable ({error}); it will be rebuilt"
            ) from error

    def exists(self, db: sqlite3.Connection, handle: str) -> bool:
        """Whether there is such a node."""
        query = "SELECT 1 FROM nodes WHERE handle = ?"
        return next(self._rows(db, query, (handle,)), None) is not None

    def holders(self, db: sqlite3.Connection, slot: str, key: bytes, limit: int = -1) -> list[str]:
        """The handles of the nodes that have this key in a slot."""
        sid = self._slots.get(slot)
        if sid is None:
            return []
        query = (
            "SELECT n.handle FROM keys k JOIN nodes n USING (nid) "
            "WHERE k.sid = ? AND k.key = ? ORDER BY k.nid LIMIT ?"
        )
        return [handle for (handle,) in self._rows(db, query, (sid, key, limit))]

    def count_key(self, db: sqlite3.Connection, slot: str, key: bytes) -> int:
        """How many nodes have this key in a slot."""
        sid = self._slots.get(slot)
        if sid is None:
            return 0
        query = "SELECT count(*) FROM keys WHERE sid = ? AND key = ?"
        found: int = next(self._rows(db, query, (sid, key)))[0]
        return found

    def _rows(
        self, db: sqlite3.Connection, query: str, values: Sequence[object]
    ) -> Iterator[tuple[Any, ...]]:
        """Rows, for readers who hold a connection beyond ``reader`` and ``writer``."""
        try:
            return iter(db.execute(query, values).fetchall())
        except sqlite3.DatabaseError as error:
            failed = error
        with self._errors("read the node index"):
            raise failed

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
        found: int = db.execute(
            f"SELECT coalesce(sum(live), 0) FROM types WHERE name IN ({marks(len(type_names))})",  # noqa: S608
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
            with self._errors("write the node index"):
                self._db.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._memory_lock.release()
            raise
        self._writing = True

    def commit(self, position: Position) -> None:
        """Make the changes and the new position visible, in one step."""
        with self._errors("write the node index"):
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
        self._writing = False
        self._memory_lock.release()

    def rollback(self) -> None:
        """Forget the changes since ``begin``, if there was one."""
        if not self._writing:
            return
        try:
            with self._errors("write the node index"):
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            self._load_numbers(self._db)
        except StorageError:
            self.damaged = True
        finally:
            self._writing = False
            self._memory_lock.release()

    def put_all(
        self,
        seq: int,
        changes: Sequence[tuple[Stored | None, str, NodeState | None, int | None]],
    ) -> None:
        """Apply changes: (what is there, handle, what shall be, number to reuse or None)."""
        with self._errors("write the node index"):
            gone_keys: list[KeyRow] = []
            new_keys: list[KeyRow] = []
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
            self._insert("INSERT INTO nodes", inserts, 4)
            if gone_keys:
                self._db.executemany(
                    "DELETE FROM keys WHERE sid = ? AND key = ? AND nid = ?", gone_keys
                )
            new_keys.sort()  # neighbours in the table are written together
            self._insert("INSERT OR IGNORE INTO keys", new_keys, 3)

    def date(self, nodes: Iterable[tuple[int, int]]) -> None:
        """Say of nodes, by number, in which commit they were last changed."""
        with self._errors("write the node index"):
            self._db.executemany(
                "UPDATE nodes SET seq = ? WHERE nid = ?", ((seq, nid) for nid, seq in nodes)
            )

    def _insert(self, start: str, rows: Sequence[tuple[object, ...]], width: int) -> None:
        """Insert rows, many a statement: that takes two thirds of the time of one by one."""
        row = f"({marks(width)})"
        whole = len(rows) - len(rows) % _ROWS
        if whole:
            many = f"{start} VALUES {','.join([row] * _ROWS)}"
            for at in range(0, whole, _ROWS):
                self._db.execute(many, list(chain.from_iterable(rows[at : at + _ROWS])))
        self._db.executemany(f"{start} VALUES {row}", rows[whole:])

    def adopt(self, schema: Schema) -> None:
        """Follow another schema from here on: drop the slots it lost, fill those it gained."""
        with storage_errors("write the node index"):
            before = {name: _names(slots) for name, slots in self._all_slots.items()}
            self.follow(schema)
            after = {name: _names(slots) for name, slots in self._all_slots.items()}
            for slot in set().union(*before.values()) - set().union(*after.values()):
                self._db.execute("DELETE FROM keys WHERE sid = ?", (self.slot_number(slot),))
            for name in before.keys() & after.keys():
                gained = after[name] - before[name]
                if gained and self.live(self._db, (name,)):
                    self._fill(name, gained)

    def _fill(self, type_name: str, gained: set[str]) -> None:
        slots = [
            (self._numbered(slot.name), slot.extract)
            for slot in self._all_slots[type_name]
            if slot.name in gained
        ]
        for state in self.states(self._db, (type_name,)):
            (nid,) = self._db.execute(
                "SELECT nid FROM nodes WHERE handle = ?", (state.handle,)
            ).fetchone()
            self._db.executemany(
                "INSERT OR IGNORE INTO keys VALUES (?, ?, ?)",
                [(sid, key, nid) for sid, extract in slots for key in extract(state.values)],
            )

    def _keys(self, nid: int, state: NodeState) -> list[KeyRow]:
        values = state.values
        return [
            (sid, key, nid)
            for extract, sids in self._plans.get(state.type) or self._plan(state.type)
            for key in extract(values)
            for sid in sids
        ]

    def _plan(self, type_name: str) -> Plan:
        """How a type's keys are made: each key once, for all the slots that hold it."""
        sids: dict[Extract, list[int]] = {}
        for slot in self._all_slots[type_name]:
            sids.setdefault(slot.extract, []).append(self._numbered(slot.name))
        plan = self._plans[type_name] = [(extract, tuple(each)) for extract, each in sids.items()]
        return plan

    def _numbered(self, slot: str) -> int:
        sid = self._slots.get(slot)
        if sid is None:
            sid = self._slots[slot] = len(self._slots) + 1
            self._db.execute("INSERT INTO slots VALUES (?, ?)", (sid, slot))
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

    def unique_slots(self, type_name: str) -> tuple[Slot, ...]:
        """The slots in which no two nodes may have the same key."""
        return self._unique_slots[type_name]

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


def marks(count: int) -> str:
    """Placeholders of a statement."""
    return ",".join("?" * count)
