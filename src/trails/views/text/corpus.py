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
from typing import Final, NamedTuple

import tantivy
from tantivy import Occur, Query

from trails.views.text.analysis import Analyzer
from trails.views.text.grammar import Leaf
from trails.views.text.index import TextIndex, Texts, count, items, order
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


class Candidate(NamedTuple):
    """A text that matches, and its score."""

    handle: str
    item: int
    score: float


class Document(NamedTuple):
    """A text of an overlay, analysed."""

    text: str
    words: list[str]
    vocabulary: frozenset[str]


class Overlay(Mapping[str, Texts]):
    """The texts that differ from those of an index; None for what is not there. Never changes."""

    def __init__(self, analyzer: Analyzer, texts: Mapping[str, Texts] | None = None) -> None:
        self._analyzer = analyzer
        self._texts: dict[str, Texts] = {}
        self.documents: dict[str, tuple[Document, ...]] = {}
        self._add(texts or {})
        self.replaced = _Replaced()

    def changed(self, texts: Mapping[str, Texts]) -> Overlay:
        """This overlay with other texts; what stays is not analysed again."""
        other = Overlay(self._analyzer)
        other._texts = dict(self._texts)
        other.documents = dict(self.documents)
        other._add(texts)
        return other

    def _add(self, texts: Mapping[str, Texts]) -> None:
        for handle, held in texts.items():
            self._texts[handle] = held
            self.documents[handle] = tuple(
                Document(text, words := self._analyzer.words(text), frozenset(words))
                for text in items(held)
            )

    def __getitem__(self, handle: str) -> Texts:
        return self._texts[handle]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def all(self) -> Iterator[tuple[str, int, Document]]:
        for handle, documents in self.documents.items():
            for item, document in enumerate(documents):
                yield handle, item, document


class _Replaced:
    """What an overlay hides of an index: computed once for each state of the index."""

    searcher: tantivy.Searcher | None = None
    query: Query | None = None
    documents = 0
    words = 0


