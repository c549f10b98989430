"""What any log must do; SQLite does it in a folder, PostgreSQL on a server.

Reading is open to all. Writing goes through :mod:`trails.log.append`, which
computes the chained digest; ``insert_all`` takes the compare-and-swap on the head of each
branch and everything else in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from trails.errors import ConflictError
from trails.log.payloads import Payload, PayloadWriter
from trails.model.history import Activity, ActivityArchive, ActivityQuery, Commit, Head, Move
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome

if TYPE_CHECKING:
    from trails.log.extracts import Extract


class Header(msgspec.Struct, frozen=True):
    """What is fixed when a graph is created."""

    format: int
    graph: str
    base_iri: str
    created: str


class LogEntry(msgspec.Struct, frozen=True):
    """A commit on its way into a log, with all that becomes durable together with it."""

    commit: Commit
    payload: Payload
    schema: Schema
    expected: str
    """Where its branch has to be."""
    keyed: KeyedOutcome | None = None
    """What a retry with its idempotency key is answered."""
    call: Activity | None = None
    """The call that made it, as its activity would be if it ended now."""


class Missed(msgspec.Struct, frozen=True):
    """What other servers have written to a log since this one looked."""

    moves: tuple[Move, ...]
    """In their order."""
    branches: frozenset[str]
    """Those whose head is another one; some may be gone."""


class Log(Protocol):
    """Two append-only streams, commits and activities; branch heads; schemas by digest.

    Where several servers write one log, they take turns: between ``begin_turn`` and the insertion
    nobody else writes. ``refresh`` looks what others have written, without a turn.
    """

    @property
    def in_turn(self) -> bool: ...
    def begin_turn(self) -> Missed | None: ...
    def end_turn(self) -> None: ...
    def behind(self) -> bool: ...
    def refresh(self) -> Missed | None: ...
    def follow(self, wake: Callable[[], None]) -> None: ...
    @property
    def available(self) -> bool: ...
    @property
    def shared(self) -> bool: ...

    @property
    def header(self) -> Header: ...

    def head(self, branch: str) -> Head | None: ...
    def branches(self) -> dict[str, Head]: ...
    @property
    def branches_version(self) -> int: ...
    def commit(self, identifier: str) -> Commit | None: ...
    def commits(self, after: int = 0, until: int | None = None) -> Iterator[Commit]: ...
    def newest(self, before: int | None = None) -> Iterator[Commit]: ...
    def at(self, seq: int) -> Commit | None: ...
    def migrations(self) -> list[Commit]: ...
    def renames(self) -> list[Commit]: ...
    def starting_with(self, prefix: str, limit: int = 5) -> list[str]: ...
    def last_seq(self) -> int: ...
    def moves(self) -> Iterator[Move]: ...
    def keyed(self, branch: str, actor: str, key: str, now: str) -> KeyedOutcome | None: ...
    def open_removed(self, commit: Commit) -> IO[bytes]: ...
    def open_added(self, commit: Commit) -> IO[bytes]: ...
    def schema(self, digest: str) -> Schema | None: ...
    def activities(self, after: int = 0) -> Iterator[tuple[int, Activity]]: ...
    def newest_activities(self, limit: int, *, archived: bool = True) -> list[Activity]: ...
    def find_activities(self, wanted: Mapping[str, str]) -> dict[str, Activity]: ...
    def list_activities(
        self,
        wanted: ActivityQuery,
        limit: int,
        *,
        after: str | None = None,
        archived: bool = False,
    ) -> list[Activity]: ...
    def archives(self) -> tuple[ActivityArchive, ...]: ...
    def find_archivable(self, ended_before: str, keep: int | None) -> range: ...
    def archive_activities(self, places: range) -> Iterator[ActivityArchive]: ...
    def missing_archives(self) -> list[str]: ...
    def check_archives(self) -> list[str]: ...

    def new_payload(self) -> PayloadWriter: ...
    def insert_all(
        self,
        entries: Iterable[LogEntry],
        *,
        move: Move | None = None,
        activities: Sequence[Activity] = (),
    ) -> None: ...
    def adopt(self, payload: Payload, folder: Path | None) -> None: ...
    def move(self, move: Move, schema: str, keyed: KeyedOutcome | None = None) -> Move: ...
    def remember(self, keyed: KeyedOutcome, now: str) -> None: ...
    def insert_activities(self, activities: Iterable[Activity]) -> None: ...
    def check(self) -> list[str]: ...
    def copy_new(
        self, folder: Path, since: Mapping[str, int], known: Container[str]
    ) -> Extract: ...
    def size(self) -> int: ...
    def give_back_space(self) -> None: ...
    def compact(self) -> None: ...
    def close(self) -> None: ...


class SoleWriter:
    """The turns of a log that only this process writes: it always has them."""

    available = True
    """Whether the log can be read and written now, as far as is known."""
    in_turn = True
    """Whether nobody else can write now."""
    shared = False
    """Whether other servers write it at the moment."""

    def begin_turn(self) -> Missed | None:
        """Nobody else has written."""
        return None

    def end_turn(self) -> None:
        """Nobody waits."""

    def behind(self) -> bool:
        """Never."""
        return False

    def refresh(self) -> Missed | None:
        """Nobody else has written."""
        return None

    def follow(self, wake: Callable[[], None]) -> None:
        """There is nothing to wake up for."""
        del wake


def head_moved(branch: str, expected: str, actual: str) -> ConflictError:
    """The error of a compare-and-swap that lost."""
    return ConflictError(
        f"branch {branch!r} is at {actual or 'no commit'}, not at {expected or 'no commit'}: "
        "someone wrote in between. Read again, redo the change, and retry",
        branch=branch,
        expected_head=expected,
        head=actual,
    )
