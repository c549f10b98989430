"""Tokens at places of an HTTP request that others keep: its address, and headers.

A token of a project is known by its form. The one that came with a request is looked for by its
text as well (of a project's, by its secret part), here and where the body is read.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from trails.model.secrets import PRESENTED, Secret, holds_token


@lru_cache(256)
def presented_in(authorization: bytes) -> Secret:
    """The token of an ``Authorization`` header."""
    return Secret(authorization.strip().partition(b" ")[2].strip().decode(errors="surrogateescape"))


def has_misplaced_token(scope: Scope) -> bool:
    """Whether a token stands anywhere else, bodies apart, once the credential is taken out."""
    query: bytes = scope["query_string"]
    given = [value for _, value in scope["headers"]]
    if b"%" in query:
        given.append(unquote_to_bytes(query))
    path = scope["path"].encode(errors="replace")
    return holds_token(b"\n".join((path, query, *given)), scope.get(PRESENTED))
