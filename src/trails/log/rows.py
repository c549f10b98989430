"""What a log consists of, as it is stored: the form in which a whole log is copied.

A log is read and written here row by row, whatever its commits mean: ids, places and records stay
as they are. ``trails.log.copying`` copies and compares; the embedded log and the one on PostgreSQL
each have an implementation.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, Literal, Protocol, TypeVar

import msgspec

from trails.log.protocol import Header
from trails.model.history import Activity, ActivityArchive, Commit

Half = Literal["removed", "added"]
HALVES: Final[tuple[Half, Half]] = ("removed", "added")
PIECE: Final = 1 << 20
"""Bytes of a large part or a file that are in memory at once."""
Record = tuple[int, bytes]
"""A place in a stream, and what is there as JSON."""
HeadRow = tuple[str, str, int, str]
"""Branch, commit, place and schema."""
KeyRow = tuple[str, str, str, str, bytes]
"""Branch, actor, key, end and record of an idempotency key."""


T = TypeVar("T")
Stream = Generator[T, None, None]
"""Rows as they are read; whoever stops before the last one closes it."""


class PartRow(msgspec.Struct, frozen=True):
    """Half of a delta: the digest of its text, and the compressed text unless it is large."""

    sha: str
    blob: bytes | None
    """None: it is read in pieces."""


class CommitRow(msgspec.Struct, frozen=True):
    """A commit as it is stored."""

    seq: int
    record: bytes
    removed: PartRow
    added: PartRow

    def part(self, half: Half) -> PartRow:
        """One of its halves."""
        return self.removed if half == "removed" else self.added

    @property
    def has_large(self) -> bool:
        """Whether a half of it is read in pieces."""
        return self.removed.blob is None or self.added.blob is None

    @property
    def size(self) -> int:
        """Its bytes in memory, about."""
        return len(self.record) + len(self.removed.blob or b"") + len(self.added.blob or b"")


class Ends(msgspec.Struct, frozen=True):
    """The last places of the streams; 0 for an empty one."""

    commits: int = 0
    moves: int = 0
    activities: int = 0
    """Archived ones included."""


class LogRows(Protocol):
    """The rows of a log that nobody else changes meanwhile."""

    @property
    def header(self) -> Header: ...
    @property
    def place(self) -> str:
        """Where it is, for messages."""

    @property
    def repair(self) -> str:
        """What to do where it is damaged."""

    def ends(self) -> Ends: ...
    def commits(self, after: int = 0) -> Stream[CommitRow]: ...
    def records(self, after: int = 0) -> Stream[Record]:
        """The records of commits alone."""

    def record(self, seq: int) -> bytes | None: ...
    def find(self, commit: str) -> bytes | None:
        """The record of a commit, by its id."""

    def pieces(self, row: CommitRow, half: Half) -> Iterator[bytes]:
        """A large part, compressed."""

    def moves(self, after: int = 0) -> Stream[Record]: ...
    def activities(self, after: int = 0) -> Stream[Record]:
        """Those that are in no archive."""

    def archives(self) -> list[ActivityArchive]: ...
    def archive(self, archive: ActivityArchive) -> Iterator[bytes]:
        """The file of an archive."""

    def schemas(self) -> dict[str, bytes]: ...
    def heads(self) -> list[HeadRow]: ...
    def keys(self) -> list[KeyRow]: ...
    def calls(self) -> list[tuple[str, bytes]]:
        """The calls that have no activity yet, by id."""


class LogTarget(LogRows, Protocol):
    """A log that is not in use yet, and takes rows; each method is one transaction."""

    def add_schemas(self, schemas: dict[str, bytes]) -> None: ...
    def add_commits(self, rows: Sequence[tuple[CommitRow, Commit]], source: LogRows) -> None:
        """``source`` has their large parts."""

    def add_moves(self, rows: Sequence[Record]) -> None: ...
    def add_archive(self, archive: ActivityArchive, pieces: Iterable[bytes]) -> None:
        """The activities in it leave the table."""

    def add_activities(self, rows: Sequence[tuple[int, bytes, Activity]]) -> None: ...
    def replace_rest(
        self,
        heads: Iterable[HeadRow],
        keys: Iterable[KeyRow],
        calls: Iterable[tuple[str, bytes]],
    ) -> None:
        """The tables whose rows change."""
