"""Ways into an owner: what is asked of whoever comes in by each.

An owner's ports are such ways. Its ``http`` socket has as many as there are programs behind
it: a connection there begins with one line, an Arrival, in which a front says what *it* was
told to ask of its clients, or the command line that it acts for whoever owns the files.
Everything after that line is HTTP, so nothing that a client sends can be taken for it.
"""

from __future__ import annotations

from functools import lru_cache
from hmac import compare_digest

import msgspec

from trails.app.serving.hosts import Bind, HostPolicy
from trails.errors import SettingsError
from trails.model.actors import LOCAL, OPERATOR, Actor
from trails.model.capabilities import Scope
from trails.model.outcomes import Failure
from trails.model.secrets import Secret
from trails.request.authenticate import Authenticator


class Arrival(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a connection to the ``http`` socket: on whose behalf it comes."""

    bind: Bind = Bind()
    scopes: frozenset[Scope] = LOCAL.scopes
    """All that anybody gets there."""
    token: str = ""
    """What may be kept of the token that the front was started with, in hexadecimal."""
    operator: str = ""
    """The owner's key, from whoever may read its file."""

    def line(self) -> bytes:
        """As it is sent."""
        return msgspec.json.encode(self) + b"\n"


class Entrance:
    """One way in."""

    def __init__(
        self, policy: HostPolicy, authenticator: Authenticator, *, operator: bool = False
    ) -> None:
        self.policy = policy
        self.authenticator = authenticator
        self.operator = operator

    def recognise(self, authorization: bytes | None) -> Actor | None:
        """Who asks, where that is known at once; None where it has to be found out."""
        if self.operator and authorization is None:
            return OPERATOR
        actor = self.authenticator.recognise(authorization)
        if actor is None or actor.credential or not self.policy.bind.credentials:
            return actor
        return None

    async def identify(self, authorization: bytes | None) -> Actor | Failure:
        """Who asks; where credentials were promised to be asked for, nobody without one."""
        if self.operator and authorization is None:
            return OPERATOR
        actor = await self.authenticator.bearer(authorization)
        if isinstance(actor, Failure) or actor.credential or not self.policy.bind.credentials:
            return actor
        return Failure(
            "unauthenticated",
            "unauthenticated",
            "this address asks for credentials, and the process that serves the project knows of "
            "none: it was started before they were configured. Restart it",
        )


class Entrances:
    """All ways into one owner; ``main`` is what its own ports have."""

    def __init__(self, main: Entrance, key: Secret) -> None:
        self.main = main
        self._key = key.reveal().encode()
        self._known = lru_cache(64)(self._open)

    def admit(self, line: bytes) -> Entrance | None:
        """The way in that an Arrival asks for; None where it is none."""
        return self._known(line)

    def _open(self, line: bytes) -> Entrance | None:
        try:
            arrival = msgspec.json.decode(line, type=Arrival)
            policy = HostPolicy(arrival.bind)
            digest = bytes.fromhex(arrival.token)
        except (msgspec.MsgspecError, SettingsError, ValueError):
            return None
        if arrival.operator and not compare_digest(arrival.operator.encode(), self._key):
            return None
        process = msgspec.structs.replace(LOCAL, scopes=arrival.scopes)
        behind = self.main.authenticator.through(process, digest or None)
        return Entrance(policy, behind, operator=bool(arrival.operator))
