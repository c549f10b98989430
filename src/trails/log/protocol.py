"""What any log must do; SQLite is the first to do it, PostgreSQL can be the next.

Reading is open to all. Writing goes through :mod:`trails.log.append`, which
computes the chained digest and calls ``insert``; the compare-and-swap on the
branch's head happens inside the log's own transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Protocol

import msgspec

from trails.errors import ConflictError
from trails.log.payloads import Payload, PayloadWriter
from trails.model.history import Activity, Commit, Head
from trails.model.types import Schema


class Header(msgspec.Struct, frozen=True):
    """What is fixed when a graph is created."""

    format: int
    graph: str
    base_iri: str
    created: str


class Log(Protocol):
    """Two append-only streams, commits and activities; branch heads; schemas by digest."""

    @property
    def header(self) -> Header: ...

    def head(self, branch: str) -> Head | None: ...
    def branches(self) -> dict[str, Head]: ...
    def commit(self, identifier: str) -> Commit | None: ...
    def commits(self, after: int = 0, until: int | None = None) -> Iterator[Commit]: ...
    def by_idempotency_key(self, branch: str, key: str) -> Commit | None: ...
    def open_removed(self, commit: Commit) -> IO[bytes]: ...
    def open_added(self, commit: Commit) -> IO[bytes]: ...
    def schema(self, digest: str) -> Schema | None: ...
    def activities(self, after: int = 0) -> Iterator[tuple[int, Activity]]: ...

    def new_payload(self) -> PayloadWriter: ...
    def insert(self, commit: Commit, payload: Payload, schema: Schema, expected: str) -> None: ...
    def insert_activities(self, activities: Iterable[Activity]) -> None: ...
    def check(self) -> list[str]: ...
    def close(self) -> None: ...


def head_moved(branch: str, expected: str, actual: str) -> ConflictError:
    """The error of a compare-and-swap that lost."""
    return ConflictError(
        f"branch {branch!r} is at {actual or 'no commit'}, not at {expected or 'no commit'}: "
        "someone wrote in between. Read again, redo the change, and retry",
        branch=branch,
        expected_head=expected,
        head=actual,
    )
