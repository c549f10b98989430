"""The feed: which nodes of which branch changed, published once the change can be read.

A writer hands a ``BranchChange`` to the listeners after its head has become visible. A listener
records it and wakes a thread; it never works, waits or fails on the writer's thread. Over-notify;
never miss a change.

Listeners who do not see everything need a ``ChangeIndex``: which nodes changed, by change key.
``ChangeScan`` finds it in the log: the statements that a path adds or removes, net, are counted by
key. A key with too many to count counts as changed, and the others do not depend on that; so a
listener learns nothing about changes that it can't see.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from trails.engine.graph.ancestry import Ancestry
from trails.engine.graph.checkouts import Checkout, CompiledSchema
from trails.engine.graph.folding import Folding
from trails.errors import TrailsError
from trails.imports import later
from trails.model.iris import RDF_TYPE, Names
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.model.visibility import (
    ENDS,
    ChangeKey,
    change_keys_between,
    list_key,
    list_parts,
    type_of,
)

if TYPE_CHECKING:
    from trails.views import lists, terms
else:
    lists = later("trails.views.lists")
    terms = later("trails.views.terms")

MANY: Final = 2_000
"""Above so many nodes only their change key is named."""


class ChangeIndex:
    """Nodes by change key; bounded, because keys are few and the nodes of each are limited."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Mapping[ChangeKey, Iterable[str] | None] | None = None) -> None:
        """``nodes``: handles by key, None where they are too many."""
        self._nodes: dict[ChangeKey, set[str] | None] = {}
        for key, handles in (nodes or {}).items():
            self._join(key, handles)

    def __iter__(self) -> Iterator[ChangeKey]:
        return iter(self._nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChangeIndex) and self._nodes == other._nodes

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ChangeIndex({self._nodes!r})"

    def add(self, key: ChangeKey, handle: str) -> None:
        """Add a node that changed under a key."""
        known = self._nodes.get(key)
        if known is not None:
            known.add(handle)
            if len(known) > MANY:
                self._nodes[key] = None
        elif key not in self._nodes:
            self._nodes[key] = {handle}

    def update(self, other: ChangeIndex) -> None:
        """Add the nodes of another index."""
        for key, handles in other._nodes.items():
            self._join(key, handles)

    def _join(self, key: ChangeKey, handles: Iterable[str] | None) -> None:
        if handles is None:
            self._nodes[key] = None
        else:
            for handle in handles:
                self.add(key, handle)

    def may_be_at(self, key: ChangeKey, handle: str) -> bool:
        """Whether a node changed under a key, or may have, among many."""
        if key not in self._nodes:
            return False
        known = self._nodes[key]
        return known is None or handle in known


_log = logging.getLogger(__name__)


class BranchChange(msgspec.Struct, frozen=True):
    """What a new head of a branch differs in from the one before."""

    branch: str
    handles: frozenset[str] | None = None
    """The nodes that were made, changed or deleted; None where they are too many."""
    types: frozenset[str] | None = None
    """Their types and what these extend; None where it may be any type."""
    index: ChangeIndex | None = None
    """What changed, for those who do not see everything; None where no listener needs it."""
    schema_change: tuple[str | None, str | None] | None = None
    """The schemas before and after where they differ; None for a branch that is not there."""


Listener = Callable[[BranchChange], None]
Asks = Callable[[str], bool]
"""Whether a listener has to know what exactly changes on a branch."""


def _never(branch: str) -> bool:
    del branch
    return False


class Feed:
    """Hands the changes of one graph to its listeners; without any, nothing is collected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[tuple[Listener, Asks], ...] = ()

    @property
    def listened(self) -> bool:
        """Whether there is a listener."""
        return bool(self._listeners)

    def needs_index(self, branch: str) -> bool:
        """Whether a listener of a branch does not see everything on it."""
        return any(asks(branch) for _, asks in self._listeners)

    def listen(self, listener: Listener, asks: Asks = _never) -> Callable[[], None]:
        """Call ``listener`` with every change from now on; the returned function stops that.

        It is called on the writer's thread.
        """
        entry = listener, asks
        with self._lock:
            self._listeners = (*self._listeners, entry)

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not entry)

        return stop

    def publish(self, change: BranchChange) -> None:
        """Hand a change on; what a listener does wrong is not the writer's concern."""
        for listener, _ in self._listeners:
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - it must never reach a writer
                _log.exception("a listener of the feed failed", extra={"event": "feed.failed"})


