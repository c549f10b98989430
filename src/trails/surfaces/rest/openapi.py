"""``/openapi.json`` and ``/reference``: the routes of this server, as far as a caller sees them.

Routes of built-ins and transfers are described by their declarations, the others by ``REFERENCE``.
Beside the general routes (``/graphs/{graph}/invoke/{name}``) there is one for each capability,
stored query and type, with its own schemas. A document is made once for each registry and view of
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from trails.model.caches import LRUCache
from trails.model.operations.drafts import DryRunResult, ProposalResult
from trails.model.results import Failure
from trails.model.types import TypeDescriptor
from trails.projections.json_schema import Document, project_value
from trails.projections.openapi import (
    TOOL,
    ApiInfo,
    ApiRoute,
    invocation_route,
    project_openapi,
    spell_identifier,
)
from trails.projections.pages import HTML, PAGE_HEADERS
from trails.projections.reference_page import project_reference_page
from trails.projections.thing_description import Card, Security
from trails.request.builtins.declare import Builtin, Route
from trails.request.operations import OPERATIONS
from trails.request.transfers import TRANSFERS
from trails.surfaces.rest.cards import origin_of, security_of
from trails.surfaces.rest.reference import REFERENCE
from trails.surfaces.rest.replies import JSON
from trails.surfaces.rest.routing import REGISTRY, Graphs, Lists, actor_of

OPENAPI_PATH: Final = "/openapi.json"
REFERENCE_PATH: Final = "/reference"
_DOCUMENTS: Final = LRUCache[tuple[object, ...], bytes](32)
_PAGES: Final = LRUCache[bytes, bytes](8)
_BUILTINS: Final = {each.name: each for each in OPERATIONS}
_ABOUT: Final = (
    "A validated, versioned knowledge graph. Errors are problems of RFC 9457; their type leads to "
    "a page that explains the code. next in a result is the call that continues, also as a Link. "
    "With dry_run or propose, the result of a capability is part of a DryRunResult or "
    "ProposalResult."
)


def openapi(graphs: Graphs, lists: Lists) -> Callable[[Request], Awaitable[Response]]:
    """What answers with the document."""

    async def answer(request: Request) -> Response:
        cards = _cards(graphs, lists, request)
        registry = ", ".join(each.registry for each in cards)
        headers = {REGISTRY: registry}
        return Response(_document(cards, request), headers=headers, media_type=JSON)

    return answer


def reference_page(graphs: Graphs, lists: Lists) -> Callable[[Request], Awaitable[Response]]:
    """What answers with the document as a page."""

    async def answer(request: Request) -> Response:
        body = _document(_cards(graphs, lists, request), request)
        page = await asyncio.to_thread(_PAGES.get, body, lambda: _page(body))
        return Response(page, headers=dict(PAGE_HEADERS), media_type=HTML)

    return answer


def _page(document: bytes) -> bytes:
    return project_reference_page(msgspec.json.decode(document)).encode()


def _cards(graphs: Graphs, lists: Lists, request: Request) -> list[Card]:
    """The graphs that a caller sees, each as far as it does."""
    actor = actor_of(request)
    return [
        found
        for graph in graphs.values()
        if not isinstance(graph, Failure)
        and ((found := graph.card(actor)).schema.types or lists(actor))
    ]


def _document(cards: Sequence[Card], request: Request) -> bytes:
    server, security = origin_of(request), security_of(request)
    digests = tuple((each.graph, each.registry, each.schema.digest) for each in cards)
    return _DOCUMENTS.get(
        (server, security, digests),
        lambda: msgspec.json.encode(describe_server(cards, server, security)),
    )


def describe_server(cards: Iterable[Card], server: str, security: Security) -> Document:
    """The document of some graphs."""
    cards = tuple(cards)
    first = cards[0] if cards else None
    info = ApiInfo(
        title="Trails" if first is None else first.title,
        version="" if first is None else first.version,
        description=_ABOUT,
        registry=" ".join(each.registry for each in cards),
    )
    routes = [each.describe("") for each in REFERENCE if not each.path.startswith(_GRAPH)]
    routes += general_routes(cards)
    for card in cards:
        prefix = f"{card.graph}_" if len(cards) > 1 else ""
        routes += own_routes(card, prefix)
    return project_openapi(info, routes, server, security)


_GRAPH: Final = "/graphs/{graph}"


def general_routes(cards: Sequence[Card]) -> Iterator[ApiRoute]:
    """The routes that each of some graphs has; those that need a scope if the caller has it."""
    graphs = [each.graph for each in cards]
    shown = {action.tool.name for card in cards for action in card.actions}
    for builtin in (*OPERATIONS, *TRANSFERS):
        for route in builtin.routes:
            if builtin.meta is None or builtin.name in shown:
                yield describe_route(builtin, route, graphs)
    for each in REFERENCE:
        if each.path.startswith(_GRAPH):
            found = each.describe("")
            yield replace(found, arguments=_with_graph(found.arguments, graphs))


def _with_graph(arguments: Document, graphs: Sequence[str]) -> Document:
    """The arguments and, in the path, the graph: one of those that the caller sees."""
    properties = arguments.get("properties")
    known = properties if isinstance(properties, dict) else {}
    graph = {"type": "string", **({"enum": list(graphs)} if graphs else {})}
    return {**arguments, "properties": {"graph": graph, **known}}


def describe_route(builtin: Builtin, route: Route, graphs: Sequence[str]) -> ApiRoute:
    """A route of a built-in, by its declaration; ``graphs`` are those that it can be called on."""
    arguments = builtin.full_schema()
    names = {each.name for each in (*builtin.fields, *builtin.controls, *builtin.unlisted)}
    writes = not builtin.hints.read_only
    headers = [name for name, field in _BY_HEADER.items() if writes and field in names]
    if route.method == "GET" and not route.gives:
        headers.append("If-None-Match")
    return ApiRoute(
        method=route.method,
        path=f"{_GRAPH}/{route.path}",
        name=route.name or builtin.name,
        title=builtin.title,
        description=builtin.description,
        group=_group(route.path),
        arguments=_with_graph(_gathered(arguments, route), graphs),
        sends=route.sends,
        texts=() if route.text is None else (route.text[1],),
        headers=tuple(headers),
        result=None if route.gives else _result(builtin),
        media=route.gives or (JSON,),
        status=route.status,
        refused=_REFUSED if writes else _REFUSED_READS,
        extensions=_extensions(builtin),
    )


def _result(builtin: Builtin) -> type[msgspec.Struct] | UnionType:
    """The result of a built-in: one that writes may also be tried or proposed."""
    names = {each.name for each in builtin.unlisted}
    if "propose" in names:
        return builtin.result | DryRunResult | ProposalResult
    return builtin.result | DryRunResult if names else builtin.result


_BY_HEADER: Final = {"Idempotency-Key": "idempotency_key", "If-Match": "expected_head"}
_REFUSED: Final = (400, 404, 409, 412, 415, 422)
_REFUSED_READS: Final = (400, 404, 422)


def _gathered(arguments: Document, route: Route) -> Document:
    """The arguments, where one of them is all of the query string."""
    if route.gathers is None:
        return arguments
    properties = arguments["properties"]
    assert isinstance(properties, dict)  # noqa: S101 - it is made so
    kept = {name: each for name, each in properties.items() if name != route.gathers}
    return {**arguments, "properties": kept}


_GROUPS: Final = {
    "kg": "Records",
    "search": "Records",
    "fetch": "Records",
    "select": "Records",
    "query": "Queries",
    "queries": "Queries",
    "sparql": "Queries",
    "branches": "History",
    "commits": "History",
    "diff": "History",
    "prov": "History",
    "changes": "History",
    "mutate": "Changes",
    "load": "Changes",
    "blobs": "Changes",
    "export": "Export",
}


def _group(path: str) -> str:
    parts = path.split("/")
    return "Queries" if parts[-1] == "sparql" else _GROUPS.get(parts[0], "Graph")


def _extensions(builtin: Builtin) -> Mapping[str, object]:
    """What the other surfaces call it, and what a policy must allow."""
    found = {
        TOOL: builtin.name if builtin.offered != "never" else None,
        "x-trails-command": None if builtin.command is None else f"trails {builtin.command}",
        "x-trails-action": builtin.action,
    }
    return {name: value for name, value in found.items() if value is not None}


# --- what only one graph has ---------------------------------------------------------------


def own_routes(card: Card, prefix: str) -> Iterator[ApiRoute]:
    """The routes of one graph's capabilities, stored queries and types."""
    root = f"/graphs/{quote(card.graph, safe='')}"
    for action in card.actions:
        builtin = _BUILTINS.get(action.tool.name) if action.source is None else None
        yield invocation_route(root, action, None if builtin is None else _result(builtin), prefix)
    for each in card.schema.types:
        yield from _type_routes(root, prefix, each)


