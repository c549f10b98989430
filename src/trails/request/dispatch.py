"""Run a tool: open its context, check its arguments and rules, call it, shape the result.

Every call is recorded as an activity, whatever its outcome. An ``async def`` handler runs on the
event loop and a plain one in a thread, so that other requests do not wait for it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec.structs import replace

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.ancestry import Permits
from trails.engine.graph.checkouts import unknown_commit
from trails.engine.graph.graph import MAIN
from trails.engine.session.arguments import check_rules, checks_of
from trails.engine.session.context import GraphContext, recording
from trails.engine.session.results import conformer, describe_cost, plain
from trails.engine.session.service import GraphService
from trails.errors import FieldError, LimitError, NotFoundError, ValidationError
from trails.imports import later
from trails.model.capabilities import Capability
from trails.model.operations.pages import Call
from trails.model.results import LEAST_CHARS, MOST_CHARS, Failure, Outcome, Success
from trails.request.answers import Shape, failure_of, invalid, near_name, shape_object
from trails.request.entries import OPEN_GATE, Request, activity_kind
from trails.request.fitting import Page, fit, fit_failure
from trails.request.threads import Threads

if TYPE_CHECKING:
    from trails.engine.write import write
    from trails.request import drafted as request_drafted
    from trails.request import repair
    from trails.request.drafted import DraftedCall, WriteControls
else:
    request_drafted = later("trails.request.drafted")
    write = later("trails.engine.write.write")
    repair = later("trails.request.repair")

T = TypeVar("T")


class Dispatch:
    """Runs the requests of one graph."""

    def __init__(self, service: GraphService, threads: Threads) -> None:
        self._service = service
        self._activities = service.graph.activities
        self._threads = threads

    async def run(self, request: Request) -> Outcome:
        """The outcome of a request; raises nothing except for cancellation."""
        call, entry = request.call, request.entry
        try:
            controls = request_drafted.write_controls(request)
        except Exception as error:  # noqa: BLE001 - every error becomes a failure here
            return self._fail(request, error)
        if controls is not None:
            return await self._run_drafted(request, controls)
        if entry.place != "loop":
            if entry.place == "inline" and self._is_near(request):
                return self._call(request)
            return await self._in_thread(call, self._call, request)
        try:  # an ``async def`` handler; only what may wait for the disk goes to a thread
            if self._is_near(request):
                ctx = self._open(request)
            else:
                ctx = await self._in_thread(call, self._open, request)
            if entry.judged is not None:
                prepared = await self._in_thread(call, self._prepare, request, ctx)
            else:
                prepared = self._prepare(request, ctx)
            result = await cast(Awaitable[object], entry.handler(ctx, **prepared))
            if call.committed and not call.recorded:
                return await self._in_thread(call, self._succeed, request, result)
            return self._succeed(request, result)
        except asyncio.CancelledError:
            call.abandoned = True
            self._activities.end(call, "cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - every error becomes a failure here
            if entry.judged is not None and not request.prepared:
                # Corrected arguments are checked against the rules too, before they are suggested.
                return await self._in_thread(call, self._fail, request, error)
            return self._fail(request, error)

    async def _run_drafted(self, request: Request, controls: WriteControls) -> Outcome:
        """Make a call on a draft of the graph."""
        call = request.call
        for _ in range(request_drafted.ATTEMPTS):
            drafted = request_drafted.DraftedCall(self._service, request, controls)
            try:
                if request.entry.place != "loop":
                    return await self._in_thread(call, self._call_drafted, request, drafted)
                _read_controls(request)
                if await self._in_thread(call, drafted.open) is None:
                    return self._replay(request, drafted)
                prepared = await self._in_thread(call, self._prepare_drafted, request, drafted)
                result = await cast(Awaitable[object], drafted.handler(request.ctx, **prepared))
                return await self._in_thread(call, self._finish_drafted, request, drafted, result)
            except write.OutdatedError:
                call.generated.clear()
            except asyncio.CancelledError:
                call.abandoned = True
                self._activities.end(call, "cancelled")
                raise
            except Exception as error:  # noqa: BLE001 - every error becomes a failure here
                return await self._in_thread(call, self._fail, request, error)
            finally:
                if request.entry.place == "loop":
                    # A step may still run in a thread, if the caller has gone away.
                    await asyncio.shield(asyncio.to_thread(drafted.close))
        return self._fail(
            request, request_drafted.busy(str(request.arguments.get("branch") or MAIN))
        )

    def _call_drafted(self, request: Request, drafted: DraftedCall) -> Outcome:
        """Run a plain handler in this thread, on a draft."""
        try:
            _read_controls(request)
            if drafted.open() is None:
                return self._replay(request, drafted)
            prepared = self._prepare_drafted(request, drafted)
            result = run_handler(drafted.handler, cast(GraphContext, request.ctx), prepared)
            return self._finish_drafted(request, drafted, result)
        except write.OutdatedError:
            raise
        except Exception as error:  # noqa: BLE001 - every error becomes a failure here
            return self._fail(request, error)
        finally:
            drafted.close()

    def _prepare_drafted(self, request: Request, drafted: DraftedCall) -> dict[str, object]:
        return drafted.arguments(self._prepare(request, cast(GraphContext, request.ctx)))

    def _finish_drafted(self, request: Request, drafted: DraftedCall, result: object) -> Outcome:
        ctx = cast(GraphContext, request.ctx)
        body = request.entry.shape(result, ctx.shown)
        answer = drafted.finish(result, body)
        shape = request.entry.shape if answer is result else shape_object(ctx.names)
        return self._succeed(request, answer, shape)

    def _replay(self, request: Request, drafted: DraftedCall) -> Outcome:
        """Answer as the first call with the same key was answered."""
        body = cast(bytes, drafted.replayed)
        if request.max_chars is not None:
            body = fit(None, body, request.max_chars, _again(request, len(body)))
        self._end(request, "ok", "replayed")
        return _success(request, body)

    def _call(self, request: Request) -> Outcome:
        """Run a plain handler in this thread."""
        try:
            ctx = self._open(request)
            prepared = self._prepare(request, ctx)
            return self._succeed(request, run_handler(request.entry.handler, ctx, prepared))
        except Exception as error:  # noqa: BLE001 - every error becomes a failure here
            return self._fail(request, error)

    async def _in_thread(self, call: CallRecord, work: Callable[..., T], *arguments: object) -> T:
        dropped = partial(self._activities.end, call, "cancelled")
        try:
            return await self._threads.run(call.actor, work, *arguments, dropped=dropped)
        except asyncio.CancelledError:
            call.abandoned = True
            raise

    # --- the steps -----------------------------------------------------------------

    def _is_near(self, request: Request) -> bool:
        """Whether the context of a request can be opened without reading the disk."""
        arguments = request.arguments
        if not arguments or "branch" not in request.entry.controls.names:
            return True
        branch = arguments.get("branch")
        return arguments.get("snapshot") is None and (
            branch is None or (isinstance(branch, str) and self._service.graph.has_checkout(branch))
        )

    def _open(self, request: Request) -> GraphContext:
        """The context of a request: an actor on a branch, or at a past commit."""
        entry, call, rights = request.entry, request.call, request.rights
        branch, snapshot, controls = MAIN, None, entry.controls
        permits: Permits | None = None
        if "branch" in controls.names:
            # Calls that take no branch check permissions in their handler.
            permits = rights.permits(entry.gate)
        if not controls.names.isdisjoint(request.arguments):
            branch, snapshot = _read_controls(request)
        ctx = self._service.context(
            call.actor,
            branch,
            snapshot,
            registry=request.registry,
            call=call,
            access=rights,
            permits=permits,
        )
        if snapshot is not None and entry.gate.whole and not ctx.visibility.reads_all:
            raise unknown_commit(snapshot)
        if "branch" in controls.names:
            request.commit = ctx.checkout.head.commit
        request.ctx = ctx
        return ctx

    def _prepare(self, request: Request, ctx: GraphContext) -> dict[str, object]:
        entry, own = request.entry, request.arguments
        controls = entry.controls.names
        if not controls.isdisjoint(own):
            own = {name: value for name, value in own.items() if name not in controls}
        prepared = entry.arguments.prepare(ctx, own, controls)
        request.prepared = True
        judged = entry.judged
        if judged is not None:
            check_rules(ctx, judged, prepared)
        return prepared

    def _succeed(self, request: Request, result: object, shape: Shape | None = None) -> Outcome:
        entry, call, ctx = request.entry, request.call, request.ctx
        if isinstance(result, Page):
            call_ = Call(entry.tool.name, request.arguments)
            result = replace(result, call=call_, start=request.offset)
        shape = shape or entry.shape
        body, largest = shape(result, None if ctx is None else ctx.shown), entry.largest
        source = entry.source
        if isinstance(source, Capability):
            call.note = describe_cost(source, call, body) if source.descriptor.cost else ""
        most = request.max_chars
        if most is not None and len(body) > most and "max_chars" not in entry.arguments.names:
            body = fit(result, body, most, _again(request, len(body)))
        if len(body) > largest:
            raise LimitError(
                f"the result of {entry.tool.name} has {len(body)} bytes, and a result may have "
                f"{largest}; ask for less: fewer rows or fields, a narrower filter, or a page at a "
                "time",
                limit=largest,
                size=len(body),
            )
        self._end(request, "ok", call.note)
        return _success(request, body)

    def _end(self, request: Request, outcome: str, detail: str) -> None:
        """Record the activity; calls that need no right are summed up in one."""
        if request.entry.gate == OPEN_GATE and not request.call.committed:
            self._activities.refuse(request.call, outcome, detail, answered=outcome)
        else:
            self._activities.end(request.call, outcome, detail)

    def _fail(self, request: Request, error: Exception) -> Failure:
        name = request.entry.tool.name
        try:
            if isinstance(error, ValidationError) and not request.prepared:
                failure = invalid(error, repair.repair_request(request, error))
            else:
                failure = failure_of(error, name)
        except Exception as mishap:  # noqa: BLE001 - a call is always answered
            failure = failure_of(mishap, name)
        if request.max_chars is not None:
            failure = fit_failure(failure, request.max_chars)
        self._end(request, failure.code, failure.message)
        return failure


def _success(request: Request, body: bytes) -> Success:
    reached = request.call.reached
    return Success(body, reached, made=True) if reached else Success(body, request.commit)


def _read_controls(request: Request) -> tuple[str, str | None]:
    """Check the control arguments: the branch and the snapshot, and the bounds of the answer."""
    errors: list[FieldError] = []
    controls, given = request.entry.controls, request.arguments
    found = controls.check({name: given.get(name) for name in controls.names}, errors)
    if errors:
        raise ValidationError(errors)
    if found.get("max_chars") is not None:
        request.max_chars = cast(int, found["max_chars"])
    request.offset = cast(int, found.get("offset") or 0)
    return str(found.get("branch") or MAIN), cast(str | None, found.get("snapshot"))


def _again(request: Request, size: int) -> Call | str:
    """How to get all of a result that is not a page."""
    tool = request.entry.tool
    if not tool.hints.read_only:
        return "The call was made; do not repeat it for the rest, but read what it changed."
    if size > MOST_CHARS or "max_chars" not in request.entry.controls.names:
        return "Ask for less: fewer items or fields, or a narrower filter."
    return Call(tool.name, {**request.arguments, "max_chars": max(size, LEAST_CHARS)})


def call_capability(ctx: GraphContext, name: str, arguments: Mapping[str, object]) -> object:
    """Call a capability on an open context, for ``App.call``.

    Arguments, rules and activities work as in a request. Errors are raised unchanged, and the
    result is in JSON form, without a size limit.
    """
    capability = ctx.registry.capability(name)
    if capability is None:
        hint = near_name(name, ctx.registry.capabilities)
        raise NotFoundError(f"there is no capability {name!r}{hint}", capability=name)
    descriptor = capability.descriptor
    with recording(ctx, name, activity_kind(capability), reads=descriptor.reads_only) as inner:
        checks = checks_of(ctx.registry, ctx.declared)
        prepared = checks.of_capability(capability).prepare(inner, arguments)
        check_rules(inner, capability, prepared)
        result = run_handler(capability.handler, inner, prepared)
        shown = plain(ctx.names, conformer(name, descriptor.output_shape)(result), ctx.shown)
        if ctx.call is None and inner.call is not None:
            inner.call.note = describe_cost(capability, inner.call, shown)
        return shown


def run_handler(
    handler: Callable[..., object], ctx: GraphContext, prepared: Mapping[str, object]
) -> object:
    """Run a handler to its end in this thread, even if it returns a coroutine."""
    result = handler(ctx, **prepared)
    return asyncio.run(result) if inspect.iscoroutine(result) else result
