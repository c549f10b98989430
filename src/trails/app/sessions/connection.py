"""HTTP requests to a Trails server: over TCP, or over the Unix socket of a folder's owner.

Failures that were told by a kernel, as the errors that they were.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from trails.app.serve.relay.links import Preamble
from trails.app.serve.relay.socket_folders import connect_socket
from trails.errors import FieldError, TrailsError, UnreachableError, ValidationError
from trails.model.actors import OPERATOR, Secret
from trails.model.results import Failure


def error_of(failure: Failure) -> TrailsError:
    """The error that a failure tells of, with its code, its message and its data."""
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


_PATIENCE: Final = 10.0
"""Seconds to wait for a connection; an answer may take as long as its work takes."""
_BLOCK: Final = 1 << 16
_OWN: Final = "TRAILS_TOKEN"
_SERVERS: Final = "TRAILS_MCP_TOKEN"
"""What a server elsewhere was started with, for those who started it."""


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server listens."""

    name: str
    """As a person knows it."""
    host: str = "localhost"
    port: int | None = None
    tls: bool = False
    prefix: str = ""
    path: Path | None = None
    """A Unix socket."""
    key: Secret = Secret("")
    """What makes whoever shows it there the operator."""


def parse_address(url: str) -> ServerAddress:
    """The address that ``--server`` gives."""
    parts = urlsplit(url)
    try:
        port, host = parts.port, parts.hostname
    except ValueError:
        port = host = None
    if parts.scheme not in {"http", "https"} or not host:
        raise UnreachableError(
            f"{url[:200]!r} is not the address of a server; write it as http://127.0.0.1:8321"
        )
    return ServerAddress(url, host, port, parts.scheme == "https", parts.path.rstrip("/"))


class ServerConnection:
    """Requests to one server, each on a connection of its own."""

    def __init__(self, address: ServerAddress, *, operator: bool = False) -> None:
        """``operator``: act as the operator, whatever token the environment has."""
        self._address = address
        self._token = None if operator else chosen_token()
        if self._token is None and address.path is None and (given := os.environ.get(_SERVERS)):
            self._token = Secret(given)

    def ask(self, method: str, path: str, query: Mapping[str, object] | None = None) -> bytes:
        """What comes of a request without a body."""
        with self._answer(method, path, query) as response:
            return response.read()

    def post(self, path: str, body: object) -> bytes:
        """What comes of sending a JSON document."""
        data = msgspec.json.encode(body, enc_hook=str)
        with self._answer("POST", path, None, [data], {"Content-Type": "application/json"}) as got:
            return got.read()

    def lines(self, path: str, body: object) -> Generator[bytes, None, None]:
        """The lines that come of sending a JSON document, as they come."""
        data = msgspec.json.encode(body)
        with self._answer("POST", path, None, [data], {"Content-Type": "application/json"}) as got:
            while line := got.readline():
                yield line

    def send(
        self,
        path: str,
        query: Mapping[str, object],
        blocks: Iterable[bytes],
        headers: Mapping[str, str],
    ) -> bytes:
        """What comes of sending a stream."""
        given = {"Content-Type": "application/octet-stream", **headers}
        with self._answer("POST", path, query, blocks, given) as response:
            return response.read()

    def receive(self, path: str, query: Mapping[str, object]) -> Generator[bytes, None, None]:
        """A stream; nothing of it is taken for whole that is not."""
        with self._answer("GET", path, query) as response:
            while block := response.read(_BLOCK):
                yield block

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        blocks: Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Generator[HTTPResponse, None, None]:
        """A response that is fine; what is not is raised as what it was over there."""
        asked = {name: _spell(value) for name, value in (query or {}).items() if value is not None}
        target = f"{self._address.prefix}{path}{'?' if asked else ''}{urlencode(asked, doseq=True)}"
        connection = _open(self._address, operator=self._token is None)
        try:
            _send(connection, method, target, blocks, {**self._credential(), **(headers or {})})
            response = connection.getresponse()
            if response.status >= 300:
                raise error_of(_failure(response, self._address))
            yield response
        except (HTTPException, ConnectionError, TimeoutError) as error:
            what = str(error) or type(error).__name__
            raise UnreachableError(
                f"the connection to {self._address.name} broke: {what}; whether the request was "
                "carried out is not known"
            ) from None
        finally:
            connection.close()

    def _credential(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": f"Bearer {self._token.reveal()}"}


def chosen_token() -> Secret | None:
    """The token that whoever runs a command acts with; None where it is the operator."""
    given = os.environ.get(_OWN)
    return Secret(given) if given else None


def _spell(value: object) -> object:
    """A truth value as it is written in a query string."""
    return str(value).lower() if isinstance(value, bool) else value


def _send(
    connection: HTTPConnection,
    method: str,
    target: str,
    blocks: Iterable[bytes] | None,
    headers: Mapping[str, str],
) -> None:
    if blocks is None:
        connection.request(method, target, headers=dict(headers))
        return
    given = {**headers, "Transfer-Encoding": "chunked"}
    # A server that has seen enough answers before it has read everything.
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, target, body=blocks, headers=given, encode_chunked=True)


def _failure(response: HTTPResponse, address: ServerAddress) -> Failure:
    body = response.read()
    try:
        error = msgspec.json.decode(body)["error"]
        return Failure("semantic", error["code"], error["message"], error.get("data", {}))
    except (msgspec.DecodeError, TypeError, KeyError):
        raise UnreachableError(
            f"{address.name} answered {response.status} {response.reason}, and not as a Trails "
            "server does; check the address"
        ) from None


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, arrival: Preamble) -> None:
        super().__init__("localhost", timeout=_PATIENCE)
        self._path = path
        self._arrival = arrival.line()

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = connect_socket(str(self._path), _PATIENCE)
        self.sock.sendall(self._arrival)


def _open(address: ServerAddress, *, operator: bool) -> HTTPConnection:
    connection: HTTPConnection
    if address.path is not None:
        key = address.key.reveal() if operator else ""
        arrival = Preamble(scopes=OPERATOR.scopes, operator=key)
        connection = _UnixConnection(address.path, arrival)
    elif address.tls:
        connection = HTTPSConnection(address.host, address.port, timeout=_PATIENCE)
    else:
        connection = HTTPConnection(address.host, address.port, timeout=_PATIENCE)
    try:
        connection.connect()
    except SSLCertVerificationError as error:
        connection.close()
        raise UnreachableError(
            f"{address.name} shows a certificate that this machine does not trust: "
            f"{error.verify_message}; name the file of its authority in SSL_CERT_FILE"
        ) from None
    except OSError as error:
        connection.close()
        raise UnreachableError(
            f"no server answers at {address.name}: {error.strerror or error}; start one with "
            "'trails serve', or check the address"
        ) from None
    connection.sock.settimeout(None)
    return connection
