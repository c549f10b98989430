"""Move the log of a graph between its folder and a PostgreSQL server.

The caller owns the folder, and the copy holds the ownership of the log on the server, so nobody
writes meanwhile. The log is copied and compared while it stays in use where it is. Then it is taken
out of use there, and only after that into use at the other place: whenever the process is killed,
at most one of the two takes commits, and the same command goes on where it stopped. Blobs and views
stay in the folder; commits keep their ids and places, so no view is folded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from trails.engine.graph.graph import now
from trails.engine.graph.open import find_loss, need_driver
from trails.errors import CorruptionError, NotFoundError, SettingsError, StorageError
from trails.log.copying import DivergedError, check_beginning, compare, copy_rows
from trails.log.protocol import Header
from trails.log.recovery import damaged_pages
from trails.log.rows import Ends
from trails.log.sqlite import SqliteLog
from trails.log.sqlite_rows import SqliteRows
from trails.log.storage import LOG_FILE
from trails.log.switching import (
    UNUSED,
    move_away,
    move_back,
    read_note,
    remove_log,
    settle,
    write_note,
)
from trails.model.history import LOG_FORMAT
from trails.model.upkeep import MovedLog

if TYPE_CHECKING:
    from trails.log.postgres.rows import PostgresRows

Progress = Callable[[str], None]
_RECOVER: Final = "run 'trails recover' first, then copy"


class Moving(msgspec.Struct, frozen=True):
    """Which log is to be moved."""

    folder: Path
    """The graph's."""
    graph: str
    base_iri: str
    url: str
    """The log on a server; may be empty where the log is in the folder."""
    report: Progress


def move_to_server(asked: Moving) -> MovedLog:
    """Copy the log of a folder to a server and use it there."""
    begun, folder = monotonic(), asked.folder
    settle(folder)
    source = _embedded(asked)
    if source is None:
        return _stays_on_server(asked)
    in_use = source == folder
    with closing(SqliteRows(source)) as rows:
        _check_base(asked, rows.header)
        with closing(open_server(asked.url, rows.header)) as target:
            if not in_use and _check_moved(asked, target, rows):
                write_note(folder, "moved", target.place)
                return _report(asked, target, changed=False)
            before = fill(rows, target, asked.report)
            with target.activating():
                if in_use:
                    rows.close()
                    move_away(folder, target.place)
            write_note(folder, "moved", target.place)
            return msgspec.structs.replace(
                _report(asked, target, changed=True),
                copied=target.ends().commits - before.commits,
                unused=str(folder / UNUSED),
                seconds=round(monotonic() - begun, 3),
            )


def _check_base(asked: Moving, found: Header) -> None:
    if found.base_iri != asked.base_iri:
        raise SettingsError(
            f"graph {asked.graph!r} was made with the base IRI {found.base_iri}, and the settings "
            f'say {asked.base_iri}: set base_iri = "{found.base_iri}" in [graphs.{asked.graph}]'
        )


def _embedded(asked: Moving) -> Path | None:
    """The folder with the files of the log, checked."""
    folder = asked.folder
    if not (folder / LOG_FILE).exists():
        return folder / UNUSED if (folder / UNUSED / LOG_FILE).exists() else None
    loss = find_loss(folder)
    if loss is not None:
        raise CorruptionError(f"{loss.describe(asked.graph)}; {_RECOVER}")
    asked.report("checking the log's file")
    damage = damaged_pages(folder)
    if damage is not None:
        raise CorruptionError(f"{folder / LOG_FILE} {damage}; nothing was copied: {_RECOVER}")
    # Opening adds what earlier versions did not have, and ends the calls of a killed process.
    SqliteLog(folder, asked.graph, asked.base_iri, now()).close()
    return folder


def _stays_on_server(asked: Moving) -> MovedLog:
    header = Header(LOG_FORMAT, asked.graph, asked.base_iri, "")
    with closing(open_server(asked.url, header)) as rows:
        if rows.state != "active":
            raise NotFoundError(
                f"graph {asked.graph!r} has no log in {asked.folder}, and none that is in use on "
                f"{rows.place}; there is nothing to copy"
            )
        return _report(asked, rows, changed=False)


def _check_moved(asked: Moving, server: PostgresRows, rows: SqliteRows) -> bool:
    """Whether the log on a server is the one that the files of an unused log became.

    Raises where it is on another server: what the folder has of it may be old.
    """
    same = server.header == rows.header
    if server.state == "active" and same:
        check_beginning(server, rows)
        return True
    note = read_note(asked.folder)
    if note is not None and note.step == "away":
        return False
    if server.state == "inactive" and same and server.ends() == rows.ends():
        return False  # on its way back to the folder
    where = "a server" if note is None else note.place
    raise StorageError(
        f"the log of graph {asked.graph!r} is on {where}, and not on {server.place}; nothing was "
        "copied. To move it from one server to another, move it to a file first"
    )


def open_server(url: str, header: Header) -> PostgresRows:
    """The rows on a server, whose driver is installed only where it is needed."""
    need_driver(header.graph)
    from trails.log.postgres.rows import PostgresRows  # noqa: PLC0415 - an optional dependency

    return PostgresRows(url, header)


