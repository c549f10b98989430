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
from trails.app.ownership import Ownership
from trails.app.settings import DATA_FOLDER, GraphSettings, Project, Settings, read_settings
from trails.engine.branches import forked_branch
from trails.engine.context import GraphContext
from trails.engine.evolve import adopt_schema
from trails.engine.files import export_line, load_files
from trails.engine.graph import Graph
from trails.engine.invoke import invoke, invoke_query, recording
from trails.engine.load.source import Progress, no_progress
from trails.engine.mutate import mutate_sparql, mutate_typed
from trails.engine.snapshots import snapshot_line
from trails.engine.stored_queries import load_queries
from trails.engine.untrusted import Untrusted
from trails.engine.versions import Versions
from trails.errors import (
    DeclarationError,
    NotFoundError,
    QuarantineError,
    RegistryError,
    SchemaMismatchError,
    SettingsError,
    TrailsError,
)
from trails.model.answers import Answer
from trails.model.capabilities import StoredQuery
from trails.model.loads import LoadRequest, LoadResult
from trails.model.mutations import Mutation
from trails.model.types import Schema
from trails.registry.cell import RegistryCell
from trails.registry.discover import Declarations, collect, discover
from trails.registry.registry import Registry, with_queries
from trails.sandbox.pool import Sandbox


