"""What an actor keeps of its access token: when it ends, which key signed it, and no part of it.

It says all that is needed to ask later whether the token is still good, in any process.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trails.model.actors import Actor

_PREFIX: Final = "oauth"


class Credential(msgspec.Struct, frozen=True):
    """A token that was taken."""

    expires: int
    """The last second of the token, without any leeway."""
    key: str
    """The thumbprint of the key that signed it."""
    mark: str
    """Tells tokens apart in one process; made from its hash and a secret of the process."""

    def __str__(self) -> str:
        """As an actor carries it."""
        return f"{_PREFIX}:{self.expires}:{self.key}:{self.mark}"


def is_vouched_for(actor: Actor) -> bool:
    """Whether an actor came with an access token of another issuer."""
    return actor.credential.startswith(f"{_PREFIX}:")


def credential_of(actor: Actor) -> Credential | None:
    """What an actor carries; None for one that came otherwise."""
    prefix, *parts = actor.credential.split(":")
    if prefix != _PREFIX or len(parts) != 3 or not parts[0].isdecimal():
        return None
    return Credential(int(parts[0]), parts[1], parts[2])
