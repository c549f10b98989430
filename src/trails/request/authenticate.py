"""Authenticate: a credential in, an ``Actor`` out, or the refusal to answer with.

The first step of every request, and the last that sees a credential. An ``Authenticator`` knows
all credentials of a process; each way in asks it through one of two classes: ``HttpCallers`` for
the requests to a listener, ``SessionCallers`` for the messages of a stream. ``App.call`` has no
credential: its program opened the folder itself.

Of an expected token only its hash is kept, and comparing takes the same time whatever was sent.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import Final, Protocol

import msgspec

from trails.identity.oauth.challenges import PLAIN, Challenges, StepUp, has_access_token
from trails.identity.tokens import TokenBook, split_token
from trails.model.actors import LOCAL, OPERATOR, WEBHOOK, Actor, Secret
from trails.model.caches import BoundedCache
from trails.model.capabilities import SCOPES, Scope
from trails.model.results import Failure

STATIC: Final = "static"
"""The credential of a caller with the token that the process was started with."""
WANTED: Final = "wanted"
"""The credential of a caller with the token that a front requires, if the project requires none."""
_ALL: Final = frozenset(SCOPES)
_OPEN: Final[frozenset[Scope]] = frozenset({"runtime"})
"""The scopes of a caller without a credential."""
_RECENT: Final = 1024
_LONGEST: Final = 16 << 10
"""Characters of a token; a longer one is invalid."""
_MISSING: Final = (
    "Authentication required: send `Authorization: Bearer <token>`; over stdio, set TRAILS_TOKEN "
    "in the environment of the process that the client starts."
)
_MALFORMED: Final = "Malformed Authorization header: send `Authorization: Bearer <token>`."
_INVALID: Final = "Invalid or expired token."
_NOT_CONFIGURED: Final = (
    "this address requires credentials, but the process that serves the project has none: it was "
    "started before they were configured. Restart it"
)


class Verifier(Protocol):
    """Access tokens of another issuer."""

    async def verify(self, token: Secret) -> Actor | Failure:
        """Who presents a token."""

    def is_current(self, actor: Actor) -> bool:
        """Whether the token that an actor came with is still valid."""


class Authenticator:
    """All credentials that one process accepts.

    ``process`` acts where no credential is required; over HTTP its scopes limit every caller.
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
        self.scopes = process.scopes
        """The most that any caller gets over HTTP, whatever the credential."""

    @property
    def required(self) -> bool:
        """Whether a request needs a credential."""
        listed = self._tokens is not None and self._tokens.configured
        return listed or bool(self._hashes) or self._oauth is not None

    def requires(self, *, presented: bool) -> bool:
        """Whether a request needs a credential, if it presents one or none.

        A token that is presented may be the first: it holds from its first use.
        """
        if presented and self._tokens is not None and not self.required:
            self._tokens.look()
        return self.required

    @property
    def process(self) -> tuple[frozenset[Scope], str]:
        """What another process must know to require the same: the scopes, the token's digest."""
        return self._process.scopes, "".join(each.hex() for each in self._hashes)

    def through(self, process: Actor, digest: bytes | None) -> Authenticator:
        """The authenticator of those who come through another process.

        It requires what this one requires, and accepts the token of that process too.
        """
        behind = Authenticator(process, None, self._tokens, self._oauth)
        behind._hashes = self._hashes if digest is None else self._hashes | {digest}
        return behind

    async def authenticate(self, token: Secret | None, most: frozenset[Scope]) -> Actor | Failure:
        """Who presents a token, with at most these scopes; None if no token was presented."""
        if not self.requires(presented=token is not None):
            return self.unnamed(most)
        if token is None:
            return _failure(_MISSING)
        found = await self._find(token)
        if isinstance(found, Failure) or found.scopes <= most:
            return found
        return msgspec.structs.replace(found, scopes=found.scopes & most)

    async def _find(self, token: Secret) -> Actor | Failure:
        if len(token.reveal()) > _LONGEST:
            return _failure(_INVALID)
        if self._hashes and self._is_static(token):
            return msgspec.structs.replace(self._process, scopes=_ALL, credential=STATIC)
        found = None if self._tokens is None else self._tokens.find(token)
        if found is not None:
            return found
        if self._oauth is None or split_token(token) is not None:
            return _failure(_INVALID)
        return await self._oauth.verify(token)

    def _is_static(self, token: Secret) -> bool:
        """Whether it is a token that a process was started with; all of them are compared."""
        digest = hash_of(token)
        return any([compare_digest(digest, each) for each in self._hashes])  # noqa: C419

    def unnamed(self, most: frozenset[Scope]) -> Actor:
        """The caller where no credential is required."""
        return msgspec.structs.replace(self._process, scopes=most & _OPEN)

    def is_current(self, actor: Actor) -> bool:
        """Whether the credential of an actor is still valid."""
        if actor.credential in {"", WANTED}:
            return not self.required
        if actor.credential in {STATIC, OPERATOR.credential, WEBHOOK}:
            return True  # as long as the process that it was given to
        if has_access_token(actor):
            return self._oauth is not None and self._oauth.is_current(actor)
        return self._tokens is not None and self._tokens.is_current(actor)


