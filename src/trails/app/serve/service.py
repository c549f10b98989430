"""The owner of a folder: the app, opened once, behind two Unix sockets and optionally a port.

The ``mcp`` socket is served immediately. HTTP is slow to import, so without a port it starts
after the first session had its first answer; connections wait until then.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final

import msgspec

from trails import __version__
from trails.app.app import App
from trails.app.kernels import ServedGraphs
from trails.app.memory import trim_memory, without_gc
from trails.app.ownership import Ownership
from trails.app.serve.http.hosts import HostPolicy
from trails.app.serve.http.limits import limits_of_process
from trails.app.serve.relay.links import Listeners, Preamble
from trails.app.serve.relay.owners import OwnerAddress, SocketFolder
from trails.app.serve.relay.sessions import RelaySessions, access_lines
from trails.app.serve.reloading import reloading
from trails.app.settings import Settings
from trails.app.webhooks.senders import deliver_webhooks
from trails.errors import SettingsError
from trails.identity.oauth.challenges import Challenges
from trails.imports import import_all
from trails.model.actors import OPERATOR, Secret
from trails.model.texts import count
from trails.request.authenticate import Authenticator
from trails.request.monitor import Traffic

if TYPE_CHECKING:  # OpenTelemetry is optional
    from trails.app.telemetry.otel import Telemetry

_GRACE: Final = 1.0
"""Seconds that calls in threads get after the shutdown."""
_MARGIN: Final = 0.3
"""Seconds between a last look at active calls and ending them."""
_HEAD_START: Final = 1.0
"""Seconds to answer the first session before HTTP is prepared."""
_SHOWN: Final = 10
"""How many names a message lists."""
_SWITCH: Final = 0.0002
"""Seconds after which a computing thread yields, so that the event loop does not wait long."""
_KEY: Final = 32
"""Random bytes of an owner's key."""


class HttpOptions(msgspec.Struct, frozen=True):
    authenticator: Authenticator
    """Identifies the caller of a request."""
    policy: HostPolicy
    ports: Sequence[socket.socket] = ()
    """Sockets that already listen, besides the one that every owner has."""
    tls: ssl.SSLContext | None = None
    """The TLS context of the ports."""
    read_only: bool = False
    """Whether the data is only read."""

    def preamble(self) -> Preamble:
        """The preamble that announces callers of these ports to another owner."""
        scopes, token = self.authenticator.process
        return Preamble(self.policy.bind, scopes, token)


class OwnedFolder(msgspec.Struct, frozen=True):
    """A folder that this process serves."""

    address: OwnerAddress
    quarantined: Mapping[str, str]
    """Graphs that are not served, each with the reason."""
    access: Sequence[str]
    """Who may do what on the other graphs."""


@asynccontextmanager
async def serve_folder(
    folder: Path, ownership: Ownership, listening: HttpOptions, report: Callable[[str], None]
) -> AsyncIterator[OwnedFolder]:
    """Own a folder and serve it; on exit, wait for active calls."""
    authenticator = listening.authenticator
    sys.setswitchinterval(_SWITCH)

    def guarded() -> bool:
        return authenticator.required

    with App.open(
        folder,
        ownership=ownership,
        read_only=listening.read_only,
        guarded=guarded,
        progress=report,
    ) as app:
        app.serving = True
        for name, why in app.plugins.failures.items():
            report(f"plugin {name} is not loaded: {why}")
        app.policies.server()  # report invalid ones before anything is served
        sockets = SocketFolder()
        key = Secret(token_urlsafe(_KEY))
        try:
            async with reloading(app), _serve(app, sockets, key, listening, report):
                ownership.announce(sockets.http, sockets.mcp, key)
                address = OwnerAddress(os.getpid(), sockets.http, sockets.mcp, key)
                quarantined = {name: each.message for name, each in app.quarantined.items()}
                yield OwnedFolder(address, quarantined, access_lines(app, authenticator))
        finally:
            sockets.remove()


@asynccontextmanager
async def _serve(
    app: App,
    sockets: SocketFolder,
    key: Secret,
    listening: HttpOptions,
    report: Callable[[str], None],
) -> AsyncIterator[None]:
    """Serve both sockets of an owner, and its ports."""
    telemetry = start_telemetry(app.settings)
    graphs = ServedGraphs(app, listening.authenticator.is_current, telemetry)
    sessions = RelaySessions(graphs, app, listening.authenticator)
    server = await asyncio.start_unix_server(sessions.serve, sock=sockets.mcp_socket)
    http = _Http(app, graphs, listening, sockets.http_socket, key, telemetry)
    running = asyncio.create_task(http.run(sessions.answered))
    running.add_done_callback(lambda task: _report_failure(task, report))
    tidying = asyncio.create_task(trim_memory())
    delivering = asyncio.create_task(deliver_webhooks(app, graphs, os.environ, report))
    try:
        if listening.ports:
            await http.begin(running)
        yield
    finally:
        tidying.cancel()
        delivering.cancel()
        server.close()
        http.ending.set()
        grace = app.settings.server.drain_seconds
        ending = asyncio.gather(sessions.end(grace + _MARGIN), running)
        await _drain(ending, graphs, grace, report)
        if telemetry is not None:
            await asyncio.to_thread(telemetry.close)
        await _close(graphs)


