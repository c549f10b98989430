"""The table of routes, and the ASGI application that serves them.

The routes of built-ins are in their declarations (``request/builtins``); those of streams and of
what is not a built-in are here. Each handler builds the arguments of one call from path, query
string and body. A value that cannot be converted stays text, so that the check of the call itself
reports it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Final, cast
from urllib.parse import quote

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from trails.model.actors import MAX_BODY
from trails.model.fairness import LargeBodies
from trails.model.replies import Take
from trails.model.results import Failure
from trails.model.types import MAP
from trails.model.uris import Content
from trails.projections.pages import HTML, PAGE_HEADERS
from trails.projections.problems import ERRORS_PATH, project_problem_index, project_problem_page
from trails.request.builtins.declare import Builtin, Route
from trails.request.builtins.sparql import SPARQL
from trails.request.monitor import Monitor
from trails.request.operations import OPERATIONS
from trails.request.resources.representations import RecordForm, RecordFormat
from trails.request.transfers import (
    BLOB_CONTENT,
    BLOB_PUT,
    CONTENT,
    EXPORT,
    EXPORT_TYPES,
    LOAD,
    LOAD_TYPES,
)
from trails.surfaces.rest import cards
from trails.surfaces.rest.backend import (
    ServedFile,
    join_page,
    next_cursor,
    write_uri,
)
from trails.surfaces.rest.batches import batch
from trails.surfaces.rest.bodies import (
    media_type,
    read_object,
    read_text,
    without_tokens,
    wrong_type,
)
from trails.surfaces.rest.changes import CHANGES, changes
from trails.surfaces.rest.compression import Compressor
from trails.surfaces.rest.conditions import (
    EXPECTED,
    KEY,
    check_precondition,
    header_arguments,
    join_arguments,
    link_next,
    next_of,
    send_tagged,
    whole,
)
from trails.surfaces.rest.documents import (
    read_doctor,
    read_plugin,
    read_schema,
    read_stats,
    take_place,
)
from trails.surfaces.rest.health import health_routes
from trails.surfaces.rest.invoking import administer, invoke, take_invocation
from trails.surfaces.rest.landing import LANDING_PATH, landing
from trails.surfaces.rest.manual import manual_routes
from trails.surfaces.rest.negotiation import Representation, choose_form
from trails.surfaces.rest.openapi import OPENAPI_PATH, REFERENCE_PATH, openapi, reference_page
from trails.surfaces.rest.provenance import provenance
from trails.surfaces.rest.query_strings import query_arguments, query_texts
from trails.surfaces.rest.replies import (
    JSON,
    Refused,
    refuse,
    refuse_http,
    refused,
    reply,
)
from trails.surfaces.rest.routing import (
    REGISTRY,
    Graphs,
    Handler,
    Lists,
    Methods,
    RestCall,
    RouteTree,
    SegmentRoute,
    graph_route,
    visible_to_all,
)
from trails.surfaces.rest.sparql import sparql


def operation_handler(
    operation: Builtin, route: Route, fixed: Mapping[str, str] | None = None
) -> Handler:
    """Call a built-in as one of its routes declares; ``fixed`` has parts of the path."""
    parts = [] if fixed else path_parameters(route.path)
    taken = (*operation.fields, *operation.controls, *operation.unlisted)
    kinds = {each.name: each.type.kind for each in taken}
    numbers = frozenset(name for name, kind in kinds.items() if kind == "Int")
    flags = frozenset(name for name, kind in kinds.items() if kind == "Bool")
    lists = frozenset(each.name for each in operation.fields if each.type.item is not None)
    objects = frozenset(name for name, kind in kinds.items() if kind == MAP)
    read_query = partial(
        query_arguments, lists=lists, numbers=numbers, flags=flags, objects=objects
    )
    controls = frozenset(each.name for each in operation.controls)
    writes = not operation.hints.read_only
    following = next((each for each in ("cursor", "after") if each in kinds), "")

    async def arguments(call: RestCall) -> Mapping[str, object]:
        if route.gathers is not None:
            texts = query_texts(call)
            around: dict[str, object] = {
                name: texts.pop(name)[0] for name in controls & texts.keys()
            }
            return {**around, route.gathers: texts}
        if route.method != "POST":
            return read_query(call)
        if route.text is not None and media_type(call.request) == route.text[1]:
            given = read_query(call)
            return {**given, route.text[0]: await read_text(call)}
        return await read_object(call)

    async def answer(call: RestCall) -> Response:
        path = {part: call.part(part) for part in parts}
        given = {**route.defaults, **await arguments(call), **path, **(fixed or {})}
        if route.method == "GET":
            outcome = await call.backend.transfers.record(call.actor, operation.name, given)
            body, commit = whole(outcome)
            links = link_next(call, await next_of(body, following), following) if following else {}
            return await send_tagged(call, body, commit, headers=links)
        headers = header_arguments(call.request, kinds) if writes else {}
        outcome = await call.backend.transfers.record(
            call.actor, operation.name, join_arguments(given, headers)
        )
        return reply(check_precondition(outcome, headers))

    return answer


def path_parameters(path: str) -> list[str]:
    """The arguments in the path of a route."""
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


async def list_capabilities(call: RestCall) -> Response:
    """Everything that this caller can invoke, with schemas."""
    found = call.backend.tools(call.actor)
    body = msgspec.json.encode({"capabilities": found.tools, "registry": found.registry})
    return Response(body, headers={REGISTRY: found.registry}, media_type=JSON)


MAX_LOAD: Final = 64 << 30
"""Bytes of one load: they go to disk, and are never in memory together."""
_CODINGS: Final = {"": "", "identity": "", "gzip": "gzip", "zstd": "zstd"}


_JSON_LD: Final = Representation("jsonld", "application/ld+json")
_TURTLE: Final = Representation("turtle", "text/turtle; charset=utf-8", ("application/x-turtle",))
INSTANCES: Final = (_JSON_LD, Representation("json", JSON), _TURTLE)
"""The forms of an instance, the default first."""
LISTS: Final = (
    Representation("json", JSON),
    _JSON_LD,
    _TURTLE,
    Representation("csv", "text/csv; charset=utf-8"),
)
"""The forms of a list."""


async def list_instances(call: RestCall) -> Response:
    """A page of a type's instances, and the cursor of the next one."""
    shown = choose_form(call.request, LISTS)
    found = await _read(call, RecordForm(_format(shown, "json"), _fields(call)), "type")
    links = link_next(call, next_cursor(found), "cursor")
    body = join_page(found) if shown.name == "json" else found[0].text.encode()
    return await send_tagged(call, body, found[0].commit, shown.media_type, links)


