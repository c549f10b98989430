"""Embedder: calls the function of a project that makes vectors of texts.

It is somebody's code, so it runs in threads of its own, at most a few at a time, and has a time
limit. A thread can't be stopped: one that does not return counts until it does. What it returns is
checked. Its exceptions are logged, and callers get their kind only.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from time import monotonic
from typing import Final

from trails.errors import BusyError, EmbeddingError, TrailsError
from trails.model.texts import count

logger = logging.getLogger(__name__)

Embed = Callable[[list[str]], Iterable[Iterable[float]]]
"""Texts to vectors, one for each, in the same order."""
SECONDS: Final = 30.0
_CALLS: Final = 4
"""Calls at the same time."""
_WAITING: Final = 12
"""Calls that wait for one of these; more are refused, so that others find a thread."""
_KEPT: Final = 256
"""Texts whose vectors are kept: the pages of a search ask for the same one."""


class _Call:
    """One call, in a thread of its own."""

    def __init__(self, embed: Embed, texts: list[str], ended: Callable[[], None]) -> None:
        self.done = threading.Event()
        self.vectors: list[array[float]] = []
        self.problem = ""
        self._embed = embed
        self._texts = texts
        self._ended = ended
        # A program that ends does not wait for it.
        threading.Thread(target=self._run, name="trails-embedding", daemon=True).start()

    def _run(self) -> None:
        try:
            self.vectors = [array("d", each) for each in self._embed(list(self._texts))]
            self.problem = self._check()
        except TrailsError as error:
            self.problem = f"failed: {error.message}"
        except BaseException as error:
            logger.exception(
                "the function for embeddings failed", extra={"event": "embedding.failed"}
            )
            self.problem = f"failed ({type(error).__name__}); details are in the log"
        finally:
            self._ended()
            self.done.set()

    def _check(self) -> str:
        """What is wrong with the vectors; empty if nothing is."""
        asked, found = len(self._texts), len(self.vectors)
        if asked != found:
            return f"gave {count(found, 'vector')} for {count(asked, 'text')}"
        if not all(all(map(isfinite, each)) for each in self.vectors):
            return "gave a vector with NaN or infinity"
        return ""


class Embedder:
    """The function of one graph, as it was named in the settings."""

    def __init__(self, name: str, embed: Embed, seconds: float = SECONDS) -> None:
        self.name: Final = name
        self._embed = embed
        self._seconds = seconds
        self._free = threading.Condition()
        self._running = 0
        self._waiting = 0
        self._kept: OrderedDict[str, array[float]] = OrderedDict()

    def query(self, text: str) -> Sequence[float]:
        """The vector of a text to search for; the same one each time, while it is kept."""
        with self._free:
            found = self._kept.pop(text, None)
            if found is not None:
                self._kept[text] = found
                return found
        (found,) = self.embed([text])
        with self._free:
            # Another call may have had the same text: all use the vector of the first.
            found = self._kept.setdefault(text, found)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found

    def embed(self, texts: Iterable[str]) -> list[array[float]]:
        """The vectors of some texts, of finite numbers."""
        wanted = list(texts)
        if not all(isinstance(each, str) for each in wanted):
            raise EmbeddingError("embed takes a list of texts")
        if not wanted:
            return []
        deadline = monotonic() + self._seconds
        self._begin(deadline)
        try:
            call = _Call(self._embed, wanted, self._end)
        except BaseException:
            self._end()
            raise
        if not call.done.wait(max(0.0, deadline - monotonic())):
            limit = f"{self._seconds:g} seconds ([graphs.<id>.embeddings] seconds)"
            raise self._failed(f"did not return within {limit}")
        if call.problem:
            raise self._failed(call.problem)
        return call.vectors

    def _begin(self, deadline: float) -> None:
        with self._free:
            if self._running >= _CALLS and self._waiting >= _WAITING:
                raise self._busy()
            self._waiting += 1
            try:
                while self._running >= _CALLS:
                    if not self._free.wait(deadline - monotonic()):
                        raise self._busy()
            finally:
                self._waiting -= 1
            self._running += 1

    def _end(self) -> None:
        with self._free:
            self._running -= 1
            self._free.notify()

    def _busy(self) -> BusyError:
        return BusyError(
            f"the function for embeddings ({self.name}) is busy with {_CALLS} other calls; try "
            "again, or search without a text for near"
        )

    def _failed(self, why: str) -> EmbeddingError:
        return EmbeddingError(f"the function for embeddings ({self.name}) {why}")
