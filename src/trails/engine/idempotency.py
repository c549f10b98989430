"""The idempotency key of one write: what came of an earlier try, and what to keep of this one."""

from __future__ import annotations

from collections.abc import Mapping

from trails.engine.graph import Graph, now
from trails.model.idempotency import KeyedOutcome, RequestDigest, check_request, expiry


class IdempotencyKey:
    """A key of an actor on a branch, and the request that it stands for."""

    def __init__(self, graph: Graph, branch: str, actor: str, key: str) -> None:
        self._graph = graph
        self._branch = branch
        self._actor = actor
        self._key = key
        self.request = RequestDigest()
        """What is asked for."""
        self.complete = True
        """Whether all of that is known when the write begins, and not only when it ends."""

    def find(self) -> KeyedOutcome | None:
        """What came of the first try, whatever it asked for."""
        return self._graph.log.keyed(self._branch, self._actor, self._key, now())

    def check(self, found: KeyedOutcome) -> None:
        """Refuse a key that was used for another request."""
        check_request(found, self.request.hex())

    def outcome(self, result: Mapping[str, object], commit: str | None = None) -> KeyedOutcome:
        """What to keep of this try."""
        return KeyedOutcome(
            self._branch,
            self._actor,
            self._key,
            self.request.hex(),
            expiry(now(), self._graph.keep_keys_days),
            commit,
            result,
        )

    def keep(self, result: Mapping[str, object], commit: str | None = None) -> None:
        """Keep the outcome of a write that left the branch where it was."""
        self._graph.log.remember(self.outcome(result, commit), now())
