"""The change feed: the commits of a branch after one, oldest first, with the nodes they changed.

A commit's statements are a step from its first parent, so the events of a branch are the commits
along first parents: whoever applies them in order has the state of the head. If the commit to go on
from is not among them, because its branch was merged and then forwarded, the first event is the
difference to the oldest one that contains it. Everything is read from the log, a page at a time, so
a reader can go on from any commit and needs no memory between two pages.

Readers with restricted access get what ``VisibleHistory`` shows them: no hidden commit, node or
position.
"""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Final, Literal
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Meta

from trails.engine.graph.ancestry import Ancestry
from trails.engine.graph.changes import Net, net_between
from trails.engine.graph.feed import places_of
from trails.engine.graph.graph import Graph
from trails.engine.visibility.refs import RefResolver
from trails.engine.visibility.visible_history import CommitFilter, VisibleHistory
from trails.errors import NotFoundError, StaleError
from trails.model.caches import BoundedCache
from trails.model.fairness import with_pauses
from trails.model.history import GENESIS, Commit, Head
from trails.model.names import suggest
from trails.model.operations.pages import Call

START: Final = "0"
"""How the state before the first commit is written."""
MOST_EVENTS: Final = 1000
_HANDLES: Final = 1000
"""Nodes that one event lists."""
_CHARS: Final = 64 << 10
"""Characters of their handles."""
_PAGE: Final = 256 << 10
"""Characters of handles and messages in a page."""
_LARGE: Final = 200_000
"""Statements above which the nodes of a commit are not listed."""
_SCANNED: Final = 500_000
"""Visible statements and commits that one page covers; the next page goes on there."""

Kind = Literal["created", "updated", "deleted"]


class ChangedNode(msgspec.Struct, frozen=True):
    """A node that a commit changed."""

    handle: str
    change: Kind


class ChangeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One commit of a branch, as a reader sees it."""

    commit: str
    branch: str
    position: int | None
    """The commit's position in the log; None where policies are in force."""
    time: str
    actor: str
    message: str
    schema_changed: bool
    """Whether it changed the declarations of types."""
    created: int | None
    updated: int | None
    deleted: int | None
    """How many nodes; None if the commit is too large to count them."""
    changes: tuple[ChangedNode, ...]
    next: Call | None
    """The call that lists the other nodes; None if all are listed."""


class ChangePage(msgspec.Struct, frozen=True):
    """Some events, oldest first, and where the next page begins."""

    events: tuple[ChangeEvent, ...]
    since: Annotated[
        str, Meta(description="The commit up to which this is complete, for the next call.")
    ]
    complete: Annotated[bool, Meta(description="Whether that is the head of the branch.")]


class ChangeQuery(msgspec.Struct, frozen=True):
    """Which changes to read."""

    branch: str = "main"
    since: str | None = None
    """A commit; None for the head of the branch."""
    types: tuple[str, ...] = ()
    """Only changes of these types and of those that extend them; none for all."""
    limit: int = 100


def read_changes(
    graph: Graph, wanted: ChangeQuery, refs: RefResolver, visible_history: VisibleHistory | None
) -> ChangePage:
    """The events of a branch after a commit."""
    refs.check(wanted.branch)
    head = graph.log_head(wanted.branch)
    if wanted.since is None:
        return ChangePage((), _shown(head.commit), complete=True)
    start = GENESIS if wanted.since in {GENESIS, START} else refs.commit(wanted.since).id
    seen = None if visible_history is None else visible_history.along(wanted.branch)
    events = _Events(graph, wanted, seen)
    events.check_types(start, head.commit)
    found: list[ChangeEvent] = []
    reached, work, size = start, 0, 0
    for commit, before in with_pauses(_steps(graph, wanted.branch, start, head)):
        if not events.shows(commit, before):
            continue  # where a page ends must not depend on hidden commits, and not name them
        if work > _SCANNED:
            return ChangePage(tuple(found), _shown(reached), complete=False)
        event = events.of(commit, before)
        if event is not None:
            if len(found) >= wanted.limit or size > _PAGE:
                return ChangePage(tuple(found), found[-1].commit, complete=False)
            found.append(event)
            size += len(event.message) + sum(len(each.handle) for each in event.changes)
        reached = commit.id
        work += events.size(commit) + 1
    return ChangePage(tuple(found), _shown(head.commit), complete=True)


def _shown(commit: str) -> str:
    return START if commit == GENESIS else commit


def _steps(
    graph: Graph, branch: str, start: str, head: Head
) -> Iterator[tuple[Commit, str | None]]:
    """The commits after one; with each, the state before it, if that is not its first parent."""
    place = graph.ancestry.place(start)
    trunk, end = _trunks.setdefault(graph, _Trunks(graph.ancestry)).of(branch, head.seq, place)
    at = bisect_left(trunk, place, 0, end)
    if not place:
        at = -1
    elif at == end or trunk[at] != place:
        if not graph.ancestry.is_ancestor(start, head.commit):
            raise _gone(start, branch, head)
        at = _first_containing(graph, trunk[at:end], start) + at
        yield _commit(graph, trunk[at]), start
    for each in range(at + 1, end):
        yield _commit(graph, trunk[each]), None