def _silent(text: str) -> None:
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
        apply_schema: bool | None = None,
        progress: Callable[[str], None] = _silent,
    ) -> None:
        """Make an app in memory from declared classes and functions."""
        self.settings = settings or Settings(Project(name), {"main": GraphSettings()})
        self.folder = folder
        self._apply_schema = (
            self.settings.project.env == "development" if apply_schema is None else apply_schema
        )
        self._progress = progress
        self.quarantined: dict[str, TrailsError] = {}
        """The graphs that are not served, each with the reason."""
        self._graphs: dict[str, Graph] = {}
        self._untrusted: dict[str, Untrusted] = {}
        self._cells: dict[str, RegistryCell] = {}
        self._ownership = None if folder is None else Ownership(folder / DATA_FOLDER)
        try:
            for graph in self.settings.graphs:
                self._cells[graph] = RegistryCell()
            given = collect((*declarations, *types, *capabilities))
            if given.types or given.shapes or given.capabilities:
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
        apply_schema: bool | None = None,
        progress: Callable[[str], None] = _silent,
    ) -> Self:
        """Open a project folder.

        The declared types are compared with the stored ones. In development a difference
        that fits the data is applied; ``apply_schema=True`` does so in production too. With
        ``declarations=False`` the project's own code is left alone, and so are the types.

        A graph whose module, types or stored queries are broken is quarantined: using it
        raises QuarantineError, and the other graphs serve. ``strict=True`` raises the reason
        at once instead.
        """
        folder = Path(path).resolve()
        settings = read_settings(folder)
        app = cls(settings=settings, folder=folder, apply_schema=apply_schema, progress=progress)
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
        except (DeclarationError, RegistryError, SettingsError, SchemaMismatchError) as reason:
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
        found = self._untrusted.get(graph)
        if found is None:
            given, opened = self.settings.sandbox, self.graph(graph)
            scratch = None if opened.folder is None else opened.folder / "scratch"
            found = self._untrusted[graph] = Untrusted(
                opened, Sandbox(scratch, given.limits(), allow_unconfined=given.allow_unconfined)
            )
        return found

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

    def listen(
        self, listener: Callable[[Registry], None], graph: str = "main"
    ) -> Callable[[], None]:
        """Be told of every new registry snapshot; the returned function stops that."""
        return self._cell(graph).listen(listener)

    def graph(self, name: str = "main") -> Graph:
        """A graph, opened when first asked for."""
        self._cell(name)
        found = self._graphs.get(name)
        if found is None:
            folder = None if self.folder is None else self.folder / DATA_FOLDER / "graphs" / name
            found = self._graphs[name] = Graph(
                folder,
                name=name,
                base_iri=self.settings.base_iri(name),
                allow_bypass=self.settings.validation.allow_bypass,
                progress=self._progress,
            )
        return found

    def context(
        self,
        graph: str = "main",
        actor: str = "local",
        branch: str = "main",
        snapshot: str | None = None,
    ) -> GraphContext:
        """What an actor does, it does through a context: on a branch, or at a past commit."""
        found = self.graph(graph)
        line = found.line(branch) if snapshot is None else snapshot_line(found, snapshot)
        return GraphContext(found, self.registry(graph), actor=_checked(actor), line=line)

    def versions(self, graph: str = "main", actor: str = "local") -> Versions:
        """The history of a graph: branches, commits, differences, merges."""
        return Versions(self.graph(graph), _checked(actor))

    def call(
        self, ctx: GraphContext, name: str, arguments: Mapping[str, object] | None = None
    ) -> object:
        """Call a capability with JSON arguments; the result is in JSON form."""
        return invoke(self.graph(ctx.graph), ctx, name, arguments or {})

    def query(
        self, ctx: GraphContext, name: str, params: Mapping[str, object] | None = None
    ) -> Answer | str | None:
        """Run a stored query with JSON parameters.

        One that reads gives its answer; one that changes gives the id of its commit, or None when
        nothing changed.
        """
        return invoke_query(
            self.graph(ctx.graph), self.untrusted(ctx.graph), ctx, name, params or {}
        )

    def ask(self, ctx: GraphContext, text: str, /, **params: object) -> Answer:
        """Run anybody's SPARQL query, confined and within the limits of ``[sandbox]``."""
        graph = self.graph(ctx.graph)
        with recording(graph, ctx, "graph_query", "query"):
            untrusted = self.untrusted(ctx.graph)
            return untrusted.ask(ctx.line, text, params, caller=ctx.actor)

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
        graph, line = self.graph(ctx.graph), ctx.line
        with recording(graph, ctx, "graph_mutate", "mutation") as inner:
            opening = partial(
                inner.kg.transaction,
                message=message,
                expected_head=expected_head,
                idempotency_key=idempotency_key,
            )
            if isinstance(change, str):
                effect = self.untrusted(ctx.graph).effect(line, caller=ctx.actor)
                return mutate_sparql(graph, line, opening, change, effect)
            return mutate_typed(graph, line, opening, inner.kg.find, change)

    def load(
        self,
        request: LoadRequest,
        *,
        graph: str = "main",
        actor: str = "local",
        progress: Progress = no_progress,
    ) -> LoadResult:
        """Load files into a branch: one commit, or none and every problem told.

        A branch that is missing is forked where the request says from what, and is gone again
        when the load fails. RDF is parsed in the sandbox.
        """
        found = self.graph(graph)
        with forked_branch(
            found, request.branch, source=request.source, actor=_checked(actor)
        ) as forked:
            ctx = self.context(graph, actor, request.branch)
            with recording(found, ctx, "graph_load", "load") as inner:
                opening = partial(
                    inner.kg.transaction,
                    message=request.message,
                    expected_head=request.expected_head,
                    idempotency_key=request.idempotency_key,
                )
                parse = self.untrusted(graph).parse
                done = load_files(found, ctx.line, opening, request, parse, progress)
        return msgspec.structs.replace(done, forked=forked)

    def export(
        self, ctx: GraphContext, format: str = "ndjson", types: Sequence[str] = ()
    ) -> Generator[bytes, None, None]:
        """A branch or snapshot as a file, in blocks; all types, or some and what extends them."""
        return export_line(self.graph(ctx.graph), ctx.line, format, types)

    def close(self) -> None:
        """Close all graphs and give up the folder."""
        for untrusted in self._untrusted.values():
            untrusted.sandbox.close()
        self._untrusted.clear()
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()
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


def _checked(actor: str) -> str:
    if not actor or len(actor) > 256 or not actor.isprintable():
        raise TrailsError(f"{actor!r} can't be an actor: 1 to 256 printable characters")
    return actor


def _registry_of(found: Declarations) -> Registry:
    """Declarations by themselves, checked."""
    return RegistryCell().register(
        types=found.types, shapes=found.shapes, capabilities=found.capabilities
    )
