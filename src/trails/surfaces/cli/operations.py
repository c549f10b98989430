"""The interface between the command line and the application, which implements it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from trails.model.actors import IssuedToken, TokenRecord, TokenRequest
from trails.model.capabilities import Tool, ToolList
from trails.model.decisions import (
    Explanation,
    PolicyActor,
    PolicyCheck,
    PolicyMatrix,
    PolicyQuestion,
    PolicyResult,
)
from trails.model.history import BranchInfo, CommitQuery, MergeRequest
from trails.model.metrics import ServerMetrics
from trails.model.operations.drafts import DryRunResult, ProposalResult
from trails.model.operations.graph import (
    ChangeResult,
    LoadedData,
    MutationResult,
    QueryResult,
    StoredQueryInfo,
)
from trails.model.operations.history import (
    CommitList,
    CommitResult,
    DifferenceResult,
    MergeOutcome,
)
from trails.model.upkeep import (
    Cleaned,
    ClientPlace,
    Installation,
    InstallRequest,
    Manifest,
    MovedLog,
    Optimized,
    Recovery,
    ReloadReport,
    Report,
    RestoreRequest,
    WebhookStatus,
)
from trails.model.writes import LoadRequest

if TYPE_CHECKING:  # most commands need nothing of it
    from trails.authoring.plugins import PluginCommand

Progress = Callable[[str], None]
"""Reports progress, one line at a time."""


class ReadState(msgspec.Struct, frozen=True):
    """What is read: a branch, or the graph as of a commit."""

    branch: str = "main"
    snapshot: str | None = None


class ProjectLocation(msgspec.Struct, frozen=True):
    """Where a command works: in a project folder, or on a running server."""

    folder: Path
    server: str | None = None


class Listing(msgspec.Struct, frozen=True):
    """Which instances of a type to list: with one value of one field, and from where on."""

    type: str
    where: str | None = None
    limit: int | None = None
    offset: int | None = None
    cursor: str | None = None
    fields: tuple[str, ...] = ()
    """The fields to show; none: only the label."""


class InstanceItem(msgspec.Struct, frozen=True):
    """An instance in a list."""

    iri: str
    label: str
    values: dict[str, object] | msgspec.UnsetType = msgspec.UNSET
    """Those of the fields that were asked for."""


class InstancePage(msgspec.Struct, frozen=True):
    """Some instances, and where the next page begins."""

    instances: tuple[InstanceItem, ...]
    next: str | None = None


class RecordName(msgspec.Struct, frozen=True):
    """A record as somebody typed it."""

    type: str
    id: str
    """The id, or a reference of that type."""
    view: ReadState


class WriteOptions(msgspec.Struct, frozen=True):
    """Options that every write has."""

    message: str = ""
    expected_head: str | None = None
    idempotency_key: str | None = None


class Endpoint(msgspec.Struct, frozen=True):
    """Where MCP clients reach a graph."""

    graph: str
    url: str
    add: str
    """The command that adds this endpoint to a client."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is ready."""

    project: str
    data: str
    url: str
    graphs: Sequence[Endpoint]
    owner: bool
    """Whether this process has the data open itself."""
    pid: int
    """The process that has the data open."""
    quarantined: Mapping[str, str]
    access: Sequence[str]
    """A summary of who has access."""


