"""Who makes a request: over HTTP it was resolved in front, over a stream it is asked here."""

from __future__ import annotations

from typing import Final, Protocol

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.types import Scope

from trails.model.actors import LOCAL, Actor
from trails.model.outcomes import Failure
from trails.model.secrets import Secret
from trails.surfaces.mcp.server import Context
from trails.surfaces.mcp.wire import LEGACY

ACTOR: Final = "trails.actor"
"""Where the scope of a request carries its caller; it was resolved in front."""
_VERSION: Final = b"mcp-protocol-version"
_REVISIONS: Final = frozenset({None, *(revision.encode() for revision in LEGACY)})


class Callers(Protocol):
    """Says on whose behalf the messages of one stream are, each of them anew."""

    @property
    def standing(self) -> Secret | None:
        """What counts as presented where a message carries no token."""

    async def resolve(self, token: Secret | None, *, begins: bool) -> Actor | Failure:
        """Who sends a message; ``token`` is what it carries, ``begins`` that a session begins."""

    def is_current(self, actor: Actor) -> bool:
        """Whether an actor that was resolved before would be resolved again."""


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
    """Tell the SDK who calls, in its own words: it keeps a session to whoever began it.

    That is the credential and not the actor: another one may permit less.
    """
    actor = caller_of(scope)
    token = AccessToken(token="", client_id=actor.name, subject=actor.credential, scopes=[])
    return {**scope, "user": AuthenticatedUser(token)}
