"""``trails serve``, over HTTP and over standard streams: from a project folder to a server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trails.app.memory import without_gc
from trails.app.serve.http.hosts import HostPolicy
from trails.app.serve.relay.owners import find_owner
from trails.app.settings import choose_graph, read_settings
from trails.errors import LockedError
from trails.imports import later
from trails.surfaces.cli.operations import Served

if TYPE_CHECKING:
    from trails.app import access
    from trails.app.serve import running
    from trails.app.serve.http import sockets
    from trails.app.serve.running import Progress
    from trails.app.telemetry import logs
else:
    access = later("trails.app.access")
    logs = later("trails.app.telemetry.logs")
    running = later("trails.app.serve.running")
    sockets = later("trails.app.serve.http.sockets")


class LocalServer:
    """Serves project folders of this machine.

    Each way to serve imports only what it needs: a client waits for the first answer.
    """

    def serve_stdio(
        self, folder: Path, graph: str | None, report: Progress, *, read_only: bool = False
    ) -> int:
        """Serve one graph on the standard streams; return the signal that ended it, or 0."""
        from trails.app.serve.relay.stdio import StdioFront  # noqa: PLC0415

        folder = folder.resolve()
        settings = read_settings(folder)
        with logs.writing_logs(settings.log, report) as say:
            chosen = choose_graph(settings.graphs, graph)
            hello = access.make_hello(chosen, os.environ)
            if read_only:
                check_alone(folder)

            async def serve() -> None:
                front = StdioFront(
                    folder, hello, say, settings.server.drain_seconds, read_only=read_only
                )
                await front.run()

            return running.run_until_signal(serve, asyncio.new_event_loop)

    def serve_remote(self, server: str, graph: str | None, report: Progress) -> int:
        """Pass one client's messages on to a server elsewhere; return the signal, or 0."""
        from trails.app.serve.relay.remote import serve_remote  # noqa: PLC0415

        return serve_remote(server, graph, report)

    def serve_http(
        self,
        folder: Path,
        host: str | None,
        port: int | None,
        ready: Callable[[Served], None],
        report: Progress,
        *,
        read_only: bool = False,
    ) -> int:
        """Serve all graphs on a port; return the signal that ended it."""
        with without_gc():
            import uvloop  # noqa: PLC0415

            from trails.app.access import access_of  # noqa: PLC0415
            from trails.app.serve.service import HttpOptions  # noqa: PLC0415
            from trails.app.serve.web import ServerStatus, WebFront, describe  # noqa: PLC0415

        folder = folder.resolve()
        settings = read_settings(folder)
        with logs.writing_logs(settings.log, report) as say:
            if read_only:
                check_alone(folder)
            server = settings.server
            gate = access_of(folder, settings, os.environ)
            tls = sockets.load_tls(folder, server.tls_certificate, server.tls_key)
            address = sockets.find_address(server.host if host is None else host)
            policy = HostPolicy.for_bind(
                address,
                server.public_hosts,
                server.browser_origins,
                tls=tls is not None,
                credentials=gate.configured(),
            )
            sock = sockets.bind_port(address, server.port if port is None else port)
            url = sockets.url_of(sock, tls=tls is not None)
            for warning in policy.warnings:
                say(warning)
            listening = HttpOptions(gate.authenticator, policy, [sock], tls, read_only=read_only)

            def report_ready(standing: ServerStatus) -> None:
                served = describe(settings, folder, url, standing, guarded=gate.configured())
                ready(served)
                logs.log_ready(
                    settings.log, url, served.pid, [each.graph for each in served.graphs]
                )

            async def serve() -> None:
                await WebFront(folder, listening, report_ready, say, server.drain_seconds).run()

            return running.run_until_signal(serve, uvloop.new_event_loop)


def check_alone(folder: Path) -> None:
    """Refuse ``--read-only`` if another process serves the folder and decides about writes."""
    owner = find_owner(folder)
    if owner is not None:
        raise LockedError(
            f"--read-only has no effect: process {owner.pid} already serves this project, and "
            "requests go through it; stop it first, or omit the option",
            pid=owner.pid,
            reason="served",
        )
