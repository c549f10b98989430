"""The owner's side of the ``mcp`` socket: one session a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from trails.app.access import describe_access
from trails.app.app import App
from trails.app.serving.callers import SessionCallers
from trails.app.serving.connections import Connection
from trails.app.serving.graphs import ServedGraphs
from trails.app.serving.greetings import Welcome, read_hello
from trails.app.serving.socket_folders import is_same_user
from trails.model.large_bodies import LargeBodies
from trails.model.outcomes import Failure
from trails.request.authenticate import Authenticator
from trails.surfaces.mcp.streams import serve_stream

_FAREWELL: Final = 1.0
"""Seconds that a front has to take the goodbye."""


def access_lines(app: App, authenticator: Authenticator) -> list[str]:
    """Who may do what on the graphs that are served."""
    served = [name for name in app.settings.graphs if name not in app.quarantined]
    modes = {name: app.policies.judge(name).mode for name in served}
    return describe_access(modes, guarded=authenticator.required)


class Sessions:
    """All connections to the ``mcp`` socket."""

    def __init__(
        self,
        graphs: ServedGraphs,
        app: App,
        authenticator: Authenticator,
        tell: Callable[[str], None],
    ) -> None:
        self._graphs = graphs
        self._app = app
        self._authenticator = authenticator
        self._tell = tell
        self._large = LargeBodies()
        self._running: dict[asyncio.Task[None], Connection] = {}
        self._ending = False
        self.answered = asyncio.Event()
        """Set when a session was answered for the first time."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from hello to goodbye."""
        task = asyncio.current_task()
        if task is None or self._ending or not is_same_user(writer.get_extra_info("socket")):
            writer.close()
            return
        connection = self._running[task] = Connection(reader, writer)
        try:
            await self._serve(connection)
        except* OSError:
            pass  # the front is gone
        except* Exception as group:  # noqa: BLE001 - a session ends, the others go on
            names = {type(each).__name__ for each in group.exceptions}
            self._tell(f"a session failed: {', '.join(sorted(names))}")
        finally:
            del self._running[task]
            connection.close()

    async def _serve(self, connection: Connection) -> None:
        line = await connection.receive()
        if line is None:
            return
        try:
            hello = read_hello(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            await connection.send(Welcome("hello", f"this is not a hello: {error}"))
            return
        if hello.graph is None:
            reasons = {name: each.message for name, each in self._app.quarantined.items()}
            told = access_lines(self._app, self._authenticator)
            await connection.send(Welcome(data={"quarantined": reasons, "access": told}))
            await connection.receive()
            return
        found = self._graphs.get(hello.graph)
        if found is None:
            message = f"there is no graph {hello.graph!r}; there is {', '.join(self._graphs)}"
            found = Failure("semantic", "not_found", message)
        if isinstance(found, Failure):
            await connection.send(Welcome(found.code, found.message, found.data))
            return
        await connection.send(Welcome(data={"repeatable": found.repeatable()}))
        connection.begin(self.answered.set)
        await serve_stream(
            found,
            connection.receive,
            connection.answer,
            callers=SessionCallers(self._authenticator, hello),
            validation_errors=self._app.settings.graphs[hello.graph].mcp.validation_errors,
            large=self._large,
        )

    async def end(self, grace: float) -> None:
        """Let running calls finish within ``grace`` seconds, say goodbye, end all connections."""
        self._ending = True
        for connection in self._running.values():
            connection.end(grace)
        if self._running:
            await asyncio.wait(self._running, timeout=grace + _FAREWELL)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
