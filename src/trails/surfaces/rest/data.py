"""Data: instances by type and id, whole graphs in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

import msgspec
from starlette.responses import Response, StreamingResponse

from trails.model.outcomes import Failure
from trails.model.resources import Content
from trails.surfaces.rest.arguments import query_arguments
from trails.surfaces.rest.bodies import bounded, media_type, wrong_type
from trails.surfaces.rest.replies import Refused, refuse, refused, reply
from trails.surfaces.rest.routing import Call

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
    page, *rest = await _read(call, "type")
    following = parse_qs(urlsplit(rest[0].uri).query)["cursor"][0] if rest else None
    body = b'{"instances":%s,"next":%s}' % (page.text.encode(), msgspec.json.encode(following))
    return Response(body, media_type=page.mime_type)


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
    place: tuple[str, ...] = () if branch is None else ("branch", branch)
    if snapshot is not None:
        place = ("at", snapshot)
    path = "/".join(_encoded(each) for each in (*place, "kg", *map(call.part, parts)))
    query = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in given.items())
    uri = f"trails://{path}?{query}" if query else f"trails://{path}"
    found = await call.backend.read(call.actor, uri)
    if isinstance(found, Failure):
        raise Refused(found)
    return found


def _encoded(text: str) -> str:
    return quote(text, safe="")


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
    body = bounded(call.request, MAX_LOAD)
    return reply(await call.backend.load(call.actor, body, given, coding=_CODINGS[coding]))


async def export(call: Call) -> Response:
    """A branch or snapshot as a file."""
    given = {"format": "ndjson", **query_arguments(call, lists=("type",))}
    found = await call.backend.export(call.actor, given)
    if isinstance(found, Failure):
        return refuse(found)
    return StreamingResponse(found, media_type=_EXPORTS.get(str(given["format"])))
