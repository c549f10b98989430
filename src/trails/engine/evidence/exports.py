"""Exports as jobs: pinned to a commit, written beside other work, continued after a restart.

An ``Export`` belongs to the actor who started it; for all others it does not exist. What it shows
was filtered by what that actor could see at the start, and each use asks again whether that may
still be shown. One thread writes all exports of a graph, a part at a time: actors take turns,
and short work goes first. The writer's lock is not held. Parts follow the order of handles, so
an export that is continued in another process, on an index that was rebuilt, gives the same bytes.
"""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Literal
from weakref import WeakKeyDictionary

import msgspec

from trails.authoring.queries import Q
from trails.engine.evidence.export_files import (
    DamagedError,
    ExportFiles,
    ExportRequest,
    ExportSpec,
    hidden_of,
)
from trails.engine.graph.ancestry import Permits
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.session.context import GraphContext
from trails.engine.session.graph_session import GraphSession
from trails.engine.transfer.files import (
    RECORD_FORMATS,
    RecordWriter,
    check_format,
    record_writer,
)
from trails.engine.visibility.access import Access
from trails.engine.visibility.refs import RefResolver, snapshot_checkout, usable
from trails.errors import (
    BudgetError,
    BusyError,
    ConflictError,
    NotFoundError,
    QueryError,
    TrailsError,
)
from trails.model.capabilities import Action
from trails.model.fairness import WorkInProgress, with_pauses
from trails.model.history import GENESIS
from trails.model.names import suggest
from trails.model.nodes import Condition, Group, NodeState, Selection
from trails.model.operations.records import ExportProblem, ExportStatus
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.model.upkeep import ExportLimits
from trails.model.visibility import FULL, Visibility
from trails.views.terms import Terms

FOLDER: Final = "exports"
"""Where exports are, in the folder of a graph."""
FORMATS: Final = (*RECORD_FORMATS, "csv")
"""The formats that can be written part by part."""
_IS_HANDLE: Final = re.compile(r"export-[0-9a-f]{32}").fullmatch
_RECORDS: Final = 1000
_BYTES: Final = 1 << 20
"""A part ends after so many records, or so many bytes of stored documents."""
_IDLE: Final = 3600.0
"""Seconds after which the thread looks at the clock again, at the latest."""
_logger: Final = logging.getLogger("trails")
State = Literal["waiting", "running", "done", "failed"]


