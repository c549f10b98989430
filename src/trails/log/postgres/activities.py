"""The stream of activities in PostgreSQL: adding, searching, archiving.

Activities are added under the lock on their own row, so they never wait for a long write of the
graph. Archives are the same sealed files as beside an embedded log, kept as rows of pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar, cast

import msgspec

from trails.errors import NotFoundError, ReadOnlyError
from trails.log.activities import MOST_ROWS, SLACK, matches, moved
from trails.log.archives import (
    AT_ONCE,
    check_archives,
    find_in_archive,
    read_archive,
    write_archive,
)
from trails.log.postgres.chunks import CHUNK
from trails.log.postgres.connections import Connection, Connections
from trails.log.postgres.schema import indexed, raw
from trails.log.postgres.streams import ACTIVITIES, moved_away
from trails.log.records import ACTIVITY, CUT_OFF, decode
from trails.model.history import Activity, ActivityArchive, ActivityQuery
from trails.model.iris import canonical

_LAST: Final = 2**62
_DELETED_AT_ONCE: Final = 2_000
"""Archived activities that one transaction deletes."""
T = TypeVar("T")
Row = tuple[object, ...]


class ActivityRows:
    """The activities of one graph."""

    def __init__(
        self, connections: Connections, graph: int, server: int, name: str, *, read_only: bool
    ) -> None:
        """``server``: the number of this one among those that use the log."""
        self._connections = connections
        self._graph = graph
        self._server = server
        self._name = name
        self.read_only = read_only

    def _all(self, query: str, *values: object) -> list[Row]:
        """The rows that answer a question."""
        return self._connections.read(
            "read the log",
            lambda connection: connection.execute(query.encode(), values, binary=True).fetchall(),
        )

    # --- adding ------------------------------------------------------------------

    def insert_activities(self, activities: Iterable[Activity]) -> None:
        """Add to the stream of activities, all in one transaction."""
        if self.read_only:
            raise ReadOnlyError("can't append to the log: it is open read-only")
        every = list(activities)
        if every:
            self._connections.retrying("append to the log", lambda: self._insert_new(every))

    def _insert_new(self, every: Sequence[Activity]) -> None:
        with self._connections.borrowed() as connection, connection.transaction():
            self._add_activities(connection, every)

    def _add_activities(self, connection: Connection, every: Sequence[Activity]) -> None:
        """Add them to the open transaction, but for those that are there.

        The answer to an earlier attempt may have been lost.
        """
        self._lock_stream(connection)
        ids = [raw(each.id) for each in every]
        known = connection.execute(
            "SELECT id FROM trails_activities WHERE graph = %s AND id = ANY(%s)", (self._graph, ids)
        ).fetchall()
        written = {cast(bytes, each) for (each,) in known}
        (last,) = cast(
            Row,
            connection.execute(
                "SELECT coalesce(max(seq), 0) FROM trails_activities WHERE graph = %s",
                (self._graph,),
            ).fetchone(),
        )
        new = [each for each in every if raw(each.id) not in written]
        numbered = list(enumerate(new, cast(int, last) + 1))
        used = sorted({(node, at) for at, each in numbered for node in each.nodes})
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO trails_activities VALUES (%s, %s, %s, %s, %s, %s, %s, %b)",
                [
                    (
                        self._graph,
                        at,
                        raw(each.id),
                        *map(indexed, (each.actor, each.name, each.outcome, each.ended)),
                        canonical(each),
                    )
                    for at, each in numbered
                ],
            )
            cursor.executemany(
                "INSERT INTO trails_activity_nodes VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                [(self._graph, indexed(node), at) for node, at in used],
            )
        connection.execute(
            "DELETE FROM trails_calls WHERE graph = %s AND id = ANY(%s)", (self._graph, ids)
        )

    def _end_calls(self, server: int) -> None:
        """Record the calls of a server that died; their commits are the last that is known."""
        query = "SELECT record FROM trails_calls WHERE graph = %s AND server = %s"
        rows = self._all(query, self._graph, server)
        found = [decode(ACTIVITY, cast(bytes, record)) for (record,) in rows]
        self.insert_activities(msgspec.structs.replace(each, detail=CUT_OFF) for each in found)

    def _lock_stream(self, connection: Connection) -> None:
        query = "SELECT 1 FROM trails_streams WHERE graph = %s AND name = %s FOR UPDATE"
        if not connection.execute(query, (self._graph, ACTIVITIES)).rowcount:
            raise moved_away(self._name, self._connections.place)

    # --- searching -----------------------------------------------------------------

    def activities(self, after: int = 0) -> Iterator[tuple[int, Activity]]:
        """Activities in log order, those after a position, archived ones included."""
        while True:
            archive = next((each for each in self.archives() if each.last > after), None)
            if archive is not None:
                yield from (each for each in self._read_archive(archive) if each[0] > after)
                after = archive.last
                continue
            rows = self._rows_after(after)
            if rows:
                after = rows[-1][0]
                yield from ((seq, decode(ACTIVITY, record)) for seq, record in rows)
            elif self._archived <= after:
                return

    def _rows_after(self, after: int) -> list[tuple[int, bytes]]:
        """Some rows after a place; none if archives have any of them, which may be deleted."""
        rows = self._all(
            "SELECT seq, record FROM trails_activities WHERE graph = %s AND seq > %s "
            "AND NOT EXISTS (SELECT 1 FROM trails_archives WHERE graph = %s AND last > %s) "
            "ORDER BY seq LIMIT 500",
            self._graph,
            after,
            self._graph,
            after,
        )
        return cast(list[tuple[int, bytes]], rows)

    def newest_activities(self, limit: int, *, archived: bool = True) -> list[Activity]:
        """The last few activities, the newest first; of archived ones, those that are needed."""
        rows = self._all(
            "SELECT seq, record FROM trails_activities WHERE graph = %s ORDER BY seq DESC LIMIT %s",
            self._graph,
            limit,
        )
        archives = self.archives()  # rows of later ones may be gone
        newest = archives[-1].last if archives else 0
        found = [
            decode(ACTIVITY, cast(bytes, record)) for seq, record in rows if cast(int, seq) > newest
        ]
        for archive in reversed(archives if archived else ()):
            if len(found) >= limit:
                break
            kept = self._read_archive(archive)
            found += [each for _, each in reversed(kept)][: limit - len(found)]
        return found

    def find_activities(self, wanted: Mapping[str, str]) -> dict[str, Activity]:
        """Activities by id; ``wanted`` has a time before which each of them did not end."""
        rows = self._all(
            "SELECT record FROM trails_activities WHERE graph = %s AND id = ANY(%s)",
            self._graph,
            [raw(each) for each in wanted],
        )
        archives = self.archives()  # rows of later ones may be gone
        found = {each.id: each for each in (decode(ACTIVITY, cast(bytes, row)) for (row,) in rows)}
        for archive in archives:
            missing = {
                each
                for each, time in wanted.items()
                if each not in found and time <= archive.newest
            }
            if missing:
                with self._fetched([archive]) as folder:
                    kept = find_in_archive(folder, archive, missing)
                found.update({each.id: each for each in kept})
        return found

    def list_activities(
        self,
        wanted: ActivityQuery,
        limit: int,
        *,
        after: str | None = None,
        archived: bool = False,
    ) -> list[Activity]:
        """Some activities, newest first: those after (older than) one of them, by its id.

        ``archived``: archives are searched as well.
        """
        before = _LAST if after is None else self._activity_place(after)
        listed: list[tuple[int, Activity]] = []
        for page in self._find_rows(wanted, before, min(limit, MOST_ROWS)):
            decoded = ((seq, decode(ACTIVITY, row)) for seq, row in page)
            listed += [each for each in decoded if matches(wanted, each[1])]
            if len(listed) >= limit:
                break
        archives = self.archives()  # rows of later ones may be gone
        newest = archives[-1].last if archives else 0
        found = [each for seq, each in listed if seq > newest]
        for archive in reversed(archives) if archived else ():
            if len(found) >= limit:
                break
            if archive.first < before and archive.newest >= (wanted.since or ""):
                found += [
                    each
                    for seq, each in reversed(self._read_archive(archive))
                    if seq < before and matches(wanted, each)
                ]
        return found[:limit]

    def _find_rows(
        self, wanted: ActivityQuery, before: int, size: int
    ) -> Iterator[list[tuple[int, bytes]]]:
        """Rows that may be among them, newest first, those before a place, in pages."""
        terms, values = ["seq >= %s"], [self._place(wanted.since, -SLACK, 0)]
        before = min(before, cast(int, self._place(wanted.until, SLACK, _LAST)))
        for column, value in (("actor", wanted.actor), ("name", wanted.name)):
            if value is not None:
                terms.append(f"{column} = %s")
                values.append(indexed(value))
        if wanted.outcomes:
            terms.append("outcome = ANY(%s)")
            values.append([indexed(each) for each in wanted.outcomes])
            if "ok" not in wanted.outcomes:
                terms.append("outcome <> 'ok'")
        if wanted.node is not None or wanted.ids is not None:
            terms.append(
                "(id = ANY(%s) OR seq IN (SELECT activity FROM trails_activity_nodes n "
                "WHERE n.graph = trails_activities.graph AND n.node = %s))"
            )
            values.append([raw(each) for each in wanted.ids or ()])
            values.append(indexed(wanted.node or ""))
        query = (
            "SELECT seq, record FROM trails_activities WHERE graph = %s AND seq < %s "  # noqa: S608
            f"AND {' AND '.join(terms)} ORDER BY seq DESC LIMIT %s"
        )
        while rows := self._all(query, self._graph, before, *values, size):
            page = cast(list[tuple[int, bytes]], rows)
            yield page
            before = page[-1][0]

    def _place(self, time: str | None, by: timedelta, default: int) -> object:
        """The first place from which on activities ended at a time or later."""
        if time is None:
            return default
        rows = self._all(
            "SELECT seq FROM trails_activities WHERE graph = %s AND ended >= %s "
            "ORDER BY ended LIMIT 1",
            self._graph,
            raw(moved(time, by)),
        )
        return rows[0][0] if rows else _LAST

    def _activity_place(self, identifier: str) -> int:
        """Where an activity is in the stream; NotFoundError if it is not there."""
        rows = self._all(
            "SELECT seq FROM trails_activities WHERE graph = %s AND id = %s",
            self._graph,
            raw(identifier),
        )
        if rows:
            return cast(int, rows[0][0])
        for archive in reversed(self.archives()):
            for seq, each in self._read_archive(archive):
                if each.id == identifier:
                    return seq
        raise NotFoundError(f"there is no activity {identifier!r}", activity=identifier)

    # --- archives ------------------------------------------------------------------

    def archives(self) -> tuple[ActivityArchive, ...]:
        """Files of activities that have left the table, oldest first."""
        rows = self._all(
            "SELECT first, last, count, name, sha, oldest, newest FROM trails_archives "
            "WHERE graph = %s ORDER BY first",
            self._graph,
        )
        return tuple(
            ActivityArchive(
                *cast(tuple[int, int, int, str, str], each[:5]),
                *(cast(bytes, time).decode() for time in each[5:]),
            )
            for each in rows
        )

    @property
    def _archived(self) -> int:
        """The place up to which archives have the activities."""
        query = "SELECT coalesce(max(last), 0) FROM trails_archives WHERE graph = %s"
        ((last,),) = self._all(query, self._graph)
        return cast(int, last)

    def find_archivable(self, ended_before: str, keep: int | None) -> range:
        """The places of activities that ended before a time, or are more than ``keep``.

        The newest one always stays: the table counts on from there.
        """
        low = self._archived + 1
        ((last,),) = self._all(
            "SELECT coalesce(max(seq), 0) FROM trails_activities WHERE graph = %s", self._graph
        )
        ((until,),) = self._all(
            "SELECT coalesce(min(seq), %s::bigint) FROM trails_activities "
            "WHERE graph = %s AND seq >= %s AND ended >= %s",
            last,
            self._graph,
            low,
            raw(ended_before),
        )
        newest, bound = cast(int, last), cast(int, until)
        if newest <= low:
            return range(low, low)
        if keep is not None:
            bound = max(bound, newest + 1 - keep)
        return range(low, max(low, min(bound, newest)))

    def archive_activities(self, places: range) -> Iterator[ActivityArchive]:
        """Move the activities at the beginning of the stream into sealed files, one by one."""
        if self.read_only:
            raise ReadOnlyError("can't archive activities: the log is open read-only")
        self._delete_archived()
        while (after := self._archived) + 1 < places.stop:
            until = min(places.stop, after + 1 + AT_ONCE)
            with TemporaryDirectory() as name:
                folder = Path(name)
                archive = write_archive(folder, self._rows_between(after, until))
                keep = partial(self._keep, folder, archive)
                kept = self._connections.retrying("archive activities", keep)
            self._delete_archived()
            if kept:
                yield archive

    def _rows_between(self, after: int, until: int) -> Iterator[tuple[int, bytes]]:
        while rows := [row for row in self._rows_after(after) if row[0] < until]:
            yield from rows
            after = rows[-1][0]

    def _keep(self, folder: Path, archive: ActivityArchive) -> bool:
        """Add a sealed file, unless another server was faster: whether it is there now."""
        with self._connections.borrowed() as connection, connection.transaction():
            self._lock_stream(connection)
            row = connection.execute(
                "SELECT last, sha FROM trails_archives WHERE graph = %s "
                "ORDER BY first DESC LIMIT 1",
                (self._graph,),
            ).fetchone()
            if row == (archive.last, archive.sha):
                return True  # the answer to an earlier attempt was lost
            if archive.first != (1 if row is None else cast(int, row[0]) + 1):
                return False
            part = 0
            with (folder / archive.name).open("rb") as file:
                while body := file.read(CHUNK):
                    connection.execute(
                        "INSERT INTO trails_archive_chunks VALUES (%s, %s, %s, %b)",
                        (self._graph, archive.first, part, body),
                    )
                    part += 1
            values = msgspec.structs.astuple(archive)
            connection.execute(
                "INSERT INTO trails_archives VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (self._graph, *values[:5], *map(raw, values[5:]), part),
            )
        return True

    def _delete_archived(self) -> None:
        """Delete the rows that archives have, a few at a time."""
        deleted = _DELETED_AT_ONCE if self._archived else 0
        while deleted == _DELETED_AT_ONCE:
            deleted = self._connections.retrying("archive activities", self._delete_some)

    def _delete_some(self) -> int:
        values = {"graph": self._graph, "last": self._archived, "most": _DELETED_AT_ONCE}
        with self._connections.borrowed() as connection, connection.transaction():
            deleted = connection.execute(
                "DELETE FROM trails_activities WHERE graph = %(graph)s AND seq IN ("
                "SELECT seq FROM trails_activities WHERE graph = %(graph)s AND seq <= %(last)s "
                "ORDER BY seq LIMIT %(most)s)",
                values,
            ).rowcount
            if deleted < _DELETED_AT_ONCE:
                connection.execute(
                    "DELETE FROM trails_activity_nodes "
                    "WHERE graph = %(graph)s AND activity <= %(last)s",
                    values,
                )
        return deleted

    def _read_archive(self, archive: ActivityArchive) -> list[tuple[int, Activity]]:
        with self._fetched([archive]) as folder:
            return read_archive(folder, archive)

    @contextmanager
    def _fetched(self, archives: Iterable[ActivityArchive]) -> Iterator[Path]:
        """A folder with the files of archives, for a while."""
        with TemporaryDirectory() as name:
            for each in archives:
                path = Path(name, each.name)
                self._connections.read(
                    "read the log", partial(fetch_archive, self._graph, each.first, path)
                )
            yield Path(name)

    def missing_archives(self) -> list[str]:
        """The names of archived files of which a piece is not there."""
        rows = self._all(
            "SELECT name FROM trails_archives a WHERE graph = %s AND chunks <> ("
            "SELECT count(*) FROM trails_archive_chunks c "
            "WHERE c.graph = a.graph AND c.first = a.first) ORDER BY first",
            self._graph,
        )
        return [cast(str, name) for (name,) in rows]

    def check_archives(self) -> list[str]:
        """What is wrong with the files of archived activities."""
        with self._fetched(self.archives()) as folder:
            return list(check_archives(folder, self.archives()))


def fetch_archive(graph: int, first: int, path: Path, connection: Connection) -> None:
    """Write the file of an archive, piece by piece."""
    with path.open("wb") as file:
        part = 0
        while row := connection.execute(
            "SELECT body FROM trails_archive_chunks WHERE graph = %s AND first = %s AND part = %s",
            (graph, first, part),
            binary=True,
        ).fetchone():
            file.write(cast(bytes, row[0]))
            part += 1
