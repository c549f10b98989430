"""Merge one branch into another: nothing, a move, one commit with two parents, or conflicts.

Both sides are folded from the log since their common commits, so the cost follows what
they changed. The merged nodes go down the write path like any other write; rules that
they break between them are conflicts too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from trails.engine.access import OPEN, Access
from trails.engine.activities import Call
from trails.engine.changes import count_changes, net_between
from trails.engine.common_state import common_state
from trails.engine.conflicts import Sides, clash_id, concerned, of_schemas, violation_id
from trails.engine.containment import Permits
from trails.engine.graph import Graph, now
from trails.engine.idempotency import IdempotencyKey
from trails.engine.lines import Line
from trails.engine.mergers import check_forward, check_sight, check_types
from trails.engine.moves import tell_move
from trails.engine.rule_check import broken_rules
from trails.engine.rules import RuleError
from trails.engine.schema_merge import merge_schemas
from trails.engine.seen import Seen, permitting, reader
from trails.engine.snapshots import snapshot_line
from trails.engine.three_way import Edit, Merge, three_way
from trails.engine.write.draft import Draft, drafting
from trails.engine.write.states import judge, put_states
from trails.engine.write.write import Write
from trails.errors import ConflictError, FieldError, NotFoundError, ValidationError
from trails.log.protocol import head_moved
from trails.model.history import GENESIS, Move
from trails.model.idempotency import KeyedOutcome
from trails.model.merges import Conflict, MergeRequest, MergeResult, Resolution
from trails.model.nodes import NodeState, split_handle
from trails.model.types import Schema

_ROUNDS: Final = 10
"""Resolutions may bring about new conflicts, which others resolve; so often at most."""
_PLANS: Final = 4
"""How often a merge is planned without the writer's lock before it is planned under it."""


def merge(
    graph: Graph,
    asked: MergeRequest,
    *,
    actor: str,
    call: Call | None = None,
    access: Access = OPEN,
) -> MergeResult:
    """Merge a branch or commit into a branch; with conflicts nothing is written.

    Planned without the writer's lock, which is taken to write the plan if the target is still
    where it was. After a few rounds the plan is made under the lock, so that it always ends.
    """
    graph.check_writable()
    task = _Task(graph, asked, actor, call, access)
    if Seen(graph, permitting(access, "Change")).has(asked.target):
        first = task.replayed()  # before the source is looked for: it may be deleted by now
        if first is not None:
            return first
    for _ in range(0 if graph.file.in_memory else _PLANS):
        theirs, line = task.sides()
        done = task.replayed() or task.try_plan(line, theirs)
        if done is not None:
            return done
    theirs, line = task.sides()
    return task.run_locked(line, theirs)


class _Plan(msgspec.Struct, frozen=True):
    """What a merge would do, and to which states."""

    result: MergeResult
    ours: str
    theirs: str
    schema: Schema | None = None
    states: dict[str, NodeState | None] = {}


