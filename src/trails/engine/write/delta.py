"""The statements that a write removes and adds, on their way into the log and the views.

``WriteDelta`` streams them into the log's payload. If there are many, it also loads them next to
main's store while the rest of the write is still being checked. ``land`` brings the views of the
branch to a commit; the log already has it, so an error there only means that a view lags behind.
"""

from __future__ import annotations

from collections.abc import Iterable

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.errors import StorageError
from trails.log.payloads import Payload, PayloadWriter
from trails.model.history import Commit
from trails.model.nodes import NodeState
from trails.views.quads.staging import StagedLoad
from trails.views.quads.view import BULK
from trails.views.terms import Terms


class WriteDelta:
    """The statements of one write."""

    def __init__(self, graph: Graph, checkout: Checkout) -> None:
        self._graph = graph
        self._checkout = checkout
        self._payload: PayloadWriter | None = None
        self._former: Terms | None = None
        self._unstaged: list[tuple[bytes, bytes, int]] = []
        self.staged: StagedLoad | None = None
        """The load next to main's store, if any."""

    def change_types(self, former: Terms) -> None:
        """Note that the schema changed; ``former`` reads the values from before."""
        self._former = former

    def write(
        self, changes: Iterable[tuple[NodeState | None, NodeState | None]]
    ) -> tuple[bytes, bytes, int]:
        """Add the difference between states; return (removed, added, count)."""
        removed: list[str] = []
        added: list[str] = []
        for before, after in changes:
            lost, won = self._checkout.terms.difference(before, after, self._former)
            removed += lost
            added += won
        payload = self._writer()
        gone, come = "".join(removed).encode(), "".join(added).encode()
        for part, text, count in (
            (payload.removed, gone, len(removed)),
            (payload.added, come, len(added)),
        ):
            if count:
                part.write(text, count)
        return gone, come, len(removed) + len(added)

    def stream(self, changes: Iterable[tuple[NodeState | None, NodeState | None]]) -> None:
        """Add the difference between states, of which many more may follow."""
        self._stage(*self.write(changes))

    def write_raw(self, removed: bytes, added: bytes, counts: tuple[int, int]) -> None:
        """Add raw statements."""
        payload = self._writer()
        payload.removed.write(removed, counts[0])
        payload.added.write(added, counts[1])

    def _writer(self) -> PayloadWriter:
        if self._payload is None:
            self._payload = self._graph.log.new_payload()
        return self._payload

    def _stage(self, removed: bytes, added: bytes, count: int) -> None:
        """Start to load a large commit while the rest of it is being checked."""
        if self.staged is None:
            self._unstaged.append((removed, added, count))
            if sum(each[2] for each in self._unstaged) <= BULK:
                return
            if self._checkout is self._graph.main:
                self.staged = self._graph.stores.main().stage()
            if self.staged is None:
                self._unstaged.clear()
                return
            for earlier in self._unstaged[:-1]:
                self.staged.feed(earlier[0], earlier[1])
            self._unstaged.clear()
        self.staged.feed(removed, added)

    def seal(self) -> Payload:
        """Close the delta and return the payload for the log."""
        return self._writer().seal()

    def finish_load(self, payload: Payload) -> None:
        """Wait for the load, if any; readers do not see it yet."""
        if self.staged is not None:
            self._graph.file.put_waiting()  # while the rest of the statements is being loaded
            self._graph.stores.finish(self.staged, payload)

    def discard(self) -> None:
        """Drop the payload and the load."""
        if self._payload is not None:
            self._payload.discard()
        if self.staged is not None:
            self.staged.discard()


def land(
    graph: Graph, checkout: Checkout, commit: Commit, payload: Payload, staged: StagedLoad | None
) -> None:
    """Apply a commit to the views, one after the other."""
    step = graph.on_step
    try:
        step("after_append")
        for place, view in enumerate(graph.views):
            if place:
                step("mid_apply")
            view.land(checkout, commit, payload)
    except StorageError as error:
        graph.file.rollback()
        try:
            graph.catch_up()  # the cause may be gone; only reopening shows it
        except StorageError:
            raise _landed(error, commit) from error
    finally:
        graph.file.rollback()
        if staged is not None:
            staged.discard()  # a no-op after the swap
    step("after_apply")


def _landed(error: StorageError, commit: Commit) -> StorageError:
    """The error for a commit that is in the log and missing in a view."""
    return type(error)(
        f"commit {commit.id} was written, but a view could not be updated: {error.message}. "
        "Views catch up automatically; do not repeat the write",
        commit=commit.id,
    )
