"""A graph as the command line sees it, wherever it is: everything goes through its door."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from trails.model.answers import Answer
from trails.model.capabilities import StoredQuery
from trails.model.loads import LoadRequest, LoadResult
from trails.model.merges import MergeRequest, MergeResult
from trails.model.mutations import Mutation
from trails.model.tools import Tool
from trails.model.versions import BranchInfo, CommitDetail, CommitFilter, CommitPage, Difference
from trails.surfaces.cli.operations import Listing, Page, View, WriteOptions

_T = TypeVar("_T")


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

    def queries(self) -> bytes:
        """The stored queries."""

    def run(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """Run a stored query."""

    def diff(self, arguments: Mapping[str, object]) -> bytes:
        """Compare two states."""

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadResult:
        """Load files in one commit."""

    def export(self, arguments: Mapping[str, object]) -> Generator[bytes, None, None]:
        """A graph as a file."""


class _Branches(msgspec.Struct):
    branches: list[BranchInfo]


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
        return self._ask(dict[str, object], name, arguments)

    def instances(self, view: View, wanted: Listing) -> Page:
        """A page of a type's instances."""
        return self._door.instances(view, wanted)

    def instance(self, view: View, type_name: str, identifier: str) -> Mapping[str, object]:
        """One instance, as JSON-LD."""
        found = self._door.instance(view, type_name, identifier)
        return msgspec.json.decode(found, type=dict[str, object])

    def branches(self) -> list[BranchInfo]:
        """All branches."""
        return self._ask(_Branches, "branch_list", {}).branches

    def create_branch(self, name: str, source: str) -> BranchInfo:
        """Make a branch where another branch is, or at a commit."""
        return self._ask(BranchInfo, "branch_create", {"name": name, "from": source})

    def delete_branch(self, name: str, *, force: bool) -> BranchInfo:
        """Delete a branch."""
        return self._ask(BranchInfo, "branch_delete", {"name": name, "force": force})

    def merge(self, request: MergeRequest) -> MergeResult:
        """Merge a branch or commit into a branch."""
        return self._ask(MergeResult, "branch_merge", _said(request))

    def commits(self, wanted: CommitFilter, *, after: str | None, limit: int) -> CommitPage:
        """A page of commits, newest first."""
        return self._ask(
            CommitPage, "commit_list", {**_said(wanted), "after": after, "limit": limit}
        )

    def commit(self, reference: str, *, limit: int) -> CommitDetail:
        """A commit and what it changed."""
        return self._ask(CommitDetail, "commit_get", {"commit": reference, "limit": limit})

    def diff(self, start: str, end: str, *, limit: int) -> Difference:
        """What turns one state into another."""
        found = self._door.diff({"from": start, "to": end, "limit": limit})
        return msgspec.json.decode(found, type=Difference)

    def queries(self) -> Sequence[StoredQuery]:
        """The stored queries, by name."""
        return msgspec.json.decode(self._door.queries(), type=_Queries).queries

    def ask(self, view: View, text: str, params: Mapping[str, object]) -> Answer:
        """Run a query text."""
        return self._ask(Answer, "graph_query", {"query": text, "params": params, **_said(view)})

    def run(self, view: View, name: str, params: Mapping[str, object]) -> Answer | str | None:
        """Run a stored query; one that changes data gives its commit."""
        found = self._door.run(name, {"params": params, **_said(view)})
        value = msgspec.json.decode(found, type=dict[str, object])
        if "commit" in value:
            return msgspec.convert(value["commit"], str | None)
        return msgspec.convert(value, Answer)

    def mutate(
        self, branch: str, change: str | Sequence[object], options: WriteOptions
    ) -> Mutation:
        """Change the graph in one commit."""
        what = {"update" if isinstance(change, str) else "operations": change}
        return self._ask(Mutation, "graph_mutate", {**what, "branch": branch, **_said(options)})

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadResult:
        """Load files in one commit."""
        return self._door.load(request, progress)

    def export(self, view: View, format: str, types: Sequence[str]) -> Generator[bytes, None, None]:
        """A graph as a file, in blocks."""
        return self._door.export({"format": format, "type": list(types), **_said(view)})

    def _ask(self, wanted: type[_T], name: str, arguments: Mapping[str, object]) -> _T:
        given = {key: value for key, value in arguments.items() if value is not None}
        return msgspec.json.decode(self._door.execute(name, given), type=wanted)


def _said(value: msgspec.Struct) -> dict[str, object]:
    """What a value says that is not said by saying nothing."""
    return {
        field.name: msgspec.to_builtins(given)
        for field in msgspec.structs.fields(value)
        if (given := getattr(value, field.name)) != field.default
        and not (given == {} and field.default is msgspec.NODEFAULT)
    }
