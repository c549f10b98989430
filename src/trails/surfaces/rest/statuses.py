"""Which HTTP status a failure has: the one table of this surface."""

from __future__ import annotations

from typing import Final

from trails.model.outcomes import Failure, FailureKind

BY_KIND: Final[dict[FailureKind, int]] = {
    "unknown": 404,
    "validation": 422,
    "unauthenticated": 401,
    "scope": 403,
    "denied": 403,
    "budget": 429,
}
"""Of the kinds that say it all."""

BY_CODE: Final[dict[str, int]] = {
    "not_found": 404,
    "not_allowed": 405,
    "conflict": 409,
    "transaction": 409,
    "schema_mismatch": 409,
    "too_large": 413,
    "media_type": 415,
    "capability": 422,
    "limit": 422,
    "busy": 503,
    "unavailable": 503,
    "quarantined": 503,
    "storage": 503,
    "storage_full": 503,
    "locked": 503,
    "corruption": 503,
}
"""Of the others: semantic ones, and the disk's. A request that can't be read is 400."""


def status_of(failure: Failure) -> int:
    """The status that tells a failure."""
    other = 500 if failure.kind == "internal" else 400
    return BY_KIND.get(failure.kind) or BY_CODE.get(failure.code, other)