class _Task:
    """A merge that one actor asked for."""

    def __init__(
        self, graph: Graph, asked: MergeRequest, actor: str, call: Call | None, access: Access
    ) -> None:
        self._graph = graph
        self._asked = asked
        self._actor = actor
        self._call = call
        self._access = access
        self._key: IdempotencyKey | None = None
        if asked.idempotency_key is not None and not asked.dry_run:
            self._key = IdempotencyKey(graph, asked.target, actor, asked.idempotency_key)
            self._key.request.add(["merge", asked.source, asked.resolutions, asked.message])

    def sides(self) -> tuple[Line, Line]:
        """The source and the target, both of which the actor has to see whole."""
        graph, asked, access = self._graph, self._asked, self._access
        readable = Seen(graph, reader(access))
        theirs = _line_of(graph, readable, asked.source)
        into = _into(access, "" if theirs.fixed else asked.source)
        line = Seen(graph, into, tells=reader(access)).line(asked.target)
        check_sight(access, theirs, _branches_of(graph, readable, theirs))
        check_sight(access, line, (line.name,))
        return theirs, line

    def replayed(self) -> MergeResult | None:
        """What a merge with the same idempotency key did before."""
        key = self._key
        first = None if key is None else key.find()
        if key is None or first is None:
            return None
        key.check(first)
        return _replay(self._asked, first)

    def _keep(self, result: MergeResult) -> MergeResult:
        """Keep the key of a merge that found nothing; called with the writer's lock."""
        if self._key is not None:
            self._key.keep(_kept(result), result.commit)
        return result

    # --- without the lock ------------------------------------------------------------------

    def try_plan(self, line: Line, theirs: Line) -> MergeResult | None:
        """Plan the merge and do it; None if somebody else wrote in between."""
        plan = self._plan(line, theirs)
        if self._asked.dry_run or plan.result.outcome == "conflicts":
            return plan.result
        if plan.result.outcome == "already_up_to_date":
            if self._key is None:
                return plan.result
            with self._graph.writing():
                return self.replayed() or self._keep(plan.result)
        if plan.result.outcome == "fast_forward":
            return self._move(line, theirs, plan)
        return self._write(line, plan)

    def _plan(self, line: Line, theirs: Line) -> _Plan:
        """Plan the merge on a fixed state of both sides; nobody has to wait meanwhile."""
        graph, asked, access = self._graph, self._asked, self._access
        with drafting(graph, line, access, self._call) as draft:
            other = draft.read(theirs)
            ours_id, theirs_id = draft.line.head.commit, other.head.commit
            self._check_expected()
            easy = self._without_commit(draft.line, other)
            if easy is not None:
                return _Plan(easy, ours_id, theirs_id)
            found = _Merging(graph, draft, other, asked, access).run()
            return _Plan(found, ours_id, theirs_id, draft.schema, draft.states)

    def _move(self, line: Line, theirs: Line, plan: _Plan) -> MergeResult | None:
        """Move the target to the source; None if either has moved since that was planned."""
        graph = self._graph
        with graph.writing(self._actor):
            graph.prepare(line, settled=False)
            moved = graph.log_head(line.name).commit != plan.ours
            if moved or not theirs.nodes.known or theirs.nodes.position.commit != plan.theirs:
                return None
            self._forward(line, theirs, plan.result)
        tell_move(graph, line, plan.ours, plan.theirs)
        return plan.result

    def _write(self, line: Line, plan: _Plan) -> MergeResult | None:
        """Commit a plan; None if the target has moved since it was made."""
        write = self._new_write(line, plan.ours)
        try:
            write.begin()
        except ConflictError:
            if self._asked.expected_head is not None:
                raise
            return None
        try:
            if write.replayed is None:
                if plan.schema is not None:
                    write.change_schema(plan.schema)
                put_states(write.nodes, plan.states)
        except BaseException:
            write.abandon()
            raise
        return self._finished(write, plan.result, plan.theirs)

    # --- under the lock --------------------------------------------------------------------

    def run_locked(self, line: Line, theirs: Line) -> MergeResult:
        """Plan and write under the lock: for a busy target, and for graphs in memory."""
        graph, asked = self._graph, self._asked
        with graph.writing(self._actor):
            graph.prepare(line, settled=False)
            replayed = self.replayed()
            if replayed is not None:
                return replayed
            self._check_expected()
            ours_id, theirs_id = line.nodes.position.commit, theirs.nodes.position.commit
            easy = self._without_commit(line, theirs)
            moves = easy is not None and easy.outcome == "fast_forward" and not asked.dry_run
            if moves and easy is not None:
                self._forward(line, theirs, easy)
            elif easy is not None and not asked.dry_run:
                self._keep(easy)
        if easy is not None:
            if moves:
                tell_move(graph, line, ours_id, theirs_id)
            return easy
        write = self._new_write(line, asked.expected_head)
        write.begin()
        if write.replayed is not None:  # by a retry that ran beside this one
            return self._finished(write, _replay(asked, write.replayed), theirs_id)
        try:
            theirs_id = theirs.nodes.position.commit
            found = _Merging(graph, write, theirs, asked, self._access).run()
        except BaseException:
            write.abandon()
            raise
        if found.conflicts or asked.dry_run:
            write.abandon()
            return found
        return self._finished(write, found, theirs_id)

    # --- either way ------------------------------------------------------------------------

    def _check_expected(self) -> None:
        target, expected = self._asked.target, self._asked.expected_head
        head = self._graph.log_head(target).commit
        if expected not in {None, head}:
            raise head_moved(target, str(expected), head)

    def _without_commit(self, line: Line, theirs: Line) -> MergeResult | None:
        """The result where no commit is needed; None where one is."""
        graph, asked = self._graph, self._asked
        source, target, dry_run = asked.source, asked.target, asked.dry_run
        ours_id, theirs_id = line.nodes.position.commit, theirs.nodes.position.commit
        if graph.ancestry.is_ancestor(theirs_id, ours_id):
            return MergeResult("already_up_to_date", source, target, ours_id, dry_run=dry_run)
        if not graph.ancestry.is_ancestor(ours_id, theirs_id) or self._breaks_rules(line, theirs):
            return None
        check_forward(graph, self._access, line, theirs)
        counts = count_changes(net_between(graph, ours_id, theirs_id))
        return MergeResult("fast_forward", source, target, theirs_id, (), *counts, dry_run=dry_run)

    def _breaks_rules(self, line: Line, theirs: Line) -> bool:
        """Whether the source breaks a rule that came on the way from the target to it.

        Then it can't be moved to as it is: the violations are conflicts of a merge.
        """
        graph = self._graph
        path = graph.ancestry.path(line.nodes.position.commit, theirs.nodes.position.commit)
        met = {line.schema.digest, *(each.schema for each in (*path.undo, *path.redo))}
        since = [graph.compiled(each).schema for each in met - {theirs.schema.digest}]
        with theirs.nodes.file.writer() as db:
            return bool(since) and any(broken_rules(theirs.nodes, db, theirs.compiled, since))

    def _forward(self, line: Line, theirs: Line, result: MergeResult) -> None:
        """Move the target to where the source is; called with the writer's lock."""
        graph = self._graph
        ours_id, theirs_id = graph.log_head(line.name).commit, theirs.nodes.position.commit
        move = Move(line.name, "fast_forward", theirs_id, ours_id, self._actor, now())
        keyed = None if self._key is None else self._key.outcome(_kept(result), theirs_id)
        graph.log.move(move, theirs.schema.digest, keyed)
        graph.forward(line, theirs)

    def _new_write(self, line: Line, expected_head: str | None) -> Write:
        asked = self._asked
        return Write(
            self._graph,
            line,
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
    """What a retry answers beside the commit."""
    return {
        "outcome": result.outcome,
        "bases": result.bases,
        "created": result.created,
        "updated": result.updated,
        "deleted": result.deleted,
    }


def _replay(asked: MergeRequest, first: KeyedOutcome) -> MergeResult:
    """What came of the first merge with this key."""
    told = {
        "outcome": "merged",
        **first.result,
        "source": asked.source,
        "target": asked.target,
        "commit": first.commit,
        "replayed": True,
    }
    return msgspec.convert(told, MergeResult)


def _line_of(graph: Graph, seen: Seen, source: str) -> Line:
    head = seen.resolve(source)
    if seen.has(source):
        return seen.line(source)
    return snapshot_line(graph, graph.ancestry.commit(head.commit))


def _branches_of(graph: Graph, seen: Seen, line: Line) -> tuple[str, ...]:
    """Where it is decided what is seen of a branch or commit."""
    if not line.fixed:
        return (line.name,)
    return tuple(seen.branches_of(graph.ancestry.commit(line.head.commit)))


def _into(access: Access, source: str) -> Permits | None:
    """Into which branches an actor may merge; ``source`` is empty for a bare commit."""
    if access is OPEN:
        return None
    return lambda branch: (
        access.may("Read", branch)
        and access.may("Change", branch)
        and access.may("BranchMerge", source, branch)
    )


class _Merging:
    """One merge that needs a commit, inside its write or a draft of it."""

    def __init__(
        self, graph: Graph, write: Write | Draft, theirs: Line, asked: MergeRequest, access: Access
    ) -> None:
        self._graph = graph
        self._access = access
        self._write = write
        self._ours, self._theirs = write.line, theirs
        self._asked = asked
        self._resolutions = asked.resolutions
        self._used: set[str] = set()
        self._conflicts: dict[str, Conflict] = {}
        self._former: Schema | None = None
        """The types that the target has had, where the merge gives it others."""

    def run(self) -> MergeResult:
        """Put everything together in the write's transaction."""
        graph = self._graph
        ours, theirs = self._ours.nodes.position.commit, self._theirs.nodes.position.commit
        bases = graph.ancestry.bases(ours, theirs)
        self._merge_schemas(bases[0])
        if self._conflicts:
            return self._result(ours, bases, (0, 0, 0))  # fields need types to be read with
        net_ours = net_between(graph, bases[0], ours)
        net_theirs = net_between(graph, bases[0], theirs)
        self._sides = Sides(graph, self._schema, net_ours, net_theirs)
        common = common_state(graph, bases, ours, self._ours_now, self._schema)
        merged = three_way(common, net_ours, net_theirs)
        before = self._states(self._ours, [*merged.edits, *(c.handle for c in merged.clashes)])
        states = self._edited(merged, before)
        self._settle(states)
        self._check_resolutions()
        counts = _count(self._ours_before(list(states)), states)
        return self._result(ours, bases, counts)

    def _result(self, ours: str, bases: list[str], counts: tuple[int, int, int]) -> MergeResult:
        conflicts = tuple(self._conflicts.values())
        return MergeResult(
            "conflicts" if conflicts else "merged",
            self._asked.source,
            self._asked.target,
            ours if conflicts else None,
            tuple(bases),
            *counts,
            conflicts=conflicts,
            dry_run=self._asked.dry_run,
        )

    def _states(self, line: Line, handles: list[str]) -> dict[str, NodeState | None]:
        found = line.nodes.find_all(self._write.nodes.db, handles)
        return {
            handle: found[handle].state if handle in found else None
            for handle in dict.fromkeys(handles)
        }

    # --- schemas -------------------------------------------------------------------------

    def _merge_schemas(self, base_commit: str) -> None:
        graph, mine, other = self._graph, self._ours.schema, self._theirs.schema
        if mine.digest == other.digest:
            return
        start = (
            Schema()
            if base_commit == GENESIS
            else graph.compiled(graph.ancestry.commit(base_commit).schema).schema
        )
        merged, torn = merge_schemas(start, mine, other)
        lost = {*self._lost(self._ours, merged), *self._lost(self._theirs, merged)}
        for name in sorted({*torn, *lost}):
            what = "both sides changed it" if name in torn else "one side removed it, one uses it"
            self._add(of_schemas(name, what, start, mine, other))
        if not torn and not lost and merged.digest != mine.digest:
            check_types(self._access, self._ours.name, mine, merged)
            self._former = mine
            self._write.change_schema(merged)

    def _lost(self, line: Line, merged: Schema) -> Iterator[str]:
        """Types and fields that a side uses and the merged schema has not."""
        for name, declared in line.schema.by_name.items():
            if not line.nodes.live(self._write.nodes.db, (name,)):
                continue
            after = merged.by_name.get(name)
            if after is None:
                yield name
                continue
            gone = {field for field in declared.by_name if field not in after.by_name}
            if gone:
                for stored in line.nodes.stored(self._write.nodes.db, (name,)):
                    yield from (f"{name}.{each}" for each in gone & stored.state.values.keys())

    # --- fields --------------------------------------------------------------------------

    def _edited(
        self, merged: Merge, before: Mapping[str, NodeState | None]
    ) -> dict[str, NodeState | None]:
        """The nodes as they shall be; what clashes stays ours unless a resolution says else."""
        wanted = [handle for handle, edit in merged.edits.items() if edit.whole == "take"]
        wanted += [clash.handle for clash in merged.clashes]
        other = self._states(self._theirs, wanted)
        states: dict[str, NodeState | None] = {
            handle: _apply(edit, handle, before[handle], other.get(handle), self._schema)
            for handle, edit in merged.edits.items()
        }
        for clash in merged.clashes:
            handle = clash.handle
            current = states.get(handle, before[handle])
            resolution = self._resolution(clash_id(clash))
            if resolution is None:
                self._add(self._sides.of_clash(clash, before[handle], other[handle]))
            elif not clash.field:
                if resolution.take == "value":
                    raise _no_value(clash_id(clash))
                states[handle] = before[handle] if resolution.take == "ours" else other[handle]
            elif resolution.take != "ours":
                value = clash.theirs if resolution.take == "theirs" else resolution.value
                states[handle] = self._with(current, handle, clash.field, value)
        return states

    @property
    def _schema(self) -> Schema:
        return self._ours.schema

    def _with(
        self, state: NodeState | None, handle: str, field: str, value: object
    ) -> NodeState | None:
        """A node with one field replaced; the value may be in JSON form."""
        if state is None:
            return None
        values: dict[str, object] = {**state.values, field: value}
        if value is None:
            del values[field]
        errors: list[FieldError] = []
        checked = self._ours.validator.check(state.type, values, f"{handle}.", errors)
        refused = [each for each in errors if _last_name(each.field) == field]
        if refused:
            raise ValidationError(refused)
        if field in checked:
            values[field] = checked[field]
        elif field in values:
            del values[field]
        return NodeState(state.type, state.id, values)

    # --- rules ---------------------------------------------------------------------------

    def _settle(self, states: dict[str, NodeState | None]) -> None:
        """Put the nodes, and settle the rules that they break as resolutions say."""
        left: list[RuleError] = []
        for _ in range(_ROUNDS):
            left = list(self._violations(states))
            again = False
            for violation in left:
                identifier = violation_id(violation)
                resolution = self._resolution(identifier)
                if resolution is not None:
                    again |= self._resolve(states, violation, resolution, identifier)
            if not again:
                break
        # What no resolution has mended, though one may have been given.
        for violation in left:
            holder = concerned(violation)[0]
            mine, other = self._ours_before([holder])[holder], self._theirs_now([holder])[holder]
            self._add(self._sides.of_violation(violation, mine, other))

    def _violations(self, states: Mapping[str, NodeState | None]) -> Iterator[RuleError]:
        """What the merged nodes break, and what the others do under rules that are new to them."""
        told: set[str] = set()
        for violation in judge(self._write.nodes, states):
            told.add(violation_id(violation))
            yield violation
        ours, db = self._ours, self._write.nodes.db
        if self._former is not None:
            for violation in broken_rules(ours.nodes, db, ours.compiled, [self._former]):
                if violation_id(violation) not in told:
                    yield violation

    def _resolve(
        self,
        states: dict[str, NodeState | None],
        violation: RuleError,
        resolution: Resolution,
        identifier: str,
    ) -> bool:
        """Change the nodes of a violation as asked; whether that changed anything."""
        handles = concerned(violation)
        if resolution.take == "value":
            field = violation.field.rpartition(".")[2]
            if "," in field:
                raise _no_value(identifier)
            line = self._ours
            current = states.get(handles[0]) or self._states(line, handles[:1])[handles[0]]
            chosen = {handles[0]: self._with(current, handles[0], field, resolution.value)}
        else:
            side = self._ours_before if resolution.take == "ours" else self._theirs_now
            chosen = side(handles)
        changed = any(states.get(each, ...) != state for each, state in chosen.items())
        states.update(chosen)
        return changed

    def _ours_now(self, handles: list[str]) -> dict[str, NodeState | None]:
        return self._states(self._ours, handles)

    def _theirs_now(self, handles: list[str]) -> dict[str, NodeState | None]:
        return self._states(self._theirs, handles)

    def _ours_before(self, handles: list[str]) -> dict[str, NodeState | None]:
        """Nodes as they were before this write, which its own index no longer shows."""
        now_there = self._states(self._ours, handles)
        touches = self._write.nodes.touches
        return {handle: touches.before(handle, now_there[handle]) for handle in handles}

    # --- conflicts -------------------------------------------------------------------------

    def _resolution(self, identifier: str) -> Resolution | None:
        found = self._resolutions.get(identifier)
        if found is not None:
            self._used.add(identifier)
        return found

    def _add(self, conflict: Conflict) -> None:
        self._conflicts.setdefault(conflict.id, conflict)

    def _check_resolutions(self) -> None:
        unknown = sorted(set(self._resolutions) - self._used)
        if unknown and not self._conflicts:
            raise NotFoundError(
                f"there is no conflict {unknown[0]!r} in this merge; take the ids from its result",
                conflict=unknown[0],
            )


def _apply(
    edit: Edit,
    handle: str,
    ours: NodeState | None,
    theirs: NodeState | None,
    schema: Schema,
) -> NodeState | None:
    if edit.whole == "take":
        return theirs
    if edit.whole == "delete" or ours is None:
        return None
    values = dict(ours.values)
    for name, (_, value) in edit.values.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    type_name, identifier = split_handle(handle)
    for name, members in edit.members.items():
        field = schema.by_name[type_name].by_name[name]
        row = field.type.scalar.row
        left = {each for each in values.get(name, ()) if members.get(each, True)}  # type: ignore[attr-defined]
        left |= {each for each, inside in members.items() if inside}
        values[name] = tuple(sorted(left, key=row.sort_key if row else None))
        if not left:
            del values[name]
    return NodeState(type_name, identifier, values)


def _count(
    before: Mapping[str, NodeState | None], states: Mapping[str, NodeState | None]
) -> tuple[int, int, int]:
    created = updated = deleted = 0
    for handle, state in states.items():
        old = before.get(handle)
        created += old is None and state is not None
        deleted += old is not None and state is None
        updated += old is not None and state is not None and old != state
    return created, updated, deleted


def _last_name(path: str) -> str:
    return path.rpartition(".")[2].partition("[")[0]


def _no_value(identifier: str) -> ConflictError:
    return ConflictError(
        f"{identifier} concerns more than one field; resolve it with 'ours' or 'theirs'",
        conflict=identifier,
    )
