"""Subscribers, and the notifications that are due to each.

A subscriber is one listen stream, or one connection of an older revision. Due notifications are
coalesced until the transport takes them: a slow transport gets fewer, but misses no change. A
subscription ends with the credential that started it; pending notifications are then discarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from trails.model.actors import Actor, IsCurrent, Lasting, end_stale
from trails.model.results import Failure
from trails.surfaces.mcp.backend import McpBackend, Watch

UPDATED: Final = "notifications/resources/updated"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"

MAX_SUBSCRIBERS: Final = 10_000
"""The most subscribers of one transport."""


class Event(NamedTuple):
    """A notification that is due; ``uri`` for those about one resource."""

    method: str
    uri: str | None = None


class Asked(NamedTuple):
    """The subjects of a subscription."""

    uris: Sequence[str] = ()
    tools: bool = False
    resources: bool = False


class Subscriber:
    """The pending notifications of one subscriber; ``wake`` reports the first, and the end."""

    __slots__ = ("_all", "_lists", "_seen", "_watch", "actor", "ended", "wake")

    def __init__(self, all_: Subscribers, actor: Actor, asked: Asked, watch: Watch | None) -> None:
        self._all = all_
        self.actor = actor
        self._watch = watch
        lists = {TOOLS_CHANGED: asked.tools, RESOURCES_CHANGED: asked.resources}
        self._seen = {each: all_.version(each, actor) for each, wanted in lists.items() if wanted}
        """The last reported version of each list that it subscribes to."""
        self._lists: dict[str, None] = {}
        self.ended = False
        """Whether nothing follows the pending notifications."""
        self.wake: Callable[[], None] = _do_nothing
        if watch is not None:
            watch.wake = self._wake

    def _wake(self) -> None:
        self.wake()

    def take(self) -> list[Event]:
        """Take the notifications that are due."""
        due = [Event(method) for method in self._lists]
        self._lists.clear()
        if self._watch is not None:
            due += [Event(UPDATED, uri) for uri in self._watch.take()]
        return due

    def compare(self) -> None:
        """Find the lists that have changed for this actor."""
        for method, seen in self._seen.items():
            version = self._all.version(method, self.actor)
            if version != seen:
                self._seen[method] = version
                self._lists[method] = None
        if self._lists:
            self.wake()

    def add(self, uri: str) -> Failure | None:
        """Watch another URI, which was checked before, or refuse it if there are too many."""
        if self._watch is not None:
            return self._watch.add(uri)
        watch = self._all.watch(self.actor, [uri])
        if isinstance(watch, Failure):
            return watch
        self._watch = watch
        watch.wake = self._wake
        return None

    def remove(self, uri: str) -> None:
        """Stop watching a URI."""
        if self._watch is not None:
            self._watch.remove(uri)

    def end(self) -> None:
        """Let the transport send pending notifications, and finish."""
        self.ended = True
        self.wake()

    def revoke(self) -> None:
        """Discard pending notifications and end: the credential is no longer valid."""
        self._seen.clear()
        self._lists.clear()
        self._drop_watch()
        self.end()

    def close(self) -> None:
        """Stop watching everything."""
        self._all.forget(self)
        self._drop_watch()

    def _drop_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


class Subscribers:
    """All subscribers of one backend; they share one listener for changes of lists."""

    def __init__(self, backend: McpBackend) -> None:
        self._backend = backend
        self._open: dict[Subscriber, None] = {}
        self._stop: Callable[[], None] = _do_nothing

    def __len__(self) -> int:
        return len(self._open)

    def open(self, actor: Actor, asked: Asked) -> Subscriber | Failure:
        """A subscriber for URIs that were checked before, or the refusal if there are too many."""
        if len(self._open) >= MAX_SUBSCRIBERS:
            many = f"too many open streams (the limit is {MAX_SUBSCRIBERS}); close one or try later"
            return Failure("budget", "limit", many)
        watch = self.watch(actor, asked.uris) if asked.uris else None
        if isinstance(watch, Failure):
            return watch
        if not self._open:
            self._stop = self._backend.listen(self._compare)
        subscriber = Subscriber(self, actor, asked, watch)
        self._open[subscriber] = None
        return subscriber

    def watch(self, actor: Actor, uris: Sequence[str]) -> Watch | Failure:
        """Watch URIs for a subscriber."""
        return self._backend.watch(actor, uris)

    def version(self, method: str, actor: Actor) -> str:
        """The version of a list that an actor sees; ``method`` is its notification."""
        if method == TOOLS_CHANGED:
            return self._backend.tools(actor).version
        return self._backend.resources(actor).version

    def forget(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        self._open.pop(subscriber, None)
        if not self._open:
            self._stop()
            self._stop = _do_nothing

    def end(self) -> None:
        """Let every subscriber finish."""
        for subscriber in list(self._open):
            subscriber.end()

    def actors(self) -> set[Actor]:
        """The actors of all subscribers."""
        return {subscriber.actor for subscriber in self._open}

    def end_those_of(self, actors: set[Actor]) -> None:
        """End the subscriptions of some actors."""
        for subscriber in list(self._open):
            if subscriber.actor in actors:
                subscriber.revoke()

    def _compare(self) -> None:
        for subscriber in list(self._open):
            subscriber.compare()


def _do_nothing() -> None:
    pass


PAUSE: Final = 1.0
"""Seconds between two checks."""


async def sweep(is_current: IsCurrent, *kinds: Lasting) -> None:
    """Until cancelled, end the work of actors whose credential is no longer valid."""
    while True:
        await asyncio.sleep(PAUSE)
        for each in kinds:
            end_stale(each, is_current)
