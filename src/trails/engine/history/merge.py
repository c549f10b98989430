"""Merge one branch or commit into a branch.

The result is nothing to do, a fast-forward, one commit with two parents, or conflicts. Both sides
are folded from the log since their common commits, so the cost follows what they changed. The
merged nodes take the normal write path; rules that both sides violate together are conflicts too.
``merge_plan`` works out the merged state, ``three_way`` the fields.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.ancestry import Permits
from trails.engine.graph.changes import count_changes, net_changes
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.declarations import UNCHANGED, PendingDeclarations, prepare_declarations
from trails.engine.graph.feed import MANY, BranchChange, ChangeCollector
from trails.engine.graph.graph import Graph, now
from trails.engine.graph.renames import NameHistory
from trails.engine.history.aligned_names import align_sides, rewriting_of
from trails.engine.history.merge_plan import Merging
from trails.engine.schema.rewrite import NodeRewrite, RewriteSpool, ignore_progress
from trails.engine.schema.rule_check import broken_rules
from trails.engine.visibility.access import OPEN, Access, check_forward, check_merge_visibility
from trails.engine.visibility.refs import RefResolver, permitting, reader, snapshot_checkout
from trails.engine.write.edits import KnownNodes, change_types, put_states, stream_states
from trails.engine.write.pending import drafting
from trails.engine.write.write import IdempotencyKey, Write
from trails.errors import ConflictError, TrailsError
from trails.log.protocol import head_moved
from trails.model.history import MergeRequest, MergeResult, Move, Rename
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome

_STATEMENTS: Final = 10 * MANY
"""Beyond this many statements, a move is published without its changed nodes."""


def publish_move(graph: Graph, checkout: Checkout, start: str, end: str) -> None:
    """Publish to the feed that a branch moved from one commit to another."""
    if graph.feed.listened:
        change = _net_change(graph, checkout.name, start, end)
        graph.feed.publish(graph.change_scan.complete(change, checkout, start, end))


def _net_change(graph: Graph, branch: str, start: str, end: str) -> BranchChange:
    try:
        schema = graph.ancestry.schema_at(end)
        path = graph.ancestry.path(start, end)
        length = sum(each.added + each.removed for each in (*path.undo, *path.redo))
        if length > _STATEMENTS or graph.ancestry.schema_at(start) != schema:
            return BranchChange(branch)
        collector = ChangeCollector()
        collector.add(net_changes(graph, path))
        return collector.change(branch, graph.compiled(schema).schema)
    except TrailsError as error:
        # The branch has moved, so its readers must be notified even without the details.
        _logger.warning(
            "can't work out what changed on %s between %s and %s; publishing the move alone: %s",
            branch,
            start,
            end,
            error.message,
            extra={"event": "feed.unreadable"},
        )
        return BranchChange(branch)


_logger: Final = logging.getLogger("trails")
_FROM_REQUEST: Final = frozenset({"source", "target", "commit", "conflicts", "dry_run", "replayed"})
"""Members of a result that a retry knows without the stored outcome."""
_COUNTED: Final = 1_000
"""Statements that a fast-forward reads to count nodes; a dry run reads all of them."""
_PLANS: Final = 4
"""Attempts to plan outside the writer's lock before planning under it."""


def merge(
    graph: Graph,
    asked: MergeRequest,
    *,
    actor: str,
    call: CallRecord | None = None,
    access: Access = OPEN,
) -> MergeResult:
    """Merge a branch or commit into a branch; with conflicts nothing is written.

    The merge is planned outside the writer's lock; the lock is taken to write the plan if the
    target has not moved. After a few attempts it is planned under the lock, so that it ends.
    """
    graph.check_writable()
    task = _Task(graph, asked, actor, call, access)
    if RefResolver(graph, permitting(access, "Change")).has(asked.target):
        first = task.replayed()  # before the source is resolved: it may be deleted by now
        if first is not None:
            return first
    for _ in range(0 if graph.file.in_memory else _PLANS):
        theirs, checkout = task.sides()
        done = task.replayed() or task.try_plan(checkout, theirs)
        if done is not None:
            return done
    theirs, checkout = task.sides()
    return task.run_locked(checkout, theirs)


class _Plan(msgspec.Struct, frozen=True):
    """The result of a merge, and the states that it was planned on."""

    result: MergeResult
    ours: str
    theirs: str
    schema: Schema | None = None
    states: dict[str, NodeState | None] = {}
    renames: tuple[Rename, ...] = ()
    """What the other side renamed, and is renamed with the merge."""
    known: KnownNodes | None = None
    """The nodes that the plan has read, if it left rules between nodes to the write."""


class _UnkeptRuleError(Exception):
    """A merged node violates a rule between nodes, so that there are conflicts."""


