"""The caller of a request, and tokens inside messages.

Over HTTP the front has authenticated the caller; over a stream each message is authenticated
(``Callers``, implemented by ``request.authenticate``). A stream has no headers, so a client sends
its token in its client info. The token is removed before
other code sees the message, also on HTTP, where it is ignored.
"""

from __future__ import annotations

from typing import Final, Protocol

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types import CLIENT_INFO_META_KEY
from starlette.types import Scope

from trails.model.actors import ACTOR_KEY, LOCAL, MISPLACED, Actor, Secret, holds_token, may_hide
from trails.model.results import Failure
from trails.model.texts import Body
from trails.surfaces.mcp.bodies import BodyError, parse
from trails.surfaces.mcp.server import Context
from trails.surfaces.mcp.wire import LEGACY, encode

_VERSION: Final = b"mcp-protocol-version"
_REVISIONS: Final = frozenset({None, *(revision.encode() for revision in LEGACY)})


class Callers(Protocol):
    """Authenticates each message of one stream."""

    @property
    def default_token(self) -> Secret | None:
        """The token of messages without one."""

    async def resolve(self, token: Secret | None, *, begins: bool) -> Actor | Failure:
        """The sender of a message with this token; ``begins``: the message starts a session."""

    def is_current(self, actor: Actor) -> bool:
        """Whether the credential of an actor is still valid."""


def caller_of(scope: Scope) -> Actor:
    """The caller of an HTTP request."""
    actor: Actor = scope.get(ACTOR_KEY, LOCAL)
    return actor


def actor_of(context: Context) -> Actor:
    """The caller of a request; within a session, each request has its own."""
    return LOCAL if context.request is None else caller_of(context.request.scope)


def is_legacy(scope: Scope) -> bool:
    """Whether a request is of a revision that begins with ``initialize``."""
    return next((value for name, value in scope["headers"] if name == _VERSION), None) in _REVISIONS


def name_caller(scope: Scope) -> Scope:
    """Pass the caller to the SDK, which binds a session to the user that started it.

    The user is the credential, not the actor: another credential may permit less.
    """
    actor = caller_of(scope)
    token = AccessToken(token="", client_id=actor.name, subject=actor.credential, scopes=[])
    return {**scope, "user": AuthenticatedUser(token)}


_MEMBER: Final = "authorization"
_SAID: Final = _MEMBER.encode()


def take_bearer(message: object) -> Secret | None:
    """Remove the token from a message, and return it.

    A token that is not a text, or differs between places, becomes an empty one, which is
    invalid.
    """
    begins = isinstance(message, dict) and message.get("method") == "initialize"
    said = [_bearer(given) for given, counts in _take(message) if counts or begins]
    found = [each for each in said if each is not None]
    if not found:
        return None
    same = all(isinstance(each, str) and each == found[0] for each in found)
    return Secret(str(found[0]) if same else "")


def may_hold_token(body: Body, presented: Secret | None) -> bool:
    """Whether ``without_bearer`` would look into a body."""
    return _SAID in body or may_hide(body, presented) or holds_token(body, presented)


def without_bearer(body: Body, presented: Secret | None = None) -> Body:
    """Remove the token from the client info of a body; refuse one elsewhere.

    ``presented`` is the token of the request; it is found by its text.
    """
    suspect = _SAID in body or holds_token(body, presented)
    if not suspect and not may_hide(body, presented):  # also the member's name could be hidden
        return body
    try:
        message = parse(body)
    except ValueError:
        return body  # the parser reports the fault
    taken = _take(message)
    if has_token(message, body, presented):
        raise BodyError(400, MISPLACED)
    # The text of a suspect body may still have a token in a member that was repeated.
    return encode(message) if taken or suspect else body


def has_token(message: object, line: Body, presented: Secret | None) -> bool:
    """Whether a message contains a token outside its client info."""
    doubtful = may_hide(line, presented) or holds_token(line, presented)
    return doubtful and holds_token(encode(message), presented)


def _take(message: object) -> list[tuple[object, bool]]:
    """Remove the authorization of client infos; return each, with whether it always counts."""
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict):
        return []
    meta = params.get("_meta")
    infos = [
        (params.get("clientInfo"), False),
        (meta.get(CLIENT_INFO_META_KEY) if isinstance(meta, dict) else None, True),
    ]
    return [
        (info.pop(_MEMBER), counts)
        for info, counts in infos
        if isinstance(info, dict) and _MEMBER in info
    ]


def _bearer(given: object) -> object:
    return given.get("bearer") if isinstance(given, dict) else given
