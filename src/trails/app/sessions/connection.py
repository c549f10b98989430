"""HTTP requests to a Trails server, over TCP or over the Unix socket of a folder's owner.

``servers`` has the addresses, and says what a failure means.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Final

import msgspec

from trails.app.serve.relay.links import Preamble
from trails.app.serve.relay.owners import connect_socket
from trails.app.sessions.servers import (
    ServerAddress,
    chosen_token,
    error_of,
    read_failure,
    server_token,
    write_query,
)
from trails.errors import UnreachableError
from trails.model.actors import OPERATOR
from trails.model.origins import AT_LEAST

_PATIENCE: Final = 10.0
"""Seconds to wait for a connection; an answer may take as long as its work."""
_BLOCK: Final = 1 << 16
AT_LEAST_VARIABLE: Final = "TRAILS_AT_LEAST"
"""The variable with a commit that answers must include."""


class ServerConnection:
    """Requests to one server, each on its own connection."""

    def __init__(self, address: ServerAddress, *, operator: bool = False) -> None:
        """``operator``: act as the operator, even if the environment has a token."""
        self._address = address
        self._token = None if operator else chosen_token()
        if self._token is None and address.path is None:
            self._token = server_token()

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a request without a body and return the answer."""
        with self._answer(method, path, query, headers=headers) as response:
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
        target = f"{self._address.prefix}{path}{write_query(query)}"
        connection = _open(self._address, operator=self._token is None)
        try:
            _send(connection, method, target, blocks, {**self._headers(), **(headers or {})})
            response = connection.getresponse()
            if response.status >= 300:
                body = response.read()
                raise error_of(read_failure(response.status, response.reason, body, self._address))
            yield response
        except (HTTPException, ConnectionError, TimeoutError) as error:
            what = str(error) or type(error).__name__
            raise UnreachableError(
                f"lost the connection to {self._address.name}: {what}; the request may or may "
                "not have been carried out"
            ) from None
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        known = os.environ.get(AT_LEAST_VARIABLE)
        given = {AT_LEAST: known} if known else {}
        if self._token is not None:
            given["Authorization"] = f"Bearer {self._token.reveal()}"
        return given


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
