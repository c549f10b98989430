"""Who makes a request: a credential in, a resolved actor out, or why there is none.

The first step of the path, and the last that sees a credential. Of a token that is
expected only its hash is kept, and comparing takes the same time whatever was sent.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest

from trails.model.actors import Actor
from trails.model.outcomes import Failure


class Authenticator:
    """One actor, behind a token or not."""

    def __init__(self, actor: Actor, token: str | None = None) -> None:
        self._actor = actor
        self._hash = None if token is None else _hash(token.encode())

    def bearer(self, presented: bytes | None) -> Actor | Failure:
        """Who sends an ``Authorization`` header; None where it was not sent."""
        if self._hash is None:
            return self._actor
        if presented is None:
            return _failure("this server wants a token: send it as 'Authorization: Bearer <token>'")
        scheme, _, token = presented.strip().partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            return _failure("the Authorization header must be 'Bearer <token>'")
        if not compare_digest(_hash(token.strip()), self._hash):
            return _failure("this is not a token that this server knows")
        return self._actor


def _hash(token: bytes) -> bytes:
    return sha256(token).digest()


def _failure(message: str) -> Failure:
    return Failure("unauthenticated", "unauthenticated", message)
