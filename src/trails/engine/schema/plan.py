"""Plan a change of types against the data of a branch, and apply it as one commit.

A plan is worked out in a draft of the branch: the steps are applied there as they would be
written, and all rules are checked, so a plan has no violations exactly if the change can be
applied. ``apply_change`` plans outside the writer's lock, takes it, and writes what was planned if
the branch has not moved; otherwise it plans again, after a few attempts under the lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, Protocol, Self

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.schema.effects import describe_steps, effect_of
from trails.engine.schema.expressions import Ask
from trails.engine.schema.resolve import resolve
from trails.engine.schema.restore import FormerState, former_states
from trails.engine.schema.rewrite import Progress, RewriteSpool, Rewriting, ignore_progress
from trails.engine.schema.rule_check import broken_rules
from trails.engine.schema.transforms import Findings
from trails.engine.validation.rules import RuleError
from trails.engine.visibility.access import OPEN, Access, check_types
from trails.engine.write.pending import DraftWrite, drafting
from trails.engine.write.write import IdempotencyKey, Write
from trails.errors import ConflictError, FieldError, ForbiddenError, ValidationError
from trails.log.protocol import head_moved
from trails.model.changes.steps import (
    AddField,
    AppliedChanges,
    ChangeField,
    ChangePlan,
    Offense,
    Step,
    StepPlan,
)
from trails.model.constraints import showable
from trails.model.history import Head
from trails.model.iris import digest_of
from trails.model.nodes import split_handle

MOST_OFFENSES: Final = 1_000
"""Violations that a refused change lists."""
_PLANS: Final = 3
"""Attempts to plan outside the writer's lock before planning under it."""


Former = Mapping[str, FormerState]


