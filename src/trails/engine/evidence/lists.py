"""Lists of records, page by page, all pages of one commit.

The first page is of the present. A cursor pins its commit: the next page is read at the present if
the branch is still there, else from the graph as of that commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from trails.engine.evidence.records import Record, open_place, place_name, reopen_place
from trails.engine.graph.cursors import Cursors, Holder, check_subject
from trails.engine.session.context import GraphContext
from trails.engine.session.graph_session import GraphSession
from trails.engine.session.service import GraphService
from trails.model.nodes import Near, PageEnd, Selection
from trails.model.uris import ReadPoint
from trails.views.nodes.select import Found

LIST_RECORDS: Final = "node_list"
"""The tool that cursors of lists are for."""
MOST_NEAREST: Final = 1_000
"""Records up to which a list of the nearest ones goes."""
Item = dict[str, object]
_FEW: Final = 4
"""Records that are read at once if some of their type have long texts."""


class ListRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A page of a list."""

    tool: str
    """What the list is an answer of; its cursors are for that alone."""
    place: ReadPoint
    select: Callable[[GraphContext], Selection]
    """What is listed, with the types of the branch or commit that is read."""
    subject: object
    """What must be the same from page to page."""
    show: Callable[[Record], Item]
    """What is shown of a record."""
    room: int
    """Bytes of JSON after which a page is full."""
    cursor: str | None = None
    at_once: int = 20
    """Records that are read at once."""
    near: Near | None = None
    """Lists the nearest records, best first, instead of those in an order."""

    def first(self, kg: GraphSession, selection: Selection) -> Selection:
        """The first records of a page."""
        some = self.some(kg, selection)
        return msgspec.structs.replace(selection, limit=min(some, selection.limit or some))

    def some(self, kg: GraphSession, selection: Selection) -> int:
        """How many are read at once: few if they may hold megabytes, of which little is shown."""
        return min(self.at_once, _FEW) if kg.has_long_texts(selection.type) else self.at_once


class RecordPage(msgspec.Struct, frozen=True, eq=False):
    """Some records of one commit, as they are shown."""

    request: ListRequest
    ctx: GraphContext
    selection: Selection
    items: list[Item]
    after: PageEnd | None
    """Where the index goes on after these; None at the end."""
    total: int | None
    """How many there are altogether, if that is known."""
    commit: str
    start: int | None = None
    """Of the nearest records: how many are before these; ``after`` is not used."""
    more: bool = False
    """Of the nearest records: whether others follow."""
    parts: tuple[tuple[int, PageEnd], ...] = ()
    """Where parts of the page ended: the number of records up to there, and the place."""

    def cursor(self, cursors: Cursors, shown: int) -> str | None:
        """The cursor that goes on after the first few records; None at the end."""
        holder = _holder(self.ctx, self.request)
        if self.start is not None:
            at = self.start + shown
            if at >= MOST_NEAREST or (shown >= len(self.items) and not self.more):
                return None
            return cursors.sign(holder, self.commit, self.request.subject, at)
        after = self.after
        if shown < len(self.items):
            # Only the part in which it ends is read again.
            count, start = max((each for each in self.parts if each[0] < shown), default=(0, None))
            shorter = msgspec.structs.replace(self.selection, limit=shown - count)
            if start is not None:
                shorter = msgspec.structs.replace(shorter, offset=0, after=start)
            after = _read(self.ctx, shorter, self.commit)[1].next
        if after is None:
            return None
        return cursors.sign(holder, self.commit, self.request.subject, after)


def list_records(service: GraphService, ctx: GraphContext, request: ListRequest) -> RecordPage:
    """A page of records: the first, or the one that a cursor goes on with.

    Records are read a few at a time until the page is full.
    """
    place = request.place
    if request.cursor is None:
        opened = open_place(service, ctx, place)
        selection = request.select(opened)
        if request.near is not None:
            return _nearest(opened, request, selection, request.near, 0)
        first = request.first(opened.kg, selection)
        found, total, commit = opened.kg.page_with_commit(first)
        return _fill(RecordPage(request, opened, selection, [], None, total, commit), found)
    cursor = Cursors(service.graph).read(_holder(ctx, request), request.cursor)
    check_subject(cursor, request.subject)
    commit = cursor.commit_id
    opened = reopen_place(service, ctx, place, commit)
    if opened.checkout.head.commit != commit:
        opened = opened.at(commit)
    if request.near is not None:
        selection = request.select(opened)
        return _nearest(opened, request, selection, request.near, cursor.offset, commit)
    selection = msgspec.structs.replace(request.select(opened), after=cursor.position)
    at, found, total = _read(opened, request.first(opened.kg, selection), commit)
    return _fill(RecordPage(request, at, selection, [], None, total, commit), found)


def _nearest(
    ctx: GraphContext,
    request: ListRequest,
    selection: Selection,
    near: Near,
    start: int,
    commit: str | None = None,
) -> RecordPage:
    """The nearest records after the first few: of a commit, or of the present."""
    most = min(selection.limit or MOST_NEAREST, MOST_NEAREST - start)
    # One more shows whether others follow.
    k = min(most + 1, MOST_NEAREST)
    found, read = ctx.kg.nearest_with_commit(selection, near, k, start)
    if commit is not None and read != commit:
        ctx = ctx.at(commit)
        found, read = ctx.kg.nearest_with_commit(selection, near, k, start)
    items: list[Item] = []
    room = request.room
    for state, score in found[:most]:
        item = request.show(Record(ctx, request.place, state, read))
        items.append({**item, "score": round(score, 6)})
        room -= len(msgspec.json.encode(items[-1]))
        if room < 0:
            break
    more = len(found) > len(items)
    return RecordPage(request, ctx, selection, items, None, None, read, start, more)


def _fill(page: RecordPage, found: Found) -> RecordPage:
    """A page with the records that follow, until there are as many as were asked for."""
    request, ctx, items, room = page.request, page.ctx, page.items, page.request.room
    limit = page.selection.limit
    parts: list[tuple[int, PageEnd]] = []
    while True:
        for each in found.rows:
            item = request.show(Record(ctx, request.place, each, page.commit))
            items.append(item)
            room -= len(msgspec.json.encode(item))
        full = room < 0 or (limit is not None and len(items) >= limit)
        if found.next is None or full:
            return msgspec.structs.replace(page, ctx=ctx, after=found.next, parts=tuple(parts))
        parts.append((len(items), found.next))
        some = request.some(ctx.kg, page.selection)
        left = some if limit is None else min(some, limit - len(items))
        following = msgspec.structs.replace(page.selection, limit=left, offset=0, after=found.next)
        ctx, found, _ = _read(ctx, following, page.commit)


def _read(
    ctx: GraphContext, selection: Selection, commit: str
) -> tuple[GraphContext, Found, int | None]:
    """A page at a commit, with the context that reads it: the branch may move meanwhile."""
    found, total, read = ctx.kg.page_with_commit(selection)
    if read != commit:
        ctx = ctx.at(commit)
        found, total = ctx.kg.page(selection)
    return ctx, found, total


def _holder(ctx: GraphContext, request: ListRequest) -> Holder:
    return Holder(ctx.actor, request.tool, place_name(request.place))
