"""Group commit: writes that are checked one after the other and become durable with one sync.

A write is checked with the writer's lock, in the open transaction of the node index. If other
writers wait then, it leaves the transaction open and hands the lock on; the next one is checked on
top of it. The last of them, or the one that fills the group, appends all commits in one transaction
of the log, commits the node index, brings the other views up, and wakes the others. Nobody waits
for company: a writer that nobody waits for appends at once.

Each write is a commit of its own. One that is refused takes back its own part of the transaction,
and is answered when those before it are durable, because they may be why. If they can't be
appended, all of them fail, and readers have seen none.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from trails.engine.graph.checkouts import Checkout
from trails.errors import StorageError, TrailsError, TransactionError
from trails.log.append import Turn
from trails.log.protocol import LogEntry
from trails.model.history import Commit

if TYPE_CHECKING:
    from trails.engine.graph.graph import Graph

_MOST: Final = 64
"""Writes of a group."""
_BYTES: Final = 4 << 20
"""Bytes of statements in a group, from which it takes no more."""
_SECONDS: Final = 0.02
"""For how long the first write of a group may wait for others to be checked."""


class GroupedWrite(Protocol):
    """A write that is checked. The methods are called with the writer's lock, but ``publish``."""

    @property
    def checkout(self) -> Checkout:
        """The branch that is written."""

    @property
    def alone(self) -> bool:
        """Whether no other write may follow it in its group."""

    def become_durable(self, commit: Commit) -> None:
        """The log has its commit."""

    def settle(self) -> None:
        """The views have it, or will."""

    def fail(self) -> None:
        """It could not be appended; its changes are taken back."""

    def publish(self) -> None:
        """Tell others about it."""


class Ticket:
    """The place of a write in a group."""

    __slots__ = ("_gate", "entry", "error", "write")

    def __init__(self, write: GroupedWrite, entry: LogEntry) -> None:
        self.write = write
        self.entry = entry
        self.error: BaseException | None = None
        self._gate = threading.Lock()  # an Event takes ten times as long to make
        self._gate.acquire()

    def end(self) -> None:
        """Let the writer go on; called once."""
        self._gate.release()

    def wait(self) -> None:
        """Wait until the write has ended; called once, raises why it failed."""
        self._gate.acquire()
        if self.error is not None:
            raise self.error


class WriteGroup:
    """The writes that have been checked and are not durable yet. Needs the writer's lock."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._begun = 0.0
        self._bytes = 0
        self._done: threading.Event | None = None
        self._error: BaseException | None = None
        self.turn = Turn(graph.log)
        """Their commits."""
        self.tickets: list[Ticket] = []

    def add(self, write: GroupedWrite, entry: LogEntry) -> Ticket:
        """Take a write whose commit is in the turn."""
        if not self.tickets:
            self._begun = monotonic()
        for part in (entry.payload.removed, entry.payload.added):
            self._bytes += len(part.blob or b"") if part.segment is None else _BYTES
        ticket = Ticket(write, entry)
        self.tickets.append(ticket)
        return ticket

    @property
    def full(self) -> bool:
        """Whether it is to be appended now, whoever waits."""
        return (
            self._graph.file.in_memory
            or len(self.tickets) >= _MOST
            or self._bytes >= _BYTES
            or self.tickets[-1].write.alone
            or monotonic() - self._begun >= _SECONDS
        )

    def land(self) -> None:
        """Append all commits and apply them; what goes wrong is the error of the writes."""
        try:
            self._append()
        except Exception as error:  # noqa: BLE001 - every writer gets it
            self._fail(error)
            return
        except BaseException as error:
            if self._graph.log.commit(self.tickets[0].entry.commit.id) is None:
                self._fail(error)
            else:  # the interrupt came after it: the views follow when they are next used
                self._become_durable()
                self._graph.file.rollback()
            raise
        self._become_durable()
        try:
            self._apply()
        except BaseException as error:
            for each in self.tickets:
                each.error = self._copy(error)
            if not isinstance(error, Exception):
                raise
        finally:
            for each in self.tickets:
                each.write.settle()

    def _append(self) -> None:
        graph = self._graph
        graph.on_step("before_append")
        with graph.activities.taken_along(graph.log) as activities:
            self.turn.append(activities)

    def _become_durable(self) -> None:
        for each in self.tickets:
            each.write.become_durable(each.entry.commit)

    def _fail(self, error: BaseException) -> None:
        """Nothing is written: everything goes back to where it was."""
        self._error = error
        self._graph.file.rollback()
        for each in self.tickets:
            each.error = self._copy(error)
            each.write.fail()

    def _copy(self, error: BaseException) -> BaseException:
        """An error for one of the writers: each raises its own."""
        if len(self.tickets) == 1:
            return error
        if isinstance(error, TrailsError):
            found: TrailsError = type(error)(error.message, **error.data)
        else:
            found = TransactionError(f"the write was interrupted: {error!r}; look before you retry")
        found.__cause__ = error
        return found

    def _apply(self) -> None:
        """Apply the commits to the views, one view after the other."""
        graph, step = self._graph, self._graph.on_step
        commits = [
            (each.write.checkout, each.entry.commit, each.entry.payload) for each in self.tickets
        ]
        try:
            step("after_append")
            for place, view in enumerate(graph.views):
                if place:
                    step("mid_apply")
                view.land(commits)
        except StorageError as error:
            graph.file.rollback()
            try:
                graph.catch_up()  # the cause may be gone; only reopening shows it
            except StorageError:
                for each in self.tickets:
                    each.error = lagging(error, each.entry.commit)
                return
        finally:
            graph.file.rollback()
        step("after_apply")
        for checkout in dict.fromkeys(each.write.checkout for each in self.tickets):
            checkout.head = graph.log_head(checkout.name)

    def publish(self) -> None:
        """Tell others about the commits, in their order, and let the writers go on."""
        for each in self.tickets:
            try:
                if each.error is None:
                    each.write.publish()
            except Exception as error:  # noqa: BLE001 - its writer gets it
                each.error = error
            finally:
                each.end()
        if self._done is not None:
            self._done.set()

    def follow(self) -> bool:
        """Whether there are writes before the next one, which can ``wait`` for them then."""
        if self.tickets and self._done is None:
            self._done = threading.Event()
        return bool(self.tickets)

    def wait(self) -> None:
        """Wait for the writes before one that was refused; raises why they failed."""
        if self._done is not None:
            self._done.wait()
        if self._error is not None:
            raise self._copy(self._error)


def lagging(error: StorageError, commit: Commit) -> StorageError:
    """The error for a commit that is in the log and missing in a view."""
    return type(error)(
        f"commit {commit.id} was written, but a view could not be updated: {error.message}. "
        "Views catch up automatically; do not repeat the write",
        commit=commit.id,
    )
