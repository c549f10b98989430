"""A graph as the command line sees it, wherever it is: everything goes through its door."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from trails.app.sessions.params import write_params
from trails.errors import ConflictError
from trails.model.answers import Answer
from trails.model.capabilities import StoredQuery
from trails.model.loads import LoadRequest, LoadResult
from trails.model.merges import MergeRequest, MergeResult
from trails.model.mutations import Mutation
from trails.model.tools import Tool
from trails.model.versions import (
    BranchInfo,
    BranchPage,
    CommitDetail,
    CommitFilter,
    CommitPage,
    Difference,
)
from trails.surfaces.cli.operations import Listing, Page, View, WriteOptions

_T = TypeVar("_T")
_PAGE: Final = 1000
"""Branches that are asked for at a time."""


class Door(Protocol):
    """A kernel, here or behind a server. Answers are JSON texts; failures are raised."""

    graph: str
    nodes: str

    def tools(self) -> Sequence[Tool]:
        """The tools, by name."""

    def execute(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """Call a tool."""

    def instances(self, view: View, wanted: Listing) -> Page:
        """A page of a type's instances."""

    def instance(self, view: View, type_name: str, identifier: str) -> bytes:
        """One instance as JSON-LD."""

    def record(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """What a built-in gives to programs."""

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadResult:
        """Load files in one commit."""

    def export(self, arguments: Mapping[str, object]) -> Generator[bytes, None, None]:
        """A graph as a file."""


class _Branch(msgspec.Struct):
    branch: BranchInfo


class _Queries(msgspec.Struct):
    queries: list[StoredQuery]


class GraphSession:
    """The work on one graph, on behalf of whoever sits at this machine."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.graph = door.graph
        self.nodes = door.nodes

    def tools(self) -> Sequence[Tool]:
        """Everything that can be called, by name."""
        return self._door.tools()

    def call(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Call a capability, a stored query or a built-in."""
        return msgspec.json.decode(self._door.execute(name, arguments), type=dict[str, object])

    def instances(self, view: View, wanted: Listing) -> Page:
        """A page of a type's instances."""
        return self._door.instances(view, wanted)

    def instance(self, view: View, type_name: str, identifier: str) -> Mapping[str, object]:
        """One instance, as JSON-LD."""
        found = self._door.instance(view, type_name, identifier)
        return msgspec.json.decode(found, type=dict[str, object])

    def branches(self) -> list[BranchInfo]:
        """All branches."""
        found: list[BranchInfo] = []
        given: dict[str, object] = {"limit": _PAGE}
        while True:
            page = self._record(BranchPage, "branch_list", given)
            found += page.branches
            if page.next is None:
                return found
            given["after"] = page.next

    def create_branch(self, name: str, source: str) -> BranchInfo:
        """Make a branch where another branch is, or at a commit."""
        return self._record(_Branch, "branch_create", {"name": name, "from": source}).branch

    def delete_branch(self, name: str, *, force: bool) -> BranchInfo:
        """Delete a branch."""
        return self._record(_Branch, "branch_delete", {"name": name, "force": force}).branch

    def merge(self, request: MergeRequest) -> MergeResult:
        """Merge a branch or commit into a branch."""
        given = msgspec.structs.asdict(request)
        given["resolutions"] = [
            {"conflict": conflict, "take": each.take, "value": each.value}
            for conflict, each in request.resolutions.items()
        ]
        try:
            return self._record(MergeResult, "branch_merge", given)
        except ConflictError as error:
            if "conflicts" not in error.data:
                raise
            return msgspec.convert(error.data, MergeResult)

    def commits(self, wanted: CommitFilter, *, after: str | None, limit: int) -> CommitPage:
        """A page of commits, newest first."""
        given = {**msgspec.structs.asdict(wanted), "after": after, "limit": limit}
        if wanted.branch is None:
            given["all_branches"] = True
        return self._record(CommitPage, "commit_list", given)

    def commit(self, reference: str, *, limit: int) -> CommitDetail:
        """A commit and what it changed."""
        return self._record(CommitDetail, "commit_get", {"commit": reference, "limit": limit})

    def diff(self, start: str, end: str, *, limit: int) -> Difference:
        """What turns one state into another."""
        given = {"from": start, "to": end, "limit": limit}
        return self._record(Difference, "graph_diff", given)

    def queries(self) -> Sequence[StoredQuery]:
        """The stored queries, by name."""
        return self._record(_Queries, "stored_query_list", {}).queries

    def ask(self, view: View, text: str, params: Mapping[str, object]) -> Answer:
        """Run a query text."""
        given = {"query": text, "params": write_params(params), **_place(view)}
        return self._record(Answer, "graph_query", given)

    def run(self, view: View, name: str, params: Mapping[str, object]) -> Answer | str | None:
        """Run a stored query; one that changes data gives its commit."""
        given = {"name": name, "params": params, **_place(view)}
        found = self._record(dict[str, object], "stored_query_run", given)
        if "commit" in found:
            return msgspec.convert(found["commit"], str | None)
        return msgspec.convert(found, Answer)

    def mutate(
        self, branch: str, change: str | Sequence[object], options: WriteOptions
    ) -> Mutation:
        """Change the graph in one commit."""
        what = {"update" if isinstance(change, str) else "operations": change}
        given = {**what, "branch": branch, **msgspec.structs.asdict(options)}
        return self._record(Mutation, "graph_mutate", given)

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadResult:
        """Load files in one commit."""
        return self._door.load(request, progress)

    def export(self, view: View, format: str, types: Sequence[str]) -> Generator[bytes, None, None]:
        """A graph as a file, in blocks."""
        return self._door.export({"format": format, "type": list(types), **_place(view)})

    def _record(self, wanted: type[_T], name: str, arguments: Mapping[str, object]) -> _T:
        given = {key: value for key, value in arguments.items() if value is not None}
        return msgspec.json.decode(self._door.record(name, given), type=wanted)


def _place(view: View) -> dict[str, object]:
    """What a view says; a commit stands alone."""
    return {"branch": view.branch} if view.snapshot is None else {"snapshot": view.snapshot}
