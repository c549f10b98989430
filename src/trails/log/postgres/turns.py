"""Turns: one transaction from the lock on the graph's row to COMMIT, in which one server writes.

Others wait for the row, and look at what was written before they write themselves. Lock and rows
share a connection: a server whose turn has ended with it, because it was cut, or paused for longer
than ``TURN_SECONDS``, can't write any more what it had begun. If the answer to a COMMIT is lost,
the next holder of the row's lock sees whether it happened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Final, cast

import psycopg

from trails.errors import (
    BehindError,
    LockedError,
    LogUnavailableError,
    OutcomeUnknownError,
    ReadOnlyError,
    StorageError,
)
from trails.log.postgres.activities import ActivityRows
from trails.log.postgres.connections import Connection, Connections, end, is_lost, is_passing
from trails.log.postgres.schema import raw
from trails.log.postgres.streams import COMMITS, moved_away
from trails.log.protocol import Missed
from trails.log.records import COMMIT, MOVE, decode
from trails.model.history import Commit, Head

TURN_SECONDS: Final = 10
"""For how long a server that shows no sign of life may keep the turn."""
OWNERSHIP: Final = "('trails_graphs'::regclass::oid::bigint << 32) + %s"
"""The lock of a log: shared by its servers, exclusive while it is moved."""
OWNER_SECONDS: Final = 3.0
"""How long those who move a log may keep it from being opened, before that is refused."""
SETTLE_SECONDS: Final = 20.0
"""For how long the outcome of a COMMIT is looked up whose answer was lost."""
_RECENT: Final = 500
"""Commits of other servers that are kept in memory for the views that are to follow them."""
_SMALL: Final = 16 << 10
"""Bytes of a part, compressed, that is kept with them."""
_READ_ONLY: Final = "25006"
_ENDS: Final = (
    b"SELECT (SELECT coalesce(max(seq), 0) FROM trails_commits WHERE graph = %(graph)d), "
    b"(SELECT id FROM trails_commits WHERE graph = %(graph)d ORDER BY seq DESC LIMIT 1), "
    b"(SELECT coalesce(max(seq), 0) FROM trails_moves WHERE graph = %(graph)d)"
)
Ends = tuple[int, str, int]
"""The place and the id of the newest commit, and the number of moves."""
Halves = dict[str, tuple[str, bytes]]
"""What a commit removed and added: digest and compressed text of the parts that are small."""


class Turns(ActivityRows):
    """The writing connection of one graph, and what the log is known to hold."""

    def __init__(
        self, connections: Connections, graph: int, server: int, name: str, *, read_only: bool
    ) -> None:
        """``server``: the number of this one."""
        self._lock = threading.RLock()
        """Held by the thread that uses the writing connection, or looks what others wrote."""
        self._begun = False
        self._displaced = False
        self._missed: Missed | None = None
        self._recent: dict[str, tuple[Commit, Halves]] = {}
        self._branches_version = 0
        self._writer: Connection | None = None
        super().__init__(connections, graph, server, name, read_only=read_only)
        try:
            self._ends, self._heads = connections.read("read the log", self._read_state)
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> str:
        """Where the server is, without anything secret."""
        return self._connections.place

    # --- what others write -------------------------------------------------------------

    def _ends_query(self) -> bytes:
        return _ENDS % {b"graph": self._graph}

    def _read_ends(self, connection: Connection) -> Ends:
        return _ends(one_row(connection.execute(self._ends_query())))

    def _read_state(self, connection: Connection) -> tuple[Ends, dict[str, Head]]:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return self._read_ends(connection), self._read_heads(connection)

    def _read_heads(self, connection: Connection) -> dict[str, Head]:
        rows = connection.execute(
            "SELECT branch, id, seq, schema FROM trails_heads WHERE graph = %s ORDER BY branch",
            (self._graph,),
        )
        return {as_text(row[0]): _head(*row[1:]) for row in rows}

    def behind(self) -> bool:
        """Whether the log has more than this server has looked at."""
        return self._connections.read("read the log", self._is_behind)

    def _is_behind(self, connection: Connection) -> bool:
        return self._read_ends(connection) != self._ends

    def refresh(self) -> Missed | None:
        """Look what other servers have written since this one looked; None if that is nothing."""
        with self._lock:
            if not self._begun:
                self._connections.read("read the log", self._look)
            return self._take_missed()

    def _look(self, connection: Connection) -> None:
        if self._is_behind(connection):
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                self._take_in(connection, self._read_ends(connection))

    def _take_missed(self) -> Missed | None:
        missed, self._missed = self._missed, None
        return missed

    def _take_in(self, connection: Connection, found: Ends) -> None:
        """Learn what is in the log now; ``found`` is how far it goes."""
        if found == self._ends:
            return
        newest, _, last_move = self._ends
        self._check_history(connection, found)
        moves = connection.execute(
            "SELECT record FROM trails_moves WHERE graph = %s AND seq > %s ORDER BY seq",
            (self._graph, last_move),
        ).fetchall()
        moved = [decode(MOVE, cast(bytes, record)) for (record,) in moves]
        names = {each.branch for each in moved}
        rows = connection.execute(
            "SELECT branch, id, seq, schema FROM trails_heads "
            "WHERE graph = %s AND (seq > %s OR branch = ANY(%s))",
            (self._graph, newest, [raw(each) for each in names]),
        ).fetchall()
        changed = {as_text(row[0]): _head(*row[1:]) for row in rows}
        heads = {name: head for name, head in self._heads.items() if name not in names} | changed
        self._recent = self._read_recent(connection, newest)
        if _arrangement(heads) != _arrangement(self._heads):
            self._branches_version += 1
        before = self._missed or Missed((), frozenset())
        self._missed = Missed((*before.moves, *moved), before.branches | names | set(changed))
        self._heads, self._ends = heads, found

    def _check_history(self, connection: Connection, found: Ends) -> None:
        """Refuse a log that has lost what this server knows of."""
        newest, known, last_move = self._ends
        has = (
            not newest
            or connection.execute(
                "SELECT 1 FROM trails_commits WHERE graph = %s AND seq = %s AND id = %s",
                (self._graph, newest, raw(known)),
            ).fetchone()
        )
        if not has or found[2] < last_move:
            self._displaced = True
        if self._displaced:
            raise BehindError(
                f"the log of graph {self._name!r} on {self.place} has lost commit {known}, which "
                "this server has: the database was restored to an earlier state, or failed over "
                "to a standby that lagged. Nothing is written; restart the server to see what is "
                "missing",
                cause="behind",
            )

    def _read_recent(self, connection: Connection, after: int) -> dict[str, tuple[Commit, Halves]]:
        """The first few commits after a place, with their small parts: views follow them now."""
        rows = connection.execute(
            "SELECT record, CASE WHEN octet_length(removed) <= %(small)s THEN removed END, "
            "removed_sha, CASE WHEN octet_length(added) <= %(small)s THEN added END, added_sha "
            "FROM trails_commits WHERE graph = %(graph)s AND seq > %(after)s "
            "ORDER BY seq LIMIT %(most)s",
            {"graph": self._graph, "after": after, "small": _SMALL, "most": _RECENT},
            binary=True,
        )
        found = {}
        for record, removed, removed_sha, added, added_sha in rows:
            commit, halves = decode(COMMIT, cast(bytes, record)), Halves()
            for half, sha, blob in (
                ("removed", removed_sha, removed),
                ("added", added_sha, added),
            ):
                if blob is not None:
                    halves[half] = as_text(sha), cast(bytes, blob)
            found[commit.id] = commit, halves
        return found

    def _share(self, connection: Connection) -> None:
        """Keep the log from being moved while this server uses it."""
        until = monotonic() + OWNER_SECONDS
        query = f"SELECT pg_try_advisory_lock_shared({OWNERSHIP})"
        while one_row(connection.execute(query, (self._graph,))) != (True,):
            if monotonic() >= until:
                raise LockedError(
                    f"the log of graph {self._name!r} on {self.place} is being moved; try again "
                    "when that is done"
                )
            sleep(0.05)

    # --- turns ---------------------------------------------------------------------------

    @property
    def in_turn(self) -> bool:
        """Whether this server has the turn, as far as is known."""
        return self._begun and self._writer is not None and not is_lost(self._writer)

    def begin_turn(self) -> Missed | None:
        """Wait until no other server writes; what they wrote since this one looked.

        The turn ends with what is inserted, or with ``end_turn``.
        """
        with self._lock:
            self._ensure_turn()
            return self._take_missed()

    def end_turn(self) -> None:
        """Let other servers write, if this one has kept them from it."""
        if self._begun:
            with self._lock:
                self._roll_back()

    def show_life(self) -> None:
        """Keep a turn in which nothing is written for long, because this server is at work."""
        if self._begun and self._lock.acquire(blocking=False):
            try:
                if self._writer is not None:
                    with suppress(psycopg.Error):  # who writes finds out
                        self._writer.execute("SELECT 1")
            finally:
                self._lock.release()

    def _ensure_turn(self) -> None:
        if self.read_only:
            raise ReadOnlyError("can't append to the log: it is open read-only")
        if not self._begun:
            self._connections.retrying("append to the log", self._begin)
        elif self._writer is None or is_lost(self._writer):
            self._begun = False
            raise _lost_turn()

    @contextmanager
    def _turn(self) -> Iterator[Connection]:
        """The connection of the turn, which is begun if it was not.

        It ends with the block. One that was lost with its connection has written nothing.
        """
        with self._lock:
            self._ensure_turn()
            assert self._writer is not None  # noqa: S101 - a turn has a connection
            try:
                with self._connections.errors("append to the log"):
                    yield self._writer
            finally:
                self._roll_back()

    def _begin(self) -> None:
        if self._writer is None or is_lost(self._writer):
            self._writer = None
            self._writer = self._connections.connect()
            self._writer.execute(
                f"SET idle_in_transaction_session_timeout = '{TURN_SECONDS}s'".encode()
            )
        self._begun = True
        try:
            # What is committed while a statement waits for the row is seen by the next one only.
            cursor = self._writer.execute(
                b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT 1 FROM trails_streams "
                b"WHERE graph = %d AND name = '%b' FOR UPDATE; %b"
                % (self._graph, COMMITS.encode(), self._ends_query())
            )
            cursor.nextset()
            if not cursor.rowcount:
                raise moved_away(self._name, self.place)  # noqa: TRY301
            cursor.nextset()
            self._take_in(self._writer, _ends(one_row(cursor)))
        except BaseException as error:
            self._roll_back()
            if isinstance(error, psycopg.Error) and error.sqlstate == _READ_ONLY:
                end(self._writer)  # another server may be the primary now
            raise

    def _roll_back(self) -> None:
        if self._begun:
            self._begun = False
            if self._writer is not None and not is_lost(self._writer):
                with suppress(psycopg.Error):
                    self._writer.execute("ROLLBACK")

    def _commit(self, commit: str, ends: Ends, landed: Callable[[Connection], bool]) -> None:
        """End the transaction, and tell the other servers.

        ``ends``: how far the log goes then. ``landed`` finds out whether it did, if the answer is
        lost.
        """
        assert self._writer is not None  # noqa: S101 - a turn has a connection
        try:
            self._announce(self._writer)
            done = self._writer.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            if not is_lost(self._writer):
                raise
            self._begun = False
            if self._find_out(landed) is not True:
                raise self._unknown(commit) from error
        else:
            self._begun = False
            if done != "COMMIT":
                raise StorageError(
                    "can't append to the log: PostgreSQL rolled the transaction back"
                )
        self._ends = ends

    def _announce(self, connection: Connection) -> None:
        """Notify the servers that follow this log, when the transaction is committed."""
        raise NotImplementedError

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
                    raise _lost_turn()
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
        """Close the connections."""
        with self._lock:
            self._roll_back()
            if self._writer is not None:
                end(self._writer)
                self._writer = None
        self._connections.close()


def _lost_turn() -> LogUnavailableError:
    return LogUnavailableError(
        "can't append to the log: the connection to its server was lost. Nothing was written; "
        "try again"
    )


def _ends(row: tuple[object, ...]) -> Ends:
    newest, identifier, last_move = row
    found = "" if identifier is None else as_text(identifier)
    return cast(int, newest), found, cast(int, last_move)


def _head(identifier: object, seq: object, schema: object) -> Head:
    return Head(as_text(identifier), cast(int, seq), as_text(schema))


def _arrangement(heads: dict[str, Head]) -> dict[str, str]:
    return {name: head.schema for name, head in heads.items()}


def one_row(cursor: psycopg.Cursor[tuple[object, ...]]) -> tuple[object, ...]:
    """The only row of an answer."""
    row = cursor.fetchone()
    assert row is not None  # noqa: S101 - the question has one answer
    return row


def as_text(value: object) -> str:
    """The text of a column."""
    return cast(bytes, value).decode()
