"""uvicorn on sockets that are there already, without its signal handlers and its log."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trails.app.serving.socket_folders import is_same_user

_GRACE: Final = 3
"""Seconds that requests have to finish when the server ends."""


class HttpServer(Server):
    """A server that ends when it is told to, and leaves signals to the program."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            Config(
                app,
                http=_SameUserProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def run_on(self, sockets: Sequence[socket.socket]) -> None:
        """Serve until ``stop``."""
        await self.serve(list(sockets))

    def stop(self) -> None:
        """Finish what runs, for a few seconds, and end."""
        self.should_exit = True


class _SameUserProtocol(HttpToolsProtocol):
    """HTTP; on a Unix socket for the same user only."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse somebody else."""
        super().connection_made(transport)
        sock: socket.socket = transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX and not is_same_user(sock):
            transport.abort()
