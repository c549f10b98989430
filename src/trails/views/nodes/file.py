"""NodeFile: the one SQLite file behind the node indexes of all branches and snapshots.

It owns the tables, the connections, the one writer's transaction and the numbers of
types and slots. The writer works inside one transaction that the engine opens before
it validates and commits after the log has the commit: so the rules that look at other
nodes are checked on the state *after* the change, and a refused change leaves nothing
behind. Other connections see committed states only.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from trails.errors import CorruptionError, ReadOnlyError, StorageError, UnwritableError
from trails.files import private_folder, sync_file, sync_folder
from trails.log.storage import (
    bytes_of,
    connect,
    connect_read_only,
    forget_statistics,
    give_back_space,
    storage_errors,
)
from trails.model.history import Position
from trails.model.types import Schema
from trails.views.base import ReadWriteLock
from trails.views.nodes.layers import FOREVER, ROOT, Layers
from trails.views.nodes.long_texts import LongTexts
from trails.views.nodes.rows import DRAFT_TABLES, TABLES, all_slots, handle_key

INDEX_FORMAT: Final = 5
_READABLE: Final = {4, INDEX_FORMAT}
"""Formats that can be used; 4 has no table of long texts, which are in the documents."""
TYPE_BITS: Final = 44
"""A node number is its type's number, then a counter: a type is one range of rows."""

_UNUSABLE: Final = {
    None,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
}
"""What SQLite says of tables that are not ours, of texts that are none, and of bad sectors."""
_ROWS: Final = 100
"""Rows that one statement inserts at most."""
_SOME: Final = 16
"""The same where there are fewer than that."""
_FEW: Final = 2
"""Rows from which one statement inserts them: each statement has to get the interpreter back."""
# The system keeps the file's pages in memory as well, so a small cache of our own suffices;
# only the order of a large write's pages needs more.
_USUAL_CACHE: Final = "PRAGMA cache_size = -8192"
_LARGE_CACHE: Final = "PRAGMA cache_size = -65536"
_RARE_CHECKPOINTS: Final = "PRAGMA wal_autocheckpoint = 4000"
"""In pages. Each checkpoint syncs two files, and the pages of keys are changed again and again."""
_MUCH_LOG: Final = 12 << 20
"""Bytes of the WAL from which work beside writers does the checkpoint for them."""
_READERS_CACHE: Final = "PRAGMA cache_size = -2048"
_READERS_MAP: Final = f"PRAGMA mmap_size = {1 << 40}"
"""Readers use the system's pages as they are: each write makes caches of their own worthless."""
_MANY: Final = 100_000
"""Keys of one write from which it is large."""
_MOST_WAITING: Final = 1_000_000
"""Keys that wait at most: the load of statements goes on while they are put."""


