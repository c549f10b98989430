"""A project's own files: the module that declares a graph, and its stored queries.

An exception during import becomes an error that names the file and line, without a stack
trace and without texts that may contain a secret. No data is opened here.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from contextlib import suppress
from inspect import iscoroutinefunction
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import cast

from trails.app.settings import Embeddings, Settings
from trails.engine.graph.embeddings import Embed
from trails.engine.sparql.stored_queries import read_queries
from trails.errors import DeclarationError, SettingsError, TrailsError
from trails.model.iris import Names
from trails.registry.registry import Registry, RegistryCell, collect, discover, with_queries
from trails.request.builtins.graph import META

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


def load_module(folder: Path, file: str, graph: str) -> ModuleType:
    """Return a project's module: the one that the program has imported, or a new import.

    Reusing the program's module keeps one class per type when the file is run as a script or
    imported as well. A module of an earlier opening is not reused: the file may have changed.
    """
    path = folder / file
    for known, loaded in list(sys.modules.items()):
        if getattr(loaded, "__file__", None) == str(path) and not known.startswith(_OWN_MODULES):
            return loaded
    if not path.is_file():
        raise SettingsError(f"graph {graph!r} names {file}, but {folder} has no such file")
    name = _module_name(folder, graph)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"graph {graph!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        if isinstance(error, DeclarationError) or not isinstance(error, Exception | SystemExit):
            raise
        raise DeclarationError(_explain(error, file, path)) from error
    finally:
        sys.path.remove(str(folder))
    return module


def _explain(error: BaseException, file: str, path: Path) -> str:
    """Say which line of the module failed, with which kind of error."""
    frames = walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == str(path)]
    line = lines[-1] if lines else None
    detail = type(error).__name__
    if isinstance(error, SyntaxError):
        line = error.lineno if error.filename == str(path) else line
        detail += f": {error.msg}"
    elif isinstance(error, _SAFE_MESSAGES):
        detail += f": {error}"
    where = file if line is None else f"{file}:{line}"
    return f"{where} can't be imported: {detail}"


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
    found = discover(load_module(folder, given.app, graph))
    registry = RegistryCell(collect(META).capabilities).register(
        types=found.types,
        shapes=found.shapes,
        capabilities=found.capabilities,
        rules=found.rules,
    )
    queries = read_queries(
        queries_folder(folder, given.queries, graph),
        registry.schema,
        Names(settings.base_iri(graph)),
    )
    return with_queries(registry, queries.queries)
