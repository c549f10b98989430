"""What HTTP clients of a Trails server share, and an asynchronous one.

Redirects are not followed: the token must not go to another server. An answer may take as long as
its work, so that only connecting has a deadline; the system notices a peer that is gone.
"""

from __future__ import annotations

import os
import socket
from ssl import SSLError
from typing import Final

import httpx2

from trails.app.sessions.servers import ServerAddress, url_of
from trails.errors import UnreachableError
from trails.model.actors import Secret

_CONNECT_SECONDS: Final = 10.0
LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=16)
PROBES: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
"""A peer that does not answer for a minute is gone."""


def open_http(address: ServerAddress, token: Secret | None) -> httpx2.AsyncClient:
    """Return a client whose paths are below the address."""
    return httpx2.AsyncClient(
        base_url=url_of(address),
        headers={} if token is None else {"Authorization": f"Bearer {token.reveal()}"},
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
        transport=httpx2.AsyncHTTPTransport(
            verify=address.tls,  # loading certificates takes 40 ms, which plain HTTP does not need
            limits=LIMITS,
            socket_options=PROBES,
        ),
    )


def is_unsent(error: httpx2.TransportError) -> bool:
    """Whether the server can't have got the request."""
    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError)


def _reason(error: BaseException | None) -> str:
    """The system's own words, below those of the libraries."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif isinstance(error, OSError) and error.strerror and not isinstance(error, SSLError):
            # The loop writes its own text for the number of a connection that failed.
            number = error.errno or 0
            return os.strerror(number) if number > 0 else error.strerror
        else:
            error = error.__cause__ or error.__context__
    return ""


def unreachable(error: httpx2.TransportError, address: ServerAddress) -> UnreachableError:
    """Explain why there is no answer."""
    what = _reason(error) or str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in what:
        return UnreachableError(
            f"{address.name} has a certificate that this machine does not trust; set SSL_CERT_FILE "
            "to the file of its authority"
        )
    if is_unsent(error):
        return UnreachableError(
            f"no server answers at {address.name}: {what}; start one with 'trails serve', or "
            "check the address"
        )
    return UnreachableError(
        f"lost the connection to {address.name}: {what}; the request may or may not have been "
        "carried out"
    )
