"""uvicorn's server on sockets that already listen, with our own connections.

uvicorn starts, ticks and stops; signals and logs are left to the program.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, cast

import msgspec
from starlette.types import ASGIApp
from uvicorn import Config, Server

from trails.app.serve.http.connections import BoundedProtocol, Clock, TakeWhole
from trails.app.serve.http.exchanges import ActiveConnection, ActiveRequests, CountingState
from trails.app.serve.http.limits import ArrivalBudget, ClientLimits
from trails.app.serve.http.sockets import HANDSHAKE
from trails.app.serve.relay.links import Listener, Listeners
from trails.model.actors import end_stale

_TICKS: Final = 10
"""Ticks of uvicorn's clock in a second."""


class Port(msgspec.Struct, frozen=True):
    """A listening socket; without a listener, each connection names its own."""

    sock: socket.socket
    listener: Listener | None = None
    tls: ssl.SSLContext | None = None


class HttpServer(Server):
    """A server that ends on ``stop``, and leaves signals to the program."""

    def __init__(
        self,
        app: ASGIApp,
        listeners: Listeners,
        limits: ClientLimits | None = None,
        *,
        grace: float = 3.0,
    ) -> None:
        """``grace``: seconds that requests have to finish when the server ends.

        An application that has ``take`` answers whole requests without ASGI, if it can.
        """
        super().__init__(
            Config(
                app,
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
            )
        )
        self.server_state: CountingState = CountingState()
        self.config.timeout_graceful_shutdown = grace  # type: ignore[assignment] # it is awaited for
        # Clients get their errors as answers; they would fill a log. The program itself reports
        # what does not end in time.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._app = app
        self._take: TakeWhole | None = getattr(app, "take", None)
        self._listeners = listeners
        self._limits = limits or ClientLimits()
        self._arrivals = ArrivalBudget(self._limits.unknown, self._limits.unknown_in_all)
        self._ports: Sequence[Port] = ()
        self._clock = Clock(0.0)
        connections = cast(Collection[ActiveConnection], self.server_state.connections)
        self._active = ActiveRequests(connections)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

    async def run_on(self, ports: Sequence[Port]) -> None:
        """Serve until ``stop``."""
        self._ports = ports
        await self.serve([port.sock for port in ports])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """Serve all sockets, each with its listener and TLS context."""
        loop = asyncio.get_running_loop()
        self._clock.now = loop.time()
        self.servers = [
            await loop.create_server(
                lambda listener=port.listener: self._connect(listener),
                sock=port.sock,
                ssl=port.tls,
                ssl_handshake_timeout=None if port.tls is None else HANDSHAKE,
            )
            for port in self._ports
        ]
        self.started = True

    def _connect(self, listener: Listener | None) -> BoundedProtocol:
        return BoundedProtocol(
            self._app,
            self.server_state,
            self._limits,
            listener,
            self._listeners.admit,
            self._clock,
            self._arrivals,
            self._take,
        )

    async def on_tick(self, counter: int) -> bool:
        """Check timeouts and credentials once a second."""
        self._clock.now = now = asyncio.get_running_loop().time()
        if counter % _TICKS == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.expire(now)
            end_stale(self._active, self._listeners.main.authenticator.is_current)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; clients that have not read their answers by then are cut off."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def stop(self) -> None:
        """Let running requests finish for some seconds, and stop."""
        self.should_exit = True