class _Task:
    """One merge request of one actor."""

    def __init__(
        self, graph: Graph, asked: MergeRequest, actor: str, call: CallRecord | None, access: Access
    ) -> None:
        self._graph = graph
        self._asked = asked
        self._actor = actor
        self._call = call
        self._access = access
        self._key: IdempotencyKey | None = None
        if asked.idempotency_key is not None and not asked.dry_run:
            self._key = IdempotencyKey(graph, asked.target, actor, asked.idempotency_key)
            settled = [asked.resolutions, asked.resolve_all]
            self._key.request.add(["merge", asked.source, settled, asked.message])

    def sides(self) -> tuple[Checkout, Checkout]:
        """The source and the target; both must be fully visible to the actor."""
        graph, asked, access = self._graph, self._asked, self._access
        readable = RefResolver(graph, reader(access))
        theirs = _checkout_of(graph, readable, asked.source)
        into = _into(access, "" if theirs.fixed else asked.source)
        checkout = RefResolver(graph, into, suggests=reader(access)).checkout(asked.target)
        check_merge_visibility(access, theirs, _branches_of(graph, readable, theirs))
        check_merge_visibility(access, checkout, (checkout.name,))
        return theirs, checkout

    def replayed(self) -> MergeResult | None:
        """The result of an earlier merge with the same idempotency key."""
        key = self._key
        first = None if key is None else key.find()
        if key is None or first is None:
            return None
        key.check(first)
        return _replay(self._asked, first)

    def _keep(self, result: MergeResult) -> MergeResult:
        """Keep the key of a merge without changes; called with the writer's lock."""
        if self._key is not None:
            self._key.keep(_kept(result), result.commit)
        return result

    # --- without the lock ------------------------------------------------------------------

    def try_plan(
        self, checkout: Checkout, theirs: Checkout, *, in_full: bool = False
    ) -> MergeResult | None:
        """Plan and do the merge; None if the target moved in between.

        Rules between nodes are checked as the merge is written, which is enough if all are kept.
        Otherwise it is planned again ``in_full``, to find out what the conflicts are.
        """
        plan = self._plan(checkout, theirs, in_full=in_full)
        if self._asked.dry_run or plan.result.outcome == "conflicts":
            return plan.result
        if plan.result.outcome == "already_up_to_date":
            if self._key is None:
                return plan.result
            with self._graph.appending():
                return self.replayed() or self._keep(plan.result)
        if plan.result.outcome == "fast_forward":
            return self._move(checkout, theirs, plan)
        try:
            return self._write(checkout, plan)
        except _UnkeptRuleError:
            return self.try_plan(checkout, theirs, in_full=True)

    def _plan(self, checkout: Checkout, theirs: Checkout, *, in_full: bool) -> _Plan:
        """Plan the merge on a fixed state of both sides, without blocking writers."""
        graph, asked, access = self._graph, self._asked, self._access
        place = checkout.nodes.position if checkout.nodes.known else None
        with drafting(graph, checkout, access, self._call) as draft:
            other = draft.read(theirs)
            ours_id, theirs_id = draft.checkout.head.commit, other.head.commit
            self._check_expected()
            easy = self._without_commit(draft.checkout, other)
            if easy is not None:
                return _Plan(easy, ours_id, theirs_id)
            aligned = align_sides(graph, draft, other, graph.ancestry.bases(ours_id, theirs_id))
            merging = Merging(graph, draft, other, asked, access, aligned, in_full=in_full)
            found = merging.run()
            if merging.states is not None:
                return _Plan(
                    found,
                    ours_id,
                    theirs_id,
                    states=merging.states,
                    known=KnownNodes(place, merging.stored),
                )
            renames = () if aligned is None else aligned.renames
            return _Plan(found, ours_id, theirs_id, draft.schema, draft.states, renames)

    def _move(self, checkout: Checkout, theirs: Checkout, plan: _Plan) -> MergeResult | None:
        """Fast-forward the target; None if either side moved since the plan."""
        graph = self._graph
        with graph.appending(self._actor):
            graph.prepare(checkout, settled=False)
            moved = graph.log_head(checkout.name).commit != plan.ours
            if moved or not theirs.nodes.known or theirs.nodes.position.commit != plan.theirs:
                return None
            pending = self._forward(checkout, theirs, plan.result)
        pending.publish()
        publish_move(graph, checkout, plan.ours, plan.theirs)
        return plan.result

    def _write(self, checkout: Checkout, plan: _Plan) -> MergeResult | None:
        """Commit a plan; None if the target moved since the plan.

        Raises ``_UnkeptRuleError`` if the nodes violate a rule that the plan did not check.
        """
        write = self._new_write(checkout, plan.ours)
        try:
            write.begin()
        except ConflictError:
            if self._asked.expected_head is not None:
                raise
            return None
        try:
            if write.replayed is None:
                write.merge_of(plan.theirs)
                self._put(write, plan)
                if plan.known is not None and any(write.nodes.rules.violations()):
                    raise _UnkeptRuleError  # noqa: TRY301
        except BaseException:
            write.abandon()
            raise
        return self._finished(write, plan.result, plan.theirs)

    def _put(self, write: Write, plan: _Plan) -> None:
        """Bring the target into the planned state."""
        if plan.renames:
            self._put_renamed(write, plan)
            return
        if plan.schema is not None:
            change_types(write, plan.states, plan.schema)
        if plan.known is not None:
            stream_states(write.nodes, plan.states, plan.known)
        else:
            put_states(write.nodes, plan.states)

    def _put_renamed(self, write: Write, plan: _Plan) -> None:
        """Rename what the other side renamed, and bring the nodes into the merged states."""
        nodes = write.nodes
        rewriting = rewriting_of(self._graph, write.checkout.schema, plan.renames)
        spool = RewriteSpool(self._graph, rewriting.new)
        try:
            rewriting.collect(nodes.index, nodes.db, spool, ignore_progress)
            rewriting.retarget(plan.schema or rewriting.new)

            def rewrites() -> Iterator[NodeRewrite]:
                left = dict(plan.states)
                for handle, after in spool:
                    name = "" if after is None else after.handle
                    yield NodeRewrite(handle, left.pop(name, after))
                for handle, state in left.items():
                    known = nodes.index.exists(nodes.db, handle)
                    if known or state is not None:
                        yield NodeRewrite(handle if known else "", state)

            rewriting.apply(write, rewrites, logged=True)
            write.record_renames(plan.renames)
        finally:
            spool.close()

    # --- under the lock --------------------------------------------------------------------

    def run_locked(self, checkout: Checkout, theirs: Checkout) -> MergeResult:
        """Plan and write under the lock: for a busy target, and for graphs in memory."""
        graph, asked = self._graph, self._asked
        with graph.appending(self._actor):
            graph.prepare(checkout, settled=False)
            replayed = self.replayed()
            if replayed is not None:
                return replayed
            self._check_expected()
            ours_id, theirs_id = checkout.nodes.position.commit, theirs.nodes.position.commit
            easy = self._without_commit(checkout, theirs)
            moves = easy is not None and easy.outcome == "fast_forward" and not asked.dry_run
            pending = UNCHANGED
            if moves and easy is not None:
                pending = self._forward(checkout, theirs, easy)
            elif easy is not None and not asked.dry_run:
                self._keep(easy)
        if easy is not None:
            if moves:
                pending.publish()
                publish_move(graph, checkout, ours_id, theirs_id)
            return easy
        write = self._new_write(checkout, asked.expected_head)
        write.begin()
        if write.replayed is not None:  # by a concurrent retry
            return self._finished(write, _replay(asked, write.replayed), theirs_id)
        try:
            theirs_id = theirs.nodes.position.commit
            if self._renamed(checkout, theirs):
                plan = self._plan(checkout, theirs, in_full=True)
                found, theirs_id = plan.result, plan.theirs
                if found.outcome == "merged" and not asked.dry_run:
                    self._put(write, plan)
            else:
                found = Merging(graph, write, theirs, asked, self._access).run()
        except BaseException:
            write.abandon()
            raise
        if found.conflicts or asked.dry_run:
            write.abandon()
            return found
        return self._finished(write, found, theirs_id)

    def _renamed(self, checkout: Checkout, theirs: Checkout) -> bool:
        """Whether names have to be aligned, for which a draft is needed."""
        graph = self._graph
        ours_id, theirs_id = checkout.nodes.position.commit, theirs.nodes.position.commit
        return not graph.file.in_memory and any(
            NameHistory.between(graph, base, side)
            for base in graph.ancestry.bases(ours_id, theirs_id)
            for side in (ours_id, theirs_id)
        )

    # --- either way ------------------------------------------------------------------------

    def _check_expected(self) -> None:
        target, expected = self._asked.target, self._asked.expected_head
        head = self._graph.log_head(target).commit
        if expected not in {None, head}:
            raise head_moved(target, str(expected), head)

    def _without_commit(self, checkout: Checkout, theirs: Checkout) -> MergeResult | None:
        """The result if no commit is needed, else None."""
        graph, asked = self._graph, self._asked
        source, target, dry_run = asked.source, asked.target, asked.dry_run
        ours_id, theirs_id = checkout.nodes.position.commit, theirs.nodes.position.commit
        if graph.ancestry.is_ancestor(theirs_id, ours_id):
            return MergeResult("already_up_to_date", source, target, ours_id, dry_run=dry_run)
        if not graph.ancestry.is_ancestor(ours_id, theirs_id) or self._breaks_rules(
            checkout, theirs
        ):
            return None
        check_forward(graph, self._access, checkout, theirs)
        result = MergeResult("fast_forward", source, target, theirs_id, dry_run=dry_run)
        created, updated, deleted = self._count(ours_id, theirs_id) or (None, None, None)
        return msgspec.structs.replace(result, created=created, updated=updated, deleted=deleted)

    def _count(self, start: str, end: str) -> tuple[int, int, int] | None:
        """How many nodes differ between two commits; None if that would delay a fast-forward."""
        known = self._graph.net_counts
        counts = known.get((start, end))
        if counts is None:
            path = self._graph.ancestry.path(start, end)
            work = sum(each.added + each.removed for each in (*path.undo, *path.redo))
            if work > _COUNTED and not self._asked.dry_run:
                return None
            counts = known[start, end] = count_changes(net_changes(self._graph, path))
        return counts

    def _breaks_rules(self, checkout: Checkout, theirs: Checkout) -> bool:
        """Whether the source violates a rule that was added between target and source.

        Then a fast-forward is not possible: the violations are conflicts of a merge.
        """
        graph = self._graph
        path = graph.ancestry.path(checkout.nodes.position.commit, theirs.nodes.position.commit)
        met = {checkout.schema.digest, *(each.schema for each in (*path.undo, *path.redo))}
        since = [graph.compiled(each).schema for each in met - {theirs.schema.digest}]
        with theirs.nodes.file.writer() as db:
            return bool(since) and any(broken_rules(theirs.nodes, db, theirs.compiled, since))

    def _forward(
        self, checkout: Checkout, theirs: Checkout, result: MergeResult
    ) -> PendingDeclarations:
        """Move the target to the source's commit; called with the writer's lock."""
        graph = self._graph
        before, theirs_id = graph.log_head(checkout.name), theirs.nodes.position.commit
        move = Move(checkout.name, "fast_forward", theirs_id, before.commit, self._actor, now())
        keyed = None if self._key is None else self._key.outcome(_kept(result), theirs_id)
        renames = [
            rename
            for each in graph.ancestry.path(before.commit, theirs_id).redo
            for rename in each.renames
        ]
        pending = prepare_declarations(graph.declarations, checkout, before, theirs.schema, renames)
        try:
            graph.on_step("before_append")
            graph.log.move(move, theirs.schema.digest, keyed)
            graph.on_step("after_append")
            if self._call is not None:
                self._call.reached = theirs_id
            graph.forward(checkout, theirs)
        finally:
            pending.settle()
        return pending

    def _new_write(self, checkout: Checkout, expected_head: str | None) -> Write:
        asked = self._asked
        return Write(
            self._graph,
            checkout,
            actor=self._actor,
            message=asked.message or f"merge {asked.source} into {asked.target}",
            call=self._call,
            expected_head=expected_head,
            key=self._key,
            access=self._access,
        )

    def _finished(self, write: Write, result: MergeResult, theirs_id: str) -> MergeResult:
        if write.replayed is not None:
            result = _replay(self._asked, write.replayed)
        write.merge_of(theirs_id)
        write.result = _kept(result)
        commit = write.finish()
        return msgspec.structs.replace(result, commit=None if commit is None else commit.id)


