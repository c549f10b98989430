"""The one write path: delta → validate the state after it → append → apply → acknowledge.

Every writer (ORM, capability, and later mutate, load, merge, migration) opens a
``Write``, puts and removes nodes, and finishes it: one commit, or an error that
names every violation, and nothing written. Changes go first into the node
index's open transaction, so rules that look at other nodes see the graph as it
would be.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Final

import msgspec

from trails.authoring.nodes import Fate
from trails.engine.access import OPEN, Access
from trails.engine.feed import Change, Tally
from trails.engine.graph import Graph, now
from trails.engine.guards import Guard, check_change, guard_of
from trails.engine.lines import Compiled, Line
from trails.engine.puts import Put, check_put, misnamed, settle_put
from trails.engine.rules import RuleError, Rules, of_node
from trails.errors import (
    FieldError,
    ForbiddenError,
    NotFoundError,
    StorageError,
    TransactionError,
    ValidationError,
)
from trails.log.append import append
from trails.log.payloads import Payload, PayloadWriter
from trails.log.protocol import head_moved
from trails.model.history import Commit, Draft, Position
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema
from trails.views.nodes.index import Replacement, Stored
from trails.views.quads import BULK
from trails.views.staging import StagedLoad

MAX_ERRORS: Final = 1000
_CHUNK: Final = 2000


class Touched(msgspec.Struct):
    """A node as it was before this write, and as it is now."""

    before: Stored | None
    after: NodeState | None


class Write:
    """One write in progress. Holds the writer's lock from ``begin`` to the end."""

    def __init__(
        self,
        graph: Graph,
        line: Line,
        *,
        actor: str,
        message: str = "",
        activity: str | None = None,
        expected_head: str | None = None,
        idempotency_key: str | None = None,
        access: Access = OPEN,
    ) -> None:
        """``access`` is what the actor may do; nothing is written without it."""
        if line.fixed:
            raise TransactionError(
                f"snapshot {line.name[1:]} is the past, which can't be written; create a branch "
                "from it"
            )
        check_change(access, line.name)
        self._graph = graph
        self._line = line
        self._access = access
        self._guard: Guard | None = None
        self._merged: str | None = None
        self._draft = Draft(
            branch=line.name,
            actor=actor,
            time="",
            schema="",
            message=message,
            activity=activity,
            idempotency_key=idempotency_key,
        )
        self._former_schema: Schema | None = None
        self._expected = expected_head
        self._stack = ExitStack()
        self._touched: dict[str, Touched] = {}
        self._payload: PayloadWriter | None = None
        self._unstaged: list[tuple[bytes, bytes, int]] = []
        self._staged: StagedLoad | None = None
        self._broken = False
        self._tally: Tally | None = None
        """None where nobody listened in time."""
        self.fate = Fate()
        self.replayed: Commit | None = None
        """The commit that the idempotency key names already; then nothing is written."""

    # --- beginning and ending ------------------------------------------------------

    def begin(self) -> None:
        """Take the lock, check the expected head, open the index's transaction."""
        graph, line = self._graph, self._line
        self._stack.enter_context(graph.writing())
        try:
            graph.prepare(line)
            head = graph.log_head(line.name)
            key = self._draft.idempotency_key
            if key is not None:
                self.replayed = graph.log.by_idempotency_key(line.name, key)
            if self._expected not in {None, head.commit} and self.replayed is None:
                raise head_moved(line.name, str(self._expected), head.commit)  # noqa: TRY301
            self._head = head
            self._draft = msgspec.structs.replace(self._draft, time=now())
            self._use(line.schema)
            self._seq = graph.log.last_seq() + 1
            feed = graph.feed
            self._tally = Tally(traced=feed.traced(line.name)) if feed.listened else None
            graph.file.begin()
        except BaseException:
            self._stack.close()
            raise
        with graph.file.writer() as db:
            self._db = db
        self._rules = Rules(line.rules, line.nodes, db)

    def _use(self, schema: Schema) -> None:
        """Write nodes of these types, as far as they are the actor's to write."""
        self._schema = schema
        self._draft = msgspec.structs.replace(self._draft, schema=schema.digest)
        self._guard = guard_of(self._access, self._line.name, self._line.compiled)

    @property
    def line(self) -> Line:
        """The branch that is written."""
        return self._line

    @property
    def seen(self) -> Compiled:
        """The types as the actor sees them: what it puts is put in their terms."""
        return self._line.compiled if self._guard is None else self._guard.seen

    @property
    def sees_all(self) -> bool:
        """Whether nothing of these types is hidden from the actor."""
        return self._guard is None or self._guard.reads_all

    @property
    def db(self) -> sqlite3.Connection:
        """The connection that sees this write's changes."""
        return self._db

    @property
    def changed(self) -> bool:
        """Whether anything was put or removed."""
        return bool(self._touched)

    def finish(self) -> Commit | None:
        """Validate, append, apply; the commit, or None when nothing changed."""
        try:
            if self.replayed is not None:
                self._undo()
                self.fate.landed = True
                return self.replayed
            self._check_unbroken()
            errors: list[FieldError] = []
            self._rules.settle(errors)
            if errors:
                raise ValidationError(errors)  # noqa: TRY301
            self._emit_touched()
        except BaseException:
            self.abandon()
            raise
        return self._commit()

    def _check_unbroken(self) -> None:
        """Refuse to go on after a failed change, of which a part may have been made."""
        if self._broken:
            raise TransactionError(
                "a change in this transaction failed half-way, so none of it is written; "
                "begin it again"
            )

    def spoil(self) -> None:
        """Only a part of a change was made: this write can't be finished any more."""
        self._broken = True

    def abandon(self) -> None:
        """Forget everything."""
        if self.fate.landed is None:
            self.fate.landed = False
            self._undo()

    def _undo(self) -> None:
        try:
            if self._payload is not None:
                self._payload.discard()
            if self._staged is not None:
                self._staged.discard()
        finally:
            try:
                self._graph.file.rollback()
                if self._former_schema is not None:
                    self._line.use(self._graph.compile(self._former_schema))
            finally:
                self._stack.close()

    def _commit(self) -> Commit | None:
        graph, line, step = self._graph, self._line, self._graph.on_step
        try:
            payload = (self._payload or graph.log.new_payload()).seal()
            same_schema = self._draft.schema == self._head.schema
            if payload.empty and same_schema and self._merged is None:
                self._undo()
                self.fate.landed = True
                return None
            if self._staged is not None:
                graph.file.put_waiting()  # while the rest of the statements is being loaded
                graph.stores.main().finish(self._staged)
            step("before_append")
            head = graph.log.head(line.name)
            commit = append(graph.log, self._draft, payload, line.schema, head, self._merged)
        except BaseException:
            self.abandon()
            raise
        # From here on the commit is a fact; what fails below is a view that lags.
        self.fate.landed = True
        with self._stack:
            self._apply(commit, payload)
            line.head = graph.log_head(line.name)
        if graph.feed.listened:
            graph.feed.tell(self._news(commit))
        step("before_acknowledge")
        return commit

    def _news(self, commit: Commit) -> Change:
        """What readers of the branch see differently now."""
        line, tally = self._line, self._tally or Tally()
        if self._tally is None:
            tally.everything = True
        self._count_touched(tally)
        change = tally.change(line.name, self._schema)
        return self._graph.tracing.complete(change, line, self._head.commit, commit.id)

    def _count_touched(self, tally: Tally) -> None:
        states = (
            (handle, None if each.before is None else each.before.state, each.after)
            for handle, each in self._touched.items()
        )
        tally.compare(self._schema, (each for each in states if each[1] != each[2]))

    def _apply(self, commit: Commit, payload: Payload) -> None:
        """Bring the views to a commit that the log has.

        A branch's quads view follows when it is next read: many branches never are.
        """
        graph, line, step = self._graph, self._line, self._graph.on_step
        try:
            step("after_append")
            position = Position(commit.seq, commit.id)
            line.nodes.commit(position)
            step("mid_apply")
            if self._staged is not None:
                graph.stores.main().swap(self._staged, position)
            elif line is graph.main:
                graph.folding.apply_quads(graph.stores.main(), commit, payload)
        except StorageError as error:
            graph.file.rollback()
            try:
                graph.catch_up()  # the cause may have passed, and only opening again shows it
            except StorageError:
                raise _landed(error, commit) from error
        finally:
            graph.file.rollback()
            if self._staged is not None:
                self._staged.discard()  # nothing is left of it once it was swapped in
        step("after_apply")

    # --- changes ---------------------------------------------------------------------

    def change_schema(self, schema: Schema) -> None:
        """From this commit on the graph has these types; call it before any other change."""
        line = self._line
        if self._tally is not None:
            self._tally.everything = True
        self._former_schema = line.schema
        line.nodes.adopt(schema)
        line.use(self._graph.compile(schema))
        self._use(schema)
        self._rules = Rules(line.rules, line.nodes, self._db)

    def merge_of(self, commit: str) -> None:
        """The commit will have a second parent."""
        self._merged = commit

    def put(self, change: Put, *, prefix: str = "", alone: bool = False) -> NodeState | None:
        """Create or change one node now; violations of its own rules raise at once.

        ``alone``: nothing else follows that could mend what other nodes' rules find, so a
        refusal tells that as well.
        """
        self.check_type(change.type)
        seen = self.seen
        wanted = check_put(seen.schema, seen.validator, change, prefix)
        before = None
        if wanted.handle is not None:
            before = self._line.nodes.find(self._db, wanted.handle)
        state = settle_put(seen.schema, change, wanted, self._shown(before))
        if state is not None and (alone or not wanted.errors):
            self._store(before, state.handle, self._completed(before, state))
        if wanted.errors:
            if alone:
                self._rules.settle(wanted.errors)
            raise ValidationError(wanted.errors)
        return state

    def put_all(
        self,
        changes: Iterable[Put],
        done: Callable[[Put, NodeState], None],
        found: list[FieldError] | None = None,
    ) -> int:
        """Create or change many nodes, streamed: each at most once in this write.

        Violations are raised, or added to ``found`` by a caller who goes on and then judges.
        """
        errors: list[FieldError] = [] if found is None else found
        count = 0
        stream = iter(changes)
        while chunk := list(islice(stream, _CHUNK)):
            count += len(chunk)
            self._put_chunk(chunk, errors, done)
            if len(errors) >= MAX_ERRORS:
                break
        if not errors or found is not None:
            return count
        self._rules.settle(errors)
        raise ValidationError(errors)

    def _put_chunk(
        self,
        chunk: list[Put],
        errors: list[FieldError],
        done: Callable[[Put, NodeState], None],
    ) -> None:
        nodes, types, guard = self._line.nodes, self.seen, self._guard
        if guard is not None:
            for name in dict.fromkeys(change.type for change in chunk):
                self.check_type(name)
        wanted = [check_put(types.schema, types.validator, change, None) for change in chunk]
        handles = [each.handle for each in wanted if each.handle is not None]
        there = nodes.find_all(self._db, handles)
        seen: set[str] = set()
        puts: list[Replacement] = []
        for change, each in zip(chunk, wanted, strict=True):
            before = None if each.handle is None else there.get(each.handle)
            shown = before if guard is None else guard.show(before)
            state = settle_put(types.schema, change, each, shown)
            errors.extend(each.errors)
            if state is None:
                continue
            handle = each.handle or ""
            if handle in seen or (before is not None and before.seq == self._seq):
                message = f"{handle} appears twice in this batch; give each node once"
                errors.append(FieldError(handle, "unique", message, handle))
                continue
            seen.add(handle)
            done(change, state)
            if guard is not None:
                state = guard.complete(before, state)
            if before is None or before.state.values != state.values:
                if guard is not None:
                    self._check(None if before is None else before.state, state)
                puts.append(Replacement(before, handle, state))
        # Also what is refused goes into the index, with those of its values that are valid:
        # the rules between nodes are then told of every node, and all is rolled back.
        nodes.put_all(self._seq, puts)
        self._count_in(puts)
        changes = [(None if put.before is None else put.before.state, put.after) for put in puts]
        if not errors:
            self._stage(*self._emit(changes))
        for old, new in changes:
            self._rules.watch(old, new)

    def _count_in(self, puts: Sequence[Replacement]) -> None:
        if self._tally is not None:
            self._tally.compare(
                self._schema,
                (
                    (put.handle, None if put.before is None else put.before.state, put.after)
                    for put in puts
                ),
            )

    def found(self, handles: Sequence[str]) -> Mapping[str, Stored]:
        """Those of many nodes that exist, as this write and its actor see them."""
        there = self._line.nodes.find_all(self._db, handles)
        if self._guard is None:
            return there
        shown = {handle: self._guard.show(stored) for handle, stored in there.items()}
        return {handle: stored for handle, stored in shown.items() if stored is not None}

    def find(self, handle: str) -> Stored | None:
        """One node, as this write and its actor see it."""
        return self._shown(self._line.nodes.find(self._db, handle))

    def states(self, type_name: str) -> Iterator[NodeState]:
        """Every instance of exactly this type, as this write and its actor see them."""
        for stored in self._line.nodes.stored(self._db, (type_name,)):
            shown = self._shown(stored)
            if shown is not None:
                yield shown.state

    def remove_all(self, handles: Iterable[str]) -> int:
        """Delete many nodes, streamed; none of them was or will be put in this write."""
        count = 0
        stream = iter(handles)
        while chunk := list(islice(stream, _CHUNK)):
            there = self._line.nodes.find_all(self._db, chunk)
            for stored in there.values():
                self._check(stored.state, None)
            puts = [Replacement(stored, handle, None) for handle, stored in there.items()]
            self._line.nodes.put_all(self._seq, puts)
            self._stage(*self._emit((stored.state, None) for stored in there.values()))
            self._count_in(puts)
            for stored in there.values():
                self._rules.watch(stored.state, None)
            count += len(there)
        return count

    def settle(self, errors: list[FieldError]) -> None:
        """Add what the rules between nodes find in the state so far."""
        self._rules.settle(errors)

    def remove(self, handle: str, *, cascade: bool) -> None:
        """Delete a node; what points at it is dealt with, or refused when the write ends."""
        pending = [handle]
        while pending:
            current = pending.pop()
            before = self._line.nodes.find(self._db, current)
            if self._shown(before) is None or before is None:
                if current == handle:
                    raise NotFoundError(f"{handle} does not exist", handle=handle)
                continue
            self._store(before, current, None)
            if cascade:
                pending.extend(self._release(before.state))

    def _release(self, gone: NodeState) -> Iterator[str]:
        """Empty the references to a deleted node; yield the nodes that can't live without."""
        nodes = self._line.nodes
        for holder, field in list(self._rules.inbound(gone)):
            stored = nodes.find(self._db, holder)
            if stored is None:
                continue
            left = _without(stored.state, field, gone.handle)
            if left is None:
                yield holder
            else:
                self._store(stored, holder, left, released=True)

    def apply_states(
        self,
        states: Mapping[str, NodeState | None],
        errors: list[FieldError],
        *,
        validate: bool,
        alone: bool,
    ) -> None:
        """Put nodes into given states, as the actor sees them (from RDF statements).

        ``validate`` checks them, beside the violations that were found in the statements.
        """
        seen = self.seen
        for handle, state in states.items():
            before = self._line.nodes.find(self._db, handle)
            if state is not None and validate:
                seen.validator.check(state.type, state.values, f"{handle}.", errors)
                errors.extend(misnamed(seen.schema, state))
            if state is not None:
                self._store(before, handle, self._completed(before, state))
            elif self._shown(before) is not None:
                self._store(before, handle, None)
        if errors:
            if alone:
                self._rules.settle(errors)
            raise ValidationError(errors)

    def before(self, handle: str, now_there: NodeState | None) -> NodeState | None:
        """A node as it was before this write."""
        touched = self._touched.get(handle)
        if touched is None:
            return now_there
        return None if touched.before is None else touched.before.state

    def judge(self, states: Mapping[str, NodeState | None]) -> list[RuleError]:
        """Put nodes into states, and say what is wrong with them and between them."""
        found: list[RuleError] = []
        stored = self._line.nodes.find_all(self._db, list(states))
        for handle, state in states.items():
            if state is not None:
                errors = list(misnamed(self._schema, state))
                self._line.validator.check(state.type, state.values, f"{handle}.", errors)
                found.extend(of_node(handle, error) for error in errors)
            before = stored.get(handle)
            if (None if before is None else before.state) != state:
                self._store(before, handle, state)
        found.extend(self._rules.violations())
        return found

    def bypass(self, removed: bytes, added: bytes, counts: tuple[int, int]) -> None:
        """Log these statements as they are, whatever state they lead to."""
        payload = self._writer()
        payload.removed.write(removed, counts[0])
        payload.added.write(added, counts[1])
        if self._tally is not None:
            self._count_touched(self._tally)
            self._tally.everything = True
        self._touched.clear()
        self._rules.forget()

    # --- what is the actor's to see and to change --------------------------------------

    def _shown(self, stored: Stored | None) -> Stored | None:
        return stored if self._guard is None else self._guard.show(stored)

    def _completed(self, before: Stored | None, state: NodeState) -> NodeState:
        """A node with those of its fields that the actor does not see."""
        return state if self._guard is None else self._guard.complete(before, state)

    def check_type(self, type_name: str) -> None:
        """Refuse nodes of a type that the actor may not change; then nothing here is written."""
        if self._guard is not None:
            with self._spoiling():
                self._guard.check_type(type_name)

    def _check(
        self, before: NodeState | None, after: NodeState | None, *, released: bool = False
    ) -> None:
        """Refuse what is not the actor's to change; then nothing here is written."""
        if self._guard is None:
            return
        if released and before is not None:
            self.check_type(before.type)
            return
        with self._spoiling():
            self._guard.check(before, after)

    @contextmanager
    def _spoiling(self) -> Iterator[None]:
        try:
            yield
        except ForbiddenError:
            self.spoil()
            raise

    # --- storing and emitting ------------------------------------------------------------

    def _store(
        self,
        before: Stored | None,
        handle: str,
        after: NodeState | None,
        *,
        released: bool = False,
    ) -> None:
        """Put a node with all its fields into the index.

        ``released``: it only loses a reference that is seen, which nothing hidden can mind.
        """
        self._check(None if before is None else before.state, after, released=released)
        touched = self._touched.get(handle)
        if touched is None:
            touched = self._touched[handle] = Touched(before, after)
        touched.after = after
        # A node that was deleted and comes back in the same write is the same node.
        nid = touched.before.nid if before is None and touched.before is not None else None
        self._check_unbroken()
        try:
            self._line.nodes.put_all(self._seq, [Replacement(before, handle, after, nid)])
        except BaseException:
            self.spoil()
            raise
        self._rules.watch(None if before is None else before.state, after)

    def _emit_touched(self) -> None:
        """Write the net difference of every touched node into the payload."""
        # What is as it was before keeps its place in history, as it does in the log.
        self._line.nodes.restore(
            self._seq,
            [
                each.before
                for each in self._touched.values()
                if each.before is not None and each.before.state == each.after
            ],
        )
        changes = (
            (None if each.before is None else each.before.state, each.after)
            for each in self._touched.values()
        )
        while some := list(islice(changes, _CHUNK)):
            self._emit(some)

    def _stage(self, removed: bytes, added: bytes, count: int) -> None:
        """Load a commit that turns out to be large while the rest of it is being checked."""
        if self._staged is None:
            self._unstaged.append((removed, added, count))
            if sum(each[2] for each in self._unstaged) <= BULK:
                return
            if self._line is self._graph.main:
                self._staged = self._graph.stores.main().stage()
            if self._staged is None:
                self._unstaged.clear()
                return
            for earlier in self._unstaged[:-1]:
                self._staged.feed(earlier[0], earlier[1])
            self._unstaged.clear()
        self._staged.feed(removed, added)

    def _emit(
        self, changes: Iterable[tuple[NodeState | None, NodeState | None]]
    ) -> tuple[bytes, bytes, int]:
        """Write the statements between states into the payload: (removed, added, how many)."""
        removed: list[str] = []
        added: list[str] = []
        for before, after in changes:
            lost, won = self._line.terms.difference(before, after)
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

    def _writer(self) -> PayloadWriter:
        if self._payload is None:
            self._payload = self._graph.log.new_payload()
        return self._payload


def _landed(error: StorageError, commit: Commit) -> StorageError:
    """The log has the commit; a view could not follow yet."""
    return type(error)(
        f"commit {commit.id} is written and safe, but a view could not follow it: "
        f"{error.message}. Views catch up by themselves when they can; do not repeat the write",
        commit=commit.id,
    )


def _without(state: NodeState, field: PredicateDescriptor, handle: str) -> NodeState | None:
    """The node with one reference dropped; None when it can't stand without it."""
    values = dict(state.values)
    if field.many:
        left = tuple(each for each in values.get(field.name, ()) if each != handle)  # type: ignore[attr-defined]
        if len(left) < field.min_count:
            return None
        values[field.name] = left
        if not left:
            del values[field.name]
    elif field.required:
        return None
    else:
        values.pop(field.name, None)
    return NodeState(state.type, state.id, values)
