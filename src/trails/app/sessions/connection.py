"""HTTP requests to a Trails server, over TCP or over the Unix socket of a folder's owner.

A failure in a response is raised as the error that it was on the server, with its code,
message and data.
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
from trails.app.serve.relay.owners import connect_socket
from trails.errors import FieldError, TrailsError, UnreachableError, ValidationError
from trails.model.actors import OPERATOR, Secret
from trails.model.results import Failure
from trails.projections.problems import parse_problem


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


_PATIENCE: Final = 10.0
"""Seconds to wait for a connection; an answer may take as long as its work."""
_BLOCK: Final = 1 << 16
_OWN: Final = "TRAILS_TOKEN"
_SERVERS: Final = "TRAILS_MCP_TOKEN"
"""Error data that only concerns those who started the server."""


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
    return ServerAddress(url, host, port, parts.scheme == "https", parts.path.rstrip("/"))


class ServerConnection:
    """Requests to one server, each on its own connection."""

    def __init__(self, address: ServerAddress, *, operator: bool = False) -> None:
        """``operator``: act as the operator, even if the environment has a token."""
        self._address = address
        self._token = None if operator else chosen_token()
        if self._token is None and address.path is None and (given := os.environ.get(_SERVERS)):
            self._token = Secret(given)

    def ask(self, method: str, path: str, query: Mapping[str, object] | None = None) -> bytes:
        """Send a request without a body and return the answer."""
        with self._answer(method, path, query) as response:
            return response.read()

    def post(self, path: str, body: object) -> bytes:
        """Send a JSON document and return the answer."""
        data = msgspec.json.encode(body, enc_hook=str)
        with self._answer("POST", path, None, [data], {"Content-Type": "application/json"}) as got:
            return got.read()

    def lines(self, path: str, body: object) -> Generator[bytes, None, None]:
        """Send a JSON document and yield the lines of the answer as they arrive."""
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
        """Send a stream and return the answer."""
        given = {"Content-Type": "application/octet-stream", **headers}
        with self._answer("POST", path, query, blocks, given) as response:
            return response.read()

    def receive(
        self, path: str, query: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> Generator[bytes, None, None]:
        """Yield a stream; raise an error if it ends early."""
        with self._answer("GET", path, query, headers=headers) as response:
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
        """Yield a successful response; raise a failure as the error it was on the server."""
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
                f"lost the connection to {self._address.name}: {what}; the request may or may "
                "not have been carried out"
            ) from None
        finally:
            connection.close()

    def _credential(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": f"Bearer {self._token.reveal()}"}


def chosen_token() -> Secret | None:
    """Return the token that a command acts with; None for the operator."""
    given = os.environ.get(_OWN)
    return Secret(given) if given else None


def _spell(value: object) -> object:
    """Spell a boolean for a query string."""
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
    # A server may answer before it has read everything.
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, target, body=blocks, headers=given, encode_chunked=True)


def _failure(response: HTTPResponse, address: ServerAddress) -> Failure:
    body = response.read()
    try:
        return parse_problem(body)
    except ValueError:
        raise UnreachableError(
            f"{address.name} answered {response.status} {response.reason}, unlike a Trails "
            "server; check the address"
        ) from None


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path, preamble: Preamble) -> None:
        super().__init__("localhost", timeout=_PATIENCE)
        self._path = path
        self._preamble = preamble.line()

    def connect(self) -> None:
        self.sock = connect_socket(str(self._path), _PATIENCE)
        self.sock.sendall(self._preamble)


def _open(address: ServerAddress, *, operator: bool) -> HTTPConnection:
    connection: HTTPConnection
    if address.path is not None:
        key = address.key.reveal() if operator else ""
        preamble = Preamble(scopes=OPERATOR.scopes, operator=key)
        connection = _UnixConnection(address.path, preamble)
    elif address.tls:
        connection = HTTPSConnection(address.host, address.port, timeout=_PATIENCE)
    else:
        connection = HTTPConnection(address.host, address.port, timeout=_PATIENCE)
    try:
        connection.connect()
    except SSLCertVerificationError as error:
        connection.close()
        raise UnreachableError(
            f"{address.name} has a certificate that this machine does not trust: "
            f"{error.verify_message}; set SSL_CERT_FILE to the file of its authority"
        ) from None
    except OSError as error:
        connection.close()
        raise UnreachableError(
            f"no server answers at {address.name}: {error.strerror or error}; start one with "
            "'trails serve', or check the address"
        ) from None
    connection.sock.settimeout(None)
    return connection