def _kept(result: MergeResult) -> dict[str, object]:
    """The part of a result that is stored for a retry."""
    members = msgspec.structs.asdict(result)
    return {name: members[name] for name in members if name not in _FROM_REQUEST}


def _replay(asked: MergeRequest, first: KeyedOutcome) -> MergeResult:
    """The result of the first merge with this key."""
    members = {
        "outcome": "merged",
        **first.result,
        "source": asked.source,
        "target": asked.target,
        "commit": first.commit,
        "replayed": True,
    }
    return msgspec.convert(members, MergeResult)


def _checkout_of(graph: Graph, refs: RefResolver, source: str) -> Checkout:
    head = refs.resolve(source)
    if refs.has(source):
        return refs.checkout(source)
    return snapshot_checkout(graph, graph.ancestry.commit(head.commit))


def _branches_of(graph: Graph, refs: RefResolver, checkout: Checkout) -> tuple[str, ...]:
    """The branches that decide what is visible of a checkout."""
    if not checkout.fixed:
        return (checkout.name,)
    return tuple(refs.branches_of(graph.ancestry.commit(checkout.head.commit)))


def _into(access: Access, source: str) -> Permits | None:
    """The branches that an actor may merge into; ``source`` is empty for a commit."""
    if access.unrestricted:
        return None
    return lambda branch: (
        access.may("Read", branch)
        and access.may("Change", branch)
        and access.may("BranchMerge", source, branch)
    )
