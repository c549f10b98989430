"""Copy what is new in a log into a file of its own, and put such files together again.

Streams, the tables that are numbered by ``seq``, are only ever added to: an extract holds their
rows after a place. Of all other tables, which are small, it holds every row. An extract is
read in one transaction, so it is the log as of one moment, whatever is written meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import NotFoundError
from trails.log.archives import ARCHIVES_FOLDER
from trails.log.storage import SEGMENTS, create_private, storage_errors
from trails.model.history import GENESIS, Commit, Move
from trails.model.types import Schema

_ARCHIVES: Final = "archives"
"""The table with the files of activities that have left the log."""
_TIMELESS: Final = frozenset({"header", "schemas", "heads", "calls", "activity_nodes", _ARCHIVES})
"""Tables without place numbers that hold nothing wrong as of an earlier commit."""
_COMMIT = msgspec.json.Decoder(Commit)
_MOVE = msgspec.json.Decoder(Move)


class Extract(msgspec.Struct, frozen=True):
    """What an extract holds."""

    ends: dict[str, int]
    """Stream → its last place."""
    heads: dict[str, str]
    seq: int
    commit: str
    """The newest commit, and its place; none: 0 and an empty text."""
    files: tuple[str, ...]
    """The files beside the log that its rows name."""


def extract(db: sqlite3.Connection, target: Path, since: Mapping[str, int]) -> Extract:
    """Copy rows after some places into a new file. ``db`` is used for nothing else meanwhile."""
    create_private(target)
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        _unjournaled(copy)
        for _, sql in _objects(db, "table"):
            copy.execute(sql)
    db.execute("ATTACH ? AS copy", (str(target),))
    try:
        db.execute("PRAGMA copy.journal_mode = OFF")
        db.execute("PRAGMA copy.synchronous = OFF")
        db.execute("BEGIN")
        try:
            found = _copy(db, since)
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
    finally:
        db.execute("DETACH copy")
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        _unjournaled(copy)
        for kind in ("index", "trigger"):
            for _, sql in _objects(db, kind):
                copy.execute(sql)
    return found


def _copy(db: sqlite3.Connection, since: Mapping[str, int]) -> Extract:
    ends = {}
    for table, _ in _objects(db, "table"):
        after = ""
        if _is_stream(db, table):
            ends[table] = db.execute(f'SELECT max(seq) FROM "{table}"').fetchone()[0] or 0  # noqa: S608
            ends[table] = max(ends[table], since.get(table, 0))
            after = f"WHERE seq > {since.get(table, 0)}"
        db.execute(f'INSERT INTO copy."{table}" SELECT * FROM main."{table}" {after}')  # noqa: S608
    newest = db.execute("SELECT seq, id FROM main.commits ORDER BY seq DESC LIMIT 1").fetchone()
    seq, commit = newest or (0, GENESIS)
    heads = dict(db.execute("SELECT branch, id FROM main.heads").fetchall())
    return Extract(ends, heads, seq, commit, _files(db, "copy"))


def named_files(path: Path) -> tuple[str, ...]:
    """The files beside a log that its rows name."""
    with closing(sqlite3.connect(path)) as db:
        return _files(db, "main")


def _files(db: sqlite3.Connection, schema: str) -> tuple[str, ...]:
    rows = db.execute(f"SELECT removed_segment, added_segment FROM {schema}.commits").fetchall()  # noqa: S608
    segments = {f"{SEGMENTS}/{each}" for row in rows for each in row if each is not None}
    if not any(name == _ARCHIVES for name, _ in _objects(db, "table")):
        return tuple(sorted(segments))
    archived = db.execute(f"SELECT name FROM {schema}.{_ARCHIVES}").fetchall()  # noqa: S608
    return tuple(sorted(segments.union(f"{ARCHIVES_FOLDER}/{name}" for (name,) in archived)))


def _objects(db: sqlite3.Connection, kind: str) -> list[tuple[str, str]]:
    """(name, definition) of the tables, indexes or triggers of a log."""
    return db.execute(
        "SELECT name, sql FROM main.sqlite_master WHERE type = ? AND sql IS NOT NULL "
        "AND name NOT LIKE 'sqlite%' ORDER BY rowid",
        (kind,),
    ).fetchall()


def _is_stream(db: sqlite3.Connection, table: str, schema: str = "main") -> bool:
    rows = db.execute(f'PRAGMA {schema}.table_info("{table}")').fetchall()
    return any(name == "seq" and kind == "INTEGER" and key for _, name, kind, _, _, key in rows)


def _unjournaled(db: sqlite3.Connection) -> None:
    """For files that are synced as a whole when they are complete, and removed before that."""
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")


# --- putting together --------------------------------------------------------------------


def assemble(extracts: Sequence[Path], target: Path, at: str | None = None) -> None:
    """Make a log of all extracts since its first commit, in order.

    With ``at``, a commit (or the beginning of its id), a place or a time, it is the log as of
    then. Nothing is synced: the caller does that.
    """
    create_private(target)
    with (
        storage_errors("put the backup together"),
        closing(sqlite3.connect(target, isolation_level=None)) as db,
    ):
        _unjournaled(db)
        with _attached(db, extracts[-1]):
            defined = {
                kind: db.execute(
                    "SELECT sql FROM part.sqlite_master WHERE type = ? AND sql IS NOT NULL "
                    "AND name NOT LIKE 'sqlite%' ORDER BY rowid",
                    (kind,),
                ).fetchall()
                for kind in ("table", "index", "trigger")
            }
        db.execute("BEGIN")
        for (sql,) in defined["table"]:
            db.execute(sql)
        db.execute("COMMIT")
        for path in extracts:
            with _attached(db, path):
                _add(db, last=path == extracts[-1])
        if at is not None:
            _cut(db, at)
        for kind in ("index", "trigger"):
            for (sql,) in defined[kind]:
                db.execute(sql)


@contextmanager
def _attached(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    db.execute("ATTACH ? AS part", (str(path),))
    try:
        yield
    finally:
        db.execute("DETACH part")


def _add(db: sqlite3.Connection, *, last: bool) -> None:
    """Add the rows of one extract; of tables that are no streams, those of the last count."""
    db.execute("BEGIN")
    rows = db.execute("SELECT name FROM part.sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in rows:
        if not table.startswith("sqlite") and (last or _is_stream(db, table, "part")):
            info = db.execute(f'PRAGMA part.table_info("{table}")').fetchall()
            columns = ", ".join(f'"{name}"' for _, name, *_ in info)
            db.execute(
                f'INSERT INTO main."{table}" ({columns}) SELECT {columns} FROM part."{table}"'  # noqa: S608
            )
    db.execute("COMMIT")


# --- going back --------------------------------------------------------------------------


def _cut(db: sqlite3.Connection, at: str) -> None:
    """Take away the commits and moves after a commit; heads are made anew.

    Activities stay: they record what was done, also what this undoes.
    """
    moment = _parse_time(at)
    seq = _last_before(db, moment) if moment is not None else _find(db, at)
    time = "" if moment is None else _written(moment)
    db.execute("BEGIN")
    db.execute("DELETE FROM commits WHERE seq > ?", (seq,))
    for place, record in db.execute("SELECT seq, record FROM moves ORDER BY seq").fetchall():
        move = _MOVE.decode(record)
        if (move.after >= seq) if moment is None else (move.after > seq or move.time > time):
            db.execute("DELETE FROM moves WHERE seq >= ?", (place,))
            break
    for table, _ in _objects(db, "table"):
        if table not in _TIMELESS and not _is_stream(db, table):
            # It may name commits that are gone: a key would be answered with a lost write.
            db.execute(f'DELETE FROM "{table}"')  # noqa: S608
    _make_heads(db)
    db.execute("COMMIT")


def _make_heads(db: sqlite3.Connection) -> None:
    """Branch heads, as commits and moves in their order make them."""
    heads: dict[str, str] = {}
    moves = [_MOVE.decode(row) for (row,) in db.execute("SELECT record FROM moves ORDER BY seq")]
    moves.reverse()

    def move_until(seq: int) -> None:
        while moves and moves[-1].after < seq:
            move = moves.pop()
            if move.action == "delete":
                heads.pop(move.branch, None)
            else:
                heads[move.branch] = move.commit

    for seq, branch, identifier in db.execute(
        "SELECT seq, branch, id FROM commits ORDER BY seq"
    ).fetchall():
        move_until(seq)
        heads[branch] = identifier
    move_until(2**62)
    db.execute("DELETE FROM heads")
    for branch, identifier in heads.items():
        row = db.execute("SELECT record FROM commits WHERE id = ?", (identifier,)).fetchone()
        commit = None if row is None else _COMMIT.decode(row[0])
        db.execute(
            "INSERT INTO heads (branch, id, seq, schema) VALUES (?, ?, ?, ?)",
            (branch, identifier, 0, Schema().digest)
            if commit is None
            else (branch, identifier, commit.seq, commit.schema),
        )


def _find(db: sqlite3.Connection, at: str) -> int:
    """The place of the commit that a text names."""
    newest = db.execute("SELECT max(seq) FROM commits").fetchone()[0] or 0
    if at.isascii() and at.isdigit() and len(at) < _SHORTEST_ID:
        found = [int(at)] if 1 <= int(at) <= newest else []
    else:
        rows = db.execute(
            "SELECT seq FROM commits WHERE id >= ? AND id < ? LIMIT 2", (at, f"{at}g")
        )
        found = [seq for (seq,) in rows] if at else []
    if not found:
        raise NotFoundError(
            f"the backup has no commit {at[:100]!r}; give the id of one of its {newest} commits, a "
            f"place from 1 to {newest}, or a time such as 2026-01-31T12:00:00Z"
        )
    if len(found) > 1:
        raise NotFoundError(f"several commits begin with {at!r}; give more of the id")
    return found[0]


_SHORTEST_ID: Final = 12
"""Digits from which a number is the beginning of a commit's id, and not a place."""


def _parse_time(at: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    if "-" not in at:  # eight digits are a place, though ISO 8601 calls them a date too
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _written(moment: datetime) -> str:
    """As the log writes times."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _last_before(db: sqlite3.Connection, moment: datetime) -> int:
    """The place of the last commit before the first one that was made later."""
    last, time = 0, _written(moment)
    for seq, record in db.execute("SELECT seq, record FROM commits ORDER BY seq"):
        commit = _COMMIT.decode(record)
        if commit.time > time:
            if not last:
                raise NotFoundError(
                    f"the backup has no commit made at {time} or before; its first is of "
                    f"{commit.time}"
                )
            return last
        last = seq
    return last
