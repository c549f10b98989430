"""Handlers of the routes: built-ins by their declarations, tools, instances and files.

Each builds the arguments of one call from path, query string and body. A value that cannot be
converted stays text, so that the check of the call itself reports it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from starlette.responses import Response, StreamingResponse

from trails.model.results import Failure
from trails.model.uris import Content
from trails.request.builtins.declare import Builtin, Route
from trails.surfaces.rest.bodies import (
    media_type,
    read_object,
    read_text,
    without_tokens,
    wrong_type,
)
from trails.surfaces.rest.replies import JSON, Refused, refused, reply
from trails.surfaces.rest.routing import Handler, RestCall
from trails.surfaces.rest.uris import join_page, place_problem, write_uri

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_TRUTHS: Final = {"true": True, "false": False}


def query_arguments(
    call: RestCall,
    *,
    lists: Collection[str] = (),
    numbers: Collection[str] = (),
    flags: Collection[str] = (),
) -> dict[str, object]:
    """The query string, with the named arguments as lists, numbers and booleans."""
    found: dict[str, object] = {}
    for name, text in call.request.query_params.multi_items():
        if name in lists:
            known = found.setdefault(name, [])
            assert isinstance(known, list)  # noqa: S101 - set by the line above
            known.append(text)
        elif name in found:
            raise refused("query_string", f"{name[:100]!r} is given twice; give it once")
        else:
            found[name] = (
                int(text)
                if name in numbers and _WHOLE.fullmatch(text)
                else _TRUTHS.get(text, text)
                if name in flags
                else text
            )
    return found


def query_texts(call: RestCall) -> dict[str, list[str]]:
    """The query string as it is: every text of every name."""
    found: dict[str, list[str]] = {}
    for name, text in call.request.query_params.multi_items():
        found.setdefault(name, []).append(text)
    return found


def operation_handler(
    operation: Builtin, route: Route, fixed: Mapping[str, str] | None = None
) -> Handler:
    """Call a built-in as one of its routes declares; ``fixed`` has parts of the path."""
    parts = [] if fixed else path_parameters(route.path)
    kinds = {each.name: each.type.kind for each in operation.fields}
    numbers = frozenset(name for name, kind in kinds.items() if kind == "Int")
    flags = frozenset(name for name, kind in kinds.items() if kind == "Bool")
    controls = frozenset(each.name for each in operation.controls)

    async def arguments(call: RestCall) -> Mapping[str, object]:
        if route.gathers is not None:
            texts = query_texts(call)
            around: dict[str, object] = {
                name: texts.pop(name)[0] for name in controls & texts.keys()
            }
            return {**around, route.gathers: texts}
        if route.method != "POST":
            return query_arguments(call, numbers=numbers, flags=flags)
        if route.text is not None and media_type(call.request) == route.text[1]:
            given = query_arguments(call, numbers=numbers, flags=flags)
            return {**given, route.text[0]: await read_text(call)}
        return await read_object(call)

    async def answer(call: RestCall) -> Response:
        path = {part: call.part(part) for part in parts}
        given = {**route.defaults, **await arguments(call), **path, **(fixed or {})}
        return reply(await call.backend.transfers.record(call.actor, operation.name, given))

    return answer


def path_parameters(path: str) -> list[str]:
    """The arguments in the path of a route."""
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


async def list_capabilities(call: RestCall) -> Response:
    """Everything that this caller can invoke, with schemas."""
    tools = call.backend.tools(call.actor).tools
    return Response(msgspec.json.encode({"capabilities": tools}), media_type=JSON)


async def invoke(call: RestCall) -> Response:
    """Call anything by its name; the body has its arguments."""
    arguments = await read_object(call)
    return reply(await call.backend.execute(call.actor, call.part("name"), arguments))


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


async def list_instances(call: RestCall) -> Response:
    """A page of a type's instances, and the cursor of the next one."""
    return Response(join_page(await _read(call, "type")), media_type=JSON)


async def get_instance(call: RestCall) -> Response:
    """One instance as JSON-LD."""
    found = await _read(call, "type", "id")
    return Response(found[0].text, media_type=found[0].mime_type)


async def _read(call: RestCall, *parts: str) -> Sequence[Content]:
    """Read the URI that a path and its query string denote."""
    asked = query_arguments(call, numbers=("limit", "offset"))
    given = {name: str(value) for name, value in asked.items()}
    branch, snapshot = given.pop("branch", None), given.pop("snapshot", None)
    if branch is not None and snapshot is not None:
        raise refused(
            "query_string", "branch and snapshot are mutually exclusive; give one of them"
        )
    problem = place_problem(branch, snapshot)
    if problem is not None:
        raise refused("query_string", problem)
    named = [call.part(each) for each in parts]
    uri = write_uri(named, given, branch=branch, snapshot=snapshot)
    found = await call.backend.read(call.actor, uri)
    if isinstance(found, Failure):
        raise Refused(found)
    return found


async def load(call: RestCall) -> Response:
    """Load the body in one commit, or not at all; it is never in memory as a whole."""
    given = query_arguments(call)
    media = media_type(call.request)
    if "format" not in given:
        if media not in FORMATS:
            raise wrong_type(media, *FORMATS)
        given["format"] = FORMATS[media]
    coding = call.request.headers.get("content-encoding", "").strip().lower()
    if coding not in _CODINGS:
        message = f"unsupported content encoding {coding[:50]!r}; use gzip or zstd"
        raise refused("media_type", message)
    body = without_tokens(call.request, MAX_LOAD)
    return reply(
        await call.backend.transfers.load(call.actor, body, given, coding=_CODINGS[coding])
    )


async def export(call: RestCall) -> Response:
    """A branch or snapshot as a file."""
    given = {"format": "ndjson", **query_arguments(call, lists=("type",))}
    found = await call.backend.transfers.export(call.actor, given)
    if isinstance(found, Failure):
        raise Refused(found)
    return StreamingResponse(found, media_type=_EXPORTS.get(str(given["format"])))
