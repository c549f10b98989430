"""Calls on a draft of the graph: dry runs, proposals, and capabilities with an idempotency key.

Such a call takes the path of every call, on a ``DraftGraph``: authorization, arguments, rules, the
handler and validation are the same, and a handler that reads its own writes sees them. Then

- a dry run (``dry_run``) reports the changes and drops the draft;
- a proposal (``propose``) lands the draft as a new branch, in one step;
- a call with ``expected_head`` or ``idempotency_key`` lands it on its branch, with the answer that
  a retry gets. If the branch has moved meanwhile, the call is made again.

Effects beyond the graph can't be held back, so a dry run or proposal of a capability that declares
any is refused. With a key, such a capability works on the graph itself, and its answer is kept
when it has ended.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final, cast

import msgspec

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import MAIN
from trails.engine.history.branches import (
    Versions,
    check_branch_budget,
    most_branches,
)
from trails.engine.history.commits import TOO_LARGE
from trails.engine.history.proposals import drop_merged_proposals
from trails.engine.session.context import GraphContext
from trails.engine.session.service import DraftService, GraphService
from trails.engine.visibility.refs import RefResolver, forkable, reader
from trails.engine.write.write import IdempotencyKey, land
from trails.errors import ConflictError, FieldError, ForbiddenError, TrailsError, ValidationError
from trails.log.protocol import head_moved
from trails.model.capabilities import Capability
from trails.model.changes.proposals import fits, proposal_name
from trails.model.history import Difference, MergeRequest
from trails.model.operations.drafts import DryRunResult, ProposalResult
from trails.model.operations.pages import Call
from trails.model.texts import count
from trails.model.writes import KeyedOutcome
from trails.request.entries import Request
from trails.request.fitting import Page

_CONTROLS: Final = frozenset({"dry_run", "propose", "expected_head", "idempotency_key"})
_LISTED: Final = 200
"""Changed nodes that an answer lists."""
_VIOLATIONS: Final = 20
ATTEMPTS: Final = 4
"""How often a call with a key is made if others move its branch."""
_ON_GRAPH: Final = re.compile(
    r"(adds|changes|creates|deletes|links|merges|removes|replaces|sets|unlinks|updates|writes)\b"
)
_MERGE: Final = "branch_merge"
_ANSWER: Final = "answer"
"""What a retry gets, as JSON text."""


class WriteControls(msgspec.Struct, frozen=True):
    """How a write is made."""

    dry_run: bool = False
    propose: bool = False
    expected_head: str | None = None
    idempotency_key: str | None = None


def write_controls(request: Request) -> WriteControls | None:
    """How a call is made on a draft; None if it is made directly."""
    names, given = request.entry.controls.names, request.arguments
    if "dry_run" not in names:
        _check_merge(request)
        return None
    asked = not _CONTROLS.isdisjoint(given)
    if not asked and (request.proposes == "if_asked" or "propose" not in names):
        return None
    found = _read(request)
    if found.propose and found.dry_run:
        return msgspec.structs.replace(found, propose=False)
    own = request.entry.arguments.names
    if found.propose:
        # A proposal is bound to its key itself: the branch is another one each time.
        settled = {
            each: given[each]
            for each in ("expected_head", "idempotency_key")
            if each in own and isinstance(given.get(each), str)
        }
        return msgspec.structs.replace(found, **settled)
    keyed = found.expected_head is not None or found.idempotency_key is not None
    return found if found.dry_run or keyed else None


def _read(request: Request) -> WriteControls:
    controls, given = request.entry.controls, request.arguments
    errors: list[FieldError] = []
    wanted = _CONTROLS & set(controls.names)
    values = controls.check({name: given.get(name) for name in controls.names}, errors)
    errors = [each for each in errors if each.field in wanted]
    if errors:
        raise ValidationError(errors)
    propose = cast(bool | None, values.get("propose"))
    if "propose" in wanted and _branch(given) == MAIN and propose is not True:
        propose = _default(request, asked=propose)
    return WriteControls(
        bool(values.get("dry_run")),
        bool(propose),
        cast(str | None, values.get("expected_head")),
        cast(str | None, values.get("idempotency_key")),
    )


def _default(request: Request, *, asked: bool | None) -> bool:
    """Whether a write to main that does not ask for it is a proposal."""
    if request.proposes == "if_asked":
        return False
    if asked is None:
        return True
    if request.proposes == "unless_permitted":
        return False
    raise ForbiddenError(
        "propose: writes of this caller to main are proposals ([graphs.<id>.mcp] writes), and no "
        "policy permits direct ones; leave propose out"
    )


def _check_merge(request: Request) -> None:
    """Refuse to approve one's own proposals, where nothing else than the setting decides."""
    given = request.arguments
    if request.proposes != "always" or request.entry.tool.name != _MERGE or given.get("dry_run"):
        return
    if (given.get("target") or MAIN) == MAIN:
        raise ForbiddenError(
            "writes of this caller to main are proposals ([graphs.<id>.mcp] writes), so another "
            "caller merges them; call again with dry_run to see what a merge would do"
        )


