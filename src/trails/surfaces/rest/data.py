"""Data: instances by type and id, whole graphs in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response, StreamingResponse

from trails.model.outcomes import Failure
from trails.model.resources import Content
from trails.surfaces.rest.arguments import query_arguments
from trails.surfaces.rest.bodies import media_type, without_tokens, wrong_type
from trails.surfaces.rest.replies import JSON, Refused, refused, reply
from trails.surfaces.rest.routing import Call
from trails.surfaces.rest.uris import join_page, place_problem, write_uri

MAX_LOAD: Final = 64 << 30
"""Bytes of one load: they go to disk, and are never in memory together."""
FORMATS: Final = {
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/turtle": "turtle",
    "application/n-triples": "ntriples",
    "application/n-quads": "nquads",
    "application/ld+json": "jsonld",
    "text/csv": "csv",
}
_EXPORTS: Final = {
    "ndjson": "application/x-ndjson",
    "turtle": "text/turtle",
    "nquads": "application/n-quads",
    "jsonld": "application/ld+json",
}
_CODINGS: Final = {"": "", "identity": "", "gzip": "gzip", "zstd": "zstd"}


async def list_instances(call: Call) -> Response:
    """A page of a type's instances, and the cursor of the next one."""
    return Response(join_page(await _read(call, "type")), media_type=JSON)


async def get_instance(call: Call) -> Response:
    """One instance as JSON-LD."""
    found = await _read(call, "type", "id")
    return Response(found[0].text, media_type=found[0].mime_type)


async def _read(call: Call, *parts: str) -> Sequence[Content]:
    """Read the URI that a path and its query string stand for."""
    given = {name: str(value) for name, value in query_arguments(call).items()}
    branch, snapshot = given.pop("branch", None), given.pop("snapshot", None)
    if branch is not None and snapshot is not None:
        raise refused("query_string", "branch and snapshot exclude each other; give one of them")
    problem = place_problem(branch, snapshot)
    if problem is not None:
        raise refused("query_string", problem)
    named = [call.part(each) for each in parts]
    uri = write_uri(named, given, branch=branch, snapshot=snapshot)
    found = await call.backend.read(call.actor, uri)
    if isinstance(found, Failure):
        raise Refused(found)
    return found


async def load(call: Call) -> Response:
    """Load the body in one commit, or not at all; it is never in memory as a whole."""
    given = query_arguments(call)
    media = media_type(call.request)
    if "format" not in given:
        if media not in FORMATS:
            raise wrong_type(media, *FORMATS)
        given["format"] = FORMATS[media]
    coding = call.request.headers.get("content-encoding", "").strip().lower()
    if coding not in _CODINGS:
        raise refused("media_type", f"the coding {coding[:50]!r} can't be read; gzip and zstd can")
    body = without_tokens(call.request, MAX_LOAD)
    return reply(
        await call.backend.transfers.load(call.actor, body, given, coding=_CODINGS[coding])
    )


async def export(call: Call) -> Response:
    """A branch or snapshot as a file."""
    given = {"format": "ndjson", **query_arguments(call, lists=("type",))}
    found = await call.backend.transfers.export(call.actor, given)
    if isinstance(found, Failure):
        raise Refused(found)
    return StreamingResponse(found, media_type=_EXPORTS.get(str(given["format"])))
