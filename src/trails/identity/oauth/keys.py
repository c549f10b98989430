"""Signed tokens and the public keys that verify them.

A key set is read leniently, as RFC 7517 asks: unusable keys are skipped. The choice of the
key for a token is strict: exactly one must match. JSON is read strictly, because readers
differ on duplicate names, odd numbers and text that is not UTF-8, and all must find the same
claims.

Tokens use the compact serialization only: three parts, each in canonical base64url, so a
token has one spelling and what is signed is what is read. Nothing here trusts a token; see
``verifier``.
"""

from __future__ import annotations

import json
import warnings
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from functools import cached_property
from typing import Final, Never

import msgspec
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwa import JWS_ALGORITHMS, JWSAlgModel
from joserfc.jwk import ECKey, OKPKey, RSAKey

from trails.identity.oauth.settings import ALGORITHMS

Object = dict[str, object]


def read_object(raw: bytes) -> Object:
    """Return the object in a JSON text; raise ValueError for anything ambiguous."""
    try:
        value = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - the value comes from a text
    return value


def _distinct(pairs: list[tuple[str, object]]) -> Object:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _refuse_constant(_name: str) -> Never:
    raise ValueError("a number is not finite")


MOST_KEYS: Final = 100
LARGEST: Final = 512 << 10
"""Bytes of a key set."""
_SHORTEST_RSA: Final = 2048
_KINDS: Final[dict[str, type[RSAKey | ECKey | OKPKey]]] = {
    "RSA": RSAKey,
    "EC": ECKey,
    "OKP": OKPKey,
}
_COMMON: Final = ("kty", "kid", "use", "alg", "key_ops")
_EDWARDS: Final = ("Ed25519", "Ed448")
_SIGNATURES: Final[dict[str, JWSAlgModel]] = {
    each.name: each for each in JWS_ALGORITHMS if each.name in ALGORITHMS
}


class Key:
    def __init__(self, key: RSAKey | ECKey | OKPKey) -> None:
        self._key = key
        self.kid = key.kid
        self.signatures = frozenset(name for name in _SIGNATURES if _fits(key, name))
        """The algorithms whose signatures it can verify."""

    @cached_property
    def thumbprint(self) -> str:
        """Identify the key, independent of its name (RFC 7638)."""
        return self._key.thumbprint()

    def checks(self, algorithm: str, content: bytes, signature: bytes) -> bool:
        """Whether a signature was made with this key; the algorithm must be in ``signatures``."""
        return _SIGNATURES[algorithm].verify(content, signature, self._key)


class KeySet:
    """The keys of an issuer at some time."""

    def __init__(self, keys: Iterable[Key] = (), ignored: Iterable[str] = ()) -> None:
        self.keys = tuple(keys)
        self.ignored = tuple(ignored)
        """Why keys were skipped."""
        self.thumbprints = frozenset(key.thumbprint for key in self.keys)

    def find(self, algorithm: str, kid: str | None) -> Key | None:
        """Return the only key that can have made a signature; None if there are several."""
        fitting = [
            key
            for key in self.keys
            if algorithm in key.signatures and (kid is None or key.kid == kid)
        ]
        return fitting[0] if len(fitting) == 1 else None


def read_keys(text: bytes) -> KeySet:
    """Return the usable keys of a key set; raise ValueError if the text isn't one."""
    if len(text) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST:,} bytes")
    listed = read_object(text).get("keys")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise ValueError('it is not {"keys": [{…}, …]}')
    if len(listed) > MOST_KEYS:
        raise ValueError(f"it has more than {MOST_KEYS} keys")
    keys, ignored = [], []
    for at, each in enumerate(listed):
        try:
            keys.append(_read_key(each))
        except ValueError as error:
            ignored.append(f"key {at}: {error}")
    return KeySet(keys, ignored)


def _read_key(given: Object) -> Key:
    kind = _KINDS.get(str(given.get("kty")))
    if kind is None:
        raise ValueError("its type is not supported")
    if any(parameter.private and name in given for name, parameter in kind.value_registry.items()):
        raise ValueError("it contains a private key, which must never be published")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # a short key is refused below
            key = Key(kind.import_key(_members(given, kind.value_registry)))
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise ValueError("it can't be read") from None
    if not key.signatures:
        raise ValueError("none of the allowed algorithms can use it")
    return key


def _members(given: Object, own: Iterable[str]) -> dict[str, str | list[str]]:
    """Return a key's members that are used here, if their types are right."""
    kept = {name: given[name] for name in (*_COMMON, *own) if name in given}
    operations = kept.pop("key_ops", None)
    members: dict[str, str | list[str]] = {}
    members.update(msgspec.convert(kept, dict[str, str]))
    if operations is not None:
        members["key_ops"] = msgspec.convert(operations, list[str])
    return members


def _fits(key: RSAKey | ECKey | OKPKey, algorithm: str) -> bool:
    """Whether type, curve, size and declared use of a key fit an algorithm."""
    if isinstance(key, RSAKey) and key.public_key.key_size < _SHORTEST_RSA:
        return False
    if isinstance(key, OKPKey) and key.curve_name not in _EDWARDS:
        return False
    try:
        _SIGNATURES[algorithm].check_key(key)
        key.check_key_op("verify")
    except JoseError:
        return False
    return True


class Signed(msgspec.Struct, frozen=True):
    """The parts of a token."""

    header: Object
    claims: Object
    content: bytes
    """The bytes that were signed."""
    signature: bytes


def parse_signed(text: str) -> Signed:
    """Split a token into its parts; raise ValueError if the text isn't a signed token."""
    header, claims, signature = text.encode().split(b".")
    return Signed(
        header=read_object(_decode(header)),
        claims=read_object(_decode(claims)),
        content=header + b"." + claims,
        signature=_decode(signature),
    )


def _decode(part: bytes) -> bytes:
    raw = urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    if urlsafe_b64encode(raw).rstrip(b"=") != part:
        raise ValueError("its base64url is not canonical")
    return raw
