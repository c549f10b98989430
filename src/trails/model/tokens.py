"""Tokens as people see them: whose they are and what they permit, never what they are."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from trails.model.capabilities import Scope
from trails.model.secrets import Secret

TokenState = Literal["valid", "expired", "revoked"]


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token."""

    id: str
    """Names it, opens nothing."""
    actor: str
    groups: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ("runtime",)
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None

    def state(self, now: datetime) -> TokenState:
        """Whether it is good at some time, or why not."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "valid"


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is asked for."""

    actor: str
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("runtime",)
    expires: str | None = None
    """A duration (``30d``) or a time; never if it is None."""


class IssuedToken(msgspec.Struct, frozen=True):
    """A new token: the only time that it can be shown."""

    record: TokenRecord
    token: Secret
