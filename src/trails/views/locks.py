"""ReadWriteLock: many readers at a time, or one thread that replaces what they read.

A view's files can be closed, removed and made anew while other threads read; they must not find
them half gone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """A lock that readers share. Both sides may be entered again by the thread that is in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._waiting = 0
        self._replacer: int | None = None
        self._mine = threading.local()

    @property
    def taken(self) -> bool:
        """Whether a thread reads at this moment."""
        return self._readers > 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Read: nothing is replaced meanwhile."""
        if self._inside():
            yield
            return
        with self._changed:
            # Replacing goes first, or a stream of readers would keep it out for ever.
            self._changed.wait_for(lambda: self._replacer is None and not self._waiting)
            self._readers += 1
        self._mine.reading = True
        try:
            yield
        finally:
            self._mine.reading = False
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Replace: no one reads meanwhile. Not to be entered by a thread that reads."""
        if self._replacer == threading.get_ident():
            yield
            return
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._replacer is None and not self._readers)
            finally:
                self._waiting -= 1
            self._replacer = threading.get_ident()
        try:
            yield
        finally:
            with self._changed:
                self._replacer = None
                self._changed.notify_all()

    def _inside(self) -> bool:
        return getattr(self._mine, "reading", False) or self._replacer == threading.get_ident()