def start_telemetry(settings: Settings) -> Telemetry | None:
    """Begin to send spans and metrics, if the settings name a collector."""
    if settings.telemetry is None:
        return None
    try:
        from trails.app.telemetry.otel import Telemetry  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            f"[telemetry] needs OpenTelemetry ({error.name} is missing); install it with "
            "pip install 'trails[otel]', or remove [telemetry] from trails.toml"
        ) from None
    return Telemetry(settings.telemetry, settings.project.name, __version__)


async def _drain(
    ending: asyncio.Future[tuple[None, None]],
    graphs: ServedGraphs,
    grace: float,
    report: Callable[[str], None],
) -> None:
    """Wait for active calls; before they are cut off, name those that are still running."""
    if running := graphs.under_way():
        report(f"stopping: waiting up to {grace:g} s for {_describe(running)}")
    await asyncio.wait({ending}, timeout=grace)
    if not ending.done() and (running := graphs.under_way()):
        report(
            f"stopping: cut off after {grace:g} s: {_describe(running)}; changes that "
            "were not committed are lost"
        )
    await ending


def _describe(running: Counter[str]) -> str:
    shown = [f"{name} x {number}" if number > 1 else name for name, number in running.most_common()]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"{count(running.total(), 'call')} ({', '.join(shown[:_SHOWN])}{more})"


async def _close(graphs: ServedGraphs) -> None:
    """Wait for calls in threads; exit the process if they don't end."""
    try:
        async with asyncio.timeout(_GRACE):
            await asyncio.to_thread(graphs.close)
    except TimeoutError:
        os._exit(1)


def _report_failure(task: asyncio.Task[None], report: Callable[[str], None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        report(f"HTTP is not served: {type(error).__name__}: {error}")


class _Http:
    """The HTTP part of an owner."""

    def __init__(
        self,
        app: App,
        graphs: ServedGraphs,
        listening: HttpOptions,
        sock: socket.socket,
        key: Secret,
        telemetry: Telemetry | None,
    ) -> None:
        self._telemetry = telemetry
        self._app = app
        self._graphs = graphs
        self._listening = listening
        self._sock = sock
        self._key = key
        self._ready = asyncio.Event()
        self.ending = asyncio.Event()
        """Set it to stop."""

    async def begin(self, running: asyncio.Task[None]) -> None:
        """Wait until requests are answered; raise what prevents that."""
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.is_set():
            ready.cancel()
            await running

    async def run(self, answered: asyncio.Event) -> None:
        """Serve until ``ending``; without a port, start after a session was answered."""
        if not self._listening.ports:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEAD_START):
                    await answered.wait()
            for module in ("front", "servers"):
                await asyncio.to_thread(import_module, f"trails.app.serve.http.{module}")
            await asyncio.to_thread(import_all)
            await asyncio.to_thread(self._app.open_views)
        with without_gc():
            import_all()
            from trails.app.serve.http.front import (  # noqa: PLC0415 - see above
                HttpInterface,
                OperatorInterface,
            )
            from trails.app.serve.http.servers import HttpServer, Port  # noqa: PLC0415
        self._app.open_views()

        listening, settings = self._listening, self._app.settings
        interface = HttpInterface(
            self._graphs,
            settings.graphs,
            listening.authenticator,
            listening.policy,
            Challenges(settings.auth.oauth, listening.authenticator.scopes),
            max_body=settings.server.body_mb << 20,
            judge=self._app.policies.server(),
            operator=OperatorInterface(self._app),
        )
        main, monitor = interface.listener, interface.monitor
        monitor.project, monitor.version = settings.project.name, __version__
        monitor.public = settings.server.public_metrics
        ports = [Port(each, main, listening.tls) for each in listening.ports]
        async with interface.run() as asgi:
            server = HttpServer(
                asgi,
                Listeners(main, self._key),
                limits_of_process(),
                grace=settings.server.drain_seconds + _MARGIN,
            )
            state = server.server_state
            monitor.traffic = Traffic(state.connections, state.responses)
            if self._telemetry is not None:
                self._telemetry.measure(partial(monitor.metrics, OPERATOR))
            serving = asyncio.create_task(server.run_on([Port(self._sock), *ports]))
            ending = asyncio.create_task(self.ending.wait())
            self._ready.set()
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            interface.end_streams()
            server.stop()
            await serving