class ChangeCollector:
    """The nodes that a write touches: by handle while they are few, their types always."""

    __slots__ = ("_handles", "_types", "everything", "index")

    def __init__(self, *, indexed: bool = False) -> None:
        """``indexed``: what exactly changes is counted too."""
        self._handles: set[str] | None = set()
        self._types: set[str] = set()
        self.index = ChangeIndex() if indexed else None
        self.everything = False
        """Whether any node may be seen differently, counted or not."""

    def add(self, handles: Iterable[str]) -> None:
        """Count these nodes in."""
        named = list(handles)
        self._types.update(handle.partition("/")[0] for handle in named)
        if self._handles is not None:
            self._handles.update(named)
            if len(self._handles) > MANY:
                self._handles = None

    def compare(
        self, schema: Schema, changes: Iterable[tuple[str, NodeState | None, NodeState | None]]
    ) -> None:
        """Count nodes in, each as it was and as it is."""
        index = self.index
        if index is None:
            self.add(handle for handle, _, _ in changes)
            return
        for handle, before, after in changes:
            self.add((handle,))
            for key in change_keys_between(schema, before, after):
                index.add(key, handle)

    def change(self, branch: str, schema: Schema) -> BranchChange:
        """What these nodes are a change of."""
        if self.everything:
            return BranchChange(branch, index=self.index)
        types = frozenset(each for name in self._types for each in schema.lineage(name))
        handles = None if self._handles is None else frozenset(self._handles)
        return BranchChange(branch, handles, types, self.index)


_COUNTED: Final = 20_000
"""Statements of one key that are counted; where it has more, it has changed."""
_WAITING: Final = 1_000
"""Edges whose ends are looked up together."""
_CLASS: Final = RDF_TYPE.encode()


class StatementPlace(NamedTuple):
    """Where a statement belongs: a type, and its class or one of its fields."""

    key: ChangeKey
    """Without what a reference leads to and an edge joins."""
    main_class: bytes | None
    """Of the statements of classes only this one counts, which makes a node."""
    refers: bool
    joins: bool
    """Whether the type is one of edges."""
    ordered: bool = False
    """Whether a statement is a whole list."""


Said = tuple[StatementPlace, tuple[str, ...], bytes]
"""A statement: where it belongs, the types that it refers to, and its line."""


class ChangeScan:
    """Finds the change index of a path through the log."""

    def __init__(
        self,
        feed: Feed,
        ancestry: Ancestry,
        folding: Folding,
        compiled: Callable[[str], CompiledSchema],
        names: Names,
    ) -> None:
        self._feed = feed
        self._ancestry = ancestry
        self._folding = folding
        self._compiled = compiled
        self._names = names

    def complete(
        self, change: BranchChange, checkout: Checkout, start: str, end: str
    ) -> BranchChange:
        """A change with what those have to know who do not see everything, if there are any."""
        if not self._feed.needs_index(checkout.name):
            return change
        before, after = (self._ancestry.schema_at(each) for each in (start, end))
        schema_change = None if before == after else (before, after)
        index = change.index
        if index is None:
            try:
                index = self.between(checkout, start, end)
            except TrailsError as error:  # the change is made, whatever can be read of it
                _log.warning(
                    "a change of %r can't be read for its listeners: %s",
                    checkout.name,
                    error,
                    extra={"event": "feed.unreadable"},
                )
        return msgspec.structs.replace(change, index=index, schema_change=schema_change)

    def between(self, checkout: Checkout, start: str, end: str) -> ChangeIndex:
        """What differs between two commits; the checkout is at the second."""
        net = _Net(checkout, self._names)
        path = self._ancestry.path(start, end)
        for commits, sign in ((path.undo, -1), (path.redo, 1)):
            for commit in commits:
                former, latter = self._folding.types_around(commit)
                with self._folding.statements(commit) as (removed, added):
                    net.count(places_of(former.schema, self._names), removed, -sign)
                    net.count(places_of(latter.schema, self._names), added, sign)
        return net.index()


def places_of(schema: Schema, names: Names) -> Mapping[tuple[bytes, bytes], StatementPlace]:
    """The places of a schema's statements, by type and predicate."""
    found: dict[tuple[bytes, bytes], StatementPlace] = {}
    for each in schema.types:
        name, joins = each.name.encode(), each.edge is not None
        main = names.term(each.iri).encode()
        found[name, _CLASS] = StatementPlace(ChangeKey(each.name), main, refers=False, joins=joins)
        for field in each.fields:
            key, refers = ChangeKey(each.name, field.name), field.target is not None
            found[name, names.term(field.iri).encode()] = StatementPlace(
                key, None, refers, joins, field.ordered
            )
    return found


