"""What a change of the graph did."""

from __future__ import annotations

from typing import Literal

import msgspec

Op = Literal["create", "update", "delete", "upsert"]


class Applied(msgspec.Struct, frozen=True):
    """What one typed operation did, and to which node."""

    op: Op
    type: str
    id: str
    handle: str


class Mutation(msgspec.Struct, frozen=True):
    """The result of a call: its commit, None when nothing changed, and the nodes."""

    commit: str | None
    applied: tuple[Applied, ...] = ()
    replayed: bool = False
    """The idempotency key was known: the commit is the earlier one, nothing was done now."""
