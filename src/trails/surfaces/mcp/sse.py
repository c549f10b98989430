"""The HTTP+SSE transport of 2024-11-05, for clients that know nothing newer.

A GET of ``…/sse`` is the stream of one session and names the path to which its messages
are posted.
"""

from __future__ import annotations

from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from starlette.types import Receive, Scope, Send

from trails.model.large_bodies import LargeBodies, is_large
from trails.model.secrets import PRESENTED
from trails.surfaces.mcp.bearers import without_bearer
from trails.surfaces.mcp.bodies import (
    BodyError,
    Replay,
    check_for_sdk,
    check_large,
    parse_body,
    read_body,
)
from trails.surfaces.mcp.callers import caller_of, name_caller
from trails.surfaces.mcp.disconnects import Gone, until_gone
from trails.surfaces.mcp.responses import refuse, refuse_body

STREAM: Final = "/sse"
MESSAGES: Final = "/messages"


class SseTransport:
    """The two paths of the transport."""

    def __init__(self, server: Server[Any], max_body: int, large: LargeBodies) -> None:
        self._server = server
        self._large = large
        self._max_body = max_body
        self._transport = SseServerTransport(MESSAGES, max_request_body_size=max_body)

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a session."""
        if scope["method"] != "GET":
            await refuse(send, 405, "GET the stream of a session here", [(b"allow", b"GET")])
            return
        base = scope["path"].removesuffix(STREAM)
        scope = name_caller({**scope, "root_path": base})
        async with self._transport.connect_sse(scope, receive, send) as (read, write):
            await self._server.run(read, write, self._server.create_initialization_options())

    async def take(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a message of a session."""
        if scope["method"] != "POST":
            await refuse(send, 405, "POST the messages of a session here", [(b"allow", b"POST")])
            return
        try:
            body = await read_body(receive, self._max_body)
            if is_large(body):
                reading = self._large.run(caller_of(scope).name, _read_large, scope, body)
                body = await until_gone(receive, reading)
            else:
                body = _read(scope, body)
        except Gone:
            return
        except BodyError as error:
            await refuse_body(send, error)
            return
        # Not ended with its request: the message is handed on after the answer.
        replayed = Replay(body, receive)
        await self._transport.handle_post_message(name_caller(scope), replayed, send)


def _read_large(scope: Scope, body: bytes) -> bytes:
    """The message of a large body, in a thread."""
    check_for_sdk(check_large(body))
    return _read(scope, body)


def _read(scope: Scope, body: bytes) -> bytes:
    """The message of a body, without a token, if it is sound."""
    body = without_bearer(body, scope.get(PRESENTED))
    parse_body(body)
    return body
