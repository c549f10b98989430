"""A front on real sockets, in this process, and a client that sends bytes as they are."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.worlds.processes import PATIENCE

from trails import App
from trails.app.kernels import kernel_of
from trails.app.serve.http.front import HttpInterface
from trails.app.serve.http.hosts import HostPolicy
from trails.app.serve.http.limits import ClientLimits
from trails.app.serve.http.servers import HttpServer, Port
from trails.app.serve.http.sockets import bind_port
from trails.app.serve.relay.links import Listeners
from trails.app.serve.relay.owners import SocketFolder
from trails.model.actors import LOCAL, Secret
from trails.request.authenticate import Authenticator

KEY = "the-owners-key"
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n")


class Answer(NamedTuple):
    """One response, as it came."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        found: str = self.json["code"]
        return found

    def header(self, name: str) -> str | None:
        """The one header of a name."""
        found = [value for each, value in self.headers if each == name]
        assert len(found) < 2, (name, found)
        return found[0] if found else None


class Front:
    """An owner's HTTP side: a port, and the Unix socket that other fronts connect to."""

    def __init__(
        self,
        policy: HostPolicy | None = None,
        *,
        token: str | None = None,
        limits: ClientLimits | None = None,
        max_body: int = 32 << 20,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._policy = policy or HostPolicy.for_bind("127.0.0.1", credentials=token is not None)
        self._authenticator = Authenticator(LOCAL, None if token is None else Secret(token))
        self._limits = limits or ClientLimits()
        self._max_body = max_body
        self._tls = tls
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._sockets = SocketFolder()
        self.unix = self._sockets.http
        self._sock = bind_port("127.0.0.1", 0)
        self.port = self._sock.getsockname()[1]

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *error):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._sockets.remove()

    async def _run(self):
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        with App() as app:
            kernel = kernel_of(app)
            interface = HttpInterface(
                {"main": kernel},
                app.settings.graphs,
                self._authenticator,
                self._policy,
                max_body=self._max_body,
            )
            self.interface = interface
            listener = interface.listener
            server = HttpServer(interface, Listeners(listener, Secret(KEY)), self._limits)
            self.connections = server.server_state.connections
            ports = [Port(self._sock, listener, self._tls), Port(self._sockets.http_socket)]
            async with interface.run():
                serving = asyncio.create_task(server.run_on(ports))
                self._ready.set()
                await self._end.wait()
                interface.end_streams()
                server.stop()
                await serving
            kernel.close()

    @contextmanager
    def connect(self, *, unix: bool = False):
        """A connection."""
        family, place = (
            (socket.AF_UNIX, self.unix) if unix else (socket.AF_INET, ("127.0.0.1", self.port))
        )
        with socket.socket(family) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(place)
            yield sock

    def send(self, data: bytes, *, unix: bool = False) -> list[Answer]:
        """All that comes back before the connection ends; nothing more is sent."""
        with self.connect(unix=unix) as sock:
            with suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(data)
            return read_answers(read_all(sock))

    def ask(self, *lines: str | bytes, body: bytes = b"", unix: bool = False) -> Answer:
        """The one answer to a request whose head is given line by line."""
        head = [line if isinstance(line, bytes) else line.encode("latin-1") for line in lines]
        data = b"\r\n".join([*head, b"connection: close", b"", b""]) + body
        found = self.send(data, unix=unix)
        assert len(found) == 1, found
        return found[0]

    def get(self, path: str = "/healthz", *headers: str) -> Answer:
        """The answer to a GET."""
        given = (
            headers
            if any(h.lower().startswith("host:") for h in headers)
            else (LOCALHOST, *headers)
        )
        return self.ask(f"GET {path} HTTP/1.1", *given)


LOCALHOST = "host: localhost"


def read_all(sock: socket.socket) -> bytes:
    """Everything until the other side ends."""
    parts = []
    with suppress(ConnectionResetError):
        while part := sock.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def read_answers(data: bytes) -> list[Answer]:
    """The responses in a stream; what is no response fails."""
    found = []
    while data:
        start = _STATUS.match(data)
        assert start, data[:200]
        head, _, data = data.partition(b"\r\n\r\n")
        headers = [
            (name.decode().lower(), value.strip().decode("latin-1"))
            for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
        ]
        given = dict(headers)
        if int(start[1]) == 100:
            continue
        if given.get("transfer-encoding") == "chunked":
            body, data = _dechunk(data)
        else:
            length = int(given.get("content-length", 0))
            body, data = data[:length], data[length:]
        found.append(Answer(int(start[1]), headers, body))
    return found


def _dechunk(data: bytes) -> tuple[bytes, bytes]:
    parts = []
    while True:
        size, _, data = data.partition(b"\r\n")
        count = int(size, 16)
        parts.append(data[:count])
        data = data[count + 2 :]
        if not count:
            return b"".join(parts), data


def make_certificate(folder: Path, name: str = "server", *, password: bytes | None = None):
    """A certificate for loopback that signs itself, and its key: two PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    locked = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password)
    )
    files = folder / f"{name}.pem", folder / f"{name}.key"
    pem = serialization.Encoding.PEM
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked))
    return files
