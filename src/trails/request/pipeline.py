"""The path of a request: authenticate, resolve, authorize, admit, dispatch, shape.

    authenticate  ``authenticate``: credential → Actor or refusal, for each way in
    resolve       ``catalog`` or a URI: a name → an entry or an address
    authorize     ``authorize``: the policy (what it denies is unknown), then the scope
    admit         ``admission``: limits of the actor and of the graph
    dispatch      ``dispatch`` for calls, ``resources.reader`` for reads: arguments, then work
    shape         ``answers``: the result as JSON text, an error as a Failure; then the activity

Every surface calls a Kernel; there is one for each graph. Lists of tools use the same decisions
as calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.graph import MAIN
from trails.engine.session.service import GraphService
from trails.engine.visibility.refs import RefResolver, reader
from trails.errors import LaggingError, LogUnavailableError, NotFoundError, TrailsError
from trails.imports import later
from trails.model.actors import Actor
from trails.model.capabilities import ToolList
from trails.model.fairness import WorkInProgress, give_way_to_writes
from trails.model.metrics import GraphMetrics
from trails.model.origins import CURRENT_CALL, ORIGIN
from trails.model.results import Failure, Outcome, Status
from trails.model.types import Schema
from trails.model.upkeep import Report
from trails.model.uris import Completions, Content, ResourceList
from trails.registry.registry import Registry
from trails.request.admission import Admission, KernelOptions, Reservation
from trails.request.answers import MASKED, failure_of, unknown_tool
from trails.request.authorize import Authorizer, refuse_reading, refuse_scope
from trails.request.catalog import Catalog
from trails.request.dispatch import Dispatch
from trails.request.entries import Entry, Proposes, Request
from trails.request.resources.contents import READ
from trails.request.resources.listing import Typed, listen_to_lists
from trails.request.resources.reader import NOTHING, Reader
from trails.request.resources.representations import PLAIN, RecordForm
from trails.request.threads import Threads
from trails.request.watches import Watcher, Watches

if TYPE_CHECKING:
    from trails.engine.upkeep import doctor
    from trails.projections import documents, thing_description
    from trails.projections.thing_description import Card
    from trails.request import changes, transfers
    from trails.request.changes import ChangeFeeds
    from trails.request.transfers import Transfers
else:
    doctor = later("trails.engine.upkeep.doctor")
    documents = later("trails.projections.documents")
    thing_description = later("trails.projections.thing_description")
    transfers = later("trails.request.transfers")
    changes = later("trails.request.changes")

T = TypeVar("T")
NO_TYPES: Final = Schema()
_logger: Final = logging.getLogger("trails")


class Kernel:
    """One graph, as surfaces see it."""

    def __init__(self, service: GraphService, options: KernelOptions) -> None:
        self._service = service
        self._name = service.graph.name
        self._options = options
        self._trace = options.trace
        self._authority = Authorizer(service.graph, options.judge)
        self._admission = Admission(options.budget)
        self.refuse_overload = self._admission.refuse_overload
        """The refusal while the graph is overloaded, or None; asked before a request is read."""
        self._threads = Threads(service.graph.name, self._admission)
        self._dispatch = Dispatch(service, self._threads)
        self._reader = Reader(
            service, self._authority, self._threads, self._examine, options.resources
        )
        self._watches = Watches(service, self._authority, options.budget.watches)
        service.watched = self._watches.uris
        self._catalog: Catalog | None = None
        self._running: set[CallRecord] = set()
        self._transfers: Transfers | None = None
        self._making = Lock()
        self._changes: ChangeFeeds | None = None

    @property
    def transfers(self) -> Transfers:
        """Records and files; made when first used, because they need every operation."""
        with self._making:
            if self._transfers is None:
                self._transfers = transfers.Transfers(
                    self._service,
                    self._options,
                    self._perform,
                    self._unknown,
                    self._admission,
                    self._threads,
                )
            return self._transfers

    @property
    def changes(self) -> ChangeFeeds:
        """Streams of changes; made when first used, too."""
        with self._making:
            if self._changes is None:
                self._changes = changes.ChangeFeeds(
                    self._service,
                    self._options,
                    self._authority,
                    self._perform,
                    self._watches,
                    self._threads,
                )
            return self._changes

    @property
    def name(self) -> str:
        """The name of the graph's MCP server."""
        return f"{self._options.project}/{self._service.graph.name}"

    @property
    def status(self) -> Status:
        """Whether the graph can be written, or only read."""
        return self._service.graph.status

    @property
    def version(self) -> str:
        """The version of the server."""
        return self._options.version

    def instructions(self, actor: Actor) -> str:
        """Instructions for a model that has never seen this server."""
        rights, every = self._authority.rights(actor), self._service.registry.schema
        schema = every if rights.unrestricted else rights.schema(MAIN)
        graph = self._service.graph.name
        return documents.project_instructions(
            self._options.project, graph, schema.types, self.tools(actor).tools
        )

    def card(self, actor: Actor) -> Card:
        """What an actor may call, read and watch, of one snapshot of the registry."""
        catalog, rights = self._pin(), self._authority.rights(actor)
        tools, schema = catalog.tools(actor), NO_TYPES
        if refuse_reading(actor) is None:
            main = self._service.graph.committed_schema(MAIN)
            schema = main if rights.unrestricted else rights.schema(MAIN)
        return thing_description.Card(
            title=self._options.project,
            graph=self._service.graph.name,
            iri=self._service.graph.names.base,
            version=self._options.version,
            registry=tools.registry,
            actions=catalog.actions(tools),
            schema=schema,
        )

    def _examine(self) -> Report:
        """Examine the graph and its folder, and what is served of its declarations."""
        service, examine_all = self._service, self._options.doctor
        if examine_all is None:
            report = Report(
                service.graph.name, tuple(doctor.examine(service.graph, service.registry.schema))
            )
        else:
            report = examine_all()
        return Report(report.subject, (*report.findings, *self._pin().examine()))

    # --- tools -----------------------------------------------------------------------

    def tools(self, actor: Actor) -> ToolList:
        """The tools that an actor may use."""
        return self._pin().tools(actor)

    def repeatable(self) -> list[str]:
        """Names of tools that may be called again when the outcome of a call is unknown."""
        return self._pin().repeatable()

    def schema_of(self, name: str) -> Mapping[str, object] | None:
        """The input schema of a tool, for any caller, or None; it is never sent."""
        entry = self._pin().find(name)
        return None if entry is None else entry.tool.input_schema

    async def execute(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """Call a tool for a model: the answer is bounded. Never raises except for cancellation."""
        proposes = self._proposes(actor)
        return await self._find(actor, name, arguments, self._options.max_chars, proposes)

    async def invoke(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """Call a tool for a program: the answer is whole, unless ``max_chars`` is given."""
        return await self._find(actor, name, arguments, None)

    def _proposes(self, actor: Actor) -> Proposes:
        """When a write of an actor over MCP is a proposal."""
        if self._options.writes.of(actor) == "direct":
            return "if_asked"
        return "always" if self._authority.is_open else "unless_permitted"

    def _find(
        self,
        actor: Actor,
        name: str,
        arguments: Mapping[str, object],
        max_chars: int | None,
        proposes: Proposes = "if_asked",
    ) -> Awaitable[Outcome]:
        catalog = self._pin()
        entry = catalog.find(name)
        if entry is None:
            return self._unknown(actor, name)
        return self._perform(actor, entry, arguments, catalog.registry, name, max_chars, proposes)

    async def _unknown(self, actor: Actor, name: str) -> Failure:
        return self._refused(_unknown_call(actor, name), unknown_tool(name))

    def _perform(
        self,
        actor: Actor,
        entry: Entry,
        arguments: Mapping[str, object],
        registry: Registry | None = None,
        name: str = "",
        max_chars: int | None = None,
        proposes: Proposes = "if_asked",
    ) -> Awaitable[Outcome]:
        """Call an entry: the rest of the path, after the name was resolved.

        ``name`` is what the caller wrote, if that may differ from the tool's name. ``max_chars``
        bounds the answer if the call does not.
        """
        pinned, rights = registry or self._service.registry, self._authority.rights(actor)
        seen = rights.see(entry, pinned)
        if seen is None:
            return self._masked(actor, name or entry.tool.name)
        tool = seen.tool
        call = CallRecord(
            actor.name, tool.name, seen.kind, reads=tool.hints.read_only, caller=actor
        )
        passed = self._pass(
            actor,
            refuse_scope(actor, tool),
            call,
            self._dispatch.run,
            Request(pinned, seen, call, arguments, rights, max_chars, proposes),
            branch=_branch_of(entry, arguments),
        )
        return passed if self._trace is None else self._trace(self._name, call, passed)

    async def _pass(
        self,
        actor: Actor,
        lacking: Failure | None,
        call: CallRecord | None,
        work: Callable[..., Awaitable[T]],
        *given: object,
        branch: str = "",
    ) -> T | Failure:
        """Check scope and admission, then do the work: for calls, reads and completions.

        ``lacking`` is the refusal for a missing scope, or None. A ``call`` is listed as running,
        and recorded as an activity if it is refused here. ``branch`` is the one that the work is
        about, if it is about one.
        """
        admitted = lacking or self._admission.enter(actor)
        if isinstance(admitted, Failure):
            return admitted if call is None else self._refused(call, admitted)
        if call is not None:
            self._running.add(call)
            CURRENT_CALL.set((self._name, call))
        progress = WorkInProgress()
        try:
            if call is None or call.reads:
                await give_way_to_writes()
            if ORIGIN.get().at_least:
                lagging = await self._catch_up(actor, ORIGIN.get().at_least, branch)
                if lagging is not None:
                    return lagging if call is None else self._refused(call, lagging)
            return await work(*given)
        finally:
            progress.end()
            if call is not None:
                self._running.discard(call)
                CURRENT_CALL.set(None)
            admitted.end()

    async def _catch_up(
        self, actor: Actor, commits: tuple[str, ...], branch: str
    ) -> Failure | None:
        """Wait until this server has the commits that the caller knows of, or refuse."""
        try:
            await self._threads.run(actor.name, self._reach, actor, commits, branch)
        except TrailsError as error:
            return failure_of(error, "")
        return None

    def _reach(self, actor: Actor, commits: tuple[str, ...], branch: str) -> None:
        """Be as new as some commits: on their own branch, or else as the log is now.

        A commit that the actor may not see is answered like one that is not there.
        """
        graph = self._service.graph
        refs = RefResolver(graph, reader(self._authority.rights(actor)))
        with suppress(LogUnavailableError):
            if branch and refs.has(branch):
                commits = tuple(each for each in commits if not graph.shows(each, branch))
        if commits and graph.reach(self._options.wait_seconds):
            commits = tuple(each for each in commits if not _exists(refs, each))
        if commits:
            raise LaggingError(
                f"this server does not have commit {commits[0]}; try again, or ask another server",
                commit=commits[0],
            )

    def _pin(self) -> Catalog:
        """The catalog of the current registry; a request keeps using it."""
        catalog, registry = self._catalog, self._service.cell.current
        if catalog is None or catalog.registry is not registry:
            made = Catalog(registry, self._service, self._options, self._authority, catalog)
            if made.queries_by_name != (catalog is not None and catalog.queries_by_name):
                self._log_query_mode(made)
            self._catalog = catalog = made
        return catalog

    def _log_query_mode(self, catalog: Catalog) -> None:
        how = "stored_query_list and stored_query_run" if catalog.queries_by_name else "a tool each"
        _logger.info(
            "graph %s: its stored queries are now offered as %s (%s, threshold %d)",
            self._service.graph.name,
            how,
            self._options.stored_query_mode,
            self._options.stored_query_threshold,
            extra={"event": "tools.changed"},
        )

    async def _masked(self, actor: Actor, name: str) -> Failure:
        """Answer a denied call as unknown; the activity records the denial."""
        call, unknown = _unknown_call(actor, name), unknown_tool(name)
        self._service.graph.activities.refuse(
            call, MASKED, "denied by policy", answered=unknown.code
        )
        return unknown

    def _refused(self, call: CallRecord, failure: Failure) -> Failure:
        code = failure.code
        self._service.graph.activities.refuse(call, code, failure.message, answered=code)
        return failure

    # --- resources -------------------------------------------------------------------

    def resources(self, actor: Actor) -> ResourceList:
        """What an actor may read."""
        return NOTHING if refuse_reading(actor) else self._reader.resources(actor)

    async def read(self, actor: Actor, uri: str) -> Sequence[Content] | Failure:
        """Read a URI for a model: what does not fit is left out, and listed."""
        return await self._read(actor, uri, self._options.max_chars)

    async def read_whole(
        self, actor: Actor, uri: str, form: RecordForm = PLAIN
    ) -> Sequence[Content] | Failure:
        """Read a URI for a program: all of it, in the form that it asks for."""
        return await self._read(actor, uri, None, form)

    async def _read(
        self, actor: Actor, uri: str, most: int | None, form: RecordForm = PLAIN
    ) -> Sequence[Content] | Failure:
        """Read a URI. Never raises except for cancellation."""
        call, lacking = CallRecord(actor.name, READ, "read"), refuse_reading(actor)
        CURRENT_CALL.set((self._name, call))
        try:
            reading = self._pass(
                actor, lacking, None, self._reader.read, actor, uri, most, form, call
            )
            found = await (
                reading if self._trace is None else self._trace(self._name, call, reading)
            )
        except asyncio.CancelledError:
            self._reader.record(call, None, uri)
            raise
        finally:
            CURRENT_CALL.set(None)
        self._reader.record(call, found, uri)
        return found

    async def complete(
        self, actor: Actor, template: str, variable: str, value: str, given: Mapping[str, str]
    ) -> Completions | Failure:
        """Values for a template's variable that begin with what was typed."""
        lacking, typed = refuse_reading(actor), Typed(variable, value, given)
        complete = self._reader.complete
        return await self._pass(actor, lacking, None, complete, actor, template, typed)

    # --- changes ---------------------------------------------------------------------

    def refuse_watch(self, actor: Actor, uri: str) -> Failure | None:
        """Why a URI can't be watched, or None; an actor that may not read may not watch."""
        return refuse_reading(actor) or self._watches.refuse_watch(actor, uri)

    def watch(self, actor: Actor, uris: Sequence[str]) -> Watcher | Failure:
        """Watch some URIs, each checked with ``refuse_watch`` before."""
        return self._watches.watch(actor, uris)

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed`` on the event loop when lists may have changed; the result stops that."""
        return listen_to_lists(self._service, self._authority, changed)

    def under_way(self) -> Counter[str]:
        """Count what is running: calls by tool, and everything else together."""
        found = Counter(call.name for call in tuple(self._running))
        others = len(self._admission) - found.total()
        return found + Counter({"reads and transfers": max(0, others)})

    @property
    def folder(self) -> Path | None:
        """The folder that the graph is written to; None if it is not, or has none."""
        graph = self._service.graph
        return graph.folder if graph.read_only is None else None

    @property
    def lacks_disk(self) -> bool:
        """Whether the graph is read-only because its disk could not be written."""
        held = self._service.graph.read_only
        return held is not None and held.cause == "storage"

    @property
    def log_answers(self) -> bool:
        """Whether the server of the log has answered lately; a log in a file always does."""
        return self._service.graph.log.available

    def caught_up(self) -> bool:
        """Whether the views have followed main to its head."""
        return self._service.graph.caught_up()

    def administers(self, actor: Actor) -> bool:
        """Whether an actor may see what others do on the graph."""
        return self._authority.rights(actor).may("Admin", MAIN)

    def measure(self) -> GraphMetrics:
        """What was counted so far, and what is busy now."""
        graph = self._service.graph
        threads, queued = self._threads.load()
        writers, writers_waiting = graph.writers()
        subscribers, watched = self._watches.load()
        return GraphMetrics(
            graph=graph.name,
            calls=tuple(graph.activities.calls.counts()),
            running=len(self._admission),
            threads=threads,
            queued=queued,
            commits=graph.main.head.seq,
            writers=writers,
            writers_waiting=writers_waiting,
            sandbox=self._service.workers(),
            subscribers=subscribers,
            watched=watched,
            activities_waiting=graph.activities.waiting,
            slow_queries=graph.slow_queries.count,
        )

    def reserve(self, actor: Actor) -> Reservation | Failure:
        """Admit an actor before its large request is parsed, or refuse it.

        The call in that request is not counted again.
        """
        return self._admission.reserve(actor)

    def close(self) -> None:
        """Stop the threads; the graph stays open."""
        self._threads.close()


def _exists(refs: RefResolver, commit: str) -> bool:
    try:
        refs.commit(commit)
    except NotFoundError:
        return False
    return True


def _branch_of(entry: Entry, arguments: Mapping[str, object]) -> str:
    """The branch that a call reads or writes; empty if it is about another state, or several."""
    takes_one = "branch" in entry.controls.names or "branch" in entry.arguments.names
    if not takes_one or arguments.get("snapshot") is not None:
        return ""
    branch = arguments.get("branch")
    return branch if isinstance(branch, str) else MAIN


def _unknown_call(actor: Actor, name: str) -> CallRecord:
    return CallRecord(actor.name, name[:200], "runtime")
