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
    "internal": 500,
}
"""Of every kind but ``semantic``."""

BY_CODE: Final[dict[str, int]] = {
    "forbidden": 403,
    "read_only": 403,
    "not_found": 404,
    "not_allowed": 405,
    "timeout": 408,
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
    "behind": 503,
    "unwritable": 503,
    "locked": 503,
    "corruption": 503,
}
"""Of semantic failures, and of a disk that refuses; any other code is a request that can't be
read: 400."""


def status_of(failure: Failure) -> int:
    """The status that tells a failure."""
    if failure.kind in {"semantic", "internal"}:
        return BY_CODE.get(failure.code, BY_KIND.get(failure.kind, 400))
    return BY_KIND[failure.kind]
