"""Responses of the front itself, and what it reads from the headers of a request.

Every response has the ``SECURITY`` headers. ``AccessHeaders`` reads a request's headers in one pass
and takes the credential out. Tokens in the address or in other headers are refused, because
others may keep those: a project's token is recognised by its form, the presented one by its text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import Scope

from trails.model.actors import BEGINNING, PRESENTED_KEY, Actor, Secret, holds_token
from trails.model.replies import Take, write_lines
from trails.projections.problems import PROBLEM, project_problem

if TYPE_CHECKING:
    from starlette.types import Message, Send

Headers = Sequence[tuple[bytes, bytes]]

_POLICY: Final = b"content-security-policy"
"""A page for people has its own, which allows its style."""
SECURITY: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (_POLICY, b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Answers are data for programs: browsers must not run, frame, embed or sniff them."""
_PRIVATE: Final = (b"cache-control", b"no-store")
"""Answers depend on the caller; a handler may set another value."""
HSTS: Final = (b"strict-transport-security", b"max-age=31536000")
_SERVER_ERROR: Final = -32000
JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final = (b"content-type", PROBLEM.encode())


class HeaderSender:
    """A ``send`` that adds headers to a response."""

    __slots__ = ("_more", "_send")

    def __init__(self, send: Send, more: Headers) -> None:
        self._send = send
        self._more = more

    def __call__(self, message: Message) -> Awaitable[None]:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ())]
            given = dict(headers)
            more = self._more
            if _POLICY in given:
                more = [each for each in more if each[0] != _POLICY]
            headers += more
            if _PRIVATE[0] not in given:
                headers.append(_PRIVATE)
            message = {**message, "headers": headers}
        return self._send(message)


def common_lines(more: Headers) -> bytes:
    """The headers that ``HeaderSender`` adds to a response that has none of them, as lines."""
    return write_lines((*more, _PRIVATE))


def rpc_error_body(code: str, message: str, data: Mapping[str, object] | None = None) -> bytes:
    """An error in the form of MCP, for a request whose id was not read."""
    error = {"code": _SERVER_ERROR, "message": message, "data": {**(data or {}), "code": code}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})


