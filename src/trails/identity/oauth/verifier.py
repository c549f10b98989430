"""Verifier: an access token in, an actor out, or why there is none.

The order: the token is taken apart, its header says which key of the issuer must have
signed it, the signature is checked, and only then anything it claims is read. What a
header says about keys (``jku``, ``jwk``, ``x5u``, ``x5c``) is never looked at: keys come
from the settings alone. A token that was good once is known again by its hash, until it
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
from typing import Final

import msgspec

from trails.identity.oauth.claims import RefusedError, read_bearer
from trails.identity.oauth.credentials import Credential, credential_of
from trails.identity.oauth.keys import Key, KeySet
from trails.identity.oauth.objects import Object
from trails.identity.oauth.settings import OAuth, check_oauth
from trails.identity.oauth.signed import Signed, take_apart
from trails.identity.oauth.sources import GivenKeys, KeyFile, KeySource, KeyUrl
from trails.model.actors import Actor
from trails.model.outcomes import Failure
from trails.model.secrets import Secret

_LONGEST: Final = 16 << 10
"""Characters of a token."""
_MOST_KNOWN: Final = 4096
_UNREAD: Final = ("crit", "b64", "cty", "enc", "zip")
"""Headers that change what a token means; one that must not be ignored is not taken."""
_logger: Final = logging.getLogger("trails")


class _Known(msgspec.Struct, frozen=True):
    """A token that was good."""

    actor: Actor
    keys: KeySet
    until: int


class Verifier:
    """The access tokens of one issuer."""

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
        """Who presents a token."""
        text = token.reveal()
        if len(text) > _LONGEST or not text.isascii():
            return _refusal("it is no signed token")
        digest = blake2b(text.encode(), key=self._salt, digest_size=32).digest()
        try:
            return await self._recall(digest) or await self._check(text, digest)
        except RefusedError as refused:
            return _refusal(str(refused))

    def is_current(self, actor: Actor) -> bool:
        """Whether the token that an actor came with is still good: its time and its key."""
        found, keys = credential_of(actor), self._source.known
        if found is None or self._clock() >= found.expires + self._settings.leeway:
            return False
        return keys is None or found.key in keys.thumbprints

    async def _recall(self, digest: bytes) -> Actor | None:
        """Who presented the same token before, if it is as good as it was then."""
        if digest not in self._known:
            return None
        keys = await self._source.keys()
        known = self._known.pop(digest, None)
        if known is None or known.keys is not keys or self._clock() >= known.until:
            return None
        self._known[digest] = known  # the newest now
        return known.actor

    async def _check(self, text: str, digest: bytes) -> Actor | Failure:
        try:
            signed = take_apart(text)
        except ValueError:
            raise RefusedError("it is no signed token") from None
        algorithm, kid = self._read_header(signed.header)
        keys, key = await self._find_key(algorithm, kid)
        if keys is None:
            return _UNAVAILABLE
        if key is None:
            raise RefusedError("none of the issuer's keys can have signed it")
        return self._accept(signed, algorithm, key, keys, digest)

    def _read_header(self, header: Object) -> tuple[str, str | None]:
        """The algorithm and the name of the key."""
        if any(name in header for name in _UNREAD):
            raise RefusedError("its header asks for something that is not done here")
        kind = header.get("typ", "")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in (
            self._types
        ):
            raise RefusedError("its type is not that of an access token (at+jwt)")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms:
            raise RefusedError("its algorithm is not taken here")
        kid = header.get("kid")
        if "kid" in header and not isinstance(kid, str):
            raise RefusedError("its header can't be read")
        return algorithm, kid if isinstance(kid, str) else None

    async def _find_key(self, algorithm: str, kid: str | None) -> tuple[KeySet | None, Key | None]:
        """The key that must have signed a token; a key that nobody knows may be new."""
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
            raise RefusedError("its signature is wrong")
        bearer = read_bearer(signed.claims, self._settings, self._clock())
        credential = Credential(bearer.expires, key.thumbprint, digest[:8].hex())
        actor = Actor(bearer.name, bearer.scopes, bearer.groups, str(credential))
        self._known[digest] = _Known(actor, keys, bearer.expires + self._settings.leeway)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return actor


def source_of(settings: OAuth, folder: Path) -> KeySource:
    """Where the settings say that the keys are."""
    if settings.jwks:
        return GivenKeys(settings.jwks)
    if settings.jwks_file:
        return KeyFile(folder / settings.jwks_file)
    return KeyUrl(settings.jwks_url)


def _refusal(reason: str) -> Failure:
    _logger.info("an access token was refused: %s", reason)
    return Failure(
        "unauthenticated", "unauthenticated", f"the access token is not valid here: {reason}"
    )


_UNAVAILABLE: Final = Failure(
    "internal",
    "unavailable",
    "access tokens can't be checked at the moment, because the keys of their issuer can't be "
    "had; try again in a while",
)
