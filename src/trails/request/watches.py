"""Watches: notify subscribers when instances of a type, or one of them, change.

Writers add each change to the pending changes of its branch, whose size is bounded, and wake the
event loop once. Rounds on the loop then notify the watchers, in steps of 64 between which other
work runs; the more a round notified, the longer the next one waits. Each watcher has a set of URIs
that are due, so a slow one learns of every change, once.

An actor that does not see everything is notified only of changes that it sees.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from trails.engine.evidence.records import NO_TYPES
from trails.engine.graph.feed import MANY, BranchChange, ChangeIndex
from trails.engine.graph.graph import MAIN
from trails.engine.session.service import GraphService
from trails.engine.visibility.refs import RefResolver, reader
from trails.errors import NotFoundError, TrailsError
from trails.model.actors import Actor, is_limited
from trails.model.decisions import ALLOW_ALL
from trails.model.iris import encode_id, id_problem
from trails.model.names import suggest
from trails.model.results import Failure
from trails.model.types import Schema
from trails.model.uris import HERE, InstanceAddress, ListAddress, ReadPoint, parse_address
from trails.model.visibility import ChangeKey, SchemaFilter
from trails.request.authorize import Authorizer
from trails.request.entries import Rights


class PendingChanges:
    """What changed on a branch."""

    __slots__ = ("_seen", "_vague", "crowded", "everything", "handles", "traces", "turns", "types")

    def __init__(self) -> None:
        self.everything = False
        self.types: set[str] = set()
        """The types of changed nodes, and the types that these extend."""
        self.crowded: set[str] = set()
        """Types of which too many nodes changed to list them."""
        self.handles: set[str] = set()
        self.traces = ChangeIndex()
        """The index of changes, for actors with restricted access."""
        self.turns: set[tuple[str | None, str | None]] = set()
        """Changes of the schema: digests before and after."""
        self._vague = False
        """Whether change keys are missing, because policies have just come into force."""
        self._seen: dict[tuple[int, str], tuple[SchemaFilter, list[ChangeKey]]] = {}

    def add(self, change: BranchChange) -> None:
        """Add a change."""
        if change.schema_change is not None:
            self.turns.add(change.schema_change)
        if change.index is None:
            self._vague = True
        else:
            self.traces.update(change.index)
        if change.types is None:
            self.everything = True
            return
        self.types |= change.types
        if change.handles is None:
            self.crowded |= change.types
            return
        self.handles |= change.handles
        if len(self.handles) > MANY:
            self.crowded |= self.types
            self.handles.clear()

    def shows(
        self, schema_filter: SchemaFilter, schema: Schema, type_name: str, segment: str | None
    ) -> bool:
        """Whether a schema filter shows a change of a type, or of one node."""
        if self._vague:
            return True
        key = id(schema_filter), type_name
        found = self._seen.get(key)
        if found is None:
            family = set(schema.family(type_name))
            known = (each for each in self.traces if each.type in family)
            keys = [each for each in known if schema_filter.shows(each)]
            found = self._seen[key] = schema_filter, keys
        if segment is None:
            return bool(found[1])
        return any(self.traces.may_be_at(each, f"{each.type}/{segment}") for each in found[1])


_log = logging.getLogger(__name__)

MAX_URIS: Final = 10_000
"""The most URIs of one watch."""
MAX_WATCHES: Final = 10_000
"""The most watches of one graph."""
MAX_OF_ONE: Final = 50_000
"""The most URIs of all watches of one actor."""
MAX_IN_ALL: Final = 500_000
"""The most URIs of all watches of a graph."""

_STEP: Final = 64
"""Notifications in a row before other work runs."""
_PAUSE: Final = 0.0004
"""Seconds of pause for each notification, so that they use little of the loop's time."""
_LONGEST_PAUSE: Final = 0.5


