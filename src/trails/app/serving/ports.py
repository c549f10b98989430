"""The port that ``trails serve`` listens on."""

from __future__ import annotations

import errno
import socket

from trails.errors import SettingsError


def bind_port(host: str, port: int) -> socket.socket:
    """A socket that listens; SettingsError says what to do when there can be none."""
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(2048)
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


def url_of(sock: socket.socket) -> str:
    """The address of a listening socket, as a browser wants it."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if sock.family == socket.AF_INET6 else f"http://{host}:{port}"
