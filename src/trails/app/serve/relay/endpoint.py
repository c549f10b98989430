"""The MCP endpoint of a graph on another server, over Streamable HTTP.

One message in, the messages of its answer out. A refusal by HTTP itself (credentials, an unknown
graph, a server that is not Trails) becomes a JSON-RPC error; ``UnansweredError`` is everything
that another attempt may cure. The endpoint keeps no session: a session that a server opens is
closed at once, because ``remote`` remembers what one would hold.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import httpx2
import msgspec

from trails.app.serve.relay.frames import MAX_LINE, Frame, Params, error_answer
from trails.app.serve.relay.repeats import LISTEN, REVISION, SERVER_ERROR
from trails.app.sessions.http import is_unsent, open_http, unreachable
from trails.app.sessions.servers import (
    HIDING,
    ServerAddress,
    error_of,
    read_failure,
    read_graphs,
)
from trails.app.settings import choose_graph
from trails.errors import NotFoundError, TrailsError, UnreachableError
from trails.model.actors import Secret

_SESSION: Final = "mcp-session-id"
_NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
}
"""Methods whose subject is repeated in a header, from 2026-07-28 on."""
_PLAIN: Final = re.compile(r"(?!=\?base64\?)[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?|")
_CODES: Final[Mapping[int, int]] = {401: -32001, 403: -32004, 413: -32600, 429: -32003}
"""The codes of JSON-RPC errors by the status of HTTP; all others are errors of the server."""
_RETRIED: Final = frozenset({502, 503, 504})
"""Statuses with which a server or a proxy reports a server that restarts."""
_STREAM: Final = "text/event-stream"
_STREAM_SECONDS: Final = 60.0
"""Seconds of silence on a stream, on which a server sends a comment every 15 seconds."""


class UnansweredError(Exception):
    """There is no answer, for a reason that may pass."""

    def __init__(self, answer: bytes, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.answer = answer
        """The error for a client that can't wait longer."""
        self.reason = reason
        self.sent = sent
        """Whether the server may have got the request."""


class RemoteEndpoint:
    """One graph of one server."""

    def __init__(self, address: ServerAddress, graph: str | None, token: Secret | None) -> None:
        self._address = address
        self._client = open_http(address, token)
        self._path = None if graph is None else _path(graph)
        self.revision: str | None = None
        """The revision that ``initialize`` has agreed on."""

    @property
    def name(self) -> str:
        """The address as people know it."""
        return self._address.name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def post(self, line: bytes, frame: Frame, params: Params) -> AsyncGenerator[bytes, None]:
        """Send a message; yield the messages of its answer, without line ends."""
        try:
            async with self._client.stream(
                "POST",
                await self._find(),
                content=line,
                headers=self._headers(frame, params),
                timeout=self._timeout(frame),
            ) as response:
                async for message in self._read(response, frame):
                    yield message
        except httpx2.TransportError as error:
            failure = unreachable(error, self._address)
            raise UnansweredError(
                _refusal(frame, failure), failure.message, sent=not is_unsent(error)
            ) from None
        except (httpx2.DecodingError, httpx2.SSEError) as error:
            yield _refusal(frame, self._unlike(f"sent an unreadable answer ({error})"))
        except TrailsError as error:
            yield _refusal(frame, error)

    async def _find(self) -> str:
        """Return the path of the endpoint; if no graph was named, ask the server."""
        if self._path is None:
            response = await self._client.get("/graphs")
            body = response.content
            if response.status_code >= 300:
                failure = read_failure(
                    response.status_code, response.reason_phrase, body, self._address
                )
                if failure.code not in HIDING:
                    raise error_of(failure)
                raise NotFoundError(f"{self.name} does not list its graphs; name one with --graph")
            try:
                graphs = read_graphs(body)
            except msgspec.MsgspecError:
                raise self._unlike("has no list of graphs") from None
            self._path = _path(choose_graph(graphs, None))
        return self._path

    def _headers(self, frame: Frame, params: Params) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": f"application/json, {_STREAM}",
        }
        revision = params.meta.get(REVISION)
        if not isinstance(revision, str):
            if self.revision is not None and frame.method != "initialize":
                headers["MCP-Protocol-Version"] = self.revision
            return headers
        headers["MCP-Protocol-Version"] = _spell(revision)
        headers["Mcp-Method"] = _spell(frame.method or "")
        subject = _NAMED.get(frame.method or "")
        if subject is not None:
            headers["Mcp-Name"] = _spell(params.name if subject == "name" else params.uri)
        return headers

    def _timeout(self, frame: Frame) -> httpx2.Timeout:
        if frame.method != LISTEN:
            return self._client.timeout
        return httpx2.Timeout(_STREAM_SECONDS, pool=None)

    async def _read(self, response: httpx2.Response, frame: Frame) -> AsyncGenerator[bytes, None]:
        """Yield the messages of a response."""
        if session := response.headers.get(_SESSION):
            await self._end_session(session)
        media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.is_success and media == _STREAM:
            async for event in httpx2.EventSource(response, MAX_LINE):
                if event.data:
                    yield _line(event.data.encode())
            return
        body = await response.aread()
        if response.status_code == 202 and not frame.is_request:
            return
        answer = _answer(body) if media == "application/json" else None
        if answer is not None and answer.error and answer.id is None:
            # An error of the server itself, which has not read the message.
            wrapped = {"jsonrpc": "2.0", "id": frame.id, "error": answer.error}
            body = msgspec.json.encode(wrapped)
        if answer is None:
            body = self._refuse(response, body, frame)
        if response.status_code in _RETRIED:
            sent = response.status_code != 503
            reason = f"{self.name} answered {response.status_code}"
            raise UnansweredError(_line(body), reason, sent=sent)
        yield _line(body)

    def _refuse(self, response: httpx2.Response, body: bytes, frame: Frame) -> bytes:
        """Return the error for a response that is no JSON-RPC message."""
        status = response.status_code
        if response.is_redirect:
            location = response.headers.get("location", "")[:200]
            error: TrailsError = self._unlike(f"redirects to {location!r}, which is not followed")
        elif response.is_success:
            error = self._unlike(f"answered {status} without a message of MCP")
        else:
            try:
                error = error_of(read_failure(status, response.reason_phrase, body, self._address))
            except UnreachableError as unlike:
                error = unlike
        return _refusal(frame, error, status)

    def _unlike(self, what: str) -> UnreachableError:
        return UnreachableError(f"{self.name} {what}, unlike a Trails server; check the address")

    async def _end_session(self, session: str) -> None:
        with suppress(httpx2.HTTPError):
            await self._client.delete(await self._find(), headers={_SESSION: session})


class _Answer(msgspec.Struct, frozen=True):
    jsonrpc: str
    id: int | str | None = None
    method: str | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


def _answer(body: bytes) -> _Answer | None:
    """Decode a message; None if it isn't one."""
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _path(graph: str) -> str:
    return f"/graphs/{quote(graph, safe='')}/mcp"


def _spell(value: str) -> str:
    """Spell the value of a header as the protocol defines it, whatever its characters."""
    if _PLAIN.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def _line(message: bytes) -> bytes:
    """Put a message on one line; strings contain no line ends in JSON."""
    return message.replace(b"\r", b" ").replace(b"\n", b" ").strip()


def _refusal(frame: Frame, error: TrailsError, status: int = 0) -> bytes:
    code = _CODES.get(status, SERVER_ERROR)
    return error_answer(frame.id, code, error.message, {**error.data, "code": error.code})
