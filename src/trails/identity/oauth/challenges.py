"""What a caller is told who needs a token, another one, or one with more scopes.

The values of ``WWW-Authenticate`` (RFC 6750), and where it is to be advertised the metadata
that they point to (RFC 9728). Where no issuer is configured, a caller learns that a bearer
token is needed and nothing else.

What an actor keeps of its access token: when it ends, which key signed it, and no part of it.

It says all that is needed to ask later whether the token is still good, in any process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import msgspec

from trails.identity.oauth.settings import OAuth
from trails.model.actors import Actor
from trails.model.capabilities import SCOPES, Scope

_PREFIX: Final = "oauth"


class Credential(msgspec.Struct, frozen=True):
    """A token that was taken."""

    expires: int
    """The last second of the token, without any leeway."""
    key: str
    """The thumbprint of the key that signed it."""
    mark: str
    """Tells tokens apart in one process; made from its hash and a secret of the process."""

    def __str__(self) -> str:
        """As an actor carries it."""
        return f"{_PREFIX}:{self.expires}:{self.key}:{self.mark}"


def is_vouched_for(actor: Actor) -> bool:
    """Whether an actor came with an access token of another issuer."""
    return actor.credential.startswith(f"{_PREFIX}:")


def credential_of(actor: Actor) -> Credential | None:
    """What an actor carries; None for one that came otherwise."""
    prefix, *parts = actor.credential.split(":")
    if prefix != _PREFIX or len(parts) != 3 or not parts[0].isdecimal():
        return None
    return Credential(int(parts[0]), parts[1], parts[2])


StepUp = Callable[[str], bytes | None]
"""The challenge for the scope that a call needs; None where no other token would help."""
_WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_ENDPOINT: Final = re.compile(r"/graphs/[^/]+/(mcp|sse)")
_REQUESTABLE: Final = re.compile(r"[!#-\[\]-~]+", re.ASCII)


class Challenges:
    """The challenges of one server, which gives nobody more than ``grantable``."""

    def __init__(
        self, oauth: OAuth | None = None, grantable: Collection[Scope] = frozenset(SCOPES)
    ) -> None:
        self._oauth = oauth
        self._metadata = b""
        self._base = ""
        self._url = ""
        if oauth is not None and oauth.advertise:
            resource = oauth.resource or oauth.audience
            parts = urlsplit(resource)
            self._base = parts.path.rstrip("/")
            self._url = f"{parts.scheme}://{parts.netloc}{_WELL_KNOWN}{self._base}"
            self._metadata = msgspec.json.encode(
                {
                    "resource": resource,
                    "authorization_servers": [oauth.issuer],
                    "scopes_supported": self._names(grantable),
                    "bearer_methods_supported": ["header"],
                }
            )

    def metadata(self, path: str) -> bytes | None:
        """The document at a path, or None: for the server, and for each endpoint on it.

        It is the same for endpoints that do not exist, so that nobody learns which do.
        """
        if not self._metadata or not path.startswith(_WELL_KNOWN):
            return None
        of = path.removeprefix(_WELL_KNOWN).removesuffix("/").removeprefix(self._base)
        return self._metadata if not of or _ENDPOINT.fullmatch(of) else None

    def ask(self, *, presented: bool) -> bytes:
        """For a request without a token, or with one that is not good."""
        if self._oauth is None:
            return b"Bearer"
        told = {"error": "invalid_token"} if presented else {}
        if self._url:
            told |= self._scope_of({"runtime"}) | {"resource_metadata": self._url}
        return _challenge(told)

    def step_up(self, actor: Actor, grantable: Collection[Scope]) -> StepUp | None:
        """How an actor is told that it lacks a scope; None for one that no issuer vouches for."""
        if self._oauth is None or not is_vouched_for(actor):
            return None
        return partial(self._ask_more, actor.scopes, grantable)

    def _ask_more(
        self, held: Collection[Scope], grantable: Collection[Scope], scope: str
    ) -> bytes | None:
        if scope not in grantable:
            return None
        told = {"error": "insufficient_scope", **self._scope_of({*held, scope})}
        if self._url:
            told["resource_metadata"] = self._url
        return _challenge(told)

    def _scope_of(self, wanted: Collection[str]) -> dict[str, str]:
        """What to ask the issuer for."""
        names = self._names(wanted)
        return {"scope": " ".join(names)} if names else {}

    def _names(self, wanted: Collection[str]) -> list[str]:
        """What the issuer calls some scopes; what is no scope of OAuth can't be asked for."""
        assert self._oauth is not None  # noqa: S101 - nobody is told of scopes without an issuer
        named = [self._oauth.name_of(scope) for scope in SCOPES if scope in wanted]
        return [name for name in named if _REQUESTABLE.fullmatch(name)]


PLAIN: Final = Challenges()
"""Of a server that knows no issuer."""


def _challenge(told: dict[str, str]) -> bytes:
    """One challenge of the Bearer scheme."""
    parameters = ", ".join(f'{name}="{value}"' for name, value in told.items())
    return f"Bearer {parameters}".strip().encode()
