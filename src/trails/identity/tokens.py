"""The text of a token: ``trails_<id>_<secret>``. The id finds its record, the secret proves it."""

from __future__ import annotations

import re
from hashlib import sha256
from secrets import token_hex, token_urlsafe
from typing import Final, NamedTuple

from trails.model.secrets import Secret

_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
"""256 bits: more than can be guessed, so a plain hash keeps it."""
_TEXT: Final = re.compile(r"trails_([0-9a-f]{12})_([A-Za-z0-9_-]{43,128})", re.ASCII)


class NewToken(NamedTuple):
    """A token that nobody has seen yet."""

    id: str
    hash: str
    token: Secret


def make_token() -> NewToken:
    """A token from the system's source of randomness."""
    id_, secret = token_hex(_ID_BYTES), token_urlsafe(_SECRET_BYTES)
    return NewToken(id_, hash_of(secret).hex(), Secret(f"trails_{id_}_{secret}"))


def split_token(token: Secret) -> tuple[str, Secret] | None:
    """The id and the secret of a token; None for a text that is none."""
    found = _TEXT.fullmatch(token.reveal())
    return None if found is None else (found[1], Secret(found[2]))


def hash_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return sha256(secret.encode()).digest()
