"""AccessTokenVerifier: turns an access token into an actor, or refuses it with a reason.

The token is split, its header selects the issuer's key, the signature is verified, and only
then the claims are read. Header fields about keys (``jku``, ``jwk``, ``x5u``, ``x5c``) are
ignored: keys come from the settings alone. A verified token is cached by its hash until it
expires or the keys change.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal

import msgspec

from trails.errors import TrailsError
from trails.identity.oauth.challenges import Credential, credential_of
from trails.identity.oauth.keys import Key, KeySet, Object, Signed, parse_signed
from trails.identity.oauth.settings import OAuth, check_oauth
from trails.identity.oauth.sources import GivenKeys, KeyFile, KeySource, KeyUrl
from trails.model.actors import LOCAL, Actor, Secret, checked_actor
from trails.model.capabilities import Scope
from trails.model.results import Failure

LATEST: Final = 253_402_300_799
"""The end of the year 9999: a larger number isn't in seconds (it may be milliseconds)."""
_FOREIGN: Final = ("nonce", "at_hash", "c_hash", "s_hash", "events")
"""Claims that only other kinds of tokens have: ID tokens, logout tokens."""
_USES: Final = {"token_use": "access", "typ": "bearer"}
"""Claims by which some issuers mark the kind of a token, and their values for access tokens."""


class Bearer(msgspec.Struct, frozen=True):
    """The subject of a token, and its end."""

    name: str
    scopes: frozenset[Scope]
    groups: frozenset[str]
    expires: int
    """The last second of the token, without leeway."""


class TokenRefusedError(Exception):
    """A token was refused; the reason contains nothing of the token."""


def read_bearer(claims: Object, settings: OAuth, now: float) -> Bearer:
    """Read the claims; raise TokenRefusedError if the token isn't for this server, or not now."""
    if claims.get("iss") != settings.issuer:
        raise TokenRefusedError("it is from another issuer")
    if settings.audience not in _texts(claims.get("aud"), "its audience"):
        raise TokenRefusedError("it is for another audience")
    expires = _check_times(claims, settings.leeway, now)
    _check_use(claims)
    return Bearer(
        name=_name(claims, settings),
        scopes=_scopes(claims, settings),
        groups=_groups(claims, settings),
        expires=expires,
    )


def _check_times(claims: Object, leeway: int, now: float) -> int:
    """Check the times and return the end; times must be whole seconds."""
    expires = _time(claims, "exp")
    if expires is None:
        raise TokenRefusedError("it has no expiry")
    if now >= expires + leeway:
        raise TokenRefusedError("it has expired; get a new one")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and begins > now + leeway:
            raise TokenRefusedError("it is not valid yet; compare the clocks")
    return expires


