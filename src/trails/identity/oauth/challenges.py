"""Challenges for callers that need a token, another token, or more scopes.

``WWW-Authenticate`` values (RFC 6750) and, if advertised, the metadata that they point to
(RFC 9728). Without a configured issuer, a caller learns only that a bearer token is needed.

``Credential`` is what an actor keeps of its access token: its end and the key that signed it,
enough to check later in any process whether the token is still valid, and no part of the
token itself.
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
    expires: int
    """The last second of the token, without leeway."""
    key: str
    """The thumbprint of the key that signed it."""
    mark: str
    """Distinguishes tokens within one process: made from its hash and a secret of the process."""

    def __str__(self) -> str:
        """The form that an actor carries."""
        return f"{_PREFIX}:{self.expires}:{self.key}:{self.mark}"


def has_access_token(actor: Actor) -> bool:
    """Whether an actor came with an access token of another issuer."""
    return actor.credential.startswith(f"{_PREFIX}:")


def credential_of(actor: Actor) -> Credential | None:
    """Return an actor's credential; None if it has no access token."""
    prefix, *parts = actor.credential.split(":")
    if prefix != _PREFIX or len(parts) != 3 or not parts[0].isdecimal():
        return None
    return Credential(int(parts[0]), parts[1], parts[2])


StepUp = Callable[[str], bytes | None]
"""The challenge for a scope that a call needs; None if no other token would help."""
_WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_ENDPOINT: Final = re.compile(r"/graphs/[^/]+/(mcp|sse)")
_REQUESTABLE: Final = re.compile(r"[!#-\[\]-~]+", re.ASCII)


class Challenges:
    """The challenges of one server; ``grantable`` are the scopes that it can give."""

    def __init__(
        self, oauth: OAuth | None = None, grantable: Collection[Scope] = frozenset(SCOPES)
    ) -> None:
        self._oauth = oauth
        self.has_issuer = oauth is not None
        """Whether another token could have more scopes."""
        self.advertised = oauth.issuer if oauth is not None and oauth.advertise else ""
        """The issuer, if clients can find out where to get a token."""
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
        """Return the metadata at a path, or None: for the server and each endpoint.

        It is the same for endpoints that do not exist, so it does not reveal which do.
        """
        if not self._metadata or not path.startswith(_WELL_KNOWN):
            return None
        of = path.removeprefix(_WELL_KNOWN).removesuffix("/").removeprefix(self._base)
        return self._metadata if not of or _ENDPOINT.fullmatch(of) else None

    def ask(self, *, presented: bool) -> bytes:
        """Challenge a request without a token or with an invalid one."""
        if self._oauth is None:
            return b"Bearer"
        given = {"error": "invalid_token"} if presented else {}
        if self._url:
            given |= self._scope_of({"runtime"}) | {"resource_metadata": self._url}
        return _challenge(given)

    def step_up(self, actor: Actor, grantable: Collection[Scope]) -> StepUp | None:
        """Challenge an actor that lacks a scope; None for one without an access token."""
        if self._oauth is None or not has_access_token(actor):
            return None
        return partial(self._ask_more, actor.scopes, grantable)

    def _ask_more(
        self, held: Collection[Scope], grantable: Collection[Scope], scope: str
    ) -> bytes | None:
        if scope not in grantable:
            return None
        given = {"error": "insufficient_scope", **self._scope_of({*held, scope})}
        if self._url:
            given["resource_metadata"] = self._url
        return _challenge(given)

    def _scope_of(self, wanted: Collection[str]) -> dict[str, str]:
        """Return the scopes to request from the issuer."""
        names = self._names(wanted)
        return {"scope": " ".join(names)} if names else {}

    def _names(self, wanted: Collection[str]) -> list[str]:
        """Translate scopes into the issuer's names; others can't be requested."""
        assert self._oauth is not None  # noqa: S101 - called only if there is an issuer
        named = [self._oauth.name_of(scope) for scope in SCOPES if scope in wanted]
        return [name for name in named if _REQUESTABLE.fullmatch(name)]


PLAIN: Final = Challenges()
"""The challenge of a server without an issuer."""


def _challenge(given: dict[str, str]) -> bytes:
    """Format a challenge of the Bearer scheme."""
    parameters = ", ".join(f'{name}="{value}"' for name, value in given.items())
    return f"Bearer {parameters}".strip().encode()
