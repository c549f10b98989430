"""Which Host and Origin an HTTP request may have: the guard against rebound names.

A web page can make a browser send requests to this machine, under a name that its author
controls. So a request is answered only if it asks for a loopback name, and, when a browser
says on whose behalf it asks, that is one too. Unix sockets are behind the same guard:
connections of other fronts arrive through them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Self

from trails.errors import SettingsError

_HOST_AND_PORT: Final = re.compile(
    r"(?P<host>localhost\.?|[0-9.]+|\[[0-9a-f:.]+\])(:[0-9]{0,5})?", re.ASCII | re.IGNORECASE
)


class HostPolicy:
    """What passes; made by ``for_bind`` alone."""

    @classmethod
    def for_bind(cls, host: str) -> Self:
        """The policy of a server that listens on a host; SettingsError for one it must not."""
        if not _is_loopback(host):
            raise SettingsError(
                f"can't listen on {host!r}: anybody who reaches that address could read and "
                "write, and access control, which that needs, is not there yet. Use 127.0.0.1, "
                "::1 or localhost, and a tunnel or proxy that authenticates for anything else"
            )
        return cls()

    def refuse(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Why a request is not answered, or None."""
        hosts, origins = [], []
        for name, value in headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
        if len(hosts) != 1 or not _is_local_host(hosts[0]):
            return "the Host header must name this machine, as localhost or 127.0.0.1 does"
        if not all(_is_local_origin(each) for each in origins):
            return "the Origin header names a page that may not use this server"
        return None


@lru_cache(256)
def _is_local_host(value: bytes) -> bool:
    return _names_loopback(value.decode("latin-1").strip())


@lru_cache(256)
def _is_local_origin(value: bytes) -> bool:
    scheme, _, host = value.decode("latin-1").strip().partition("://")
    return scheme.lower() in {"http", "https"} and _names_loopback(host)


def _names_loopback(text: str) -> bool:
    """Whether a text is a loopback name or address, with a port at most."""
    found = _HOST_AND_PORT.fullmatch(text)
    return found is not None and _is_loopback(found["host"])


def _is_loopback(host: str) -> bool:
    if host.lower() in {"localhost", "localhost."}:
        return True
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
