"""A server elsewhere: its address, the token for it, and what its answers mean.

A failure in a response is raised as the error that it was on the server, with its code,
message and data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from trails.errors import FieldError, TrailsError, UnreachableError, ValidationError
from trails.imports import later
from trails.model.actors import Secret
from trails.model.results import Failure

if TYPE_CHECKING:
    from trails.projections import problems
else:
    problems = later("trails.projections.problems")

_OWN: Final = "TRAILS_TOKEN"
_SERVERS: Final = "TRAILS_MCP_TOKEN"
"""The token that a server was started with."""
HIDING: Final = frozenset({"not_found", "forbidden", "denied"})
"""Codes with which a server hides which graphs it has."""


class ServerAddress(msgspec.Struct, frozen=True):
    name: str
    """The address as people know it."""
    host: str = "localhost"
    port: int | None = None
    tls: bool = False
    prefix: str = ""
    path: Path | None = None
    """A Unix socket."""
    key: Secret = Secret("")
    """The key that makes a request act as the operator."""


def parse_address(url: str) -> ServerAddress:
    """Parse the address given with ``--server``."""
    parts = urlsplit(url)
    try:
        port, host = parts.port, parts.hostname
    except ValueError:
        port = host = None
    if parts.scheme not in {"http", "https"} or not host:
        raise UnreachableError(
            f"{url[:200]!r} is not a server address; use the form http://127.0.0.1:8321"
        )
    if "/graphs/" in parts.path:
        raise UnreachableError(
            f"{url[:200]!r} is the address of a graph; use that of the server, without "
            f"{parts.path[parts.path.index('/graphs/') :][:100]!r}, and --graph"
        )
    return ServerAddress(url, host, port, parts.scheme == "https", parts.path.rstrip("/"))


def url_of(address: ServerAddress) -> str:
    """Return an address as a URL."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    port = "" if address.port is None else f":{address.port}"
    return f"{'https' if address.tls else 'http'}://{host}{port}{address.prefix}"


def write_query(query: Mapping[str, object] | None) -> str:
    """Return arguments as a query string, with its question mark; empty if there are none."""
    asked = {name: _spell(value) for name, value in (query or {}).items() if value is not None}
    return f"?{urlencode(asked, doseq=True)}" if asked else ""


def _spell(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def chosen_token() -> Secret | None:
    """Return the token that a command acts with; None for the operator."""
    given = os.environ.get(_OWN)
    return Secret(given) if given else None


def server_token() -> Secret | None:
    """Return the token for a server elsewhere: one's own, or the one that it was started with."""
    given = os.environ.get(_SERVERS)
    return chosen_token() or (Secret(given) if given else None)


def error_of(failure: Failure) -> TrailsError:
    """Return the error that a failure describes, with its code, message and data."""
    fields = _fields(failure.data)
    if failure.kind == "validation" or (failure.code == ValidationError.code and fields):
        error: TrailsError = ValidationError(fields)
    else:
        kind = _CLASSES.get(failure.code, TrailsError)
        error = TrailsError.__new__(kind)
        TrailsError.__init__(error, failure.message)
    error.code = failure.code
    error.message = failure.message
    error.data = failure.data
    return error


def _fields(data: Mapping[str, object]) -> tuple[FieldError, ...]:
    try:
        return msgspec.convert(data.get("fields", ()), tuple[FieldError, ...])
    except msgspec.ValidationError:
        return ()


def _all(kind: type[TrailsError]) -> Iterator[type[TrailsError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _all(each)


_CLASSES = {each.code: each for each in _all(TrailsError)}


def read_failure(status: int, reason: str, body: bytes, address: ServerAddress) -> Failure:
    """Return the failure that a response describes; raise UnreachableError if it isn't Trails'."""
    try:
        return problems.parse_problem(body)
    except ValueError:
        raise UnreachableError(
            f"{address.name} answered {status} {reason}, unlike a Trails server; check the address"
        ) from None


class ListedGraph(msgspec.Struct, frozen=True):
    graph_id: str
    uri: str


class _Graphs(msgspec.Struct):
    graphs: list[ListedGraph]


def read_graphs(body: bytes) -> dict[str, str]:
    """Decode a list of graphs: their names, with the base of their IRIs."""
    found = msgspec.json.decode(body, type=_Graphs)
    return {each.graph_id: each.uri for each in found.graphs}
