"""A caller that lacks a scope and could get it: asked in HTTP, where clients look for that.

The JSON-RPC error stays as it is; its response gets a status and a header. Who can get more
scopes, and how, is known in front.
"""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from trails.surfaces.mcp.failures import SCOPE

CHALLENGE: Final = "trails.challenge"
"""Where the scope of a request carries what its caller is asked for when it lacks a scope."""
STEP_UP: Final = 403


def lacking_scope(message: object) -> str:
    """The scope for want of which a message is an error; empty for any other message."""
    error = message.get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict) or error.get("code") != SCOPE:
        return ""
    data = error.get("data")
    return str(data.get("required_scope", "")) if isinstance(data, dict) else ""


def challenge(scope: Scope, lacking: str) -> list[tuple[bytes, bytes]]:
    """The header that asks for a scope; none where it would not help."""
    ask = scope.get(CHALLENGE) if lacking else None
    told = ask(lacking) if ask is not None else None
    return [(b"www-authenticate", told)] if told else []