class NodeFile:
    """The tables of all node indexes of a graph, in a file or in memory."""

    _places: tuple[str, ...] = ("main.",)
    """The databases in which texts and numbers may be, as prefixes; the first is written."""

    def __init__(
        self,
        path: Path | None,
        schema_of: Callable[[str], Schema],
        *,
        read_only: bool = False,
        source: Path | None = None,
    ) -> None:
        """``read_only``: use the file as it is. ``source``: begin as a copy of another file."""
        self._path = path
        self._read_only = read_only
        self._source = source
        self.schema_of = schema_of
        """Digest → schema: layers may be read with different ones."""
        self._lock = threading.Lock()
        self._memory_lock = threading.RLock()
        self.rw_lock = ReadWriteLock()
        self._drafting = ReadWriteLock()
        self._idle: list[sqlite3.Connection] = []
        self.texts = LongTexts(self._places)
        """The texts that are too long for documents."""
        self._closed = False
        self._writing = False
        self._in_part = False
        self.damaged = False
        """Whether something unreadable was found; only ``replace`` helps."""
        self.whole = True
        """Whether it is the graph as the log says, and not on the way there."""
        self.epoch = 0
        """Grows whenever the numbers were read anew, so that what was made of them is stale."""
        self.db = self._open()

    # --- opening and closing ---------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        """Open the file; one that can't be used stays until another can take its place."""
        if self._path is not None and self._read_only:
            with self.errors("open the node index"):
                db = connect_read_only(self._path)
            return self._checked(db)
        if self._path is not None:
            private_folder(self._path.parent)
        try:
            self._check_place()
            return self._prepare(self._path)
        except StorageError as error:
            if not _is_damage(error):
                raise
            self.damaged, self.whole = True, False
            return self._prepare(None)

    def _check_place(self) -> None:
        """Refuse a folder, or a file that can't be opened, in the file's place."""
        if self._path is None or not self._path.exists():
            return
        if self._path.is_dir():
            raise CorruptionError(f"{self._path} is a folder, and should be the node index")
        if not os.access(self._path, os.R_OK | os.W_OK):
            raise UnwritableError(
                f"can't open the node index: {self._path} must be readable and writable for the "
                "user who runs this process; correct its permissions"
            )

    def _prepare(self, path: Path | None) -> sqlite3.Connection:
        db = connect(path, synchronous="NORMAL")
        try:
            with storage_errors("open the node index"):
                if self._source is not None:
                    with closing(connect_read_only(self._source)) as source:
                        source.backup(db)
                    self._source = None  # what is opened again begins empty
                db.execute(_USUAL_CACHE)
                db.execute(_RARE_CHECKPOINTS)
                found = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if not found:
                    db.executescript(TABLES)
                    db.execute("INSERT INTO meta VALUES ('format', ?)", (INDEX_FORMAT,))
                    numbering = secrets.token_hex(4)
                    db.execute("INSERT INTO meta VALUES ('numbering', ?)", (numbering,))
        except BaseException:
            db.close()
            raise
        return self._checked(db)

    def _checked(self, db: sqlite3.Connection) -> sqlite3.Connection:
        """Look at the format and read what is kept in memory."""
        _with_functions(db)
        try:
            with storage_errors("open the node index"):
                row = db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
                if row is None or row[0] not in _READABLE:
                    raise CorruptionError("the node index has another format")  # noqa: TRY301
                if not self._read_only:
                    db.executescript(TABLES)
                    forget_statistics(db)
                if not self._read_only and row[0] != INDEX_FORMAT:
                    db.execute("UPDATE meta SET value = ? WHERE name = 'format'", (INDEX_FORMAT,))
            self._load(db)
        except BaseException:
            db.close()
            raise
        return db

    def _load(self, db: sqlite3.Connection) -> None:
        """Read the small tables that the writer keeps in memory."""
        with self.errors("read the node index"):
            types = db.execute("SELECT name, tid, next FROM types").fetchall()
            slots = db.execute("SELECT name, sid FROM slots").fetchall()
            half = db.execute("SELECT value FROM meta WHERE name = 'half_folded'").fetchone()
            number = db.execute("SELECT value FROM meta WHERE name = 'numbering'").fetchone()
            gone = None
            if not self._read_only:  # a file of an earlier version may not have the table
                gone = db.execute("SELECT 1 FROM main.gone LIMIT 1").fetchone()
            try:
                self.layers = Layers.read(db)
            except (TypeError, ValueError) as error:
                raise CorruptionError(f"the node index holds wrong values: {error}") from error
        self.types: dict[str, list[int]] = {name: [tid, nxt] for name, tid, nxt in types}
        self._slots: dict[str, int] = dict(slots)
        self.half_folded: str = "" if half is None else half[0]
        """The commit that the root has in part; it is not at it before it has all of it."""
        self._any_gone = gone is not None
        self.numbering: str = "" if number is None else number[0]
        """Changes when the file is made anew: its nodes then have other numbers."""
        self._touched_types: set[str] = set()
        self._waiting = self._taken = 0
        self.epoch += 1

    def beside(self) -> NodeFile:
        """An empty file next to this one, in which it can be made anew."""
        if self._path is None:
            return NodeFile(None, self.schema_of)
        path = self._path.with_name(f"{self._path.name}.new")
        _remove(path)
        return NodeFile(path, self.schema_of)

    def replace(self, fresh: NodeFile) -> None:
        """Let a complete file that was made beside this one take its place, durably."""
        with (
            self._drafting.exclusive(),
            self.rw_lock.exclusive(),
            self.errors("replace the node index"),
        ):
            if self._path is None or fresh._path is None:
                self.db.close()
                self.db = fresh.db
                self._load(self.db)
            else:
                fresh._seal()
                self.close()
                _make_way(self._path)
                fresh._path.replace(self._path)
                sync_folder(self._path.parent)
                self.db = self._open()
                self._closed = False
            self.damaged, self.whole = False, True

    def _seal(self) -> None:
        """Bring everything into the one file, synced, and close it."""
        with self.errors("write the node index"):
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self.close()
            if self._path is not None:
                sync_file(self._path)

    def discard(self) -> None:
        """Close and remove it."""
        self.rollback()
        self.close()
        if self._path is not None:
            _remove(self._path)

    def close(self) -> None:
        """Close all connections; a reader closed later would remove the next file's WAL."""
        with self._drafting.exclusive(), self.rw_lock.exclusive(), self._lock:
            for reader in self._idle:
                reader.close()
            self._idle.clear()
            self.db.close()
            self._closed = True

    def errors(self, doing: str) -> AbstractContextManager[None]:
        """Storage errors, with damage remembered."""
        return storage_errors(doing, self._note_damage)

    def _note_damage(self) -> None:
        self.damaged = True

    # --- reading ---------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees committed states; in memory the only one there is."""
        if self._path is None:
            with self._memory_lock, self.errors("read the node index"):
                yield self.db
            return
        with self.rw_lock.shared(), self.errors("read the node index"):
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
            if self._closed:
                raise StorageError("the node index is closed")
            if self._idle:
                return self._idle.pop()
        if self._read_only and self._path is not None:
            connection = connect_read_only(self._path)
        else:
            connection = connect(self._path, synchronous="NORMAL")
            connection.execute("PRAGMA query_only = ON")
        connection.execute(_READERS_CACHE)
        connection.execute(_READERS_MAP)
        return _with_functions(connection)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the files in place while they are read."""
        with self.rw_lock.shared():
            yield

    @contextmanager
    def pinned(self) -> Iterator[PinnedFile]:
        """The file as it is now, to be read while others write; one in memory is copied.

        As with a draft, only a thread that replaces the file waits for it.
        """
        with self._drafting.shared(), self.errors("read the node index"):
            if self._read_only and self._path is not None:
                db = connect_read_only(self._path)
                db.execute("PRAGMA query_only = OFF")  # for temporary tables
            else:
                db = connect(self._path, synchronous="NORMAL")
            try:
                _with_functions(db)
                if self._path is None:
                    with self._memory_lock:
                        self.db.backup(db)
                db.execute("BEGIN")
                yield PinnedFile(db, self.schema_of)  # the first read fixes what all others see
            finally:
                db.close()

    @contextmanager
    def draft(self) -> Iterator[DraftFile]:
        """The file as it is now, to be changed in temporary tables only; one in memory is copied.

        Neither the writer's lock nor a turn is held meanwhile: SQLite keeps the state in place.
        """
        with self._drafting.held(), self.errors("read the node index"):
            with self._memory_lock if self._path is None else nullcontext():
                draft = DraftFile(self._path, self.schema_of, self.db)
            try:
                yield draft
            finally:
                draft.close()
                self.damaged = self.damaged or draft.damaged

    @property
    def frozen(self) -> bool:
        """Whether the file is used as it is, and can't be changed."""
        return self._read_only

    @property
    def in_memory(self) -> bool:
        """Whether there is one connection only, which writers and readers share."""
        return self._path is None

    @contextmanager
    def writer(self) -> Iterator[sqlite3.Connection]:
        """The writing connection, which sees its own uncommitted changes."""
        with self.errors("read the node index"):
            yield self.db

    def rows(
        self, db: sqlite3.Connection, query: str, values: Sequence[object] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Rows, for readers who hold a connection beyond ``reader`` and ``writer``."""
        try:
            return iter(db.execute(query, values).fetchall())
        except sqlite3.DatabaseError as error:
            failed = error
        with self.errors("read the node index"):
            raise failed

    # --- numbers ---------------------------------------------------------------

    def slot_number(self, slot: str) -> int:
        """The number of a slot; -1, which no row has, before its first key."""
        return self._slots.get(slot, -1)

    def numbered_slot(self, slot: str) -> int:
        """The number of a slot, which gets one now if it has none."""
        sid = self._slots.get(slot)
        if sid is None:
            sid = self._slots[slot] = len(self._slots) + 1
            self.db.execute("INSERT INTO slots VALUES (?, ?)", (sid, slot))
        return sid

    def type_number(self, name: str) -> int:
        """The number of a type, which gets one now if it has none."""
        return self._type(name)[0]

    def _type(self, name: str) -> list[int]:
        found = self.types.get(name)
        if found is None:
            found = self.types[name] = [len(self.types) + 1, 0]
            self.db.execute("INSERT INTO types VALUES (?, ?, 0)", (found[0], name))
        return found

    def new_node(self, handle: str, type_name: str) -> int:
        """The number of a new node: the same on every branch that will know it.

        A node that was deleted has its old one, in whatever state it is read again: pages of
        an old state go on where those of the present ended.
        """
        for place in self._places if self._any_gone else ():
            query = f"SELECT nid FROM {place}gone WHERE handle = ?"  # noqa: S608
            row = self.db.execute(query, (handle,)).fetchone()
            if row is not None:
                number: int = row[0]
                return number
        found = self._type(type_name)
        found[1] += 1
        self._touched_types.add(type_name)
        return (found[0] << TYPE_BITS) + found[1]

    def keep_number(self, handle: str, number: int) -> None:
        """Remember the number of a node that is deleted."""
        self._any_gone = True
        self.db.execute("INSERT OR REPLACE INTO gone VALUES (?, ?)", (handle, number))

    def ranges(self, type_names: Iterable[str]) -> list[tuple[int, int]]:
        """The node numbers of types, as ranges in number order."""
        numbers = sorted(self.types[name][0] for name in type_names if name in self.types)
        return [(tid << TYPE_BITS, (tid + 1) << TYPE_BITS) for tid in numbers]

    # --- writing ---------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        """Whether the writer's transaction is open."""
        return self.db.in_transaction

    def begin(self) -> None:
        """Open the writer's transaction, or a part of the one that is open."""
        if self._writing:
            with self.errors("write the node index"):
                if self._in_part:
                    self.db.execute("RELEASE part")
                    self._in_part = False
                self.db.execute("SAVEPOINT part")
            self._in_part = True
            return
        if self._read_only:
            raise ReadOnlyError(
                "the graph is open read-only, and the node index has to be written for this; ask "
                "for the present state of a branch"
            )
        self._hold_memory()
        try:
            with self.errors("write the node index"):
                self.db.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._release_memory()
            raise
        self._writing = True

    def _hold_memory(self) -> None:
        """Keep readers away from the one connection that there is in memory.

        Of a file, the transaction may be ended by another thread than the one that began it.
        """
        if self._path is None:
            self._memory_lock.acquire()

    def _release_memory(self) -> None:
        if self._path is None:
            self._memory_lock.release()

    def keep(self) -> None:
        """Keep the changes since ``begin`` for ``commit``; what follows can be undone by itself."""
        with self.errors("write the node index"):
            self._write_state()

    def _write_state(self) -> None:
        """Put what is only in memory into the tables."""
        self.put_waiting()
        if self._touched_types:
            self.db.executemany(
                "UPDATE types SET next = ? WHERE tid = ?",
                [(nxt, tid) for tid, nxt in (self.types[name] for name in self._touched_types)],
            )
            self._touched_types.clear()
        self.layers.write(self.db)

    def undo(self) -> None:
        """Forget the changes since the last ``begin``; the parts before it stay."""
        if not self._in_part:
            self.rollback()
            return
        self._in_part = False
        try:
            with self.errors("write the node index"):
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK TO part")
                    self.db.execute("RELEASE part")
            self._load(self.db)
        except StorageError:
            self.damaged = True

    def commit(self) -> None:
        """Make the changes visible, in one step."""
        with self.errors("write the node index"):
            self._write_state()
            self.texts.collect_sometimes(self.db)
            self.db.execute("COMMIT")
            self._narrow()
        self._writing = self._in_part = False
        self._release_memory()

    def rollback(self) -> None:
        """Forget all changes of the transaction, if one is open."""
        if not self._writing:
            return
        try:
            with self.errors("write the node index"):
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                self._narrow()
            self._load(self.db)
        except StorageError:
            self.damaged = True
        finally:
            self._writing = self._in_part = False
            self._release_memory()

    def mark_half_folded(self, commit: str) -> None:
        """Say which commit the root has in part; none when it has all of it."""
        if commit != self.half_folded:
            self.db.execute("INSERT OR REPLACE INTO meta VALUES ('half_folded', ?)", (commit,))
            self.half_folded = commit

    @contextmanager
    def step(self) -> Iterator[None]:
        """A transaction that the body commits, together with a position."""
        self.begin()
        try:
            yield
        except BaseException:
            self.rollback()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction of its own, for changes of the tree of layers."""
        with self.step():
            yield
            self.commit()

    def insert(self, start: str, rows: Sequence[tuple[object, ...]], width: int) -> None:
        """Insert rows, many a statement: of twelve, that takes a third of the time of one by one.

        There are few numbers of rows, so that SQLite compiles few statements.
        """
        at, row = 0, f"({marks(width)})"
        while (left := len(rows) - at) >= _FEW:
            size = _ROWS if left >= _ROWS else min(left, _SOME)
            values = list(chain.from_iterable(rows[at : at + size]))
            self.db.execute(f"{start} VALUES {','.join([row] * size)}", values)
            at += size
        if left:
            self.db.execute(f"{start} VALUES {row}", rows[at])

    def wait(self, keys: Sequence[tuple[int, bytes, int]]) -> None:
        """Take keys of the root that no one looks at before ``put_waiting``.

        Put as they come, the keys of a large write would touch most pages of the table again
        and again; put in order, many at a time, each page a few times.
        """
        self.insert("INSERT INTO waiting", keys, 3)
        if self._taken < _MANY <= self._taken + len(keys):
            self.db.execute(_LARGE_CACHE)
        self._taken += len(keys)
        self._waiting += len(keys)
        if self._waiting > _MOST_WAITING:
            self.put_waiting()

    def put_waiting(self) -> None:
        """Put the keys that wait into their table, in its order."""
        if self._waiting:
            self.db.execute(
                "INSERT OR IGNORE INTO keys SELECT sid, key, nid FROM waiting ORDER BY 1, 2, 3"
            )
            self.db.execute("DELETE FROM waiting")
            self._waiting = 0

    def checkpoint_sometimes(self) -> None:
        """Bring pages into the file before a writer has to, without its lock, if there are many."""
        if self._path is None:
            return
        log = self._path.with_name(f"{self._path.name}-wal")
        with suppress(OSError):
            if log.stat().st_size < _MUCH_LOG:
                return
        # It takes long, and those who move a branch wait for readers.
        with (
            self._drafting.shared(),
            self.errors("write the node index"),
            closing(connect(self._path, synchronous="NORMAL")) as db,
        ):
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _narrow(self) -> None:
        """Give back the memory that a large write was given."""
        if self._taken >= _MANY:
            self.db.execute(_USUAL_CACHE)
            self.db.execute("PRAGMA shrink_memory")
        self._taken = 0

    # --- upkeep --------------------------------------------------------------------

    def purge(self) -> int:
        """Drop versions that no layer sees any more; how many rows that freed."""
        freed = 0
        with self.rw_lock.exclusive(), self.transaction():
            freed += self.layers.sweep(self.db)
            for layer in self.layers:
                forks = [each.fork for each in self.layers.children(layer.number)]
                seen = " OR ".join(f"(seq <= {fork} AND until > {fork})" for fork in forks) or "0"
                for table in ("rows", "row_keys"):
                    freed += self.db.execute(
                        f"DELETE FROM {table} WHERE layer = ? AND until < ? AND NOT ({seen})",  # noqa: S608
                        (layer.number, FOREVER),
                    ).rowcount
            if not self.layers.children(ROOT):
                self._drop_lost_slots()
            freed += self.texts.collect(self.db, grace=0)
        return freed

    def _drop_lost_slots(self) -> None:
        """Keys that only layers of the past would have read."""
        schema = self.layers[ROOT].schema
        if not schema:
            return
        wanted = {
            slot.name for slots in all_slots(self.schema_of(schema)).values() for slot in slots
        }
        for name, sid in self._slots.items():
            if name not in wanted:
                self.db.execute("DELETE FROM keys WHERE sid = ?", (sid,))

    def compact(self) -> None:
        """Give unused space back."""
        with self.rw_lock.exclusive(), self.errors("compact the node index"):
            self.db.execute("VACUUM")
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def size(self) -> int:
        """The bytes of the file and of what SQLite keeps beside it."""
        path = self._path
        return 0 if path is None else bytes_of(path.parent.glob(f"{path.name}*"))

    def give_back_space(self) -> None:
        """Give what the file does not use back to the file system."""
        if self._path is not None:
            with self.rw_lock.exclusive():
                give_back_space(self.db, self._path, nullcontext())

    # --- history of nodes --------------------------------------------------------

    def commits_of(self, db: sqlite3.Connection, handle: str) -> list[int]:
        """The places in the log of all commits, on any branch, that changed a node."""
        placed = " ".join(
            f"UNION SELECT seq FROM {place}past WHERE handle = ?1 "  # noqa: S608
            f"UNION SELECT seq FROM {place}rows WHERE handle = ?1 AND seq > 0"
            for place in self._places
        )
        query = f"SELECT seq FROM nodes WHERE handle = ?1 {placed} ORDER BY 1"  # noqa: S608
        return [seq for (seq,) in self.rows(db, query, (handle,))]

    def commits_before(
        self, db: sqlite3.Connection, handle: str, before: int, limit: int
    ) -> list[int]:
        """The last few of them before a place, newest first."""
        query = (
            "SELECT seq FROM (SELECT seq FROM past WHERE handle = ?1 AND seq < ?2 "
            "ORDER BY seq DESC LIMIT ?3) "
            "UNION SELECT seq FROM nodes WHERE handle = ?1 AND seq < ?2 "
            "UNION SELECT seq FROM rows WHERE handle = ?1 AND seq > 0 AND seq < ?2 "
            "ORDER BY 1 DESC LIMIT ?3"
        )
        return [seq for (seq,) in self.rows(db, query, (handle, before, limit))]


class PinnedFile(NodeFile):
    """A node file at one moment, as one connection sees it; not to be written."""

    def __init__(self, db: sqlite3.Connection, schema_of: Callable[[str], Schema]) -> None:
        """``db`` is in a transaction, and is closed by its owner."""
        self._given = db
        super().__init__(None, schema_of, read_only=True)

    def _open(self) -> sqlite3.Connection:
        self._load(self._given)
        return self._given


class DraftFile(NodeFile):
    """A node file at one moment: what is written here goes to temporary tables alone.

    There is one connection, as in memory: a writer's transaction is a savepoint in the one that
    keeps the state in place.
    """

    _places = ("temp.", "main.")

    def __init__(
        self, path: Path | None, schema_of: Callable[[str], Schema], memory: sqlite3.Connection
    ) -> None:
        """``memory`` is the database that is copied, where there is no file."""
        self._memory = memory
        self._before: _DraftState | None = None
        self.own: set[int] = set()
        """The layers that are in temporary tables."""
        super().__init__(path, schema_of)

    def _open(self) -> sqlite3.Connection:
        db = _with_functions(connect(self._path, synchronous="NORMAL"))
        try:
            with storage_errors("open the node index"):
                if self._path is None:
                    self._memory.backup(db)
                db.execute("BEGIN")
                self._load(db)  # the first read fixes the state that all others see
                for statement in DRAFT_TABLES.split(";"):
                    db.execute(statement)  # 'executescript' would end the transaction
        except BaseException:
            db.close()
            raise
        return db

    @property
    def in_memory(self) -> bool:
        """Whether writers and readers share a connection: always."""
        return True

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """The connection, when no other thread uses it."""
        with self._memory_lock, self.errors("read the node index"):
            yield self.db

    def begin(self) -> None:
        """Open the writer's transaction."""
        self._memory_lock.acquire()
        try:
            with self.errors("write the node index"):
                self.db.execute("SAVEPOINT writer")
        except BaseException:
            self._memory_lock.release()
            raise
        own = {
            number: (layer.position, layer.schema, dict(layer.live))
            for number in self.own
            for layer in (self.layers[number],)
        }
        types = {name: list(each) for name, each in self.types.items()}
        self._before = _DraftState(own, types, dict(self._slots))
        self._writing = True

    def keep(self) -> None:
        """Nothing to do: a draft has one writer."""

    def commit(self) -> None:
        """Keep the changes for later writes of the draft."""
        with self.errors("write the node index"):
            self.db.execute("RELEASE writer")
        self._touched_types.clear()
        self._writing = False
        self._memory_lock.release()

    def rollback(self) -> None:
        """Forget the changes since ``begin``, if there was one."""
        before = self._before
        if not self._writing or before is None:
            return
        try:
            with self.errors("write the node index"):
                self.db.execute("ROLLBACK TO writer")
                self.db.execute("RELEASE writer")
            for number, (position, schema, live) in before.own.items():
                self.layers.move(number, position, schema)
                self.layers[number].live = live
            self.types, self._slots = before.types, before.slots
            self.epoch += 1
        finally:
            self._writing = False
            self._memory_lock.release()


class _DraftState(NamedTuple):
    """What a draft has in memory when a write begins."""

    own: dict[int, tuple[Position, str, dict[int, int]]]
    types: dict[str, list[int]]
    slots: dict[str, int]


def _with_functions(db: sqlite3.Connection) -> sqlite3.Connection:
    """The connection, with the functions that our SQL calls."""
    db.create_function("reference_key", 1, handle_key, deterministic=True)
    return db


def _is_damage(error: StorageError) -> bool:
    """Whether a file can't be used for what is in it, and not for what the system refuses."""
    if isinstance(error, CorruptionError):
        return True
    cause = error.__cause__
    return isinstance(cause, sqlite3.DatabaseError) and (
        getattr(cause, "sqlite_errorcode", None) in _UNUSABLE
    )


def _remove(path: Path) -> None:
    """Remove a database with what belongs to it."""
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _make_way(path: Path) -> None:
    """Before another file gets this name: its WAL must not be taken for that one's."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if path.is_dir():
        try:
            path.rmdir()
        except OSError:
            raise StorageError(
                f"{path} is a folder with files in it, and should be the node index; move it away"
            ) from None


def marks(count: int) -> str:
    """Placeholders of a statement."""
    return ",".join("?" * count)
