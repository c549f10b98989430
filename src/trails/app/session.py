"""The work of the command line on one graph of a project that is open here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from trails.app.app import App
from trails.engine.maintenance import cleanup, optimize
from trails.model.answers import Answer
from trails.model.capabilities import StoredQuery
from trails.model.loads import LoadRequest, LoadResult
from trails.model.merges import MergeRequest, MergeResult
from trails.model.mutations import Mutation
from trails.model.upkeep import Cleaned, Optimized
from trails.model.versions import BranchInfo, CommitDetail, CommitFilter, CommitPage, Difference
from trails.surfaces.cli.operations import Tell, View, WriteOptions


class LocalSession:
    """A graph, on behalf of whoever sits at this machine."""

    def __init__(self, app: App, graph: str) -> None:
        self._app = app
        self._opened = app.graph(graph)
        self._versions = app.versions(graph)
        self.graph = graph
        self.nodes = self._opened.names.nodes

    def branches(self) -> list[BranchInfo]:
        """All branches."""
        return self._versions.branches()

    def create_branch(self, name: str, source: str) -> BranchInfo:
        """Make a branch where another branch is, or at a commit."""
        return self._versions.create_branch(name, source)

    def delete_branch(self, name: str, *, force: bool) -> BranchInfo:
        """Delete a branch."""
        return self._versions.delete_branch(name, force=force)

    def merge(self, request: MergeRequest) -> MergeResult:
        """Merge a branch or commit into a branch."""
        return self._versions.merge(request)

    def commits(self, wanted: CommitFilter, *, after: str | None, limit: int) -> CommitPage:
        """A page of commits, newest first."""
        return self._versions.commits(
            wanted.branch, actor=wanted.actor, node=wanted.node, after=after, limit=limit
        )

    def commit(self, reference: str, *, limit: int) -> CommitDetail:
        """A commit and what it changed."""
        return self._versions.commit(reference, limit=limit)

    def diff(self, start: str, end: str, *, limit: int) -> Difference:
        """What turns one state into another."""
        return self._versions.diff(start, end, limit=limit)

    def queries(self) -> Sequence[StoredQuery]:
        """The stored queries, by name."""
        found = self._app.registry(self.graph).queries
        return [found[name] for name in sorted(found)]

    def ask(self, view: View, text: str, params: Mapping[str, object]) -> Answer:
        """Run a query text."""
        ctx = self._app.context(self.graph, branch=view.branch, snapshot=view.snapshot)
        return self._app.ask(ctx, text, **params)

    def run(self, view: View, name: str, params: Mapping[str, object]) -> Answer | str | None:
        """Run a stored query; one that changes data gives its commit."""
        ctx = self._app.context(self.graph, branch=view.branch, snapshot=view.snapshot)
        return self._app.query(ctx, name, params)

    def mutate(
        self, branch: str, change: str | Sequence[object], options: WriteOptions
    ) -> Mutation:
        """Change the graph in one commit."""
        return self._app.mutate(
            self._app.context(self.graph, branch=branch),
            change,
            message=options.message,
            expected_head=options.expected_head,
            idempotency_key=options.idempotency_key,
        )

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadResult:
        """Load files in one commit."""
        return self._app.load(request, graph=self.graph, progress=progress)

    def export(self, view: View, format: str, types: Sequence[str]) -> Iterator[bytes]:
        """A graph as a file, in blocks."""
        ctx = self._app.context(self.graph, branch=view.branch, snapshot=view.snapshot)
        return self._app.export(ctx, format, types)

    def cleanup(self, *, keep: int, dry_run: bool) -> Cleaned:
        """Drop what nobody needs."""
        return cleanup(self._opened, keep=keep, dry_run=dry_run)

    def optimize(self, tell: Tell) -> Optimized:
        """Compact the files."""
        return optimize(self._opened, tell)
