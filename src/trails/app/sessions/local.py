"""The work of the command line on one graph of a project that is open here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing

import msgspec

from trails.app.app import App
from trails.app.kernels import kernel_of
from trails.app.sessions.failures import error_of
from trails.engine.maintenance import cleanup, optimize
from trails.model.actors import LOCAL
from trails.model.answers import Answer
from trails.model.capabilities import StoredQuery
from trails.model.loads import LoadRequest, LoadResult
from trails.model.merges import MergeRequest, MergeResult
from trails.model.mutations import Mutation
from trails.model.outcomes import Failure
from trails.model.resources import Content
from trails.model.tools import Tool
from trails.model.upkeep import Cleaned, Optimized
from trails.model.versions import BranchInfo, CommitDetail, CommitFilter, CommitPage, Difference
from trails.request.reading import Reader
from trails.surfaces.cli.operations import Listing, Page, Tell, View, WriteOptions
from trails.surfaces.rest.uris import join_page, write_uri


class LocalSession:
    """A graph, on behalf of whoever sits at this machine."""

    def __init__(self, app: App, graph: str) -> None:
        self._app = app
        self._versions = app.versions(graph)
        self.graph = graph
        self.nodes = app.graph(graph).names.nodes

    def tools(self) -> Sequence[Tool]:
        """Everything that can be called, by name."""
        with closing(kernel_of(self._app, self.graph)) as kernel:
            return kernel.tools(LOCAL).tools

    def call(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Call a capability, a stored query or a built-in."""
        with closing(kernel_of(self._app, self.graph)) as kernel:
            done = asyncio.run(kernel.execute(LOCAL, name, arguments))
        if isinstance(done, Failure):
            raise error_of(done)
        return msgspec.json.decode(done.body, type=dict[str, object])

    def instances(self, view: View, wanted: Listing) -> Page:
        """A page of a type's instances."""
        given = msgspec.structs.asdict(wanted)
        del given["type"]
        query = {name: str(value) for name, value in given.items() if value is not None}
        found = join_page(self._read(view, [wanted.type], query))
        return msgspec.json.decode(found, type=Page)

    def instance(self, view: View, type_name: str, identifier: str) -> Mapping[str, object]:
        """One instance, as JSON-LD."""
        found = self._read(view, [type_name, identifier], {})[0].text
        return msgspec.json.decode(found, type=dict[str, object])

    def _read(
        self, view: View, parts: Sequence[str], query: Mapping[str, str]
    ) -> Sequence[Content]:
        branch = None if view.snapshot is not None or view.branch == "main" else view.branch
        uri = write_uri(parts, query, branch=branch, snapshot=view.snapshot)
        found = asyncio.run(Reader(self._app.service(self.graph)).read(LOCAL, uri))
        if isinstance(found, Failure):
            raise error_of(found)
        return found

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

    def export(self, view: View, format: str, types: Sequence[str]) -> Generator[bytes, None, None]:
        """A graph as a file, in blocks."""
        ctx = self._app.context(self.graph, branch=view.branch, snapshot=view.snapshot)
        return self._app.export(ctx, format, types)


class LocalUpkeep:
    """The files of a graph that is open here."""

    def __init__(self, app: App, graph: str) -> None:
        self._opened = app.graph(graph)
        self.graph = graph

    def cleanup(self, *, keep: int, dry_run: bool) -> Cleaned:
        """Drop what nobody needs."""
        return cleanup(self._opened, keep=keep, dry_run=dry_run)

    def optimize(self, tell: Tell) -> Optimized:
        """Compact the files."""
        return optimize(self._opened, tell)
