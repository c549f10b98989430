"""Search: the records that a text finds, each with the proof on its own text, all of one commit.

Text indexes rank the records. What is shown of one is read from the node index: a window appears
only if the query matches the field's text there, at the commit that the answer names. What an actor
may not see is not searched: it has the indexes of visible fields only, and where an index also has
records that it may not see, the visible ones are scanned instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from trails.engine.evidence.fields import call_from
from trails.engine.evidence.records import (
    Record,
    Titles,
    check_type,
    open_place,
    place_name,
    reopen_place,
)
from trails.engine.evidence.texts import FieldPath, text_of
from trails.engine.graph.cursors import Cursors, Holder, check_subject
from trails.engine.graph.texts.fields import (
    TextField,
    is_searched,
    pointer_to,
    text_field,
    text_fields,
)
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.errors import CorruptionError, FieldError, ValidationError
from trails.model.constraints import shorten
from trails.model.evidence.windows import Evidence, Hit, Span, window_around
from trails.model.names import suggest
from trails.model.nodes import Near, NodeState, PageEnd, Selection
from trails.model.types import PredicateDescriptor, Schema
from trails.model.uris import HERE, ReadPoint
from trails.model.values.json_values import Json
from trails.model.values.lang_texts import LangText
from trails.views.text.corpus import Corpus
from trails.views.text.grammar import TextQuery, parse
from trails.views.text.index import TextIndex, Texts
from trails.views.text.matching import Finder
from trails.views.text.ranking import Ranked, Source, rank

SEARCH: Final = "search"
"""The tool that cursors of searches are for."""
DEEPEST: Final = 1_000
"""Records up to which a search can be paged; the rest is better found by another query."""
PREVIEW: Final = 300
"""Characters of the window around a match."""
_MOST_SPANS: Final = 50
"""Matches of a text that are located for its window."""
_TRIES: Final = 3
"""How often a search begins again because the branch has moved, before it reads the past."""
_PAGE: Final = 1_000
_FUSED: Final = 100
"""Records of each ranking that are joined, at least."""


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A search, or a page of one."""

    query: str
    """Empty if only ``near`` decides."""
    near: Near | None = None
    """Records near to a vector, which needs types; with a query, both rankings are joined."""
    types: tuple[str, ...] = ()
    """Only records of these types, and of types that extend them."""
    fields: tuple[str, ...] = ()
    """Only texts of these fields."""
    select: Callable[[Schema, str], Selection] | None = None
    """The records of a type among which is searched; None: all."""
    subject: object = None
    """What must be the same from page to page, beside query, types and fields."""
    limit: int = 10
    cursor: str | None = None
    place: ReadPoint = HERE


class SearchPage(msgspec.Struct, frozen=True, eq=False):
    """Some of the records that a search found, best first."""

    request: SearchRequest
    ctx: GraphContext
    start: int
    """How many better ones there are."""
    hits: list[Hit]
    commit: str
    more: bool
    """Whether there are worse ones."""
    searched: Sequence[str]
    """The fields whose texts were searched, as ``Type.field``."""
    notices: Sequence[str]

    def cursor(self, cursors: Cursors, shown: int) -> str | None:
        """The cursor that goes on after the first few hits; None at the end."""
        at = self.start + shown
        if at >= DEEPEST or (shown >= len(self.hits) and not self.more):
            return None
        holder = _holder(self.ctx, self.request.place)
        return cursors.sign(holder, self.commit, _subject(self.request), at)


def search(service: GraphService, ctx: GraphContext, request: SearchRequest) -> SearchPage:
    """The records that match best: the first page, or the one that a cursor goes on with."""
    with service.graph.slow_queries.watch("search", ctx.checkout.name, request.query):
        return _search(service, ctx, request)


def _search(service: GraphService, ctx: GraphContext, request: SearchRequest) -> SearchPage:
    place, cursors = request.place, Cursors(service.graph)
    if request.cursor is None:
        opened = open_place(service, ctx, place)
        for _ in range(_TRIES):
            page = _Search(service, opened, request, cursors).page(0)
            if page is not None:
                return page
        return _at(service, opened, request, cursors, opened.checkout.head.commit, 0)
    cursor = cursors.read(_holder(ctx, place), request.cursor)
    check_subject(cursor, _subject(request))
    commit, start = cursor.commit_id, cursor.offset
    opened = reopen_place(service, ctx, place, commit)
    if opened.checkout.head.commit == commit:
        page = _Search(service, opened, request, cursors).page(start)
        if page is not None:
            return page
    return _at(service, opened, request, cursors, commit, start)


def _at(
    service: GraphService,
    ctx: GraphContext,
    request: SearchRequest,
    cursors: Cursors,
    commit: str,
    start: int,
) -> SearchPage:
    for _ in range(_TRIES):
        page = _Search(service, ctx.at(commit), request, cursors).page(start)
        if page is not None:
            return page
    # A snapshot does not move, so it was an index each time.
    raise CorruptionError("the text index is damaged; run 'trails verify --repair'")