class _Net:
    """Statements that were added and not removed, or the other way round, by key."""

    def __init__(self, checkout: Checkout, names: Names) -> None:
        self._checkout = checkout
        self._nodes = nodes = names.nodes.encode()
        self._match = re.compile(
            b"<" + re.escape(nodes) + rb"(([^/>]+)/[^>]*)> <([^>]*)> (?:<([^>]*)>)?"
        ).match
        self._counts: dict[ChangeKey, dict[bytes, int] | None] = {}
        self._waiting: dict[str, list[tuple[Said, int]]] = {}
        """Of edges that were neither made nor deleted so far, so that their ends are not known."""
        self._looked_up = 0

    def count(
        self,
        places: Mapping[tuple[bytes, bytes], StatementPlace],
        lines: Iterable[bytes],
        step: int,
    ) -> None:
        """Count statements in; those of one node follow each other."""
        match, edge, said = self._match, b"", list[Said]()
        for line in lines:
            found = match(line)
            if found is None:
                continue
            handle, kind, predicate, value = found.groups()
            place = places.get((kind, predicate))
            if place is None or (place.main_class is not None and value != place.main_class):
                continue
            parts = list(self._parts(place, value, line))
            if not place.joins:
                for part in parts:
                    self._put(part, (), step)
                continue
            if handle != edge:
                self._count_edge(edge.decode(), said, step)
                edge, said = handle, []
            said += parts
        self._count_edge(edge.decode(), said, step)

    def _parts(self, place: StatementPlace, value: bytes | None, line: bytes) -> Iterator[Said]:
        """A statement, or of an ordered list of references what those see who see some types."""
        if not place.refers:
            yield place, (), line
        elif place.ordered:
            subject = line[: line.index(b">") + 1]
            for types, handles in list_parts(_handles_in(line, self._nodes.decode())).items():
                yield place, types, b"%b %b" % (subject, " ".join(handles).encode())
        elif value is not None and value.startswith(self._nodes):
            yield place, (type_of(value[len(self._nodes) :].decode()),), line

    def _count_edge(self, handle: str, said: list[Said], step: int) -> None:
        if not said:
            return
        known = {place.key.field: types[0] for place, types, _ in said if len(types) == 1}
        waiting = [*self._waiting.pop(handle, ()), *((each, step) for each in said)]
        if all(end in known for end in ENDS):
            self._put_edge(waiting, tuple(known[end] for end in ENDS))
            return
        self._waiting[handle] = waiting
        if len(self._waiting) >= self._looked_up + _WAITING:
            self._look_up()

    def _put_edge(self, said: list[tuple[Said, int]], ends: tuple[str, ...]) -> None:
        for each, step in said:
            self._put(each, ends, step)

    def _look_up(self) -> None:
        """Find the ends of edges that are there in the end; others are deleted on the way."""
        nodes = self._checkout.nodes
        with nodes.file.reader() as db:
            found = nodes.find_all(db, list(self._waiting))
        for handle, stored in found.items():
            values = stored.state.values
            self._put_edge(
                self._waiting.pop(handle), tuple(type_of(values.get(end)) for end in ENDS)
            )
        self._looked_up = len(self._waiting)

    def _put(self, said: Said, ends: tuple[str, ...], step: int) -> None:
        place, types, line = said
        key = place.key
        if types or ends:
            key = list_key(key._replace(ends=ends), types) if types else key._replace(ends=ends)
        counted = self._counts.get(key)
        if counted is None:
            if key in self._counts:
                return  # too many already
            counted = self._counts[key] = {}
        sum_ = counted.pop(line, 0) + step
        if sum_:
            counted[line] = sum_
            if len(counted) > _COUNTED:
                self._counts[key] = None

    def index(self) -> ChangeIndex:
        """What is left in the end."""
        if self._waiting:
            self._look_up()
        return ChangeIndex(
            {
                key: None if counted is None else set(map(self._handle_of, counted))
                for key, counted in self._counts.items()
                if counted is None or counted
            }
        )

    def _handle_of(self, line: bytes) -> str:
        return line[1 + len(self._nodes) : line.index(b">")].decode()


def _handles_in(line: bytes, nodes: str) -> list[str]:
    """The nodes that the statement of an ordered list refers to."""
    for quad in terms.read_statements(line, lenient=True):
        packed = lists.unpack(quad.object)
        if packed is not None:
            return [each.removeprefix(nodes) for each in packed.items]
    return []
