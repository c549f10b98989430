"""Graph clients of the command line: a graph open in this process, or behind a server.

``LocalGraphClient`` uses the graph's kernel, ``RemoteGraphClient`` the REST API.
``ask_owner`` runs an operation in the process that serves the folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Protocol, Self, TypeVar
from urllib.parse import quote

import msgspec

from trails.app.app import App
from trails.app.kernels import kernel_of
from trails.app.sessions.servers import HIDING, ServerAddress, error_of, read_graphs
from trails.app.sessions.session import Upload
from trails.errors import NotFoundError, QueryError, TrailsError, UnreachableError, ValidationError
from trails.imports import later
from trails.model.actors import OPERATOR, Actor
from trails.model.capabilities import Tool, ToolList
from trails.model.operations.graph import LoadedData
from trails.model.origins import ORIGIN, Origin
from trails.model.results import Failure, Outcome
from trails.model.uris import Content
from trails.model.writes import LoadRequest
from trails.projections.resources import JSON, LD_JSON
from trails.request.answers import failure_of
from trails.request.builtins.declare import Route
from trails.request.resources.representations import RecordForm
from trails.surfaces.cli.operations import InstancePage, Listing, ReadState, RecordName
from trails.surfaces.rest.backend import join_page, place_problem, write_uri

if TYPE_CHECKING:
    from trails.app.sessions import connection as sessions_connection
    from trails.app.upkeep import UpkeepOperation
    from trails.request import operations
else:
    sessions_connection = later("trails.app.sessions.connection")
    operations = later("trails.request.operations")

_T = TypeVar("_T")


class LocalGraphClient:
    """The kernel of one graph, acting as the operator or as the actor of a given token."""

    def __init__(self, app: App, graph: str, actor: Actor = OPERATOR) -> None:
        self._app = app
        self._actor = actor
        self.graph = graph
        self.nodes = app.graph(graph).names.nodes
        self._kernel = kernel_of(app, graph)
        self._origin = ORIGIN.set(Origin("cli"))
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        """Use as a context manager; leaving closes the kernel."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the kernel; the app stays open."""
        self._kernel.close()
        self._runner.close()
        ORIGIN.reset(self._origin)

    def tools(self) -> ToolList:
        return self._kernel.tools(self._actor)

    def execute(self, name: str, arguments: Mapping[str, object]) -> bytes:
        return self._body(self._kernel.invoke(self._actor, name, arguments))

    def instances(self, view: ReadState, wanted: Listing) -> InstancePage:
        """Return a page of a type's instances."""
        query = {name: str(value) for name, value in _page_of(wanted).items()}
        found = join_page(self._read(view, [wanted.type], query, RecordForm(fields=wanted.fields)))
        return msgspec.json.decode(found, type=InstancePage)

    def instance(self, wanted: RecordName, *, fields: Sequence[str], as_json_ld: bool) -> bytes:
        """Return one instance, as JSON-LD or as plain values."""
        form = RecordForm(None if as_json_ld else "json", tuple(fields))
        return self._read(wanted.view, [wanted.type, wanted.id], {}, form)[0].text.encode()

    def _read(
        self, view: ReadState, parts: Sequence[str], query: Mapping[str, str], form: RecordForm
    ) -> Sequence[Content]:
        branch = None if view.snapshot is not None or view.branch == "main" else view.branch
        problem = place_problem(branch, view.snapshot)
        if problem is not None:
            raise QueryError(problem)
        uri = write_uri(parts, query, branch=branch, snapshot=view.snapshot)
        return _checked(self._runner.run(self._kernel.read_whole(self._actor, uri, form)))

    def record(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """Return the structured result of a built-in."""
        return self._body(self._kernel.transfers.record(self._actor, name, arguments))

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadedData:
        """Load files in one commit.

        The operator's files are read in place and in this thread, so the load can be interrupted.
        """
        if self._actor == OPERATOR:
            try:
                done = self._app.load(request, graph=self.graph, progress=progress)
            except ValidationError as error:
                raise error_of(failure_of(error, "graph_load")) from None
            return LoadedData.of(done)
        return msgspec.json.decode(self.draft_load(request, {}, progress), type=LoadedData)

    def draft_load(
        self,
        request: LoadRequest,
        controls: Mapping[str, bool],
        progress: Callable[[int, int | None], None],
    ) -> bytes:
        """Load files as a request does, on a draft if ``controls`` say so."""
        sent = Upload(request)
        given = {name: value for name, value in sent.arguments.items() if value is not None}
        blocks = _each(sent.blocks(progress))
        try:
            loading = self._kernel.transfers.load(
                self._actor, blocks, {**given, **controls}, coding=sent.coding
            )
            return self._body(loading)
        except ValidationError as error:
            raise sent.placed(error) from None

    def export(self, arguments: Mapping[str, object]) -> Generator[bytes, None, None]:
        """Yield a graph as a file."""
        opening = self._kernel.transfers.export(self._actor, arguments)
        yield from self._blocks(_checked(self._runner.run(opening)))

    def content(self, export: str, start: int) -> Generator[bytes, None, None]:
        """Yield the file of a finished export from a byte on."""
        opening = self._kernel.transfers.content(self._actor, export)
        found = _checked(self._runner.run(opening))
        yield from self._blocks(found.read(start, found.size))

    def put_blob(self, blocks: Iterable[bytes], arguments: Mapping[str, object]) -> bytes:
        """Keep content; what is known of it."""
        putting = self._kernel.transfers.put_blob(self._actor, _each(blocks), arguments)
        return self._body(putting)

    def blob(
        self, view: ReadState, type_name: str, identifier: str, field: str
    ) -> Generator[bytes, None, None]:
        """Yield the content of the blob that a field of a record names."""
        named = {"type": type_name, "id": identifier, "field": field, **_place(view)}
        opening = self._kernel.transfers.blob(self._actor, named)
        found = _checked(self._runner.run(opening))
        yield from self._blocks(found.read(0, found.size))

    def _blocks(self, opened: AsyncGenerator[bytes, None]) -> Generator[bytes, None, None]:
        try:
            while block := self._runner.run(_next(opened)):
                yield block
        finally:
            self._runner.run(opened.aclose())

    def _body(self, coming: Coroutine[None, None, Outcome]) -> bytes:
        return _checked(self._runner.run(coming)).body


async def _each(blocks: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    for block in blocks:
        yield block


async def _next(blocks: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(blocks, b"")


def _checked(outcome: _T | Failure) -> _T:
    """Return the outcome, or raise its failure."""
    if isinstance(outcome, Failure):
        raise error_of(outcome)
    return outcome


@cache
def _routes() -> Mapping[str, Sequence[Route]]:
    return {each.name: each.routes for each in operations.OPERATIONS if each.routes}


class _Tools(msgspec.Struct):
    capabilities: tuple[Tool, ...]
    registry: str = ""


def list_graphs(connection: Connection) -> dict[str, str] | None:
    """List the graphs of a server with the base of their IRIs; None if it does not list them."""
    try:
        body = connection.ask("GET", "/graphs")
    except TrailsError as error:
        if error.code in HIDING:
            return None
        raise
    return read_graphs(body)


def explain_absence(connection: Connection, graph: str) -> NoReturn:
    """Raise why a graph is not listed: it does not exist, or it is quarantined."""
    connection.ask("GET", f"/graphs/{quote(graph, safe='')}/snapshot")
    raise NotFoundError(f"the server does not list the graph {graph!r}; retry")


class Connection(Protocol):
    """Requests to a server."""

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes: ...

    def post(self, path: str, body: object) -> bytes: ...

    def send(
        self,
        path: str,
        query: Mapping[str, object],
        blocks: Iterable[bytes],
        headers: Mapping[str, str],
    ) -> bytes: ...

    def receive(
        self, path: str, query: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> Generator[bytes, None, None]: ...


class RemoteGraphClient:
    """A graph of a server, over REST."""

    def __init__(self, connection: Connection, graph: str, uri: str | None) -> None:
        self._connection = connection
        self._root = f"/graphs/{quote(graph, safe='')}"
        self.graph = graph
        self.nodes = "" if uri is None else f"{uri}/"

    def tools(self) -> ToolList:
        body = self._connection.ask("GET", f"{self._root}/capabilities")
        found = msgspec.json.decode(body, type=_Tools)
        return ToolList("", found.capabilities, registry=found.registry)

    def execute(self, name: str, arguments: Mapping[str, object]) -> bytes:
        return self._connection.post(f"{self._root}/invoke/{quote(name, safe='')}", arguments)

    def instances(self, view: ReadState, wanted: Listing) -> InstancePage:
        """Return a page of a type's instances."""
        query = {**_place(view), **_page_of(wanted), **_fields(wanted.fields)}
        found = self._connection.ask("GET", f"{self._root}/kg/{quote(wanted.type, safe='')}", query)
        return msgspec.json.decode(found, type=InstancePage)

    def instance(self, wanted: RecordName, *, fields: Sequence[str], as_json_ld: bool) -> bytes:
        """Return one instance, as JSON-LD or as plain values."""
        path = f"kg/{quote(wanted.type, safe='')}/{quote(wanted.id, safe='')}"
        accepted = {"Accept": LD_JSON if as_json_ld else JSON}
        query = {**_place(wanted.view), **_fields(fields)}
        return self._connection.ask("GET", f"{self._root}/{path}", query, accepted)

    def record(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """Return the structured result of a built-in, from its REST route."""
        route, given = _route(_routes()[name], arguments), dict(arguments)
        parts = [
            quote(str(given.pop(part[1:-1])), safe="") if part.startswith("{") else part
            for part in route.path.split("/")
        ]
        target = "/".join((self._root, *parts))
        if route.method == "POST":
            return self._connection.post(target, given)
        return self._connection.ask(route.method, target, given)

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadedData:
        """Send files as one upload; errors name the file they are in."""
        return msgspec.json.decode(self.draft_load(request, {}, progress), type=LoadedData)

    def draft_load(
        self,
        request: LoadRequest,
        controls: Mapping[str, bool],
        progress: Callable[[int, int | None], None],
    ) -> bytes:
        """Send files as one upload, to a draft if ``controls`` say so."""
        sent = Upload(request)
        asked = {name: str(value).lower() for name, value in controls.items()}
        try:
            return self._connection.send(
                f"{self._root}/load",
                {**sent.arguments, **asked},
                sent.blocks(progress),
                sent.headers,
            )
        except ValidationError as error:
            raise sent.placed(error) from None

    def export(self, arguments: Mapping[str, object]) -> Generator[bytes, None, None]:
        """Yield a graph as a file."""
        return self._connection.receive(f"{self._root}/export", arguments)

    def content(self, export: str, start: int) -> Generator[bytes, None, None]:
        """Yield the file of a finished export from a byte on."""
        path = f"{self._root}/export/{quote(export, safe='')}/content"
        return self._connection.receive(path, {}, {"Range": f"bytes={start}-"})

    def put_blob(self, blocks: Iterable[bytes], arguments: Mapping[str, object]) -> bytes:
        """Keep content; what is known of it."""
        return self._connection.send(f"{self._root}/blobs", arguments, blocks, {})

    def blob(
        self, view: ReadState, type_name: str, identifier: str, field: str
    ) -> Generator[bytes, None, None]:
        """Yield the content of the blob that a field of a record names."""
        parts = (type_name, identifier, "fields", field, "content")
        path = "/".join((self._root, "kg", *(quote(each, safe="") for each in parts)))
        return self._connection.receive(path, _place(view))


def _route(routes: Sequence[Route], arguments: Mapping[str, object]) -> Route:
    """The first route of a built-in; objects are sent in a body, if there is a route with one."""
    if any(isinstance(each, Mapping) for each in arguments.values()):
        return next((each for each in routes if each.method == "POST"), routes[0])
    return routes[0]


def _place(view: ReadState) -> dict[str, object]:
    if view.snapshot is not None:
        return {"snapshot": view.snapshot}
    return {} if view.branch == "main" else {"branch": view.branch}


def _page_of(wanted: Listing) -> dict[str, object]:
    """Return which page of a list is wanted."""
    given = msgspec.structs.asdict(wanted)
    return {
        name: value
        for name, value in given.items()
        if value is not None and name not in {"type", "fields"}
    }


def _fields(fields: Sequence[str]) -> dict[str, object]:
    return {"fields": ",".join(fields)} if fields else {}


_A = TypeVar("_A", bound=msgspec.Struct)
_R = TypeVar("_R")


class _Line(msgspec.Struct):
    progress: str | None = None
    error: dict[str, object] | None = None
    done: msgspec.Raw = msgspec.Raw()


def ask_owner(
    address: ServerAddress,
    operation: UpkeepOperation[_A, _R],
    given: _A,
    report: Callable[[str], None],
) -> _R:
    """Run an operation in the serving process, authorized by the owner's key."""
    connection = sessions_connection.ServerConnection(address, operator=True)
    for text in connection.lines(f"/operator/{operation.name}", given):
        line = msgspec.json.decode(text, type=_Line)
        if line.progress is not None:
            report(line.progress)
        elif line.error is not None:
            raise error_of(msgspec.convert({"kind": "semantic", **line.error}, Failure))
        elif bytes(line.done):
            return msgspec.json.decode(line.done, type=operation.gives)
    raise UnreachableError(
        f"{address.name} stopped before {operation.name} was done; run the command again"
    )
