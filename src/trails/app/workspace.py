"""The files of one graph of a project folder: read them, change them, use what they declare.

What may be changed: Python modules anywhere in the project; stored queries, policies and their
cases, in the folders that the settings name or that are named so; ``trails.toml``; and, as new
files only, the ``pyproject.toml`` and ``README.md`` of a package in a folder of its own. Never:
hidden files (which ``.trails``, ``.git`` and ``.venv`` are), virtual environments, and paths that
lead out of the project or through a symbolic link. A change of a module is code that runs at the
next reload or start, so the operation that applies one needs the scope ``dev``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trails.app.settings import DATA_FOLDER, SETTINGS_FILE
from trails.app.staging import FileChanges, PreparedChange, SourceFiles
from trails.errors import FieldError, ReadOnlyError, StorageError, ValidationError
from trails.imports import later
from trails.model.upkeep import ReloadError, ReloadReport
from trails.registry.registry import Registry
from trails.request.workspace import ProjectLayout

if TYPE_CHECKING:  # the app makes workspaces
    from trails.app.app import App
    from trails.model.changes import file_diffs
    from trails.model.changes.file_diffs import FileChange, FileDiff
    from trails.registry.migrations import MigrationFile
else:
    file_diffs = later("trails.model.changes.file_diffs")

_LONGEST: Final = 240
"""Characters of a path."""
_PACKAGE_FILES: Final = frozenset({"pyproject.toml", "README.md"})
_NEVER: Final = frozenset({"__pycache__", "site-packages", "node_modules"})


class ProjectWorkspace:
    """The files of one graph; satisfies ``request.workspace.Workspace``."""

    def __init__(self, app: App, graph: str) -> None:
        if app.folder is None:
            raise StorageError("a graph in memory has no files; open a project folder")
        self._app = app
        self._graph = graph
        self._files = SourceFiles(app.folder)
        self._changes = FileChanges(app.folder, app.folder / DATA_FOLDER)

    @property
    def layout(self) -> ProjectLayout:
        given = self._app.settings.graphs[self._graph]
        return ProjectLayout(
            app=given.app,
            queries=given.queries,
            policies=given.policies,
            migrations=given.migrations,
            schema=given.schema,
        )

    def read(self, path: str) -> str | None:
        """The text of a file as it is: with its line ends, and its byte order mark if it has one.

        The settings and what may be changed can be read, nothing else.
        """
        _raise(
            [*self._faults(file_diffs.FileChange(path, "modify", None, None), "path", reading=True)]
        )
        found = self._files.read(path)
        if found is None:
            return None
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise StorageError(f"{path} is not UTF-8; save it as UTF-8 and retry") from None

    def list(self, folder: str, suffix: str) -> list[str]:
        """The paths of the files in a folder, in name order."""
        problem = _path_fault(folder)
        if problem is not None:
            _raise([FieldError("folder", "path", problem, folder)])
        names = self._files.names(folder)
        return [f"{folder}/{each}" for each in names if each.endswith(suffix) and each[:1] != "."]

    def apply(self, diff: FileDiff) -> None:
        """Write all files of a diff, or none of them."""
        self._check(diff)
        self._changes.apply(diff.files)

    def prepare(self, diff: FileDiff, mark: str) -> PreparedChange:
        """Stage a diff that is finished together with something else, for example a commit."""
        self._check(diff)
        return self._changes.prepare(diff.files, mark)

    def migrations(self) -> tuple[MigrationFile, ...]:
        """The migrations of the graph, in their order; runs the code of their files."""
        return self._app.migrations(self._graph)

    def declared(self) -> Registry:
        """What the files declare, whether it is in use or not; runs the project's own code."""
        return self._app.declared(self._graph)

    def reload(self, *, apply_schema: bool | None = None) -> ReloadReport:
        """Use the declarations as they are on disk now; if they can't be, say why."""
        return self._app.reload(self._graph, apply_schema=apply_schema)

    @property
    def reload_error(self) -> ReloadError | None:
        """Why the last reload failed; None if it did not."""
        return self._app.reload_errors.get(self._graph)

    def _check(self, diff: FileDiff) -> None:
        """Refuse paths that may not be changed, all at once."""
        if self._app.settings.project.read_only:
            raise ReadOnlyError(
                "this project is open read-only, so no file is changed; open it for writing"
            )
        errors: list[FieldError] = []
        for at, change in enumerate(diff.files):
            errors += self._faults(change, f"files[{at}]")
        _raise(errors or [*_clashes(diff.files)])

    def _faults(
        self, change: FileChange, where: str, *, reading: bool = False
    ) -> Iterator[FieldError]:
        problem = _path_fault(change.path) or self._rule_fault(change, reading=reading)
        if problem is not None:
            yield FieldError(f"{where}.path", "path", f"{where}.path: {problem}", change.path[:200])
        if reading:
            return
        kind = change.change
        for part, given, expected in (
            ("base", change.base is not None, kind != "create"),
            ("digest", change.digest is not None, kind != "delete"),
            ("content", change.content is not None, kind == "create"),
            ("edits", bool(change.edits), kind == "modify"),
        ):
            if given != expected:
                needs = "needs" if expected else "can't have"
                message = f"{where}.{part}: a change of the kind {kind!r} {needs} {part}"
                yield FieldError(f"{where}.{part}", "change", message)
        texts = (change.content or "", *(each.insert for each in change.edits))
        if not all(map(_is_text, texts)):
            message = f"{where}: it has characters that no text file can have"
            yield FieldError(where, "text", message)

    def _rule_fault(self, change: FileChange, *, reading: bool) -> str | None:
        path, layout = change.path, self.layout
        *folders, name = path.split("/")
        if self._files.is_environment(folders):
            return f"{path} is in a virtual environment; only the project's own files are changed"
        if path == SETTINGS_FILE:
            return None if change.change == "modify" else f"{path} can only be modified"
        if name.endswith(".py"):
            return None
        if name.endswith(".rq") and (_is_below(path, layout.queries) or "queries" in folders):
            return None
        is_policy = _is_below(path, layout.policies) or "policies" in folders
        if is_policy and (name.endswith(".cedar") or name == "tests.toml"):
            return None
        if name in _PACKAGE_FILES and (reading or (change.change == "create" and folders)):
            return None
        if reading and path in {"ruff.toml", "pyproject.toml"}:
            return None
        return (
            f"{path[:100]!r} is not a file that can be changed here: modules (*.py), stored "
            f"queries ({layout.queries}/*.rq), policies ({layout.policies}/*.cedar) and "
            f"{SETTINGS_FILE} can"
        )


