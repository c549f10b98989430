"""One write: from the writer's lock to one commit, or to nothing.

``Write`` validates, appends to the log, updates the views and publishes the change.
``IdempotencyKey`` finds the outcome of an earlier attempt and keeps that of this one. ``Opening``
and ``Opened`` are how callers hold a write open for a block of code. ``land`` appends what was
written to a draft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from time import monotonic
from typing import Protocol

import msgspec

from trails.authoring.nodes import WriteOutcome
from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.declarations import UNCHANGED, PendingDeclarations, prepare_declarations
from trails.engine.graph.drafts import DraftGraph
from trails.engine.graph.feed import BranchChange, ChangeIndex
from trails.engine.graph.graph import Graph, now
from trails.engine.graph.groups import WriteGroup, lagging
from trails.engine.validation.blob_names import BlobNames
from trails.engine.visibility.access import (
    OPEN,
    Access,
    WriteGuard,
    check_change,
    check_credential,
    check_wanted,
    check_write_time,
    guard_of,
    most_seconds,
)
from trails.engine.write.pending import ChangeReport, PendingNodes, WriteDelta
from trails.errors import FieldError, LimitError, StorageError, TransactionError, ValidationError
from trails.log.protocol import head_moved
from trails.model.history import GENESIS, Commit, CommitDraft, MigrationMark, Move, Rename
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome, RequestDigest, check_request, expiry


class IdempotencyKey:
    """A key of an actor on a branch, with the request that it identifies."""

    def __init__(self, graph: Graph, branch: str, actor: str, key: str) -> None:
        self._graph = graph
        self._branch = branch
        self._actor = actor
        self._key = key
        self.request = RequestDigest()
        """The digest of the request."""
        self.complete = True
        """Whether the whole request is known when the write begins, not only when it ends."""

    def find(self) -> KeyedOutcome | None:
        """The outcome of the first attempt with this key, for any request."""
        return self._graph.log.keyed(self._branch, self._actor, self._key, now())

    def check(self, found: KeyedOutcome) -> None:
        """Refuse a key that was used for a different request."""
        check_request(found, self.request.hex())

    def outcome(self, result: Mapping[str, object], commit: str | None = None) -> KeyedOutcome:
        """The outcome of this attempt."""
        return KeyedOutcome(
            self._branch,
            self._actor,
            self._key,
            self.request.hex(),
            expiry(now(), self._graph.keep_keys_days),
            commit,
            result,
        )

    def is_pending(self, group: WriteGroup) -> bool:
        """Whether a write with this key is not durable yet."""
        return group.turn.has_key(self._branch, self._actor, self._key)

    def keep(self, result: Mapping[str, object], commit: str | None = None) -> None:
        """Keep the outcome of a write that did not move the branch."""
        self._graph.log.remember(self.outcome(result, commit), now())


class Write:
    """One write in progress. Holds the writer's lock from ``begin`` to the end."""

    nodes: PendingNodes
    """The nodes of the write; available after ``begin``."""
    _group: WriteGroup
    _made: Commit

    def __init__(
        self,
        graph: Graph,
        checkout: Checkout,
        *,
        actor: str,
        message: str = "",
        call: CallRecord | None = None,
        expected_head: str | None = None,
        key: IdempotencyKey | None = None,
        access: Access = OPEN,
    ) -> None:
        """``call`` is the request that the write belongs to."""
        if checkout.fixed:
            raise TransactionError(
                f"snapshots are read-only; create a branch from commit {checkout.name[1:]} to write"
            )
        check_change(access, checkout.name)
        self._graph = graph
        self._checkout = checkout
        self._access = access
        self._call = call
        self._merged: str | None = None
        self._draft = CommitDraft(
            branch=checkout.name,
            actor=actor,
            time="",
            schema="",
            message=message,
            activity=None if call is None else call.id,
        )
        self.quick = False
        """Whether nothing but Trails runs from ``begin`` to ``finish``.

        Writes that are not durable yet can wait for such a write.
        """
        self._follows = False
        self._pending: PendingDeclarations = UNCHANGED
        self._blobs_named: frozenset[str] = frozenset()
        self.key = key
        self.declared = False
        """Whether its types come from the declarations, which then need no change."""
        self.result: Mapping[str, object] = {}
        """What a retry with the same key returns in addition to the commit."""
        self._former_schema: Schema | None = None
        self._expected = expected_head
        self._stack = ExitStack()
        self._delta = WriteDelta(graph, checkout)
        self._blobs = BlobNames(graph.blobs, actor, trusted=access.unrestricted)
        self.outcome = WriteOutcome()
        self.replayed: KeyedOutcome | None = None
        """The outcome of an earlier write with this key; if set, nothing is written."""

    @property
    def checkout(self) -> Checkout:
        """The branch that is written."""
        return self._checkout

    def begin(self) -> None:
        """Take the lock, check the expected head, open the index's transaction."""
        graph, checkout = self._graph, self._checkout
        check_write_time(graph, self._call)
        self._stack.enter_context(graph.appending(self._draft.actor, joins=self.quick))
        self._begun = monotonic()
        try:
            group = self._join(graph.group())
            head = group.turn.head(checkout.name) or graph.log_head(checkout.name)
            if self.key is not None:
                self.replayed = self.key.find()
                if self.replayed is not None and self.key.complete:
                    self.key.check(self.replayed)
            if self._expected not in {None, head.commit} and self.replayed is None:
                raise head_moved(checkout.name, str(self._expected), head.commit)  # noqa: TRY301
            self._head = head
            self._draft = msgspec.structs.replace(
                self._draft, time=now(), schema=checkout.schema.digest
            )
            guard = self._guard()
            seq = group.turn.next_seq
            self._changes = ChangeReport(graph, checkout)
            graph.file.begin()
        except BaseException:
            self._leave()
            raise
        self.nodes = PendingNodes(
            checkout,
            graph.file.db,
            seq,
            guard=guard,
            delta=self._delta,
            changes=self._changes,
            go_on=self._go_on,
            blobs=self._blobs,
        )

    def _join(self, group: WriteGroup) -> WriteGroup:
        """Follow the writes that are not durable yet, or make them durable and begin alone."""
        graph, checkout = self._graph, self._checkout
        if group.tickets and (
            not graph.is_prepared(checkout) or (self.key is not None and self.key.is_pending(group))
        ):
            graph.end_group()
            graph.take_turn()
            group = graph.group()
        if not group.tickets:
            graph.prepare(checkout)
        self._group, self._follows = group, group.follow()
        return group

    def _leave(self) -> None:
        """Give the lock back; wait for the writes before this one, which may be why it ends."""
        self._stack.close()
        if self._follows:
            self._group.wait()

    def _go_on(self) -> None:
        """Stop a write whose caller has left, or that blocks other writers for too long."""
        check_wanted(self._call)
        most = most_seconds(self._graph, self._call)
        if most and monotonic() - self._begun > most:
            raise LimitError(
                f"this write blocked other writers for more than {most:g} s, the limit; nothing "
                "was written. Split it, or raise "
                f"'[graphs.{self._graph.name}.budgets] write_seconds' in trails.toml",
                limit="write_seconds",
                value=most,
            )

    def _guard(self) -> WriteGuard | None:
        """The guard of the actor for the current types."""
        return guard_of(self._access, self._checkout.name, self._checkout.compiled)

    def change_schema(self, schema: Schema) -> None:
        """Change the types with this commit; call it before any other change."""
        checkout = self._checkout
        self._changes.add_everything()
        self._former_schema = checkout.schema
        self._delta.change_types(checkout.terms)
        checkout.nodes.adopt(schema)
        checkout.use(self._graph.compile(schema))
        self._draft = msgspec.structs.replace(self._draft, schema=schema.digest)
        self.nodes.use(self._guard())

    def describe(self, message: str) -> None:
        """Give the commit a message."""
        self._draft = msgspec.structs.replace(self._draft, message=message)

    def record_renames(self, renames: tuple[Rename, ...]) -> None:
        """Record with the commit what its change of types renames."""
        self._draft = msgspec.structs.replace(self._draft, renames=renames)

    def merge_of(self, commit: str) -> None:
        """Give the commit a second parent, whose blobs may be named."""
        self._merged = commit
        self._blobs.trusted = True

    def mark(self, migration: MigrationMark) -> None:
        """Record a migration with the commit, which is made even if nothing else changes."""
        self._draft = msgspec.structs.replace(self._draft, migration=migration)

    def finish(self) -> Commit | None:
        """Validate, append, apply; return the commit, or None if nothing changed."""
        try:
            if self.replayed is not None:
                return self._replay(self.replayed)
            self.nodes.check_whole()
            errors: list[FieldError] = []
            self.nodes.rules.settle(errors)
            if errors:
                raise ValidationError(errors)  # noqa: TRY301
            self.nodes.write_edits()
        except BaseException:
            self.abandon()
            raise
        return self._commit()

    def _replay(self, first: KeyedOutcome) -> Commit | None:
        """End without a change; return the commit of the first write with this key, if any."""
        if self.key is not None:
            self.key.check(first)
        self._undo()
        self.outcome.landed = True
        return None if first.commit is None else self._graph.ancestry.commit(first.commit)

    def _commit(self) -> Commit | None:
        graph, checkout, delta, group = self._graph, self._checkout, self._delta, self._group
        try:
            payload = delta.seal()
            same_schema = self._draft.schema == self._head.schema
            recorded = self._merged is not None or self._draft.migration is not None
            if payload.empty and same_schema and not recorded:
                if self.key is not None:
                    self._keep_key(self.key)
                self._undo()
                self.outcome.landed = True
                return None
            delta.finish_load(payload)
            check_credential(graph, self._call)
            self._blobs_named = frozenset(self.nodes.rules.named_blobs())
            graph.keep_blobs(self._blobs_named)
            if not self.declared:
                self._pending = prepare_declarations(
                    graph.declarations,
                    checkout,
                    self._head,
                    checkout.schema,
                    self._draft.renames,
                )
            keyed = None if self.key is None else self.key.outcome(self.result)
            call = None if self._call is None else self._call.describe
            graph.file.keep()
            entry = group.turn.add(self._draft, payload, checkout.schema, self._merged, keyed, call)
        except BaseException:
            try:
                self._pending.settle()
            finally:
                self.abandon()
            raise
        with self._stack:
            ticket = group.add(self, entry)
        ticket.wait()
        self._pending.publish()
        graph.on_step("before_acknowledge")
        return entry.commit

    def _keep_key(self, key: IdempotencyKey) -> None:
        """Keep that nothing was to be changed, when the writes before this one are durable."""
        self._graph.file.undo()
        self._graph.end_group()
        if self._follows:
            self._group.wait()
        key.keep(self.result)

    # --- in a group of writes ------------------------------------------------------------

    @property
    def alone(self) -> bool:
        """Whether no other write may follow before this one is durable."""
        changes_types = self._former_schema is not None or self._pending is not UNCHANGED
        return changes_types or self._merged is not None or self._delta.staged is not None

    def become_durable(self, commit: Commit) -> None:
        """The log has the commit; what goes wrong now only means that a view lags behind."""
        self.outcome.landed = True
        if self._call is not None:
            self._call.generate(commit.id, recorded=not isinstance(self._graph, DraftGraph))
        self._graph.blobs_committed(self._blobs_named)
        self._made = commit

    def settle(self) -> None:
        """The views have the commit, or will."""
        try:
            if self._delta.staged is not None:
                self._delta.staged.discard()  # a no-op after the swap
        finally:
            self._pending.settle()

    def fail(self) -> None:
        """The log has refused the commit."""
        try:
            self._pending.settle()
        finally:
            self.outcome.landed = False
            self._delta.discard()
            self._restore_types()

    def publish(self) -> None:
        """Tell the feed about the commit."""
        self._changes.publish(self.nodes.edits, self._head.commit, self._made.id)

    # --- ending without a commit ---------------------------------------------------------

    def abandon(self) -> None:
        """Roll back, unless the write has committed."""
        if self.outcome.landed is None:
            self.outcome.landed = False
            self._undo()

    def _undo(self) -> None:
        try:
            self._delta.discard()
        finally:
            try:
                self._graph.file.undo()
                self._restore_types()
            finally:
                self._leave()

    def _restore_types(self) -> None:
        if self._former_schema is not None:
            self._checkout.use(self._graph.compile(self._former_schema))


