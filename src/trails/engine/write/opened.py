"""A write that a block of code is open for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from trails.engine.write.write import Write
from trails.model.history import Commit


class OutdatedError(Exception):
    """What was worked out before the lock does not fit any more; nothing is kept of the write."""


class Opened:
    """A write in progress and, once its block has ended, its commit."""

    __slots__ = ("commit", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.commit: Commit | None = None

    @property
    def commit_id(self) -> str | None:
        """The id of its commit, where it has one."""
        return None if self.commit is None else self.commit.id

    @property
    def replayed(self) -> bool:
        """Whether an idempotency key named an earlier write, so that nothing is written."""
        return self.write.replayed is not None

    @property
    def result(self) -> Mapping[str, object]:
        """What the operation answers beside its commit; of a replay, what it answered first."""
        replayed = self.write.replayed
        return self.write.result if replayed is None else replayed.result

    def answer(self, result: Mapping[str, object]) -> None:
        """Say what the operation answers, in JSON form, so that a retry answers the same."""
        self.write.result = result


class Opening(Protocol):
    """Takes the writer's lock on one branch, for one actor, with a message and a key.

    The block's end commits, an error in it does not. ``request`` is what the key stands for.
    """

    def __call__(self, *, request: object = None) -> AbstractContextManager[Opened]:
        """Begin."""