def _branch(given: Mapping[str, object]) -> str:
    return str(given.get("branch") or MAIN)


def outside_effects(source: object, types: Collection[str]) -> list[str]:
    """The declared side effects of a capability that are not changes of the graph.

    A change of the graph is ``graph``, or a text that begins with a verb of change and names a
    type: ``creates a Requirement``.
    """
    if not isinstance(source, Capability):
        return []
    return [
        each
        for each in source.descriptor.side_effects
        if each != "graph"
        and not (_ON_GRAPH.match(each) and not set(re.findall(r"\w+", each)).isdisjoint(types))
    ]


class DraftedCall:
    """One call on a draft, from opening it to the answer."""

    def __init__(self, service: GraphService, request: Request, controls: WriteControls) -> None:
        self._service = service
        self._request = request
        self._controls = controls
        self._target = _branch(request.arguments)
        self._stack = ExitStack()
        self._lock = threading.Lock()
        """Held by each step, so that the draft is not closed in the middle of one."""
        self._draft: DraftService
        self._is_direct = False
        """Whether the handler works on the graph itself, since it can't be made again."""
        self.replayed: bytes | None = None
        """The answer of the first call with the same key."""
        self.handler: Callable[..., object]

    # --- before the handler -------------------------------------------------------------

    def open(self) -> GraphContext | None:
        """The context of the call on a draft; None if its key has an outcome."""
        with self._lock:
            return self._open()

    def _open(self) -> GraphContext | None:
        request, controls = self._request, self._controls
        self._check_effects()
        source, branch = self._source()
        request.commit = source.head.commit
        key = self._key()
        first = None if key is None else key.find()
        if key is not None and first is not None:
            key.check(first)
            self.replayed = str(first.result.get(_ANSWER, "{}")).encode()
            return None
        entry, makes = request.entry, request.entry.handler_on
        self.handler, service, start = entry.handler, self._service, request.commit
        if not self._is_direct:
            service = self._draft = self._stack.enter_context(service.draft(source, branch))
            start = self._draft.graph.start.commit
            self.handler = entry.handler if makes is None else makes(service)
        if controls.expected_head not in {None, start}:
            raise head_moved(self._target, str(controls.expected_head), start)
        ctx = service.context(
            request.call.actor,
            branch,
            registry=request.registry,
            call=request.call,
            access=request.rights,
            permits=request.rights.permits(entry.gate)
            if "branch" in entry.controls.names
            else None,
        )
        request.ctx = ctx
        return ctx

    def _check_effects(self) -> None:
        entry = self._request.entry
        found = outside_effects(entry.source, self._request.registry.schema.by_name)
        speculative = self._controls.dry_run or self._controls.propose
        self._is_direct = bool(found) and not speculative
        if not found or not speculative:
            return
        name = "dry_run" if self._controls.dry_run else "propose"
        self._request.prepared = True  # no other arguments would help
        message = (
            f"{name}: {entry.tool.name} has effects beyond the graph ({', '.join(found)[:200]}), "
            "which can't be held back or undone; call it directly"
        )
        raise ValidationError([FieldError(name, "side_effects", message)])

    def _source(self) -> tuple[Checkout, str]:
        """The checkout that the draft begins with, and the branch that the call works on."""
        request, target = self._request, self._target
        access, graph, entry = request.rights, self._service.graph, request.entry
        if request.arguments.get("snapshot") is not None:
            message = "snapshot: the past can't be changed; leave it out, or leave dry_run out"
            raise ValidationError([FieldError("snapshot", "unknown_field", message)])
        if self._controls.propose:
            name = proposal_name(request.call.actor, entry.tool.name, target)
            if not fits(name):
                message = f"propose: the name of branch {target[:100]!r} is too long to propose to"
                raise ValidationError([FieldError("propose", "max_length", message, target[:100])])
            refs = forkable(graph, access, name)
            readable = RefResolver(graph, None if access.unrestricted else reader(access))
            source = readable.checkout(target)
            refs.resolve(target)
            return source, name
        if "branch" in entry.controls.names:
            permits = request.rights.permits(entry.gate)
            ctx = self._service.context(
                request.call.actor,
                target,
                access=access,
                permits=permits,
                registry=request.registry,
            )
            return ctx.checkout, target
        # The handler decides about the branch, which may have to be forked.
        if "branch" in entry.arguments.names and RefResolver(graph).has(target):
            return graph.checkout(target), target
        start = request.arguments.get("from")
        if isinstance(start, str) and RefResolver(graph).has(start):
            return graph.checkout(start), start
        return graph.main, MAIN

    def arguments(self, prepared: dict[str, object]) -> dict[str, object]:
        """The arguments of the handler; those of a proposal name its branch."""
        own = self._request.entry.arguments.names
        if self._controls.propose:
            changed: dict[str, object] = {
                "branch": self._draft.graph.branch,
                "from": None,
                "expected_head": None,
                "idempotency_key": None,
            }
            prepared |= {name: value for name, value in changed.items() if name in own}
        return prepared

    def _key(self) -> IdempotencyKey | None:
        request, controls = self._request, self._controls
        if controls.idempotency_key is None or controls.dry_run:
            return None
        actor = request.call.actor
        key = IdempotencyKey(self._service.graph, self._target, actor, controls.idempotency_key)
        given = {name: value for name, value in request.arguments.items() if name not in _CONTROLS}
        key.request.add(["call", request.entry.tool.name, given, controls.propose])
        return key

    # --- after the handler --------------------------------------------------------------

    def finish(self, result: object, body: bytes) -> object:
        """The answer: the result of the handler itself, or a report that contains it.

        ``body`` is the result as JSON. OutdatedError says that the call has to be made again.
        """
        with self._lock:
            return self._finish(result, body)

    def _finish(self, result: object, body: bytes) -> object:
        call, controls = self._request.call, self._controls
        if controls.dry_run:
            call.committed, call.statements, call.note = False, 0, "dry run"
            call.generated.clear()
            return self._dry_run(body)
        if controls.propose:
            return self._propose(body)
        key = self._key()
        if self._is_direct:
            if key is not None:
                with self._service.graph.appending(call.actor):
                    key.keep({_ANSWER: body.decode()})
            return result
        keyed = None if key is None else _keyed(key, self._draft, body)
        land(self._draft.graph, actor=call.actor, call=call, keyed=keyed)
        return result

    def _dry_run(self, body: bytes) -> Page:
        draft = self._draft.graph
        source = self._request.entry.source
        shown = body if isinstance(source, Capability) else _without_commit(body)
        entries = draft.log.entries
        branch = entries[-1].commit.branch if entries else self._target
        report = DryRunResult(
            dry_run=True,
            branch=branch,
            head=draft.start.commit,
            result=msgspec.Raw(shown),
            **_changes(self._difference()),  # type: ignore[arg-type]
        )
        return Page(report, "changes", lambda _: None, _total(report))

    def _propose(self, body: bytes) -> Page:
        draft, call = self._draft.graph, self._request.call
        difference = self._difference()
        entries = draft.log.entries
        name = draft.branch if entries else None
        commit = entries[-1].commit.id if entries else None
        report = ProposalResult(
            proposal=name,
            target=self._target,
            head=draft.start.commit,
            commit=commit,
            result=msgspec.Raw(body),
            merge=None if name is None else Call(_MERGE, {"source": name, "target": self._target}),
            discard=None if name is None else Call("branch_delete", {"name": name, "force": True}),
            **_changes(difference),  # type: ignore[arg-type]
        )
        if name is None:
            report = msgspec.structs.replace(
                report, notice="The call changes nothing, so there is nothing to propose."
            )
            call.committed = False
        key, graph, most = (
            self._key(),
            self._service.graph,
            most_branches(self._service.graph, call),
        )
        keyed = None if key is None else _keyed(key, self._draft, msgspec.json.encode(report))
        if name is not None or keyed is not None:
            drop_merged_proposals(graph, call.actor)
            check = partial(check_branch_budget, graph, call.actor, most)
            land(draft, actor=call.actor, call=call, keyed=keyed, check=check)
        return Page(
            self._with_violations(report),
            "changes",
            lambda at: (
                None
                if commit is None or at >= _total(report)
                else Call("commit_get", {"commit": commit})
            ),
            _total(report),
        )

    def _difference(self) -> Difference:
        draft, request = self._draft, self._request
        entries, start = draft.graph.log.entries, draft.graph.start.commit
        if not entries:
            return Difference(start, start, 0, 0, 0, (), truncated=False)
        end, branch = entries[-1].commit.id, entries[-1].commit.branch
        large = sum(each.commit.added + each.commit.removed for each in entries) > TOO_LARGE
        if large or not request.rights.may("Read", branch):
            return Difference(start, end, 0, 0, 0, (), truncated=True)
        versions = Versions(draft.graph, request.call.actor, None, request.rights)
        return versions.diff(start, branch, limit=_LISTED)

    def _with_violations(self, report: ProposalResult) -> ProposalResult:
        """What the target, if it has moved, would refuse now."""
        graph, request = self._service.graph, self._request
        if report.proposal is None or graph.log_head(self._target).commit == report.head:
            return report
        versions = Versions(graph, request.call.actor, None, request.rights)
        try:
            asked = MergeRequest(source=report.proposal, target=self._target, dry_run=True)
            found = versions.merge(asked).conflicts
        except TrailsError:
            return report  # the caller may not merge, so it may not see what would happen
        said = tuple(each.message for each in found[:_VIOLATIONS])
        return msgspec.structs.replace(report, violations=said)

    def close(self) -> None:
        """Drop the draft."""
        with self._lock:
            self._stack.close()


def busy(branch: str) -> ConflictError:
    """The error for a call that was made again too often."""
    return ConflictError(
        f"others changed branch {branch!r} {count(ATTEMPTS, 'time')} while this call was worked "
        "out; nothing was written. Try again",
        branch=branch,
    )


def _changes(difference: Difference) -> dict[str, object]:
    unlisted = difference.truncated and not difference.changes
    return {
        "notice": "The changes are too many to be listed, or you may not read them."
        if unlisted
        else None,
        "created": difference.created,
        "updated": difference.updated,
        "deleted": difference.deleted,
        "truncated": difference.truncated,
        "changes": difference.changes,
    }


def _total(report: DryRunResult | ProposalResult) -> int:
    return report.created + report.updated + report.deleted


def _keyed(key: IdempotencyKey, draft: DraftService, body: bytes) -> KeyedOutcome:
    entries = draft.graph.log.entries
    return key.outcome({_ANSWER: body.decode()}, entries[-1].commit.id if entries else None)


def _without_commit(body: bytes) -> bytes:
    """The result of a built-in, whose commit was not made."""
    found = msgspec.json.decode(body)
    if isinstance(found, dict) and found.get("commit") is not None:
        found["commit"] = None
    return msgspec.json.encode(found)
