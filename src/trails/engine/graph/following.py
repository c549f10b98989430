"""Following: the thread that brings the views of a graph to what other servers write.

The log wakes it. While this server writes, it does not wait for its turn: each turn begins with
the same work. What goes wrong is tried again when the log wakes it next.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from trails.errors import BehindError, TrailsError, TransactionError
from trails.model.results import ReadOnly

if TYPE_CHECKING:
    from trails.engine.graph.graph import Graph

_PAUSE: Final = 0.01
"""Seconds between two attempts while this server writes."""
_logger: Final = logging.getLogger("trails")


class Follower:
    """Follows the log of one graph until it is closed; idle where nobody else writes it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._woken = threading.Event()
        self._closed = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._problem = ""
        graph.log.follow(self._wake)

    def _wake(self) -> None:
        with self._starting:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="trails-follow", daemon=True)
                self._thread.start()
        self._woken.set()

    def _run(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            while not self._closed.is_set() and not self._try():
                self._closed.wait(_PAUSE)
            if self._closed.is_set():
                return

    def _try(self) -> bool:
        """Follow once; False if this server is writing."""
        try:
            self._graph.follow(timeout=0)
        except TransactionError:
            return False
        except BehindError as error:
            self._graph.read_only = ReadOnly("behind", error.message)
            self._report(error)
        except TrailsError as error:
            self._report(error)
        else:
            self._problem = ""
        return True

    def _report(self, error: TrailsError) -> None:
        """Log why the views lag; the same reason once."""
        if error.message != self._problem:
            self._problem = error.message
            _logger.warning(
                "graph %s does not follow its log: %s",
                self._graph.name,
                error,
                extra={"event": "log.unfollowed"},
            )

    def close(self) -> None:
        """End the thread; called before the log and the views are closed."""
        self._closed.set()
        self._woken.set()
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.join()
