"""The port of ``trails serve``, served by this process or forwarded to the owner.

When the owner ends, this front becomes the owner or finds the next one. The port stays open
meanwhile: new connections wait.

``Pump`` copies bytes between two connections, as fast as the slower side takes them, without
reading them. One exception: if a server disappears while a client waits for an answer, the
client gets a 503 answer instead of a closed connection.

``describe`` makes the start message: URLs, and commands to add them to a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from trails.app.clients.catalog import entry_name
from trails.app.ownership import Ownership
from trails.app.serve.http.limits import limits_of_process
from trails.app.serve.http.responses import crowded, interrupted, unavailable
from trails.app.serve.http.sockets import HANDSHAKE
from trails.app.serve.relay.links import Hello, Link, attach
from trails.app.serve.relay.owners import OwnerAddress, connect_streams
from trails.app.serve.service import HttpOptions, serve_folder
from trails.app.settings import DATA_FOLDER, Settings
from trails.model.texts import count
from trails.surfaces.cli.operations import Endpoint, Served

_BLOCK: Final = 1 << 16
_QUIET: Final = 0.1
"""Seconds of silence after which an answer counts as complete and the client as idle."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pump:
    """A client's connection, and the one that it is forwarded to."""

    def __init__(self, client: Streams, server: Streams) -> None:
        self._client = client
        self._server = server
        self._asked: bytes | None = None
        """The beginning of a request that has no answer yet."""
        self._answered = 0.0

    @property
    def busy(self) -> bool:
        """Whether an answer is due or being sent, as far as is visible without parsing."""
        return self._asked is not None or monotonic() - self._answered < _QUIET

    async def run(self) -> None:
        """Copy until the server closes its side, or either side is gone.

        A client that has sent everything may still be reading; a server that has is done.
        """
        upwards = asyncio.create_task(self._pass_up())
        try:
            await self._pass_down()
        finally:
            upwards.cancel()
            await asyncio.gather(upwards, return_exceptions=True)
            self._server[1].close()
            self._client[1].close()

    async def _pass_up(self) -> None:
        reader, writer = self._client[0], self._server[1]
        try:
            while block := await reader.read(_BLOCK):
                if self._asked is None:
                    self._asked = block
                writer.write(block)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    async def _pass_down(self) -> None:
        reader, writer = self._server[0], self._client[1]
        with suppress(OSError):
            while block := await reader.read(_BLOCK):
                self._asked = None
                writer.write(block)
                await writer.drain()
                self._answered = monotonic()
        if self._asked is None:
            await asyncio.sleep(_QUIET)  # a request may have been sent to an owner that was gone
        with suppress(OSError):
            if self._asked is not None:
                writer.write(interrupted(self._asked))
                await writer.drain()


_PATIENCE: Final = 20.0
"""Seconds that a connection waits for an owner, besides those in which one ends."""


class ServerStatus(msgspec.Struct, frozen=True):
    """Who serves what arrives at the port."""

    pid: int
    here: bool
    quarantined: Mapping[str, str]
    """Graphs that are not served, each with the reason."""
    access: Sequence[str]
    """Who may do what on the other graphs."""


