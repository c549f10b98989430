"""App: Trails inside any Python program.

``App.open(folder)`` opens a project; ``App(...)`` is a graph in memory. Either
way ``app.context(...)`` gives what capabilities and the ORM work with.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

import msgspec

from trails.app.modules import load_module, queries_folder
from trails.app.ownership import Ownership, prepare_data
from trails.app.policies import ProjectPolicies, undeclared, unguarded
from trails.app.settings import DATA_FOLDER, GraphSettings, Project, Settings, read_settings
from trails.engine.graph.graph import Graph
from trails.engine.graph.open import open_graph
from trails.engine.history.branches import Versions
from trails.engine.schema.evolution import adopt_schema
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.engine.sparql.stored_queries import load_queries
from trails.engine.sparql.untrusted import Untrusted
from trails.engine.transfer.source import Progress, no_progress
from trails.engine.upkeep.backups import GRAPHS
from trails.errors import (
    DeclarationError,
    NotFoundError,
    PolicyError,
    QuarantineError,
    ReadOnlyError,
    RegistryError,
    SchemaMismatchError,
    SettingsError,
    StorageFullError,
    TrailsError,
    UnwritableError,
)
from trails.model.capabilities import StoredQuery
from trails.model.results import REQUESTED, QueryAnswer, unwritable
from trails.model.types import Schema
from trails.model.writes import LoadRequest, LoadResult, Mutation
from trails.registry.cell import Declarations, RegistryCell, collect, discover
from trails.registry.registry import Registry, with_queries
from trails.request.builtins.meta import META
from trails.request.builtins.queries import query_by_name
from trails.request.dispatch import call_capability
from trails.sandbox.pool import Sandbox
from trails.sandbox.scratch import SCRATCH


def silent(text: str) -> None:
    """Tell nobody."""
    del text


class App:
    """One project: its graphs, their registries, and the contexts on them."""

    def __init__(
        self,
        *declarations: object,
        name: str = "app",
        types: Iterable[type] = (),
        capabilities: Iterable[Callable[..., object]] = (),
        settings: Settings | None = None,
        folder: Path | None = None,
        ownership: Ownership | None = None,
        apply_schema: bool | None = None,
        progress: Callable[[str], None] = silent,
    ) -> None:
        """Make an app in memory from declared classes and functions."""
        self.settings = settings or Settings(Project(name), {"main": GraphSettings()})
        self.folder = folder
        self._apply_schema = (
            self.settings.project.env == "development" if apply_schema is None else apply_schema
        )
        self._progress = progress
        self.serving = False
        """Whether other processes and clients use it through this one."""
        self.quarantined: dict[str, TrailsError] = {}
        """The graphs that are not served, each with the reason."""
        self._services: dict[str, GraphService] = {}
        self._cells: dict[str, RegistryCell] = {}
        self.policies = ProjectPolicies(folder, self.settings, self._declared_now)
        """Who decides what an actor may do."""
        if folder is not None and ownership is None:
            ownership = Ownership(folder / DATA_FOLDER)
        self._ownership = ownership
        try:
            held = self.settings.project.read_only or (ownership and ownership.refused)
            if folder is not None and not held:
                prepare_data(folder / DATA_FOLDER, progress)
            for graph in self.settings.graphs:
                self._cells[graph] = RegistryCell(collect(META).capabilities)
            given = collect((*declarations, *types, *capabilities))
            if given:
                self._register(given, next(iter(self.settings.graphs)))
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls,
        path: str | Path = ".",
        *,
        declarations: bool = True,
        strict: bool = False,
        ownership: Ownership | None = None,
        apply_schema: bool | None = None,
        read_only: bool = False,
        guarded: Callable[[], bool] = unguarded,
        progress: Callable[[str], None] = silent,
    ) -> Self:
        """Open a project folder.

        The declared types are compared with the stored ones. In development a difference
        that fits the data is applied; ``apply_schema=True`` does so in production too. With
        ``declarations=False`` the project's own code is left alone, and so are the types.

        A graph whose module, types, stored queries or policies are broken is quarantined: using
        it raises QuarantineError, and the other graphs serve. ``strict=True`` raises the reason
        at once instead.

        ``guarded`` tells whether whoever comes must show a credential; a graph without policies
        can then only be read.

        With ``read_only``, and where the disk can't be written, data is read and no file of it is
        changed; ``Graph.read_only`` says so.

        The folder is this process's until the app is closed; ``ownership`` is that of a caller
        that has it already.
        """
        folder = Path(path).resolve()
        settings = read_settings(folder)
        if read_only:
            project = msgspec.structs.replace(settings.project, read_only=True)
            settings = msgspec.structs.replace(settings, project=project)
        app = cls(
            settings=settings,
            folder=folder,
            ownership=ownership,
            apply_schema=apply_schema,
            progress=progress,
        )
        registry = app._declared_now if declarations else undeclared
        app.policies = ProjectPolicies(folder, settings, registry, guarded)
        try:
            for graph in settings.graphs if declarations else ():
                app._open_graph(graph, strict=strict)
        except BaseException:
            app.close()
            raise
        return app

    def _open_graph(self, graph: str, *, strict: bool) -> None:
        """Register what a graph declares, or put it into quarantine."""
        try:
            found = self._collect(graph)
            declared = _registry_of(found)
            self._register(found, graph, self.stored_queries(graph, declared.schema))
            self.policies.judge(graph)
        except (
            DeclarationError,
            PolicyError,
            RegistryError,
            SettingsError,
            SchemaMismatchError,
            ReadOnlyError,
        ) as reason:
            if strict:
                raise
            # What led here may hold values that are nobody's business.
            reason.__cause__ = reason.__context__ = None
            self.quarantined[graph] = reason.with_traceback(None)

    def _collect(self, graph: str) -> Declarations:
        if self.folder is None:
            return collect(())
        return discover(load_module(self.folder, self.settings.graphs[graph].app, graph))

    def stored_queries(self, graph: str, schema: Schema) -> tuple[StoredQuery, ...]:
        """The queries in a graph's folder, checked against some types."""
        if self.folder is None:
            return ()
        folder = queries_folder(self.folder, self.settings.graphs[graph].queries, graph)
        if not folder.is_dir():
            return ()
        return load_queries(folder, schema, self.graph(graph).names)

    def untrusted(self, graph: str = "main") -> Untrusted:
        """What others' text may do on a graph; each graph has workers of its own."""
        return self.service(graph).untrusted

    def declared(self, graph: str = "main", *, queries: bool = True) -> Registry:
        """What a project declares for a graph, without using it."""
        registry = _registry_of(self._collect(graph))
        if not queries:
            return registry
        return with_queries(registry, self.stored_queries(graph, registry.schema))

    def discover(self, module: ModuleType, graph: str | None = None) -> Registry:
        """Register everything declared in a module."""
        return self._register(discover(module), graph or next(iter(self.settings.graphs)))

    def register(self, *declarations: object, graph: str | None = None) -> Registry:
        """Register declared classes and functions."""
        return self._register(collect(declarations), graph or next(iter(self.settings.graphs)))

    def _register(
        self, found: Declarations, graph: str, queries: Iterable[StoredQuery] = ()
    ) -> Registry:
        cell = self._cell(graph)
        registry = cell.register(
            types=found.types,
            shapes=found.shapes,
            capabilities=found.capabilities,
            queries=queries,
            rules=found.rules,
        )
        if found.types or found.shapes:
            adopt_schema(self.graph(graph), registry.schema, apply=self._apply_schema)
        return registry

    def _cell(self, graph: str) -> RegistryCell:
        cell = self._cells.get(graph)
        if cell is None:
            raise NotFoundError(
                f"there is no graph {graph!r}; this project has {', '.join(self._cells)}"
            )
        reason = self.quarantined.get(graph)
        if reason is not None:
            raise QuarantineError(
                f"graph {graph!r} is not served: {reason.message}. Correct that and open the "
                "project again; 'trails doctor' tells whether all is well",
                graph=graph,
                reason=reason.code,
            )
        return cell

    def registry(self, graph: str = "main") -> Registry:
        """The registry snapshot of a graph that is current now."""
        return self._cell(graph).current

    def _declared_now(self, graph: str) -> Registry:
        """The same, for whoever asks at every request: it knows that the graph is served."""
        return self._cells[graph].current

    def listen(
        self, listener: Callable[[Registry], None], graph: str = "main"
    ) -> Callable[[], None]:
        """Be told of every new registry snapshot; the returned function stops that."""
        return self._cell(graph).listen(listener)

    def service(self, graph: str = "main") -> GraphService:
        """A graph with all that can be asked of it, opened when first asked for."""
        self._cell(graph)
        return self._service(graph)

    def stored_graph(self, name: str) -> Graph:
        """The data of a graph, also of one that is not served: for upkeep."""
        return self._service(name).graph

    def _service(self, graph: str) -> GraphService:
        found = self._services.get(graph)
        if found is None:
            folder = None if self.folder is None else self.folder / DATA_FOLDER / GRAPHS / graph
            opened = self._open_files(graph, folder)
            found = self._services[graph] = GraphService(
                opened,
                self._cells[graph],
                partial(self._make_sandbox, opened),
                self.settings.loads.limits(),
            )
        return found

    def _open_files(self, graph: str, folder: Path | None) -> Graph:
        """A graph; read-only where that was asked for, and where the disk can't be written."""
        make = partial(
            open_graph,
            folder,
            name=graph,
            base_iri=self.settings.base_iri(graph),
            allow_bypass=self.settings.validation.allow_bypass,
            retention=self.settings.log.retention(),
            keep_keys_days=self.settings.graphs[graph].idempotency_days,
            progress=self._progress,
        )
        if folder is None or not folder.exists():
            return make()
        if self.settings.project.read_only:
            return make(read_only=REQUESTED)
        if self._ownership is not None and self._ownership.refused is not None:
            return make(read_only=unwritable(self._ownership.refused))
        try:
            return make()
        except (StorageFullError, UnwritableError) as error:
            refused = error
        self._progress(f"graph {graph} can't be opened for writing: {refused.message}")
        full = isinstance(refused, StorageFullError)
        return make(read_only=unwritable("no space left" if full else "the system refuses it"))

    def reopen(self, graph: str) -> Graph:
        """Open a graph again, because its disk may be writable now."""
        service = self._services.pop(graph, None)
        if service is not None:
            service.close()
        return self.stored_graph(graph)

    def _make_sandbox(self, graph: Graph) -> Sandbox:
        given = self.settings.sandbox
        budgets = self.settings.graphs[graph.name].budgets
        scratch = None  # then it is where the system has temporary files
        if graph.folder is not None and graph.read_only is None:
            scratch = graph.folder / SCRATCH
        limits = given.limits(budgets.query_seconds_per_minute)
        return Sandbox(scratch, limits, allow_unconfined=given.allow_unconfined)

    def graph(self, name: str = "main") -> Graph:
        """A graph, opened when first asked for."""
        return self.service(name).graph

    def context(
        self,
        graph: str = "main",
        actor: str = "local",
        branch: str = "main",
        snapshot: str | None = None,
    ) -> GraphContext:
        """What an actor does, it does through a context: on a branch, or at a past commit."""
        return self.service(graph).context(actor, branch, snapshot)

    def versions(self, graph: str = "main", actor: str = "local") -> Versions:
        """The history of a graph: branches, commits, differences, merges."""
        return self.service(graph).versions(actor)

    def call(
        self, ctx: GraphContext, name: str, arguments: Mapping[str, object] | None = None
    ) -> object:
        """Call a capability with JSON arguments; the result is in JSON form."""
        self._cell(ctx.graph)  # refuses a graph that is not served
        return call_capability(ctx, name, arguments or {})

    def query(
        self, ctx: GraphContext, name: str, params: Mapping[str, object] | None = None
    ) -> QueryAnswer | str | None:
        """Run a stored query: its answer, or the commit of one that changes (None: no change)."""
        return query_by_name(self.service(ctx.graph), ctx, name, params or {})

    def ask(self, ctx: GraphContext, text: str, /, **params: object) -> QueryAnswer:
        """Run anybody's SPARQL query, confined and within the limits of ``[sandbox]``."""
        return self.service(ctx.graph).ask(ctx, text, params)

    def mutate(
        self,
        ctx: GraphContext,
        change: str | Sequence[object],
        *,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Mutation:
        """Change a graph in one commit: by SPARQL Update, or by a list of typed operations."""
        return self.service(ctx.graph).mutate(
            ctx,
            change,
            message=message,
            expected_head=expected_head,
            idempotency_key=idempotency_key,
        )

    def load(
        self,
        request: LoadRequest,
        *,
        graph: str = "main",
        actor: str = "local",
        progress: Progress = no_progress,
    ) -> LoadResult:
        """Load files into a branch: one commit, or none and every problem told."""
        return self.service(graph).load(actor, request, progress)

    def export(
        self, ctx: GraphContext, format: str = "ndjson", types: Sequence[str] = ()
    ) -> Generator[bytes, None, None]:
        """A branch or snapshot as a file, in blocks; all types, or some and what extends them."""
        return self.service(ctx.graph).export(ctx, format, types)

    def close(self) -> None:
        """Close all graphs and give up the folder."""
        for service in self._services.values():
            service.close()
        self._services.clear()
        if self._ownership is not None:
            self._ownership.release()
            self._ownership = None

    def __enter__(self) -> Self:
        """Use as a context manager; leaving closes."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


def _registry_of(found: Declarations) -> Registry:
    """Declarations by themselves, checked."""
    return RegistryCell().register(
        types=found.types,
        shapes=found.shapes,
        capabilities=found.capabilities,
        rules=found.rules,
    )
