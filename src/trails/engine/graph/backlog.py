"""Backlog: what a view has still to do to be where ``main`` is.

A fast-forward can bring any number of commits, and nobody should wait for a view that they do not
read. So a view takes a note of the new head and follows later: in a thread, or in that of the
first reader who needs it. What is written meanwhile is left to the backlog, too, so that commits
are applied in their order. After a crash a view is behind, and follows when it is opened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from trails.errors import TrailsError
from trails.model.fairness import WorkInProgress
from trails.model.history import Commit, Head, Position

_DELAY: Final = 0.02
"""Seconds before the thread begins: the call that moved ``main`` is answered first."""


class Backlog:
    """The head of ``main`` that one view has still to reach, if there is one."""

    def __init__(
        self, view: str, follow: Callable[[Head], bool], progress: Callable[[str], None]
    ) -> None:
        """``follow`` brings the view to a head; False if it has to be repaired first.

        It is called without the writer's lock, by one thread at a time.
        """
        self._view = view
        self._follow = follow
        self._progress = progress
        self._lock = threading.Lock()
        self._working = threading.RLock()
        self._head: Head | None = None
        self._thread: threading.Thread | None = None
        self._failed = False
        self._ended = threading.Event()

    @property
    def position(self) -> Position | None:
        """Where the view will be soon; None if nothing is left, or if it could not follow."""
        head = self._head
        return None if head is None or self._failed else Position(head.seq, head.commit)

    @property
    def is_empty(self) -> bool:
        """Whether the view is where it has to be. It stays so with the writer's lock."""
        return self._head is None

    def begin(self, head: Head) -> None:
        """Have the view follow to a head; called with the writer's lock."""
        with self._lock:
            self._put(head)

    def extend(self, head: Head) -> bool:
        """The same if something is left to do; False, and nothing done, otherwise."""
        with self._lock:
            if self._head is None:
                return False
            self._put(head)
            return True

    def _put(self, head: Head) -> None:
        self._head = head
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="trails-follow", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        self._ended.wait(_DELAY)
        work = WorkInProgress(is_long=True)
        try:
            while self._try():
                pass
        finally:
            work.end()
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _try(self) -> bool:
        """Do what is left; whether there is more by now."""
        done = False
        try:
            done = self.complete()
        except TrailsError as error:
            self._progress(f"the {self._view} could not be brought up yet: {error.message}")
        with self._lock:
            self._failed = not done
            if done and self._head is not None:
                return True
            self._thread = None  # the next head gets another one
            return False

    def complete(self) -> bool:
        """Bring the view to the head now; False if it has to be repaired first."""
        if self._head is None:
            return True
        with self._working:
            while (head := self._head) is not None:
                if not self._follow(head):
                    return False
                with self._lock:
                    if self._head is head:
                        self._head, self._failed = None, False
        return True

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Do the work in another way; called with the writer's lock."""
        with self._working:
            yield
            with self._lock:
                self._head, self._failed = None, False

    def end(self) -> None:
        """Let the thread finish, because the view is about to be closed."""
        with self._lock:
            self._ended.set()
            thread = self._thread
        if thread is not None:
            thread.join()


def head_at(commit: Commit) -> Head:
    """The head of a branch whose last commit this is."""
    return Head(commit.id, commit.seq, commit.schema)