def _type_routes(root: str, prefix: str, descriptor: TypeDescriptor) -> Iterator[ApiRoute]:
    name = descriptor.name
    values = _values(descriptor)
    instance: Document = {
        "type": "object",
        "properties": {"iri": {"type": "string"}, "type": {"type": "string"}, **values},
        "required": ["iri", "type"],
    }
    item: Document = {
        "type": "object",
        "properties": {
            "iri": {"type": "string"},
            "label": {"type": "string"},
            "values": {"type": "object", "properties": values},
        },
        "required": ["iri", "label"],
    }
    page: Document = {
        "type": "object",
        "properties": {
            "instances": {"type": "array", "items": item},
            "next": {"type": ["string", "null"]},
        },
        "required": ["instances", "next"],
    }
    for reference in REFERENCE:
        if reference.path in {f"{_GRAPH}/kg/{{type}}", f"{_GRAPH}/kg/{{type}}/{{id}}"}:
            one = reference.path.endswith("{id}")
            path = f"{root}/kg/{name}" + ("/{id}" if one else "")
            found = reference.describe(prefix)
            yield replace(
                found,
                path=path,
                name=f"{prefix}{'get' if one else 'list'}_{spell_identifier(name)}",
                title=f"Get a {name}" if one else f"List {name}",
                description=descriptor.meaning,
                arguments=_without_type(found.arguments),
                result=instance if one else page,
            )


def _values(descriptor: TypeDescriptor) -> dict[str, object]:
    """The fields as they are read: without rules, because old values may break new ones."""
    found: dict[str, object] = {}
    for each in descriptor.fields:
        schema = project_value(each.type.scalar)
        shown: Document = {"type": "array", "items": schema} if each.many else _nullable(schema)
        found[each.name] = {**shown, "description": each.description} if each.description else shown
    return found


def _nullable(schema: Document) -> Document:
    kind = schema.get("type")
    if isinstance(kind, str):
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def _without_type(arguments: Document) -> Document:
    properties = arguments["properties"]
    assert isinstance(properties, dict)  # noqa: S101 - it is made so
    return {**arguments, "properties": {k: v for k, v in properties.items() if k != "type"}}
