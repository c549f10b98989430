"""Turns: one transaction from the lock on the graph's row to COMMIT, and who may take them.

Commits are written on one connection, which also holds the ownership of the graph for as long as it
lasts: a server that has lost it can't write. If the answer to a COMMIT is lost, the next holder of
the row's lock sees whether it happened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Final, cast

import psycopg

from trails.errors import (
    LockedError,
    LogUnavailableError,
    OutcomeUnknownError,
    ReadOnlyError,
    StorageError,
)
from trails.log.postgres.activities import ActivityRows
from trails.log.postgres.connections import Connection, Connections, end, is_lost, is_passing
from trails.log.postgres.streams import COMMITS, moved_away
from trails.model.history import Head

OWNER_SECONDS: Final = 3.0
"""How long the connection of an owner that died may take to end."""
SETTLE_SECONDS: Final = 20.0
"""For how long the outcome of a COMMIT is looked up whose answer was lost."""
_READ_ONLY: Final = "25006"
OWNERSHIP: Final = "('trails_graphs'::regclass::oid::bigint << 32) + %s"


class Turns(ActivityRows):
    """The writing connection of one graph, and what the log is known to hold."""

    def __init__(
        self, connections: Connections, graph: int, name: str, *, read_only: bool, owned: bool
    ) -> None:
        """Without ``owned``, another server may write meanwhile."""
        self._lock = threading.RLock()
        """Held by the thread that has the turn."""
        self._begun = False
        self._displaced = False
        self._doubted: set[bytes] = set()
        """Commits and moves of which it is not known whether they were written."""
        self._branches_version = 0
        self._writer: Connection | None = None
        super().__init__(connections, graph, name, read_only=read_only)
        try:
            if owned:
                with connections.errors("open the log"):
                    self._writer = self._own()
            self._heads = self._read_heads()
            self._newest, self._last_move = connections.read("read the log", self._ends)
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> str:
        """Where the server is, without anything secret."""
        return self._connections.place

    def _own(self) -> Connection:
        """A connection that holds the ownership of the graph for as long as it lasts.

        Read-only owners share it. One that finds other commits than it knows of has been
        displaced meanwhile: what it holds in memory may be wrong.
        """
        connection, shared = self._connections.connect(), "_shared" if self.read_only else ""
        try:
            until = monotonic() + OWNER_SECONDS
            query = f"SELECT pg_try_advisory_lock{shared}({OWNERSHIP})"
            while not one_row(connection.execute(query, (self._graph,)))[0]:
                if monotonic() >= until:
                    raise LockedError(  # noqa: TRY301
                        f"another server has opened the log of graph {self._name!r} on "
                        f"{self.place}. One server at a time can use a log: stop the other one, or "
                        "connect to it"
                    )
                sleep(0.05)
        except BaseException:
            end(connection)
            raise
        return connection

    def _own_again(self) -> Connection:
        connection = self._own()
        try:
            newest, last_move = self._ends(connection)
            if (newest, last_move) != (self._newest, self._last_move):
                self._check_doubted(connection)
                self._newest, self._last_move = newest, last_move
                self._renew_heads()
        except BaseException:
            end(connection)
            raise
        self._doubted.clear()
        return connection

    def _check_doubted(self, connection: Connection) -> None:
        """Accept what this server has written without learning about it, and nothing else."""
        ids = connection.execute(
            "SELECT id FROM trails_commits WHERE graph = %s AND seq > %s",
            (self._graph, self._newest),
        ).fetchall()
        records = connection.execute(
            "SELECT record FROM trails_moves WHERE graph = %s AND seq > %s",
            (self._graph, self._last_move),
        ).fetchall()
        if not {cast(bytes, each) for (each,) in (*ids, *records)} <= self._doubted:
            self._displaced = True
            raise self._was_displaced()

    def _was_displaced(self) -> LockedError:
        return LockedError(
            f"this server lost its connection to the log of graph {self._name!r}, and "
            "another one has written to it since; restart this one"
        )

    def _read_heads(self) -> dict[str, Head]:
        rows = self._all(
            "SELECT branch, id, seq, schema FROM trails_heads WHERE graph = %s ORDER BY branch",
            self._graph,
        )
        return {
            as_text(branch): Head(as_text(commit), cast(int, seq), as_text(schema))
            for branch, commit, seq, schema in rows
        }

    def _renew_heads(self) -> None:
        self._heads = self._read_heads()
        self._branches_version += 1

    def _ends(self, connection: Connection) -> tuple[int, int]:
        found = one_row(
            connection.execute(
                "SELECT (SELECT coalesce(max(seq), 0) FROM trails_commits WHERE graph = %(graph)s),"
                " (SELECT coalesce(max(seq), 0) FROM trails_moves WHERE graph = %(graph)s)",
                {"graph": self._graph},
            )
        )
        return cast(tuple[int, int], found)

    @contextmanager
    def _turn(self) -> Iterator[Connection]:
        """Wait for the lock on the graph's row, and hold it until a commit or the end.

        A turn that was lost with its connection has written nothing.
        """
        if self.read_only:
            raise ReadOnlyError("can't append to the log: it is open read-only")
        with self._lock:
            self._connections.retrying("append to the log", self._begin)
            assert self._writer is not None  # noqa: S101 - a turn has a connection
            try:
                with self._connections.errors("append to the log"):
                    yield self._writer
            finally:
                self._roll_back()

    def _begin(self) -> None:
        if self._displaced:
            raise self._was_displaced()
        if self._writer is None or is_lost(self._writer):
            self._writer = None
            self._writer = self._own_again()
        self._begun = True
        try:
            found = self._writer.execute(
                "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT 1 FROM trails_streams "  # noqa: S608
                f"WHERE graph = {self._graph:d} AND name = '{COMMITS}' FOR UPDATE".encode()
            )
            found.nextset()
            if not found.rowcount:
                self._roll_back()
                raise moved_away(self._name, self.place)
        except psycopg.Error as error:
            self._roll_back()
            if error.sqlstate == _READ_ONLY:
                end(self._writer)  # another server may be the primary now
            raise

    def _roll_back(self) -> None:
        if self._begun:
            self._begun = False
            if self._writer is not None and not is_lost(self._writer):
                with suppress(psycopg.Error):
                    self._writer.execute("ROLLBACK")

    def _commit(
        self, commit: str, doubted: Iterable[bytes], landed: Callable[[Connection], bool]
    ) -> None:
        """End the transaction. ``landed`` finds out whether it did, if the answer is lost."""
        assert self._writer is not None  # noqa: S101 - a turn has a connection
        try:
            done = self._writer.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            if not is_lost(self._writer):
                raise
            self._begun = False
            if self._find_out(landed) is not True:
                self._doubted.update(doubted)
                raise self._unknown(commit) from error
            return
        self._begun = False
        if done != "COMMIT":
            raise StorageError("can't append to the log: PostgreSQL rolled the transaction back")

    def _find_out(self, landed: Callable[[Connection], bool]) -> bool | None:
        """Whether a transaction was committed; None if the server does not answer for long.

        The lock on the row is free when that transaction has ended, one way or the other.
        """
        until = monotonic() + SETTLE_SECONDS
        while monotonic() < until:
            try:
                connection = self._connections.connect()
            except psycopg.Error as error:
                if not is_passing(error):
                    return None
                sleep(0.1)
                continue
            try:
                with connection.transaction():
                    connection.execute(
                        "SELECT 1 FROM trails_streams WHERE graph = %s FOR UPDATE", (self._graph,)
                    )
                    if landed(connection):
                        return True
                    raise LogUnavailableError(
                        "can't append to the log: the connection to its server was lost. Nothing "
                        "was written; try again"
                    )
            except psycopg.Error:
                sleep(0.1)
            finally:
                end(connection)
        return None

    @staticmethod
    def _unknown(commit: str) -> OutcomeUnknownError:
        what = f"commit {commit}" if commit else "the change"
        return OutcomeUnknownError(
            f"the connection to the log was lost while {what} was being written, and its server "
            f"has not answered for {SETTLE_SECONDS:g} s: it may have been written or not. Look for "
            "it when the server is back, or repeat the call with the same idempotency key",
            **({"commit": commit} if commit else {}),
        )

    def close(self) -> None:
        """Close the connections; the ownership ends with its own."""
        with self._lock:
            self._roll_back()
            if self._writer is not None:
                end(self._writer)
                self._writer = None
        self._connections.close()


def one_row(cursor: psycopg.Cursor[tuple[object, ...]]) -> tuple[object, ...]:
    """The only row of an answer."""
    row = cursor.fetchone()
    assert row is not None  # noqa: S101 - the question has one answer
    return row


def as_text(value: object) -> str:
    """The text of a column."""
    return cast(bytes, value).decode()
