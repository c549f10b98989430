"""``trails serve --stdio``: one client's session, whichever process owns the folder.

A front copies lines between the standard streams and the owner's ``mcp`` socket, even if this
process is the owner. When the owner ends, the front becomes the owner or finds the next one,
and the client does not notice. ``remote`` does the same for a server elsewhere.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Final

from trails.app.memory import without_gc
from trails.app.ownership import Ownership
from trails.app.serve.http.hosts import HostPolicy
from trails.app.serve.relay.conversation import Conversation
from trails.app.serve.relay.frames import MAX_LINE
from trails.app.serve.relay.links import Hello, Link, SessionRefusedError, attach
from trails.app.serve.relay.owners import OwnerAddress
from trails.app.serve.relay.streams import ClientLines, StandardStreams
from trails.app.settings import read_settings
from trails.errors import LockedError, TrailsError

_PATIENCE: Final = 20.0
"""Seconds without an owner until waiting requests are refused, besides those in which one ends."""
_GRACE: Final = 5.0
"""Seconds that active requests get after the client has closed its side."""
_BACKLOG: Final = MAX_LINE
"""Bytes taken from a client while there is no owner."""
_BRIEF: Final = 1.0
_PAUSE: Final = 0.2
"""Seconds to wait after a connection that ended quickly: it may be faulty."""


class StdioFront:
    """The client's side of one session."""

    def __init__(
        self,
        folder: Path,
        hello: Hello,
        report: Callable[[str], None],
        drain_seconds: float = 5.0,
        *,
        read_only: bool = False,
    ) -> None:
        """``drain_seconds``: how long an owner lets active calls finish."""
        self._patience = _PATIENCE + drain_seconds
        self._folder = folder
        self._read_only = read_only
        self._hello = hello
        self._report = report
        self._client = ClientLines(StandardStreams(asyncio.get_running_loop()))
        self._conversation = Conversation()
        self._link: Link | None = None
        self._refused: TrailsError | None = None
        self._moved = asyncio.Event()
        """Set whenever an answer or an owner arrives."""

    async def run(self) -> None:
        """Serve until the client is gone."""
        tasks = {
            asyncio.create_task(self._listen_to_client()),
            asyncio.create_task(self._follow_owner()),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with suppress(BrokenPipeError, ConnectionError):  # the client is gone
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- the client

    async def _listen_to_client(self) -> None:
        while (line := await self._client.next()) is not None:
            await self._say(line)
        while self._link is None and not self._conversation.idle:
            await self._wait_for_move()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while not self._conversation.idle:
                    await self._wait_for_move()

    async def _say(self, line: bytes) -> None:
        going = self._conversation.say(line)
        if self._refused is not None:
            await self._refuse(self._refused)
        elif self._link is not None:
            with suppress(OSError):  # the next owner gets it again
                await self._link.send(going)
        while self._link is None and self._conversation.waiting > _BACKLOG:
            await self._wait_for_move()

    async def _wait_for_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    async def _refuse(self, error: TrailsError) -> None:
        data = {"code": error.code, **error.data}
        await self._client.write(self._conversation.refuse(error.message, data))
        self._moved.set()

    # --- the owner

    async def _follow_owner(self) -> None:
        async with AsyncExitStack() as stack:
            while True:
                try:
                    link = await self._find_owner(stack)
                except SessionRefusedError as error:
                    self._report(error.message)
                    self._refused = error
                    await self._refuse(error)
                    await asyncio.Event().wait()
                    return
                began = monotonic()
                try:
                    await self._talk(link)
                finally:
                    self._link = None
                    link.close()
                taken = None if link.goodbye is None else link.goodbye.goodbye
                await self._client.write(self._conversation.lose(taken))
                if monotonic() - began < _BRIEF:
                    await asyncio.sleep(_PAUSE)

    async def _find_owner(self, stack: AsyncExitStack) -> Link:
        """Connect to the owner, which may be this process from now on."""
        found = await attach(self._folder, self._connect, self._report, self._wait)
        if isinstance(found, Link):
            return found
        return await self._own(found, stack)

    async def _own(self, ownership: Ownership, stack: AsyncExitStack) -> Link:
        # Only an owner needs the engine, which takes longer to import than to connect.
        with without_gc():
            from trails.app.access import access_of  # noqa: PLC0415
            from trails.app.serve.service import HttpOptions, serve_folder  # noqa: PLC0415

        gate = access_of(self._folder, read_settings(self._folder), os.environ)
        policy = HostPolicy.for_bind("localhost")
        listening = HttpOptions(gate.authenticator, policy, read_only=self._read_only)
        serving = serve_folder(self._folder, ownership, listening, self._report)
        owned = await stack.enter_async_context(serving)
        for line in owned.access:
            if "read-only" in line:
                self._report(line)
        return await self._connect(owned.address)

    async def _connect(self, address: OwnerAddress) -> Link:
        return await Link.open(address, self._hello)

    async def _wait(self, seconds: float, locked: LockedError) -> None:
        """Wait for an owner."""
        if seconds > self._patience:
            await self._refuse(locked)

    async def _talk(self, link: Link) -> None:
        """Relay lines until the owner ends."""
        # Lines are written before anything is awaited, so they keep their order.
        self._link = link
        self._conversation.know(link.welcome.data.get("repeatable"))
        with suppress(OSError):
            await link.send(self._conversation.attach())
        self._moved.set()
        while (line := await link.next()) is not None:
            passed = self._conversation.hear(line)
            with suppress(OSError):
                await link.send(passed.to_owner)
            await self._client.write(passed.to_client)
            self._moved.set()
