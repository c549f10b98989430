"""``search``: records by their texts, each with its proof and the call that reads on."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Final

import msgspec

from trails.engine.evidence.records import known_field, make_place
from trails.engine.evidence.search import SearchRequest, search
from trails.engine.graph.cursors import LIFETIME, Cursors, expiry
from trails.engine.session.context import GraphContext
from trails.errors import FieldError, ValidationError
from trails.model.evidence.windows import Hit
from trails.model.nodes import Near, Selection
from trails.model.types import Schema
from trails.model.uris import parse_clause
from trails.projections.tools import MAX_CHARS
from trails.request.builtins.declare import (
    NEAR,
    READER,
    STRING,
    Builtin,
    Route,
    ToolContext,
    field,
    listed,
    read_near,
    said,
    shown,
)
from trails.request.fitting import Page
from trails.request.resources.contents import condition_of


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
        return SearchRequest(
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


def _search(tool: ToolContext, ctx: GraphContext, **given: object) -> object:
    page = search(tool.service, ctx, msgspec.convert(given, _Wanted).request())
    cursors = Cursors(tool.service.graph)

    def changes(at: int) -> Mapping[str, object] | None:
        cursor = page.cursor(cursors, at)
        return None if cursor is None else {"cursor": cursor}

    body: dict[str, object] = {
        "results": [_document(each) for each in page.hits],
        "commit": page.commit,
        "searched": page.searched,
    }
    if page.notices:
        body["notice"] = "; ".join(page.notices)
    if page.more:
        body["expires"] = expiry(time() + LIFETIME)
    return Page(body, "results", changes)


def _document(hit: Hit) -> dict[str, object]:
    """A hit as an answer shows it."""
    shown: dict[str, object] = {
        "id": hit.id,
        "title": hit.title,
        "url": hit.iri,
        "type": hit.type,
        "score": hit.score,
    }
    if not hit.evidence:
        why = _CLOSE if hit.near else _RELATED if hit.related else _UNPROVEN
        fetch = {"tool": "fetch", "arguments": {"id": hit.id}}
        return {**shown, "related": hit.related, "evidence": None, "notice": why, "read": fetch}
    evidence = hit.evidence[0]
    parts = {"item": evidence.item, "path": evidence.path}
    place = {name: value for name, value in parts.items() if value is not None}
    return {
        **shown,
        "evidence": {"field": evidence.field, **place, **evidence.window.document()},
        "read": evidence.read,
    }


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
    output=shown(
        results=listed(shown(id=STRING, title=STRING, url=STRING)),
        commit=STRING,
        optional={"notice": STRING, "next": said({"type": "object"}, "The exact call.")},
    ),
    hints=READER,
    action="Read",
    run=_search,
    routes=(Route("GET", "search"), Route("POST", "search")),
    command="search",
)

BUILTINS: Final = (SEARCH,)