class WatchTarget(msgspec.Struct, frozen=True):
    """What a URI watches: a type, or one instance of it."""

    branch: str
    type: str
    segment: str | None = None
    """The encoded id; None for the whole type."""


class Watches:
    """All watches on one graph; they belong to the event loop of the first one."""

    def __init__(
        self, service: GraphService, authority: Authorizer | None = None, most: int = 0
    ) -> None:
        """``most`` watches for each actor with a credential; 0 means no limit."""
        self._service = service
        self._most = most
        self._by_actor: Counter[str] = Counter()
        self._uris_by_actor: Counter[str] = Counter()
        self._graph = service.graph
        self._authority = authority or Authorizer(service.graph, ALLOW_ALL)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], None] = _do_nothing
        self._watchers: set[Watcher] = set()
        self._topics: dict[str, dict[str, Topic]] = {}
        """Branch → type → watchers."""
        self._count = 0
        self._lock = threading.Lock()
        self._notes: dict[str, PendingChanges] = {}
        self._awake = False
        """Whether a round is running or scheduled, so the loop need not be woken."""
        self._deliveries: Iterator[tuple[Watcher, str]] = iter(())
        self._notified = 0
        self._rest_until = 0.0

    # --- opening and closing -----------------------------------------------------------

    def load(self) -> tuple[int, int]:
        """How many watchers there are, and how many URIs they watch."""
        return len(self._watchers), self._count

    def uris(self) -> Counter[str]:
        """What is watched, by how many."""
        return Counter(uri for watcher in tuple(self._watchers) for uri in watcher.uris)

    def refuse_watch(self, actor: Actor, uri: str) -> Failure | None:
        """Why an actor that may read can't watch a URI, or None."""
        found = self._resolve(actor, uri)
        return found if isinstance(found, Failure) else None

    def watch(self, actor: Actor, uris: Sequence[str]) -> Watcher | Failure:
        """Watch some URIs, each checked with ``refuse_watch`` before."""
        self._bind(asyncio.get_running_loop())
        if len(self._watchers) >= MAX_WATCHES:
            return _full(f"this graph has {MAX_WATCHES} watches already; close one, or try later")
        name = actor.name
        if self._most and is_limited(actor) and self._by_actor[name] >= self._most:
            return _too_many(name, self._by_actor[name], self._most, self._graph.name)
        if not self._watchers:
            self._stop = self._graph.feed.listen(self._note, self._asks)
        watcher = Watcher(self, actor)
        self._watchers.add(watcher)
        self._by_actor[name] += 1
        for uri in uris:
            refused = watcher.add(uri)
            if refused is not None:
                watcher.close()
                return refused
        return watcher

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed() and self._watchers:
            raise RuntimeError("the watches of a graph live on one event loop")
        for watcher in list(self._watchers):
            watcher.close()  # the loop has ended
        self._loop, self._rest_until = loop, 0.0
        with self._lock:
            self._notes.clear()
            self._awake = False

    def add(self, watcher: Watcher, uri: str) -> WatchTarget | Failure:
        """Notify a watcher of changes at a URI."""
        found = self._resolve(watcher.actor, uri)
        if isinstance(found, Failure):
            return found
        if self._count >= MAX_IN_ALL:
            return _full(f"this graph watches {MAX_IN_ALL} URIs already; watch types instead")
        if is_limited(watcher.actor) and self._uris_by_actor[watcher.actor.name] >= MAX_OF_ONE:
            return _full(f"you watch {MAX_OF_ONE} URIs already; watch types instead")
        self._uris_by_actor[watcher.actor.name] += 1
        topic = self._topics.setdefault(found.branch, {}).setdefault(found.type, Topic())
        topic.of(found.segment).setdefault(watcher, {})[uri] = None
        self._count += 1
        return found

    def remove(self, watcher: Watcher, uri: str, target: WatchTarget) -> None:
        """Undo ``add``."""
        types = self._topics[target.branch]
        topic = types[target.type]
        watching = topic.of(target.segment)
        del watching[watcher][uri]
        _less(self._uris_by_actor, watcher.actor.name)
        self._count -= 1
        if watching[watcher]:
            return
        del watching[watcher]
        if target.segment is not None and not watching:
            del topic.nodes[target.segment]
        if not topic.everything and not topic.nodes:
            del types[target.type]
        if not types:
            del self._topics[target.branch]

    def leave(self, watcher: Watcher) -> None:
        """Remove a closed watcher."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            _less(self._by_actor, watcher.actor.name)
        if not self._watchers:
            self._stop()
            self._stop = _do_nothing

    # --- from writers to the loop --------------------------------------------------------

    def _asks(self, branch: str) -> bool:
        """Whether a branch may have watchers that do not see everything on it."""
        return branch in self._topics and self._authority.decides

    def _note(self, change: BranchChange) -> None:
        """Record a change; called on the writer's thread."""
        if change.branch not in self._topics or self._loop is None:
            return
        with self._lock:
            note = self._notes.get(change.branch)
            if note is None:
                note = self._notes[change.branch] = PendingChanges()
            note.add(change)
            if self._awake:
                return
            self._awake = True
        try:
            self._loop.call_soon_threadsafe(self._begin_round)
        except RuntimeError:  # the loop has ended, and its watchers with it
            self._awake = False

    # --- rounds ----------------------------------------------------------------------------

    def _begin_round(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            return
        rest = self._rest_until - loop.time()
        if rest > 0:
            loop.call_later(rest, self._begin_round)
            return
        with self._lock:
            notes, self._notes = self._notes, {}
            self._awake = bool(notes)
        if notes:
            self._deliveries, self._notified = self._audible(notes), 0
            self._go_on()

    def _go_on(self) -> None:
        """Notify some watchers, then let other work run."""
        loop = asyncio.get_running_loop()
        notified = 0
        for watcher, uri in islice(self._deliveries, _STEP):
            try:
                watcher.notify(uri)
            except Exception:  # noqa: BLE001 - one that fails must not keep others from being notified
                _log.exception(
                    "a watcher failed when it was notified", extra={"event": "watch.failed"}
                )
            notified += 1
        self._notified += notified
        if notified == _STEP:
            loop.call_soon(self._go_on)
        else:
            self._rest_until = loop.time() + min(self._notified * _PAUSE, _LONGEST_PAUSE)
            loop.call_soon(self._begin_round)

    def _audible(self, notes: dict[str, PendingChanges]) -> Iterator[tuple[Watcher, str]]:
        """The watchers to notify, with their URIs: those that see the change."""
        for branch, note in notes.items():
            for watcher, uri in self._due(branch, note):
                if self._may_hear(watcher, uri, note):
                    yield watcher, uri

    def _due(self, branch: str, note: PendingChanges) -> Iterator[tuple[Watcher, str]]:
        topics = self._topics.get(branch, {})
        if note.everything:
            for topic in list(topics.values()):
                yield from topic.all()
                yield from topic.nodes_all()
            return
        for name in note.types:
            if (found := topics.get(name)) is not None:
                yield from found.all()
        for name in note.crowded:
            if (found := topics.get(name)) is not None:
                yield from found.nodes_all()
        if any(topics[name].nodes for name in note.types if name in topics):
            yield from self._due_nodes(branch, note.handles)

    def _due_nodes(self, branch: str, handles: set[str]) -> Iterator[tuple[Watcher, str]]:
        """Watchers of these nodes, by their types and the types that these extend."""
        topics, schema = self._topics[branch], self._schema(branch) or Schema()
        lineages: dict[str, tuple[str, ...]] = {}
        for handle in handles:
            type_name, _, segment = handle.partition("/")
            lineage = lineages.get(type_name)
            if lineage is None:
                known = type_name in schema.by_name
                lineage = schema.lineage(type_name) if known else (type_name,)
                lineages[type_name] = lineage
            for name in lineage:
                topic = topics.get(name)
                if topic is not None and segment in topic.nodes:
                    yield from _pairs(topic.nodes[segment])

    # --- URIs --------------------------------------------------------------------------------

    def _resolve(self, actor: Actor, uri: str) -> WatchTarget | Failure:
        """The target of a URI, or the reason why it can't be watched."""
        try:
            address = parse_address(uri, self._graph.names.nodes, _watched_roots)
        except NotFoundError as error:
            return Failure("unknown", error.code, error.message, error.data)
        except TrailsError as error:
            return Failure("validation", error.code, error.message, error.data)
        if not isinstance(address, ListAddress | InstanceAddress):
            return _unwatchable(uri, "only types and instances can be watched")
        if address.place.commit is not None:
            return _unwatchable(uri, "the past never changes; watch a branch")
        if isinstance(address, InstanceAddress):
            problem = id_problem(address.id)
            if problem is not None:
                return _unwatchable(uri, f"{address.id[:100]!r} can't be an id: {problem}")
            segment = encode_id(address.id)
        elif address.plain:
            segment = None
        else:
            return _unwatchable(uri, "parameters can't be watched; watch the type, or an instance")
        target = WatchTarget(address.place.branch or MAIN, address.type, segment)
        unknown = self._unknown(actor, address.place, target)
        return target if unknown is None else _unknown(uri, unknown)

    def _unknown(self, actor: Actor, place: ReadPoint, target: WatchTarget) -> str | None:
        """Why a branch or type does not exist for an actor; an instance may be created later."""
        rights = self._authority.rights(actor)
        seen = RefResolver(self._graph, reader(rights))
        if place is not HERE and not seen.has(target.branch):
            return seen.not_found(target.branch).message
        known = rights.schema(target.branch).by_name
        if target.type in known:
            return None
        hint = suggest(target.type, known) if known else NO_TYPES
        return f"there is no type {target.type[:100]!r}; {hint}"

    def _may_hear(self, watcher: Watcher, uri: str, note: PendingChanges) -> bool:
        """Whether current policies let a watcher read what it watches and see the change."""
        rights, target = self._authority.rights(watcher.actor), watcher.target(uri)
        if rights.unrestricted or target is None:
            return True
        branch = target.branch
        if not rights.may("Read", branch):
            return False
        if any(self._sees_turn(rights, target, *turn) for turn in note.turns):
            return True
        schema = self._schema(branch)
        if schema is None:
            return False
        visibility = rights.visibility(schema, (branch,))
        if visibility.reads_all:
            return True
        schema_filter = visibility.filter(schema)
        if target.type not in schema_filter.schema.by_name:
            return False
        return note.shows(schema_filter, schema, target.type, target.segment)

    def _sees_turn(
        self, rights: Rights, target: WatchTarget, before: str | None, after: str | None
    ) -> bool:
        """Whether a change of the schema is visible to the watcher."""
        old, new = (
            Schema() if digest is None else self._graph.compiled(digest).schema
            for digest in (before, after)
        )
        was, now = (rights.visibility(each, (target.branch,)).restrict(each) for each in (old, new))
        known = target.type in was.by_name or target.type in now.by_name
        return known and was.digest != now.digest

    def _schema(self, branch: str) -> Schema | None:
        """The types of a branch, without opening it; None if there is no such branch."""
        if branch == MAIN:
            return self._graph.committed_schema(MAIN)
        head = self._graph.log.head(branch)
        return None if head is None else self._graph.compiled(head.schema).schema


class Watcher:
    """One subscriber: the URIs that it watches, and those it must be notified of."""

    __slots__ = ("_closed", "_due", "_targets", "_watches", "actor", "wake")

    def __init__(self, watches: Watches, actor: Actor) -> None:
        self._watches = watches
        self.actor = actor
        self._targets: dict[str, WatchTarget] = {}
        self._due: dict[str, None] = {}
        self._closed = False
        self.wake: Callable[[], None] = _do_nothing
        """Called on the event loop when the first notification is due."""

    def take(self) -> Sequence[str]:
        """The URIs that changed since they were last taken, as they were subscribed.

        Sorted: their order could reveal other changes.
        """
        due = sorted(self._due)
        self._due.clear()
        return due

    @property
    def uris(self) -> tuple[str, ...]:
        """What it watches."""
        return tuple(self._targets)

    def target(self, uri: str) -> WatchTarget | None:
        """The target of a URI."""
        return self._targets.get(uri)

    def notify(self, uri: str) -> None:
        """Report a change of a URI; called by the rounds of ``Watches``."""
        if uri in self._targets:
            first = not self._due
            self._due[uri] = None
            if first:
                self.wake()

    def add(self, uri: str) -> Failure | None:
        """Watch another URI, or return the refusal."""
        if uri in self._targets or self._closed:
            return None
        if len(self._targets) >= MAX_URIS:
            return _full(f"a watch can have {MAX_URIS} URIs; watch types instead of instances")
        found = self._watches.add(self, uri)
        if isinstance(found, Failure):
            return found
        self._targets[uri] = found
        return None

    def remove(self, uri: str) -> None:
        """Stop watching a URI."""
        target = self._targets.pop(uri, None)
        if target is not None:
            self._watches.remove(self, uri, target)
            self._due.pop(uri, None)

    def close(self) -> None:
        """Stop watching."""
        if self._closed:
            return
        for uri in list(self._targets):
            self.remove(uri)
        self._closed = True
        self._watches.leave(self)


class Topic:
    """The watchers of a type on a branch: of all its instances, or of single ones by id."""

    __slots__ = ("everything", "nodes")

    def __init__(self) -> None:
        self.everything: Watching = {}
        self.nodes: dict[str, Watching] = {}

    def of(self, segment: str | None) -> Watching:
        """The watchers of one node, or of the type."""
        return self.everything if segment is None else self.nodes.setdefault(segment, {})

    def all(self) -> Iterator[tuple[Watcher, str]]:
        """The watchers of the type, each with its URIs."""
        return _pairs(self.everything)

    def nodes_all(self) -> Iterator[tuple[Watcher, str]]:
        """The watchers of single nodes."""
        for watching in list(self.nodes.values()):
            yield from _pairs(watching)


Watching = dict[Watcher, dict[str, None]]
"""Watcher → the URIs with which it watches one target."""


def _pairs(watching: Watching) -> Iterator[tuple[Watcher, str]]:
    for watcher, uris in list(watching.items()):
        for uri in list(uris):
            yield watcher, uri


def _do_nothing() -> None:
    pass


def _watched_roots() -> Sequence[str]:
    """The beginnings of URIs that can be watched."""
    return ("kg/…", "branch/…")


def _unwatchable(uri: str, why: str) -> Failure:
    text = f"{uri[:300]} can't be watched: {why}"
    return Failure("validation", "validation", text, {"uri": uri[:300], "reason": why})


def _unknown(uri: str, why: str) -> Failure:
    return Failure("unknown", "not_found", f"{uri[:300]}: {why}", {"uri": uri[:300]})


def _less(counts: Counter[str], name: str) -> None:
    """Subtract one, and remove a name at zero."""
    if counts[name] <= 1:
        del counts[name]
    else:
        counts[name] -= 1


def _too_many(name: str, used: int, allowed: int, graph: str) -> Failure:
    return Failure(
        "budget",
        "budget",
        f"{name} has {used} watches open, and {allowed} are allowed (watches in "
        f"[graphs.{graph}.budgets]); close one, then try again",
        {"limit": "watches", "allowed": allowed, "used": used, "retry_after": 1},
    )


def _full(why: str) -> Failure:
    return Failure("budget", "limit", why)
