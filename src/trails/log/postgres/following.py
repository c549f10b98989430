"""Following: a server knows which others use its log, and hears of what they write.

A connection of its own listens to notifications, which come with each COMMIT of others. Where they
do not arrive, a look at the log each second finds the same. The connection also holds a lock with
the server's number: a number that nobody holds is that of a server that has ended.
"""

from __future__ import annotations

import os
import secrets
import selectors
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, cast

import psycopg

from trails.errors import TrailsError
from trails.log.postgres.connections import Connection, Connections, end, is_lost
from trails.log.postgres.turns import Turns, one_row

POLL_SECONDS: Final = 1.0
"""How often the log is looked at if no notification comes."""
_PRESENT: Final = "mod('trails_graphs'::regclass::oid::bigint, 1000000007)::int # %s::int"
"""The lock of the servers of a graph: one key for all of them, and one for each."""


class Following(Turns):
    """Who else uses the log, and what wakes those who follow it."""

    def __init__(self, connections: Connections, graph: int, name: str, *, read_only: bool) -> None:
        self._listener: Connection | None = None
        self._thread: threading.Thread | None = None
        self._wake: Callable[[], None] | None = None
        self._stop: tuple[int, int] | None = None
        self._answers = True
        self._told = False
        number = secrets.randbelow(2**31 - 1) + 1
        super().__init__(connections, graph, number, name, read_only=read_only)

    @property
    def available(self) -> bool:
        """Whether the server of the log has answered lately."""
        return self._answers

    @property
    def shared(self) -> bool:
        """Whether other servers write this log at the moment."""

        def ask(connection: Connection) -> bool:
            (found,) = one_row(
                connection.execute(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 "  # noqa: S608
                    "AND database = (SELECT oid FROM pg_database "
                    f"WHERE datname = current_database()) AND classid::bigint = {_PRESENT} "
                    "AND objid::bigint <> %s AND granted",
                    (self._graph, self._server),
                )
            )
            return bool(found)

        return self._connections.read("read the log", ask)

    def _channel(self, connection: Connection) -> str:
        (table,) = one_row(connection.execute("SELECT 'trails_graphs'::regclass::oid::bigint"))
        return f"trails_{table}_{self._graph}"

    def _join(self) -> None:
        """Be known to others; record what servers were doing that have ended since."""
        self._listener = self._connections.read("open the log", lambda _: self._listen())
        for server in self._servers_with_calls():
            with self._connections.borrowed() as connection:
                keys = self._graph, server
                query = f"SELECT pg_try_advisory_lock({_PRESENT}, %s)"
                if one_row(connection.execute(query, keys)) == (True,):
                    try:
                        self._end_calls(server)
                    finally:
                        connection.execute(f"SELECT pg_advisory_unlock({_PRESENT}, %s::int)", keys)

    def _servers_with_calls(self) -> list[int]:
        rows = self._all("SELECT DISTINCT server FROM trails_calls WHERE graph = %s", self._graph)
        return [number for (number,) in cast(list[tuple[int]], rows) if number != self._server]

    def _listen(self) -> Connection:
        connection = self._connections.connect()
        try:
            self._share(connection)
            connection.execute(
                f"SELECT pg_advisory_lock_shared({_PRESENT}, %s::int)", (self._graph, self._server)
            )
            connection.execute(f"LISTEN {self._channel(connection)}".encode())
            connection.add_notify_handler(lambda told: self._hear(told.payload))
        except BaseException:
            end(connection)
            raise
        return connection

    def _announce(self, connection: Connection) -> None:
        connection.execute(
            "SELECT pg_notify(concat_ws('_', 'trails', 'trails_graphs'::regclass::oid, %s::int), "
            "%s::text)",
            (self._graph, self._server),
        )

    # --- the thread --------------------------------------------------------------------------

    def follow(self, wake: Callable[[], None]) -> None:
        """Call ``wake``, in a thread, whenever others have written, until the log is closed."""
        self._wake, self._stop = wake, os.pipe()
        self._thread = threading.Thread(target=self._run, name="trails-log", daemon=True)
        self._thread.start()

    def _hear(self, server: str) -> None:
        """A notification has come; one's own says nothing new."""
        self._told = self._told or server != str(self._server)

    def _run(self) -> None:
        assert self._stop is not None  # noqa: S101 - made before the thread
        assert self._wake is not None  # noqa: S101 - as well
        next_look = 0.0
        while True:
            try:
                if self._listener is None or is_lost(self._listener):
                    self._listener = None
                    self._listener = self._listen()
                    self._told = True  # what was told meanwhile is lost
                if not self._told and self._stops(self._listener):
                    return
                lagging, self._told = self._told, False
                if monotonic() >= next_look:
                    next_look = monotonic() + POLL_SECONDS
                    self.show_life()
                    lagging = lagging or self._missed is not None or self._is_behind(self._listener)
                self._answers = True
            except (psycopg.Error, TrailsError):
                self._answers, lagging = False, False
                if self._listener is not None:
                    end(self._listener)
                if self._stops(None):
                    return
            if lagging:
                self._wake()

    def _stops(self, connection: Connection | None) -> bool:
        """Wait for a notification, but not for long; whether the log is being closed."""
        assert self._stop is not None  # noqa: S101 - made before the thread
        stop = self._stop[0]
        with selectors.DefaultSelector() as selector:
            selector.register(stop, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection.fileno(), selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(POLL_SECONDS)}
        if connection is not None:
            connection.pgconn.consume_input()
            while (told := connection.pgconn.notifies()) is not None:
                self._hear(told.extra.decode())
        return stop in ready

    def close(self) -> None:
        """End the thread, and close the connections."""
        if self._stop is not None:
            os.write(self._stop[1], b".")
            if self._thread is not None:
                self._thread.join()
            for each in self._stop:
                os.close(each)
            self._stop = None
        if self._listener is not None:
            end(self._listener)
            self._listener = None
        super().close()
