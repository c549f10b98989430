"""The slow-query log: SPARQL, searches and lists of nodes that take long, one line each.

A line names the call that it was for. The text of a query is what a caller sent, so it is quoted
only if the settings permit that.
"""

from __future__ import annotations

import logging
from sys import maxsize
from time import perf_counter_ns
from typing import Final, Literal

from trails.errors import TrailsError
from trails.model.origins import CURRENT_CALL

QueryKind = Literal["sparql", "update", "search", "nodes"]
_LONGEST: Final = 2_000
"""Characters of a text that are quoted."""
_logger: Final = logging.getLogger("trails")


class SlowQueries:
    """The slow-query log of one graph; it logs nothing until it gets a threshold."""

    __slots__ = ("count", "texts", "threshold")

    def __init__(self) -> None:
        self.threshold = maxsize
        """Nanoseconds from which a query is slow."""
        self.texts = False
        """Whether texts are quoted."""
        self.count = 0
        """Slow queries so far."""

    def watch(self, kind: QueryKind, branch: str, text: object) -> QueryTimer:
        """Time a query, in a ``with`` block; ``text`` is spelled out if it is to be quoted."""
        return QueryTimer(self, kind, branch, text)


class QueryTimer:
    """Times one query; one that fails counts too."""

    __slots__ = ("_branch", "_kind", "_log", "_started", "_text")

    def __init__(self, log: SlowQueries, kind: QueryKind, branch: str, text: object) -> None:
        self._log = log
        self._kind = kind
        self._branch = branch
        self._text = text

    def __enter__(self) -> None:
        self._started = perf_counter_ns()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        taken = perf_counter_ns() - self._started
        if taken >= self._log.threshold:
            self._report(taken, error)

    def _report(self, nanoseconds: int, error: BaseException | None) -> None:
        log = self._log
        log.count += 1
        outcome = "ok"
        if error is not None:
            outcome = error.code if isinstance(error, TrailsError) else "error"
        milliseconds = round(nanoseconds / 1e6, 1)
        facts: dict[str, object] = {
            "event": "query.slow",
            "kind": self._kind,
            "branch": self._branch,
            "outcome": outcome,
            "milliseconds": milliseconds,
        }
        if log.texts:
            facts["text"] = str(self._text)[:_LONGEST]
        found = CURRENT_CALL.get()
        _logger.warning(
            "slow %s on %s: %s after %s ms%s%s",
            self._kind,
            self._branch,
            outcome,
            milliseconds,
            "" if found is None else f" ({found[1].name} of {found[1].actor} on {found[0]})",
            f": {facts['text']}" if log.texts else "",
            extra=facts,
        )
