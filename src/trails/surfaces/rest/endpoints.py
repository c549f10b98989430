"""Handlers of the routes: tools, queries, changes, instances, files and records of built-ins.

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

_NUMBERS: Final = frozenset({"limit", "offset"})
_FLAGS: Final = frozenset({"force", "dry_run", "all_branches"})
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_TRUTHS: Final = {"true": True, "false": False}


def query_arguments(call: RestCall, *, lists: Collection[str] = ()) -> dict[str, object]:
    """The query string: numbers and truth values as such, ``lists`` as lists."""
    found: dict[str, object] = {}
    for name, text in call.request.query_params.multi_items():
        if name in lists:
            known = found.setdefault(name, [])
            assert isinstance(known, list)  # noqa: S101 - set by the line above
            known.append(text)
        elif name in found:
            raise refused("query_string", f"{name[:100]!r} is given twice; give it once")
        else:
            found[name] = _value(name, text)
    return found


def query_texts(call: RestCall) -> dict[str, list[str]]:
    """The query string as it is: every text of every name."""
    found: dict[str, list[str]] = {}
    for name, text in call.request.query_params.multi_items():
        found.setdefault(name, []).append(text)
    return found


def _value(name: str, text: str) -> object:
    if name in _NUMBERS and _WHOLE.fullmatch(text):
        return int(text)
    if name in _FLAGS:
        return _TRUTHS.get(text, text)
    return text


async def record(call: RestCall, name: str, arguments: Mapping[str, object]) -> Response:
    """The record of a built-in."""
    return reply(await call.backend.transfers.record(call.actor, name, arguments))


def call_with_query(
    name: str, /, fixed: Mapping[str, object] | None = None, **parts: str
) -> Handler:
    """Call a built-in with arguments from the query string, and ``parts`` of the path."""

    async def answer(call: RestCall) -> Response:
        given = {argument: call.part(part) for argument, part in parts.items()}
        return await record(call, name, {**query_arguments(call), **given, **(fixed or {})})

    return answer


def call_with_body(name: str) -> Handler:
    """Call a built-in with the body as its arguments."""

    async def answer(call: RestCall) -> Response:
        return await record(call, name, await read_object(call))

    return answer


async def diff_branch(call: RestCall) -> Response:
    """What a branch has that ``main``, or ``from``, has not."""
    given = {"from": "main", **query_arguments(call), "to": call.part("branch")}
    return await record(call, "graph_diff", given)


_QUERY: Final = "application/sparql-query"
_UPDATE: Final = "application/sparql-update"


async def list_capabilities(call: RestCall) -> Response:
    """Everything that this caller can invoke, with schemas."""
    tools = call.backend.tools(call.actor).tools
    return Response(msgspec.json.encode({"capabilities": tools}), media_type=JSON)


async def invoke(call: RestCall) -> Response:
    """Call anything by its name; the body has its arguments."""
    arguments = await read_object(call)
    return reply(await call.backend.execute(call.actor, call.part("name"), arguments))


async def snapshot(call: RestCall) -> Response:
    """What the graph holds: types and counts."""
    arguments = query_arguments(call)
    return reply(await call.backend.execute(call.actor, "graph_snapshot", arguments))


async def query_by_name(call: RestCall) -> Response:
    """Run a stored query; the body has ``params``, ``branch`` and ``snapshot``."""
    return await _run(call, await read_object(call))


async def query_by_link(call: RestCall) -> Response:
    """Run a stored query; the query string has its parameters."""
    texts = query_texts(call)
    around: dict[str, object] = {
        name: texts.pop(name)[0] for name in ("branch", "snapshot") if name in texts
    }
    given = {**around, "params": texts, "name": call.part("name")}
    return await record(call, "stored_query_link", given)


async def _run(call: RestCall, arguments: Mapping[str, object]) -> Response:
    return await record(call, "stored_query_run", {**arguments, "name": call.part("name")})


async def query(call: RestCall) -> Response:
    """Run a query text."""
    return await _text_call(call, "graph_query", _QUERY, "query")


async def mutate(call: RestCall) -> Response:
    """Change the graph in one commit."""
    return await _text_call(call, "graph_mutate", _UPDATE, "update")


async def _text_call(call: RestCall, name: str, media: str, argument: str) -> Response:
    """Arguments in a JSON object, or a text by itself with the others in the query string."""
    if media_type(call.request) == media:
        arguments = {**query_arguments(call), argument: await read_text(call)}
    else:
        arguments = await read_object(call)
    return await record(call, name, arguments)


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
    given = {name: str(value) for name, value in query_arguments(call).items()}
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
