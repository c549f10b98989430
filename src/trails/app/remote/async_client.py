"""The client for programs with an event loop: each method is a coroutine.

Requests run in threads of the client, because declared classes read references when an attribute
is used, which can't be awaited. So in a coroutine, use attributes of references inside ``run``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, cast

import msgspec

from trails.app.remote.graph import RemoteContext
from trails.authoring.nodes import Node
from trails.authoring.queries import Page, Query
from trails.engine.history.change_feed import ChangeEvent
from trails.model.history import Commit, MergeRequest
from trails.model.operations.graph import ChangeResult, LoadedData, MutationResult, QueryResult
from trails.model.operations.history import MergeOutcome
from trails.model.writes import LoadRequest

if TYPE_CHECKING:
    from trails.app.remote.client import ServerClient

_P = ParamSpec("_P")
_T = TypeVar("_T")
_N = TypeVar("_N", bound=Node)
_AT_ONCE: Final = 32
"""Requests at the same time; watches don't count."""


async def _in_thread(function: Callable[[], _T]) -> _T:
    """Call a function in a thread that does not keep the process from ending.

    A program may end while a watch waits; the threads of an executor would be waited for.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T | None, error: BaseException | None) -> None:
        if done.done():
            return  # cancelled
        if error is None:
            done.set_result(cast(_T, result))
        else:
            done.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001 - handed to the caller
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="trails-client", daemon=True).start()
    return await done


class AsyncClient:
    """One graph of a server."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def run(
        self, function: Callable[_P, _T], /, *arguments: _P.args, **named: _P.kwargs
    ) -> _T:
        """Call a function in a thread: anything that uses a context, or the client itself."""
        async with self._turns:
            return await _in_thread(partial(function, *arguments, **named))

    async def context(self, branch: str = "main", snapshot: str | None = None) -> RemoteContext:
        """A context for declared classes, on a branch or at a past commit."""
        return await self.run(self._client.context, branch, snapshot)

    # --- classes -----------------------------------------------------------------------

    async def get(self, cls: type[_N], reference: object, *, branch: str = "main") -> _N:
        """The instance with this key, ``Type/id`` or IRI."""
        ctx = await self.context(branch)
        return await self.run(cls.get, ctx, reference)

    async def fetch(
        self, query: Query[_N], *, branch: str = "main", snapshot: str | None = None
    ) -> list[_N]:
        """Run a query: ``await client.fetch(Task.where(status="open"))``."""
        ctx = await self.context(branch, snapshot)
        return await self.run(query.fetch, ctx)

    async def count(
        self, query: Query[_N], *, branch: str = "main", snapshot: str | None = None
    ) -> int:
        """The number of matches."""
        ctx = await self.context(branch, snapshot)
        return await self.run(query.count, ctx)

    async def page(
        self, query: Query[_N], size: int = 100, after: str | None = None, *, branch: str = "main"
    ) -> Page[_N]:
        """One page, and the cursor that continues it."""
        ctx = await self.context(branch)
        return await self.run(Query[_N](query.selection, ctx).page, size, after)

    async def save(
        self,
        *nodes: Node,
        upsert: bool = False,
        message: str = "",
        branch: str = "main",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None:
        """Write instances in one commit; None when nothing changed."""
        ctx = await self.context(branch)
        return await self.run(
            ctx.kg.save_all,
            nodes,
            upsert=upsert,
            message=message,
            expected_head=expected_head,
            idempotency_key=idempotency_key,
        )

    async def delete(
        self, node: Node, *, cascade: bool = False, message: str = "", branch: str = "main"
    ) -> Commit | None:
        """Delete a node."""
        ctx = await self.context(branch)
        return await self.run(ctx.kg.delete, node, cascade=cascade, message=message)

    # --- operations --------------------------------------------------------------------

    async def operation(self, name: str, /, **arguments: object) -> msgspec.Struct:
        """The typed result of a built-in operation."""
        return await self.run(partial(self._client.operation, name, **arguments))

    async def call(
        self, name: str, arguments: Mapping[str, object] | None = None, *, branch: str = "main"
    ) -> Mapping[str, object]:
        """Call a capability or a stored query; its result in JSON form."""
        return await self.run(self._client.call, name, arguments, branch=branch)

    async def ask(
        self,
        text: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = "main",
        snapshot: str | None = None,
    ) -> QueryResult:
        """Run a SPARQL query."""
        return await self.run(self._client.ask, text, params, branch=branch, snapshot=snapshot)

    async def query(
        self, name: str, params: Mapping[str, object] | None = None, *, branch: str = "main"
    ) -> QueryResult | ChangeResult:
        """Run a stored query."""
        return await self.run(self._client.query, name, params, branch=branch)

    async def mutate(
        self,
        change: str | Sequence[object],
        *,
        branch: str = "main",
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> MutationResult:
        """Change the graph in one commit."""
        return await self.run(
            self._client.mutate,
            change,
            branch=branch,
            message=message,
            expected_head=expected_head,
            idempotency_key=idempotency_key,
        )

    async def watch(
        self, *types: str, since: str | None = None, branch: str = "main"
    ) -> AsyncGenerator[ChangeEvent, None]:
        """Yield the commits of a branch, as they are made, with the nodes that each changed."""
        events = self._client.watch(*types, since=since, branch=branch)
        while True:
            yield await _in_thread(partial(next, events))

    async def load(self, request: LoadRequest) -> LoadedData:
        """Load files in one commit, or none and a report of every problem."""
        return await self.run(self._client.load, request)

    async def merge(self, request: MergeRequest) -> MergeOutcome:
        """Merge a branch or commit into a branch; conflicts are a result, not an error."""
        return await self.run(self._client.merge, request)
