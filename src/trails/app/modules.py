"""A project's own files: the module that declares a graph, and its stored queries.

An exception during import becomes an error that names the file and line, without a stack
trace and without texts that may contain a secret. No data is opened here.

``fresh_modules`` imports a project's modules again, for a reload: the module of a graph and all
modules of the folder that it imports become new objects. Modules that the program itself has
imported before are not touched: it holds their classes.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from inspect import iscoroutinefunction
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Final, cast

from trails.app.plugins import load_plugins
from trails.app.settings import DATA_FOLDER, Embeddings, GraphSettings, Settings
from trails.authoring.synthesis import make_classes
from trails.engine.graph.embeddings import Embed
from trails.engine.graph.open import read_stored_schema
from trails.engine.upkeep.backups import GRAPHS
from trails.errors import DeclarationError, SettingsError, TrailsError
from trails.imports import later
from trails.model.iris import Names
from trails.model.types import Schema
from trails.registry.registry import (
    Declarations,
    Registry,
    RegistryCell,
    collect,
    discover,
    with_queries,
)
from trails.request.builtins.ping import META

if TYPE_CHECKING:
    from trails.engine.sparql import stored_queries
else:
    stored_queries = later("trails.engine.sparql.stored_queries")

_OWN_MODULES = "trails_project_"
# The messages of these describe code, never values.
_SAFE_MESSAGES = (ImportError, SyntaxError, NameError, AttributeError, TrailsError)


def _module_name(folder: Path, graph: str) -> str:
    return f"{_OWN_MODULES}{folder.name.replace('-', '_')}_{graph.replace('-', '_')}"


def project_names(folder: Path, graph: str) -> dict[str, object]:
    """Return the public names that the module of an opened graph has made itself."""
    module = _module_name(folder.resolve(), graph)
    return {
        name: value
        for name, value in (vars(sys.modules[module]) if module in sys.modules else {}).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module
    }


def load_module(folder: Path, file: str, graph: str, *, fresh: bool = False) -> ModuleType:
    """Return a project's module: the one that the program has imported, or a new import.

    Reusing the program's module keeps one class per type when the file is run as a script or
    imported as well. A module of an earlier opening is not reused: the file may have changed.
    With ``fresh``, inside ``fresh_modules``, it is compiled from its text.
    """
    path = folder / file
    _programs_own.setdefault(folder, frozenset(_local_modules(folder)))
    for known, loaded in list(sys.modules.items()):
        if getattr(loaded, "__file__", None) == str(path) and not known.startswith(_OWN_MODULES):
            return loaded
    if not path.is_file():
        raise SettingsError(f"graph {graph!r} names {file}, but {folder} has no such file")
    name = _module_name(folder, graph)
    loader = _UncachedLoader(name, str(path)) if fresh and path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise SettingsError(f"graph {graph!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        if not isinstance(error, Exception | SystemExit):
            raise
        if isinstance(error, DeclarationError):
            error.data = {**error.data, "where": _locate(error, folder) or file}
            raise
        raise explain_import(error, file, folder) from error
    finally:
        sys.path.remove(str(folder))
    return module


def find_module(
    folder: Path, given: GraphSettings, graph: str, *, fresh: bool = False
) -> ModuleType | None:
    """Return the module of a graph; a graph that owns its types needs none."""
    is_optional = given.schema == "graph" and given.app == GraphSettings().app
    if is_optional and not (folder / given.app).exists():
        return None
    return load_module(folder, given.app, graph, fresh=fresh)


def _locate(error: BaseException, folder: Path) -> str:
    """Return the file and line of the folder where an error comes from; empty if none does."""
    frames = [(each.f_code.co_filename, line) for each, line in walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename is not None:
        frames.append((error.filename, error.lineno or 1))
    own = [(name, line) for name, line in frames if _is_inside(name, folder)]
    if not own:
        return ""
    name, line = own[-1]
    return f"{Path(name).relative_to(folder).as_posix()}:{line}"


def explain_import(error: BaseException, file: str, folder: Path) -> DeclarationError:
    """Say which line of which file failed, with which kind of error."""
    where = _locate(error, folder) or file
    detail = type(error).__name__
    if isinstance(error, SyntaxError):
        detail += f": {error.msg}"
    elif isinstance(error, _SAFE_MESSAGES):
        detail += f": {error}"
    return DeclarationError(f"{where} can't be imported: {detail}", where=where)


# --- fresh imports -----------------------------------------------------------------------------

_importing: Final = threading.RLock()
"""Held while modules of a project are exchanged."""
_programs_own: Final[dict[Path, frozenset[str]]] = {}
"""Folder → the modules in it that were imported before the folder was opened first."""


def _is_inside(name: str, folder: Path) -> bool:
    """Whether a file belongs to the project: not to an environment or a hidden folder of it."""
    start = str(folder) + os.sep
    if not name.startswith(start):
        return False
    folders = Path(name.removeprefix(start)).parts[:-1]
    return not any(each.startswith(".") or each == "site-packages" for each in folders)


def _local_modules(folder: Path) -> dict[str, ModuleType]:
    """Return the imported modules whose files are in a folder, by name."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
        if name.partition(".")[0] != "trails" and _is_inside(str(file), folder):
            found[name] = module
    return found