def recover_files(
    folder: Path, happened: Callable[[str], bool], report: Callable[[str], None]
) -> None:
    """Finish or undo a change of files that a killed process left, before the files are used."""
    changed = FileChanges(folder, folder / DATA_FOLDER).recover(happened)
    if changed:
        report(f"finished an interrupted change of {', '.join(changed)}")


def _path_fault(path: str) -> str | None:
    """Why a path is not one below the project, written in the one way that is accepted."""
    parts = path.split("/")
    if not path or len(path) > _LONGEST:
        return f"a path has 1 to {_LONGEST} characters"
    if "\\" in path or not path.isprintable():
        return f"{path[:100]!r} has a backslash or control characters; write it with '/'"
    if any(part in {"", ".", ".."} for part in parts):
        return f"{path[:100]!r} must be relative to the project, without '.', '..' and '//'"
    if any(part.startswith(".") or part in _NEVER for part in parts):
        return f"{path[:100]!r} is hidden or belongs to a tool; it is never read or changed"
    return None


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.strip('/')}/")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _clashes(changes: Sequence[FileChange]) -> Iterator[FieldError]:
    """Two changes of one file, or of a file and of something below it."""
    seen: dict[str, str] = {}
    for at, change in enumerate(changes):
        folded = change.path.casefold()
        for other, path in seen.items():
            if folded == other or folded.startswith(f"{other}/") or other.startswith(f"{folded}/"):
                message = f"files[{at}].path: {change.path} and {path} can't both be changed"
                yield FieldError(f"files[{at}].path", "path", message, change.path)
        seen[folded] = change.path


def _raise(errors: list[FieldError]) -> None:
    if errors:
        raise ValidationError(errors)
