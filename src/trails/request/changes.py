"""Change streams: readers that follow the change feed of a branch, over any connection.

A reader is at a commit and takes one page at a time from the log (``engine/history/change_feed``).
A commit on its branch only wakes it, so a slow reader costs no memory and delays no writer; it goes
on where it was. Rights are asked for anew with each page. A stream ends when its credential or what
the reader may see has changed, and when the server stops; the reader is told why.

Streams count as watches of their actor (``[graphs.<id>.budgets] watches``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from trails.engine.graph.feed import BranchChange
from trails.engine.graph.graph import MAIN
from trails.engine.history.change_feed import START, ChangePage, ChangeQuery
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.errors import RevokedError, StaleError, TrailsError, UnavailableError
from trails.imports import later
from trails.model.actors import Actor
from trails.model.results import Failure, Outcome, Success
from trails.request.admission import KernelOptions
from trails.request.answers import failure_of
from trails.request.authorize import Authorizer
from trails.request.builtins.declare import ToolContext
from trails.request.catalog import builtin_entry, builtin_gate
from trails.request.entries import Entry, Rights
from trails.request.threads import Threads
from trails.request.watches import Watcher, Watches

if TYPE_CHECKING:
    from trails.request.builtins import branches, changes
else:
    branches = later("trails.request.builtins.branches")
    changes = later("trails.request.builtins.changes")

_SWEEP: Final = 1.0
"""Seconds between two checks of credentials and policies."""
_PAUSE: Final = 0.02
"""Seconds between two pages of one reader, so that commits in quick succession share one."""
_PAUSE_FOR_EACH: Final = 0.001
"""More seconds for each open stream, so that many use little of the server's time."""
_LONGEST_PAUSE: Final = 0.5

Perform = Callable[[Actor, Entry, Mapping[str, object]], Awaitable[Outcome]]
"""The path of a request, after its entry was resolved."""


class _Opened(msgspec.Struct):
    """The first page of a stream."""

    query: ChangeQuery
    wait: int
    page: ChangePage


def _open(
    tool: ToolContext, ctx: GraphContext, *, opened: list[_Opened], **given: object
) -> ChangePage:
    query = changes.read_query(**given)
    page = branches.versions_of(tool, ctx).changes(query)
    wait = given["wait"]
    opened.append(_Opened(query, wait if isinstance(wait, int) else 0, page))
    return page


class ChangeFeeds:
    """The change streams of one graph; they belong to one event loop."""

    def __init__(
        self,
        service: GraphService,
        options: KernelOptions,
        authority: Authorizer,
        perform: Perform,
        watches: Watches,
        threads: Threads,
    ) -> None:
        self._service = service
        self._graph = service.graph
        self._authority = authority
        self._perform = perform
        self._watches = watches
        self._threads = threads
        builtin = msgspec.structs.replace(changes.GRAPH_CHANGES, run=_open)
        self._entry = builtin_entry(
            builtin, ToolContext(service, options), builtin_gate(builtin, service.graph.name)
        )
        self._open: dict[str, dict[ChangeStream, None]] = {}
        """Branch → its streams."""
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], None] = _do_nothing
        self._sweeping: asyncio.Task[None] | None = None
        self._ended = False

    async def poll(self, actor: Actor, arguments: Mapping[str, object]) -> Outcome:
        """One page; if there is nothing yet and ``wait`` says so, wait for the next change."""
        found = await self._begin(actor, arguments)
        if isinstance(found, Failure):
            return found
        first, outcome = found
        if first.page.events or not first.wait or first.query.since is None:
            return outcome
        stream = self._follow(actor, first)
        if isinstance(stream, Failure):
            return stream
        try:
            page = await stream.next(first.wait)
        finally:
            stream.close()
        if isinstance(page, Failure):
            return page
        return Success(msgspec.json.encode(page or ChangePage((), stream.position, complete=True)))

    async def open(self, actor: Actor, arguments: Mapping[str, object]) -> ChangeStream | Failure:
        """A stream of the changes after ``since``; without it, of those from now on."""
        found = await self._begin(actor, arguments)
        return found if isinstance(found, Failure) else self._follow(actor, found[0])

    async def _begin(
        self, actor: Actor, arguments: Mapping[str, object]
    ) -> tuple[_Opened, Outcome] | Failure:
        """The first page: checked, admitted and recorded like any call."""
        opened: list[_Opened] = []
        handler = partial(self._entry.handler, opened=opened)
        entry = msgspec.structs.replace(self._entry, handler=handler)
        outcome = await self._perform(actor, entry, arguments)
        return outcome if isinstance(outcome, Failure) else (opened[0], outcome)

    def _follow(self, actor: Actor, first: _Opened) -> ChangeStream | Failure:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._forget_loop()
            self._loop = loop
        watcher = self._watches.watch(actor, ())
        if isinstance(watcher, Failure):
            return watcher
        rights = self._authority.rights(actor)
        stream = ChangeStream(self, actor, rights, first.query, first.page, watcher)
        if self._ended:
            stream.end(_stopping())
        if not self._count:
            self._stop = self._graph.feed.listen(self._note)
            self._sweeping = loop.create_task(self._sweep())
        self._count += 1
        self._open.setdefault(first.query.branch, {})[stream] = None
        return stream

    def _forget_loop(self) -> None:
        """Forget the streams of a loop that has ended."""
        self._stop()
        self._stop, self._sweeping, self._count = _do_nothing, None, 0
        self._open.clear()

    def leave(self, stream: ChangeStream) -> None:
        """Remove a closed stream."""
        streams = self._open.get(stream.branch, {})
        if stream not in streams:
            return
        del streams[stream]
        if not streams:
            del self._open[stream.branch]
        self._count -= 1
        if not self._count:
            self._stop()
            self._stop = _do_nothing
            if self._sweeping is not None:
                self._sweeping.cancel()
                self._sweeping = None

    def end_streams(self) -> None:
        """End all streams, because the server stops; new ones end at once."""
        self._ended = True
        for stream in self._streams():
            stream.end(_stopping())

    def _streams(self) -> list[ChangeStream]:
        return [each for streams in list(self._open.values()) for each in streams]

    # --- from writers to the loop ------------------------------------------------------------

    def _note(self, change: BranchChange) -> None:
        """Wake the readers of a branch; called on the writer's thread."""
        if change.branch in self._open and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and its streams with it
                self._loop.call_soon_threadsafe(self._wake, change.branch)

    def _wake(self, branch: str) -> None:
        for stream in self._open.get(branch, ()):
            stream.wake()

    async def _sweep(self) -> None:
        """End the streams of readers whose credential or rights have changed."""
        while True:
            await asyncio.sleep(_SWEEP)
            for stream in self._streams():
                refused = self.refuse(stream)
                if refused is not None:
                    stream.end(refused)

    # --- for streams -------------------------------------------------------------------------

    @property
    def pause(self) -> float:
        """Seconds between two pages of one stream."""
        return min(_PAUSE + _PAUSE_FOR_EACH * self._count, _LONGEST_PAUSE)

    def refuse(self, stream: ChangeStream) -> Failure | None:
        """Why a stream can't go on, or None."""
        if not self._graph.is_current(stream.actor):
            return _failure(RevokedError("your credential was revoked or has expired; reconnect"))
        rights = self._authority.rights(stream.actor)
        if rights is stream.rights or self._is_same(rights, stream.rights, stream.branch):
            stream.rights = rights
            return None
        return _failure(
            StaleError(
                "what you may see of this branch has changed; read it anew, then continue after "
                "its head",
                reason="policy_changed",
                branch=stream.branch,
            )
        )

    def _is_same(self, new: Rights, old: Rights, branch: str) -> bool:
        """Whether two rights of an actor show the same of a branch."""
        head = self._graph.log_head(MAIN) if branch == MAIN else self._graph.log.head(branch)
        if head is None:
            return True  # the next page says that the branch is gone
        schema = self._graph.compiled(head.schema).schema
        before, after = (each.visibility(schema, (branch,)) for each in (old, new))
        return before.key == after.key and old.may("Read", branch) == new.may("Read", branch)

    async def read(self, stream: ChangeStream, query: ChangeQuery) -> ChangePage | Failure:
        """The next page of a stream."""
        refused = self.refuse(stream)
        if refused is not None:
            return refused
        versions = self._service.versions(stream.actor.name, None, stream.rights)
        try:
            return await self._threads.run(stream.actor.name, versions.changes, query)
        except Exception as error:  # noqa: BLE001 - the reader gets every error as the end
            return failure_of(error, changes.GRAPH_CHANGES.name)


