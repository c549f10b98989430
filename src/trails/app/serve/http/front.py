"""The HTTP interface of an owner: one ASGI application for all its graphs.

Every request goes through the same steps: check Host, Origin and size, answer preflights of
browsers, authenticate (``request.authenticate``), refuse an overload, and pass it to its surface.
Every response has the headers of ``responses``. What depends on a head alone is decided once for
requests with the same head (``Passage``); those that arrive whole are then passed on without ASGI.

``OperatorInterface`` is the upkeep of a project while it is served: for the operator, on the
owner's own socket only. A request is ``POST /operator/<operation>`` with the arguments as JSON. The
answer is a stream of JSON lines: ``{"progress": text}`` while it goes on, then ``{"done": result}``
or ``{"error": …}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from threading import Thread
from typing import Final
from urllib.parse import unquote

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from trails.app.app import App
from trails.app.serve.http.hosts import HostPolicy, is_preflight, preflight_headers, shared_headers
from trails.app.serve.http.limits import UNCOUNTED, BodyBudget, CountedBody
from trails.app.serve.http.parser import RequestHead
from trails.app.serve.http.responses import (
    HEAD_KEY,
    HSTS,
    SECURITY,
    AccessHeaders,
    Headers,
    HeaderSender,
    JsonReply,
    Passage,
    access_headers,
    common_lines,
    has_misplaced_token,
    presented_in,
    problem_reply,
    raw_path,
    rpc_error_body,
)
from trails.app.serve.relay.links import Listener
from trails.app.settings import GraphSettings
from trails.app.upkeep import UpkeepOperation, find_operation
from trails.errors import TrailsError
from trails.identity.oauth.challenges import PLAIN, Challenges
from trails.model.actors import (
    ACTOR_KEY,
    CHALLENGE_KEY,
    LISTENER_KEY,
    MAX_BODY,
    MISPLACED,
    OPERATOR,
    PRESENTED_KEY,
    SECURITY_KEY,
)
from trails.model.decisions import ALLOW_ALL, Judge
from trails.model.fairness import LargeBodies
from trails.model.metrics import METRICS_PATH
from trails.model.replies import Taken
from trails.model.results import Failure, describe_outage
from trails.projections.manual import DOCS_PATH
from trails.projections.problems import ERRORS_PATH
from trails.projections.thing_description import Security
from trails.request.answers import failure_of, plain_data
from trails.request.authenticate import Authenticator, HttpCallers, Refusal
from trails.request.authorize import lists_graphs
from trails.request.monitor import Monitor
from trails.request.pipeline import Kernel
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.rest.health import HEALTH_PATHS
from trails.surfaces.rest.landing import LANDING_PATH
from trails.surfaces.rest.manual import LLMS_PATHS
from trails.surfaces.rest.routes import build_app

_MCP_PATHS: Final = frozenset({"mcp", "sse", "messages"})
_LOAD: Final = "load"
"""The path of loads, whose bodies are streamed."""
_PUBLIC: Final = frozenset({*HEALTH_PATHS, *LLMS_PATHS, ERRORS_PATH, DOCS_PATH})
_READING: Final = frozenset({"GET", "HEAD"})
_READING_OR_ASKING: Final = frozenset({*_READING, "OPTIONS"})


class HttpInterface:
    """Checks and authenticates requests, and passes them to the surfaces."""

    def __init__(
        self,
        graphs: Mapping[str, Kernel | Failure],
        settings: Mapping[str, GraphSettings],
        authenticator: Authenticator,
        policy: HostPolicy,
        challenges: Challenges = PLAIN,
        *,
        max_body: int = MAX_BODY,
        judge: Judge = ALLOW_ALL,
        operator: OperatorInterface | None = None,
    ) -> None:
        """``judge`` decides who may list the graphs; ``operator`` serves the owner's key only."""
        self._operator = operator
        self.monitor = Monitor(graphs)
        self._challenges = challenges
        self.listener = Listener(policy, authenticator, challenges)
        """The listener of connections that do not name their own."""
        self._max_body = max_body
        self._graphs = graphs
        self._budget = BodyBudget(max_body)
        large = LargeBodies()
        self._rest = build_app(graphs, max_body, partial(lists_graphs, judge), large, self.monitor)
        self._settings = settings
        self._is_current = authenticator.is_current
        self._large = large
        self._endpoints: dict[str, McpApp] = {}
        self._names: dict[bytes, str] = {}
        """The graph of each MCP path: the path of nearly every request."""
        self._starting = asyncio.Lock()
        self._ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def run(self) -> AsyncIterator[ASGIApp]:
        """Accept requests."""
        try:
            for name in self._graphs:
                await self._endpoint(name)
            yield self
        finally:
            self._ended.set()
            await asyncio.gather(*self._tasks)

    async def _endpoint(self, name: str) -> McpApp | None:
        """The MCP endpoint of a graph, started on first use; None if the graph is not served."""
        async with self._starting:
            graph = self._graphs.get(name)
            if name in self._endpoints or graph is None or isinstance(graph, Failure):
                return self._endpoints.get(name)
            mcp = self._settings[name].mcp
            endpoint = McpApp(
                graph,
                legacy_sessions=mcp.legacy_sessions,
                legacy_sse=mcp.legacy_sse,
                validation_errors=mcp.validation_errors,
                is_current=self._is_current,
                max_body=self._max_body,
                large=self._large,
            )
            started = asyncio.Event()
            # What it runs must begin and end in one task, and a request's may be cancelled.
            task = asyncio.create_task(self._keep_running(endpoint, started))
            self._tasks.append(task)
            starting = asyncio.create_task(started.wait())
            await asyncio.wait({task, starting}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                starting.cancel()
                await task
            self._endpoints[name] = endpoint
            self._names[f"/graphs/{name}/mcp".encode()] = name
            return endpoint

    async def _keep_running(self, endpoint: McpApp, started: asyncio.Event) -> None:
        async with endpoint.run():
            started.set()
            await self._ended.wait()

    def end_streams(self) -> None:
        """End open streams: the server waits for them when it stops."""
        for endpoint in self._endpoints.values():
            endpoint.end_streams()
        for graph in self._graphs.values():
            if not isinstance(graph, Failure):
                graph.changes.end_streams()

    def take(self, head: RequestHead, body: bytes, listener: Listener) -> Taken | None:
        """Pass a request that has arrived whole to its surface; None: it must come through ASGI.

        That is the case for all that is refused, and for callers who are not recognised at once.
        """
        passage = head.passage
        if passage is None or passage.listener is not listener:
            passage = head.passage = self._decide(head, listener)
        take = passage.take
        if take is None:
            return None
        actor = listener.callers.recognise(passage.authorization)
        if actor is None or passage.refuse_overload(actor) is not None:
            return None
        answer = take(actor, body)
        return None if answer is None else Taken(actor, answer, passage.lines)

    def _decide(self, head: RequestHead, listener: Listener) -> Passage:
        """What follows from a head, by the same checks that ASGI requests pass."""
        scope: Scope = {
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "http_version": head.version,
            "headers": head.headers,
            HEAD_KEY: head,
        }
        policy, access = listener.policy, access_headers(scope)
        if access.authorization is not None:
            scope[PRESENTED_KEY] = presented_in(access.authorization)
        named, parts = self._names.get(head.raw_path), _parts(scope)
        graph = self._graphs.get(parts[2]) if len(parts) > 3 and parts[1] == "graphs" else None
        if (
            graph is None
            or isinstance(graph, Failure)
            or head.method != "POST"
            or head.expects
            or not head.keep_alive
            or access.length > min(UNCOUNTED, self._max_body)
            or _check_host(policy, scope, access) is not None
            or has_misplaced_token(scope, access)
        ):
            return Passage(listener)
        if named is None:
            take = self._rest.take_for(scope)
        else:
            take = self._endpoints[named].take_for(scope["headers"], scope.get(PRESENTED_KEY))
        lines = common_lines(_common_headers(policy, scope["headers"]))
        return Passage(listener, take, access.authorization, graph.refuse_overload, lines)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; other protocols are refused."""
        if scope["type"] != "http":
            await _refuse_other(scope, send)
            return
        listener: Listener = scope.get(LISTENER_KEY, self.listener)
        policy, head = listener.policy, access_headers(scope)
        send = HeaderSender(send, _common_headers(policy, scope["headers"]))
        reply = _check_host(policy, scope, head) or self._check_size(scope, head)
        if reply is None and scope["method"] in _READING_OR_ASKING:
            reply = _answer_preflight(policy, scope) or self._describe(scope)
        if reply is None and not _is_public(scope["path"]):
            reply = await _authenticate(listener.callers, scope, head.authorization)
            if reply is not None and self._needs_nobody(scope["path"], head):
                reply = None
        if reply is None and (head.doubtful or PRESENTED_KEY in scope):
            reply = _refuse_misplaced(scope, head)
        named = self._names.get(scope.get("raw_path", b""))
        if reply is None:
            reply = self._refuse_overload(scope, named)
        if reply is not None:
            await reply.send(send)
        elif (head.length > UNCOUNTED or head.is_chunked) and ACTOR_KEY in scope:
            await self._answer_counted(scope, head, named, receive, send)
        else:
            await self._answer(scope, named, receive, send)

    async def _answer_counted(
        self, scope: Scope, head: AccessHeaders, named: str | None, receive: Receive, send: Send
    ) -> None:
        """Answer a request whose body may use much memory, within the limits."""
        if _parts(scope)[3:] == [_LOAD]:
            await self._answer(scope, named, receive, send)
            return
        body = CountedBody(self._budget, scope[ACTOR_KEY], scope.get("client"))
        reply = body.take(head.length)
        if reply is not None:
            await reply.send(send)
            return
        if head.is_chunked:
            receive, send = body.receive_counted(receive, send), body.send_unless_refused(send)
        try:
            await self._answer(scope, named, receive, send)
        finally:
            body.release()

    async def _answer(self, scope: Scope, named: str | None, receive: Receive, send: Send) -> None:
        if named is not None:
            await self._endpoints[named](scope, receive, send)
        else:
            await self._route(scope, receive, send)

    def _needs_nobody(self, path: str, head: AccessHeaders) -> bool:
        """Whether a caller without a credential is answered, after all.

        It gets the first page without any graph, and metrics if they are public.
        """
        public = path == LANDING_PATH or (path == METRICS_PATH and self.monitor.public)
        return public and head.authorization is None

    def _check_size(self, scope: Scope, head: AccessHeaders) -> JsonReply | None:
        """Refuse a body whose declared length is too large."""
        if head.length <= self._max_body or _parts(scope)[3:] == [_LOAD]:
            return None
        message = f"the body is too large; at most {self._max_body:,} bytes are read here"
        return problem_reply(413, "too_large", message)

    def _describe(self, scope: Scope) -> JsonReply | None:
        """Describe where tokens come from, for clients that have none yet."""
        found = self._challenges.metadata(scope["path"])
        return None if found is None or scope["method"] not in _READING else JsonReply(200, found)

    def _refuse_overload(self, scope: Scope, named: str | None) -> JsonReply | None:
        """Refuse a request to an overloaded graph before its body is read."""
        parts = [] if named is not None else _parts(scope)
        name = parts[2] if len(parts) > 3 and parts[1] == "graphs" else named
        graph = None if name is None else self._graphs.get(name)
        if graph is None or isinstance(graph, Failure):
            return None
        refused = graph.refuse_overload(scope[ACTOR_KEY])
        if refused is None:
            return None
        again = [(b"retry-after", str(refused.data["retry_after"]).encode())]
        if named is not None or parts[3] in _MCP_PATHS:
            body = rpc_error_body(refused.code, refused.message, refused.data)
            return JsonReply(503, body, again)
        return problem_reply(503, refused.code, refused.message, refused.data, again)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to its surface."""
        parts = _parts(scope)
        listener: Listener = scope.get(LISTENER_KEY, self.listener)
        if (
            self._operator is not None
            and listener.callers.operator
            and scope.get(ACTOR_KEY) == OPERATOR
            and scope["method"] == "POST"
            and len(parts) == 3
            and parts[1] == OPERATOR_PATH
        ):
            await self._operator.answer(parts[2], receive, send)
        elif len(parts) == 4 and parts[1] == "graphs" and parts[3] in _MCP_PATHS:
            await self._answer_mcp(parts[2], scope, receive, send)
        else:
            scope[SECURITY_KEY] = self._security(listener)
            await self._rest(scope, receive, send)

    def _security(self, listener: Listener) -> Security:
        """How callers of a listener are recognised, as cards say it."""
        if not listener.policy.bind.credentials:
            return Security()
        return Security("bearer", self._challenges.advertised)

    async def _answer_mcp(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(name) or await self._endpoint(name)
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        found = self._graphs.get(name)
        if isinstance(found, Failure):
            outage = describe_outage(name, found, scope[ACTOR_KEY])
            await problem_reply(503, outage.code, outage.message).send(send)
            return
        message = f"there is no graph {name[:100]!r}"
        await problem_reply(404, "not_found", message).send(send)


def _is_public(path: str) -> bool:
    """Whether a path needs no credential: it shows nothing of any graph."""
    return path in _PUBLIC or path.startswith((f"{ERRORS_PATH}/", f"{DOCS_PATH}/"))


def _check_host(policy: HostPolicy, scope: Scope, head: AccessHeaders) -> JsonReply | None:
    """Refuse a Host or an Origin that the listener does not allow."""
    objection = policy.refuse(head.hosts, head.origins, scope.get("http_version", "1.1"))
    if objection is None:
        return None
    code = "forbidden" if objection.status == 403 else "bad_request"
    return problem_reply(objection.status, code, objection.message)


def _answer_preflight(policy: HostPolicy, scope: Scope) -> JsonReply | None:
    """Answer the preflight request of a browser."""
    if not is_preflight(scope["method"], scope["headers"]):
        return None
    return JsonReply(204, b"", preflight_headers(policy, scope["headers"]))


async def _authenticate(
    callers: HttpCallers, scope: Scope, authorization: bytes | None
) -> JsonReply | None:
    """Put the caller into the scope; or ask for a credential."""
    caller = callers.recognise(authorization) or await callers.authenticate(authorization)
    if isinstance(caller, Refusal):
        status, more = 503, (b"retry-after", b"5")
        if caller.challenge is not None:
            status, more = 401, (b"www-authenticate", caller.challenge)
        return problem_reply(status, caller.failure.code, caller.failure.message, more=[more])
    scope[ACTOR_KEY] = caller
    scope[CHALLENGE_KEY] = callers.step_up(caller)
    if authorization is not None:
        scope[PRESENTED_KEY] = presented_in(authorization)
    return None


def _refuse_misplaced(scope: Scope, head: AccessHeaders) -> JsonReply | None:
    """Refuse a token outside the Authorization header, before it is stored anywhere."""
    if not has_misplaced_token(scope, head):
        return None
    return problem_reply(400, "misplaced_token", MISPLACED)


def _common_headers(policy: HostPolicy, headers: Headers) -> Headers:
    if not (policy.shares or policy.bind.tls):
        return SECURITY
    secure = (HSTS,) if policy.bind.tls else ()
    return (*SECURITY, *secure, *shared_headers(policy, headers))


def _parts(scope: Scope) -> list[str]:
    """The segments of the path, split before they are decoded."""
    raw = raw_path(scope)
    parts = raw.partition(b"?")[0].decode("latin-1").split("/")
    return [unquote(part) for part in parts] if b"%" in raw else parts


async def _refuse_other(scope: Scope, send: Send) -> None:
    """Refuse web sockets; nothing else is expected."""
    if scope["type"] != "websocket":
        raise RuntimeError(f"{scope['type']} is not served")
    await send({"type": "websocket.close", "code": 1008})


OPERATOR_PATH: Final = "operator"
_LARGEST_ARGUMENTS: Final = 1 << 16
_NDJSON: Final = (b"content-type", b"application/x-ndjson")


class OperatorInterface:
    """Runs operations of upkeep, each in its own thread."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def answer(self, name: str, receive: Receive, send: Send) -> None:
        """Answer one request; the caller has checked that the operator sent it."""
        operation = find_operation(name)
        if operation is None:
            message = f"there is no operation {name[:100]!r}"
            await problem_reply(404, "not_found", message).send(send)
            return
        try:
            given = msgspec.json.decode(await _read_arguments(receive), type=operation.takes)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            await problem_reply(400, "bad_request", str(error)).send(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [_NDJSON]})
        async for line in self._lines(operation, given):
            await send({"type": "http.response.body", "body": line + b"\n", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _lines(
        self, operation: UpkeepOperation[msgspec.Struct, object], given: msgspec.Struct
    ) -> AsyncIterator[bytes]:
        """The progress of an operation, line by line, and its result."""
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()

        def put(line: object) -> None:
            encoded = None if line is None else msgspec.json.encode(line)
            try:
                loop.call_soon_threadsafe(lines.put_nowait, encoded)
            except RuntimeError:
                return  # the loop has ended, and its clients with it

        def work() -> None:
            try:
                done = operation.run(self._app, given, lambda text: put({"progress": text}))
                put({"done": done})
            except BaseException as error:  # noqa: BLE001 - the client gets it
                put({"error": _describe_error(error, operation.name)})
            put(None)

        # It ends with the process; unfinished work is then left as after a kill.
        Thread(target=work, name=f"trails-{operation.name}", daemon=True).start()
        while (line := await lines.get()) is not None:
            yield line


def _describe_error(error: BaseException, name: str) -> dict[str, object]:
    """An error with all details: the operator may know the state of the disk."""
    if isinstance(error, TrailsError):
        return {"code": error.code, "message": error.message, "data": plain_data(error.data)}
    failure = failure_of(error, name)
    return {"code": failure.code, "message": failure.message, "data": failure.data}


async def _read_arguments(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body") or len(body) > _LARGEST_ARGUMENTS:
            return bytes(body)
