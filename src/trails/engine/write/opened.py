"""A write that a block of code is open for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from trails.engine.write.write import Write
from trails.model.history import Commit


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
        """Whether an idempotency key named an earlier commit, so that nothing is written."""
        return self.write.replayed is not None


Opening = Callable[[], AbstractContextManager[Opened]]
"""Takes the writer's lock on one branch, for one actor, with a message and an idempotency key;
the block's end commits, an error in it does not."""
