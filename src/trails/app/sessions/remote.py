"""A graph behind a server: its door is REST."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, NoReturn
from urllib.parse import quote

import msgspec

from trails.app.sessions.connection import Connection
from trails.app.sessions.shipments import Shipment
from trails.errors import NotFoundError, TrailsError, ValidationError
from trails.model.loads import LoadRequest, LoadResult
from trails.model.tools import Tool
from trails.surfaces.cli.operations import Listing, Page, View

_ROUTES: Final = {
    "branch_list": ("GET", "branches"),
    "branch_create": ("POST", "branches"),
    "branch_delete": ("DELETE", "branches/{name}"),
    "branch_merge": ("POST", "branches/merge"),
    "commit_list": ("GET", "commits"),
    "commit_get": ("GET", "commits/{commit}"),
    "graph_diff": ("GET", "diff"),
    "graph_query": ("POST", "query"),
    "graph_mutate": ("POST", "mutate"),
    "stored_query_list": ("GET", "queries"),
    "stored_query_run": ("POST", "queries/{name}"),
}
_UNTOLD: Final = frozenset({"not_found", "forbidden", "denied"})
"""Codes with which a server keeps to itself which graphs it has."""


class Graph(msgspec.Struct, frozen=True):
    """A graph of a server."""

    graph_id: str
    uri: str


class _Graphs(msgspec.Struct):
    graphs: list[Graph]


class _Tools(msgspec.Struct):
    capabilities: list[Tool]


def list_graphs(connection: Connection) -> dict[str, str] | None:
    """The graphs of a server, and the base of the IRIs of each; None where that is not told."""
    try:
        body = connection.ask("GET", "/graphs")
    except TrailsError as error:
        if error.code in _UNTOLD:
            return None
        raise
    found = msgspec.json.decode(body, type=_Graphs)
    return {each.graph_id: each.uri for each in found.graphs}


def explain_absence(connection: Connection, graph: str) -> NoReturn:
    """Raise why a graph is not listed: it does not exist, or it is not served for a reason."""
    connection.ask("GET", f"/graphs/{quote(graph, safe='')}/snapshot")
    raise NotFoundError(f"the server does not list the graph {graph!r}; try again")


class RemoteDoor:
    """The kernel of one graph of a server."""

    def __init__(self, connection: Connection, graph: str, uri: str | None) -> None:
        self._connection = connection
        self._root = f"/graphs/{quote(graph, safe='')}"
        self.graph = graph
        self.nodes = "" if uri is None else f"{uri}/"

    def tools(self) -> Sequence[Tool]:
        """The tools, by name."""
        found = self._connection.ask("GET", f"{self._root}/capabilities")
        return msgspec.json.decode(found, type=_Tools).capabilities

    def execute(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """Call a tool."""
        return self._connection.post(f"{self._root}/invoke/{quote(name, safe='')}", arguments)

    def instances(self, view: View, wanted: Listing) -> Page:
        """A page of a type's instances."""
        query = {**_place(view), **msgspec.structs.asdict(wanted)}
        del query["type"]
        found = self._connection.ask("GET", f"{self._root}/kg/{quote(wanted.type, safe='')}", query)
        return msgspec.json.decode(found, type=Page)

    def instance(self, view: View, type_name: str, identifier: str) -> bytes:
        """One instance as JSON-LD."""
        path = f"kg/{quote(type_name, safe='')}/{quote(identifier, safe='')}"
        return self._connection.ask("GET", f"{self._root}/{path}", _place(view))

    def record(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """What a built-in gives to programs: the route that stands for it says."""
        method, path = _ROUTES[name]
        given = dict(arguments)
        parts = [
            quote(str(given.pop(part[1:-1])), safe="") if part.startswith("{") else part
            for part in path.split("/")
        ]
        target = "/".join((self._root, *parts))
        if method == "POST":
            return self._connection.post(target, given)
        return self._connection.ask(method, target, given)

    def load(self, request: LoadRequest, progress: Callable[[int, int | None], None]) -> LoadResult:
        """Send files, as one; what is wrong is told with the file that it is in."""
        sent = Shipment(request)
        try:
            done = self._connection.send(
                f"{self._root}/load", sent.arguments, sent.blocks(progress), sent.headers
            )
        except ValidationError as error:
            raise sent.placed(error) from None
        return msgspec.json.decode(done, type=LoadResult)

    def export(self, arguments: Mapping[str, object]) -> Generator[bytes, None, None]:
        """A graph as a file."""
        return self._connection.receive(f"{self._root}/export", arguments)


def _place(view: View) -> dict[str, object]:
    if view.snapshot is not None:
        return {"snapshot": view.snapshot}
    return {} if view.branch == "main" else {"branch": view.branch}