async def get_instance(call: RestCall) -> Response:
    """One instance: JSON-LD, if the client does not prefer something else."""
    shown = choose_form(call.request, INSTANCES)
    form = RecordForm(_format(shown, "jsonld"), _fields(call))
    found = (await _read(call, form, "type", "id"))[0]
    return await send_tagged(call, found.text.encode(), found.commit, shown.media_type)


def _format(shown: Representation, default: RecordFormat) -> RecordFormat | None:
    """The format, None for the one that URIs have anyway."""
    return None if shown.name == default else cast(RecordFormat, shown.name)


def _fields(call: RestCall) -> tuple[str, ...]:
    """The fields that a query string asks for, separated by commas; none means all."""
    given = call.request.query_params.getlist("fields")
    names = [each.strip() for text in given for each in text.split(",")]
    if "" in names:
        raise refused("query_string", "fields has an empty name; write fields=one,another")
    return tuple(dict.fromkeys(names))


async def _read(call: RestCall, form: RecordForm, *parts: str) -> Sequence[Content]:
    """Read the URI that a path and its query string denote."""
    asked = query_arguments(call, numbers=("limit", "offset"), lists=("fields",))
    given = {name: str(value) for name, value in asked.items() if name != "fields"}
    branch, snapshot = take_place(given)
    named = [call.part(each) for each in parts]
    uri = write_uri(named, given, branch=branch, snapshot=snapshot)
    found = await call.backend.read_whole(call.actor, uri, form)
    if isinstance(found, Failure):
        raise Refused(found)
    return found


async def load(call: RestCall) -> Response:
    """Load the body in one commit, or not at all; it is never in memory as a whole."""
    given = query_arguments(call, flags=("dry_run", "propose"))
    media = media_type(call.request)
    if "format" not in given:
        if media not in LOAD_TYPES:
            raise wrong_type(media, *LOAD_TYPES)
        given["format"] = LOAD_TYPES[media]
    coding = call.request.headers.get("content-encoding", "").strip().lower()
    if coding not in _CODINGS:
        message = f"unsupported content encoding {coding[:50]!r}; use gzip or zstd"
        raise refused("media_type", message)
    headers = header_arguments(call.request, (EXPECTED, KEY))
    arguments = join_arguments(given, headers)
    body = without_tokens(call.request, MAX_LOAD)
    outcome = await call.backend.transfers.load(
        call.actor, body, arguments, coding=_CODINGS[coding]
    )
    return reply(check_precondition(outcome, headers))