class JsonReply(msgspec.Struct, frozen=True):
    """A complete response with a JSON body, or without a body."""

    status: int
    body: bytes
    more: Headers = ()
    media: tuple[bytes, bytes] = JSON

    async def send(self, send: Send) -> None:
        headers = list(self.more)
        if self.status != HTTPStatus.NO_CONTENT:
            headers = [self.media, (b"content-length", str(len(self.body)).encode()), *headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def problem_reply(
    status: int,
    code: str,
    message: str,
    data: Mapping[str, object] | None = None,
    more: Headers = (),
) -> JsonReply:
    """An error as a complete response."""
    return JsonReply(status, project_problem(status, code, message, data), more, _PROBLEM)


def write_refusal(status: int, code: str, message: str, more: Headers = ()) -> bytes:
    """The bytes of a complete error response, the last on its connection."""
    return _write_response(status, _PROBLEM, project_problem(status, code, message), more)


def _write_response(
    status: int, media: tuple[bytes, bytes], body: bytes, more: Headers = ()
) -> bytes:
    again = [(b"retry-after", b"5")] if status == HTTPStatus.SERVICE_UNAVAILABLE else []
    headers = (
        media,
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *SECURITY,
        _PRIVATE,
        *again,
        *more,
    )
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    return b"".join((first, write_lines(headers), b"\r\n", body))


def interrupted(request: bytes) -> bytes:
    """The answer to a request whose owner ended: its outcome is unknown.

    A request that only reads can be sent again.
    """
    if request.startswith((b"GET ", b"HEAD ")):
        message = (
            "the process that served this project ended during this request, which changes "
            "nothing; send it again"
        )
        return _answer(503, request, "interrupted", message)
    message = (
        "the process that served this project ended during this request, so its outcome is "
        "unknown: it may or may not have taken effect. Check the newest commits before you "
        "repeat it"
    )
    return _answer(502, request, "interrupted", message)


def unavailable(request: bytes) -> bytes:
    """The answer to a request for which no owner was found; nothing was done."""
    message = "no process serves this project at the moment; try again in a while"
    return _answer(503, request, "locked", message)


def crowded() -> bytes:
    """The answer if there are too many connections."""
    return write_refusal(503, "busy", "too many clients are connected; try again in a while")


def _answer(status: int, request: bytes, code: str, message: str) -> bytes:
    """The bytes of an error response, in the form of the surface that was requested."""
    target = request.partition(b"\r\n")[0].partition(b"?")[0].split(b" ")
    if len(target) > 1 and target[1].endswith(b"/mcp"):
        return _write_response(status, JSON, rpc_error_body(code, message))
    return write_refusal(status, code, message)


AUTHORIZATION: Final = b"authorization"
_HOST: Final = b"host"
_ORIGIN: Final = b"origin"
_LENGTH: Final = b"content-length"
_CODING: Final = b"transfer-encoding"


def _refuse_nobody(actor: Actor) -> None:
    del actor


class Passage(NamedTuple):
    """What the front has decided about a head, for the requests to one listener."""

    listener: object
    take: Take | None = None
    """Answers its requests without ASGI; None if all of them come through ASGI."""
    authorization: bytes | None = None
    refuse_overload: Callable[[Actor], object | None] = _refuse_nobody
    """The refusal while the graph is overloaded."""
    lines: bytes = b""
    """The headers of every response, as lines."""


HEAD_KEY: Final = "trails.head"
"""The key of a scope for the head as the parser gave it, which is the same for the same bytes."""


class ParsedHead(Protocol):
    """A head that keeps what was found in it."""

    access: AccessHeaders | None


class AccessHeaders:
    """The headers that the front checks."""

    __slots__ = (
        "authorization",
        "doubtful",
        "headers",
        "hosts",
        "is_chunked",
        "is_misplaced",
        "length",
        "origins",
    )

    def __init__(self, scope: Scope) -> None:
        headers = scope["headers"]
        found = dict(headers)
        once = len(found) == len(headers)
        self.hosts = _values(_HOST, found, headers, once=once)
        self.origins = _values(_ORIGIN, found, headers, once=once)
        given = _values(AUTHORIZATION, found, headers, once=once)
        self.authorization = None if not given else given[0] if len(given) == 1 else b""
        """The credential; empty if there are several, because none can be trusted."""
        if given:
            del found[AUTHORIZATION]
            headers = [each for each in headers if each[0] != AUTHORIZATION]
        self.headers = headers
        """All of them but the credential."""
        length = found.get(_LENGTH, b"")
        self.length = int(length) if length.isdigit() else 0
        """The declared length of the body, or 0."""
        self.is_chunked = _CODING in found
        target = raw_path(scope) + scope["query_string"]
        said = b"\n".join(found.values() if once else [value for _, value in headers])
        self.doubtful = BEGINNING in target or b"%" in target or BEGINNING in said
        """Whether there may be a token outside the Authorization header."""
        self.is_misplaced: bool | None = None
        """Whether there is one; None as long as that is not known."""


def access_headers(scope: Scope) -> AccessHeaders:
    """Read them; the credential is taken out of the scope, so no one else sees it."""
    head: ParsedHead | None = scope.pop(HEAD_KEY, None)
    access = None if head is None else head.access
    if access is None:
        access = AccessHeaders(scope)
        if head is not None:
            head.access = access
    scope["headers"] = [*access.headers]
    return access


def _values(
    name: bytes, found: Mapping[bytes, bytes], headers: Headers, *, once: bool
) -> Sequence[bytes]:
    """All values of a header; ``once``: no header is repeated."""
    if name not in found:
        return ()
    return (found[name],) if once else [value for each, value in headers if each == name]


def raw_path(scope: Scope) -> bytes:
    """The path as it was sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw


@lru_cache(256)
def presented_in(authorization: bytes) -> Secret:
    """The token of an ``Authorization`` header."""
    return Secret(authorization.strip().partition(b" ")[2].strip().decode(errors="surrogateescape"))


def has_misplaced_token(scope: Scope, access: AccessHeaders) -> bool:
    """Whether there is a token in the head outside the Authorization header."""
    if access.is_misplaced is None:
        access.is_misplaced = _find_token(scope)
    return access.is_misplaced


def _find_token(scope: Scope) -> bool:
    query: bytes = scope["query_string"]
    given = [value for _, value in scope["headers"]]
    if b"%" in query:
        given.append(unquote_to_bytes(query))
    path = scope["path"].encode(errors="replace")
    return holds_token(b"\n".join((path, query, *given)), scope.get(PRESENTED_KEY))
