"""The rows of an embedded log in a folder that nobody has open otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import CorruptionError
from trails.files import make_folder, open_new, sync_folder
from trails.log.archives import ARCHIVES_FOLDER, insert_archive, read_archives
from trails.log.protocol import Header
from trails.log.rows import (
    HALVES,
    PIECE,
    CommitRow,
    Ends,
    Half,
    HeadRow,
    KeyRow,
    LogRows,
    PartRow,
    Record,
    Stream,
)
from trails.log.storage import (
    KEYS_TABLE,
    LOG_FILE,
    MOVES_TABLE,
    SEGMENTS,
    connect,
    create_log,
    make_append_only,
    storage_errors,
)
from trails.model.history import Activity, ActivityArchive, Commit

_READING: Final = "read the log"
_COPYING: Final = "copy the log"
_COLUMNS: Final = (
    "seq, record, removed_sha, removed, removed_segment, added_sha, added, added_segment"
)


class SqliteRows:
    """Satisfies ``LogTarget``. The log has the tables of this version."""

    repair = "run 'trails recover', or restore a backup"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder / LOG_FILE)
        with storage_errors("open the log"):
            self._db = connect(folder / LOG_FILE, synchronous="FULL")
            self.header = Header(*self._db.execute("SELECT * FROM header").fetchone())

    @classmethod
    def create(cls, folder: Path, header: Header) -> SqliteRows:
        """A new, empty log; the one that is there, if there is one."""
        if not (folder / LOG_FILE).exists():
            create_log(folder, msgspec.structs.astuple(header))
        found = cls(folder)
        with found._transaction():
            if not found._has_moves():
                found._db.execute(MOVES_TABLE)
                make_append_only(found._db, "moves")
                for statement in KEYS_TABLE:
                    found._db.execute(statement)
        return found

    def _has_moves(self) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE name = 'moves'"
        return self._db.execute(query).fetchone() is not None

    def close(self) -> None:
        """Close it; SQLite moves its WAL into the file."""
        with storage_errors("close the log"):
            self._db.close()

    # --- reading -----------------------------------------------------------------

    def _one(self, query: str, *values: object) -> tuple[object, ...] | None:
        with storage_errors(_READING):
            found: tuple[object, ...] | None = self._db.execute(query, values).fetchone()
        return found

    def ends(self) -> Ends:
        """The last places of the streams."""
        archived = max((each.last for each in self.archives()), default=0)
        commits, moves, activities = (
            int(str((self._one(f"SELECT coalesce(max(seq), 0) FROM {table}") or (0,))[0]))  # noqa: S608
            for table in ("commits", "moves", "activities")
        )
        return Ends(commits, moves, max(activities, archived))

    def commits(self, after: int = 0) -> Stream[CommitRow]:
        """Commits in their order."""
        query = f"SELECT {_COLUMNS} FROM commits WHERE seq > ? ORDER BY seq"  # noqa: S608
        with storage_errors(_READING):
            for seq, record, *halves in self._db.execute(query, (after,)):
                removed, added = (
                    PartRow(sha, (blob or b"") if segment is None else None)
                    for sha, blob, segment in (halves[:3], halves[3:])
                )
                yield CommitRow(seq, record, removed, added)

    def records(self, after: int = 0) -> Stream[Record]:
        """The records of commits alone."""
        return self._stream("commits", after)

    def _stream(self, table: str, after: int) -> Stream[Record]:
        query = f"SELECT seq, record FROM {table} WHERE seq > ? ORDER BY seq"  # noqa: S608
        with storage_errors(_READING):
            yield from self._db.execute(query, (after,))

    def record(self, seq: int) -> bytes | None:
        """The record of a commit."""
        row = self._one("SELECT record FROM commits WHERE seq = ?", seq)
        return None if row is None else row[0]  # type: ignore[return-value]

    def find(self, commit: str) -> bytes | None:
        """The record of a commit, by its id."""
        row = self._one("SELECT record FROM commits WHERE id = ?", commit)
        return None if row is None else row[0]  # type: ignore[return-value]

    def pieces(self, row: CommitRow, half: Half) -> Iterator[bytes]:
        """A segment file."""
        return self._read(self.folder / SEGMENTS / _segment(row.part(half)))

    def _read(self, path: Path) -> Iterator[bytes]:
        try:
            with storage_errors(_READING), path.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece
        except FileNotFoundError:
            raise CorruptionError(f"{path} is missing; {self.repair}") from None

    def moves(self, after: int = 0) -> Stream[Record]:
        """What happened to branches beside commits."""
        return self._stream("moves", after)

    def activities(self, after: int = 0) -> Stream[Record]:
        """Those that are in no archive."""
        return self._stream("activities", after)

    def archives(self) -> list[ActivityArchive]:
        """Files of activities, oldest first."""
        with storage_errors(_READING):
            return read_archives(self._db)

    def archive(self, archive: ActivityArchive) -> Iterator[bytes]:
        """The file of an archive."""
        return self._read(self.folder / ARCHIVES_FOLDER / archive.name)

    def schemas(self) -> dict[str, bytes]:
        """Schemas by digest."""
        with storage_errors(_READING):
            return dict(self._db.execute("SELECT digest, body FROM schemas").fetchall())

    def heads(self) -> list[HeadRow]:
        """Where branches are."""
        with storage_errors(_READING):
            return self._db.execute("SELECT branch, id, seq, schema FROM heads").fetchall()

    def keys(self) -> list[KeyRow]:
        """Idempotency keys."""
        with storage_errors(_READING):
            return self._db.execute(
                "SELECT branch, actor, key, expires, record FROM idempotency_keys"
            ).fetchall()

    def calls(self) -> list[tuple[str, bytes]]:
        """The calls that have no activity yet."""
        with storage_errors(_READING):
            return self._db.execute("SELECT id, record FROM calls").fetchall()

    # --- writing -----------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with storage_errors(_COPYING):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def add_schemas(self, schemas: dict[str, bytes]) -> None:
        """Add those that are not there."""
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO schemas VALUES (?, ?)", schemas.items())

    def add_commits(self, rows: Sequence[tuple[CommitRow, Commit]], source: LogRows) -> None:
        """Add commits; files of large parts are durable before."""
        for row, _ in rows:
            for half in HALVES:
                if row.part(half).blob is None:
                    name = _segment(row.part(half))
                    self._write(self.folder / SEGMENTS / name, source.pieces(row, half))
        with self._transaction():
            self._db.executemany(
                "INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        row.seq,
                        commit.id,
                        commit.branch,
                        commit.idempotency_key,
                        row.record,
                        *_columns(row.removed),
                        *_columns(row.added),
                    )
                    for row, commit in rows
                ),
            )

    def _write(self, path: Path, pieces: Iterable[bytes]) -> None:
        """Write a file under its name, whole or not at all."""
        with storage_errors(_COPYING):
            make_folder(path.parent)
            new = path.with_name(f"{path.name}.tmp")
            new.unlink(missing_ok=True)
            with open_new(new) as file:
                for piece in pieces:
                    file.write(piece)
            new.replace(path)
            sync_folder(path.parent)

    def add_moves(self, rows: Sequence[Record]) -> None:
        """Add changes of branches."""
        with self._transaction():
            self._db.executemany("INSERT INTO moves VALUES (?, ?)", rows)

    def add_archive(self, archive: ActivityArchive, pieces: Iterable[bytes]) -> None:
        """Add a file of activities; they leave the table."""
        self._write(self.folder / ARCHIVES_FOLDER / archive.name, pieces)
        with self._transaction():
            insert_archive(self._db, archive)
            self._db.execute("DELETE FROM activities WHERE seq <= ?", (archive.last,))
            self._db.execute("DELETE FROM activity_nodes WHERE activity <= ?", (archive.last,))

    def add_activities(self, rows: Sequence[tuple[int, bytes, Activity]]) -> None:
        """Add activities, and which nodes they have read."""
        with self._transaction():
            self._db.executemany(
                "INSERT INTO activities VALUES (?, ?, ?)",
                ((seq, each.id, record) for seq, record, each in rows),
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO activity_nodes VALUES (?, ?)",
                ((node, seq) for seq, _, each in rows for node in each.nodes),
            )

    def replace_rest(
        self,
        heads: Iterable[HeadRow],
        keys: Iterable[KeyRow],
        calls: Iterable[tuple[str, bytes]],
    ) -> None:
        """The tables whose rows change."""
        with self._transaction():
            for table, rows in (("heads", heads), ("idempotency_keys", keys), ("calls", calls)):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608
                for row in rows:
                    marks = ", ".join("?" * len(row))
                    self._db.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608


def _segment(part: PartRow) -> str:
    return f"{part.sha}.nq.zst"


def _columns(part: PartRow) -> tuple[bytes | None, str | None, str]:
    return part.blob, _segment(part) if part.blob is None else None, part.sha
