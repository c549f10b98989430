"""``[auth.oauth]``: the issuer, its keys, and the claims to read, with their checks.

Every command reads the settings, so nothing here imports cryptography.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from trails.errors import SettingsError
from trails.model.capabilities import SCOPES, Scope

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
    "Ed448",
)
"""Asymmetric algorithms only: a verifier must not be able to make signatures."""
TOKEN_TYPES: Final = ("at+jwt", "jwt", "")
_SOURCES: Final = ("jwks_file", "jwks_url", "jwks")


class OAuth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[auth.oauth]``: an identity provider whose access tokens are accepted."""

    issuer: str
    """The issuer whose access tokens are accepted."""
    audience: str
    """The audience that they must have."""
    jwks_file: str = ""
    """A file with the issuer's keys. Exactly one of ``jwks_file``, ``jwks_url`` and ``jwks`` is
    given."""
    jwks_url: str = ""
    """Where to fetch the keys."""
    jwks: str = ""
    """The key set itself, as JSON."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    """Accepted signature algorithms; asymmetric ones only."""
    token_types: tuple[str, ...] = ("at+jwt",)
    """Accepted values of ``typ``; ``"JWT"`` and ``""`` (none) for issuers that do not mark access
    tokens."""
    leeway: Annotated[int, msgspec.Meta(ge=0, le=30)] = 10
    """Seconds that clocks may differ."""
    actor_claim: str = "sub"
    """The claim that names the actor."""
    groups_claim: str = "groups"
    """The claim that lists its groups."""
    scopes_claim: str = "scope"
    """The claim that lists its scopes."""
    scopes: dict[str, str] = {}
    """The issuer's name of a scope → ``runtime``, ``builder`` or ``dev``; equal names need no
    entry."""
    advertise: bool = False
    """Whether clients can discover where to get a token (RFC 9728)."""
    resource: str = ""
    """The URL under which clients know this server; by default the audience."""

    def scope_named(self, name: str) -> Scope | None:
        """Return our scope for an issuer's name; None if there is none."""
        own = self.scopes.get(name, name)
        return next((scope for scope in SCOPES if scope == own), None)

    def name_of(self, scope: Scope) -> str:
        """Return the issuer's name of a scope."""
        return next((name for name, own in self.scopes.items() if own == scope), scope)


def check_oauth(settings: OAuth) -> None:
    """Raise SettingsError for inconsistent settings."""
    _check_url("issuer", settings.issuer, query=False)
    if not settings.audience.strip():
        raise _wrong("audience", "is empty; set it to the 'aud' of tokens for this server")
    _check_source(settings)
    _check_algorithms(settings.algorithms)
    _check_types(settings.token_types)
    _check_claims(settings)
    if settings.advertise:
        known = "resource" if settings.resource else "audience"
        _check_url(known, getattr(settings, known), query=False)
    elif settings.resource:
        _check_url("resource", settings.resource, query=False)


def _check_source(settings: OAuth) -> None:
    given = [name for name in _SOURCES if getattr(settings, name)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        raise SettingsError(
            f"trails.toml: [auth.oauth] needs exactly one of {', '.join(_SOURCES)}; {found}"
        )
    if settings.jwks_url:
        _check_url("jwks_url", settings.jwks_url, query=True)


def _check_algorithms(algorithms: Collection[str]) -> None:
    if not algorithms:
        raise _wrong("algorithms", f"is empty; list some of {', '.join(ALGORITHMS)}")
    for name in algorithms:
        if name not in ALGORITHMS:
            raise _wrong(
                "algorithms",
                f"has {name!r}, {_reason(name)}; list some of {', '.join(ALGORITHMS)}",
            )


def _reason(algorithm: str) -> str:
    if algorithm.lower() == "none":
        return "which is not a signature: anyone could forge such a token"
    if algorithm.upper().startswith("HS"):
        return "which is symmetric: anyone who can verify such a token can forge one"
    return "which is not supported"


def _check_types(types: Collection[str]) -> None:
    if not types:
        raise _wrong("token_types", 'is empty; the type of access tokens is "at+jwt"')
    for name in types:
        if name.lower() not in TOKEN_TYPES:
            raise _wrong(
                "token_types",
                f'has {name!r}; use "at+jwt", or, for issuers that do not mark access '
                'tokens, "JWT" or "" (no type)',
            )


def _check_claims(settings: OAuth) -> None:
    for key in ("actor_claim", "groups_claim", "scopes_claim"):
        if not getattr(settings, key):
            raise _wrong(key, "is empty; name a claim")
    for name, own in settings.scopes.items():
        if own not in SCOPES:
            raise _wrong("scopes", f"maps {name!r} to {own!r}; a scope is {', '.join(SCOPES)}")


def _check_url(key: str, value: str, *, query: bool) -> None:
    """Check that it is a URL that can't be intercepted."""
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        raise _wrong(key, f"is {value[:200]!r}, which is not a URL") from None
    if not _is_protected(parts) or not value.isascii() or not value.isprintable() or " " in value:
        raise _wrong(
            key,
            f"is {value[:200]!r}; it must be an https:// URL (http:// only for this machine, as "
            "http://127.0.0.1:8080)",
        )
    if parts.username is not None or parts.password is not None:
        raise _wrong(key, "contains a user or password; remove them")
    if parts.fragment or "#" in value or (parts.query and not query):
        raise _wrong(
            key, f"is {value[:200]!r}; it must not have a {'fragment' if query else 'query'}"
        )


def _is_protected(parts: SplitResult) -> bool:
    host = parts.hostname
    if not host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _wrong(key: str, problem: str) -> SettingsError:
    return SettingsError(f"trails.toml: [auth.oauth] {key} {problem}")