class PinnedAccess(msgspec.Struct, frozen=True):
    """An ``Access`` that sees what an actor could see when its export began, and nothing else."""

    seen: Visibility

    @property
    def unrestricted(self) -> bool:
        """Whether nothing is hidden."""
        return self.seen.reads_all

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Nothing but reading."""
        del branch, target
        return action == "Read"

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """The same everywhere."""
        del schema, branches
        return self.seen


class ExportPlan:
    """The records and fields that a request asks for, among visible types."""

    def __init__(self, kg: GraphSession, request: ExportRequest) -> None:
        """Raises what is wrong with the request."""
        check_format(request.format, FORMATS)
        schema = kg.schema
        for name in request.types:
            if name not in schema.by_name:
                hint = suggest(name, schema.by_name)
                raise NotFoundError(f"there is no type {name[:100]!r}; {hint}")
        self.where = _conditions(request)
        for name in request.types:
            kg.select(Selection(name, self.where, limit=0))  # refuses what can't be compared
        roots = request.types or tuple(each.name for each in schema.types if each.extends is None)
        self.selected: dict[str, str] = {}
        """Type → the given type whose conditions its records must meet."""
        for root in roots:
            for name in schema.family(root):
                self.selected.setdefault(name, root)
        self.names = tuple(each for each in schema.by_name if each in self.selected)
        self.topmost = [
            each for each in self.names if schema.by_name[each].extends not in self.selected
        ]
        self._fields = _chosen_fields(schema, self.names, request.fields)

    def restrict(self, schema: Schema) -> Schema:
        """The types with the chosen fields only."""
        if not self._fields:
            return schema
        return Schema.of(
            msgspec.structs.replace(each, fields=tuple(_kept(each, self._fields)))
            for each in schema.types
        )

    def restrict_record(self, state: NodeState, schema: Schema) -> NodeState:
        """A record with the chosen fields only; ``schema`` has been restricted."""
        if not self._fields:
            return state
        known = schema.by_name[state.type].by_name
        values = {name: value for name, value in state.values.items() if name in known}
        return NodeState(state.type, state.id, values)


def _conditions(request: ExportRequest) -> Condition | Group | None:
    if not request.where:
        return None
    if not request.types:
        raise QueryError("where compares fields, so it needs types; say which types to export")
    return Q(**request.where).tree


def _chosen_fields(schema: Schema, names: Iterable[str], fields: Iterable[str]) -> frozenset[str]:
    known = {field: None for name in names for field in schema.by_name[name].by_name}
    for name in fields:
        if name not in known:
            raise QueryError(f"no exported type has a field {name[:100]!r}; {suggest(name, known)}")
    return frozenset(fields)


def _kept(descriptor: TypeDescriptor, fields: frozenset[str]) -> Iterator[PredicateDescriptor]:
    """The chosen fields and those that identify a record."""
    ends = ("source", "target") if descriptor.edge is not None else ()
    for field in descriptor.fields:
        if field.key or field.name in fields or field.name in ends:
            yield field


class Export:
    """One export."""

    def __init__(self, files: ExportFiles, pinned: Checkout | None = None) -> None:
        self.files = files
        self.spec = files.spec
        self.pinned = pinned
        """What it reads; None: found again by its commit."""
        self.total: int | None = None
        """How many records there will be, if that is known."""
        self.removed = False
        self.ended = threading.Event()
        self.writing: _Writing | None = None
        if files.outcome is not None:
            self.ended.set()

    @property
    def state(self) -> State:
        """Where it is on its way."""
        outcome = self.files.outcome
        if outcome is None:
            return "running" if self.writing is not None else "waiting"
        return "failed" if outcome.code else "done"

    def describe(self) -> ExportStatus:
        """Its status, for callers."""
        files, spec = self.files, self.spec
        state, outcome, last = self.state, files.outcome, files.last
        done = state == "done"
        failed = None if outcome is None or done else outcome
        return ExportStatus(
            export=spec.handle,
            state=state,
            format=spec.request.format,
            commit=spec.commit,
            records=last.records,
            total=last.records if done else self.total,
            bytes=last.bytes,
            created=_time(spec.created),
            expires=_time(spec.expires),
            chars=last.chars if done else None,
            sha256=outcome.sha256 if outcome is not None and done else None,
            error=None if failed is None else ExportProblem(failed.code, failed.message),
        )


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class _Writing:
    """Writes one export, part by part."""

    def __init__(self, graph: Graph, export: Export) -> None:
        spec, self._files = export.spec, export.files
        checkout = export.pinned or snapshot_checkout(graph, graph.ancestry.commit(spec.commit))
        access = PinnedAccess(spec.visibility)
        self._kg = kg = GraphSession(graph, checkout, checkout.schema, spec.actor, access=access)
        self._plan = plan = ExportPlan(kg, spec.request)
        self._schema = plan.restrict(kg.schema)
        self._writer: RecordWriter = record_writer(
            spec.request.format,
            Terms(self._schema, graph.names),
            plan.names,
            escape_formulas=spec.request.escape_formulas,
        )
        if plan.where is None:
            export.total = sum(kg.count(Selection(name)) for name in plan.topmost)
        self._files.open()

    def step(self) -> bool:
        """Write a part; False if that was the last one."""
        files, plan = self._files, self._plan
        last = files.last
        if not last.digest and self._writer.head:
            files.add(self._writer.head, 0, 0, "")
            return True
        if last.type >= len(plan.names):
            files.finish()
            return False
        name = plan.names[last.type]
        selection = Selection(plan.selected[name], plan.where)
        rows, after = self._kg.page_by_handle(selection, name, last.after, _RECORDS, _BYTES)
        states = [plan.restrict_record(each, self._schema) for each in rows]
        block = b"".join(self._writer.records(with_pauses(states)))
        following = (last.type + 1, "") if after is None else (last.type, after)
        files.add(block, len(states), *following)
        return True


class Exports:
    """The exports of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._lock = threading.Condition()
        self._known: dict[str, Export] = {}
        self._queues: OrderedDict[str, deque[Export]] = OrderedDict()
        """Unfinished exports by actor; the first of each takes its turn."""
        self._thread: threading.Thread | None = None
        self._current: Export | None = None
        self._closed = False
        self.now: Callable[[], float] = time.time
        self._temporary = graph.folder is None or graph.read_only is not None
        if not self._temporary:
            self._load()

    @cached_property
    def _folder(self) -> Path:
        """Where they are; those of a graph in memory or read-only are gone with the process."""
        if self._graph.folder is None or self._temporary:
            return Path(mkdtemp(prefix="trails-exports-"))
        return self._graph.folder / FOLDER

    def _load(self) -> None:
        """Find the exports of earlier processes."""
        for folder in sorted(self._folder.glob("*")):
            files = ExportFiles.load(folder) if _IS_HANDLE(folder.name) else None
            if files is None or files.spec.handle != folder.name:
                shutil.rmtree(folder, ignore_errors=True)  # its creation was not finished
            else:
                self._known[folder.name] = Export(files)

    # --- start, find, remove ---------------------------------------------------------------

    def start(
        self, ctx: GraphContext, request: ExportRequest, limits: ExportLimits, *, limited: bool
    ) -> Export:
        """Start an export of what the actor of a context sees, or find the same one.

        ``limited`` says whether the limits of one actor apply.
        """
        ExportPlan(ctx.kg, request)
        if ctx.kg.head.commit == GENESIS:
            raise QueryError("there is nothing to export: this branch has no commits yet")
        spec = self._spec(ctx, request, limits, limited=limited)
        self.sweep()
        with self._lock:
            for each in self._known.values():
                if each.spec.is_same(spec) and each.state != "failed":
                    self._enqueue(each)
                    return each
            if limited:
                self._check_limits(spec.actor, limits)
            files = ExportFiles.create(self._folder / spec.handle, spec)
            export = self._known[spec.handle] = Export(files, self._pin(ctx))
            self._enqueue(export)
        return export

    def _spec(
        self, ctx: GraphContext, request: ExportRequest, limits: ExportLimits, *, limited: bool
    ) -> ExportSpec:
        now = self.now()
        return ExportSpec(
            handle=f"export-{secrets.token_hex(16)}",
            actor=ctx.actor,
            request=request,
            commit=ctx.kg.head.commit,
            branch=ctx.branch or None,
            created=now,
            expires=now + limits.hours * 3600,
            most_bytes=limits.bytes if limited else 0,
            **hidden_of(ctx.visibility),  # type: ignore[arg-type]
        )

    def _pin(self, ctx: GraphContext) -> Checkout | None:
        """What is read where snapshots can't be made: nothing changes there."""
        return ctx.checkout if self._graph.read_only is not None else None

    def _check_limits(self, actor: str, limits: ExportLimits) -> None:
        own = [each for each in self._known.values() if each.spec.actor == actor]
        kept = [each for each in own if each.state != "failed"]
        used = sum(each.files.last.bytes for each in kept)
        for name, have, most in (
            ("exports", len(kept), limits.exports),
            ("export_mb", used >> 20, limits.bytes >> 20),
        ):
            if 0 < most <= have:
                first = min(kept, key=lambda each: each.spec.expires)
                raise BudgetError(
                    f"{actor} has {len(kept)} exports with {used >> 20} MiB, and {most} are "
                    f"allowed ({name} in [graphs.<id>.budgets]); discard one that is not needed "
                    f"any more, like {first.spec.handle}, or wait until it expires at "
                    f"{_time(first.spec.expires)}",
                    limit=name,
                    allowed=most,
                    used=have,
                    retry_after=max(1, int(first.spec.expires - self.now())),
                )

    def find(self, actor: str, handle: str, access: Access, permits: Permits | None) -> Export:
        """An export of this actor; one that is not finished goes on.

        ``permits`` selects the branches that the actor may export. Raises ConflictError if the
        export holds something that the actor may not see any more.
        """
        self.sweep()
        with self._lock:
            export = self._known.get(handle)
        if export is None or export.spec.actor != actor:
            raise unknown_export(handle)
        self._check_access(export.spec, access, permits)
        with self._lock:
            if not export.removed:
                self._enqueue(export)
        return export

    def _check_access(self, spec: ExportSpec, access: Access, permits: Permits | None) -> None:
        graph = self._graph
        commit = graph.log.commit(spec.commit)
        if commit is None:
            raise unknown_export(spec.handle)
        now = FULL
        if not access.unrestricted:
            exists = None if permits is None else usable(access, permits)
            refs = RefResolver(graph, exists)
            if spec.branch is None:
                branches = tuple(refs.branches_of(commit))
            else:
                branches = (spec.branch,) if refs.has(spec.branch) else ()
            if not branches:
                raise unknown_export(spec.handle)
            now = access.visibility(graph.compiled(commit.schema).schema, branches)
        if not _shows(now, spec.visibility):
            raise ConflictError(
                "this export was started when you could see more types or fields than now; "
                "start it again",
                export=spec.handle,
            )

    def discard(self, export: Export) -> None:
        """Delete an export, finished or not."""
        with self._lock:
            self._forget(export)

    def _forget(self, export: Export) -> None:
        export.removed = True
        self._known.pop(export.spec.handle, None)
        queue = self._queues.get(export.spec.actor)
        if queue is not None and export in queue:
            queue.remove(export)
        if export is not self._current:  # else it is removed after its part
            export.files.remove()
        export.ended.set()

    def sweep(self, *, dry_run: bool = False) -> list[str]:
        """Delete the exports that have expired; return their handles."""
        now = self.now()
        with self._lock:
            expired = [each for each in self._known.values() if each.spec.expires <= now]
            for each in () if dry_run else expired:
                self._forget(each)
        return [each.spec.handle for each in expired]

    def resume(self) -> None:
        """Go on with all exports that are not finished."""
        with self._lock:
            for each in self._known.values():
                self._enqueue(each)

    # --- reading ---------------------------------------------------------------------------

    def read(self, export: Export, start: int, end: int) -> Generator[bytes, None, None]:
        """The bytes of a finished export from ``start`` up to ``end``."""
        try:
            yield from export.files.read(start, end)
        except DamagedError as error:
            raise self._rewrite(export, error) from None

    def texts(self, export: Export, start: int) -> Iterator[str]:
        """The text of a finished export from a code point on, in parts."""
        try:
            yield from export.files.texts(start)
        except DamagedError as error:
            raise self._rewrite(export, error) from None

    def _rewrite(self, export: Export, error: DamagedError) -> BusyError:
        """Write the damaged part and what follows it again: the bytes will be the same."""
        with self._lock:
            if export.state == "done" and not export.removed:
                _logger.warning(
                    "%s was damaged on the disk; writing it again",
                    export.spec.handle,
                    extra={"event": "export.damaged"},
                )
                with suppress(OSError):
                    export.files.rewind(error.part)
                export.ended.clear()
                self._enqueue(export)
        return BusyError(
            "the file of this export was damaged on the disk and is being written again; ask "
            "again in a moment",
            export=export.spec.handle,
        )

    # --- the thread that writes ----------------------------------------------------------------

    def _enqueue(self, export: Export) -> None:
        """Give an unfinished export its place in the queue; called with the lock."""
        if self._closed or export.files.outcome is not None or export is self._current:
            pass
        elif export not in self._queues.get(export.spec.actor, ()):
            self._queues.setdefault(export.spec.actor, deque()).append(export)
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="trails-exports", daemon=True)
            self._thread.start()
        self._lock.notify()

    def _run(self) -> None:
        while (export := self._next()) is not None:
            work = WorkInProgress(is_long=True)
            try:
                goes_on = self._step(export)
            finally:
                work.end()
            self._put_back(export, goes_on=goes_on)

    def _next(self) -> Export | None:
        """The export whose turn it is; None when there is nothing left to do."""
        with self._lock:
            while not self._closed:
                for actor, queue in self._queues.items():
                    if queue:
                        self._queues.move_to_end(actor)
                        self._current = queue.popleft()
                        return self._current
                    del self._queues[actor]
                    break
                else:
                    if not self._known:
                        break
                    first = min(each.spec.expires for each in self._known.values())
                    self._lock.wait(min(_IDLE, max(0.1, first - self.now())))
                    self.sweep()
            self._thread = None
            return None

    def _put_back(self, export: Export, *, goes_on: bool) -> None:
        with self._lock:
            self._current = None
            if export.removed:
                export.files.remove()
            elif goes_on:
                self._queues.setdefault(export.spec.actor, deque()).appendleft(export)
            else:
                export.writing = None
                export.ended.set()

    def _step(self, export: Export) -> bool:
        """Write a part; an error ends the export, and is its outcome."""
        try:
            if export.writing is None:
                export.writing = _Writing(self._graph, export)
            goes_on = export.writing.step()
            self._check_size(export)
        except TrailsError as error:
            export.files.fail(error.code, error.message)
        except Exception:
            _logger.exception("%s failed", export.spec.handle, extra={"event": "export.failed"})
            export.files.fail("internal", "internal error; details are in the server log")
        else:
            return goes_on
        return False

    def _check_size(self, export: Export) -> None:
        most = export.spec.most_bytes
        with self._lock:
            used = sum(
                each.files.last.bytes
                for each in self._known.values()
                if each.spec.actor == export.spec.actor and each.state != "failed"
            )
        if 0 < most < used:
            raise BudgetError(
                f"the exports of {export.spec.actor} have more than {most >> 20} MiB (export_mb in "
                "[graphs.<id>.budgets]); export fewer records or fields, or discard other exports"
            )

    def close(self) -> None:
        """Stop after the current part; unfinished exports can be continued later."""
        with self._lock:
            self._closed, thread = True, self._thread
            self._lock.notify_all()
        if thread is not None:
            thread.join()
        for each in self._known.values():
            each.files.close()
            each.ended.set()
        if self._temporary and "_folder" in self.__dict__:
            shutil.rmtree(self._folder, ignore_errors=True)


def _shows(now: Visibility, then: Visibility) -> bool:
    """Whether everything that could be seen then can still be seen."""
    return now.hidden <= then.hidden and all(
        name in then.hidden or fields <= then.hidden_fields.get(name, frozenset())
        for name, fields in now.hidden_fields.items()
    )


def unknown_export(handle: str) -> NotFoundError:
    """There is no such export: it never existed, has expired, or is another actor's."""
    return NotFoundError(
        f"there is no export {handle[:100]!r}: it may have expired; start one with export_records",
        export=handle[:100],
    )


_all: Final[WeakKeyDictionary[Graph, Exports]] = WeakKeyDictionary()
_making: Final = threading.Lock()


def exports_of(graph: Graph) -> Exports:
    """The exports of a graph, found on first use."""
    with _making:
        found = _all.get(graph)
        if found is None:
            found = _all[graph] = Exports(graph)
            graph.before_closing.append(found.close)
        return found
