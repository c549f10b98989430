"""Evidence of commits that the log does not have: proof that it has lost them.

Every trace of a commit is written after the log has it: the tail, the positions of views, the
folders of snapshots. A trace of a commit that the log does not have shows that the log was
damaged, replaced or shortened. Looking changes no file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pyoxigraph as ox

from trails.log.storage import LOG_FILE, connect_read_only, log_problem, storage_errors
from trails.log.tail import Trail, look_at_tail
from trails.model.results import Loss, Trace
from trails.views.nodes.layers import ROOT_NAME
from trails.views.quads.view import position_of

_TAIL = "the tail of the log"


def find_loss(folder: Path) -> Loss | None:
    """What a graph's log has lost, if other files in its folder prove that.

    Views are looked into only where the tail does not vouch for the log: a tail that was closed
    in order and ends with a commit that the log has knows of every commit there ever was. A tail
    that was not closed vouches for the log as far as it goes: a view that is at another commit
    with such a number is of another graph, or damaged, and proves nothing about this log.
    """
    with storage_errors("look into the graph's folder"):
        if log_problem(folder) is not None:
            return None
    with storage_errors("read the log"), closing(connect_read_only(folder / LOG_FILE)) as log:
        tail = look_at_tail(folder)
        agrees = not tail.commits or _has(log, *tail.commits[-1])
        if tail.closed and agrees and _has_moves(log, tail):
            return None
        traces = [
            *_commits(log, tail),
            *_moves(log, tail),
            *_heads(log),
            *_views(log, folder, after=tail.commits[-1][0] if tail.commits and agrees else 0),
        ]
        (last,) = log.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()
    return Loss(last, tuple(traces)) if traces else None


def named_commits(folder: Path) -> Loss:
    """Every commit that a file names, for a graph whose log can't be read."""
    with storage_errors("look into the graph's folder"):
        tail = [Trace(_TAIL, number, commit) for number, commit in look_at_tail(folder).commits]
        views = [Trace(*each) for each in _positions(folder) if each[1]]
    return Loss(0, (*tail, *views))


def _has(log: sqlite3.Connection, seq: int, commit: str) -> bool:
    query = "SELECT 1 FROM commits WHERE id = ? AND seq = ?"
    return log.execute(query, (commit, seq)).fetchone() is not None


def _commits(log: sqlite3.Connection, tail: Trail) -> Iterator[Trace]:
    if tail.commits:
        query = "SELECT seq, id FROM commits WHERE seq >= ?"
        known = set(log.execute(query, (tail.commits[0][0],)))
        for number, commit in tail.commits:
            if (number, commit) not in known:
                yield Trace(_TAIL, number, commit)


def _has_moves(log: sqlite3.Connection, tail: Trail) -> bool:
    if tail.last_move is None:
        return True
    with suppress(sqlite3.OperationalError):  # a log without branches has no such table
        (last,) = log.execute("SELECT coalesce(max(seq), 0) FROM moves").fetchone()
        return bool(last >= tail.last_move[0])
    return False


def _moves(log: sqlite3.Connection, tail: Trail) -> Iterator[Trace]:
    if tail.last_move is not None and not _has_moves(log, tail):
        number, commit = tail.last_move
        yield Trace(f"{_TAIL} (change {number} of a branch)", number, commit)


def _heads(log: sqlite3.Connection) -> Iterator[Trace]:
    query = (
        "SELECT h.branch, h.seq, h.id FROM heads h LEFT JOIN commits c ON c.id = h.id "
        "AND c.seq = h.seq WHERE c.seq IS NULL AND h.id <> ''"
    )
    for branch, seq, commit in log.execute(query):
        yield Trace(f"the head of branch {branch}", seq, commit)


def _views(log: sqlite3.Connection, folder: Path, *, after: int) -> Iterator[Trace]:
    for where, seq, commit in _positions(folder):
        if seq > after and not _has(log, seq, commit):
            yield Trace(where, seq, commit)


def _positions(folder: Path) -> Iterator[tuple[str, int, str]]:
    """How far each view is; 0 for a view of nothing."""
    yield from _layers(folder)
    yield from _snapshots(folder)
    yield from _stores(folder)


def _layers(folder: Path) -> list[tuple[str, int, str]]:
    """How far the node index is, on every branch and snapshot; nothing if it can't be read."""
    path = folder / "nodes.db"
    if not path.is_file():
        return []
    with suppress(sqlite3.DatabaseError), closing(connect_read_only(path)) as db:
        rows = db.execute(
            "SELECT r.name, l.seq, l.head FROM layers l LEFT JOIN refs r ON r.layer = l.layer"
        ).fetchall()
        names = {None: "the node index", ROOT_NAME: "the node index"}
        return [
            (names.get(name) or f"the node index of {name}", seq, head) for name, seq, head in rows
        ]
    return []


def _snapshots(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Stores of snapshots that were made with a position in them."""
    for path in sorted((folder / "snapshots").glob("*/quads")):
        yield from _store(path, f"snapshots/{path.parent.name}")


def _stores(folder: Path) -> Iterator[tuple[str, int, str]]:
    for path in sorted((folder / "branches").glob("*/quads")):
        yield from _store(path, f"branches/{path.parent.name}")


def _store(path: Path, name: str) -> Iterator[tuple[str, int, str]]:
    """How far a quads view is; nothing if it can't be read."""
    with suppress(OSError, RuntimeError):
        position = position_of(ox.Store.read_only(str(path)))
        if position is not None:
            yield f"the quads view in {name}", position.seq, position.commit