def project_modules(folder: Path) -> dict[str, ModuleType]:
    """Return the modules of a project that a reload imports again, by name."""
    kept = _programs_own.get(folder, frozenset())
    return {name: each for name, each in _local_modules(folder).items() if name not in kept}


def check_reloadable(folder: Path, file: str) -> None:
    """Refuse to reload a module that the program itself has imported."""
    for name in _programs_own.get(folder, ()):
        if getattr(sys.modules.get(name), "__file__", None) == str(folder / file):
            raise SettingsError(
                f"{file} can't be reloaded: this program has imported it as {name!r} and holds its "
                "classes; restart the program"
            )


_staged: Final[dict[str, bytes]] = {}
"""Path → the text that a module has in a trial, and not in its file."""


class _Tried(Exception):  # noqa: N818 - a signal that ends a trial
    """The modules of a trial are not kept."""


@contextmanager
def trial_modules(folder: Path, texts: Mapping[str, str]) -> Iterator[None]:
    """Import a project's modules anew inside, some with other texts; the earlier ones come back.

    ``texts``: path relative to the folder → text.
    """
    with _importing:
        _staged.update((str(folder / path), text.encode()) for path, text in texts.items())
        try:
            with suppress(_Tried), fresh_modules(folder):
                yield
                raise _Tried
        finally:
            _staged.clear()


@contextmanager
def fresh_modules(folder: Path) -> Iterator[None]:
    """Import a project's modules anew inside; if that raises, the earlier ones are back."""
    with _importing:
        earlier = project_modules(folder)
        for name in earlier:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        finder = _FreshFinder(folder)
        # Before the finder of paths, which would use compiled files.
        sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
        try:
            yield
        except BaseException:
            for name in project_modules(folder):
                sys.modules.pop(name, None)
            sys.modules.update(earlier)
            raise
        finally:
            sys.meta_path.remove(finder)


