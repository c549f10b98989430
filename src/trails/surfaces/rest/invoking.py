"""Call anything by its name: ``/invoke/{name}``, and ``/admin/{op}`` for the application itself.

A request to ``/invoke/{name}`` that has arrived whole needs no ASGI (``take_invocation``): a small
result becomes a reply at once, and everything else takes the same way as with ASGI.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from trails.model.actors import Actor, holds_token, may_hide
from trails.model.fairness import is_large
from trails.model.names import META_PREFIX, portable_name
from trails.model.origins import ORIGIN, read_origin
from trails.model.replies import JSON_LINES, Answer, Reply, Take, write_lines
from trails.model.results import Failure, Outcome
from trails.surfaces.rest.backend import RestBackend
from trails.surfaces.rest.bodies import is_json, media_type, presented_with, read_object
from trails.surfaces.rest.compression import LEAST, Compressor
from trails.surfaces.rest.conditions import check_precondition, header_arguments, join_arguments
from trails.surfaces.rest.replies import Refused, commit_header, deprecation_headers, refuse, reply
from trails.surfaces.rest.routing import REGISTRY, Graphs, RestCall


async def invoke(call: RestCall) -> Response:
    """Call anything by its name; the body has its arguments."""
    return await _invoke(call, call.part("name"))


async def administer(call: RestCall) -> Response:
    """Call an operation on the application: ``trails.meta.<op>``, with the scope that it needs."""
    return await _invoke(call, portable_name(META_PREFIX + call.part("op")))


async def _invoke(call: RestCall, name: str) -> Response:
    arguments = await read_object(call)
    headers = _headers_of_call(call, name)
    deprecated = call.backend.tools(call.actor).deprecated
    outcome = await call.backend.invoke(call.actor, name, join_arguments(arguments, headers))
    response = reply(check_precondition(outcome, headers))
    if deprecated:
        response.headers.update(deprecation_headers(deprecated, name))
    return response


_FROM_HEADERS = frozenset({"idempotency-key", "if-match"})


def _headers_of_call(call: RestCall, name: str) -> dict[str, object]:
    """The arguments in the headers of a call; what a caller can't see is reported by the call."""
    if _FROM_HEADERS.isdisjoint(call.request.headers.keys()):
        return {}
    for tool in call.backend.tools(call.actor).tools:
        if tool.name == name:
            taken = tool.full_schema.get("properties")
            if tool.hints.read_only or not isinstance(taken, Mapping):
                return {}
            return header_arguments(call.request, taken.keys())
    return {}


def take_invocation(graphs: Graphs, request: Request) -> Take | None:
    """What answers requests like this one, whose bodies have arrived; see ``model.replies``."""
    name, graph = str(request.path_params["name"]), str(request.path_params["graph"])
    if not is_json(media_type(request)) or not _FROM_HEADERS.isdisjoint(request.headers.keys()):
        return None
    presented, origin = presented_with(request), read_origin("rest", request.headers.raw)

    def take(actor: Actor, body: bytes) -> Answer | None:
        backend = graphs.get(graph)
        if backend is None or isinstance(backend, Failure):
            return None
        if is_large(body) or may_hide(body, presented) or holds_token(body, presented):
            return None
        try:
            arguments = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return answer(backend, actor, arguments) if type(arguments) is dict else None

    async def answer(backend: RestBackend, actor: Actor, arguments: dict[str, object]) -> Reply:
        ORIGIN.set(origin)
        tools = backend.tools(actor)
        outcome = await backend.invoke(actor, name, arguments)
        if tools.deprecated or isinstance(outcome, Failure) or len(outcome.body) >= LEAST:
            response = _respond(outcome)
            if tools.deprecated and not isinstance(outcome, Failure):
                response.headers.update(deprecation_headers(tools.deprecated, name))
            return await _finish(request, response, tools.registry)
        lines = b"%btrails-registry: %b\r\n" % (JSON_LINES, tools.registry.encode())
        for each in commit_header(outcome.commit, made=outcome.made).items():
            lines += "{}: {}\r\n".format(*each).encode()
        return Reply(200, lines, outcome.body)

    return take


def _respond(outcome: Outcome) -> Response:
    try:
        return reply(outcome)
    except Refused as refused:
        return refuse(refused.failure)


async def _finish(request: Request, response: Response, registry: str) -> Reply:
    """A response as a reply, with what is added to those of a graph."""
    if response.status_code == 200:
        response.headers.setdefault(REGISTRY, registry)
    compressor: Compressor = request.app.state.compressor
    response = await compressor.apply(request, response)
    headers = [each for each in response.raw_headers if each[0] != b"content-length"]
    return Reply(response.status_code, write_lines(headers), bytes(response.body))
