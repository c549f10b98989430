"""Conditional requests (RFC 9110, section 13), idempotency keys, and links to next pages.

The tag of a read is ``"<commit>.<digest>"``: the commit that was read, and a digest of the body,
which also depends on the format and on what the caller may see. ``If-None-Match`` compares all of
it. ``If-Match`` of a write compares the commit with the head of the branch. A header that a route
can't obey is refused, never ignored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from trails.model.results import Failure, Outcome
from trails.surfaces.rest.compression import GZIPPED
from trails.surfaces.rest.replies import JSON, Refused, commit_header, refused
from trails.surfaces.rest.routing import RestCall

EXPECTED: Final = "expected_head"
KEY: Final = "idempotency_key"
_TAG: Final = re.compile(r'(?:W/)?"([\x21\x23-\x7e]*)"')
_LARGE: Final = 1 << 20
"""Bytes above which a digest is made in a thread."""
_FRESH: Final = {"Cache-Control": "private, no-cache", "Vary": "Accept, Authorization"}
"""May be kept by the client itself, if it asks each time whether it is still right."""


# --- reads -------------------------------------------------------------------------------------


async def send_tagged(
    call: RestCall,
    body: bytes,
    commit: str | None,
    media_type: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A document with its tag, or 304 if the client has it."""
    digest = _digest(body) if len(body) < _LARGE else await asyncio.to_thread(_digest, body)
    tag = f"{commit}.{digest}" if commit else digest
    given = {**_FRESH, **commit_header(commit), **(headers or {})}
    for known in (tag, tag + GZIPPED):
        if _has(call.request, known):
            return Response(status_code=304, headers={**given, "ETag": f'"{known}"'})
    return Response(body, headers={**given, "ETag": f'"{tag}"'}, media_type=media_type)


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=12).hexdigest()


def _has(request: Request, tag: str) -> bool:
    """Whether a client has a representation (weak comparison)."""
    header = ", ".join(request.headers.getlist("if-none-match")).strip()
    return header == "*" or tag in _TAG.findall(header)


class _Call(msgspec.Struct):
    arguments: dict[str, object]


class _Paged(msgspec.Struct):
    next: _Call | None = None
    """The call that continues."""


def link_next(call: RestCall, following: str | None, parameter: str) -> dict[str, str]:
    """The header that leads to the next page: this request with another cursor."""
    if following is None:
        return {}
    given = [each for each in call.request.query_params.multi_items() if each[0] != parameter]
    return {"Link": f'<?{urlencode([*given, (parameter, following)])}>; rel="next"'}


async def next_of(body: bytes, parameter: str) -> str | None:
    """The cursor of the next page in a document, if it has one."""
    if len(body) < _LARGE:
        return _next_of(body, parameter)
    return await asyncio.to_thread(_next_of, body, parameter)


def _next_of(body: bytes, parameter: str) -> str | None:
    try:
        found = msgspec.json.decode(body, type=_Paged).next
    except msgspec.DecodeError:
        return None
    cursor = None if found is None else found.arguments.get(parameter)
    return cursor if isinstance(cursor, str) else None


# --- writes ------------------------------------------------------------------------------------


def header_arguments(request: Request, accepted: Collection[str]) -> dict[str, object]:
    """The arguments of a write that its headers give; ``accepted``: those that it has."""
    found: dict[str, object] = {}
    keys = request.headers.getlist("idempotency-key")
    if keys:
        if KEY not in accepted:
            raise refused("header", "Idempotency-Key: this route can't repeat an answer by a key")
        if len(keys) > 1:
            raise refused("header", "Idempotency-Key is given twice; give it once")
        found[KEY] = _unquote(keys[0])
    matches = ", ".join(request.headers.getlist("if-match")).strip()
    if matches and matches != "*":
        if EXPECTED not in accepted:
            raise refused("header", "If-Match: this route can't be made to depend on a commit")
        found[EXPECTED] = _commit_of(matches)
    return found


def _unquote(text: str) -> str:
    """A key, which may be a string of a structured header field."""
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if quoted else text


def _commit_of(header: str) -> str:
    """The commit that an If-Match header names."""
    commits: set[str] = {each.partition(".")[0] for each in _TAG.findall(header)}
    if len(commits) != 1 or "" in commits:
        raise refused(
            "header",
            f"If-Match: {header[:200]} does not name one commit; send the ETag of a read, or a "
            'commit in quotation marks, "<commit>"',
        )
    return commits.pop()


def join_arguments(
    given: Mapping[str, object], from_headers: Mapping[str, object]
) -> dict[str, object]:
    """Arguments with those of headers; both may say the same, and must not differ."""
    for name, value in from_headers.items():
        if given.get(name) not in (None, value):
            raise refused("header", f"{name} is given twice, and its header says something else")
    return {**given, **from_headers}


def check_precondition(outcome: Outcome, from_headers: Mapping[str, object]) -> Outcome:
    """A write that found another head than If-Match named: its precondition failed."""
    if (
        EXPECTED in from_headers
        and isinstance(outcome, Failure)
        and outcome.code == "conflict"
        and outcome.data.get(EXPECTED) == from_headers[EXPECTED]
    ):
        return Failure("semantic", "precondition_failed", outcome.message, outcome.data)
    return outcome


def whole(outcome: Outcome) -> tuple[bytes, str | None]:
    """The body of a result and the commit that it shows; a failure goes no further."""
    if isinstance(outcome, Failure):
        raise Refused(outcome)
    return outcome.body, outcome.commit
