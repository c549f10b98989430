"""``trails serve --stdio``: one client's session, whoever owns the folder.

A front pumps lines between standard streams and the owner's ``mcp`` socket, also when this
process is the owner. When the owner ends, the front becomes it or finds the next one, and
the client does not notice.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Final

from trails.app.ownership import Ownership
from trails.app.serving.attaching import attach
from trails.app.serving.conversation import Conversation
from trails.app.serving.frames import error_answer
from trails.app.serving.greetings import Hello
from trails.app.serving.hosts import HostPolicy
from trails.app.serving.lines import MAX_LINE, Lines, LineTooLongError
from trails.app.serving.links import Link, RefusedError
from trails.app.serving.owners import OwnerAddress
from trails.app.serving.standard_streams import StandardStreams
from trails.app.settings import read_settings
from trails.app.startup import uncollected
from trails.errors import LockedError, TrailsError

_PATIENCE: Final = 20.0
"""Seconds without an owner until waiting requests are refused, beside those in which one ends."""
_GRACE: Final = 5.0
"""Seconds that running requests have when the client has closed its side."""
_BACKLOG: Final = MAX_LINE
"""Bytes of a client that are taken while there is no owner."""
_BRIEF: Final = 1.0
_PAUSE: Final = 0.2
"""Seconds to wait after a connection that was brief: something may be wrong with it."""
_INVALID_REQUEST: Final = -32600


class StdioFront:
    """The client's side of one session."""

    def __init__(
        self,
        folder: Path,
        hello: Hello,
        tell: Callable[[str], None],
        drain_seconds: float = 5.0,
        *,
        read_only: bool = False,
    ) -> None:
        """``drain_seconds``: how long an owner lets running calls end."""
        self._patience = _PATIENCE + drain_seconds
        self._folder = folder
        self._read_only = read_only
        self._hello = hello
        self._tell = tell
        self._streams = StandardStreams(asyncio.get_running_loop())
        self._conversation = Conversation()
        self._link: Link | None = None
        self._refused: TrailsError | None = None
        self._moved = asyncio.Event()
        """Set whenever an answer came, or an owner."""

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
        lines = Lines(self._streams.read, keep_rest=True)
        while True:
            try:
                line = await lines.next()
            except LineTooLongError:
                message = f"a message may have {MAX_LINE >> 20} MiB at most; send less at once"
                await self._answer([error_answer(None, _INVALID_REQUEST, message, {})])
                continue
            if line is None:
                break
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
            with suppress(OSError):  # whoever hears it next is told again
                await self._link.send(going)
        while self._link is None and self._conversation.waiting > _BACKLOG:
            await self._wait_for_move()

    async def _wait_for_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    async def _answer(self, lines: Sequence[bytes]) -> None:
        if lines:
            await self._streams.write(b"\n".join(lines) + b"\n")

    async def _refuse(self, error: TrailsError) -> None:
        data = {"code": error.code, **error.data}
        await self._answer(self._conversation.refuse(error.message, data))
        self._moved.set()

    # --- the owner

    async def _follow_owner(self) -> None:
        async with AsyncExitStack() as stack:
            while True:
                try:
                    link = await self._find_owner(stack)
                except RefusedError as error:
                    self._tell(error.message)
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
                await self._answer(self._conversation.lose(taken))
                if monotonic() - began < _BRIEF:
                    await asyncio.sleep(_PAUSE)

    async def _find_owner(self, stack: AsyncExitStack) -> Link:
        """Be connected to the owner, which may be this process from now on."""
        found = await attach(self._folder, self._connect, self._tell, self._wait)
        if isinstance(found, Link):
            return found
        return await self._own(found, stack)

    async def _own(self, ownership: Ownership, stack: AsyncExitStack) -> Link:
        # Only an owner needs the engine, and importing it takes longer than connecting.
        with uncollected():
            from trails.app.access import access_of  # noqa: PLC0415
            from trails.app.serving.service import Listening, serve_folder  # noqa: PLC0415

        gate = access_of(self._folder, read_settings(self._folder), os.environ)
        policy = HostPolicy.for_bind("localhost")
        listening = Listening(gate.authenticator, policy, read_only=self._read_only)
        serving = serve_folder(self._folder, ownership, listening, self._tell)
        owned = await stack.enter_async_context(serving)
        for line in owned.access:
            if "read-only" in line:
                self._tell(line)
        return await self._connect(owned.address)

    async def _connect(self, address: OwnerAddress) -> Link:
        return await Link.open(address, self._hello)

    async def _wait(self, seconds: float, locked: LockedError) -> None:
        """There is no owner to talk to yet."""
        if seconds > self._patience:
            await self._refuse(locked)

    async def _talk(self, link: Link) -> None:
        """Until the owner ends."""
        # What is sent is written before anything is waited for, so lines keep their order.
        self._link = link
        self._conversation.know(link.welcome.data.get("repeatable"))
        with suppress(OSError):
            await link.send(self._conversation.attach())
        self._moved.set()
        while (line := await link.next()) is not None:
            passed = self._conversation.hear(line)
            with suppress(OSError):
                await link.send(passed.to_owner)
            await self._answer(passed.to_client)
            self._moved.set()
