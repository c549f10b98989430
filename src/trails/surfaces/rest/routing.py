"""Routes, the call that a handler gets, and cancellation when a client disconnects.

One route has all methods of a path, so that the error for a wrong method names the right ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final
from urllib.parse import quote, unquote

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from trails.model.actors import ACTOR_KEY, CHALLENGE_KEY, LOCAL, Actor
from trails.model.origins import begin_request
from trails.model.replies import Take
from trails.model.results import Failure, describe_outage
from trails.surfaces.rest.backend import RestBackend
from trails.surfaces.rest.compression import Compressor
from trails.surfaces.rest.replies import Refused, refuse, refused

_SOON: Final = 0.5
"""Seconds after which a call is long enough to be watched; most are answered before."""


class DisconnectWatcher:
    """Watches a client once all of its request is read, and cancels the task that answers it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        """The next message of the request."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._timer = asyncio.get_running_loop().call_later(_SOON, self._begin)
        return message

    def _begin(self) -> None:
        self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Stop watching, because the request is answered."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()


REGISTRY: Final = "Trails-Registry"
"""The header with the digest of what the caller sees of the registry."""
Graphs = Mapping[str, RestBackend | Failure]
"""Every graph by its id; a Failure says why one is not served."""


def actor_of(request: Request) -> Actor:
    """Who sends a request."""
    found = request.scope.get(ACTOR_KEY, LOCAL)
    return found if isinstance(found, Actor) else LOCAL


class RestCall:
    """A request for one graph, by a resolved caller."""

    def __init__(self, request: Request, backend: RestBackend, held: ExitStack) -> None:
        """``held`` is left when the call is answered."""
        self.request = request
        self.backend = backend
        self._held = held

    @property
    def actor(self) -> Actor:
        """Who asks; the front has resolved that."""
        return actor_of(self.request)

    def reserve(self) -> None:
        """Have the caller admitted before its large body is parsed, or refuse it."""
        admitted = self.backend.reserve(self.actor)
        if isinstance(admitted, Failure):
            raise Refused(admitted)
        self._held.enter_context(admitted)

    def part(self, name: str) -> str:
        """A parameter of the path."""
        return str(self.request.path_params[name])


Handler = Callable[[RestCall], Awaitable[Response]]


class SegmentRoute(msgspec.Struct, frozen=True, eq=False):
    """A path, whose ``{name}`` segments are parameters (``{name:path}`` is all that is left)."""

    path: str
    app: Methods
    take_for: Callable[[Request], Take | None] | None = None
    """What answers POST requests that have arrived whole; None if they need ASGI."""


class RouteTree:
    """Finds the route of a path, segment by segment, at a cost that does not grow with the routes.

    A path is cut before it is decoded, so ``%2F`` can be part of a name. A segment that is written
    in a route goes before a parameter.
    """

    def __init__(self, routes: Iterable[SegmentRoute]) -> None:
        self._root = _Branch()
        for route in routes:
            at, names = self._root, []
            for segment in route.path.split("/")[1:]:
                if segment.endswith(":path}"):
                    names.append(segment[1:-6])
                    at.rest = _End(route, tuple(names))
                    break
                if segment.startswith("{"):
                    names.append(segment[1:-1])
                    at.parameter = at = at.parameter or _Branch()
                else:
                    at = at.segments.setdefault(segment, _Branch())
            else:
                at.end = _End(route, tuple(names))

    def find(self, scope: Scope) -> tuple[SegmentRoute, dict[str, str]] | None:
        """The route of a request and its decoded parameters; None if there is none."""
        raw = scope.get("raw_path")
        path = quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")
        found = self._root.find(path.split("/"), 1, ())
        if found is None:
            return None
        end, values = found
        try:
            decoded = [unquote(each, errors="strict") if "%" in each else each for each in values]
        except UnicodeDecodeError:
            return None
        return end.route, dict(zip(end.names, decoded, strict=True))


class _End(msgspec.Struct, frozen=True, eq=False):
    route: SegmentRoute
    names: tuple[str, ...]


class _Branch:
    """What can follow the segments up to here."""

    __slots__ = ("end", "parameter", "rest", "segments")

    def __init__(self) -> None:
        self.segments: dict[str, _Branch] = {}
        self.parameter: _Branch | None = None
        self.rest: _End | None = None
        self.end: _End | None = None

    def find(
        self, parts: Sequence[str], at: int, values: tuple[str, ...]
    ) -> tuple[_End, tuple[str, ...]] | None:
        """The end of a route for the parts from one on."""
        if at == len(parts):
            return None if self.end is None else (self.end, values)
        part = parts[at]
        known = self.segments.get(part)
        found = None if known is None else known.find(parts, at + 1, values)
        if found is None and self.parameter is not None and part:
            found = self.parameter.find(parts, at + 1, (*values, part))
        if found is None and self.rest is not None:
            return self.rest, (*values, "/".join(parts[at:]))
        return found


Lists = Callable[[Actor], bool]
"""Whether something is there for a caller."""


def visible_to_all(actor: Actor) -> bool:
    """Visible to every actor."""
    del actor
    return True


class Methods:
    """The methods of one path, as an ASGI application."""

    def __init__(
        self,
        handlers: Mapping[str, Callable[[Request], Awaitable[Response]]],
        exists: Lists = visible_to_all,
    ) -> None:
        """``exists`` says for whom the path is there; for others there is nothing at it."""
        self._exists = exists
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers["HEAD"] = handlers["GET"]
        self.methods: Final = frozenset(self._handlers)
        self._allow: Final = ", ".join(sorted({*self._handlers, "OPTIONS"}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        begin_request("rest", scope["headers"])
        watcher = DisconnectWatcher(receive)
        request = Request(scope, watcher.receive, send)
        if not self._exists(actor_of(request)):
            raise HTTPException(404)
        try:
            response = await self._answer(request)
        except Refused as refused:
            response = refuse(refused.failure, _challenge(scope, refused.failure))
        finally:
            watcher.end()
        compressor: Compressor | None = getattr(request.app.state, "compressor", None)
        if compressor is not None:
            response = await compressor.apply(request, response)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        handler = self._handlers.get(request.method)
        allowed = {"Allow": self._allow}
        if handler is not None:
            return await handler(request)
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=allowed)
        message = f"Method {request.method[:20]} not allowed; use {self._allow}."
        return refuse(Failure("semantic", "not_allowed", message), allowed)


def _challenge(scope: Scope, failure: Failure) -> Mapping[str, str]:
    """The header that asks for a missing scope; the front knows who can obtain it."""
    ask = scope.get(CHALLENGE_KEY)
    lacking = failure.data.get("required_scope") if failure.kind == "scope" else None
    header = ask(str(lacking)) if ask and lacking else None
    return {"WWW-Authenticate": header.decode()} if header else {}


def graph_route(graphs: Graphs, path: str, **handlers: Handler) -> SegmentRoute:
    """A path of every graph with what its methods do."""

    def of_graph(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            found = _found(graphs, str(request.path_params["graph"]), actor_of(request))
            # Before the handler runs: a response may be newer than its digest, never older.
            registry = found.tools(actor_of(request)).registry
            with ExitStack() as held:
                response = await handler(RestCall(request, found, held))
            response.headers.setdefault(REGISTRY, registry)
            return response

        return answer

    methods = {name.upper(): of_graph(handler) for name, handler in handlers.items()}
    return SegmentRoute(f"/graphs/{{graph}}{path}", Methods(methods))


def _found(graphs: Graphs, name: str, actor: Actor) -> RestBackend:
    found = graphs.get(name)
    if found is None:
        raise refused("not_found", f"there is no graph {name[:100]!r}")
    if isinstance(found, Failure):
        raise Refused(describe_outage(name, found, actor))
    return found
