"""Tokens at places of an HTTP request that others keep: its address, and headers."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from trails.model.secrets import holds_token


def has_misplaced_token(scope: Scope) -> bool:
    """Whether a token stands anywhere else, bodies apart, once the credential is taken out."""
    query: bytes = scope["query_string"]
    given = [value for _, value in scope["headers"]]
    if b"%" in query:
        given.append(unquote_to_bytes(query))
    return holds_token(b"\n".join((scope["path"].encode(errors="replace"), query, *given)))