class MakeWrite(Protocol):
    """Makes the write of a change; ``Write`` itself, or with more to record."""

    def __call__(
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
    ) -> Write: ...


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A change of types that an actor asks for."""

    steps: tuple[Step, ...]
    actor: str = "trails"
    message: str = ""
    """Of the commit; by default, what the steps do."""
    plan: str | None = None
    """The digest of the plan that was reviewed; any other is refused."""
    expected_head: str | None = None
    """The head that the branch must have."""
    allow_data_loss: bool = False
    dry_run: bool = False
    ask: Ask | None = None
    """Computes expressions."""
    access: Access = OPEN
    call: CallRecord | None = None
    key: IdempotencyKey | None = None
    progress: Progress = ignore_progress
    make_write: MakeWrite = Write


def plan_change(
    graph: Graph,
    checkout: Checkout,
    steps: Sequence[Step],
    *,
    ask: Ask | None = None,
    access: Access = OPEN,
    call: CallRecord | None = None,
    offset: int = 0,
    limit: int = 100,
) -> ChangePlan:
    """What steps would do to a branch; violations by pages, in the order of steps' types and nodes.

    Raises ValidationError if the steps do not fit the types, with every mistake.
    """
    asked = ChangeRequest(steps=tuple(steps), ask=ask, access=access, call=call)
    former = former_states(graph, checkout, asked.steps)
    with (
        _trying(graph, checkout, asked) as target,
        _Attempt(graph, target, asked, former, offset=offset, limit=limit) as attempt,
    ):
        return attempt.run(logged=False)


def apply_change(graph: Graph, checkout: Checkout, asked: ChangeRequest) -> AppliedChanges:
    """Change types and data of a branch in one commit, or refuse with every violation."""
    graph.check_writable()
    first = None if asked.key is None else asked.key.find()
    if asked.key is not None and first is not None:
        asked.key.check(first)
        return msgspec.convert({**first.result, "commit": first.commit}, AppliedChanges)
    former = former_states(graph, checkout, asked.steps)
    for _ in range(0 if graph.file.in_memory else _PLANS):
        with ExitStack() as stack:
            with drafting(graph, checkout, asked.access, asked.call) as draft:
                attempt = stack.enter_context(_Attempt(graph, draft, asked, former))
                plan = attempt.run(logged=False)
            _check(plan, asked)
            if asked.dry_run:
                return AppliedChanges(None, plan)
            done = attempt.write(checkout, plan)
            if done is not None:
                return done
    return _apply_locked(graph, checkout, asked, former)


def _apply_locked(
    graph: Graph, checkout: Checkout, asked: ChangeRequest, former: Former
) -> AppliedChanges:
    """Plan and write under the lock: for a busy branch, and for graphs in memory."""
    write = asked.make_write(
        graph,
        checkout,
        actor=asked.actor,
        message=asked.message,
        call=asked.call,
        key=asked.key,
        access=asked.access,
    )
    write.begin()
    try:
        with _Attempt(graph, write, asked, former) as attempt:
            plan = attempt.run(logged=True)
            _check(plan, asked)
            if asked.dry_run:
                write.abandon()
                return AppliedChanges(None, plan)
            attempt.describe(write)
            return _finished(write, plan)
    except BaseException:
        write.abandon()
        raise


def _finished(write: Write, plan: ChangePlan) -> AppliedChanges:
    kept = msgspec.structs.replace(plan, offenses=())
    write.result = {"plan": msgspec.to_builtins(kept)}
    commit = write.finish()
    return AppliedChanges(None if commit is None else commit.id, plan)


@contextmanager
def _trying(graph: Graph, checkout: Checkout, asked: ChangeRequest) -> Iterator[DraftWrite | Write]:
    """A branch on which changes can be tried out, which nobody sees."""
    if not graph.file.in_memory:
        with drafting(graph, checkout, asked.access, asked.call) as draft:
            yield draft
        return
    write = Write(graph, checkout, actor=asked.actor, call=asked.call, access=asked.access)
    write.begin()
    try:
        yield write
    finally:
        write.abandon()


def _check(plan: ChangePlan, asked: ChangeRequest) -> None:
    """Refuse a plan that was not reviewed, breaks rules, or loses data without permission."""
    if asked.plan not in {None, plan.digest}:
        raise ConflictError(
            "the plan is not the one that was reviewed: the branch, its types or the steps have "
            "changed since; plan again, and apply that",
            plan=plan.digest,
        )
    if asked.expected_head not in {None, plan.head}:
        raise head_moved(plan.branch, str(asked.expected_head), plan.head)
    errors = [
        FieldError(f"{each.node}.{each.field}".rstrip("."), each.rule, each.message, each.value)
        for each in plan.offenses
    ]
    if errors:
        raise ValidationError(errors, more=plan.offending - len(errors))
    if plan.lost and not asked.allow_data_loss:
        raise ValidationError(
            FieldError(
                f"steps[{at}]",
                "data_loss",
                f"steps[{at}]: {each.summary[:-1]} ({each.lost} would be lost); allow that with "
                "allow_data_loss, or keep them",
                each.lost,
            )
            for at, each in enumerate(plan.steps)
            if each.lost
        )


def _advice(step: Step, rule: str) -> str:
    """What the step can be given, if nodes lack a value."""
    if rule == "required" and isinstance(step, AddField | ChangeField):
        return "; give the step a 'backfill', or the field a default"
    return ""


class _Attempt:
    """The steps, applied to one state of a branch."""

    def __init__(
        self,
        graph: Graph,
        target: DraftWrite | Write,
        asked: ChangeRequest,
        former: Former,
        *,
        offset: int = 0,
        limit: int = MOST_OFFENSES,
    ) -> None:
        self._graph, self._target, self._asked = graph, target, asked
        self._page = offset, limit
        self._checkout = target.checkout
        self._head: Head = target.checkout.head
        old = target.checkout.schema
        self._schemas = [old, *resolve(old, asked.steps)]
        self._findings = Findings(len(asked.steps), offset, limit)
        self._rewriting = Rewriting(
            graph, asked.steps, self._schemas, self._findings, asked.ask, former
        )
        self._spool = RewriteSpool(graph, self._schemas[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._spool.close()

    def run(self, *, logged: bool) -> ChangePlan:
        """Apply the steps to the target and check all rules."""
        asked, nodes = self._asked, self._target.nodes
        old, new = self._schemas[0], self._schemas[-1]
        if not nodes.sees_all:
            raise ForbiddenError(
                "changing types needs access to the whole branch, and parts of it are hidden from "
                "you; ask an administrator"
            )
        check_types(asked.access, self._checkout.name, old, new)
        if isinstance(self._target, Write):
            self._head = self._graph.log_head(self._checkout.name)
        self._rewriting.collect(nodes.index, nodes.db, self._spool, asked.progress)
        self._rewriting.apply(self._target, self._spool.__iter__, logged=logged)
        compiled = self._checkout.compiled
        for error in broken_rules(nodes.index, nodes.db, compiled, [old], self._spool.types):
            self._note(error)
        return self._plan()

    def _note(self, error: RuleError) -> None:
        """Note a violation of a rule, at the step that brought it."""
        handle = error.nodes[0]
        type_name, identifier = split_handle(handle)
        field = error.field.rpartition(".")[2].partition("[")[0]
        if self._findings.has(identifier, field):
            return
        at = self._rewriting.names.last_step(error.edge or type_name, field)
        message = error.message + _advice(self._asked.steps[at], error.code)
        value = showable(error.value)
        self._findings.note(Offense(at, handle, field, error.code, message, value))

    def _plan(self) -> ChangePlan:
        findings, spool, steps = self._findings, self._spool, self._asked.steps
        old, new = self._schemas[0], self._schemas[-1]
        plans: list[StepPlan] = []
        for at, step in enumerate(steps):
            tally = findings.tallies[at]
            effect, summary = effect_of(step, self._schemas[at], self._schemas[at + 1])
            plans.append(StepPlan(step, effect, summary, tally.nodes, tally.lost, tally.offending))
        end = self._page[0] + len(findings.offenses)
        return ChangePlan(
            self._checkout.name,
            self._head.commit,
            old.digest,
            new.digest,
            digest_of([self._head.commit, old.digest, msgspec.to_builtins(steps)]),
            tuple(plans),
            created=spool.created,
            updated=spool.count - spool.created - spool.deleted,
            deleted=spool.deleted,
            offending=findings.offending,
            offenses=tuple(findings.offenses),
            next=end if findings.offenses and end < findings.offending else None,
        )

    def describe(self, write: Write) -> None:
        """Say in the commit what the steps do."""
        write.record_renames(self._rewriting.names.renames())
        if not self._asked.message:
            write.describe(describe_steps(self._asked.steps, self._schemas))

    def write(self, checkout: Checkout, plan: ChangePlan) -> AppliedChanges | None:
        """Write what was planned in a draft; None if the branch has moved since."""
        asked = self._asked
        write = asked.make_write(
            self._graph,
            checkout,
            actor=asked.actor,
            message=asked.message,
            call=asked.call,
            expected_head=plan.head,
            key=asked.key,
            access=asked.access,
        )
        try:
            write.begin()
        except ConflictError:
            if asked.plan is not None:
                raise
            return None
        try:
            if write.replayed is None:
                self._rewriting.apply(write, self._spool.__iter__, logged=True)
                self.describe(write)
        except BaseException:
            write.abandon()
            raise
        return _finished(write, plan)
