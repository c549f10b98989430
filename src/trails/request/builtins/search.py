"""``search``: records by their texts, each with its proof and the call that reads on."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import TYPE_CHECKING, Final

import msgspec

from trails.engine.evidence.records import known_field, make_place
from trails.engine.graph.cursors import LIFETIME, Cursors, expiry
from trails.engine.session.context import GraphContext
from trails.errors import FieldError, ValidationError
from trails.imports import later
from trails.model.evidence.windows import Hit
from trails.model.nodes import Near, Selection
from trails.model.operations.pages import Call
from trails.model.operations.records import EvidenceWindow, SearchHit, SearchResult
from trails.model.types import Schema
from trails.model.uris import parse_clause
from trails.projections.tools import MAX_CHARS
from trails.request.builtins.declare import (
    NEAR,
    READER,
    Builtin,
    Route,
    ToolContext,
    field,
    read_near,
)
from trails.request.fitting import Page
from trails.request.resources.contents import condition_of

if TYPE_CHECKING:
    from trails.engine.evidence import search as evidence_search
    from trails.engine.evidence.search import SearchRequest
else:
    evidence_search = later("trails.engine.evidence.search")


class _Wanted(msgspec.Struct, frozen=True):
    """The arguments of ``search``."""

    query: str | None
    near: Mapping[str, object] | None
    types: tuple[str, ...]
    fields: tuple[str, ...]
    where: str | None
    limit: int
    cursor: str | None
    branch: str | None
    snapshot: str | None

    def request(self) -> SearchRequest:
        """What they ask for."""
        if self.where is not None and not self.types:
            message = "where needs types: the field that it names is a field of a type"
            raise ValidationError([FieldError("where", "missing", message, self.where[:100])])
        if self.query is None and self.near is None:
            message = "give query, near, or both"
            raise ValidationError([FieldError("query", "missing", message)])
        return evidence_search.SearchRequest(
            query=self.query or "",
            near=None if self.near is None else self._near(self.near),
            types=self.types,
            fields=self.fields,
            select=None if self.where is None else self._select,
            subject=self.where,
            limit=self.limit,
            cursor=self.cursor,
            place=make_place(self.branch, self.snapshot),
        )

    def _near(self, given: Mapping[str, object]) -> Near:
        if not self.types:
            message = "near needs types: the field that it names is a field of a type"
            raise ValidationError([FieldError("near", "missing", message)])
        return read_near(given)

    def _select(self, schema: Schema, type_name: str) -> Selection:
        declared, clause = schema.by_name[type_name], parse_clause(self.where or "")
        known_field(declared, clause.field, "where")
        return Selection(type_name, condition_of(declared, clause))


def _search(tool: ToolContext, ctx: GraphContext, **given: object) -> Page:
    page = evidence_search.search(tool.service, ctx, msgspec.convert(given, _Wanted).request())
    cursors = Cursors(tool.service.graph)

    def changes(at: int) -> Mapping[str, object] | None:
        cursor = page.cursor(cursors, at)
        return None if cursor is None else {"cursor": cursor}

    result = SearchResult(
        tuple(map(_show, page.hits)),
        page.commit,
        tuple(page.searched),
        "; ".join(page.notices) or None,
        expiry(time() + LIFETIME) if page.more else None,
    )
    return Page(result, "results", changes)


def _show(hit: Hit) -> SearchHit:
    """A hit as an answer shows it."""
    if not hit.evidence:
        return SearchHit(
            id=hit.id,
            title=hit.title,
            url=hit.iri,
            type=hit.type,
            score=hit.score,
            related=hit.related,
            evidence=None,
            notice=_CLOSE if hit.near else _RELATED if hit.related else _UNPROVEN,
            read=Call("fetch", {"id": hit.id}),
        )
    found = hit.evidence[0]
    window = found.window
    evidence = EvidenceWindow(
        field=found.field,
        item=found.item,
        path=found.path,
        text=window.text,
        start=window.start,
        end=window.end,
        total=window.total,
        complete=window.complete,
        truncated=window.truncated,
        matches=window.matched(),
    )
    return SearchHit(
        id=hit.id,
        title=hit.title,
        url=hit.iri,
        type=hit.type,
        score=hit.score,
        evidence=evidence,
        read=found.read,
    )


_CLOSE: Final = "Not proven by a text: its vector is near. Fetch it to judge."
_RELATED: Final = (
    "Not proven: it has none of the words, only words that go with them. Fetch it to judge."
)
_UNPROVEN: Final = "Not proven: no text of it shows the match. Fetch it to judge."

SEARCH: Final = Builtin(
    name="search",
    title="Search texts",
    description=(
        "Find records by the words in their texts, best first. Each result has the record's id "
        "and, as evidence, the verbatim text around the match with offsets in characters; read "
        'is the call that reads on from there. Query: words, "a phrase", prefix*, fuzzy~, '
        "field:word, -without, OR. next is the call for more results; all are of one commit."
    ),
    fields=(
        field("query", "", min_length=1, max_length=4096),
        NEAR,
        field("types", "Only these types.", many=True, max_count=100),
        field("fields", "Only in these fields.", many=True, max_count=100),
        field("where", "field=value; needs types.", min_length=1, max_length=2000),
        field("limit", "", "Int", default=10, min_value=1, max_value=100),
        field("cursor", "From next.", max_length=4000),
        field("branch", "", max_length=100),
        field("snapshot", "", max_length=100),
    ),
    controls=(MAX_CHARS,),
    result=SearchResult,
    hints=READER,
    action="Read",
    run=_search,
    routes=(Route("GET", "search"), Route("POST", "search", name="search_post")),
    command="search",
)

BUILTINS: Final = (SEARCH,)