def _time(claims: Object, name: Literal["exp", "nbf", "iat"]) -> int | None:
    if name not in claims:
        return None
    value = claims[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LATEST:
        raise TokenRefusedError("a time in it is not a whole number of seconds")
    return value


def _check_use(claims: Object) -> None:
    """Refuse tokens that the same issuer signs for other purposes."""
    if any(name in claims for name in _FOREIGN):
        raise TokenRefusedError("it is not an access token")
    for name, wanted in _USES.items():
        said = claims.get(name, wanted)
        if not isinstance(said, str) or said.lower() != wanted:
            raise TokenRefusedError("it is not an access token")


def _name(claims: Object, settings: OAuth) -> str:
    name = _find(claims, settings.actor_claim)
    if not isinstance(name, str):
        raise TokenRefusedError("it has no subject")
    if name == LOCAL.name:
        raise TokenRefusedError("its subject is a reserved name")
    return _checked(name)


def _checked(name: str) -> str:
    try:
        checked_actor(name)
    except TrailsError:
        raise TokenRefusedError("a name in it is not valid here") from None
    return name


def _groups(claims: Object, settings: OAuth) -> frozenset[str]:
    """Return its groups; all must be valid, because a policy may forbid something to one."""
    found = _texts(_find(claims, settings.groups_claim), "its groups")
    return frozenset(_checked(name) for name in found)


def _scopes(claims: Object, settings: OAuth) -> frozenset[Scope]:
    """Return its scopes that are ours; others are ignored."""
    found = _find(claims, settings.scopes_claim)
    names = found.split(" ") if isinstance(found, str) else _texts(found, "its scopes")
    ours = (settings.scope_named(name) for name in names)
    return frozenset(scope for scope in ours if scope is not None)


def _texts(value: object, what: str) -> tuple[str, ...]:
    """Return a text or a list of texts as a list."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise TokenRefusedError(f"{what} can't be read")


def _find(claims: Object, name: str) -> object:
    """Return a claim by its name, or by a path with dots."""
    _check_is_here(claims, name)
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _check_is_here(claims: Object, name: str) -> None:
    """Refuse a token whose claim is stored elsewhere: some issuers do so with long lists."""
    elsewhere = claims.get("_claim_names", {})
    names = {name, name.partition(".")[0]}
    if not isinstance(elsewhere, dict) or not names.isdisjoint(elsewhere):
        raise TokenRefusedError("a required claim is missing: the issuer moved it out of the token")


_LONGEST: Final = 16 << 10
"""Characters of a token."""
_MOST_KNOWN: Final = 4096
_UNREAD: Final = ("crit", "b64", "cty", "enc", "zip")
"""Headers that change a token's meaning; a token with one of them is refused."""
_logger: Final = logging.getLogger("trails")


class _Known(msgspec.Struct, frozen=True):
    """A verified token."""

    actor: Actor
    keys: KeySet
    until: int


class AccessTokenVerifier:
    """Verifies the access tokens of one issuer."""

    def __init__(
        self,
        settings: OAuth,
        folder: Path,
        *,
        source: KeySource | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_oauth(settings)
        self._settings = settings
        self._types = frozenset(each.lower() for each in settings.token_types)
        self._source = source_of(settings, folder) if source is None else source
        self._clock = clock
        self._salt = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    async def verify(self, token: Secret) -> Actor | Failure:
        """Return the actor that presents a token."""
        text = token.reveal()
        if len(text) > _LONGEST or not text.isascii():
            return _refusal("it is not a signed token")
        digest = blake2b(text.encode(), key=self._salt, digest_size=32).digest()
        try:
            return await self._recall(digest) or await self._check(text, digest)
        except TokenRefusedError as refused:
            return _refusal(str(refused))

    def is_current(self, actor: Actor) -> bool:
        """Whether an actor's token is still valid: its time and its key."""
        found, keys = credential_of(actor), self._source.known
        if found is None or self._clock() >= found.expires + self._settings.leeway:
            return False
        return keys is None or found.key in keys.thumbprints

    async def _recall(self, digest: bytes) -> Actor | None:
        """Return the actor of a cached token, if it is still valid."""
        if digest not in self._known:
            return None
        keys = await self._source.keys()
        known = self._known.pop(digest, None)
        if known is None or known.keys is not keys or self._clock() >= known.until:
            return None
        self._known[digest] = known  # the most recent now
        return known.actor

    async def _check(self, text: str, digest: bytes) -> Actor | Failure:
        try:
            signed = parse_signed(text)
        except ValueError:
            raise TokenRefusedError("it is not a signed token") from None
        algorithm, kid = self._read_header(signed.header)
        keys, key = await self._find_key(algorithm, kid)
        if keys is None:
            return _UNAVAILABLE
        if key is None:
            raise TokenRefusedError("none of the issuer's keys matches its signature")
        return self._accept(signed, algorithm, key, keys, digest)

    def _read_header(self, header: Object) -> tuple[str, str | None]:
        """Return the algorithm and the name of the key."""
        if any(name in header for name in _UNREAD):
            raise TokenRefusedError("its header requires an unsupported extension")
        kind = header.get("typ", "")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in (
            self._types
        ):
            raise TokenRefusedError("its type is not that of an access token (at+jwt)")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms:
            raise TokenRefusedError("its algorithm is not allowed")
        kid = header.get("kid")
        if "kid" in header and not isinstance(kid, str):
            raise TokenRefusedError("its header can't be read")
        return algorithm, kid if isinstance(kid, str) else None

    async def _find_key(self, algorithm: str, kid: str | None) -> tuple[KeySet | None, Key | None]:
        """Find the key that must have signed a token; fetch again for an unknown key."""
        keys = await self._source.keys()
        key = None if keys is None else keys.find(algorithm, kid)
        if keys is not None and key is None:
            keys = await self._source.renewed()
            key = None if keys is None else keys.find(algorithm, kid)
        return keys, key

    def _accept(
        self, signed: Signed, algorithm: str, key: Key, keys: KeySet, digest: bytes
    ) -> Actor:
        if not key.checks(algorithm, signed.content, signed.signature):
            raise TokenRefusedError("its signature is invalid")
        bearer = read_bearer(signed.claims, self._settings, self._clock())
        credential = Credential(bearer.expires, key.thumbprint, digest[:8].hex())
        actor = Actor(bearer.name, bearer.scopes, bearer.groups, str(credential))
        self._known[digest] = _Known(actor, keys, bearer.expires + self._settings.leeway)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return actor


def source_of(settings: OAuth, folder: Path) -> KeySource:
    """Return the source of keys that the settings name."""
    if settings.jwks:
        return GivenKeys(settings.jwks)
    if settings.jwks_file:
        return KeyFile(folder / settings.jwks_file)
    return KeyUrl(settings.jwks_url)


def _refusal(reason: str) -> Failure:
    _logger.info("Access token refused: %s", reason, extra={"event": "token.refused"})
    return Failure("unauthenticated", "unauthenticated", f"Invalid access token: {reason}")


_UNAVAILABLE: Final = Failure(
    "internal",
    "unavailable",
    "Access tokens can't be verified now, because the issuer's keys can't be fetched; retry later",
)
