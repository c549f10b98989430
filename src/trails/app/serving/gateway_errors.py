"""What a front answers over HTTP when there is no owner that could."""

from __future__ import annotations

from typing import Final

import msgspec

_SERVER_ERROR: Final = -32000


def interrupted(request: bytes) -> bytes:
    """The answer to a request whose owner ended: nobody knows what came of it."""
    message = (
        "the process that served this project ended during this request, so its outcome is "
        "unknown: it may or may not have taken effect. Find out before you send it again: the "
        "newest commits tell"
    )
    return _answer("502 Bad Gateway", request, "interrupted", message)


def unavailable(request: bytes) -> bytes:
    """The answer to a request that no owner was found for; nothing was done."""
    message = "no process serves this project at the moment; try again in a while"
    return _answer("503 Service Unavailable", request, "locked", message, "retry-after: 5\r\n")


def _answer(status: str, request: bytes, code: str, message: str, more: str = "") -> bytes:
    """An HTTP response, in the form of the surface that the request is for."""
    target = request.partition(b"\r\n")[0].partition(b"?")[0].split(b" ")
    body: dict[str, object] = {"error": {"code": code, "message": message}}
    if len(target) > 1 and target[1].endswith(b"/mcp"):
        error = {"code": _SERVER_ERROR, "message": message, "data": {"code": code}}
        body = {"jsonrpc": "2.0", "id": None, "error": error}
    text = msgspec.json.encode(body)
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{more}"
        f"connection: close\r\ncontent-length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text
