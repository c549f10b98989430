"""Who sits at the other end of a session of lines, request by request.

A front says what its process was started with: scopes, a token that it presents for its
client (``TRAILS_TOKEN``), and the hash of one that it wants from it (``TRAILS_MCP_TOKEN``).
Any process of the same user can connect and say anything. So what it says can only narrow
what its session may do, but for one case: where this project asks nobody for a credential,
the token that the front wants is one, as it would be if that process had the folder to itself.
"""

from __future__ import annotations

from hmac import compare_digest

import msgspec

from trails.app.serving.greetings import Hello
from trails.model.actors import LOCAL, Actor
from trails.model.outcomes import Failure
from trails.model.secrets import Secret
from trails.request.authenticate import WANTED, Authenticator, hash_of, refuse_token


class SessionCallers:
    """The sender of each message of one session."""

    def __init__(self, authenticator: Authenticator, hello: Hello) -> None:
        self._authenticator = authenticator
        self._scopes = frozenset(hello.scopes)
        self._wanted = bytes.fromhex(hello.wanted) if hello.wanted else None
        self.standing = hello.token
        """What counts as presented where a message carries no token."""

    async def resolve(self, token: Secret | None, *, begins: bool) -> Actor | Failure:
        """Who sends a message; the token that begins a session stands for what follows."""
        actor = await self._judge(self.standing if token is None else token)
        if begins and token is not None and not isinstance(actor, Failure):
            self.standing = token
        return actor

    async def _judge(self, token: Secret | None) -> Actor | Failure:
        if self._wanted is None or self._authenticator.required:
            return await self._authenticator.presented(token, self._scopes)
        if token is None or not compare_digest(hash_of(token), self._wanted):
            return refuse_token(token)
        return msgspec.structs.replace(LOCAL, scopes=self._scopes, credential=WANTED)

    def is_current(self, actor: Actor) -> bool:
        """Whether an actor would be resolved again."""
        return self._authenticator.is_current(actor)
