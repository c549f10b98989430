"""App: Trails inside any Python program.

``App.open(folder)`` opens a project; ``App(...)`` is a graph in memory. Either way
``app.context(...)`` gives what capabilities and the ORM work with. Settings are read by
``settings``, a project's code by ``modules``, its policies by ``policies``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from trails.app.declarations import GraphTypes, PythonTypes, has_happened
from trails.app.ownership import Ownership, prepare_data
from trails.app.plugins import load_plugins
from trails.app.policies import ProjectPolicies, undeclared, unguarded
from trails.app.settings import (
    DATA_FOLDER,
    GraphSettings,
    Project,
    Settings,
    read_settings,
)
from trails.app.workspace import recover_files
from trails.engine.graph.declarations import DeclarationKeeper
from trails.engine.graph.embeddings import Embed, Embedder
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.graph.open import open_graph
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
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
from trails.imports import later
from trails.model.capabilities import StoredQuery
from trails.model.results import OTHER_TYPES, REQUESTED, QueryAnswer, unwritable
from trails.model.types import Schema
from trails.model.upkeep import ReloadError, ReloadReport
from trails.model.writes import LoadRequest, LoadResult, Mutation
from trails.registry.registry import (
    Declarations,
    Registry,
    RegistryCell,
    collect,
    discover,
    with_queries,
)
from trails.request.builtins.ping import META
from trails.request.dispatch import call_capability

if TYPE_CHECKING:
    from trails.app import migrations, modules, reloads
    from trails.engine.graph import changes as graph_changes
    from trails.engine.history.branches import Versions
    from trails.engine.schema import evolution
    from trails.engine.sparql import stored_queries
    from trails.engine.sparql.queries import Untrusted
    from trails.registry.migrations import MigrationFile
    from trails.request.builtins import queries as builtins_queries
    from trails.sandbox import pool
    from trails.sandbox import scratch as sandbox_scratch
    from trails.sandbox.pool import Sandbox
else:
    migrations = later("trails.app.migrations")
    modules = later("trails.app.modules")
    reloads = later("trails.app.reloads")
    evolution = later("trails.engine.schema.evolution")
    stored_queries = later("trails.engine.sparql.stored_queries")
    builtins_queries = later("trails.request.builtins.queries")
    pool = later("trails.sandbox.pool")
    sandbox_scratch = later("trails.sandbox.scratch")
    graph_changes = later("trails.engine.graph.changes")

REFUSALS: Final = (
    DeclarationError,
    PolicyError,
    RegistryError,
    SettingsError,
    SchemaMismatchError,
    ReadOnlyError,
)
"""What quarantines a graph."""


_logger: Final = logging.getLogger("trails")
NO_TEXTS: Final[Mapping[str, str]] = {}


def silent(text: str) -> None:
    """Discard progress messages."""
    del text


class _AcceptedError(Exception):
    """Ends a trial of declarations that can be used."""


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
        """Graphs that are not served, each with the reason."""
        self.reload_errors: dict[str, ReloadError] = {}
        """Graphs whose files have changed since and can't be used, each with the reason."""
        self.reloading = threading.Lock()
        """Held while declarations are read again, and while a change of types changes them."""
        self.plugins = load_plugins(self.settings.project.plugins)
        """The plugins of the project, and those that could not be loaded."""
        self._services: dict[str, GraphService] = {}
        self._embedders: dict[str, Embedder] = {}
        self._cells: dict[str, RegistryCell] = {}
        self._loaded: set[str] = set()
        """Graphs whose declarations are in use."""
        self.is_project = False
        """Whether files declare its graphs, and not the program that made it."""
        self.policies = ProjectPolicies(folder, self.settings, self._declared_now)
        """Decides what an actor may do."""
        if folder is not None and ownership is None:
            ownership = Ownership(folder / DATA_FOLDER)
        self._ownership = ownership
        try:
            held = self.settings.project.read_only or (ownership and ownership.refused)
            if folder is not None and not held:
                prepare_data(folder / DATA_FOLDER, progress)
            for graph in self.settings.graphs:
                self._cells[graph] = RegistryCell(collect(META).capabilities)
                if self.plugins.declarations:
                    self._cells[graph].add(self.plugins.declarations)
            if folder is not None and not held:
                recover_files(folder, partial(has_happened, self), progress)
            for graph in self.settings.graphs:
                if folder is None:
                    self._use(graph, self._make_embedder(graph, None))
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

        The declared types are compared with the stored ones. In development a difference that fits
        the data is applied; ``apply_schema=True`` does so in production too. With
        ``declarations=False`` the project's own code is not run, and the types stay as stored.

        A graph whose module, types, stored queries or policies are broken is quarantined: using it
        raises QuarantineError, and the other graphs work. ``strict=True`` raises the reason at
        once instead.

        ``guarded`` says whether callers must present a credential; a graph without policies is
        then read-only.

        With ``read_only``, or if the disk can't be written, data is only read and no file is
        changed; ``Graph.read_only`` says so.

        This process owns the folder until the app is closed; pass ``ownership`` if the caller
        already has it.
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
        app.is_project = True
        for graph, service in app._services.items():  # those that an interrupted change needed
            service.graph.declarations = app._keeper(graph)
        registry = app._declared_now if declarations else undeclared
        app.policies = ProjectPolicies(folder, settings, registry, guarded)
        try:
            for graph in settings.graphs:
                if declarations:
                    app._open_graph(graph, strict=strict)
                else:
                    app._embed_later(graph)
        except BaseException:
            app.close()
            raise
        return app

    def _open_graph(self, graph: str, *, strict: bool) -> None:
        """Register what a graph declares, or quarantine it."""
        try:
            self._load(graph, apply_schema=self._apply_schema)
        except REFUSALS as reason:
            self.plugins.explain(reason)
            if strict:
                raise
            # The cause may contain values that must not be shown.
            reason.__cause__ = reason.__context__ = None
            self.quarantined[graph] = reason.with_traceback(None)

    def _load(self, graph: str, *, apply_schema: bool, fresh: bool = False) -> Registry:
        """Read what a graph declares, check all of it, and then use it.

        If anything is wrong, it raises, and what was used before stays in use.
        """
        module = self._module(graph, fresh=fresh)
        embedder = self._make_embedder(graph, module)
        declared = self._read(graph, module)

        def accept(registry: Registry) -> None:
            self.policies.check(graph, registry)
            if (registry.types or registry.shapes) and not self._owns_types(graph):
                evolution.adopt_schema(
                    self.stored_graph(graph), registry.schema, apply=apply_schema
                )

        registry = self._cells[graph].replace(declared, accept)
        self._loaded.add(graph)
        self.policies.judge(graph).refresh()
        self._use(graph, embedder)
        self._compare_types(graph)
        return registry

    def _compare_types(self, graph: str) -> None:
        """Let a graph be written whose types another server had changed, if they fit again."""
        opened = self._services.get(graph)
        if opened is not None and opened.graph.read_only is OTHER_TYPES:
            declared = self._cells[graph].current.schema.digest
            if declared == self._stored_schema(graph).digest:
                opened.graph.read_only = None

    def _hear_of_types(self, graph: str) -> None:
        """Another server has changed the types of ``main``: follow it, if that can be done here.

        Called with the writer's lock; nothing is written until the declarations have followed.
        """
        opened = self.stored_graph(graph)
        if opened.read_only is None and graph in self._loaded:
            opened.read_only = OTHER_TYPES
            threading.Thread(
                target=self._follow_others, args=(graph,), name="trails-types", daemon=True
            ).start()

    def _follow_others(self, graph: str) -> None:
        try:
            if self._owns_types(graph) or self.declares(graph, self._stored_schema(graph)):
                self.follow_types(graph)
        except Exception:
            _logger.exception(
                "graph %s can't follow the types of another server",
                graph,
                extra={"event": "types.unfollowed"},
            )
        else:
            if self.stored_graph(graph).read_only is OTHER_TYPES:
                _logger.warning(
                    "graph %s: %s", graph, OTHER_TYPES.reason, extra={"event": "types.differ"}
                )

    def _owns_types(self, graph: str) -> bool:
        """Whether a graph's types are declared in the graph itself."""
        return self.settings.graphs[graph].schema == "graph"

    def _read(
        self,
        graph: str,
        module: ModuleType | None,
        schema: Schema | None = None,
        texts: Mapping[str, str] = NO_TEXTS,
    ) -> Declarations:
        """Return what a module and the stored queries declare, checked against each other.

        ``schema`` has the types of a graph that owns them; by default, those that it has now.
        ``texts``: path → what a changed file of the project will have.
        """
        found = self._declarations(graph, module, schema)
        declared = _registry_of(self.plugins.declarations + found).schema
        queries = self.stored_queries(graph, declared, texts)
        return msgspec.structs.replace(found, queries=queries)

    def _declarations(
        self, graph: str, module: ModuleType | None, schema: Schema | None = None
    ) -> Declarations:
        found = collect(()) if module is None else discover(module)
        if not self._owns_types(graph):
            return found
        file, stored = self.settings.graphs[graph].app, schema or self._stored_schema(graph)
        return modules.join_stored_types(found, stored, graph, file)

    def try_declarations(
        self, graph: str, schema: Schema, texts: Mapping[str, str] | None = None
    ) -> None:
        """Raise why the declarations can't be used when ``main`` has other types.

        ``texts``: path → what a changed file of the project will have. Nothing is changed.
        """
        if self.folder is None:
            self._try(graph, None, schema)
            return
        with modules.trial_modules(self.folder, texts or {}):
            self._try(graph, self._module(graph, fresh=True), schema, texts or {})

    def _try(
        self,
        graph: str,
        module: ModuleType | None,
        schema: Schema,
        texts: Mapping[str, str] = NO_TEXTS,
    ) -> None:
        def accept(registry: Registry) -> None:
            self.policies.check(graph, registry)
            if registry.schema.digest != schema.digest:
                changes = "; ".join(graph_changes.describe_changes(registry.schema, schema))
                raise DeclarationError(
                    f"the declarations would differ from the new types: {changes}"
                )
            raise _AcceptedError

        with suppress(_AcceptedError):
            self._cells[graph].replace(self._read(graph, module, schema, texts), accept)

    def follow_types(self, graph: str) -> None:
        """Let requests use the types of ``main``, which declarations have followed."""
        if graph not in self._loaded:
            return
        if self.folder is not None:
            self.reload(graph, apply_schema=False)
        else:
            self._load(graph, apply_schema=False)

    def declares(self, graph: str, schema: Schema) -> bool:
        """Whether the files of a project declare these types already, as they are now."""
        try:
            return self.declared(graph, queries=False).schema.digest == schema.digest
        except TrailsError:
            if graph not in self._loaded:
                raise
            return self._cells[graph].current.schema.digest == schema.digest

    def reload(self, graph: str = "main", *, apply_schema: bool | None = None) -> ReloadReport:
        """Read what a graph declares again, and use it if all of it is right.

        The modules of the project, its stored queries and its policies are read from their files
        and checked together. The new registry replaces the old one at once; calls that are running
        keep theirs. A difference to the stored types is applied as by ``open``. If anything is
        wrong, the report says what, and nothing changes. A graph in quarantine is served from then
        on.
        """
        cell = self._cells.get(graph)
        if cell is None or self.folder is None:
            self._cell(graph)
            raise SettingsError("an app in memory has no files to reload; use register instead")
        with self.reloading:
            old = cell.current
            try:
                stored = self._stored_schema(graph)
                modules.check_reloadable(self.folder, self.settings.graphs[graph].app)
                with modules.fresh_modules(self.folder):
                    apply = self._apply_schema if apply_schema is None else apply_schema
                    new = self._load(graph, apply_schema=apply, fresh=True)
            except Exception as reason:  # noqa: BLE001 - reported, and the old registry stays
                return self._keep(graph, old, reason)
            self.quarantined.pop(graph, None)
            self.reload_errors.pop(graph, None)
            changes = graph_changes.describe_changes(stored, self._stored_schema(graph))
            report = reloads.compare_registries(graph, old, new, changes)
            reloads.log_reload(report)
            return report

    def _keep(self, graph: str, old: Registry, reason: Exception) -> ReloadReport:
        """Report why declarations can't be used; each reason is logged once."""
        if isinstance(reason, TrailsError):
            self.plugins.explain(reason)
        error = reloads.describe_reason(reason, self.settings.graphs[graph].app)
        known = self.reload_errors.get(graph)
        self.reload_errors[graph] = error
        if graph in self.quarantined and isinstance(reason, TrailsError):
            reason.__cause__ = reason.__context__ = None
            self.quarantined[graph] = reason.with_traceback(None)
        report = ReloadReport(graph, "failed", old.version, old.digest, error=error)
        if error != known:
            reloads.log_reload(report, None if isinstance(reason, TrailsError) else reason)
        return report

    def _stored_schema(self, graph: str) -> Schema:
        return self.stored_graph(graph).committed_schema(MAIN)

    def _module(self, graph: str, *, fresh: bool = False) -> ModuleType | None:
        if self.folder is None:
            return None
        return modules.find_module(self.folder, self.settings.graphs[graph], graph, fresh=fresh)

    def _make_embedder(self, graph: str, module: ModuleType | None) -> Embedder | None:
        """Return the function for embeddings that the settings name."""
        given = self.settings.graphs[graph]
        if given.embeddings is None:
            return None
        found = modules.load_embed(self.folder, given.embeddings, graph, module, given.app)
        return Embedder(given.embeddings.function, found, given.embeddings.seconds)

    def _embed_later(self, graph: str) -> None:
        """The same, but the project's own code is not run before a vector is needed."""
        given = self.settings.graphs[graph]
        named = given.embeddings
        if named is not None:

            @cache
            def load() -> Embed:
                return modules.load_embed(self.folder, named, graph, self._module(graph), given.app)

            def embed(texts: list[str]) -> Iterable[Iterable[float]]:
                return load()(texts)

            self._use(graph, Embedder(named.function, embed, named.seconds))

    def _use(self, graph: str, embedder: Embedder | None) -> None:
        """Make vectors of texts with this from now on."""
        if embedder is not None:
            self._embedders[graph] = embedder
            if graph in self._services:
                self._services[graph].graph.embedder = embedder

    def _collect(self, graph: str) -> Declarations:
        return self._declarations(graph, self._module(graph))

    def stored_queries(
        self, graph: str, schema: Schema, texts: Mapping[str, str] = NO_TEXTS
    ) -> tuple[StoredQuery, ...]:
        """Return the queries in a graph's folder, checked against some types."""
        if self.folder is None:
            return ()
        folder = modules.queries_folder(self.folder, self.settings.graphs[graph].queries, graph)
        if not folder.is_dir():
            return ()
        given = self.settings.graphs[graph].queries
        changed = {path.removeprefix(f"{given}/"): text for path, text in texts.items()}
        return stored_queries.load_queries(
            folder, schema, self.stored_graph(graph).names, changed=changed
        )

    def untrusted(self, graph: str = "main") -> Untrusted:
        """Return the limits for untrusted text on a graph; each graph has its own workers."""
        return self.service(graph).untrusted

    def declared(self, graph: str = "main", *, queries: bool = True) -> Registry:
        """Return what a project declares for a graph, without using it."""
        registry = _registry_of(self.plugins.declarations + self._collect(graph))
        if not queries:
            return registry
        return with_queries(registry, self.stored_queries(graph, registry.schema))

    def migrations(self, graph: str = "main") -> tuple[MigrationFile, ...]:
        """Return the migrations of a graph, in their order; runs the code of their files."""
        if self.folder is None:
            return ()
        return migrations.load_migrations(
            self.folder, self.settings.graphs[graph].migrations, graph
        )

    def _migration_names(self, graph: str) -> tuple[str, ...]:
        if self.folder is None:
            return ()
        return migrations.migration_names(
            self.folder, self.settings.graphs[graph].migrations, graph
        )

    def discover(self, module: ModuleType, graph: str | None = None) -> Registry:
        return self._register(discover(module), graph or next(iter(self.settings.graphs)))

    def register(self, *declarations: object, graph: str | None = None) -> Registry:
        return self._register(collect(declarations), graph or next(iter(self.settings.graphs)))

    def _register(self, found: Declarations, graph: str) -> Registry:
        registry = self._cell(graph).add(found)
        if found.types or found.shapes:
            evolution.adopt_schema(self.graph(graph), registry.schema, apply=self._apply_schema)
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
                f"graph {graph!r} is not served: {reason.message}; fix that and reload or open "
                "the project again ('trails doctor' checks it)",
                graph=graph,
                reason=reason.code,
            )
        return cell

    def registry(self, graph: str = "main") -> Registry:
        """Return the current registry snapshot of a graph."""
        return self._cell(graph).current

    def _declared_now(self, graph: str) -> Registry:
        """The same for each request, when the graph is known to be served."""
        return self._cells[graph].current

    def listen(
        self, listener: Callable[[Registry], None], graph: str = "main"
    ) -> Callable[[], None]:
        """Subscribe to new registry snapshots; the returned function unsubscribes."""
        return self._cell(graph).listen(listener)

    def service(self, graph: str = "main") -> GraphService:
        """Return a graph's service, opened on first use."""
        self._cell(graph)
        return self._service(graph)

    def open_views(self) -> None:
        """Open what the graphs in use leave closed until it is first used."""
        for service in list(self._services.values()):
            service.graph.open_views()

    def stored_graph(self, name: str) -> Graph:
        """Return a graph's data, even if the graph is not served: for maintenance."""
        return self._service(name).graph

    def _service(self, graph: str) -> GraphService:
        found = self._services.get(graph)
        if found is None:
            folder = None if self.folder is None else self.folder / DATA_FOLDER / GRAPHS / graph
            opened = self._open_files(graph, folder)
            opened.embedder = self._embedders.get(graph)
            opened.declarations = self._keeper(graph)
            opened.types_changed = partial(self._hear_of_types, graph)
            opened.list_migrations = partial(self._migration_names, graph)
            found = self._services[graph] = GraphService(
                opened,
                self._cells[graph],
                partial(self._make_sandbox, opened),
                self.settings.loads.limits(),
            )
        return found

    def _keeper(self, graph: str) -> DeclarationKeeper | None:
        """Return what declares the types of a graph; None if the program does that itself."""
        if self._owns_types(graph):
            return GraphTypes(self, graph)
        if self.folder is None or not self.is_project:
            return None
        return PythonTypes(self, graph, self.folder)

    def _open_files(self, graph: str, folder: Path | None) -> Graph:
        """Open a graph; read-only if requested, or if the disk can't be written."""
        make = partial(
            open_graph,
            folder,
            name=graph,
            base_iri=self.settings.base_iri(graph),
            log_url="" if folder is None else self.settings.log_url(graph, os.environ),
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
        return make(read_only=unwritable("no space left" if full else "write access denied"))

    def reopen(self, graph: str) -> Graph:
        """Open a graph again, because its disk may be writable now."""
        service = self._services.pop(graph, None)
        if service is not None:
            service.close()
        return self.stored_graph(graph)

    def _make_sandbox(self, graph: Graph) -> Sandbox:
        given = self.settings.sandbox
        budgets = self.settings.graphs[graph.name].budgets
        scratch = None  # the system's temporary folder is used
        if graph.folder is not None and graph.read_only is None:
            scratch = graph.folder / sandbox_scratch.SCRATCH
        limits = given.limits(budgets.query_seconds_per_minute)
        return pool.Sandbox(scratch, limits, allow_unconfined=given.allow_unconfined)

    def graph(self, name: str = "main") -> Graph:
        """Return a graph, opened on first use."""
        return self.service(name).graph

    def context(
        self,
        graph: str = "main",
        actor: str = "local",
        branch: str = "main",
        snapshot: str | None = None,
    ) -> GraphContext:
        """Return a context for an actor, on a branch or at a past commit."""
        return self.service(graph).context(actor, branch, snapshot)

    def versions(self, graph: str = "main", actor: str = "local") -> Versions:
        """Return the history of a graph: branches, commits, differences, merges."""
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
        """Run a stored query; return its answer, or the commit of a mutation (None: no change)."""
        return builtins_queries.query_by_name(self.service(ctx.graph), ctx, name, params or {})

    def ask(self, ctx: GraphContext, text: str, /, **params: object) -> QueryAnswer:
        """Run an untrusted SPARQL query, confined and within the limits of ``[sandbox]``."""
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
        """Load files into a branch: one commit, or none and a report of every problem."""
        return self.service(graph).load(actor, request, progress)

    def export(
        self, ctx: GraphContext, format: str = "ndjson", types: Sequence[str] = ()
    ) -> Generator[bytes, None, None]:
        """Yield a branch or snapshot as a file in blocks; all types, or some and their subtypes."""
        return self.service(ctx.graph).export(ctx, format, types)

    def close(self) -> None:
        """Close all graphs and release the folder."""
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
        self.close()


def _registry_of(found: Declarations) -> Registry:
    """Return a registry of these declarations alone, checked."""
    return RegistryCell().add(found)