def _holder(ctx: GraphContext, place: ReadPoint) -> Holder:
    return Holder(ctx.actor, SEARCH, place_name(place))


def _subject(request: SearchRequest) -> object:
    types, fields = sorted(request.types), sorted(request.fields)
    near = None if request.near is None else msgspec.to_builtins(request.near)
    return [request.query, types, fields, near, request.subject]


class _Field(msgspec.Struct, frozen=True, eq=False):
    """A field whose texts are searched."""

    searched: TextField
    declared: PredicateDescriptor
    corpus: Corpus


class _Search:
    """One search of a branch or snapshot, as an actor sees it."""

    def __init__(
        self, service: GraphService, ctx: GraphContext, request: SearchRequest, cursors: Cursors
    ) -> None:
        self._graph = service.graph
        self._ctx = ctx
        self._request = request
        self._cursors = cursors
        self._schema = ctx.kg.schema
        self._commit = ctx.checkout.head.commit
        self._moved = False
        self._titles = Titles(self._schema)
        self._finders: dict[tuple[str, str], Finder] = {}

    def page(self, start: int) -> SearchPage | None:
        """The hits from a place on; None if the branch has moved, or an index was damaged."""
        request = self._request
        fields = [self._open(*each) for each in self._wanted()]
        query = parse(request.query, {each.searched.field for each in fields})
        sources = [
            Source(each.corpus, each.searched.field, self._reader(each), kind=each.searched.type)
            for each in fields
        ]
        wanted = min(start + request.limit, DEEPEST)
        depth = wanted + 1 if request.near is None else max(wanted + 1, _FUSED)
        try:
            found = rank(query, sources, depth, among=self._among())
        except CorruptionError:
            for each in fields:
                self._distrust(each.searched)
            return None
        records = found.records if request.near is None else self._join(found.records, depth)
        shown = records[start:wanted]
        states = self._read([each.handle for each in shown])
        hits = [
            self._hit(query, fields, each, states[each.handle])
            for each in shown
            if each.handle in states
        ]
        if self._moved or len(hits) < len(shown):
            return None
        searched = [f"{each.searched.type}.{each.searched.field}" for each in fields]
        notices = [*found.notices, *self._notices(searched)]
        more = len(records) > wanted
        return SearchPage(request, self._ctx, start, hits, self._commit, more, searched, notices)

    def _join(self, texts: Sequence[Ranked], depth: int) -> list[Ranked]:
        """Records that are near to a vector; with a query, by reciprocal rank with its own."""
        # numpy takes 100 ms to import, and most searches compare no vectors.
        from trails.views.vectors import fuse  # noqa: PLC0415

        request, kg = self._request, self._ctx.kg
        assert request.near is not None  # noqa: S101 - asked for
        near = request.near
        found: list[tuple[NodeState, float]] = []
        for name in request.types:
            select = request.select or (lambda _, type_name: Selection(type_name))
            selection = select(self._schema, name)
            some, commit = kg.nearest_with_commit(selection, near, min(depth, DEEPEST))
            self._moved = self._moved or commit != self._commit
            found += some
        scores = {state.handle: score for state, score in found}
        handles = sorted(scores, key=lambda each: (-scores[each], each))
        if not request.query:
            return [Ranked(each, scores[each], ()) for each in handles]
        known = {each.handle: each for each in texts}
        return [
            msgspec.structs.replace(known.get(handle) or Ranked(handle, 0.0, ()), score=score)
            for handle, score in fuse([list(known), handles])
        ]

    # --- what is searched ------------------------------------------------------------------

    def _wanted(self) -> Iterator[tuple[str, PredicateDescriptor]]:
        """The types that have records of their own, with the fields to search."""
        request, schema = self._request, self._schema
        for name in request.types:
            check_type(schema, name)
        names = request.types or tuple(schema.by_name)
        concrete = dict.fromkeys(each for name in names for each in (name, *schema.family(name)))
        known: set[str] = set()
        for name in concrete:
            declared = schema.by_name[name]
            for field in declared.fields:
                if is_searched(declared, field):
                    known.add(field.name)
                    if not request.fields or field.name in request.fields:
                        yield name, field
        for name in request.fields:
            if name not in known:
                hint = suggest(name, known) if known else "none can be"
                message = f"{shorten(name)} can't be searched; {hint}"
                raise ValidationError([FieldError("fields", "unknown_field", message, name[:100])])

    def _open(self, type_name: str, declared: PredicateDescriptor) -> _Field:
        ctx, names = self._ctx, self._ctx.names
        whole = ctx.checkout.schema
        field = text_fields(whole, names).get((type_name, declared.name))
        schema_filter = ctx.kg.schema_filter
        partial = schema_filter is not None and type_name in schema_filter.partial_edges
        if field is not None and not partial:
            return _Field(field, declared, self._corpus(field))
        field = text_field(self._schema.by_name[type_name], declared, names)
        return _Field(field, declared, self._scanned(field))

    def _corpus(self, field: TextField) -> Corpus:
        texts, checkout = self._graph.texts, self._ctx.checkout
        try:
            return Corpus(*texts.of(checkout, field.type, field.field))
        except CorruptionError:
            self._distrust(field)
            return Corpus(*texts.of(checkout, field.type, field.field))

    def _distrust(self, field: TextField) -> None:
        """Have an index that turned out to be damaged built anew."""
        self._graph.texts.distrust(self._ctx.checkout, field.type, field.field)

    def _scanned(self, field: TextField) -> Corpus:
        """The texts of the records that the actor sees, where an index has others as well."""
        found: dict[str, Texts] = {}
        for state in self._select(Selection(field.type)):
            if state.type == field.type:
                found[state.handle] = field.text_of(state)
        return Corpus(TextIndex(None, field.analyzer), found)

    def _among(self) -> frozenset[str] | None:
        """The handles among which is searched; None: all."""
        request = self._request
        if request.select is None:
            return None
        return frozenset(
            state.handle
            for name in request.types
            for state in self._select(request.select(self._schema, name))
        )

    def _select(self, selection: Selection) -> Iterator[NodeState]:
        after: PageEnd | None = None
        while True:
            page = msgspec.structs.replace(selection, limit=_PAGE, after=after)
            found, _, commit = self._ctx.kg.page_with_commit(page)
            self._moved = self._moved or commit != self._commit
            yield from found.rows
            after = found.next
            if after is None:
                return

    def _notices(self, searched: Sequence[str]) -> Iterator[str]:
        if not searched:
            yield "no field of these types can be searched; declare one with search=True"

    # --- what is shown ---------------------------------------------------------------------

    def _read(self, handles: Sequence[str]) -> Mapping[str, NodeState]:
        states, commit = self._ctx.kg.read_all(handles)
        self._moved = self._moved or commit != self._commit
        return states

    def _reader(self, field: _Field) -> Callable[[str], Texts]:
        def read(handle: str) -> Texts:
            return field.searched.text_of(self._read([handle]).get(handle))

        return read

    def _hit(
        self, query: TextQuery, fields: Sequence[_Field], ranked: Ranked, state: NodeState
    ) -> Hit:
        record = Record(self._ctx, self._request.place, state, self._commit)
        evidence: list[Evidence] = []
        if not ranked.related:
            for found in ranked.found:
                field = fields[found.source]
                shown = self._evidence(query, record, field, _place(state, field, found.item))
                if shown is not None:
                    evidence.append(shown)
                    break
        return Hit(
            id=record.uri,
            iri=self._ctx.kg.iri(state.handle),
            type=state.type,
            title=self._titles.of(state),
            score=round(ranked.score, 6),
            evidence=tuple(evidence),
            related=ranked.related,
            near=not ranked.found,
        )

    def _finder(self, query: TextQuery, field: _Field) -> Finder:
        """What locates the matches in the texts of a field; made once for all hits."""
        key = field.searched.key
        found = self._finders.get(key)
        if found is None:
            found = Finder(query, field.corpus.analyzer, field.searched.field)
            self._finders[key] = found
        return found

    def _evidence(
        self, query: TextQuery, record: Record, field: _Field, at: FieldPath
    ) -> Evidence | None:
        """The window that proves a hit on the text itself; None if it does not match there."""
        found = text_of(record, at)
        text = found.text[:]
        matches = self._finder(query, field).find(text, _MOST_SPANS)
        if not matches:
            return None
        spans = [Span(each.start, each.end) for each in matches]
        window = window_around(
            text, _densest(text, spans, PREVIEW), PREVIEW, digest=found.digest, matches=spans
        )
        read = call_from(self._cursors, record, at, window.start, found.digest)
        return Evidence(field=at.field, item=at.item, path=at.path, window=window, read=read)


def _place(state: NodeState, field: _Field, item: int) -> FieldPath:
    """Where a text of a record is: the field, an item of a list, or a string of a Json value."""
    name = field.declared.name
    value = state.values[name]
    if isinstance(value, Json | LangText):
        return FieldPath(name, path=pointer_to(value, item))
    return FieldPath(name, item if field.declared.many else None)


def _densest(text: str, spans: Sequence[Span], width: int) -> Span:
    """The part of a text of at most ``width`` characters that has the most different matches."""
    words = [text[each.start : each.end].casefold() for each in spans]
    best, most = spans[:1], 0
    end = 0
    for at, span in enumerate(spans):
        end = max(end, at + 1)
        while end < len(spans) and spans[end].end <= span.start + width:
            end += 1
        different = len(set(words[at:end]))
        if different > most:
            best, most = spans[at:end], different
    return Span(best[0].start, best[-1].end)
