"""Connections to a PostgreSQL server, and its errors in the words of Trails.

Everything that libpq understands comes through the URL: TLS, password files, several hosts. What
may hold a secret, the URL itself, is in no message. A question is asked again on a new connection
when its own was lost, for as long as ``RETRY_SECONDS``; a write never is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Final, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from trails.errors import (
    CorruptionError,
    LogUnavailableError,
    SettingsError,
    StorageError,
    StorageFullError,
    TransactionError,
    UnwritableError,
)

Connection = psycopg.Connection[tuple[object, ...]]
T = TypeVar("T")

RETRY_SECONDS: Final = 5.0
"""For how long a server that restarts or fails over is waited for."""
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_IDLE: Final = 4
"""Connections that are kept while nobody uses them."""
LOCK_SECONDS: Final = 60
"""How long a statement waits for the turn of another server."""
_DEFAULTS: Final = {
    "application_name": "trails",
    "connect_timeout": "5",
    # A server that vanished is noticed, also by a write that waits for its answer.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""Used where the URL does not say otherwise."""
_SECRET: Final = ("password", "sslpassword", "oauth_client_secret", "scram_client_key")
_PASSING: Final = ("starting up", "shutting down", "recovery", "too many", "accepting")
"""Words of refusals that end by themselves; a wrong password or database does not."""
_THEN: Final = "Nothing was written; try again"
_SETUP: Final = f"""
SET lock_timeout = '{LOCK_SECONDS}s';
SET statement_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'
"""
"""An acknowledged commit is durable, whatever the defaults of the database are."""


class Connections:
    """The connections of one log: made when they are needed, replaced when they are lost."""

    def __init__(self, url: str) -> None:
        """Nothing is sent yet. SettingsError for an address that can't be understood."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # The error of libpq quotes what it could not read, passwords included.
            raise SettingsError(
                "the URL of the log is not a PostgreSQL URL that libpq understands; write "
                "postgresql://user@host:5432/database?sslmode=verify-full"
            ) from None
        self._arguments = {**_DEFAULTS, **given}
        self._secrets = [str(given[name]) for name in _SECRET if given.get(name)]
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @property
    def place(self) -> str:
        """Where the server is, without anything secret."""
        host = self._arguments.get("host") or self._arguments.get("hostaddr") or "local socket"
        return f"{host}, database {self._arguments.get('dbname') or 'by default'}"

    def connect(self) -> Connection:
        """A new connection, which commits by itself; for whoever asks, and nobody else."""
        connection: Connection = psycopg.connect(autocommit=True, **self._arguments)  # type: ignore[arg-type]
        try:
            connection.execute(_SETUP)
        except BaseException:
            connection.close()
            raise
        return connection

    def read(self, doing: str, ask: Callable[[Connection], T]) -> T:
        """Ask something; again on a new connection where the first one was lost."""
        return self.retrying(doing, lambda: self._ask(ask))

    def retrying(self, doing: str, attempt: Callable[[], T]) -> T:
        """Do something that can be repeated, until the server answers or has had its time."""
        until, pause = monotonic() + RETRY_SECONDS, _PAUSE
        while True:
            try:
                return attempt()
            except psycopg.Error as error:
                if monotonic() >= until or not is_passing(error):
                    raise self.translate(error, doing) from error
            sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _ask(self, ask: Callable[[Connection], T]) -> T:
        with self.borrowed() as connection:
            return ask(connection)

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        """A connection for a while; it goes back unless it was lost."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self.connect()
        try:
            yield connection
        except BaseException as error:
            if isinstance(error, psycopg.Error) and is_lost(connection):
                self.forget_idle()  # they were lost for the same reason
            self._put_back(connection)
            raise
        self._put_back(connection)

    def _put_back(self, connection: Connection) -> None:
        clean = (
            not is_lost(connection) and connection.info.transaction_status == TransactionStatus.IDLE
        )
        with self._lock:
            if clean and not self._closed and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        end(connection)

    def forget_idle(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            end(each)

    def close(self) -> None:
        """Close them all; those in use are closed when they come back."""
        self._closed = True
        self.forget_idle()

    @contextmanager
    def errors(self, doing: str, then: str = _THEN) -> Iterator[None]:
        """Turn what the server says into errors that say what to do."""
        try:
            yield
        except psycopg.Error as error:
            raise self.translate(error, doing, then) from error

    def translate(
        self, error: psycopg.Error, doing: str, then: str = _THEN
    ) -> StorageError | TransactionError:
        """An error of the server, or of the way to it, without anything secret."""
        said = str(error).strip() if error.diag.message_primary is None else ""
        said = " ".join((said or str(error.diag.message_primary)).split())
        for secret in self._secrets:
            said = said.replace(secret, "…")
        state = error.sqlstate or ""
        problem = f"can't {doing}: {said}"
        if state.startswith("53100"):
            return StorageFullError(
                f"can't {doing}: the PostgreSQL server has no space left. Everything acknowledged "
                "before is safe and readable; free some space there and try again"
            )
        if state == "25006":
            return UnwritableError(
                f"{problem}. This PostgreSQL server is read-only: name all servers in the URL of "
                "the log, with target_session_attrs=read-write"
            )
        if state == "42501":
            return UnwritableError(
                f"{problem}. The role of the log's URL lacks a privilege; docs/how-to/cluster.md "
                "lists those that it needs"
            )
        if state == "55P03":
            return TransactionError(
                f"other servers have kept this graph busy for {LOCK_SECONDS} s; try again later"
            )
        if state in {"XX001", "XX002"}:
            return CorruptionError(f"{problem}; restore the database from its backup")
        if is_passing(error) or isinstance(error, psycopg.OperationalError):
            return LogUnavailableError(f"{problem}. {then}")
        return StorageError(problem)


def is_lost(connection: Connection) -> bool:
    """Whether a connection can't be used any more."""
    return connection.closed or connection.broken


def is_passing(error: psycopg.Error) -> bool:
    """Whether the server may answer soon: it restarts, or the way to it was interrupted."""
    state = error.sqlstate
    if state is not None:
        return state.startswith(("08", "57P")) or state in {"53300", "40001", "40P01", "25006"}
    text = str(error)
    return isinstance(error, psycopg.OperationalError) and (
        "FATAL" not in text or any(each in text for each in _PASSING)
    )


def end(connection: Connection) -> None:
    """Close a connection, whatever its state is."""
    with suppress(psycopg.Error):
        connection.close()