class OutdatedError(Exception):
    """The branch moved after the work outside the lock; the write is rolled back."""


def land(
    draft: DraftGraph,
    *,
    actor: str,
    call: CallRecord | None = None,
    keyed: KeyedOutcome | None = None,
    check: Callable[[], None] = lambda: None,
) -> Commit | None:
    """Append what a draft holds to the log of its graph, all or nothing; return the last commit.

    A branch that the graph does not have is created with it. ``check`` is called with the writer's
    lock. OutdatedError says that the branch moved since the draft began.
    """
    graph, branch = draft.base, draft.branch
    draft.let_go()
    checkout = None if draft.creates else graph.checkout(branch)
    with graph.appending(actor):
        graph.check_writable()
        check_credential(graph, call)
        if not draft.log.entries:
            if keyed is not None:
                graph.log.remember(keyed, now())
            return None
        check()
        move = None
        if checkout is None:
            move = Move(branch, "create", draft.start.commit, GENESIS, actor, now())
        elif graph.log_head(branch).commit != draft.start.commit:
            raise OutdatedError
        entries = list(draft.renumbered(graph.log.last_seq()))
        graph.keep_blobs(draft.named_blobs)
        for each in entries:
            graph.log.adopt(each.payload, draft.log.folder)
        graph.on_step("before_append")
        made_by = None if call is None else call.describe()
        entries[-1] = msgspec.structs.replace(entries[-1], keyed=keyed, call=made_by)
        graph.log.insert_all(entries, move=move)
        # The commits are durable from here on; an error below only means that a view lags behind.
        if call is not None:
            call.recorded = True
        graph.blobs_committed(draft.named_blobs)
        graph.on_step("after_append")
        if move is not None and graph.branch_makers is not None:
            graph.branch_makers[branch] = actor
        try:
            if checkout is None:
                graph.add_branch(branch, None)
            else:
                graph.bring_to_head(checkout)
        except StorageError as error:
            raise lagging(error, entries[-1].commit) from error
        graph.on_step("after_apply")
    if move is not None:
        schema = entries[-1].commit.schema
        graph.feed.publish(BranchChange(branch, index=ChangeIndex(), schema_change=(None, schema)))
    graph.on_step("before_acknowledge")
    return entries[-1].commit


class Opened:
    """A write in progress and, once its block has ended, its commit."""

    __slots__ = ("commit", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.commit: Commit | None = None

    @property
    def commit_id(self) -> str | None:
        """The id of its commit, if any."""
        return None if self.commit is None else self.commit.id

    @property
    def replayed(self) -> bool:
        """Whether the idempotency key matched an earlier write, so that nothing is written."""
        return self.write.replayed is not None

    @property
    def result(self) -> Mapping[str, object]:
        """The result in addition to the commit; for a replay, the original one."""
        replayed = self.write.replayed
        return self.write.result if replayed is None else replayed.result

    def answer(self, result: Mapping[str, object]) -> None:
        """Set the result in JSON form, which a retry returns again."""
        self.write.result = result


class Opening(Protocol):
    """Takes the writer's lock on one branch, for one actor, with a message and a key.

    The block commits at its end and rolls back on an error. The key identifies ``request``.
    """

    def __call__(self, *, request: object = None) -> AbstractContextManager[Opened]:
        """Begin."""
