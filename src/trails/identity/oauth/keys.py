"""Public keys of an issuer, each with the signatures that it can check.

A key set is read leniently, as RFC 7517 asks: a key that is of no use here is left out.
Which key checks a token is decided strictly: exactly one may come into question.

JSON objects that mean one thing: every other reader finds the same in them.

Readers differ in what they make of a name that stands twice, of numbers that are none, or
of text that is not UTF-8, and a check that reads otherwise than its user is no check.

A signed token taken apart: header, claims, signature. Nothing is believed yet.

Compact serialization only, three parts, each in the one base64url spelling that its bytes
have. So a token has one spelling too, and what is signed is what is read.
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
    """The object that a text holds; ValueError for anything doubtful."""
    try:
        value = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise ValueError("it is too deep") from None
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - a text has no type of its own
    return value


def _distinct(pairs: list[tuple[str, object]]) -> Object:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _refuse_constant(_name: str) -> Never:
    raise ValueError("a number is none")


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
    """One public key."""

    def __init__(self, key: RSAKey | ECKey | OKPKey) -> None:
        self._key = key
        self.kid = key.kid
        self.signatures = frozenset(name for name in _SIGNATURES if _fits(key, name))
        """The algorithms whose signatures it can check."""

    @cached_property
    def thumbprint(self) -> str:
        """The same for the same key, whatever it is called (RFC 7638)."""
        return self._key.thumbprint()

    def checks(self, algorithm: str, content: bytes, signature: bytes) -> bool:
        """Whether a signature is of this key; the algorithm must be one of ``signatures``."""
        return _SIGNATURES[algorithm].verify(content, signature, self._key)


class KeySet:
    """The keys of an issuer at some time."""

    def __init__(self, keys: Iterable[Key] = (), ignored: Iterable[str] = ()) -> None:
        self.keys = tuple(keys)
        self.ignored = tuple(ignored)
        """Why keys were left out."""
        self.thumbprints = frozenset(key.thumbprint for key in self.keys)

    def find(self, algorithm: str, kid: str | None) -> Key | None:
        """The one key that can have made a signature; of several, none can be trusted."""
        fitting = [
            key
            for key in self.keys
            if algorithm in key.signatures and (kid is None or key.kid == kid)
        ]
        return fitting[0] if len(fitting) == 1 else None


def read_keys(text: bytes) -> KeySet:
    """The usable keys of a key set; ValueError for a text that is none."""
    if len(text) > LARGEST:
        raise ValueError(f"it has more than {LARGEST:,} bytes")
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
        raise ValueError("it is of a kind that is not used here")
    if any(parameter.private and name in given for name, parameter in kind.value_registry.items()):
        raise ValueError("it has a private part, which nobody may publish")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # a short key is refused below
            key = Key(kind.import_key(_members(given, kind.value_registry)))
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise ValueError("it can't be read") from None
    if not key.signatures:
        raise ValueError("no signature that is taken here can be checked with it")
    return key


def _members(given: Object, own: Iterable[str]) -> dict[str, str | list[str]]:
    """What is looked at in a key, if it is of the right type."""
    kept = {name: given[name] for name in (*_COMMON, *own) if name in given}
    operations = kept.pop("key_ops", None)
    members: dict[str, str | list[str]] = {}
    members.update(msgspec.convert(kept, dict[str, str]))
    if operations is not None:
        members["key_ops"] = msgspec.convert(operations, list[str])
    return members


def _fits(key: RSAKey | ECKey | OKPKey, algorithm: str) -> bool:
    """Whether kind, curve, size and declared purpose of a key are right for an algorithm."""
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
    """What was signed."""
    signature: bytes


def take_apart(text: str) -> Signed:
    """The parts; ValueError for a text that is no such token."""
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
        raise ValueError("its base64url has another spelling")
    return raw
