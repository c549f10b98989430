"""One session of newline-delimited JSON-RPC: stdio, or a local socket.

A line that is not JSON gets a JSON-RPC error, where the SDK's own loop would drop it. Every message
is authenticated by the token in its client info, which is removed first; without a valid token the
answer is an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from trails.model.actors import MAX_BODY, MISPLACED, Actor, Secret, end_stale, holds_token
from trails.model.fairness import LargeBodies, is_large
from trails.model.origins import begin_request
from trails.model.results import Failure
from trails.model.texts import JsonTooLargeError, scan_json
from trails.surfaces.mcp.backend import McpBackend
from trails.surfaces.mcp.bodies import parse, understand
from trails.surfaces.mcp.callers import Callers, has_token, take_bearer
from trails.surfaces.mcp.failures import ErrorResult, map_failure
from trails.surfaces.mcp.server import Context, build_server
from trails.surfaces.mcp.subscribers import sweep
from trails.surfaces.mcp.subscriptions import Subscriptions
from trails.surfaces.mcp.wire import (
    DEFAULT_REVISION,
    ValidationErrors,
    encode,
    error_message,
)

ReceiveLine = Callable[[], Awaitable[bytes | None]]
"""The next line without its newline; None at the end."""

SendLine = Callable[[bytes], Awaitable[None]]
"""Takes a line without its newline."""

GRACE: Final = 2.0
"""Seconds that running calls have when the input ends."""

_CANCELLED: Final = "notifications/cancelled"
_ENDED: Final = Failure(
    "unauthenticated",
    "unauthenticated",
    "the credential was revoked or expired during this request; authenticate again and check "
    "whether the request took effect before you repeat it",
)
_Read = MemoryObjectSendStream[SessionMessage | Exception]
_Written = MemoryObjectReceiveStream[SessionMessage]


async def serve_stream(
    backend: McpBackend,
    receive: ReceiveLine,
    send: SendLine,
    *,
    callers: Callers,
    validation_errors: ValidationErrors = "protocol",
    large: LargeBodies | None = None,
) -> None:
    """Serve one session until its input ends."""
    begin_request("stdio")
    server = build_server(backend, _actor_of, validation_errors)
    subscriptions = Subscriptions(backend)
    subscriptions.register(server, _actor_of, sessions=True)
    to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    large = LargeBodies() if large is None else large
    session = _Session(receive, send, callers, subscriptions, large)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sweep, callers.is_current, subscriptions, session)
        tasks.start_soon(session.pump_in, to_server)
        tasks.start_soon(session.pump_out, from_server)
        await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


class _Session:
    """The two directions of one session, and its unanswered requests."""

    def __init__(
        self,
        receive: ReceiveLine,
        send: SendLine,
        callers: Callers,
        subscriptions: Subscriptions,
        large: LargeBodies,
    ) -> None:
        self._large = large
        self._receive = receive
        self._send = send
        self._callers = callers
        self._subscriptions = subscriptions
        self._turn = anyio.Lock()
        self._owed: dict[str | int | None, Actor] = {}
        """The actor of each unanswered request."""
        self._late: set[str | int | None] = set()
        """Unanswered requests whose credential has ended."""
        self._settled = anyio.Event()

    async def pump_in(self, stream: _Read) -> None:
        """Read lines until the input ends and all requests are answered."""
        async with stream:
            while (line := await self._receive()) is not None:
                message = await self._understand(line)
                if message is not None:
                    await stream.send(message)
            with anyio.move_on_after(GRACE):
                while self._owed:
                    self._settled = anyio.Event()
                    await self._settled.wait()

    async def pump_out(self, stream: _Written) -> None:
        """Write messages as lines."""
        async with stream:
            async for session_message in stream:
                message = session_message.message
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    await self._answer(message)
                else:
                    await self._write(message.model_dump(by_alias=True, exclude_unset=True))
                self._settled.set()

    async def _answer(self, message: JSONRPCResponse | JSONRPCError) -> None:
        """Send an answer; if its credential has ended, an error instead."""
        self._owed.pop(message.id, None)
        if message.id in self._late:
            self._late.discard(message.id)
            await self._write(_refusal(message.id, _ENDED))
        else:
            await self._write(message.model_dump(by_alias=True, exclude_unset=True))

    def actors(self) -> set[Actor]:
        """The actors of unanswered requests."""
        return set(self._owed.values())

    def end_those_of(self, actors: set[Actor]) -> None:
        """Answer the requests of some actors with an error."""
        self._late.update(id_ for id_, actor in self._owed.items() if actor in actors)

    async def _understand(self, line: bytes) -> SessionMessage | None:
        """The message of a line, with its sender; an invalid line is answered here."""
        line = line.strip()
        if not line:
            return None
        try:
            if is_large(line):
                whose = f"session {id(self)}"  # the line itself says who sent it
                reading = self._large.run(whose, _read_large, line, self._callers.default_token)
                message, token = await reading
            else:
                message, token = _read(line, self._callers.default_token)
        except _LineError as error:
            await self._write(error_message(error.id, error.code, error.message))
            return None
        if isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
            self._forget(message)
            return SessionMessage(message)  # cancelling needs no valid credential
        begins = isinstance(message, JSONRPCRequest) and message.method == "initialize"
        actor = await self._callers.resolve(token, begins=begins)
        if isinstance(actor, Failure):
            await self._refuse(message, actor)
            return None
        # What will be answered: no stream.
        if isinstance(message, JSONRPCRequest) and message.method != "subscriptions/listen":
            self._owed[message.id] = actor
        return SessionMessage(message, ServerMessageMetadata(request_context=actor))

    async def _refuse(self, message: JSONRPCMessage, failure: Failure) -> None:
        """Answer an unauthenticated request; a notification is dropped.

        The credential may have been valid before, so its subscriptions end first.
        """
        end_stale(self._subscriptions, self._callers.is_current)
        if isinstance(message, JSONRPCRequest):
            await self._write(_refusal(message.id, failure))

    def _forget(self, message: JSONRPCNotification) -> None:
        """Don't answer a cancelled request."""
        taken_back = cancelled_request_id_from_params(message.params)
        if taken_back is not None:
            self._owed.pop(taken_back, None)
            self._late.discard(taken_back)

    async def _write(self, message: object) -> None:
        async with self._turn:
            await self._send(encode(message))


