"""Provenance: the activities of a graph as one actor may see them, and what each used and made.

An administrator sees the calls of everybody, any other actor its own. What they used and made is
shown as far as the actor may read it now: a node of a type that it may not see, or a commit of a
branch that it may not read, is left out, and asking for one finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from trails.engine.graph.cursors import Cursors, Holder, check_subject
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.graph.node_history import commits_of_node
from trails.engine.visibility.access import Access
from trails.engine.visibility.refs import RefResolver, reader
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.history import Activity, ActivityQuery
from trails.model.iris import HANDLE_PREFIX
from trails.model.nodes import make_handle

LIST_ACTIVITIES: Final = "prov_list"
"""The operation that cursors of activities are for."""
MOST_ACTIVITIES: Final = 1000
_WRITERS: Final = 10_000
"""Commits of a node whose calls are looked for."""


class ProvenanceQuery(msgspec.Struct, frozen=True):
    """Which activities to list."""

    actor: str | None = None
    node: str | None = None
    commit: str | None = None
    capability: str | None = None
    outcome: str | None = None
    since: str | None = None
    until: str | None = None
    archived: bool = False


class ProvenancePage(msgspec.Struct, frozen=True):
    """Activities, newest first."""

    activities: tuple[Activity, ...]
    next: str | None = None
    """The cursor of the next page."""
    archived: bool = False
    """Whether older activities are in archives that were not searched."""


def list_provenance(
    graph: Graph,
    access: Access,
    actor: str,
    wanted: ProvenanceQuery,
    *,
    masks: tuple[str, str],
    after: str | None = None,
    limit: int = 50,
) -> ProvenancePage:
    """One page of the activities that an actor may see.

    ``masks``: an outcome that only administrators see, and what its caller was told instead.
    """
    every = access.may("Admin", MAIN)
    visible = _Visible(graph, access, actor, every=every)
    query = visible.query(wanted, masks)
    holder = Holder(actor, LIST_ACTIVITIES, "")
    cursors, subject = Cursors(graph), msgspec.to_builtins(wanted)
    last = None
    if after is not None:
        found = cursors.read(holder, after)
        check_subject(found, subject)
        last = str(found.place)
    archived = bool(graph.log.archives()) and not wanted.archived
    if query is None:
        return ProvenancePage((), None, archived)
    page = graph.activities.select(query, limit + 1, after=last, archived=wanted.archived)
    more = len(page) > limit
    following = cursors.sign(holder, "", subject, page[limit - 1].id) if more else None
    page = page[:limit]
    if last is None:
        # What has no place in the log yet is on the first page, in addition.
        page += graph.activities.pending(query)
        page.sort(key=lambda each: each.ended, reverse=True)
    return ProvenancePage(tuple(map(visible.show, page)), following, archived)


class _Visible:
    """What an actor may see of activities."""

    def __init__(self, graph: Graph, access: Access, actor: str, *, every: bool) -> None:
        self._graph = graph
        self._access = access
        self._actor = actor
        self._every = every
        self._refs = RefResolver(graph, reader(access))
        schema = graph.main.schema
        visibility = access.visibility(schema, (MAIN,))
        self._filter = None if visibility.reads_all else visibility.filter(schema)
        self._commits: dict[str, bool] = {}

    def query(self, wanted: ProvenanceQuery, masks: tuple[str, str]) -> ActivityQuery | None:
        """What to look for; None if nothing of it may be seen."""
        actor = wanted.actor
        outcomes: tuple[str, ...] = () if wanted.outcome is None else (wanted.outcome,)
        if not self._every:
            if actor not in {None, self._actor} or wanted.outcome == masks[0]:
                return None
            actor = self._actor
            outcomes = masks if wanted.outcome == masks[1] else outcomes
        node, ids = None, None
        if wanted.commit is not None:
            made = self._graph.ancestry.commit(self._refs.commit(wanted.commit).id).activity
            ids = frozenset(() if made is None else (made,))
        if wanted.node is not None:
            node = self._handle(wanted.node)
            if not self._sees(node):
                return None
            writers = frozenset(self._writers(node))
            # With a commit as well: the call that made it, if that changed or read the node.
            ids, node = (writers, node) if ids is None else (ids & writers, None)
        return ActivityQuery(
            actor,
            wanted.capability,
            outcomes,
            parse_time(wanted.since, "since"),
            parse_time(wanted.until, "until"),
            node,
            ids,
        )

    def _handle(self, text: str) -> str:
        names = self._graph.names
        parsed = names.parse_node(text) or names.parse_node(HANDLE_PREFIX + text)
        return text if parsed is None else make_handle(*parsed)

    def _writers(self, handle: str) -> Iterator[str]:
        """The calls that changed a node."""
        for seq in commits_of_node(self._graph, handle)[-_WRITERS:]:
            commit = self._graph.log.at(seq)
            if commit is not None and commit.activity is not None:
                yield commit.activity

    def _sees(self, handle: str) -> bool:
        if self._filter is None:
            return True
        name = handle.partition("/")[0]
        # An edge is seen with both of its ends, which may be gone by now.
        return self._filter.knows(handle) and name not in self._filter.partial_edges

    def _reads(self, commit: str) -> bool:
        if self._access.unrestricted:
            return True
        known = self._commits.get(commit)
        if known is None:
            try:
                self._refs.commit(commit)
                known = True
            except NotFoundError:
                known = False
            self._commits[commit] = known
        return known

    def show(self, activity: Activity) -> Activity:
        """An activity without what may not be read of what it used and made."""
        return msgspec.structs.replace(
            activity,
            used=tuple(
                each
                for each in activity.used
                if (self._sees(each) if "/" in each else self._reads(each))
            ),
            generated=tuple(filter(self._reads, activity.generated)),
        )


def parse_time(text: str | None, argument: str) -> str | None:
    """A date or time in ISO 8601, as the log writes times; without a zone it is UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"{argument}: {text[:100]!r} is not a date or time, such as 2026-01-31T12:00:00Z"
        raise ValidationError([FieldError(argument, "datatype", message, text[:100])]) from None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