class _FreshFinder:
    """Finds modules in a project's folder, and has their text compiled.

    Compiled files are recognised by size and whole seconds, so they may be older than an edit.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del target
        places = [str(self._folder)] if path is None else list(path)
        spec = PathFinder.find_spec(name, places)
        if spec is None or not _is_inside(spec.origin or "", self._folder):
            return None
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _UncachedLoader(spec.loader.name, spec.loader.path)
        return spec


class _UncachedLoader(SourceFileLoader):
    """Compiles the text of a module each time; in a trial, the text that it is to have."""

    def get_data(self, path: str) -> bytes:
        found = _staged.get(path)
        return super().get_data(path) if found is None else found

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def load_embed(
    folder: Path | None, given: Embeddings, graph: str, app: ModuleType | None, file: str
) -> Embed:
    """Return the function that the settings name; ``app`` is the module of the graph's ``file``.

    It is looked for, not called: loading a model may take long.
    """
    setting = f'[graphs.{graph}.embeddings] function = "{given.function[:100]}"'
    name, colon, attribute = given.function.partition(":")
    if not colon or not all(part.isidentifier() for part in (*name.split("."), attribute)):
        raise SettingsError(f'{setting} is not a function; write "module:name", like "app:embed"')
    if app is not None and name.replace(".", "/") + ".py" == file:
        module = app
    else:
        module = _import(folder, name, setting)
    found = getattr(module, attribute, None)
    if not callable(found):
        there = "is not a function" if hasattr(module, attribute) else "does not exist"
        raise SettingsError(f"{setting}: {attribute} {there} in {name}; define it there")
    if iscoroutinefunction(found):
        raise SettingsError(
            f"{setting}: {attribute} must be a plain function, not async: it runs in a thread"
        )
    with suppress(ValueError):  # some functions written in C have no signature
        try:
            inspect.signature(found).bind([""])
        except TypeError:
            message = f"{setting}: {attribute} must take one argument, a list of texts"
            raise SettingsError(message) from None
    return cast(Embed, found)


def _import(folder: Path | None, name: str, setting: str) -> ModuleType:
    paths = [] if folder is None else [str(folder)]
    sys.path[:0] = paths
    try:
        return importlib.import_module(name)
    except BaseException as error:
        if not isinstance(error, Exception | SystemExit):
            raise
        # Other messages may contain values that must not be shown.
        said = f": {error}" if isinstance(error, _SAFE_MESSAGES) else ""
        message = f"{setting}: {name} can't be imported: {type(error).__name__}{said}"
        raise SettingsError(message) from error
    finally:
        for path in paths:
            sys.path.remove(path)


def queries_folder(folder: Path, given: str, graph: str) -> Path:
    """Return the folder of a graph's stored queries, which must be inside the project."""
    path = folder / given
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SettingsError(
            f"graph {graph!r}: queries = {given!r} is outside the project; use a folder inside it"
        )
    if path.exists() and not path.is_dir():
        raise SettingsError(f"graph {graph!r}: queries = {given!r} is not a folder")
    return path


def declared_registry(folder: Path, settings: Settings, graph: str) -> Registry:
    """Return types, capabilities and stored queries; broken queries are skipped."""
    given = settings.graphs[graph]
    module = find_module(folder, given, graph)
    found = collect(()) if module is None else discover(module)
    if given.schema == "graph":
        stored = read_stored_schema(
            folder / DATA_FOLDER / GRAPHS / graph,
            settings.log_url(graph, os.environ),
            name=graph,
            base_iri=settings.base_iri(graph),
        )
        found = join_stored_types(found, stored, graph, given.app)
    plugins = load_plugins(settings.project.plugins)
    registry = RegistryCell(collect(META).capabilities).add(plugins.declarations + found)
    queries = stored_queries.read_queries(
        queries_folder(folder, given.queries, graph),
        registry.schema,
        Names(settings.base_iri(graph)),
    )
    return with_queries(registry, queries.queries)


def join_stored_types(found: Declarations, schema: Schema, graph: str, file: str) -> Declarations:
    """What a module declares for a graph that owns its types, and classes for these types."""
    targeted = [each for each in found.shapes if each.__trails__.target is not None]  # type: ignore[attr-defined]
    declared = [each.__name__ for each in (*found.types, *targeted)]
    if declared:
        raise DeclarationError(
            f"{file} declares {', '.join(declared)}, but the types of graph {graph!r} are in the "
            f'graph itself (schema = "graph"); remove them from {file}, or remove that setting'
        )
    types, shapes = make_classes(schema, f"trails_graph_{graph.replace('-', '_')}")
    return found + Declarations(types=types, shapes=shapes)
