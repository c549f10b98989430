"""Who makes a request: a credential in, a resolved actor out, or why there is none.

The first step of the path, and the last that sees a credential. Of a token that is
expected only its hash is kept, and comparing takes the same time whatever was sent.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import Final, Protocol

import msgspec

from trails.identity.oauth.challenges import has_access_token
from trails.identity.tokens import TokenBook, split_token
from trails.model.actors import OPERATOR, Actor, Secret
from trails.model.capabilities import SCOPES, Scope
from trails.model.results import Failure

STATIC: Final = "static"
"""The credential of a caller with the token that the process was started with."""
WANTED: Final = "wanted"
"""The credential of a caller with the token that a front wants, where else none is required."""
_ALL: Final = frozenset(SCOPES)
_OPEN: Final[frozenset[Scope]] = frozenset({"runtime"})
"""What may be used without a credential."""
_RECENT: Final = 1024
_LONGEST: Final = 16 << 10
"""Characters of a token; whatever is longer is none."""
_MISSING: Final = (
    "Authentication required: send `Authorization: Bearer <token>`; over stdio, set TRAILS_TOKEN "
    "in the environment of the process that the client starts."
)
_MALFORMED: Final = "Malformed Authorization header: send `Authorization: Bearer <token>`."
_REFUSED: Final = "Invalid or expired token."


class Verifier(Protocol):
    """Access tokens of another issuer."""

    async def verify(self, token: Secret) -> Actor | Failure:
        """Who presents a token."""

    def is_current(self, actor: Actor) -> bool:
        """Whether the token that an actor came with is still good."""


class Authenticator:
    """All credentials that one process takes.

    ``process`` is who acts where none is asked for; over HTTP its scopes are all that anybody gets.
    """

    def __init__(
        self,
        process: Actor,
        token: Secret | None = None,
        tokens: TokenBook | None = None,
        oauth: Verifier | None = None,
    ) -> None:
        self._process = process
        self._hashes = frozenset[bytes]() if token is None else frozenset({hash_of(token)})
        self._tokens = tokens
        self._oauth = oauth
        self._anybody = self._unnamed(process.scopes)
        self._recent: dict[bytes, Actor] = {}
        """Who sent which header, in memory alone; each time it is asked whether that holds."""

    @property
    def required(self) -> bool:
        """Whether a request needs a credential."""
        listed = self._tokens is not None and self._tokens.configured
        return listed or bool(self._hashes) or self._oauth is not None

    @property
    def process(self) -> tuple[frozenset[Scope], str]:
        """What another process must know to ask the same: the scopes, and the token's digest."""
        return self._process.scopes, "".join(each.hex() for each in self._hashes)

    def through(self, process: Actor, digest: bytes | None) -> Authenticator:
        """As it is for those who come through another process, whose own token counts there too.

        Whatever is asked for here is asked for there as well.
        """
        behind = Authenticator(process, None, self._tokens, self._oauth)
        behind._hashes = self._hashes if digest is None else self._hashes | {digest}
        return behind

    @property
    def scopes(self) -> frozenset[Scope]:
        """All that anybody gets over HTTP, whatever the credential."""
        return self._process.scopes

    async def bearer(self, header: bytes | None) -> Actor | Failure:
        """Who sends an ``Authorization`` header; None where it was not sent."""
        recognised = self.recognise(header)
        if recognised is not None:
            return recognised
        if header is None:
            return _failure(_MISSING)
        found = await self._read(header)
        if isinstance(found, Actor) and not has_access_token(found):
            if len(self._recent) >= _RECENT:
                self._recent.clear()
            self._recent[header] = found
        return found

    def recognise(self, header: bytes | None) -> Actor | None:
        """The caller, if known at once: seen before, or any where no credential is required."""
        if not self.required:
            return self._anybody
        recent = None if header is None else self._recent.get(header)
        return recent if recent is not None and self.is_current(recent) else None

    async def _read(self, header: bytes) -> Actor | Failure:
        scheme, _, token = header.strip().partition(b" ")
        text = token.strip().decode(errors="surrogateescape")
        if scheme.lower() != b"bearer" or not text:
            return _failure(_MALFORMED)
        return await self._resolve(Secret(text), self._process.scopes)

    async def presented(self, token: Secret | None, process: frozenset[Scope]) -> Actor | Failure:
        """Who presents a token, in a process that has some scopes; None where there is none."""
        if not self.required:
            return self._unnamed(process)
        return refuse_token(None) if token is None else await self._resolve(token, process)

    async def _resolve(self, token: Secret, process: frozenset[Scope]) -> Actor | Failure:
        found = await self._find(token)
        if isinstance(found, Failure) or found.scopes <= process:
            return found
        return msgspec.structs.replace(found, scopes=found.scopes & process)

    async def _find(self, token: Secret) -> Actor | Failure:
        if len(token.reveal()) > _LONGEST:
            return refuse_token(token)
        if self._hashes and self._is_static(token):
            return msgspec.structs.replace(self._process, scopes=_ALL, credential=STATIC)
        found = None if self._tokens is None else self._tokens.find(token)
        if found is not None:
            return found
        if self._oauth is None or split_token(token) is not None:
            return refuse_token(token)
        return await self._oauth.verify(token)

    def _is_static(self, token: Secret) -> bool:
        """Whether it is a token that a process was started with; all of them are compared."""
        digest = hash_of(token)
        return any([compare_digest(digest, each) for each in self._hashes])  # noqa: C419

    def _unnamed(self, process: frozenset[Scope]) -> Actor:
        """Who acts where no credential is asked for."""
        return msgspec.structs.replace(self._process, scopes=process & _OPEN)

    def is_current(self, actor: Actor) -> bool:
        """Whether an actor that was resolved before would be resolved again."""
        if actor.credential in {"", WANTED}:
            return not self.required
        if actor.credential in {STATIC, OPERATOR.credential}:
            return True  # as long as the process that it was given to
        if has_access_token(actor):
            return self._oauth is not None and self._oauth.is_current(actor)
        return self._tokens is not None and self._tokens.is_current(actor)


def hash_of(token: Secret) -> bytes:
    """What may be kept of a token."""
    return sha256(token.reveal().encode(errors="surrogateescape")).digest()


def refuse_token(token: Secret | None) -> Failure:
    """What is said of a token that is not the right one, or is not there."""
    return _failure(_MISSING if token is None else _REFUSED)


def _failure(message: str) -> Failure:
    return Failure("unauthenticated", "unauthenticated", message)
