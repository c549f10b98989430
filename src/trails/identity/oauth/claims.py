"""What the claims of a token say about its bearer, once its signature was checked."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from trails.errors import TrailsError
from trails.identity.oauth.objects import Object
from trails.identity.oauth.settings import OAuth
from trails.model.actors import LOCAL, checked_actor
from trails.model.capabilities import Scope

LATEST: Final = 253_402_300_799
"""The end of the year 9999: a later time is no number of seconds (it may be milliseconds)."""
_FOREIGN: Final = ("nonce", "at_hash", "c_hash", "s_hash", "events")
"""Claims that only other kinds of tokens have: ID tokens, logout tokens."""
_USES: Final = {"token_use": "access", "typ": "bearer"}
"""Claims by which some issuers tell the kinds of their tokens apart, and what access tokens say."""


class Bearer(msgspec.Struct, frozen=True):
    """Who a token speaks of, and until when."""

    name: str
    scopes: frozenset[Scope]
    groups: frozenset[str]
    expires: int
    """The last second of the token, without any leeway."""


class RefusedError(Exception):
    """A token that is not taken; the reason is one of ours and has nothing of the token."""


def read_bearer(claims: Object, settings: OAuth, now: float) -> Bearer:
    """Who a token is about; RefusedError if it is not for us, or not now."""
    if claims.get("iss") != settings.issuer:
        raise RefusedError("it is from another issuer")
    if settings.audience not in _texts(claims.get("aud"), "its audience"):
        raise RefusedError("it is for another audience")
    expires = _check_times(claims, settings.leeway, now)
    _check_use(claims)
    return Bearer(
        name=_name(claims, settings),
        scopes=_scopes(claims, settings),
        groups=_groups(claims, settings),
        expires=expires,
    )


def _check_times(claims: Object, leeway: int, now: float) -> int:
    """When it ends; a token has no time but in whole seconds."""
    expires = _time(claims, "exp")
    if expires is None:
        raise RefusedError("it never expires")
    if now >= expires + leeway:
        raise RefusedError("it has expired; get a new one")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and begins > now + leeway:
            raise RefusedError("it is not valid yet; compare the clocks")
    return expires


def _time(claims: Object, name: Literal["exp", "nbf", "iat"]) -> int | None:
    if name not in claims:
        return None
    value = claims[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LATEST:
        raise RefusedError("a time in it is no whole number of seconds")
    return value


def _check_use(claims: Object) -> None:
    """Refuse what the same issuer signs for other purposes."""
    if any(name in claims for name in _FOREIGN):
        raise RefusedError("it is no access token")
    for name, wanted in _USES.items():
        said = claims.get(name, wanted)
        if not isinstance(said, str) or said.lower() != wanted:
            raise RefusedError("it is no access token")


def _name(claims: Object, settings: OAuth) -> str:
    name = _find(claims, settings.actor_claim)
    if not isinstance(name, str):
        raise RefusedError("it names nobody")
    if name == LOCAL.name:
        raise RefusedError("whom it names is reserved here")
    return _checked(name)


def _checked(name: str) -> str:
    try:
        checked_actor(name)
    except TrailsError:
        raise RefusedError("a name in it can't be one here") from None
    return name


def _groups(claims: Object, settings: OAuth) -> frozenset[str]:
    """Its groups: all or an error, since a policy may forbid something to one of them."""
    found = _texts(_find(claims, settings.groups_claim), "its groups")
    return frozenset(_checked(name) for name in found)


def _scopes(claims: Object, settings: OAuth) -> frozenset[Scope]:
    """Its scopes that are ours; others mean something elsewhere."""
    found = _find(claims, settings.scopes_claim)
    names = found.split(" ") if isinstance(found, str) else _texts(found, "its scopes")
    ours = (settings.scope_named(name) for name in names)
    return frozenset(scope for scope in ours if scope is not None)


def _texts(value: object, what: str) -> tuple[str, ...]:
    """A text or a list of texts, as a list; none where there is nothing."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise RefusedError(f"{what} can't be read")


def _find(claims: Object, name: str) -> object:
    """A claim: of that name, or where a path with dots leads."""
    _check_is_here(claims, name)
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _check_is_here(claims: Object, name: str) -> None:
    """Refuse a token that has a claim elsewhere: some issuers send long lists of groups away."""
    elsewhere = claims.get("_claim_names", {})
    names = {name, name.partition(".")[0]}
    if not isinstance(elsewhere, dict) or not names.isdisjoint(elsewhere):
        raise RefusedError("a claim that is needed is not in it; its issuer has too many values")