class _LineError(Exception):
    """An invalid line, with the error that answers it."""

    def __init__(self, id_: object, code: int, message: str) -> None:
        super().__init__(message)
        self.id = id_
        self.code = code
        self.message = message


def _read_large(line: bytes, default_token: Secret | None) -> tuple[JSONRPCMessage, Secret | None]:
    """The message of a large line, in a thread."""
    try:
        scan_json(line)
    except JsonTooLargeError as error:
        raise _LineError(None, INVALID_REQUEST, f"the line is too large: {error}") from None
    except ValueError as error:
        raise _LineError(None, PARSE_ERROR, f"the line is not valid JSON: {error}") from None
    return _read(line, default_token)


def _read(line: bytes, default_token: Secret | None) -> tuple[JSONRPCMessage, Secret | None]:
    """The message of a line, and the token that it carried."""
    if len(line) > MAX_BODY:
        refusal = f"the line is too large: the limit is {MAX_BODY:,} bytes"
        raise _LineError(None, INVALID_REQUEST, refusal)
    try:
        value = parse(line)
    except ValueError as error:
        raise _LineError(None, PARSE_ERROR, f"the line is not valid JSON: {error}") from None
    token, id_ = take_bearer(value), _id_of(value)
    presented = default_token if token is None else token
    if has_token(value, line, presented):
        id_ = None if holds_token(str(id_).encode(), presented) else id_
        raise _LineError(id_, INVALID_REQUEST, MISPLACED)
    message = understand(value)
    if message is None:
        refusal = "each line must be one JSON-RPC request, notification or response"
        raise _LineError(id_, INVALID_REQUEST, refusal)
    return message, token


def _refusal(id_: str | int | None, failure: Failure) -> object:
    """The error for an unauthenticated request."""
    mapped = map_failure(failure, DEFAULT_REVISION, "protocol", "resource")
    assert not isinstance(mapped, ErrorResult)  # noqa: S101 - no tool was called
    return error_message(id_, mapped.code, mapped.message, mapped.data)


def _actor_of(context: Context) -> Actor:
    """The actor of a message, from its metadata."""
    return cast(Actor, context.request)


def _id_of(value: object) -> object:
    """The id that a broken request seems to have."""
    id_ = value.get("id") if isinstance(value, dict) else None
    return id_ if isinstance(id_, str | int) and not isinstance(id_, bool) else None