class Refusal(msgspec.Struct, frozen=True):
    """Why an HTTP request has no actor, and what to ask for."""

    failure: Failure
    challenge: bytes | None = None
    """The ``WWW-Authenticate`` value; None if the credential can't be checked at the moment."""


class HttpCallers:
    """Authenticates the requests to one listener, by their ``Authorization`` header.

    ``operator`` is whether its connections have shown the owner's key, ``mandatory`` whether its
    address requires a credential even if the project does not.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        challenges: Challenges = PLAIN,
        *,
        operator: bool = False,
        mandatory: bool = False,
    ) -> None:
        self.operator = operator
        self.challenges = challenges
        self._authenticator = authenticator
        self._mandatory = mandatory
        self._scopes = authenticator.scopes
        self._steps_up = challenges.has_issuer
        self._anyone = authenticator.unnamed(self._scopes)
        self._recent: BoundedCache[bytes, Actor] = BoundedCache(_RECENT)
        """Who sent which header, in memory only; its credential is checked again each time."""

    def recognise(self, header: bytes | None) -> Actor | None:
        """The caller, if that is known without waiting."""
        if self.operator and header is None:
            return OPERATOR
        if not self._authenticator.required and (
            header is None or not self._authenticator.requires(presented=True)
        ):
            return None if self._mandatory else self._anyone
        recent = None if header is None else self._recent.get(header)
        return recent if recent is not None and self._authenticator.is_current(recent) else None

    async def authenticate(self, header: bytes | None) -> Actor | Refusal:
        """The caller; ``header`` is None if it was not sent."""
        found = self.recognise(header) or await self._verify(header)
        if not isinstance(found, Failure):
            return found
        if found.kind != "unauthenticated":
            return Refusal(found)
        return Refusal(found, self.challenges.ask(presented=header is not None))

    async def _verify(self, header: bytes | None) -> Actor | Failure:
        if not self._authenticator.required:
            return _failure(_NOT_CONFIGURED)
        if header is None:
            return _failure(_MISSING)
        scheme, _, token = header.strip().partition(b" ")
        text = token.strip().decode(errors="surrogateescape")
        if scheme.lower() != b"bearer" or not text:
            return _failure(_MALFORMED)
        found = await self._authenticator.authenticate(Secret(text), self._scopes)
        if isinstance(found, Actor) and found.credential and not has_access_token(found):
            self._recent[header] = found
        return found

    def step_up(self, actor: Actor) -> StepUp | None:
        """The challenge for an actor that lacks a scope; None if no other token would help."""
        return self.challenges.step_up(actor, self._scopes) if self._steps_up else None


class SessionCallers:
    """Authenticates the messages of one session over a stream, by the token that each carries.

    ``most`` are the scopes of the process in front of the client, ``token`` is what it presents
    for messages without a token, ``wanted`` the hash (hexadecimal) of one that it requires.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        most: frozenset[Scope],
        token: Secret | None = None,
        wanted: str = "",
    ) -> None:
        self._authenticator = authenticator
        self._most = most
        self._wanted = bytes.fromhex(wanted)
        self.default_token = token
        """The credential of messages that carry no token."""

    async def resolve(self, token: Secret | None, *, begins: bool) -> Actor | Failure:
        """The sender of a message; the token of the first message holds for later ones."""
        actor = await self._authenticate(self.default_token if token is None else token)
        if begins and token is not None and not isinstance(actor, Failure):
            self.default_token = token
        return actor

    async def _authenticate(self, token: Secret | None) -> Actor | Failure:
        if not self._wanted or self._authenticator.required:
            return await self._authenticator.authenticate(token, self._most)
        if token is None:
            return _failure(_MISSING)
        if not compare_digest(hash_of(token), self._wanted):
            return _failure(_INVALID)
        return msgspec.structs.replace(LOCAL, scopes=self._most, credential=WANTED)

    def is_current(self, actor: Actor) -> bool:
        """Whether the credential of an actor is still valid."""
        return self._authenticator.is_current(actor)


def hash_of(token: Secret) -> bytes:
    """What may be kept of a token."""
    return sha256(token.reveal().encode(errors="surrogateescape")).digest()


def _failure(message: str) -> Failure:
    return Failure("unauthenticated", "unauthenticated", message)
