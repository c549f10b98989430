"""Web pages that may read answers: those whose origins the settings name, and no others.

No cookies and no wildcards: a page sends its token itself. A preflight is answered before
anybody is asked for credentials, because a browser sends none with it.
"""

from __future__ import annotations

import re
from typing import Final

from trails.app.serving.hosts import HostPolicy
from trails.app.serving.responses import Headers

_METHODS: Final = b"GET, HEAD, POST, DELETE, OPTIONS"
_ALLOWED: Final = frozenset(
    {
        *("accept", "authorization", "content-type", "content-encoding", "last-event-id"),
        *("mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"),
    }
)
_MIRRORED: Final = re.compile(r"mcp-param-[a-z0-9-]{1,100}", re.ASCII)
"""Arguments that a client repeats in headers; which ones there are, tools say."""
_MANY: Final = 64
_EXPOSED: Final = b"mcp-session-id, mcp-protocol-version, www-authenticate, retry-after, allow"
_SECONDS: Final = b"600"
_VARY: Final = (b"vary", b"Origin")
_ORIGIN: Final = b"origin"


def shared_headers(policy: HostPolicy, headers: Headers) -> Headers:
    """What tells a browser whether a page may read the answer."""
    if not policy.shares:
        return ()
    origin = _find(headers, _ORIGIN)
    if origin is None or not policy.shares_with(origin):
        return (_VARY,)
    return (
        _VARY,
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
    )


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks what a page may do."""
    return (
        method == "OPTIONS"
        and _find(headers, _ORIGIN) is not None
        and _find(headers, b"access-control-request-method") is not None
    )


def preflight_headers(policy: HostPolicy, headers: Headers) -> Headers:
    """What a page may do; nothing is said to one that may do nothing."""
    origin = _find(headers, _ORIGIN)
    if origin is None or not policy.shares_with(origin):
        return ()
    asked = (_find(headers, b"access-control-request-headers") or b"").decode("latin-1")
    named = {each.strip().lower() for each in asked.split(",")[:_MANY]}
    allowed = ", ".join(sorted(_ALLOWED.union(filter(_MIRRORED.fullmatch, named))))
    return (
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", allowed.encode("ascii")),
        (b"access-control-max-age", _SECONDS),
    )


def _find(headers: Headers, wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)
