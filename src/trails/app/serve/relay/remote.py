"""``trails serve --stdio --server``: one client's session, served by a server elsewhere.

The client starts this process and speaks MCP over its standard streams; every message goes to the
server's MCP endpoint over HTTP (``endpoint``). That endpoint keeps no session, so a restart of the
server is survived: requests wait for it, and those that were running are repeated or answered as
``repeats`` says.

Streams of changes are opened again; ``legacy_watch`` opens one for a client of an older revision.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic
from typing import Final

import msgspec

from trails.app.serve.relay.endpoint import RemoteEndpoint, UnansweredError
from trails.app.serve.relay.frames import MAX_LINE, Frame, Id, Message, read_frame
from trails.app.serve.relay.legacy_watch import LegacyWatch
from trails.app.serve.relay.repeats import (
    ACKNOWLEDGED,
    ATTEMPTS,
    LISTEN,
    REVISION,
    decode_part,
    is_repeatable,
    learn_tools,
    missed_on_stream,
    unknown_outcome,
)
from trails.app.serve.relay.streams import ClientLines, StandardStreams
from trails.app.serve.running import Progress, run_until_signal
from trails.app.sessions.servers import parse_address, server_token
from trails.errors import SettingsError

_SCOPES: Final = "TRAILS_MCP_SCOPES"
_LOST: Final = "the connection to the server was lost"
_PATIENCE: Final = 20.0
"""Seconds that requests wait for a server that was reached before."""
_GRACE: Final = 5.0
"""Seconds that active requests get after the client has closed its side."""
_SHORTEST: Final = 0.05
_LONGEST: Final = 5.0
"""Seconds between two attempts."""
_AT_ONCE: Final = 64
"""Requests that are sent to the server at the same time."""


class _Greeting(msgspec.Struct, frozen=True):
    revision: str | None = msgspec.field(default=None, name="protocolVersion")


class Contact:
    """Whether the server answers, and how long a request may wait for it."""

    def __init__(self, name: str, report: Progress) -> None:
        self._name = name
        self._report = report
        self._reached = False
        self._lost_at: float | None = None

    def reach(self) -> None:
        """Note an answer."""
        if self._lost_at is not None and self._reached:
            self._report(f"connected to {self._name} again")
        self._reached, self._lost_at = True, None

    def lose(self, reason: str) -> None:
        """Note that there is no answer."""
        if self._lost_at is None:
            self._lost_at = monotonic()
            self._report(reason)

    @property
    def worth_waiting(self) -> bool:
        """Whether the server may just be restarting."""
        if self._lost_at is None:
            return True
        return self._reached and monotonic() - self._lost_at < _PATIENCE


class RemoteFront:
    """The client's side of one session."""

    def __init__(self, endpoint: RemoteEndpoint, client: ClientLines, report: Progress) -> None:
        self._endpoint = endpoint
        self._client = client
        self._report = report
        self._contact = Contact(endpoint.name, report)
        self._tasks: dict[asyncio.Task[None], Message] = {}
        self._unanswered = 0
        """Bytes of requests that have no answer yet."""
        self._finished = asyncio.Event()
        """Set whenever a request is finished."""
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._repeatable: set[str] = set()
        self._greeted = asyncio.Event()
        """Cleared while ``initialize`` is unanswered: its answer decides on the revision."""
        self._greeted.set()
        self._watch = LegacyWatch(self.follow, self.write, report)

    async def run(self) -> None:
        """Serve until the client is gone."""
        try:
            async with self._endpoint, asyncio.TaskGroup() as group:
                self._watch.group = group
                while (line := await self._client.next()) is not None:
                    self._take(Message.read(line), group)
                    while self._unanswered > MAX_LINE:
                        await self._wait_for_one()
                await self._finish()
                self._watch.end()
                for task in self._tasks:
                    task.cancel()
        except* OSError:
            pass  # the client is gone

    async def _wait_for_one(self) -> None:
        self._finished.clear()
        await self._finished.wait()

    async def _finish(self) -> None:
        """Let active requests finish."""
        try:
            async with asyncio.timeout(_GRACE):
                while any(each.frame.method != LISTEN for each in self._tasks.values()):
                    await self._wait_for_one()
        except TimeoutError:
            self._report("the client has closed its side; unanswered requests are dropped")

    # --- messages of the client

    def _take(self, message: Message, group: asyncio.TaskGroup) -> None:
        frame = message.frame
        if frame.answers is not None:
            return  # the server sends no requests
        if frame.method == "notifications/cancelled":
            self._cancel(message.params.request_id)
        elif frame.method == "notifications/initialized":
            self._watch.begin()
        elif frame.method is None or frame.id is not None:
            if frame.method == "initialize":
                self._greeted.clear()
            task = group.create_task(self._serve(message))
            self._tasks[task] = message
            self._unanswered += len(message.line)
            task.add_done_callback(self._forget)
        # Any other notification concerns a session, which the server does not keep.

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._unanswered -= len(self._tasks.pop(task).line)
        self._finished.set()

    def _cancel(self, id: Id | None) -> None:
        """Close the connection of a request, which cancels it on the server."""
        for task, message in self._tasks.items():
            if message.frame.id == id and message.frame.method != "initialize":
                task.cancel()

    async def _serve(self, message: Message) -> None:
        """Answer one request."""
        method, is_latest = message.frame.method, REVISION in message.params.meta
        if method == "initialize":
            await self._greet(message)
            return
        if not is_latest:
            await self._greeted.wait()
        if method == LISTEN and is_latest:
            async with aclosing(self.follow(message)) as messages:
                async for line in messages:
                    await self.write(line)
        elif method == "resources/subscribe" and not is_latest:
            await self.write(await self._watch.subscribe(message, await self._ask(message)))
        elif method == "resources/unsubscribe" and not is_latest:
            await self.write(self._watch.unsubscribe(message))
        else:
            await self._pass_on(message)

    async def write(self, line: bytes) -> None:
        """Send a message to the client."""
        await self._client.write([line])

    async def _greet(self, message: Message) -> None:
        """Answer ``initialize``: this front can notify, which the endpoint alone can't."""
        try:
            answer = await self._ask(message)
            result = (read_frame(answer) or Frame()).result
            if result:
                self._endpoint.revision = decode_part(result, _Greeting).revision
                answer = _announce(message.frame, result)
            await self.write(answer)
        finally:
            self._greeted.set()

    async def _ask(self, message: Message) -> bytes:
        """Return the answer to a request."""
        async with aclosing(self._attempt(message)) as messages:
            lines = [line async for line in messages]
        return lines[-1]

    async def _pass_on(self, message: Message) -> None:
        async with aclosing(self._attempt(message)) as messages:
            async for line in messages:
                if message.frame.method == "tools/list" and (found := read_frame(line)):
                    learn_tools(found.result, self._repeatable)
                await self.write(line)

    # --- the server

    async def _attempt(self, message: Message) -> AsyncGenerator[bytes, None]:
        """Send a request until it is answered; yield the messages of its answer."""
        pause, lost, began = _SHORTEST, 0, monotonic()
        while True:
            try:
                async with self._turns, aclosing(self.post(message)) as messages:
                    async for line in messages:
                        yield line
            except UnansweredError as error:
                lost += error.sent
                repeatable = is_repeatable(message.frame, message.params, self._repeatable)
                if error.sent and (lost >= ATTEMPTS or not repeatable):
                    yield unknown_outcome(message.frame, message.params, _LOST)
                    return
                if not self._contact.worth_waiting or monotonic() - began > _PATIENCE:
                    yield error.answer
                    return
            else:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST)

    async def post(self, message: Message) -> AsyncGenerator[bytes, None]:
        """Send a message once; yield the messages of its answer."""
        posting = self._endpoint.post(message.line, message.frame, message.params)
        try:
            async with aclosing(posting) as messages:
                async for line in messages:
                    self._contact.reach()
                    yield line
        except UnansweredError as error:
            self._contact.lose(error.reason)
            raise

    async def follow(self, request: Message) -> AsyncGenerator[bytes, None]:
        """Open a stream of changes, and again whenever it ends; yield its messages.

        A server that stops ends its streams, and so does one that no longer accepts the token.
        The next attempt shows which: it waits for the server, or its error is the last message.
        """
        opened, pause = False, _SHORTEST
        id = request.frame.id or ""
        while True:
            began = monotonic()
            try:
                async with aclosing(self.post(request)) as messages:
                    async for line in messages:
                        frame = read_frame(line) or Frame()
                        if frame.method == ACKNOWLEDGED and opened:
                            for missed in missed_on_stream(id, request.params.notifications):
                                yield missed
                        elif frame.answers is None or not frame.result:
                            opened = opened or frame.method == ACKNOWLEDGED
                            yield line
                        if frame.answers is not None and not frame.result:
                            return  # refused
            except UnansweredError as error:
                if not opened and not self._contact.worth_waiting:
                    yield error.answer
                    return
            if monotonic() - began > _LONGEST:
                pause = _SHORTEST
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST)


def serve_remote(server: str, graph: str | None, report: Progress) -> int:
    """Serve one client until it is gone; return the signal that ended it, or 0."""
    if os.environ.get(_SCOPES):
        raise SettingsError(
            f"{_SCOPES} has no effect with --server, where the token decides; use a token with "
            "fewer scopes, and unset the variable"
        )
    address = parse_address(server)

    async def serve() -> None:
        client = ClientLines(StandardStreams(asyncio.get_running_loop()))
        await RemoteFront(RemoteEndpoint(address, graph, server_token()), client, report).run()

    return run_until_signal(serve, asyncio.new_event_loop)


def _announce(frame: Frame, result: msgspec.Raw) -> bytes:
    """Add to the answer to ``initialize`` what the front can do."""
    welcome = decode_part(result, dict)
    capabilities = welcome.get("capabilities")
    if isinstance(capabilities, dict):
        for name, more in (("tools", ()), ("resources", ("subscribe",))):
            if isinstance(given := capabilities.get(name), dict):
                given.update(dict.fromkeys(("listChanged", *more), True))
    return msgspec.json.encode({"jsonrpc": "2.0", "id": frame.id, "result": welcome})
