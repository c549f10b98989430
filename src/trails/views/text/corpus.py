"""Corpus: the texts of a field as one branch or snapshot sees them, an index and an overlay.

The overlay holds the texts that differ from the index: the unflushed tail of ``main``, or what a
branch changed. Statistics count exactly the texts that are seen, so the score of a text is a pure
function of the query and of those texts: it does not matter what is flushed, in which order it was
written, or what was deleted.

tantivy finds the candidates, with its own statistics corrected by boosts. Their scores are then
computed here, from term frequencies and lengths, with the formula for texts of the overlay.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import tantivy
from tantivy import Occur, Query

from trails.model.caches import LRUCache
from trails.views.text.analysis import Analyzer
from trails.views.text.grammar import Leaf
from trails.views.text.index import TextIndex, Texts, count, guard, items, order
from trails.views.text.matching import frequencies

K1: Final = 1.2
B: Final = 0.75
"""BM25 as tantivy has it, so that its candidates are those that win here."""
FUZZY_SCORE: Final = 1.0
"""What a word that differs in a letter is worth; less than most words that are right."""
MOST_TIES: Final = 4096
"""Among so many texts of equal score, those that come first are chosen by their names."""
_MARGIN: Final = 16
_SMALL: Final = 256
"""An overlay or filter up to this size is applied to the candidates, which is faster."""
_SHORT: Final = 4096
"""Characters of a text whose analysis is kept."""
_CLOSE: Final = 1e-5
"""Scores of tantivy, in single precision, that may be equal."""
_FREQUENCY: Final = re.compile(r'"value": ([0-9.e+]+),\s+"description": "freq,')


def _lengths() -> list[int]:
    """The lengths of texts that tantivy tells apart, in one byte: exact up to 40 words."""
    return [
        code if code < 40 else 24 + ((code - 24 & 7 | 8) << (code - 24 >> 3) - 1)
        for code in range(256)
    ]


_LENGTHS: Final = _lengths()


Hit = tuple[float, tantivy.DocAddress]


class Candidate(NamedTuple):
    """A text that matches, and its score."""

    handle: str
    item: int
    score: float


class Plan(msgspec.Struct):
    """What is asked of the texts of a field."""

    weights: dict[Leaf, float] = msgspec.field(default_factory=dict)
    """What each leaf counts, if a text has it. A text without any of them is not found."""
    required: list[list[Leaf]] = msgspec.field(default_factory=list)
    """Groups of which a text has one leaf each."""
    excluded: list[Leaf] = msgspec.field(default_factory=list)
    """Leaves that no text has."""


class Document(NamedTuple):
    """A text of an overlay, analysed."""

    words: list[str]
    vocabulary: frozenset[str]


class Overlay:
    """The texts that differ from those of an index; () for what is not there. Never changes."""

    def __init__(self, texts: Mapping[str, Texts], analyzer: Analyzer) -> None:
        self.handles = texts.keys()
        self.documents = [
            (handle, item, _analysed(text, analyzer))
            for handle, held in texts.items()
            for item, text in enumerate(items(held))
        ]
        self.words = sum(len(document.words) for _, _, document in self.documents)
        self.replaced = _Replaced()


@lru_cache(maxsize=16_384)  # of an overlay with one more text, all the others are known
def _short(text: str, analyzer: Analyzer) -> Document:
    words = analyzer.words(text)
    return Document(words, frozenset(words))


def _analysed(text: str, analyzer: Analyzer) -> Document:
    return (_short if len(text) <= _SHORT else _short.__wrapped__)(text, analyzer)


_OVERLAYS: Final = LRUCache[tuple[int, Analyzer], tuple[Mapping[str, Texts], Overlay]](64)
"""By the identity of the mapping, which is kept, so that its identity is not used again."""


def _overlay(texts: Mapping[str, Texts], analyzer: Analyzer) -> Overlay:
    if not texts:
        return Overlay(texts, analyzer)
    key = id(texts), analyzer
    return _OVERLAYS.get(key, lambda: (texts, Overlay(texts, analyzer)))[1]


class _Replaced:
    """What an overlay hides of an index: computed once for each state of the index."""

    searcher: tantivy.Searcher | None = None
    query: Query | None = None
    documents = 0
    words = 0


class Corpus:
    """The texts of one field, as one branch or snapshot sees them."""

    def __init__(self, index: TextIndex, texts: Mapping[str, Texts]) -> None:
        """``texts`` are those that differ from the index; the mapping must not change."""
        self.index = index
        self.analyzer = index.analyzer
        self._overlay = _overlay(texts, index.analyzer)
        self._state = index.state
        self._searcher = index.state.searcher
        with guard(index):
            replaced = self._replaced()
        self._hides = replaced.query if replaced.documents else None
        self._hidden = replaced.documents
        self.documents = self._searcher.num_docs - replaced.documents + len(self._overlay.documents)
        self.words = self._state.words - replaced.words + self._overlay.words

    def _replaced(self) -> _Replaced:
        replaced = self._overlay.replaced
        if replaced.searcher is self._searcher:
            return replaced
        found = _Replaced()
        if self._overlay.handles and self._searcher.num_docs:
            handles = list(self._overlay.handles)
            found.query = Query.term_set_query(self.index.schema, "handle", handles)
            found.documents = count(self._searcher, found.query)
            if found.documents:
                hits = self._searcher.search(found.query, found.documents, count=False).hits
                found.words = sum(self._values("length", [address for _, address in hits]))
        found.searcher = self._searcher
        self._overlay.replaced = found
        return found

    def _values(self, field: str, addresses: list[tantivy.DocAddress]) -> list[int]:
        return [int(value or 0) for value in self._searcher.fast_field_values(field, addresses)]

    @property
    def average(self) -> float:
        """How many words a text has."""
        return self.words / self.documents if self.words else 1.0

    def frequency(self, term: str) -> int:
        """How many texts have a word."""
        found = self._state.frequency(term)
        if found and self._hides is not None:
            wanted = [
                (Occur.Must, Query.term_query(self.index.schema, "words", term, "basic")),
                (Occur.Must, self._hides),
            ]
            found -= count(self._searcher, Query.boolean_query(wanted))
        return found + sum(
            term in document.vocabulary for _, _, document in self._overlay.documents
        )

    def beginning(self, prefix: str, limit: int) -> set[str]:
        """Words that begin like this: the most frequent ones, and those of the overlay."""
        found = {word for word, _ in self._searcher.terms_with_prefix("words", prefix, limit=limit)}
        for _, _, document in self._overlay.documents:
            found.update(word for word in document.vocabulary if word.startswith(prefix))
        return found

    # ------------------------------------------------------------------------ search

    def search(
        self,
        plan: Plan,
        k: int,
        among: frozenset[str] | None = None,
        without: frozenset[str] = frozenset(),
    ) -> list[Candidate]:
        """The ``k`` best texts that a plan finds; of the records in ``among`` if it is given."""
        found = self._scan(plan, among, without)
        with guard(self.index):
            if query := self._query(plan, among):
                wanted = k + len(without)
                if self._hides is not None and len(self._overlay.handles) <= _SMALL:
                    wanted += self._hidden
                found += self._candidates(query, plan.weights, wanted, without)
        found.sort(key=rank_key)
        return found[:k]

    def _scan(
        self, plan: Plan, among: frozenset[str] | None, without: frozenset[str]
    ) -> list[Candidate]:
        """The texts of the overlay that match."""
        leaves = [*plan.weights, *(leaf for group in plan.required for leaf in group)]
        leaves = list(dict.fromkeys(leaves + plan.excluded))
        loose = any(leaf.distance for leaf in leaves)
        ends = {leaf.terms[-1] for leaf in leaves}
        average = self.average
        found = []
        for handle, item, document in self._overlay.documents:
            if not loose and ends.isdisjoint(document.vocabulary):
                continue
            if handle in without or (among is not None and handle not in among):
                continue
            counts = frequencies(leaves, document.words)
            if any(leaf in counts for leaf in plan.excluded) or not all(
                any(leaf in counts for leaf in group) for group in plan.required
            ):
                continue
            held = {leaf: counts[leaf] for leaf in plan.weights if leaf in counts}
            if held:
                score = _score(plan.weights, held, len(document.words), average)
                found.append(Candidate(handle, item, score))
        return found

    def _query(self, plan: Plan, among: frozenset[str] | None) -> Query | None:
        """What finds the candidates in the index; None if there can't be any."""
        any_of = self._any_of(plan.weights)
        if any_of is None:
            return None
        clauses: list[tuple[Occur, Query]] = []
        for group in plan.required:
            held = self._any_of(dict.fromkeys(group, 1.0))
            if held is None:
                return None
            clauses.append((Occur.Must, _filter(held)))
        if among is not None:
            handles = Query.term_set_query(self.index.schema, "handle", sorted(among))
            clauses.append((Occur.Must, _filter(handles)))
        excluded = self._any_of(dict.fromkeys(plan.excluded, 1.0))
        if excluded is not None:
            clauses.append((Occur.MustNot, excluded))
        if self._hides is not None and len(self._overlay.handles) > _SMALL:
            clauses.append((Occur.MustNot, self._hides))
        return Query.boolean_query([(Occur.Must, any_of), *clauses]) if clauses else any_of

    def _any_of(self, weights: Mapping[Leaf, float]) -> Query | None:
        if not self._searcher.num_docs:
            return None
        found = [query for leaf in weights if (query := self._leaf(leaf, weights[leaf]))]
        if len(found) <= 1:
            return found[0] if found else None
        return Query.boolean_query([(Occur.Should, query) for query in found])

    def _leaf(self, leaf: Leaf, weight: float) -> Query | None:
        if leaf.distance:
            return Query.const_score_query(self._plain(leaf), weight)
        natural = 0.0
        for term in leaf.terms:
            stored = self._state.stored_frequency(term)
            if stored == 0:
                return None
            natural += idf(stored, self._state.stored_documents)
        boost = weight / (natural * (K1 + 1))
        query = self._plain(leaf)
        return query if abs(boost - 1) < 1e-9 else Query.boost_query(query, boost)

    def _plain(self, leaf: Leaf) -> Query:
        schema = self.index.schema
        if leaf.distance:
            return Query.fuzzy_term_query(schema, "words", leaf.terms[0], leaf.distance)
        if len(leaf.terms) == 1:
            return Query.term_query(schema, "words", leaf.terms[0], "freq")
        return Query.phrase_query(schema, "words", list(leaf.terms))

    def _candidates(
        self,
        query: Query,
        weights: Mapping[Leaf, float],
        k: int,
        without: frozenset[str],
    ) -> list[Candidate]:
        """The best texts of the index, with their exact scores."""
        # Where lengths are compared with another average, more of them might be among the best.
        state = self._state
        drift = abs(self.average * self._searcher.num_docs / max(1, state.words) - 1)
        keep = k if state.exact and drift < _CLOSE else 2 * k + 2 * _MARGIN
        hits = self._searcher.search(query, keep + _MARGIN, count=False).hits
        if len(hits) <= keep:
            return list(self._exact(hits, weights, without))
        least = hits[keep - 1][0]
        if len(hits) == keep + _MARGIN and hits[-1][0] > least * (1 - _CLOSE):
            hits = self._searcher.search(query, max(MOST_TIES, 2 * keep), count=False).hits
        best = [hit for hit in hits if hit[0] > least * (1 + _CLOSE)]
        ties = [hit for hit in hits if abs(hit[0] / least - 1) <= _CLOSE]
        # Equal to the last bit: their scores here are equal too, and need not be compared.
        spare = 0 if ties[0][0] == ties[-1][0] else _MARGIN
        orders = self._values("order", [address for _, address in ties])
        chosen = sorted(zip(orders, range(len(ties)), strict=True))[: keep + spare - len(best)]
        return list(self._exact([*best, *(ties[place] for _, place in chosen)], weights, without))

    def _exact(
        self, hits: Sequence[Hit], weights: Mapping[Leaf, float], without: frozenset[str]
    ) -> Iterator[Candidate]:
        """The hits with their exact scores."""
        leaves = [(leaf, self._plain(leaf)) for leaf in weights]
        lengths = self._values("length", [address for _, address in hits])
        # Texts of one length that tantivy gives the same score have the same frequencies.
        known: dict[tuple[float, int], float] = {}
        for (rough, address), length in zip(hits, lengths, strict=True):
            entry = self.index.entry(self._searcher, address)
            if entry.handle in self._overlay.handles or entry.handle in without:
                continue
            score = known.get((rough, length))
            if score is None:
                held = {
                    leaf: times
                    for leaf, query in leaves
                    if (times := self._occurrences(leaf, query, address))
                }
                score = _score(weights, held, length, self.average)
                known[rough, length] = score
            yield Candidate(entry.handle, entry.item, score)

    def _occurrences(self, leaf: Leaf, query: Query, address: tantivy.DocAddress) -> float:
        try:
            explained = query.explain(self._searcher, address).to_json()
        except ValueError:  # it is not in this text
            return 0
        if leaf.distance:
            return 1
        found = _FREQUENCY.search(explained)
        if found is None:
            raise RuntimeError(f"tantivy explains a score otherwise than before: {explained}")
        return float(found[1])


def idf(count: int, documents: int) -> float:
    """How much a word says that so many of the texts have."""
    return math.log(1 + (documents - count + 0.5) / (count + 0.5))


def rank_key(candidate: Candidate) -> tuple[float, int, str, int]:
    """Best first, and a total order among equals."""
    handle, item, score = candidate
    return -score, order(handle, 0), handle, item


def _score(
    weights: Mapping[Leaf, float], held: Mapping[Leaf, float], length: int, average: float
) -> float:
    known = _LENGTHS[bisect_right(_LENGTHS, length) - 1]
    saturation = K1 * (1 - B + B * known / average)
    return sum(
        weights[leaf] if leaf.distance else weights[leaf] * count / (count + saturation)
        for leaf, count in held.items()
    )


def _filter(query: Query) -> Query:
    return Query.const_score_query(query, 0.0)