def _gone(start: str, branch: str, head: Head) -> StaleError:
    newest = _shown(head.commit)
    return StaleError(
        f"commit {start} is not in the history of branch {branch!r}: the branch was deleted and "
        f"created again, or the commit is of another one; read the branch anew, then continue "
        f"after its head, {newest}",
        commit=start,
        branch=branch,
        head=newest,
    )


def _first_containing(graph: Graph, places: Sequence[int], start: str) -> int:
    """The index of the first of some commits, each behind the next, that has another behind it."""

    def contains(seq: int) -> bool:
        return graph.ancestry.is_ancestor(start, _commit(graph, seq).id)

    return bisect_left(places, True, key=contains)


def _commit(graph: Graph, seq: int) -> Commit:
    found = graph.log.at(seq)
    assert found is not None  # noqa: S101 - commits are never removed
    return found


class _Trunks:
    """The first parents of branches, as ascending places in the log; each grows with its head."""

    def __init__(self, ancestry: Ancestry) -> None:
        self._ancestry = ancestry
        self._lock = threading.Lock()
        self._known: BoundedCache[str, array[int]] = BoundedCache(_BRANCHES)

    def of(self, branch: str, head: int, start: int) -> tuple[array[int], int]:
        """The places down to a start or below it, and the index after that of the head."""
        with self._lock:
            known = self._known.get(branch) or array("q", [head] if head else [])
            if known and known[-1] < head:
                known = self._extend(known, head)
            end = bisect_left(known, head) + 1
            if head and (end > len(known) or known[end - 1] != head):
                known, end = array("q", [head]), 1  # another branch had this name
            if known and known[0] > start:
                below = array("q", self._ancestry.first_parents(known[0], max(start - 1, 0)))
                below.reverse()
                known, end = below + known[1:], end + len(below) - 1
            if not known:
                return known, 0
            self._known[branch] = known
            return known, end

    def _extend(self, known: array[int], head: int) -> array[int]:
        """Add the places up to a new head, if it continues what is known."""
        above = array("q", self._ancestry.first_parents(head, known[-1] - 1))
        above.reverse()
        return known + above[1:] if above[0] == known[-1] else array("q", [head])


_BRANCHES: Final = 16
_trunks: Final[WeakKeyDictionary[Graph, _Trunks]] = WeakKeyDictionary()

Changed = Mapping[str, Kind]
_scans: Final[WeakKeyDictionary[Graph, BoundedCache[tuple[str, str], Changed]]] = (
    WeakKeyDictionary()
)
_KEPT: Final = 64
"""Commits whose changed nodes are kept, because several readers ask for the newest ones."""
_SMALL: Final = 10_000
"""Statements of a commit that is kept."""


