"""App: Trails inside any Python program.

``App.open(folder)`` opens a project; ``App(...)`` is a graph in memory. Either
way ``app.context(...)`` gives what capabilities and the ORM work with.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

from trails.app.ownership import Ownership
from trails.app.settings import DATA_FOLDER, GraphSettings, Project, Settings, read_settings
from trails.engine.context import GraphContext
from trails.engine.evolve import adopt_schema
from trails.engine.graph import Graph
from trails.engine.invoke import invoke
from trails.engine.snapshots import snapshot_line
from trails.engine.versions import Versions
from trails.errors import NotFoundError, SettingsError, TrailsError
from trails.registry.cell import RegistryCell
from trails.registry.discover import Declarations, collect, discover
from trails.registry.registry import Registry

_OWN_MODULES = "trails_project_"


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
        self._graphs: dict[str, Graph] = {}
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
        apply_schema: bool | None = None,
        progress: Callable[[str], None] = _silent,
    ) -> Self:
        """Open a project folder.

        The declared types are compared with the stored ones. In development a difference
        that fits the data is applied; ``apply_schema=True`` does so in production too. With
        ``declarations=False`` the project's own code is left alone, and so are the types.
        """
        folder = Path(path).resolve()
        settings = read_settings(folder)
        app = cls(settings=settings, folder=folder, apply_schema=apply_schema, progress=progress)
        try:
            for graph in settings.graphs if declarations else ():
                app._register(app._collect(graph), graph)
        except BaseException:
            app.close()
            raise
        return app

    def _collect(self, graph: str) -> Declarations:
        if self.folder is None:
            return collect(())
        return discover(load_module(self.folder, self.settings.graphs[graph].app, graph))

    def declared(self, graph: str = "main") -> Registry:
        """What a project's code declares for a graph, without using it."""
        found = self._collect(graph)
        return RegistryCell().register(
            types=found.types, shapes=found.shapes, capabilities=found.capabilities
        )

    def discover(self, module: ModuleType, graph: str | None = None) -> Registry:
        """Register everything declared in a module."""
        return self._register(discover(module), graph or next(iter(self.settings.graphs)))

    def register(self, *declarations: object, graph: str | None = None) -> Registry:
        """Register declared classes and functions."""
        return self._register(collect(declarations), graph or next(iter(self.settings.graphs)))

    def _register(self, found: Declarations, graph: str) -> Registry:
        cell = self._cell(graph)
        registry = cell.register(
            types=found.types, shapes=found.shapes, capabilities=found.capabilities
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

    def close(self) -> None:
        """Close all graphs and give up the folder."""
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


def load_module(folder: Path, file: str, graph: str) -> ModuleType:
    """A project's module: the one that the program itself imported, or a new import.

    Reusing the program's keeps one class a type when the file is run as a script, or
    imported beside. What an earlier opening imported is not reused: the file may have changed.
    """
    path = folder / file
    for known, loaded in list(sys.modules.items()):
        if getattr(loaded, "__file__", None) == str(path) and not known.startswith(_OWN_MODULES):
            return loaded
    if not path.is_file():
        raise SettingsError(f"graph {graph!r} names {file}, but {folder} has no such file")
    name = f"{_OWN_MODULES}{folder.name.replace('-', '_')}_{graph.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"graph {graph!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    finally:
        sys.path.remove(str(folder))
    return module