class WebFront:
    """The port; ``ready`` is called each time a process serves it."""

    def __init__(
        self,
        folder: Path,
        listening: HttpOptions,
        ready: Callable[[ServerStatus], None],
        report: Callable[[str], None],
        drain_seconds: float = 5.0,
    ) -> None:
        """``drain_seconds``: how long an owner and this front let requests finish."""
        self._drain_seconds = drain_seconds
        self._folder = folder
        self._listening = listening
        self._limits = limits_of_process()
        self._preamble = listening.preamble().line()
        self._ready = ready
        self._report = report
        self._owner: OwnerAddress | None = None
        self._found = asyncio.Event()
        self._clients = 0
        self._pumps: set[Pump] = set()

    async def run(self) -> None:
        ownership = await self._pass_on_until_owner()
        async with serve_folder(self._folder, ownership, self._listening, self._report) as owner:
            self._know(owner.address)  # waiting connections are forwarded to this process
            self._ready(ServerStatus(owner.address.pid, True, owner.quarantined, owner.access))
            await asyncio.Event().wait()

    async def _pass_on_until_owner(self) -> Ownership:
        """Forward connections to the owner of the folder, until this process is the owner."""
        tls = self._listening.tls
        handshake = None if tls is None else HANDSHAKE
        servers = [
            await asyncio.start_server(
                self._pass_on, sock=port.dup(), ssl=tls, ssl_handshake_timeout=handshake
            )
            for port in self._listening.ports
        ]
        try:
            while not isinstance(found := await self._attach(), Ownership):
                await self._pass_on_to(*found)
        except asyncio.CancelledError:
            await self._finish()
            raise
        finally:
            for server in servers:
                server.close()
        return found

    async def _attach(self) -> Ownership | tuple[OwnerAddress, Link]:
        return await attach(self._folder, _watch, self._report)

    async def _pass_on_to(self, address: OwnerAddress, link: Link) -> None:
        """Forward until the owner ends."""
        try:
            self._know(address)
            self._ready(ServerStatus(address.pid, False, _quarantined(link), _access(link)))
            while await link.next() is not None:
                pass
        finally:
            link.close()
            self._owner = None
            self._found.clear()

    def _know(self, address: OwnerAddress) -> None:
        self._owner = address
        self._found.set()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        if self._clients >= self._limits.connections:
            writer.write(crowded())
            writer.close()
            return
        self._clients += 1
        try:
            await self._serve((reader, writer))
        finally:
            self._clients -= 1

    async def _serve(self, client: Streams) -> None:
        """Forward a connection to an owner, if one is found in time."""
        try:
            async with asyncio.timeout(_PATIENCE + self._drain_seconds):
                server = await self._connect()
        except TimeoutError:
            reader, writer = client
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._limits.head_seconds):
                    writer.write(unavailable(await reader.read(_BLOCK)))
                    await writer.drain()
            writer.close()
            return
        pump = Pump(client, server)
        self._pumps.add(pump)
        try:
            await pump.run()
        finally:
            self._pumps.discard(pump)

    async def _connect(self) -> Streams:
        while True:
            await self._found.wait()
            if self._owner is not None:
                with suppress(OSError):
                    reader, writer = await connect_streams(self._owner.http)
                    writer.write(self._preamble)
                    return reader, writer
            await asyncio.sleep(0.05)

    async def _finish(self) -> None:
        """Let active answers finish; report how many did not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                while any(pump.busy for pump in self._pumps):  # noqa: ASYNC110 - silence is not an event
                    await asyncio.sleep(0.05)
        if cut := sum(pump.busy for pump in self._pumps):
            self._report(
                f"stopping: cut off after {self._drain_seconds:g} s: {count(cut, 'request')} "
                "without an answer; the process that serves the project may still finish them"
            )


async def _watch(address: OwnerAddress) -> tuple[OwnerAddress, Link]:
    """Stay connected to an owner, to notice its end."""
    return address, await Link.open(address, Hello())


def _quarantined(link: Link) -> Mapping[str, str]:
    found = link.welcome.data.get("quarantined")
    return found if isinstance(found, dict) else {}


def _access(link: Link) -> Sequence[str]:
    found = link.welcome.data.get("access")
    return found if isinstance(found, list) else ()


def describe(
    settings: Settings, folder: Path, url: str, standing: ServerStatus, *, guarded: bool
) -> Served:
    """Describe a server at a URL; ``guarded``: it requires credentials."""
    return Served(
        project=settings.project.name,
        data=str(folder / DATA_FOLDER),
        url=url,
        graphs=_endpoints(settings, url, standing.quarantined, guarded=guarded),
        owner=standing.here,
        pid=standing.pid,
        quarantined=standing.quarantined,
        access=standing.access,
    )


def _endpoints(
    settings: Settings, url: str, without: Mapping[str, str], *, guarded: bool
) -> list[Endpoint]:
    """Describe each graph's MCP endpoint, and how to add it to a client."""
    oauth = settings.auth.oauth
    signs_in = oauth is not None and oauth.advertise  # a header would disable that
    header = ' --header "Authorization: Bearer $TRAILS_TOKEN"' if guarded and not signs_in else ""
    endpoints = []
    for graph in settings.graphs:
        if graph not in without:
            name = entry_name(settings, graph)
            at = f"{url}/graphs/{graph}/mcp"
            add = f"claude mcp add --transport http {name} {at}{header}"
            endpoints.append(Endpoint(graph, at, add))
    return endpoints