class _Events:
    """Makes events for one reader."""

    def __init__(
        self, graph: Graph, wanted: ChangeQuery, visible_history: VisibleHistory | None
    ) -> None:
        self._graph = graph
        self._wanted = wanted
        self._visible_history = visible_history

    def check_types(self, start: str, head: str) -> None:
        """Refuse a type that neither the first state nor the last one has."""
        known = [self._types(each) for each in (head, start)]
        for name in self._wanted.types:
            if not any(name in each for each in known):
                hint = suggest(name, known[0])
                raise NotFoundError(f"there is no type {name[:100]!r}; {hint}", type=name[:100])

    def _types(self, commit: str) -> Mapping[str, object]:
        if self._visible_history is not None:
            return self._visible_history.schema_at(commit).by_name
        return self._graph.compiled(self._graph.ancestry.schema_at(commit)).schema.by_name

    def shows(self, commit: Commit, before: str | None) -> bool:
        """Whether the reader may see that anything changed."""
        seen = self._visible_history
        if seen is None:
            return True
        if before is None:
            return seen.shows(commit)
        return bool(self._between(before, commit)) or self._turned(commit, before)

    def size(self, commit: Commit) -> int:
        """How many statements of a commit the reader may see."""
        seen = self._visible_history
        commit_filter = None if seen is None else seen.filter_at(commit.id)
        if commit_filter is None:
            return commit.added + commit.removed
        return sum(commit_filter.count(commit))

    def of(self, commit: Commit, before: str | None) -> ChangeEvent | None:
        """The event of a commit that the reader sees; None if it has no change of these types."""
        changed: Changed | None = None
        if before is not None:
            changed = self._between(before, commit)
        elif self.size(commit) <= _LARGE:
            changed = self._changed(commit)
        turned = self._turned(commit, commit.first_parent if before is None else before)
        if self._wanted.types:
            families = self._families(commit)
            if changed is not None:
                changed = {
                    handle: kind
                    for handle, kind in changed.items()
                    if handle.partition("/")[0] in families
                }
            if changed is not None and not changed and not (turned and families):
                return None
        return self._event(commit, before, changed, turned=turned)

    def _event(
        self, commit: Commit, before: str | None, changed: Changed | None, *, turned: bool
    ) -> ChangeEvent:
        seen, branch = self._visible_history, self._wanted.branch
        shown = commit if seen is None else seen.caption(commit)
        listed = _listed(changed or {})
        left_out = changed is None or len(listed) < len(changed)
        following = _following(commit.id, before, listed) if left_out else None
        kinds = None if changed is None else list(changed.values())
        return ChangeEvent(
            commit=commit.id,
            branch=branch,
            position=shown.seq or None,
            time=shown.time,
            actor=shown.actor,
            message=shown.message,
            schema_changed=turned,
            created=None if kinds is None else kinds.count("created"),
            updated=None if kinds is None else kinds.count("updated"),
            deleted=None if kinds is None else kinds.count("deleted"),
            changes=listed,
            next=following,
        )

    def _families(self, commit: Commit) -> set[str]:
        """The wanted types around a commit, and those that extend them."""
        schemas = [each.schema for each in self._graph.folding.types_around(commit)]
        return {
            name
            for schema in schemas
            for wanted in self._wanted.types
            if wanted in schema.by_name
            for name in schema.family(wanted)
        }

    def _turned(self, commit: Commit, before: str) -> bool:
        """Whether the declarations that the reader sees changed."""
        seen = self._visible_history
        if seen is not None:
            return seen.schema_at(commit.id).digest != seen.schema_at(before).digest
        return commit.schema != self._graph.ancestry.schema_at(before)

    def _between(self, before: str, commit: Commit) -> Changed:
        """What differs between two states that are not one step apart."""
        seen = self._visible_history
        net: Net = (
            net_between(self._graph, before, commit.id)
            if seen is None
            else seen.between(before, commit.id)
        )
        return {
            handle: "updated" if node.was and node.stays else "created" if node.stays else "deleted"
            for handle, node in net.items()
        }

    def _changed(self, commit: Commit) -> Changed:
        """The visible nodes that a commit changed, from its statements."""
        seen = self._visible_history
        commit_filter = None if seen is None else seen.filter_at(commit.id)
        kept = _scans.setdefault(self._graph, BoundedCache(_KEPT))
        key = commit.id, "" if commit_filter is None else commit_filter.key
        found = kept.get(key)
        if found is None:
            found = _scan(self._graph, commit, commit_filter)
            if commit.added + commit.removed <= _SMALL:
                kept[key] = found
        return found


def _scan(graph: Graph, commit: Commit, commit_filter: CommitFilter | None) -> Changed:
    """How each node of a commit changed: it was created if its class was added, and so on."""
    nodes = graph.names.nodes.encode()
    match = re.compile(
        b"<" + re.escape(nodes) + rb"(([^/>]+)/[^>]*)> <([^>]*)> (?:<([^>]*)>)?"
    ).match
    classes: tuple[dict[str, None], dict[str, None]] = {}, {}
    touched: dict[str, None] = {}
    types = graph.folding.types_around(commit)
    places = [places_of(known.schema, graph.names) for known in types]
    with graph.folding.statements(commit) as parts:
        lines: Iterable[tuple[int, bytes]] = (
            ((side, line) for side, part in enumerate(parts) for line in part)
            if commit_filter is None
            else commit_filter.visible(*parts)
        )
        for side, line in with_pauses(lines):
            found = match(line)
            if found is None:
                continue
            handle, kind, predicate, value = found.groups()
            place = places[side].get((kind, predicate))
            if place is None:
                continue
            named = handle.decode()
            touched[named] = None
            if place.main_class is not None and value == place.main_class:
                classes[side][named] = None
    gone, come = classes
    return {
        handle: "updated"
        if (handle in gone) == (handle in come)
        else "created"
        if handle in come
        else "deleted"
        for handle in sorted(touched)
    }


def _listed(changed: Changed) -> tuple[ChangedNode, ...]:
    """The first nodes by handle, within the limits of an event."""
    found: list[ChangedNode] = []
    room = _CHARS
    for handle in islice(sorted(changed), _HANDLES):
        room -= len(handle)
        if room < 0 and found:
            break
        found.append(ChangedNode(handle, changed[handle]))
    return tuple(found)


def _following(commit: str, before: str | None, listed: Sequence[ChangedNode]) -> Call:
    """The call for the nodes after those that are listed."""
    after = {"after": listed[-1].handle} if listed else {}
    if before is None:
        return Call("commit_get", {"commit": commit, **after})
    return Call("graph_diff", {"from": before, "to": commit, **after})
