"""The official SDK's low-level server, built from a backend.

Handlers translate: parameters in, a call of the backend, a plain result or an error out.
Everything a handler raises passes one guard, so that nothing but known errors reaches a
wire. Each transport has its own server, because what is advertised depends on what the
transport can deliver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import mcp_types as types
import msgspec
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS
from pydantic import BaseModel, ValidationError

from trails.model.actors import Actor
from trails.model.origins import TRACEPARENT, adopt_commits, adopt_trace
from trails.model.results import Failure, Outcome
from trails.projections.mcp_tools import REGISTRY_META
from trails.surfaces.mcp.backend import McpBackend
from trails.surfaces.mcp.failures import ErrorResult, conceal, map_failure
from trails.surfaces.mcp.results import (
    add_alias,
    list_resources,
    list_templates,
    list_tools,
    show_completions,
    show_contents,
    show_success,
)
from trails.surfaces.mcp.wire import AT_LEAST_META, COMMIT_META, Json, ValidationErrors

Context = ServerRequestContext[Any, Any]
ActorOf = Callable[[Context], Actor]
SchemaOf = Callable[[str], Mapping[str, Any] | None]

_FRESH: Final = CacheHint(ttl_ms=0, scope="private")
_HINTS: Final[Mapping[CacheableMethod, CacheHint]] = {
    "tools/list": _FRESH,
    "resources/list": _FRESH,
    "resources/templates/list": _FRESH,
    "resources/read": _FRESH,
    "server/discover": _FRESH,
}
_GREETINGS: Final = frozenset({"initialize", "server/discover"})
"""Methods whose results contain instructions, which depend on the caller."""
_TO_COME: Final = "…"
"""The placeholder for the instructions."""


class RequestHandlers:
    """The handlers that the SDK calls, one for each request of the protocol."""

    def __init__(
        self, backend: McpBackend, actor_of: ActorOf, validation: ValidationErrors
    ) -> None:
        self._backend = backend
        self._actor_of = actor_of
        self._validation = validation

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams) -> Json:
        """``tools/list``: all of them, in one page."""
        _refuse_cursor(params)
        return list_tools(self._backend.tools(self._actor_of(context)))

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> Json:
        """``tools/call``."""
        _adopt(params.meta)
        outcome = await self._backend.execute(
            self._actor_of(context), params.name, params.arguments or {}
        )
        shown = self._show(outcome, context)
        if AT_LEAST_META in (params.meta or {}) and not isinstance(outcome, Failure):
            shown["_meta"] = {COMMIT_META: outcome.commit}
        return shown

    async def list_resources(self, context: Context, params: types.PaginatedRequestParams) -> Json:
        """``resources/list``."""
        _refuse_cursor(params)
        return list_resources(self._backend.resources(self._actor_of(context)))

    async def list_templates(self, context: Context, params: types.PaginatedRequestParams) -> Json:
        """``resources/templates/list``."""
        _refuse_cursor(params)
        return list_templates(self._backend.resources(self._actor_of(context)))

    async def read(self, context: Context, params: types.ReadResourceRequestParams) -> Json:
        """``resources/read``."""
        _adopt(params.meta)
        contents = await self._backend.read(self._actor_of(context), params.uri)
        if isinstance(contents, Failure):
            raise error_of(contents, context)
        return show_contents(contents)

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> Json:
        """``completion/complete``, for the variables of templates."""
        if isinstance(params.ref, types.PromptReference):
            raise MCPError(
                INVALID_PARAMS,
                "this server has no prompts; complete a resource template (ref/resource)",
            )
        given = params.context.arguments if params.context is not None else None
        completions = await self._backend.complete(
            self._actor_of(context),
            params.ref.uri,
            params.argument.name,
            params.argument.value,
            given or {},
        )
        if isinstance(completions, Failure):
            raise error_of(completions, context)
        return show_completions(completions)

    def _show(self, outcome: Outcome, context: Context) -> Json:
        """A tool's result: structured content, and the same as text."""
        if isinstance(outcome, Failure):
            mapped = map_failure(outcome, context.protocol_version, self._validation)
            if isinstance(mapped, ErrorResult):
                return mapped.result
            raise MCPError(mapped.code, mapped.message, mapped.data)
        return show_success(outcome.body.decode(), msgspec.json.decode(outcome.body))


