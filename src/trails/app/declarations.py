"""Who owns the types of a graph: the project's Python files, or the graph itself.

Either way there is one authority. A change of the types of ``main``, by whatever operation, goes
through a keeper, which the write path asks before the commit and settles after it:

- ``PythonTypes``: the files are edited with the commit. The change is refused before anything is
  written if the files can't be edited, or would not declare exactly the new types. If the process
  dies in between, the next one that opens the project follows the log (``has_happened``).
- ``GraphTypes``: the commit is the declaration. The registry gets classes that are made from it.

Both check first that queries, policies and capabilities can be used with the new types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from trails.app.staging import PreparedChange
from trails.engine.graph.declarations import (
    UNCHANGED,
    FilePreview,
    NothingDeclared,
    PendingDeclarations,
)
from trails.engine.graph.graph import MAIN
from trails.errors import (
    ConflictError,
    DeclarationError,
    PolicyError,
    RegistryError,
    StorageError,
)
from trails.imports import later
from trails.model.history import Head, Rename, Renames
from trails.model.types import Schema

if TYPE_CHECKING:  # the app makes keepers
    from trails.app import modules, workspace
    from trails.app.app import App
    from trails.engine.sparql import stored_queries
    from trails.model.changes import file_diffs
    from trails.model.changes.file_diffs import FileDiff
    from trails.model.sparql import renames as sparql_renames
    from trails.projections.python import changes
else:
    modules = later("trails.app.modules")
    stored_queries = later("trails.engine.sparql.stored_queries")
    changes = later("trails.projections.python.changes")
    file_diffs = later("trails.model.changes.file_diffs")
    sparql_renames = later("trails.model.sparql.renames")
    workspace = later("trails.app.workspace")

_PATIENCE: Final = 10.0
"""Seconds to wait for a reload that is under way."""


class GraphTypes:
    """Declares the types of a graph that owns them, by making classes of them."""

    def __init__(self, app: App, graph: str) -> None:
        self._app = app
        self._graph = graph

    def preview(self, head: Head, schema: Schema, renames: Sequence[Rename]) -> FilePreview:
        del head, schema, renames
        return FilePreview()

    def prepare(self, head: Head, schema: Schema, renames: Sequence[Rename]) -> PendingDeclarations:
        del head, renames
        _explain(lambda: self._app.try_declarations(self._graph, schema))
        return _Published(lambda: self._app.follow_types(self._graph))


class _Published(NothingDeclared):
    """A change of the registry alone."""

    def __init__(self, publish: Callable[[], None]) -> None:
        self.publish = publish  # type: ignore[method-assign]


class PythonTypes:
    """Declares the types of a graph in the project's Python files."""

    def __init__(self, app: App, graph: str, folder: Path) -> None:
        self._app = app
        self._graph = graph
        self._files = workspace.ProjectWorkspace(app, graph)
        self._folder = folder

    def preview(self, head: Head, schema: Schema, renames: Sequence[Rename]) -> FilePreview:
        graph = self._app.stored_graph(self._graph)
        before = graph.compiled(head.schema).schema
        if before.digest == schema.digest or self._app.declares(self._graph, schema):
            return FilePreview()
        if graph.migrations_follow and not self._app.declares(self._graph, before):
            return FilePreview()  # the files are written for a later migration
        app = self._files.layout.app
        folded = Renames.of(renames)
        changed = changes.change_declarations(self._files.read, app, before, schema, renames=folded)
        terms = sparql_renames.renamed_terms(before, schema, folded)
        return FilePreview(
            file_diffs.make_diff(changed.texts | self._queries(terms)), changed.notes
        )

    def _queries(self, terms: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
        """The stored queries that use a name which is gone, before and after."""
        if not terms:
            return {}
        paths = self._files.list(self._files.layout.queries, stored_queries.SUFFIX)
        texts = {path: self._files.read(path) for path in paths}
        return {
            path: (text, sparql_renames.rename_terms(text, terms))
            for path, text in texts.items()
            if text is not None
        }

    def prepare(self, head: Head, schema: Schema, renames: Sequence[Rename]) -> PendingDeclarations:
        if not self._app.reloading.acquire(timeout=_PATIENCE):
            raise ConflictError(
                "the declarations are being reloaded, so the types can't change now; nothing was "
                "written. Retry in a moment"
            )
        try:
            diff = self.preview(head, schema, renames).diff
            if diff is None:
                self._app.reloading.release()
                return UNCHANGED
            self._refuse_production(diff)
            texts = {each.path: each.text for each in diff.files if each.text is not None}
            modules.check_reloadable(self._folder, self._files.layout.app)
            _explain(lambda: self._app.try_declarations(self._graph, schema, texts), diff)
            mark = msgspec.json.encode(_Mark(self._graph, head.commit)).decode()
            change = self._files.prepare(diff, mark)
        except BaseException:
            self._app.reloading.release()
            raise
        return _PendingFiles(self._app, self._graph, head.commit, change)

    def _refuse_production(self, diff: FileDiff) -> None:
        if self._app.settings.project.env == "production":
            raise DeclarationError(
                f"the types of main are declared in {self._files.layout.app}, and env is "
                "'production', where operations change no files; change it where it is developed, "
                "and deploy it. Nothing was written",
                diff=diff.unified,
            )


class _PendingFiles:
    """Changed files that are staged; reloads wait until it is settled."""

    def __init__(self, app: App, graph: str, head: str, change: PreparedChange) -> None:
        self._app = app
        self._graph = graph
        self._head = head
        self._change = change

    def settle(self) -> None:
        graph = self._app.stored_graph(self._graph)
        try:
            if graph.log_head(MAIN).commit == self._head:
                self._change.undo()
                return
            graph.on_step("mid_declare")
            self._change.finish()
            graph.on_step("after_declare")
        except StorageError as error:
            raise type(error)(
                f"the types have changed, but the files that declare them could not be written: "
                f"{error.message}. They are written when the project is opened again; do not "
                "repeat the change"
            ) from error
        finally:
            self._app.reloading.release()

    def publish(self) -> None:
        self._app.follow_types(self._graph)


class _Mark(msgspec.Struct, frozen=True):
    """What a change of files belongs to: the change of ``main`` that starts at a commit."""

    graph: str
    head: str


def has_happened(app: App, mark: str) -> bool:
    """Whether the commit that a change of files belongs to is in the log."""
    try:
        found = msgspec.json.decode(mark, type=_Mark)
    except msgspec.DecodeError:
        return False
    # From the moment that the change was staged until now, nothing else could move main.
    is_known = found.graph in app.settings.graphs
    return is_known and app.stored_graph(found.graph).log_head(MAIN).commit != found.head


def _explain(attempt: Callable[[], None], diff: FileDiff | None = None) -> None:
    """Say that it is the change of types which declarations refuse, and how to go on."""
    try:
        attempt()
    except (DeclarationError, PolicyError, RegistryError) as error:
        data = {} if diff is None else {"diff": diff.unified}
        raise DeclarationError(
            f"the types can't change, because the project could not be used afterwards: "
            f"{error.message}. Change that first, or by hand together with the types; nothing was "
            "written",
            **{**error.data, **data},
        ) from error
