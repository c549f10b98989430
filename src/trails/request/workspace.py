"""The files of a project, as operations on the application use them.

The composition root implements it for a project folder. A graph in memory has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from trails.errors import NotFoundError
from trails.model.changes.file_diffs import FileDiff
from trails.model.decisions import (
    Explanation,
    PolicyCase,
    PolicyCheck,
    PolicyQuestion,
    PolicyResult,
)
from trails.model.upkeep import ReloadError, ReloadReport
from trails.registry.migrations import MigrationFile
from trails.registry.registry import Registry


class ProjectLayout(msgspec.Struct, frozen=True):
    """Where a graph's files are, relative to the project."""

    app: str = "app.py"
    queries: str = "queries"
    policies: str = "policies"
    migrations: str = "migrations"
    schema: Literal["python", "graph"] = "python"
    """Where types are declared: in ``app``, or in the graph itself."""


class Workspace(Protocol):
    """The files of one graph of a project."""

    @property
    def layout(self) -> ProjectLayout: ...

    def read(self, path: str) -> str | None:
        """The text of a file inside the project; None if there is none."""
        ...

    def list(self, folder: str, suffix: str) -> list[str]:
        """The paths of the files in a folder of the project, in name order."""
        ...

    def apply(self, diff: FileDiff) -> None:
        """Write all files of a diff, or none of them."""
        ...

    def reload(self, *, apply_schema: bool | None = None) -> ReloadReport:
        """Use the declarations as they are on disk now; if they can't be, say why."""
        ...

    @property
    def reload_error(self) -> ReloadError | None:
        """Why the last reload failed; None if it did not."""
        ...

    def migrations(self) -> Sequence[MigrationFile]:
        """The migrations of the graph, in their order; runs the code of their files."""
        ...

    def declared(self) -> Registry:
        """What the files declare, whether it is in use or not; runs the project's own code."""
        ...


class PolicyAnswers(Protocol):
    """The policies of one graph, as their files are now."""

    def check(self) -> PolicyCheck:
        """Whether they can be used, with every mistake."""
        ...

    def test(self, cases: Sequence[PolicyCase]) -> list[PolicyResult]:
        """The outcome of some cases; of those beside the policies if none are given."""
        ...

    def explain(self, question: PolicyQuestion) -> Explanation:
        """Why something is allowed or denied."""
        ...

    def check_new(self, name: str, text: str) -> None:
        """Raise PolicyError unless a new file of policies fits the others and the types."""
        ...

    def named(self) -> Sequence[tuple[str, str]]:
        """The types and fields that they name, like ``Type::Task``, each with file and line."""
        ...


class WebhookSubject(msgspec.Struct, frozen=True):
    """What a webhook is notified of: changes of types, or of the result of a stored query."""

    name: str
    types: tuple[str, ...] = ()
    query: str = ""


def need_workspace(found: Workspace | None) -> Workspace:
    """Refuse an operation on files for a graph that has none."""
    if found is None:
        raise NotFoundError(
            "this graph has no project folder, so there are no files to read or change; "
            "open a project made with 'trails new'"
        )
    return found
