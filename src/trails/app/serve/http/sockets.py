"""The port that ``trails serve`` listens on.

TLS: the certificate and key of a server, checked before it listens.
"""

from __future__ import annotations

import errno
import socket
import ssl
from pathlib import Path
from typing import Final, Never

from trails.errors import SettingsError

_BACKLOG: Final = 2048


def find_address(host: str) -> str:
    """The address of a host; raises SettingsError if there is none."""
    name = host.removeprefix("[").removesuffix("]")
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM) if name else []
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise SettingsError(
            f"can't listen on {host!r}: it is not an address or name of this machine; use "
            "127.0.0.1, ::1, localhost or a network address of this machine"
        )
    return str(found[0][4][0])


def bind_port(host: str, port: int) -> socket.socket:
    """A listening socket; raises SettingsError with the next step if that fails."""
    family = socket.AF_INET6 if ":" in (address := find_address(host)) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise _explain(error, host, port) from None
    sock.setblocking(False)
    return sock


def _explain(error: OSError, host: str, port: int) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"port {port} of {host} is in use by another process, perhaps another 'trails serve'; "
            "stop that, or choose another with --port (0 takes any that is free)"
        )
    if error.errno == errno.EACCES:
        return SettingsError(
            f"port {port} may not be used by this user; choose one above 1023 with --port"
        )
    return SettingsError(f"can't listen on port {port} of {host}: {error.strerror}")


def url_of(sock: socket.socket, *, tls: bool = False) -> str:
    """The URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    scheme = "https" if tls else "http"
    name = f"[{host}]" if sock.family == socket.AF_INET6 else host
    return f"{scheme}://{name}:{port}"


HANDSHAKE: Final = 10.0
"""Seconds that a client has for the TLS handshake."""


def load_tls(folder: Path, certificate: str, key: str) -> ssl.SSLContext | None:
    """The TLS context of a port; None if the settings name no certificate.

    Paths are relative to the project folder; raises SettingsError if a file is invalid.
    """
    if not certificate and not key:
        return None
    if not certificate or not key:
        given, missing = ("tls_key", "tls_certificate") if key else ("tls_certificate", "tls_key")
        raise SettingsError(f"[server] {given} is set and {missing} is not; TLS needs both")
    files = folder / certificate, folder / key
    for name, path in zip(("tls_certificate", "tls_key"), files, strict=True):
        _check_readable(name, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(*files, password=_refuse_password)
    except ssl.SSLError as error:
        raise SettingsError(_explain_tls(error, *files)) from None
    return context


def _check_readable(name: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise SettingsError(f"[server] {name}: {path} can't be read: {error.strerror}") from None


def _refuse_password() -> Never:
    """Refuse a key with a password: a server can't ask for it."""
    raise SettingsError(
        "[server] tls_key is encrypted; write it without a password, readable for this user alone, "
        "as 'openssl pkey -in <key> -out <new key>' does"
    )


def _explain_tls(error: ssl.SSLError, certificate: Path, key: Path) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"[server] tls_key: {key} is not the key of the certificate in {certificate}"
    if error.reason in {"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"}:
        return f"[server] tls_certificate: {certificate} is too weak; use a longer key or SHA-256"
    return (
        f"[server] tls_certificate and tls_key: {certificate} and {key} are not a certificate and "
        "its key in PEM form"
    )
