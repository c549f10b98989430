"""Tokens at places of an HTTP request that others keep: its address, and headers."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from trails.model.secrets import holds_token

AUTHORIZATION: Final = b"authorization"


def has_misplaced_token(scope: Scope) -> bool:
    """Whether a token stands anywhere but where it belongs, bodies apart."""
    address = b"%b?%b" % (scope["path"].encode(errors="replace"), scope["query_string"])
    if b"%" in address:
        address += unquote_to_bytes(address)
    return holds_token(address) or any(
        holds_token(name) or holds_token(value)
        for name, value in scope["headers"]
        if name != AUTHORIZATION
    )
