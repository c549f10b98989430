"""Who makes a request over HTTP, and in which era of the protocol."""

from __future__ import annotations

from typing import Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.types import Scope

from trails.model.actors import LOCAL, Actor
from trails.surfaces.mcp.server import Context
from trails.surfaces.mcp.wire import LEGACY

ACTOR: Final = "trails.actor"
"""Where the scope of a request carries its caller; it was resolved in front."""
_VERSION: Final = b"mcp-protocol-version"
_REVISIONS: Final = frozenset({None, *(revision.encode() for revision in LEGACY)})


def caller_of(scope: Scope) -> Actor:
    """The caller of an HTTP request."""
    actor: Actor = scope.get(ACTOR, LOCAL)
    return actor


def actor_of(context: Context) -> Actor:
    """The caller of a request: resolved anew each time, also within a session."""
    return LOCAL if context.request is None else caller_of(context.request.scope)


def is_legacy(scope: Scope) -> bool:
    """Whether a request is of a revision that begins with ``initialize``."""
    return next((value for name, value in scope["headers"] if name == _VERSION), None) in _REVISIONS


def name_caller(scope: Scope) -> Scope:
    """Tell the SDK who calls, in its own words: it keeps a session to whoever began it."""
    token = AccessToken(token="", client_id=caller_of(scope).name, scopes=[])
    return {**scope, "user": AuthenticatedUser(token)}
