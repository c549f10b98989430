"""Transfers: what REST and the command line offer beside tools and resources.

Whole records, and whole files in and out. Each is an entry as a tool is, so it goes down the
same path: authorize, check the arguments, dispatch, leave an activity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec

from trails.engine.service import GraphService
from trails.errors import BudgetError
from trails.model.actors import Actor, is_limited
from trails.model.outcomes import Failure, Outcome
from trails.request.admission import Admission, Slot
from trails.request.builtins.declare import Desk
from trails.request.catalog import builtin_entry, builtin_gate
from trails.request.entries import Entry
from trails.request.files import EXPORT, LOAD, Blocks
from trails.request.gates import of_queries
from trails.request.options import KernelOptions
from trails.request.records import RECORDS
from trails.request.spooling import stream
from trails.request.threads import Threads

Perform = Callable[[Actor, Entry, Mapping[str, object]], Awaitable[Outcome]]
"""The path of a request, once it is known what it is for."""
_LATER: Final = 10
"""Seconds after which a load may have ended."""
_LARGEST: Final = 64 << 20
"""Bytes of the largest record; a program can take more than a model."""
_replace = msgspec.structs.replace
_SUFFIXES: Final = {"": "", "gzip": ".gz", "zstd": ".zst"}


class Transfers:
    """The transfers of one graph."""

    def __init__(
        self,
        service: GraphService,
        options: KernelOptions,
        perform: Perform,
        admission: Admission,
        threads: Threads,
    ) -> None:
        self._service = service
        self._admission = admission
        self._threads = threads
        self._spooled: Counter[str] = Counter()
        self._most_spooled = options.budget.spool
        desk, graph = Desk(service, options), service.graph.name
        self._perform = perform
        self._records = {
            name: _replace(builtin_entry(each, desk, builtin_gate(each, graph)), largest=_LARGEST)
            for name, each in RECORDS.items()
        }
        self._load = builtin_entry(LOAD, desk, builtin_gate(LOAD, graph))
        self._export = builtin_entry(EXPORT, desk, builtin_gate(EXPORT, graph))

    @property
    def uri(self) -> str:
        """What the IRIs of the graph begin with."""
        return self._service.graph.names.base

    async def record(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """What a built-in gives to programs; ``name`` is one of RECORDS."""
        entry = self._records[name]
        if entry.tool.action == "InvokeQuery":
            gate = of_queries(self._service.registry.queries.values(), self._service.graph.name)
            entry = _replace(entry, gate=gate)
        return await self._perform(actor, entry, arguments)

    async def load(
        self,
        actor: Actor,
        body: AsyncIterator[bytes],
        arguments: Mapping[str, object],
        *,
        coding: str = "",
    ) -> Outcome:
        """Load what is sent in one commit, or not at all; ``coding`` is gzip, zstd or empty.

        It is taken to disk before anything is locked: nobody waits for a slow sender.
        """
        spooled = Spooled(self._spooled, actor, self._most_spooled)
        entry = _given(
            self._load, body=spooled.count(body), suffix=_SUFFIXES[coding], threads=self._threads
        )
        try:
            return await self._perform(actor, entry, arguments)
        finally:
            spooled.end()

    async def export(
        self, actor: Actor, arguments: Mapping[str, object]
    ) -> AsyncGenerator[bytes, None] | Failure:
        """A branch or snapshot as a file, in blocks; what is wrong is told before the first."""
        opened: list[Blocks] = []
        entry = _given(self._export, opened=opened)
        outcome = await self._perform(actor, entry, arguments)
        if isinstance(outcome, Failure):
            return outcome
        return _held(self._admission.hold(actor.name), stream(opened[0]))


class Spooled:
    """The bytes of one load on their way in, among all of its actor's."""

    def __init__(self, of_all: Counter[str], actor: Actor, most: int) -> None:
        self._of_all = of_all
        self._actor = actor
        self._most = most if is_limited(actor) else 0
        self._size = 0

    async def count(self, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """The blocks, as long as they are not too many."""
        name = self._actor.name
        async for block in body:
            self._size += len(block)
            self._of_all[name] += len(block)
            if 0 < self._most < self._of_all[name]:
                raise BudgetError(
                    f"the loads of {name} that are on their way in have more than "
                    f"{self._most >> 20} MiB (spool_mb in [graphs.<id>.budgets]); wait for one to "
                    "end, then try again, or send less at a time",
                    limit="spool_mb",
                    allowed=self._most >> 20,
                    used=self._of_all[name] >> 20,
                    retry_after=_LATER,
                )
            yield block

    def end(self) -> None:
        """They are loaded, or not wanted any more."""
        self._of_all[self._actor.name] -= self._size
        if not self._of_all[self._actor.name]:
            del self._of_all[self._actor.name]


async def _held(slot: Slot, blocks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Blocks of a call that goes on until the last of them, or until nobody reads on."""
    try:
        async with aclosing(blocks):
            async for block in blocks:
                yield block
    finally:
        slot.release()


def _given(entry: Entry, **more: object) -> Entry:
    """An entry for one request, whose handler is handed more than arguments."""
    return _replace(entry, handler=partial(entry.handler, **more))
