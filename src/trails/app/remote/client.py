"""``trails.connect(url, token)``: a running server, used like the project itself.

A ``ServerClient`` has the operations of the table of built-ins with their typed results, and
contexts with which declared classes read and write. ``async with`` gives the same as coroutines.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cached_property, partial
from time import monotonic, sleep
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

import msgspec

from trails.app.remote.graph import RemoteContext, keyed
from trails.app.remote.pool import PooledConnection, PooledGraphClient
from trails.app.sessions.graphs import list_graphs
from trails.app.sessions.servers import parse_address, server_token
from trails.app.sessions.session import CommandSession
from trails.app.settings import choose_graph
from trails.engine.history.change_feed import ChangeEvent, ChangePage
from trails.errors import NotFoundError, UnreachableError
from trails.model.actors import Secret
from trails.model.capabilities import Tool
from trails.model.history import BranchInfo, CommitQuery, MergeRequest
from trails.model.operations.graph import ChangeResult, LoadedData, MutationResult, QueryResult
from trails.model.operations.history import (
    CommitList,
    CommitResult,
    DifferenceResult,
    MergeOutcome,
)
from trails.model.writes import LoadRequest
from trails.registry.registry import Registry, RegistryCell, collect, discover
from trails.request.operations import OPERATIONS
from trails.surfaces.cli.operations import ReadState, WriteOptions

if TYPE_CHECKING:
    from trails.app.remote.async_client import AsyncClient

_OPERATIONS: Final = {each.name: each for each in OPERATIONS}
_SECONDS: Final = 60.0
_WAIT: Final = 30
"""Seconds for which one request of a watch waits."""
_PATIENCE: Final = 60.0
"""Seconds without an answer after which a watch ends; a server may be restarted meanwhile."""
_PAUSE: Final = 1.0


def connect(
    url: str,
    token: str | None = None,
    *declarations: object,
    graph: str | None = None,
    timeout: float | None = _SECONDS,
) -> ServerClient:
    """Connect to a server; nothing is sent before it is used.

    ``token``: by default that of the environment variable ``TRAILS_TOKEN``. ``declarations``: the
    modules or classes of the node types that the program uses. ``graph``: by default the only
    one, or ``main``. ``timeout``: how many seconds a request may take; None for any time.
    """
    secret = server_token() if token is None else Secret(token)
    connection = PooledConnection(parse_address(url), secret, timeout)
    find = partial(_find_graph, connection, url, graph)
    wait = _WAIT if timeout is None else min(_WAIT, int(timeout / 2))
    return ServerClient(find, declare(declarations), connection.close, wait=wait)


def _find_graph(connection: PooledConnection, url: str, graph: str | None) -> CommandSession:
    graphs = list_graphs(connection)
    if graphs is None and graph is None:
        raise NotFoundError(f"{url} does not list its graphs; pass graph= to connect()")
    name = graph or choose_graph(graphs or (), None)
    uri = None if graphs is None else graphs.get(name)
    return CommandSession(PooledGraphClient(connection, name, uri))


def declare(declarations: Sequence[object]) -> Registry:
    """A registry of the types among some modules and classes."""
    modules = [discover(each) for each in declarations if isinstance(each, ModuleType)]
    found = [*modules, collect(each for each in declarations if not isinstance(each, ModuleType))]
    return RegistryCell().register(
        types=dict.fromkeys(each for part in found for each in part.types),
        shapes=dict.fromkeys(each for part in found for each in part.shapes),
    )


class ServerClient:
    """One graph of a server; any thread may use it."""

    def __init__(
        self,
        find: Callable[[], CommandSession],
        registry: Registry,
        close: Callable[[], None],
        *,
        wait: int = 0,
    ) -> None:
        """``find`` finds the graph, when it is first used; ``registry`` has the known types.

        ``wait``: seconds after which the server answers that there is no change.
        """
        self._wait = wait
        self._find = find
        self._registry = registry
        self._close = close

    @cached_property
    def _session(self) -> CommandSession:
        return self._find()

    @property
    def graph(self) -> str:
        return self._session.graph

    def close(self) -> None:
        """Close all connections."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncClient:
        """The same client, whose methods are coroutines."""
        from trails.app.remote.async_client import AsyncClient  # noqa: PLC0415 - it needs this one

        return AsyncClient(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- classes -----------------------------------------------------------------------

    def context(self, branch: str = "main", snapshot: str | None = None) -> RemoteContext:
        """A context for declared classes, on a branch or at a past commit."""
        return RemoteContext(self._session, self._registry, ReadState(branch, snapshot))

    # --- operations --------------------------------------------------------------------

    def operation(self, name: str, /, **arguments: object) -> msgspec.Struct:
        """The typed result of a built-in operation, by its name in the reference."""
        found = _OPERATIONS.get(name)
        if found is None:
            raise NotFoundError(
                f"there is no operation {name!r}; there are {', '.join(_OPERATIONS)}"
            )
        result = cast(type[msgspec.Struct], found.result)  # or several, which decoding takes too
        if found.routes:
            return self._session.typed(result, name, arguments)
        return msgspec.convert(self._session.call(name, arguments), result)

    def capabilities(self) -> Sequence[Tool]:
        """What the holder of the token may call."""
        return self._session.tools()

    def call(
        self, name: str, arguments: Mapping[str, object] | None = None, *, branch: str = "main"
    ) -> Mapping[str, object]:
        """Call a capability or a stored query; its result in JSON form."""
        given = dict(arguments or {})
        if branch != "main":
            given["branch"] = branch
        return self._session.call(name, given)

    def ask(
        self,
        text: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = "main",
        snapshot: str | None = None,
    ) -> QueryResult:
        """Run a SPARQL query."""
        return self._session.ask(ReadState(branch, snapshot), text, params or {})

    def query(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = "main",
        snapshot: str | None = None,
    ) -> QueryResult | ChangeResult:
        """Run a stored query."""
        return self._session.run(ReadState(branch, snapshot), name, params or {})

    def mutate(
        self,
        change: str | Sequence[object],
        *,
        branch: str = "main",
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> MutationResult:
        """Change the graph in one commit: by SPARQL Update, or by a list of typed operations."""
        options = keyed(WriteOptions(message, expected_head, idempotency_key))
        return self._session.mutate(branch, change, options)

    def load(
        self,
        request: LoadRequest,
        progress: Callable[[int, int | None], None] = lambda _done, _total: None,
    ) -> LoadedData:
        """Load files in one commit, or none and a report of every problem."""
        return self._session.load(request, progress)

    def export(
        self,
        format: str = "ndjson",
        types: Sequence[str] = (),
        *,
        branch: str = "main",
        snapshot: str | None = None,
    ) -> Generator[bytes, None, None]:
        """Yield a branch or snapshot as a file, in blocks."""
        return self._session.export(ReadState(branch, snapshot), format, types)

    def put_blob(
        self, blocks: Iterable[bytes], *, media_type: str, name: str = ""
    ) -> Mapping[str, object]:
        """Keep content; its URI, for a Blob field, and what is known of it."""
        return self._session.put_blob(blocks, {"media_type": media_type, "name": name or None})

    def blob(
        self,
        type_name: str,
        identifier: str,
        field: str,
        *,
        branch: str = "main",
        snapshot: str | None = None,
    ) -> Generator[bytes, None, None]:
        """Yield the content that a field of a record names, in blocks."""
        return self._session.blob(ReadState(branch, snapshot), type_name, identifier, field)

    # --- history -----------------------------------------------------------------------

    def branches(self) -> list[BranchInfo]:
        """All branches, ``main`` first."""
        return self._session.branches()

    def create_branch(self, name: str, source: str = "main") -> BranchInfo:
        """Create a branch at another branch, or at any commit."""
        return self._session.create_branch(name, source)

    def delete_branch(self, name: str, *, force: bool = False) -> BranchInfo:
        """Delete a branch; refused while it has unmerged commits."""
        return self._session.delete_branch(name, force=force)

    def merge(self, request: MergeRequest) -> MergeOutcome:
        """Merge a branch or commit into a branch; conflicts are a result, not an error."""
        return self._session.merge(request)

    def commits(
        self,
        branch: str | None = "main",
        *,
        actor: str | None = None,
        node: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> CommitList:
        """A page of commits, newest first; ``branch=None`` lists those of all branches."""
        return self._session.commits(CommitQuery(branch, actor, node), after=after, limit=limit)

    def commit(self, reference: str, *, limit: int = 1000) -> CommitResult:
        """A commit with its changes per node and field."""
        return self._session.commit(reference, limit=limit)

    def watch(
        self, *types: str, since: str | None = None, branch: str = "main"
    ) -> Generator[ChangeEvent, None, None]:
        """Yield the commits of a branch, as they are made, with the nodes that each changed.

        ``types``: only changes of these types. ``since``: the commit to continue after; by default
        the present one. The watch outlasts a restart of the server.
        """
        given = {"type": list(types) or None, "since": since, "branch": branch, "wait": self._wait}
        answered = monotonic()
        while True:
            try:
                page = self._session.typed(ChangePage, "graph_changes", given)
            except UnreachableError:
                if monotonic() - answered > _PATIENCE:
                    raise
                sleep(_PAUSE)
                continue
            answered = monotonic()
            given["since"] = page.since
            yield from page.events
            if not page.events and page.complete:
                sleep(0 if self._wait else _PAUSE)

    def diff(self, start: str, end: str, *, limit: int = 1000) -> DifferenceResult:
        """The changes from one branch or commit to another."""
        return self._session.diff(start, end, limit=limit)
