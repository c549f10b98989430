"""Lists of records, page by page, all pages of one commit.

The first page is of the present. A cursor pins its commit: the next page is read at the present if
the branch is still there, else from the graph as of that commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from trails.engine.evidence.cursors import Cursors, Holder, check_subject, stale
from trails.engine.evidence.records import Record, is_on_branch, open_place, place_name
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.errors import NotFoundError
from trails.model.nodes import Selection
from trails.model.uris import ReadPoint
from trails.views.nodes.select import Found

LIST_RECORDS: Final = "node_list"
"""The tool that cursors of lists are for."""


class ListRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A page of a list."""

    place: ReadPoint
    select: Callable[[GraphContext], Selection]
    """What is listed, with the types of the branch or commit that is read."""
    subject: object
    """What must be the same from page to page."""
    cursor: str | None = None


class RecordPage(msgspec.Struct, frozen=True, eq=False):
    """Some records of one commit."""

    request: ListRequest
    ctx: GraphContext
    selection: Selection
    found: Found
    total: int | None
    """How many there are altogether, if that is known."""
    commit: str

    @property
    def records(self) -> list[Record]:
        """The records of the page."""
        place = self.request.place
        return [Record(self.ctx, place, each, self.commit) for each in self.found.rows]

    def cursor(self, cursors: Cursors, shown: int) -> str | None:
        """The cursor that goes on after the first few records; None at the end."""
        after = self.found.next
        if shown < len(self.found.rows):
            shorter = msgspec.structs.replace(self.selection, limit=shown)
            after = _read(self.ctx, shorter, self.commit)[1].next
        if after is None:
            return None
        holder = _holder(self.ctx, self.request.place)
        return cursors.sign(holder, self.commit, self.request.subject, after)


def list_records(service: GraphService, ctx: GraphContext, request: ListRequest) -> RecordPage:
    """A page of records: the first, or the one that a cursor goes on with."""
    place = request.place
    if request.cursor is None:
        opened = open_place(service, ctx, place)
        selection = request.select(opened)
        found, total, commit = opened.kg.page_with_commit(selection)
        return RecordPage(request, opened, selection, found, total, commit)
    cursor = Cursors(service.graph).read(_holder(ctx, place), request.cursor)
    check_subject(cursor, request.subject)
    commit = cursor.commit_id
    try:
        opened = open_place(service, ctx, place)
    except NotFoundError:
        raise stale(commit) from None
    if not is_on_branch(service, place, commit):
        raise stale(commit)
    if opened.checkout.head.commit != commit:
        opened = opened.at(commit)
    selection = msgspec.structs.replace(request.select(opened), after=str(cursor.place))
    at, found, total = _read(opened, selection, commit)
    return RecordPage(request, at, selection, found, total, commit)


def _read(
    ctx: GraphContext, selection: Selection, commit: str
) -> tuple[GraphContext, Found, int | None]:
    """A page at a commit, with the context that reads it: the branch may move meanwhile."""
    found, total, read = ctx.kg.page_with_commit(selection)
    if read != commit:
        ctx = ctx.at(commit)
        found, total = ctx.kg.page(selection)
    return ctx, found, total


def _holder(ctx: GraphContext, place: ReadPoint) -> Holder:
    return Holder(ctx.actor, LIST_RECORDS, place_name(place))