async def export(call: RestCall) -> Response:
    """A branch or snapshot as a file."""
    given = {"format": "ndjson", **query_arguments(call, lists=("type",))}
    found = await call.backend.transfers.export(call.actor, given)
    if isinstance(found, Failure):
        raise Refused(found)
    return StreamingResponse(found, media_type=EXPORT_TYPES.get(str(given["format"])))


async def export_content(call: RestCall) -> Response:
    """The file of an export, or a range of it."""
    found = await call.backend.transfers.content(call.actor, call.part("export"))
    if isinstance(found, Failure):
        raise Refused(found)
    return send_content(call, found)


async def blob_content(call: RestCall) -> Response:
    """The blob that a field of a record names, or a range of it."""
    named = {part: call.part(part) for part in ("type", "id", "field")}
    found = await call.backend.transfers.blob(call.actor, {**query_arguments(call), **named})
    if isinstance(found, Failure):
        raise Refused(found)
    return send_content(call, found)


async def put_blob(call: RestCall) -> Response:
    """Keep the body as a blob; its media type is what the sender says."""
    given = query_arguments(call)
    given.setdefault("media_type", call.request.headers.get("content-type", ""))
    if not given["media_type"]:
        del given["media_type"]
    body = without_tokens(call.request, call.backend.transfers.most_blob or MAX_LOAD)
    return reply(await call.backend.transfers.put_blob(call.actor, body, given), status=201)


def send_content(call: RestCall, found: ServedFile) -> Response:
    """A file, or a range of it (RFC 9110, section 14), to be saved.

    Its media type is what the sender said, so a browser must not show it: the front forbids that,
    and every guess, for all responses.
    """
    given, tag = call.request.headers, f'"{found.sha256}"'
    headers = {
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Content-Disposition": disposition(found.name),
        "Content-Type": found.media_type,
    }
    if tag in given.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    start, end, status = 0, found.size, 200
    if given.get("if-range", tag) == tag:
        wanted = read_range(given.get("range", ""), found.size)
        if wanted is not None:
            start, end, status = *wanted, 206
            if start >= end:
                headers["Content-Range"] = f"bytes */{found.size}"
                del headers["Content-Type"]
                message = f"There are {found.size} bytes, and none of them are in this range."
                return refuse(Failure("semantic", "range", message), headers)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
    headers["Content-Length"] = str(end - start)
    if call.request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    return StreamingResponse(found.read(start, end), status, headers)


def disposition(name: str) -> str:
    """How a browser is told to save a file (RFC 6266)."""
    if not name:
        return "attachment"
    if name.isascii() and not {'"', "\\"} & set(name):
        return f'attachment; filename="{name}"'
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


_RANGE: Final = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))")


def read_range(header: str, size: int) -> tuple[int, int] | None:
    """Start and end of the one range that is asked for; None for all of it.

    A header that is not understood, or has several ranges, is ignored, as the RFC allows.
    """
    found = _RANGE.fullmatch(header.strip())
    if found is None:
        return None
    first, last, suffix = found.groups()
    if suffix is not None:
        return max(0, size - int(suffix)), size
    end = size if last is None else min(size, int(last) + 1)
    if last is not None and int(last) < int(first):
        return None
    return int(first), end


_TRANSFERS: Final[tuple[tuple[Builtin, Handler], ...]] = (
    (LOAD, load),
    (EXPORT, export),
    (CONTENT, export_content),
    (BLOB_PUT, put_blob),
    (BLOB_CONTENT, blob_content),
    (SPARQL, sparql),
)


