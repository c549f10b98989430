"""The port that ``trails serve`` listens on."""

from __future__ import annotations

import errno
import socket
from typing import Final

from trails.errors import SettingsError

_BACKLOG: Final = 2048


def find_address(host: str) -> str:
    """The address that a host stands for; SettingsError where there is none."""
    name = host.removeprefix("[").removesuffix("]")
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM) if name else []
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise SettingsError(
            f"can't listen on {host!r}: it is no address of this machine, and no name of one; use "
            "127.0.0.1, ::1, localhost or an address that others reach"
        )
    return str(found[0][4][0])


def bind_port(host: str, port: int) -> socket.socket:
    """A socket that listens; SettingsError says what to do when there can be none."""
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
    """The address of a listening socket, as a browser wants it."""
    host, port = sock.getsockname()[:2]
    scheme = "https" if tls else "http"
    name = f"[{host}]" if sock.family == socket.AF_INET6 else host
    return f"{scheme}://{name}:{port}"
