"""Outcomes as HTTP responses, with the one table of status codes of this surface.

Every error is a problem of RFC 9457 (``projections/problems.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from time import time
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from trails.errors import TrailsError
from trails.model.capabilities import Deprecation
from trails.model.names import portable_name
from trails.model.origins import COMMIT, MADE
from trails.model.results import Failure, FailureKind, Outcome
from trails.projections.problems import PROBLEM, project_problem

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
    "not_acceptable": 406,
    "timeout": 408,
    "conflict": 409,
    "transaction": 409,
    "schema_mismatch": 409,
    "migration": 409,
    "source": 409,
    "stale": 410,
    "precondition_failed": 412,
    "not_executed": 424,
    "too_large": 413,
    "media_type": 415,
    "range": 416,
    "capability": 422,
    "limit": 422,
    "busy": 503,
    "lagging": 503,
    "unavailable": 503,
    "embedding": 503,
    "quarantined": 503,
    "storage": 503,
    "storage_full": 503,
    "behind": 503,
    "unwritable": 503,
    "locked": 503,
    "log_unavailable": 503,
    "outcome_unknown": 503,
    "not_ready": 503,
    "corruption": 503,
}
"""Of semantic failures, and of a disk that refuses; any other code is a request that can't be
read: 400."""


def status_of(failure: Failure) -> int:
    """The HTTP status of a failure."""
    if failure.kind in {"semantic", "internal"}:
        return BY_CODE.get(failure.code, BY_KIND.get(failure.kind, 400))
    return BY_KIND[failure.kind]


JSON: Final = "application/json"
_AGAIN: Final = {429: 60, 503: 1}
"""Seconds after which it may be worth trying again, where the failure does not say."""


class Refused(TrailsError):  # noqa: N818 - it carries a failure out of a handler
    """A request that goes no further."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, **failure.data)
        self.code = failure.code
        self.failure = failure


def refused(code: str, message: str) -> Refused:
    """A request that can't be read as it is."""
    return Refused(Failure("semantic", code, message))


def reply(outcome: Outcome, *, status: int = 200) -> Response:
    """A result as it is; a failure goes no further."""
    if isinstance(outcome, Failure):
        raise Refused(outcome)
    headers = commit_header(outcome.commit, made=outcome.made)
    return Response(outcome.body, status, headers, media_type=JSON)


def commit_header(commit: str | None, *, made: bool = False) -> dict[str, str]:
    """The header with the commit that an answer shows, or has made."""
    return {COMMIT: commit + MADE * made} if commit else {}


def refuse(failure: Failure, headers: Mapping[str, str] | None = None) -> Response:
    """The one form of an error."""
    status = status_of(failure)
    given = dict(headers or {})
    if status in _AGAIN:
        seconds = failure.data.get("retry_after")
        given["Retry-After"] = str(seconds if isinstance(seconds, int) else _AGAIN[status])
    body = project_problem(status, failure.code, failure.message, failure.data)
    return Response(body, status, given, media_type=PROBLEM)


async def refuse_http(request: Request, error: Exception) -> Response:
    """The error for a request that no route answers, in the same form."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    headers = error.headers if isinstance(error, HTTPException) else None
    path = request.url.path[:200]
    if status == 405:
        message = f"Method {request.method[:20]} not allowed for {path}."
        return refuse(Failure("semantic", "not_allowed", message), headers)
    message = f"Nothing found at {path}. Paths of a graph look like /graphs/main/snapshot."
    return refuse(Failure("semantic", "not_found", message), headers)


# --- deprecated calls ------------------------------------------------------------------------

_STARTED: Final = int(time())
"""Since when a capability is deprecated at the latest, where its successor names no date."""


def deprecation_headers(deprecated: Mapping[str, Deprecation], name: str) -> dict[str, str]:
    """The headers of the answer to a call, by a name in any spelling (RFC 9745, RFC 8594)."""
    found = deprecated.get(name)
    if found is None:
        spelled = portable_name(name)
        matching = (each for key, each in deprecated.items() if portable_name(key) == spelled)
        found = next(matching, None)
    if found is None:
        return {}
    since = int(_midnight(found.since).timestamp()) if found.since else _STARTED
    headers = {
        "Deprecation": f"@{since}",
        "Link": f'<{quote(found.by, safe="")}>; rel="successor-version"',
    }
    if found.sunset:
        headers["Sunset"] = format_datetime(_midnight(found.sunset), usegmt=True)
    return headers


def _midnight(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)