def _adopt(meta: Mapping[str, object] | None) -> None:
    """Take what a message says beside its arguments."""
    if meta:
        adopt_trace(meta.get(TRACEPARENT))
        adopt_commits(meta.get(AT_LEAST_META))


def build_server(
    backend: McpBackend,
    actor_of: ActorOf,
    validation: ValidationErrors,
    schema_of: SchemaOf = lambda _name: None,
) -> Server[dict[str, Any]]:
    """Build the server of one transport.

    ``schema_of`` gives the schema by which the SDK compares a call's headers with its
    arguments; without one it would list all tools at every call.
    """
    handlers = RequestHandlers(backend, actor_of, validation)
    server: Server[dict[str, Any]] = Server(
        backend.name,
        version=backend.version,
        instructions=_TO_COME,
        cache_hints=_HINTS,
        get_tool_input_schema=schema_of,
    )
    add = server.add_request_handler
    add("tools/list", types.PaginatedRequestParams, handlers.list_tools)
    add("tools/call", types.CallToolRequestParams, handlers.call_tool)
    add("resources/list", types.PaginatedRequestParams, handlers.list_resources)
    add("resources/templates/list", types.PaginatedRequestParams, handlers.list_templates)
    add("resources/read", types.ReadResourceRequestParams, handlers.read)
    add("completion/complete", types.CompleteRequestParams, handlers.complete)
    server.middleware[:] = [MessageGuard(backend, actor_of)]
    return server


class MessageGuard:
    """Middleware of every message: passes only known errors on, and completes results."""

    def __init__(self, backend: McpBackend, actor_of: ActorOf) -> None:
        self._backend = backend
        self._actor_of = actor_of

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Handle a message."""
        try:
            result = await call_next(ctx)
            if ctx.method in _GREETINGS:
                actor = self._actor_of(ctx)
                # The digest first: instructions may be newer than it, never older.
                registry = self._backend.tools(actor).registry
                result = _introduce(result, self._backend.instructions(actor), registry)
            if ctx.method == "tools/list" and isinstance(result, dict):
                add_alias(result)
        except MCPError:
            raise
        except ValidationError as error:
            raise _refuse_params(ctx.method, error) from None
        except Exception as error:  # noqa: BLE001 -- on older wires the SDK would send its text
            raise error_of(conceal(error), ctx) from None
        return result


def _introduce(result: HandlerResult, instructions: str, registry: str) -> HandlerResult:
    """Add the caller's instructions, and the digest of its registry, to a result."""
    meta = {REGISTRY_META: registry}
    if isinstance(result, BaseModel):
        meta = {**(getattr(result, "meta", None) or {}), **meta}
        return result.model_copy(update={"instructions": instructions, "meta": meta})
    if result is None:
        return None
    return {**result, "instructions": instructions, "_meta": {**result.get("_meta", {}), **meta}}


def error_of(failure: Failure, context: Context) -> MCPError:
    """The protocol error of a failure, for methods without ``isError``."""
    mapped = map_failure(failure, context.protocol_version, "protocol", "resource")
    assert not isinstance(mapped, ErrorResult)  # noqa: S101 -- such requests have none
    return MCPError(mapped.code, mapped.message, mapped.data)


def _refuse_params(method: str, error: ValidationError) -> MCPError:
    """The error for invalid parameters."""
    wrong = [
        {"field": ".".join(map(str, one["loc"])), "message": one["msg"]}
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    spelled = "; ".join(f"{one['field']}: {one['message']}" for one in wrong)
    return MCPError(INVALID_PARAMS, f"invalid parameters of {method}: {spelled}", {"params": wrong})


def _refuse_cursor(params: types.PaginatedRequestParams) -> None:
    """Refuse a cursor: lists have one page."""
    if params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "invalid cursor: this list has one page; omit the cursor")
