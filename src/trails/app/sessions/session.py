"""A graph as the command line sees it, wherever it is: everything goes through its door.

Parameters of a query text in JSON: what JSON has no form for is written as in JSON-LD.

Files on their way into a graph: what is said about them, and their bytes, as one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Protocol, TypeVar

import msgspec

from trails.engine.transfer.formats import Joined, common_format
from trails.errors import ConflictError, NotFoundError, ValidationError
from trails.model.capabilities import StoredQuery, Tool
from trails.model.history import (
    BranchInfo,
    BranchPage,
    CommitDetail,
    CommitFilter,
    CommitPage,
    Difference,
    MergeRequest,
    MergeResult,
)
from trails.model.kinds import Iri, kind_of
from trails.model.results import QueryAnswer
from trails.model.writes import LoadRequest, LoadResult, Mutation
from trails.surfaces.cli.operations import InstancePage, Listing, ReadState, WriteOptions


def write_params(params: Mapping[str, object]) -> dict[str, object]:
    """Values for ``$name``, as a server takes them."""
    return {name: _write(value) for name, value in params.items()}


def _write(value: object) -> object:
    if isinstance(value, Iri):
        return {"@id": str(value)}
    kind = kind_of(value)
    if kind is None or kind.plain is None:
        return value
    return {"@value": kind.lexical(value), "@type": kind.datatype}


_T = TypeVar("_T")
_PAGE: Final = 1000
"""Branches that are asked for at a time."""


class GraphClient(Protocol):
    """A kernel, here or behind a server. Answers are JSON texts; failures are raised."""

    graph: str
    nodes: str

    def tools(self) -> Sequence[Tool]:
        """The tools, by name."""

    def execute(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """Call a tool."""

    def instances(self, view: ReadState, wanted: Listing) -> InstancePage:
        """A page of a type's instances."""

    def instance(self, view: ReadState, type_name: str, identifier: str) -> bytes:
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

    def __init__(self, door: GraphClient) -> None:
        self._door = door
        self.graph = door.graph
        self.nodes = door.nodes

    def tools(self) -> Sequence[Tool]:
        """Everything that can be called, by name."""
        return self._door.tools()

    def call(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Call a capability, a stored query or a built-in."""
        return msgspec.json.decode(self._door.execute(name, arguments), type=dict[str, object])

    def instances(self, view: ReadState, wanted: Listing) -> InstancePage:
        """A page of a type's instances."""
        return self._door.instances(view, wanted)

    def instance(self, view: ReadState, type_name: str, identifier: str) -> Mapping[str, object]:
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

    def ask(self, view: ReadState, text: str, params: Mapping[str, object]) -> QueryAnswer:
        """Run a query text."""
        given = {"query": text, "params": write_params(params), **_place(view)}
        return self._record(QueryAnswer, "graph_query", given)

    def run(
        self, view: ReadState, name: str, params: Mapping[str, object]
    ) -> QueryAnswer | str | None:
        """Run a stored query; one that changes data gives its commit."""
        given = {"name": name, "params": params, **_place(view)}
        found = self._record(dict[str, object], "stored_query_run", given)
        if "commit" in found:
            return msgspec.convert(found["commit"], str | None)
        return msgspec.convert(found, QueryAnswer)

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

    def export(
        self, view: ReadState, format: str, types: Sequence[str]
    ) -> Generator[bytes, None, None]:
        """A graph as a file, in blocks."""
        return self._door.export({"format": format, "type": list(types), **_place(view)})

    def _record(self, wanted: type[_T], name: str, arguments: Mapping[str, object]) -> _T:
        given = {key: value for key, value in arguments.items() if value is not None}
        return msgspec.json.decode(self._door.record(name, given), type=wanted)


def _place(view: ReadState) -> dict[str, object]:
    """What a view says; a commit stands alone."""
    return {"branch": view.branch} if view.snapshot is None else {"snapshot": view.snapshot}


_BLOCK: Final = 1 << 18
_CODINGS: Final = {".gz": "gzip", ".zst": "zstd"}


class Upload:
    """The files of one load."""

    def __init__(self, request: LoadRequest) -> None:
        self._files = request.files
        self._several = Joined(request.files) if len(request.files) > 1 else None
        self.arguments = {
            "format": common_format(request.files, request.format),
            "mode": request.mode,
            "type": request.type_name,
            "branch": request.branch,
            "from": request.source,
            "message": request.message or None,
            "expected_head": request.expected_head,
            "idempotency_key": request.idempotency_key,
        }
        """What is said about them; None where nothing is."""
        self.coding = _coding(request.files) if self._several is None else ""
        """How a single file is compressed; several are sent as they are inside."""

    @property
    def headers(self) -> dict[str, str]:
        """As HTTP says it."""
        return {"Content-Encoding": self.coding} if self.coding else {}

    def blocks(self, progress: Callable[[int, int | None], None]) -> Iterator[bytes]:
        """The bytes, told as they go."""
        several = self._several
        blocks = _read(self._files[0]) if several is None else several.blocks()
        return _telling(blocks, _size(self._files), progress)

    def placed(self, error: ValidationError) -> ValidationError:
        """What is wrong, with the file that it is in."""
        return error if self._several is None else self._several.placed(error)


def _coding(files: Sequence[object]) -> str:
    suffix = files[0].suffix if isinstance(files[0], Path) else ""
    return _CODINGS.get(suffix, "")


def _read(given: Path | IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    """A file as it is, compressed or not."""
    if isinstance(given, Path):
        try:
            with given.open("rb") as file:
                while block := file.read(_BLOCK):
                    yield block
        except OSError as error:
            raise NotFoundError(f"{given} can't be read: {error.strerror}") from None
        return
    read = getattr(given, "read", None)
    if read is None:
        yield from given
        return
    while block := read(_BLOCK):
        yield block


def _size(files: Sequence[object]) -> int | None:
    """Bytes of all files, where that is known."""
    if not all(isinstance(each, Path) for each in files):
        return None
    return sum(each.stat().st_size for each in files if isinstance(each, Path))


def _telling(
    blocks: Iterable[bytes], total: int | None, progress: Callable[[int, int | None], None]
) -> Iterator[bytes]:
    done = 0
    for block in blocks:
        yield block
        done += len(block)
        progress(done, total)
