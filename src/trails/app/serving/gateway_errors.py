"""What a front answers over HTTP when there is no owner that could."""

from __future__ import annotations

from trails.app.serving.responses import rpc_error_body, write_refusal, write_response


def interrupted(request: bytes) -> bytes:
    """The answer to a request whose owner ended: nobody knows what came of it.

    What only reads can be sent again.
    """
    if request.startswith((b"GET ", b"HEAD ")):
        message = (
            "the process that served this project ended during this request, which changes "
            "nothing; send it again"
        )
        return _answer(503, request, "interrupted", message)
    message = (
        "the process that served this project ended during this request, so its outcome is "
        "unknown: it may or may not have taken effect. Find out before you send it again: the "
        "newest commits tell"
    )
    return _answer(502, request, "interrupted", message)


def unavailable(request: bytes) -> bytes:
    """The answer to a request that no owner was found for; nothing was done."""
    message = "no process serves this project at the moment; try again in a while"
    return _answer(503, request, "locked", message)


def crowded() -> bytes:
    """The answer to a connection too many."""
    return write_refusal(503, "busy", "too many clients are connected; try again in a while")


def _answer(status: int, request: bytes, code: str, message: str) -> bytes:
    """An HTTP response, in the form of the surface that the request is for."""
    target = request.partition(b"\r\n")[0].partition(b"?")[0].split(b" ")
    if len(target) > 1 and target[1].endswith(b"/mcp"):
        return write_response(status, rpc_error_body(code, message))
    return write_refusal(status, code, message)
