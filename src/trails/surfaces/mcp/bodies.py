"""Bodies of requests: bounded in size, time and depth before anybody reads them.

Both doors see the same JSON: what msgspec does not accept (bytes that are not UTF-8, lone
surrogates, numbers that no double holds, NaN) is refused here, because the SDK's parsers
disagree about it from one revision to the next.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from starlette.types import Receive

BODY_SECONDS: Final = 30.0
"""How long a body may take to arrive."""

MAX_DEPTH: Final = 100
"""How deep arrays and objects may nest; the SDK's parsers give up between 200 and 255."""

_CONTAINERS: Final = (b"[", b"{")


class BodyError(Exception):
    """A body that is not taken, with the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Gone(Exception):  # noqa: N818 -- not an error: nobody is left to tell
    """The client left before its body was complete."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """Read a body whole."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read(receive, limit)
    except TimeoutError:
        raise BodyError(
            408, f"the body did not arrive within {BODY_SECONDS:g} s; send it again"
        ) from None


async def _read(receive: Receive, limit: int) -> bytes:
    body = b""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        body = message.get("body", b"")
        size += len(body)
        if size > limit:
            raise BodyError(413, f"the body has more than {limit} bytes, the most that is taken")
        if not message.get("more_body", False):
            return b"".join([*parts, body]) if parts else body
        parts.append(body)


def parse(body: bytes) -> object:
    """The JSON value of a body; ``ValueError`` says what is wrong with it."""
    try:
        value: object = msgspec.json.decode(body)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start} of a text") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    if sum(map(body.count, _CONTAINERS)) > MAX_DEPTH and is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


_TOO_DEEP: Final = f"arrays and objects nest deeper than {MAX_DEPTH} levels"


def is_deep(value: object) -> bool:
    """Whether a value nests deeper than is taken."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
        if not below:
            return False
        level = below
    return True