class ChangeStream:
    """One reader: who it is, and the commit that it has read up to."""

    def __init__(
        self,
        feeds: ChangeFeeds,
        actor: Actor,
        rights: Rights,
        query: ChangeQuery,
        first: ChangePage,
        watcher: Watcher,
    ) -> None:
        """``first`` is the page that was read before changes were listened to."""
        self._feeds = feeds
        self.actor = actor
        self.rights = rights
        self._query = query
        self.branch = query.branch
        self._first: ChangePage | None = first if first.events else None
        self._watcher = watcher
        self._woken = asyncio.Event()
        self._woken.set()
        self._refusal: Failure | None = None
        self._rest_until = 0.0
        unread = START if query.since == "" else query.since
        self.position = first.since if self._first is None or unread is None else unread
        """The commit up to which everything was handed out: where another stream can go on."""

    async def next(self, seconds: float) -> ChangePage | Failure | None:
        """The next page with events; None if there is none in time; a Failure at the end."""
        first, self._first = self._first, None
        if first is not None:
            self.position = first.since
            return first
        deadline = asyncio.get_running_loop().time() + seconds
        while self._refusal is None:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._woken.wait()
                    await self._rest()
            except TimeoutError:
                return None
            page = await self._read()
            if isinstance(page, Failure) or page.events:
                return page
        return self._refusal

    async def _rest(self) -> None:
        loop = asyncio.get_running_loop()
        if self._refusal is None and (left := self._rest_until - loop.time()) > 0:
            await asyncio.sleep(left)

    async def _read(self) -> ChangePage | Failure:
        if self._refusal is not None:
            return self._refusal
        self._woken.clear()
        try:
            query = msgspec.structs.replace(self._query, since=self.position)
            page = await self._feeds.read(self, query)
        except BaseException:
            self._woken.set()  # it was not read
            raise
        self._rest_until = asyncio.get_running_loop().time() + self._feeds.pause
        if isinstance(page, Failure):
            self._refusal = page
            return page
        self.position = page.since
        if not page.complete:
            self._woken.set()
        return page

    def wake(self) -> None:
        """There is something to read."""
        self._woken.set()

    def end(self, refusal: Failure) -> None:
        """End it; the reader gets the reason."""
        self._refusal = self._refusal or refusal
        self._woken.set()

    def close(self) -> None:
        """Stop following."""
        self._watcher.close()
        self._feeds.leave(self)


def _failure(error: TrailsError) -> Failure:
    return failure_of(error, changes.GRAPH_CHANGES.name)


def _stopping() -> Failure:
    return _failure(UnavailableError("the server is stopping; reconnect"))


def _do_nothing() -> None:
    pass