class Corpus:
    """The texts of one field, as one branch or snapshot sees them."""

    def __init__(self, index: TextIndex, overlay: Overlay) -> None:
        self.index = index
        self.overlay = overlay
        self.analyzer = index.analyzer
        self._state = index.state
        self._searcher = index.state.searcher
        replaced = self._replaced()
        added = [document for _, _, document in overlay.all()]
        self.documents = self._searcher.num_docs - replaced.documents + len(added)
        self.words = (
            self._state.words - replaced.words + sum(len(document.words) for document in added)
        )
        self._hides = replaced.query if replaced.documents else None
        self._hidden = replaced.documents

    def _replaced(self) -> _Replaced:
        replaced = self.overlay.replaced
        if replaced.searcher is self._searcher:
            return replaced
        found = _Replaced()
        if self.overlay and self._searcher.num_docs:
            found.query = Query.term_set_query(self.index.schema, "handle", list(self.overlay))
            hits = self._searcher.search(found.query, self._searcher.num_docs, count=False).hits
            found.documents = len(hits)
            found.words = sum(self._values("length", [address for _, address in hits]))
        found.searcher = self._searcher
        self.overlay.replaced = found
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
        return found + sum(term in document.vocabulary for _, _, document in self.overlay.all())

    def beginning(self, prefix: str, limit: int) -> set[str]:
        """Words that begin like this: the most frequent ones, and those of the overlay."""
        found = {word for word, _ in self._searcher.terms_with_prefix("words", prefix, limit=limit)}
        for _, _, document in self.overlay.all():
            found.update(word for word in document.vocabulary if word.startswith(prefix))
        return found

    # ------------------------------------------------------------------------ search

    def search(
        self,
        weights: Mapping[Leaf, float],
        k: int,
        *,
        required: Sequence[Sequence[Leaf]] = (),
        excluded: Sequence[Leaf] = (),
        among: frozenset[str] | None = None,
        without: frozenset[str] = frozenset(),
    ) -> list[Candidate]:
        """The ``k`` best texts: those with a leaf, and with one of each of the required groups."""
        found = self._scan(weights, required, excluded, among, without)
        if query := self._query(weights, required, excluded, among):
            wanted = k + len(without)
            if self._hides is not None and len(self.overlay) <= _SMALL:
                wanted += self._hidden
            found += self._candidates(query, weights, wanted, without)
        found.sort(key=rank_key)
        return found[:k]

    def _scan(
        self,
        weights: Mapping[Leaf, float],
        required: Sequence[Sequence[Leaf]],
        excluded: Sequence[Leaf],
        among: frozenset[str] | None,
        without: frozenset[str],
    ) -> list[Candidate]:
        """The texts of the overlay that match."""
        leaves = [*weights, *(leaf for group in required for leaf in group), *excluded]
        loose = any(leaf.distance for leaf in leaves)
        ends = {leaf.terms[-1] for leaf in leaves}
        average = self.average
        found = []
        for handle, item, document in self.overlay.all():
            if not loose and ends.isdisjoint(document.vocabulary):
                continue
            if handle in without or (among is not None and handle not in among):
                continue
            counts = frequencies(list(dict.fromkeys(leaves)), document.words)
            if any(leaf in counts for leaf in excluded) or not all(
                any(leaf in counts for leaf in group) for group in required
            ):
                continue
            held = {leaf: counts[leaf] for leaf in weights if leaf in counts}
            if held:
                score = _score(weights, held, len(document.words), average)
                found.append(Candidate(handle, item, score))
        return found

    def _query(
        self,
        weights: Mapping[Leaf, float],
        required: Sequence[Sequence[Leaf]],
        excluded: Sequence[Leaf],
        among: frozenset[str] | None,
    ) -> Query | None:
        """What finds the candidates in the index; None if there can't be any."""
        if not self._searcher.num_docs:
            return None
        any_of = [
            (Occur.Should, query)
            for leaf, weight in weights.items()
            if (query := self._leaf(leaf, weight)) is not None
        ]
        if not any_of:
            return None
        clauses: list[tuple[Occur, Query]] = []
        for group in required:
            held = [(Occur.Should, query) for leaf in group if (query := self._leaf(leaf, 1.0))]
            if not held:
                return None
            clauses.append((Occur.Must, _filter(Query.boolean_query(held))))
        if among is not None:
            handles = Query.term_set_query(self.index.schema, "handle", sorted(among))
            clauses.append((Occur.Must, _filter(handles)))
        clauses += [(Occur.MustNot, query) for leaf in excluded if (query := self._leaf(leaf, 1.0))]
        if self._hides is not None and len(self.overlay) > _SMALL:
            clauses.append((Occur.MustNot, self._hides))
        query = any_of[0][1] if len(any_of) == 1 else Query.boolean_query(any_of)
        return Query.boolean_query([(Occur.Must, query), *clauses]) if clauses else query

    def _leaf(self, leaf: Leaf, weight: float) -> Query | None:
        schema = self.index.schema
        if leaf.distance:
            fuzzy = Query.fuzzy_term_query(schema, "words", leaf.terms[0], leaf.distance)
            return Query.const_score_query(fuzzy, weight)
        natural = 0.0
        for term in leaf.terms:
            stored = self._state.stored_frequency(term)
            if stored == 0:
                return None
            natural += idf(stored, self._state.stored_documents)
        query = self._plain(leaf)
        boost = weight / (natural * (K1 + 1))
        return query if abs(boost - 1) < 1e-9 else Query.boost_query(query, boost)

    def _plain(self, leaf: Leaf) -> Query:
        if len(leaf.terms) == 1:
            return Query.term_query(self.index.schema, "words", leaf.terms[0], "freq")
        return Query.phrase_query(self.index.schema, "words", list(leaf.terms))

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
            return list(self._exact([address for _, address in hits], weights, without))
        least = hits[keep - 1][0]
        if len(hits) == keep + _MARGIN and hits[-1][0] > least * (1 - _CLOSE):
            hits = self._searcher.search(query, max(MOST_TIES, 2 * keep), count=False).hits
        addresses = [address for score, address in hits if score > least * (1 + _CLOSE)]
        ties = [address for score, address in hits if abs(score / least - 1) <= _CLOSE]
        chosen = sorted(zip(self._values("order", ties), range(len(ties)), strict=True))
        addresses += [ties[place] for _, place in chosen[: keep + _MARGIN - len(addresses)]]
        return list(self._exact(addresses, weights, without))

    def _exact(
        self,
        addresses: list[tantivy.DocAddress],
        weights: Mapping[Leaf, float],
        without: frozenset[str],
    ) -> Iterator[Candidate]:
        average = self.average
        plain = [(leaf, None if leaf.distance else self._plain(leaf)) for leaf in weights]
        lengths = self._values("length", addresses)
        for address, length in zip(addresses, lengths, strict=True):
            entry = self.index.entry(self._searcher, address)
            if entry.handle in self.overlay or entry.handle in without:
                continue
            held = {
                leaf: count
                for leaf, query in plain
                if (count := self._occurrences(leaf, query, address))
            }
            yield Candidate(entry.handle, entry.item, _score(weights, held, length, average))

    def _occurrences(self, leaf: Leaf, query: Query | None, address: tantivy.DocAddress) -> float:
        if query is None:
            query = Query.fuzzy_term_query(self.index.schema, "words", leaf.terms[0], leaf.distance)
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