class Session(Protocol):
    """The work on one graph of an opened project."""

    graph: str
    nodes: str
    """The common prefix of the IRIs of this graph's nodes."""

    def branches(self) -> list[BranchInfo]:
        """All branches."""

    def create_branch(self, name: str, source: str) -> BranchInfo:
        """Create a branch from a branch or commit."""

    def delete_branch(self, name: str, *, force: bool) -> BranchInfo:
        """Delete a branch."""

    def merge(self, request: MergeRequest) -> MergeOutcome:
        """Merge a branch or commit into a branch."""

    def commits(self, wanted: CommitQuery, *, after: str | None, limit: int) -> CommitList:
        """A page of commits, newest first."""

    def commit(self, reference: str, *, limit: int) -> CommitResult:
        """A commit and what it changed."""

    def diff(self, start: str, end: str, *, limit: int) -> DifferenceResult:
        """The changes from one state to another."""

    def tools(self) -> Sequence[Tool]:
        """Everything that can be called, by name."""

    def listed(self) -> ToolList:
        """The same with the digest of the registry."""

    def call(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Call a capability, a stored query or a built-in."""

    def record(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """What a built-in that has a REST route gives to programs."""

    def instances(self, view: ReadState, wanted: Listing) -> InstancePage:
        """A page of a type's instances."""

    def instance(
        self, wanted: RecordName, *, fields: Sequence[str], as_json_ld: bool
    ) -> Mapping[str, object]:
        """One instance, as JSON-LD or as plain values; some of its fields, or all."""

    def queries(self) -> Sequence[StoredQueryInfo]:
        """The stored queries, by name."""

    def ask(self, view: ReadState, text: str, params: Mapping[str, object]) -> QueryResult:
        """Run a query text."""

    def run(
        self, view: ReadState, name: str, params: Mapping[str, object]
    ) -> QueryResult | ChangeResult:
        """Run a stored query; one that changes data gives its commit."""

    def mutate(
        self, branch: str, change: str | Sequence[object], options: WriteOptions
    ) -> MutationResult:
        """Change the graph in one commit."""

    def draft(self, name: str, arguments: Mapping[str, object]) -> DryRunResult | ProposalResult:
        """What a built-in that writes would change, or has proposed."""

    def draft_load(
        self,
        request: LoadRequest,
        controls: Mapping[str, bool],
        progress: Callable[[int, int | None], None],
    ) -> DryRunResult | ProposalResult:
        """What a load would change, or has proposed."""

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadedData:
        """Load files in one commit; progress is bytes done, and bytes in all where known."""

    def export(
        self, view: ReadState, format: str, types: Sequence[str]
    ) -> Generator[bytes, None, None]:
        """A graph as a file, in blocks."""

    def put_blob(
        self, blocks: Iterable[bytes], arguments: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Keep content; its URI and what is known of it."""

    def blob(
        self, view: ReadState, type_name: str, identifier: str, field: str
    ) -> Generator[bytes, None, None]:
        """The content of the blob that a field of a record names, in blocks."""

    def content(self, export: str, start: int) -> Generator[bytes, None, None]:
        """The file of a finished export from a byte on, in blocks."""


class ServeCommand(Protocol):
    """The work behind ``serve``."""

    def serve_stdio(
        self, folder: Path, graph: str | None, progress: Progress, *, read_only: bool = False
    ) -> int:
        """Serve one graph on the standard streams; the number of the signal that ended it, or 0."""

    def serve_remote(self, server: str, graph: str | None, progress: Progress) -> int:
        """Pass one client's messages on to a server; the number of the signal, or 0."""

    def serve_http(
        self,
        folder: Path,
        host: str | None,
        port: int | None,
        ready: Callable[[Served], None],
        progress: Progress,
        *,
        read_only: bool = False,
    ) -> int:
        """Serve a project on a port, and call ``ready`` once; the signal that ended it, or 0."""


class Tokens(Protocol):
    """The work behind ``token``: in a project folder, also while it is served."""

    def issue_token(self, folder: Path, request: TokenRequest) -> IssuedToken:
        """Make a token."""

    def tokens(self, folder: Path) -> list[TokenRecord]:
        """All tokens, oldest first."""

    def revoke_tokens(
        self, folder: Path, ids: Sequence[str], actor: str | None
    ) -> list[TokenRecord]:
        """Revoke tokens, by id or all of an actor."""


class PolicyCommands(Protocol):
    """The work behind ``policy``: in a project folder, also while it is served."""

    def check_policies(self, folder: Path) -> list[PolicyCheck]:
        """Check the policies of every graph and of the server."""

    def test_policies(
        self, folder: Path, graph: str | None, file: Path | None
    ) -> list[PolicyResult]:
        """Run the test cases of a file."""

    def explain_policy(
        self, folder: Path, graph: str | None, question: PolicyQuestion
    ) -> Explanation:
        """Explain why an action is allowed or denied."""

    def policy_matrix(
        self, folder: Path, graph: str | None, actors: Sequence[PolicyActor], branch: str
    ) -> PolicyMatrix:
        """Which actor may use which tool; the known actors if none are given."""


class Operations(ServeCommand, Tokens, PolicyCommands, Protocol):
    """The work behind the commands."""

    def new(
        self, folder: Path, name: str | None, schema: Literal["python", "graph"] = "python"
    ) -> tuple[Path, list[str]]:
        """Create a project folder; returns its path and files."""

    def doctor(
        self, place: ProjectLocation, documents: Sequence[Path], progress: Progress
    ) -> list[Report]:
        """Check a project or a server, and stored documents; suggest fixes."""

    def metrics(self, place: ProjectLocation) -> ServerMetrics:
        """One moment of the server at a URL, or of the process that serves a folder."""

    def plugin_commands(self, folder: Path) -> Sequence[PluginCommand]:
        """The commands of the plugins that a project enables; none if it is not a project."""

    def reload(
        self, place: ProjectLocation, graph: str | None, progress: Progress, *, apply_schema: bool
    ) -> list[ReloadReport] | None:
        """Have a server read declarations again; None if no process serves the folder."""

    def verify(self, folder: Path, *, repair: bool, progress: Progress) -> list[Report]:
        """Verify a project's logs and views."""

    def open(
        self, place: ProjectLocation, graph: str | None, progress: Progress, *, declared: bool
    ) -> AbstractContextManager[Session]:
        """Open a graph of a project: the named one, the only one, or ``main``.

        A folder that another process serves is reached through that process.

        Without ``declared`` the project's own code is not run.
        """

    def graphs(self, place: ProjectLocation) -> dict[str, str]:
        """The graphs of a project, or those that a server shows; the base of their IRIs."""

    def console(
        self, folder: Path, graph: str | None, branch: str, actor: str, progress: Progress
    ) -> AbstractContextManager[Mapping[str, object]]:
        """Open a project, and its code, for a prompt; the names that are known there."""

    def webhooks(self, folder: Path, graph: str | None, progress: Progress) -> list[WebhookStatus]:
        """The webhooks of every graph, or of the named one."""

    def resume_webhook(
        self, folder: Path, graph: str | None, name: str, since: str | None, progress: Progress
    ) -> WebhookStatus:
        """Enable a webhook again, from its position or from another commit."""

    def cleanup(
        self, folder: Path, graph: str | None, progress: Progress, *, keep: int, dry_run: bool
    ) -> dict[str, Cleaned]:
        """Remove cached and left-over files of every graph, or of the named one."""

    def optimize(self, folder: Path, graph: str | None, progress: Progress) -> dict[str, Optimized]:
        """Compact the files of every graph, or of the named one."""

    def recover(
        self,
        folder: Path,
        graph: str | None,
        progress: Progress,
        *,
        dry_run: bool,
        accept_loss: bool,
    ) -> list[Recovery]:
        """Recover lost commits; the outcome for each graph."""

    def copy_log(
        self, folder: Path, graph: str | None, to: str, progress: Progress
    ) -> Iterator[MovedLog]:
        """Move the log of every graph, or of the named one; what became of each."""

    def backup(self, folder: Path, target: Path, progress: Progress) -> dict[str, Manifest | None]:
        """Add what is new in all graphs to the backups in a folder; by graph, None for nothing."""

    def list_backups(
        self, source: Path, progress: Progress, *, check: bool
    ) -> dict[str, list[Manifest]]:
        """What the backups in a folder hold; with ``check``, every file is read."""

    def restore(
        self, folder: Path, source: Path, progress: Progress, wanted: RestoreRequest
    ) -> dict[str, Path | None]:
        """Restore graphs of a backup; for each, where its old data was moved to."""

    def clients(self, folder: Path) -> list[ClientPlace]:
        """MCP clients and their configuration files."""

    def install_client(self, folder: Path, request: InstallRequest, *, dry: bool) -> Installation:
        """Add a graph to a client's configuration, or show what would be added."""

    def uninstall_client(self, folder: Path, request: InstallRequest) -> Installation:
        """Remove a graph from a client's configuration."""
