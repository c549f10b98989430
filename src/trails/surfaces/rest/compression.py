"""Compress responses for clients that accept gzip.

Only whole bodies of texts above a size: streams, files and blobs are sent as they are, because many
are compressed already, and ranges count bytes. Bodies that take long are compressed in threads, a
few at a time; meanwhile others are sent as they are, so that compression never delays anything.

Compression over TLS can reveal a secret to those who see the length of responses and can make the
victim repeat requests with a text of theirs beside the secret (BREACH). Here they can't: requests
are authenticated by a header, which other sites can't make a browser send, and no response
contains a credential. Errors, which quote what was sent, are not compressed.
"""

from __future__ import annotations

import asyncio
import gzip
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from trails.surfaces.rest.negotiation import parse_weights

GZIPPED: Final = ".gzip"
"""The end of the tag of a compressed body, which is another representation."""
LEAST: Final = 1 << 10
"""Smaller bodies fit into a packet or two anyway."""
_LARGE: Final = 32 << 10
"""Bytes above which a body takes more than a millisecond."""
_AT_ONCE: Final = 2
"""Bodies that are compressed in threads at the same time."""
_LEVEL: Final = 5
_TEXTS: Final = ("json", "xml", "turtle", "n-triples")


class Compressor:
    """Compresses the responses of one server."""

    def __init__(self) -> None:
        self._running = 0

    async def apply(self, request: Request, response: Response) -> Response:
        """The same response, compressed if that is possible and worth it."""
        body = getattr(response, "body", b"")  # a stream has none
        if response.status_code != 200 or len(body) < LEAST or not _is_text(response):
            return response
        vary = response.headers.get("vary")
        response.headers["vary"] = "Accept-Encoding" if vary is None else f"{vary}, Accept-Encoding"
        if not accepts_gzip(request):
            return response
        if len(body) < _LARGE:
            compressed = _compress(body)
        elif self._running < _AT_ONCE:
            self._running += 1
            try:
                compressed = await asyncio.to_thread(_compress, body)
            finally:
                self._running -= 1
        else:
            return response
        return _replaced(response, compressed)


def accepts_gzip(request: Request) -> bool:
    """Whether a client accepts gzip (RFC 9110, section 12.5.3)."""
    if "accept-encoding" not in request.headers:
        return False
    weights = parse_weights(", ".join(request.headers.getlist("accept-encoding")))
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def _is_text(response: Response) -> bool:
    media = response.headers.get("content-type", "").partition(";")[0]
    named = media.startswith("text/") or any(each in media for each in _TEXTS)
    return named and "content-encoding" not in response.headers


def _compress(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)


def _replaced(response: Response, body: bytes) -> Response:
    response.body = body
    response.headers["content-encoding"] = "gzip"
    response.headers["content-length"] = str(len(body))
    tag = response.headers.get("etag", "")
    if tag.endswith('"'):
        response.headers["etag"] = f'{tag[:-1]}{GZIPPED}"'
    return response
