"""Activities that have left the log's table: sealed, compressed files beside the log.

The stream stays whole. Its oldest part moves, in order, into files of JSON lines; a row of the
log names each file with the digest of its text. A trigger lets the table lose a row only when
an archive has it, so a crash at any point leaves every activity in one place or in both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import CorruptionError
from trails.files import make_folder, open_new, sync_folder
from trails.log.storage import storage_errors, zstd
from trails.model.history import Activity, ActivityArchive

ARCHIVES_FOLDER: Final = "activities"
AT_ONCE: Final = 50_000
"""Activities of one file."""
_SUFFIX: Final = ".ndjson.zst"
_LEVEL: Final = 9
_TABLES: Final = (
    """CREATE TABLE archives (
        first INTEGER PRIMARY KEY, last INTEGER NOT NULL, count INTEGER NOT NULL,
        name TEXT NOT NULL, sha TEXT NOT NULL, oldest TEXT NOT NULL, newest TEXT NOT NULL
    )""",
    "DROP TRIGGER activities_DELETE",
    """CREATE TRIGGER activities_DELETE BEFORE DELETE ON activities
    WHEN OLD.seq > coalesce((SELECT last FROM archives ORDER BY first DESC LIMIT 1), 0)
    BEGIN SELECT RAISE(ABORT, 'activities is append-only'); END""",
    """CREATE TRIGGER archives_UPDATE BEFORE UPDATE ON archives
    BEGIN SELECT RAISE(ABORT, 'archives is append-only'); END""",
    """CREATE TRIGGER archives_DELETE BEFORE DELETE ON archives
    BEGIN SELECT RAISE(ABORT, 'archives is append-only'); END""",
)
"""Made when there is something to archive; a log without them has archived nothing."""

_ACTIVITY: Final = msgspec.json.Decoder(Activity)
_DAMAGE: Final = (
    zstd.ZstdError,
    EOFError,
    ValueError,
    msgspec.DecodeError,
)
_SEQ: Final = b'{"seq":'


def read_archives(db: sqlite3.Connection) -> list[ActivityArchive]:
    """The archives that a log names, oldest first."""
    if not _has_table(db):
        return []
    rows = db.execute(
        "SELECT first, last, count, name, sha, oldest, newest FROM archives ORDER BY first"
    )
    return [ActivityArchive(*row) for row in rows]


def insert_archive(db: sqlite3.Connection, archive: ActivityArchive) -> None:
    """Name a file that is durable; from then on the log may lose its rows."""
    if not _has_table(db):
        for statement in _TABLES:
            db.execute(statement)
    db.execute(
        "INSERT INTO archives VALUES (?, ?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(archive)
    )


def _has_table(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = 'archives'").fetchone())


def write_archive(folder: Path, rows: Iterable[tuple[int, bytes]]) -> ActivityArchive:
    """Write activities to a file that is durable under its final name when this returns."""
    with storage_errors("archive activities"):
        make_folder(folder)
        new = folder / f"new{_SUFFIX}"
        digest, compressor = sha256(), zstd.ZstdCompressor(_LEVEL)
        first = last = count = 0
        oldest = newest = ""
        try:
            new.unlink(missing_ok=True)  # of a writer that was killed
            with open_new(new) as file:
                for seq, record in rows:
                    ended = _ACTIVITY.decode(record).ended
                    first, oldest = (first, oldest) if count else (seq, ended)
                    last, newest, count = seq, ended, count + 1
                    line = b"%s%d,%s\n" % (_SEQ, seq, record[1:])
                    digest.update(line)
                    file.write(compressor.compress(line))
                file.write(compressor.flush())
            name = f"{first:012}-{last:012}{_SUFFIX}"
            new.replace(folder / name)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
        sync_folder(folder)
    return ActivityArchive(first, last, count, name, digest.hexdigest(), oldest, newest)


def read_archive(folder: Path, archive: ActivityArchive) -> list[tuple[int, Activity]]:
    """The activities of a file, with their places; CorruptionError where it is not whole."""
    found, digest = _read(folder, archive.name)
    if digest != archive.sha or len(found) != archive.count:
        raise _damaged(archive.name, "its digest differs")
    return found


def find_in_archive(folder: Path, archive: ActivityArchive, ids: Collection[str]) -> list[Activity]:
    """The activities of a file with some ids, without decoding the others."""
    wanted = [each.encode() for each in ids]
    found = []
    with storage_errors("read archived activities"):
        try:
            with zstd.open(folder / archive.name) as file:
                text = file.read()
        except FileNotFoundError:
            raise _damaged(archive.name, "it is missing") from None
        except _DAMAGE as error:
            raise _damaged(archive.name, str(error)) from None
    if sha256(text).hexdigest() != archive.sha:
        raise _damaged(archive.name, "its digest differs")
    for each in wanted:
        at = text.find(b'"id":"' + each + b'"')
        if at >= 0:
            start, end = text.rfind(b"\n", 0, at) + 1, text.index(b"\n", at)
            found.append(_ACTIVITY.decode(text[start:end]))
    return found


def _read(folder: Path, name: str) -> tuple[list[tuple[int, Activity]], str]:
    """What a file holds, and the digest of its text."""
    digest = sha256()
    found = []
    with storage_errors("read archived activities"):
        try:
            with zstd.open(folder / name) as file:
                for line in file:
                    digest.update(line)
                    seq = int(line[len(_SEQ) : line.index(b",")])
                    found.append((seq, _ACTIVITY.decode(line)))
        except FileNotFoundError:
            raise _damaged(name, "it is missing") from None
        except _DAMAGE as error:
            raise _damaged(name, str(error)) from None
    return found, digest.hexdigest()


def last_named(folder: Path) -> int:
    """The last place that the name of a file says it holds, whether it can be read or not."""
    names = (path.name.removesuffix(_SUFFIX) for path in folder.glob(f"*-*{_SUFFIX}"))
    return max(
        (int(last) for *_, last in (name.split("-") for name in names) if last.isdigit()), default=0
    )


def find_archives(folder: Path) -> Iterator[ActivityArchive]:
    """The files of a folder that can be read, oldest first, for a log that has lost their names."""
    last = 0
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        with suppress(CorruptionError):
            rows, digest = _read(folder, path.name)
            places = [seq for seq, _ in rows]
            if rows and places == list(range(places[0], places[-1] + 1)) and places[0] > last:
                last = places[-1]
                times = rows[0][1].ended, rows[-1][1].ended
                yield ActivityArchive(places[0], last, len(rows), path.name, digest, *times)


def _damaged(name: str, problem: str) -> CorruptionError:
    return CorruptionError(
        f"archived activities are damaged: {ARCHIVES_FOLDER}/{name} is not what was "
        f"archived ({problem}). Commits "
        "and data are not affected; put the file back from a backup"
    )


def check_archives(folder: Path, archives: Iterable[ActivityArchive]) -> Iterator[str]:
    """What is wrong with archive files."""
    for archive in archives:
        try:
            read_archive(folder, archive)
        except CorruptionError as error:
            yield error.message
