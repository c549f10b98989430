"""Fetching a key set: one GET over verified TLS, bounded in size and time, never redirected."""

from __future__ import annotations

import re
import ssl
from http.client import HTTPException
from time import monotonic
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

import msgspec

from trails.identity.oauth.keys import LARGEST

_BLOCK: Final = 1 << 16
_MAX_AGE: Final = re.compile(r"(?:^|[,\s])max-age=([0-9]{1,9})(?:$|[,\s])", re.IGNORECASE)


class FetchError(Exception):
    """No key set; says why."""


class Fetched(msgspec.Struct, frozen=True):
    """What came."""

    body: bytes
    max_age: int | None
    """Seconds that its sender calls it fresh."""


def fetch(url: str, patience: float) -> Fetched:
    """Get a URL, in about ``patience`` seconds at most; blocks."""
    ends = monotonic() + patience
    opener = build_opener(_way_to(url), _NoRedirect())
    request = Request(url, headers={"Accept": "application/json", "Accept-Encoding": "identity"})  # noqa: S310 - the settings allow https, and http on this machine
    try:
        with opener.open(request, timeout=patience) as answer:
            if answer.status != 200:
                raise FetchError(f"the answer is {answer.status}")
            found = _MAX_AGE.search(answer.headers.get("Cache-Control", ""))
            body = bytearray()
            while block := answer.read1(_BLOCK):
                body += block
                if len(body) > LARGEST:
                    raise FetchError(f"the answer has more than {LARGEST:,} bytes")
                if monotonic() > ends:
                    raise FetchError("the answer takes too long")
    except HTTPError as error:
        error.close()
        told = ", a redirect, which is not followed" if 300 <= error.code < 400 else ""
        raise FetchError(f"the answer is {error.code}{told}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise FetchError(f"{type(error).__name__}: {str(reason)[:200]}") from None
    return Fetched(bytes(body), int(found[1]) if found else None)


def _way_to(url: str) -> BaseHandler:
    """TLS that is verified; what is not encrypted does not leave this machine for a proxy."""
    if url.startswith("http:"):
        return ProxyHandler({})
    return HTTPSHandler(context=ssl.create_default_context())


class _NoRedirect(HTTPRedirectHandler):
    """Keys come from where the settings say."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Refuse."""