def fill(source: SqliteRows, target: PostgresRows, report: Progress) -> Ends:
    """Copy a log to a server where nobody can open it yet; what was there before."""
    name = source.header.graph
    if target.state == "active" and target.ends() != Ends():
        raise StorageError(
            f"{target.place} has a log of graph {name!r} that is in use; nothing was copied. A "
            "graph has one log: use another database or schema "
            "(?options=-csearch_path%3D<schema> at the end of the URL)"
        )
    if target.state == "inactive" and target.header != source.header:
        raise StorageError(
            f"{target.place} has the log of another graph {name!r}; nothing was copied. Use "
            "another database or schema (?options=-csearch_path%3D<schema> at the end of the URL)"
        )
    if target.state in {"new", "active"}:
        target.begin(source.header)
    try:
        check_beginning(source, target)
    except DivergedError:
        if target.state != "partial":
            raise
        report("an earlier copy was of another history; beginning again")
        target.forget()
        target.begin(source.header)
    before = copy_rows(source, target, report)
    report("comparing the copy with the log")
    with _begun_again(target):
        compare(source, target, report)
    return before


@contextmanager
def restored_to_server(asked: Moving) -> Iterator[None]:
    """Copy the log of a folder, which was made of a backup, to a server that has none.

    The folder keeps what is not the log. It is in use on the server when the block has ended.
    """
    SqliteLog(asked.folder, asked.graph, asked.base_iri, now()).close()
    with closing(SqliteRows(asked.folder)) as rows:
        _check_base(asked, rows.header)
        target = open_server(asked.url, rows.header)
        with closing(target):
            if target.state == "inactive":
                raise StorageError(
                    f"{target.place} has a log of graph {asked.graph!r} that was moved to a "
                    "project folder; a backup is never restored over a log: use another database "
                    "or schema (?options=-csearch_path%3D<schema> at the end of the URL)"
                )
            fill(rows, target, asked.report)
            rows.close()
            remove_log(asked.folder)
            with target.activating():
                yield


@contextmanager
def _begun_again(target: PostgresRows) -> Iterator[None]:
    """After a difference, the next copy begins again."""
    try:
        yield
    except CorruptionError:
        if target.state == "partial":
            target.forget()
        raise


def move_to_file(asked: Moving) -> MovedLog:
    """Copy the log of a server to the graph's folder and use it there."""
    begun, folder, unused = monotonic(), asked.folder, asked.folder / UNUSED
    settle(folder)
    place = str(folder / LOG_FILE)
    if (folder / LOG_FILE).exists():
        return MovedLog(asked.graph, "file", place, changed=False)
    if not asked.url:
        raise SettingsError(
            f"the log of graph {asked.graph!r} is not in the project, and the settings name no "
            f"server: set url in [graphs.{asked.graph}.log] of trails.toml, or TRAILS_LOG_URL"
        )
    header = Header(LOG_FORMAT, asked.graph, asked.base_iri, "")
    if (unused / LOG_FILE).exists():
        with closing(SqliteRows(unused)) as rows:
            header = rows.header
    with closing(open_server(asked.url, header)) as source:
        if _never_left(asked, source):
            move_back(folder, place)
            return MovedLog(asked.graph, "file", place, changed=True)
        write_note(folder, "moved", source.place)
        with closing(SqliteRows.create(unused, source.header)) as target:
            before = _fill_file(source, target, asked.report)
            ends = target.ends()
            if source.state == "active":
                source.deactivate(ends)
        move_back(folder, place)
        return MovedLog(
            asked.graph,
            "file",
            place,
            changed=True,
            commits=ends.commits,
            copied=ends.commits - before.commits,
            activities=ends.activities,
            unused=source.place,
            seconds=round(monotonic() - begun, 3),
        )


def _never_left(asked: Moving, server: PostgresRows) -> bool:
    """Whether a move to the server ended before the log was in use there.

    Raises where the server has no log that could be copied.
    """
    note, unused = read_note(asked.folder), asked.folder / UNUSED
    if server.state == "active":
        return False
    if (unused / LOG_FILE).exists() and note is not None:
        if note.step == "away":
            return True
        with closing(SqliteRows(unused)) as rows:
            if server.state == "inactive" and rows.ends() == server.ends():
                return False  # taken out of use there, and not yet in use here
    raise NotFoundError(
        f"{server.place} has no log of graph {asked.graph!r} that is in use; nothing was copied. "
        "Correct the URL, or finish the copy that was begun in another project"
    )


def _fill_file(source: PostgresRows, target: SqliteRows, report: Progress) -> Ends:
    if target.header != source.header:
        raise StorageError(
            f"{target.place} is the log of another graph than the one on {source.place}; move its "
            "folder elsewhere"
        )
    try:
        check_beginning(source, target)
    except DivergedError as error:
        raise DivergedError(
            f"{error.message}. Move {target.folder} elsewhere to copy anew"
        ) from None
    before = copy_rows(source, target, report)
    report("comparing the copy with the log")
    compare(source, target, report)
    return before


def _report(asked: Moving, rows: PostgresRows, *, changed: bool) -> MovedLog:
    ends = rows.ends()
    return MovedLog(
        asked.graph,
        "postgresql",
        rows.place,
        changed=changed,
        commits=ends.commits,
        activities=ends.activities,
    )
