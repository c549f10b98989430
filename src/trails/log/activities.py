"""Search the stream of activities: by actor, name, outcome, time and node, newest first.

Rows of the table are found by its indexes, and every row is compared with the question itself, so
that an index only has to be wide enough. Archives are read one by one, where that is asked for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from trails.log.storage import ACTOR, FAILED, NAME, OUTCOME
from trails.model.history import Activity, ActivityQuery

MOST_ROWS: Final = 500
"""Rows that are read at once."""
SLACK: Final = timedelta(hours=1)
"""Activities are in the order of their ends, but for refusals that are summed up, and for a clock
that is put back: so much of it is made up for."""
Row = tuple[int, bytes]


def matches(wanted: ActivityQuery, activity: Activity) -> bool:
    """Whether an activity is among those that are asked for."""
    return (
        (wanted.actor is None or activity.actor == wanted.actor)
        and (wanted.name is None or activity.name == wanted.name)
        and (not wanted.outcomes or activity.outcome in wanted.outcomes)
        and (wanted.since is None or activity.ended >= wanted.since)
        and (wanted.until is None or activity.started <= wanted.until)
        and (
            (wanted.node is None and wanted.ids is None)
            or activity.id in (wanted.ids or ())
            or (wanted.node is not None and wanted.node in activity.nodes)
        )
    )


def find_rows(
    db: sqlite3.Connection, wanted: ActivityQuery, before: int, size: int = MOST_ROWS
) -> Iterator[list[Row]]:
    """Rows that may be among them, newest first, those before a place.

    They come in pages of ``size``.
    """
    if wanted.node is not None or wanted.ids is not None:
        yield from _named_rows(db, wanted, before, size)
        return
    conditions, values = ["seq < ?", "seq >= ?"], _conditions(wanted)
    terms = [f"{member} = ?" for member, _ in values]
    if wanted.outcomes:
        marks = ",".join("?" * len(wanted.outcomes))
        terms.append(f"{OUTCOME} IN ({marks})")
        if "ok" not in wanted.outcomes:
            terms.append(FAILED)
    query = (
        f"SELECT seq, record FROM activities WHERE {' AND '.join([*conditions, *terms])} "  # noqa: S608
        f"ORDER BY seq DESC LIMIT {size}"
    )
    given = [*(value for _, value in values), *map(_text, wanted.outcomes)]
    low = 0 if wanted.since is None else _place(db, moved(wanted.since, -SLACK))
    if wanted.until is not None:
        before = min(before, _place(db, moved(wanted.until, SLACK)))
    while rows := db.execute(query, (before, low, *given)).fetchall():
        yield rows
        before = rows[-1][0]


def _conditions(wanted: ActivityQuery) -> list[tuple[str, bytes]]:
    found = []
    if wanted.actor is not None:
        found.append((ACTOR, _text(wanted.actor)))
    if wanted.name is not None:
        found.append((NAME, _text(wanted.name)))
    return found


def _text(value: str) -> bytes:
    """A text as an index has it: as in JSON, up to the first quote."""
    encoded = msgspec.json.encode(value)[1:-1]
    return encoded.partition(b'"')[0]


def _named_rows(
    db: sqlite3.Connection, wanted: ActivityQuery, before: int, size: int
) -> Iterator[list[Row]]:
    """The rows of certain activities, and of those that have read a node."""
    made = set()
    for each in wanted.ids or ():
        row = db.execute("SELECT seq FROM activities WHERE id = ?", (each,)).fetchone()
        if row is not None:
            made.add(int(row[0]))
    # A log of an earlier version that is open read-only does not have the table.
    query = "SELECT 1 FROM sqlite_master WHERE name = 'activity_nodes'"
    indexed = wanted.node is not None and db.execute(query).fetchone() is not None
    while True:
        read = (
            db.execute(
                "SELECT activity FROM activity_nodes WHERE node = ? AND activity < ? "
                "ORDER BY activity DESC LIMIT ?",
                (wanted.node, before, size),
            ).fetchall()
            if indexed
            else []
        )
        last = read[-1][0] if len(read) == size else 0
        here = {seq for seq in made if last <= seq < before}
        page = []
        for seq in sorted(here.union(seq for (seq,) in read), reverse=True):
            page += db.execute(
                "SELECT seq, record FROM activities WHERE seq = ?", (seq,)
            ).fetchall()
        if page:
            yield page
        if not last:
            return
        before = last


def _place(db: sqlite3.Connection, time: str) -> int:
    """The first place from which on activities ended at a time or later."""
    # One at a time: together they would be found by reading all.
    (low,) = db.execute("SELECT coalesce(min(seq), 0) FROM activities").fetchone()
    (high,) = db.execute("SELECT coalesce(max(seq), 0) + 1 FROM activities").fetchone()
    while low < high:
        middle = (low + high) // 2
        (record,) = db.execute(
            "SELECT record FROM activities WHERE seq >= ? ORDER BY seq LIMIT 1", (middle,)
        ).fetchone()
        if msgspec.json.decode(record, type=_Ended).ended < time:
            low = middle + 1
        else:
            high = middle
    return int(low)


class _Ended(msgspec.Struct):
    ended: str


def moved(time: str, by: timedelta) -> str:
    """A time as the log writes it, so much later."""
    moved = datetime.fromisoformat(time) + by
    return moved.isoformat(timespec="milliseconds").replace("+00:00", "Z")