def build_routes(
    graphs: Graphs, lists: Lists = visible_to_all, monitor: Monitor | None = None
) -> list[SegmentRoute]:
    """All routes; ``lists`` decides who may list the graphs."""

    def at(path: str, **handlers: Handler) -> SegmentRoute:
        return graph_route(graphs, path, **handlers)

    declared = operation_routes(OPERATIONS)
    for transfer, handler in _TRANSFERS:
        for route in transfer.routes:
            declared.setdefault(route.path, {})[route.method.lower()] = handler
    routes: list[SegmentRoute] = [
        *manual_routes(),
        *health_routes(monitor or Monitor(graphs)),
        SegmentRoute(ERRORS_PATH, Methods({"GET": _explain_errors})),
        SegmentRoute(f"{ERRORS_PATH}/{{code}}", Methods({"GET": _explain_errors})),
        SegmentRoute("/graphs", Methods({"GET": _lister(graphs)}, lists)),
        at("/kg/{type}", get=list_instances),
        at("/kg/{type}/{id}", get=get_instance),
        SegmentRoute(OPENAPI_PATH, Methods({"GET": openapi(graphs, lists)})),
        SegmentRoute(REFERENCE_PATH, Methods({"GET": reference_page(graphs, lists)})),
        SegmentRoute("/.well-known/wot", Methods({"GET": cards.directory(graphs, lists)})),
        at("/card", get=cards.card),
        at("/capabilities", get=list_capabilities),
        at("/schema", get=read_schema),
        at("/stats", get=read_stats),
        at("/doctor", get=read_doctor),
        at("/plugins/{plugin}/{path}", get=read_plugin),
        msgspec.structs.replace(
            at("/invoke/{name}", post=invoke), take_for=partial(take_invocation, graphs)
        ),
        at("/batch", post=batch),
        at("/admin/{op}", post=administer),
        at("/prov", get=provenance(declared.pop("prov")["get"])),
        *(at(f"/{each}", get=changes) for each in CHANGES if declared.pop(each)),
        *(at(f"/{path}", **found) for path, found in declared.items()),
    ]
    paths = {each.path for each in routes}
    return [SegmentRoute(LANDING_PATH, Methods({"GET": landing(graphs, lists, paths)})), *routes]


def operation_routes(operations: Sequence[Builtin]) -> dict[str, dict[str, Handler]]:
    """The handlers of built-ins by path and method; paths with parameters come last.

    ``branches/merge`` is also the branch of that name: it has the methods of ``branches/{name}``.
    """
    declared = [(route, each) for each in operations for route in each.routes]
    paths = dict.fromkeys(route.path for route, _ in declared)
    found: dict[str, dict[str, Handler]] = {}
    for path in sorted(paths, key=lambda path: [part[0] == "{" for part in path.split("/")]):
        methods = found[path] = {}
        for route, operation in declared:
            method, fixed = route.method.lower(), _matched(route.path, path)
            if route.path == path or (fixed and method not in methods):
                methods[method] = operation_handler(operation, route, fixed)
    return found


def _matched(template: str, path: str) -> dict[str, str]:
    """The parameters with which a template gives a path without any; empty if it does not."""
    found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/{}]+)", template), path)
    return {} if found is None else found.groupdict()


async def _explain_errors(request: Request) -> Response:
    """The codes of errors, or what one of them means: the ``type`` of a problem leads here."""
    code = request.path_params.get("code")
    page = project_problem_index() if code is None else project_problem_page(str(code))
    if page is None:
        raise refused(
            "not_found", f"There is no error code {str(code)[:100]!r}; see {ERRORS_PATH}."
        )
    return Response(page, headers=PAGE_HEADERS, media_type=HTML)


def _lister(graphs: Graphs) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        del request
        found = [
            {"graph_id": name, "uri": graph.transfers.uri}
            for name, graph in graphs.items()
            if not isinstance(graph, Failure)
        ]
        return Response(msgspec.json.encode({"graphs": found}), media_type=JSON)

    return answer


class RestApp:
    """The ASGI application; unknown paths, and errors that nobody expected, get the same form."""

    def __init__(self, routes: Iterable[SegmentRoute], **state: object) -> None:
        """``state`` is what handlers find in ``request.app.state``."""
        self.state = SimpleNamespace(**state)
        self._tree = RouteTree(routes)

    def take_for(self, scope: Scope) -> Take | None:
        """What answers POST requests with such a head that have arrived whole, if anything does.

        ``scope`` has what an ASGI scope says about a head.
        """
        found = self._tree.find(scope)
        if found is None or found[0].take_for is None:
            return None
        given = {**scope, "type": "http", "app": self, "path_params": found[1]}
        return found[0].take_for(Request(given))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        found = self._tree.find(scope)
        scope = {**scope, "app": self}
        error = HTTPException(404)
        if found is not None:
            scope["path_params"] = found[1]
            try:
                await found[0].app(scope, receive, send)
            except HTTPException as raised:
                error = raised
            else:
                return
        response = await refuse_http(Request(scope), error)
        await response(scope, receive, send)


def build_app(
    graphs: Graphs,
    max_body: int = MAX_BODY,
    lists: Lists = visible_to_all,
    large: LargeBodies | None = None,
    monitor: Monitor | None = None,
) -> RestApp:
    """Build the application.

    ``lists`` decides who may list the graphs; ``large`` is the queue of large bodies.
    """
    return RestApp(
        build_routes(graphs, lists, monitor),
        max_body=max_body,
        compressor=Compressor(),
        large=LargeBodies() if large is None else large,
    )
