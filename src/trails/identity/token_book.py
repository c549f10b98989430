"""The tokens of a project while it is served: looked up often, read again when they change."""

from __future__ import annotations

import logging
from hmac import compare_digest
from pathlib import Path
from time import monotonic, time
from typing import Final, NamedTuple

from trails.errors import CorruptionError
from trails.identity.token_files import StoredToken, TokenFile
from trails.identity.tokens import hash_of, split_token
from trails.model.actors import Actor
from trails.model.secrets import Secret

_PAUSE: Final = 1.0
"""Seconds between two looks at the file."""
_Stamp = tuple[int, int, int]
_logger: Final = logging.getLogger("trails")


class _Known(NamedTuple):
    """A token as it is looked up."""

    actor: Actor
    hash: bytes
    ends: float
    """When, in seconds since 1970; a revoked one has ended long ago."""


_NOBODY: Final = _Known(Actor(""), bytes(32), 0.0)
"""What is compared where there is no record."""


_NEVER: Final[_Stamp] = (-2, -2, -2)
"""The stamp of a file that was not looked at."""


class TokenBook:
    """Whose token is whose, as the file says now.

    A file that can't be read is as if every token had been revoked: nobody gets in by breaking it.
    """

    def __init__(self, data: Path) -> None:
        """``data``: the project's ``.trails``."""
        self._file = TokenFile(data)
        self._tokens: dict[str, _Known] = {}
        self._stamp: _Stamp | None = _NEVER
        self._looked = float("-inf")
        self._configured = False

    @property
    def configured(self) -> bool:
        """Whether there ever was a token, or something is wrong with the file of tokens."""
        self._refresh()
        return self._configured

    def find(self, token: Secret) -> Actor | None:
        """Whose token it is, with the token's id as ``credential``; None for one that is not good.

        It takes the same time whether there is such an id or not.
        """
        self._refresh()
        split = split_token(token)
        if split is None:
            return None
        known = self._tokens.get(split[0], _NOBODY)
        same = compare_digest(hash_of(split[1].reveal()), known.hash)
        return known.actor if same and time() < known.ends else None

    def is_current(self, actor: Actor) -> bool:
        """Whether the token that an actor came with is still good, and still says the same."""
        self._refresh()
        known = self._tokens.get(actor.credential, _NOBODY)
        now = known.actor
        same = now.name == actor.name and now.groups == actor.groups
        return same and actor.scopes <= now.scopes and time() < known.ends

    def _refresh(self) -> None:
        """Look whether the file is another one, from time to time."""
        now = monotonic()
        if now < self._looked + _PAUSE:
            return
        self._looked = now
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            self._read()

    def _look(self) -> _Stamp | None:
        try:
            found = self._file.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return (-1, -1, error.errno or 0)
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    def _read(self) -> None:
        try:
            found = self._file.read()
        except CorruptionError as error:
            self._tokens, self._configured = {}, True
            _logger.error("%s", error.message)  # noqa: TRY400 - the trace says nothing more
            return
        if self._configured and not found:
            _logger.error("%s is gone or empty: no token is taken", self._file.path)
        self._configured = self._configured or bool(found)
        self._tokens = {each.id: _know(each) for each in found}


def _know(token: StoredToken) -> _Known:
    ends = float("inf") if token.expires is None else token.expires.timestamp()
    return _Known(
        Actor(token.actor, frozenset(token.scopes), frozenset(token.groups), token.id),
        bytes.fromhex(token.hash),
        ends if token.revoked is None else 0.0,
    )
