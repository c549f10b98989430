"""A graph as the command line uses it, local or remote, through a ``GraphClient``.

Query parameters are sent as JSON; values without a JSON form are written as in JSON-LD. The
files of a load are sent as one stream, with their names and sizes in a header.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from trails.errors import ConflictError, NotFoundError, ValidationError
from trails.imports import later
from trails.model.capabilities import Tool, ToolList
from trails.model.history import BranchInfo, CommitQuery, MergeRequest
from trails.model.kinds import Iri, kind_of
from trails.model.operations.drafts import DryRunResult, ProposalResult
from trails.model.operations.graph import (
    ChangeResult,
    LoadedData,
    MutationResult,
    QueryResult,
    StoredQueryInfo,
    StoredQueryList,
)
from trails.model.operations.history import (
    BranchCreated,
    BranchDeleted,
    BranchList,
    CommitList,
    CommitResult,
    DifferenceResult,
    MergeOutcome,
)
from trails.model.values.lang_texts import LangText
from trails.model.writes import LoadRequest
from trails.surfaces.cli.operations import (
    InstancePage,
    Listing,
    ReadState,
    RecordName,
    WriteOptions,
)

if TYPE_CHECKING:
    from trails.engine.transfer import formats
else:
    formats = later("trails.engine.transfer.formats")


def write_params(params: Mapping[str, object]) -> dict[str, object]:
    """Return values for ``$name`` as a server accepts them."""
    return {name: _write(value) for name, value in params.items()}


def _write(value: object) -> object:
    if isinstance(value, Iri):
        return {"@id": str(value)}
    if isinstance(value, LangText) and len(value) == 1:
        ((tag, text),) = value.items()
        return {"@value": text, "@language": tag}
    kind = kind_of(value)
    if kind is None or kind.plain is None:
        return value
    return {"@value": kind.lexical(value), "@type": kind.datatype}


_T = TypeVar("_T")
_PAGE: Final = 1000
"""Branches per request."""


class GraphClient(Protocol):
    """A kernel, here or behind a server. Answers are JSON texts; failures are raised."""

    graph: str
    nodes: str

    def tools(self) -> ToolList: ...

    def execute(self, name: str, arguments: Mapping[str, object]) -> bytes: ...

    def instances(self, view: ReadState, wanted: Listing) -> InstancePage: ...

    def instance(self, wanted: RecordName, *, fields: Sequence[str], as_json_ld: bool) -> bytes: ...

    def record(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """Return the structured result of a built-in."""

    def load(
        self, request: LoadRequest, progress: Callable[[int, int | None], None]
    ) -> LoadedData: ...

    def draft_load(
        self,
        request: LoadRequest,
        controls: Mapping[str, bool],
        progress: Callable[[int, int | None], None],
    ) -> bytes:
        """Load files on a draft of the graph."""

    def export(self, arguments: Mapping[str, object]) -> Generator[bytes, None, None]: ...

    def content(self, export: str, start: int) -> Generator[bytes, None, None]:
        """Yield the file of a finished export from a byte on."""

    def put_blob(self, blocks: Iterable[bytes], arguments: Mapping[str, object]) -> bytes:
        """Keep content."""

    def blob(
        self, view: ReadState, type_name: str, identifier: str, field: str
    ) -> Generator[bytes, None, None]:
        """Yield the content of a blob."""


class CommandSession:
    """The work on one graph, on behalf of the user of this machine."""

    def __init__(self, client: GraphClient) -> None:
        self._client = client
        self.graph = client.graph
        self.nodes = client.nodes

    def tools(self) -> Sequence[Tool]:
        return self._client.tools().tools

    def listed(self) -> ToolList:
        """Return the same with the digest of the registry."""
        return self._client.tools()

    def call(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Call a capability, a stored query or a built-in."""
        return msgspec.json.decode(self._client.execute(name, arguments), type=dict[str, object])

    def record(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Call a built-in that has a REST route."""
        return self.typed(dict[str, object], name, arguments)

    def instances(self, view: ReadState, wanted: Listing) -> InstancePage:
        return self._client.instances(view, wanted)

    def instance(
        self, wanted: RecordName, *, fields: Sequence[str], as_json_ld: bool
    ) -> Mapping[str, object]:
        """Return one instance, as JSON-LD or as plain values."""
        found = self._client.instance(wanted, fields=fields, as_json_ld=as_json_ld)
        return msgspec.json.decode(found, type=dict[str, object])

    def branches(self) -> list[BranchInfo]:
        found: list[BranchInfo] = []
        given: dict[str, object] = {"limit": _PAGE}
        while True:
            page = self.typed(BranchList, "branch_list", given)
            found += page.branches
            if page.next is None:
                return found
            given["after"] = page.next.arguments["after"]

    def create_branch(self, name: str, source: str) -> BranchInfo:
        """Create a branch at the head of another branch, or at a commit."""
        return self.typed(BranchCreated, "branch_create", {"name": name, "from": source}).branch

    def delete_branch(self, name: str, *, force: bool) -> BranchInfo:
        given = {"name": name, "force": force}
        return self.typed(BranchDeleted, "branch_delete", given).deleted

    def merge(self, request: MergeRequest) -> MergeOutcome:
        """Merge a branch or commit into a branch."""
        given = msgspec.structs.asdict(request)
        given["resolutions"] = [
            {"conflict": conflict, "take": each.take, "value": each.value}
            for conflict, each in request.resolutions.items()
        ]
        try:
            return self.typed(MergeOutcome, "branch_merge", given)
        except ConflictError as error:
            if "conflicts" not in error.data:
                raise
            return msgspec.convert(error.data, MergeOutcome)

    def commits(self, wanted: CommitQuery, *, after: str | None, limit: int) -> CommitList:
        """Return a page of commits, newest first."""
        given = {**msgspec.structs.asdict(wanted), "after": after, "limit": limit}
        if wanted.branch is None:
            given["all_branches"] = True
        return self.typed(CommitList, "commit_list", given)

    def commit(self, reference: str, *, limit: int) -> CommitResult:
        """Return a commit and its changes."""
        return self.typed(CommitResult, "commit_get", {"commit": reference, "limit": limit})

    def diff(self, start: str, end: str, *, limit: int) -> DifferenceResult:
        """Return the changes from one state to another."""
        given = {"from": start, "to": end, "limit": limit}
        return self.typed(DifferenceResult, "graph_diff", given)

    def queries(self) -> Sequence[StoredQueryInfo]:
        given = {"detail_level": "full"}
        return self.typed(StoredQueryList, "stored_query_list", given).queries

    def ask(self, view: ReadState, text: str, params: Mapping[str, object]) -> QueryResult:
        given = {"query": text, "params": write_params(params), **_place(view)}
        return self.typed(QueryResult, "graph_query", given)

    def run(
        self, view: ReadState, name: str, params: Mapping[str, object]
    ) -> QueryResult | ChangeResult:
        """Run a stored query; one that changes data returns its commit."""
        given = {"name": name, "params": params, **_place(view)}
        found = self.typed(dict[str, object], "stored_query_run", given)
        if "commit" in found:
            return msgspec.convert(found, ChangeResult)
        return msgspec.convert(found, QueryResult)

    def mutate(
        self, branch: str, change: str | Sequence[object], options: WriteOptions
    ) -> MutationResult:
        """Change the graph in one commit."""
        what = {"update" if isinstance(change, str) else "operations": change}
        given = {**what, "branch": branch, **msgspec.structs.asdict(options)}
        return self.typed(MutationResult, "graph_mutate", given)

    def draft(self, name: str, arguments: Mapping[str, object]) -> DryRunResult | ProposalResult:
        """What a built-in that writes would change, or has proposed."""
        return _read_draft(self.record(name, arguments))

    def draft_load(
        self,
        request: LoadRequest,
        controls: Mapping[str, bool],
        progress: Callable[[int, int | None], None],
    ) -> DryRunResult | ProposalResult:
        """What a load would change, or has proposed."""
        found = self._client.draft_load(request, controls, progress)
        return _read_draft(msgspec.json.decode(found, type=dict[str, object]))

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadedData:
        """Load files in one commit."""
        return self._client.load(request, progress)

    def export(
        self, view: ReadState, format: str, types: Sequence[str]
    ) -> Generator[bytes, None, None]:
        """Yield a graph as a file, in blocks."""
        return self._client.export({"format": format, "type": list(types), **_place(view)})

    def content(self, export: str, start: int) -> Generator[bytes, None, None]:
        """Yield the file of a finished export from a byte on."""
        return self._client.content(export, start)

    def put_blob(
        self, blocks: Iterable[bytes], arguments: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Keep content; its URI and what is known of it."""
        found = self._client.put_blob(blocks, arguments)
        return msgspec.json.decode(found, type=dict[str, object])

    def blob(
        self, view: ReadState, type_name: str, identifier: str, field: str
    ) -> Generator[bytes, None, None]:
        """Yield the content of the blob that a field of a record names."""
        return self._client.blob(view, type_name, identifier, field)

    def typed(self, wanted: type[_T], name: str, arguments: Mapping[str, object]) -> _T:
        """Call a built-in that has a REST route, whose result has this type."""
        given = {key: value for key, value in arguments.items() if value is not None}
        return msgspec.json.decode(self._client.record(name, given), type=wanted)


def _read_draft(found: Mapping[str, object]) -> DryRunResult | ProposalResult:
    if "dry_run" in found:
        return msgspec.convert(found, DryRunResult)
    return msgspec.convert(found, ProposalResult)


def _place(view: ReadState) -> dict[str, object]:
    """Return the arguments for a view; a commit needs no branch."""
    return {"branch": view.branch} if view.snapshot is None else {"snapshot": view.snapshot}


_BLOCK: Final = 1 << 18
_CODINGS: Final = {".gz": "gzip", ".zst": "zstd"}


class Upload:
    """The files of one load."""

    def __init__(self, request: LoadRequest) -> None:
        self._files = request.files
        self._several = formats.Joined(request.files) if len(request.files) > 1 else None
        self.arguments = {
            "format": formats.common_format(request.files, request.format),
            "mode": request.mode,
            "type": request.type_name,
            "branch": request.branch,
            "from": request.source,
            "message": request.message or None,
            "expected_head": request.expected_head,
            "idempotency_key": request.idempotency_key,
        }
        """Their description; None if there is nothing to say."""
        self.coding = _coding(request.files) if self._several is None else ""
        """The compression of a single file; several files are sent decompressed."""

    @property
    def headers(self) -> dict[str, str]:
        """Return the description as HTTP headers."""
        return {"Content-Encoding": self.coding} if self.coding else {}

    def blocks(self, progress: Callable[[int, int | None], None]) -> Iterator[bytes]:
        """Yield the bytes, and report progress."""
        several = self._several
        blocks = _read(self._files[0]) if several is None else several.blocks()
        return _with_progress(blocks, _size(self._files), progress)

    def placed(self, error: ValidationError) -> ValidationError:
        """Add the file name to an error."""
        return error if self._several is None else self._several.placed(error)


def _coding(files: Sequence[object]) -> str:
    suffix = files[0].suffix if isinstance(files[0], Path) else ""
    return _CODINGS.get(suffix, "")


def _read(given: Path | IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    """Read a file as it is, compressed or not."""
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
    """Return the bytes of all files, if known."""
    if not all(isinstance(each, Path) for each in files):
        return None
    return sum(each.stat().st_size for each in files if isinstance(each, Path))


def _with_progress(
    blocks: Iterable[bytes], total: int | None, progress: Callable[[int, int | None], None]
) -> Iterator[bytes]:
    done = 0
    for block in blocks:
        yield block
        done += len(block)
        progress(done, total)
