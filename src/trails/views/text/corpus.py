"""Corpus: the texts of a field as one branch or snapshot sees them, an index and an overlay.

The overlay holds the texts that differ from the index: the unflushed tail of ``main``, or what a
branch changed. Statistics count exactly the texts that are seen, so the score of a text is a pure
function of the query and of those texts: it does not matter what is flushed, in which order it was
written, or what was deleted.

tantivy finds the candidates, with its own statistics corrected by boosts. Their scores are then
computed here, from term frequencies and lengths, with the formula for texts of the overlay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
import tantivy
from tantivy import Occur, Query

from trails.views.text.grammar import Leaf
from trails.views.text.index import TextIndex, Texts, count, guard, number_in, order
from trails.views.text.matching import frequencies
from trails.views.text.overlay import Replaced, overlay_of
from trails.views.text.scoring import CLOSE, K1, Decoder, idf
from trails.views.text.scoring import score as score_of

FUZZY_SCORE: Final = 1.0
"""What a word that differs in a letter is worth; less than most words that are right."""
MOST_TIES: Final = 4096
"""Among so many texts of equal score, those that come first are chosen by their names."""
LARGE: Final = 65_536
"""In an index of more texts, that would take longer than the search: there it is ``_MARGIN``."""
_MARGIN: Final = 64
_SMALL: Final = 256
"""So many hits may be left out because an overlay replaces them."""
_FREQUENCY: Final = re.compile(r'"value": ([0-9.e+]+),\s+"description": "freq,')
_AVERAGE: Final = re.compile(r'"value": ([0-9.e+]+),\s+"description": "avgdl,')


Hit = tuple[float, tantivy.DocAddress]
Seen = Callable[[str], bool]
"""Whether a record is among those searched, and its text not another one in the overlay."""


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


class Corpus:
    """The texts of one field, as one branch or snapshot sees them."""

    def __init__(self, index: TextIndex, texts: Mapping[str, Texts]) -> None:
        """``texts`` are those that differ from the index; the mapping must not change."""
        self.index = index
        self.analyzer = index.analyzer
        self._overlay = overlay_of(texts, index.analyzer)
        self._state = index.state
        self._searcher = index.state.searcher
        self._hides: Query | None = None
        self._hidden = 0
        self.documents = index.state.documents
        self.words = index.state.words
        if texts:
            self._count_overlay()

    def _count_overlay(self) -> None:
        """Count the texts of the overlay, and none that they replace."""
        with guard(self.index):
            replaced = self._replaced()
        self._hides = replaced.query if replaced.documents else None
        self._hidden = replaced.documents
        self.documents += len(self._overlay.documents) - replaced.documents
        self.words += self._overlay.words - replaced.words

    def _replaced(self) -> Replaced:
        replaced = self._overlay.replaced
        if replaced.searcher is self._searcher:
            return replaced
        found = Replaced()
        if self._state.documents:
            found.query = self._handles(self._overlay.handles)
            found.documents = count(self._searcher, found.query)
            if found.documents:
                hits = self._searcher.search(found.query, found.documents, count=False).hits
                found.words = sum(self._values("length", [address for _, address in hits]))
        found.searcher = self._searcher
        self._overlay.replaced = found
        return found

    def _values(self, field: str, addresses: list[tantivy.DocAddress]) -> list[int]:
        # Every document has both fields, and both are whole numbers.
        return self._searcher.fast_field_values(field, addresses)  # type: ignore[return-value]

    @property
    def average(self) -> float:
        """How many words a text has."""
        return self.words / self.documents if self.words else 1.0

    def frequency(self, term: str) -> int:
        """How many texts have a word."""
        found = self._state.frequency(term)
        if found and self._hides is not None:
            found -= self._replaced_frequency(term)
        for _, _, document in self._overlay.documents:
            found += term in document.vocabulary
        return found

    def _replaced_frequency(self, term: str) -> int:
        replaced = self._replaced()
        known = replaced.frequencies.get(term)
        if known is None:
            term_query = Query.term_query(self.index.schema, "words", term, "basic")
            both = [(Occur.Must, term_query), (Occur.Must, self._hides or Query.empty_query())]
            known = count(self._searcher, Query.boolean_query(both))
            replaced.frequencies[term] = known
        return known

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
        with guard(self.index):
            found = self._indexed(plan, k, among, without)
        if self._overlay.documents and (added := self._scan(plan, among, without)):
            found = sorted(found + added, key=rank_key)[:k]
        return found

    def _indexed(
        self, plan: Plan, k: int, among: frozenset[str] | None, without: frozenset[str]
    ) -> list[Candidate]:
        """The best texts of the index."""
        query = self._query(plan)
        if query is None:
            return []

        hidden = self._overlay.handles
        seen: Seen | None = None
        if hidden or without or among is not None:

            def seen(handle: str) -> bool:
                return (
                    handle not in hidden
                    and handle not in without
                    and (among is None or handle in among)
                )

        expected = k + _MARGIN + min(self._hidden + len(without), _SMALL)
        if among is not None:
            expected = int(4 * expected * self._state.documents / max(1, len(among)))
        if among is None or expected < 2 * len(among):
            # Leaving out hits that are not seen is faster, if that leaves enough.
            found = self._best(query, plan.weights, k, expected, seen)
            if found is not None:
                return found
        query = self._filtered(query, among, without)
        return self._best(query, plan.weights, k, k + _MARGIN, None) or []

    def _best(
        self,
        query: Query,
        weights: Mapping[Leaf, float],
        k: int,
        limit: int,
        seen: Seen | None,
    ) -> list[Candidate] | None:
        """The best texts that are seen, with exact scores; None if they are not among so many."""
        hits = self._searcher.search(query, limit, count=False).hits
        least = self._least(hits, k, seen)
        if least is None:
            if len(hits) == limit:
                return None
            window = hits
        else:
            least *= 1 - self._spread(hits[0], weights)
            tied = len(hits) == limit and hits[-1][0] >= least
            if tied and self._state.documents <= LARGE:
                hits = self._searcher.search(query, max(MOST_TIES, limit), count=False).hits
            window = [hit for hit in hits if hit[0] >= least]
        return self._scored(window, weights, k, seen)

    def _least(self, hits: list[Hit], k: int, seen: Seen | None) -> float | None:
        """The score of the hit number ``k`` of those that are seen."""
        if seen is None:
            return hits[k - 1][0] if len(hits) >= k else None
        for score, address in hits:
            k -= seen(self.index.handle_and_item(self._searcher, address)[0])
            if k == 0:
                return score
        return None

    def _spread(self, hit: Hit, weights: Mapping[Leaf, float]) -> float:
        """By how much the scores of tantivy may differ from ours.

        Boosts correct all but the average length, and no score changes more than that does.
        """
        if self._state.stored_average is None:
            self._state.stored_average = self._explained_average(hit, weights)
        stored = self._state.stored_average
        return min(0.5, CLOSE + 2 * abs(self.average / stored - 1)) if stored else CLOSE

    def _explained_average(self, hit: Hit, weights: Mapping[Leaf, float]) -> float | None:
        for leaf in weights:
            if not leaf.distance and (explained := self._explain(self._plain(leaf), hit[1])):
                return number_in(_AVERAGE, explained)
        return None

    def _scored(
        self,
        hits: list[Hit],
        weights: Mapping[Leaf, float],
        k: int,
        seen: Seen | None,
    ) -> list[Candidate]:
        """The best of these hits, by their exact scores."""
        addresses = [address for _, address in hits]
        lengths = self._values("length", addresses)
        # Texts of one length that tantivy gives the same score have the same frequencies.
        keys = list(zip([score for score, _ in hits], lengths, strict=True))
        exact = self._exact(dict(zip(keys, addresses, strict=True)), weights)
        orders, places = self._values("order", addresses), range(len(addresses))
        ordered = sorted(zip([-exact[key] for key in keys], orders, places, strict=True))
        found: list[Candidate] = []
        for score, _, place in ordered:
            handle, item = self.index.handle_and_item(self._searcher, addresses[place])
            if seen is None or seen(handle):
                found.append(Candidate(handle, item, -score))
                if len(found) == k:
                    break
        return found

    def _exact(
        self, given: Mapping[tuple[float, int], tantivy.DocAddress], weights: Mapping[Leaf, float]
    ) -> dict[tuple[float, int], float]:
        """The exact scores of texts with these scores and lengths."""
        average, stored = self.average, self._state.stored_average
        decoder = None if stored is None else Decoder(weights, stored)
        found: dict[tuple[float, int], float] = {}
        asked: list[tuple[float, int]] = []
        for key in given:
            held = None if decoder is None else decoder.counts(*key)
            if held is None:
                asked.append(key)
            else:
                found[key] = score_of(weights, held, key[1], average)
        if asked:
            counted = self._frequencies([given[key] for key in asked], weights)
            for key, explained in zip(asked, counted, strict=True):
                found[key] = score_of(weights, explained, key[1], average)
        return found

    def _frequencies(
        self, addresses: list[tantivy.DocAddress], weights: Mapping[Leaf, float]
    ) -> list[dict[Leaf, float]]:
        """How often each leaf is in these texts, as tantivy explains it."""
        found: list[dict[Leaf, float]] = [{} for _ in addresses]
        for leaf in weights:
            if leaf.distance:
                for place in self._within(leaf, addresses):
                    found[place][leaf] = 1
                continue
            query = self._plain(leaf)
            for place, address in enumerate(addresses):
                if explained := self._explain(query, address):
                    found[place][leaf] = number_in(_FREQUENCY, explained)
        return found

    def _within(self, leaf: Leaf, addresses: list[tantivy.DocAddress]) -> list[int]:
        """Which of these texts have such a word; each explanation would look at all words."""
        handles = {self.index.handle_and_item(self._searcher, address)[0] for address in addresses}
        query = [(Occur.Must, self._plain(leaf)), (Occur.Must, self._handles(handles))]
        limit = MOST_TIES + len(addresses)
        hits = self._searcher.search(Query.boolean_query(query), limit, count=False).hits
        known = {(address.segment_ord, address.doc) for _, address in hits}
        return [
            place
            for place, address in enumerate(addresses)
            if (address.segment_ord, address.doc) in known
        ]

    def _explain(self, query: Query, address: tantivy.DocAddress) -> str | None:
        try:
            return query.explain(self._searcher, address).to_json()
        except ValueError:  # it is not in this text
            return None

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
                score = score_of(plan.weights, held, len(document.words), average)
                found.append(Candidate(handle, item, score))
        return found

    def _query(self, plan: Plan) -> Query | None:
        """What finds the texts in the index; None if there can't be any."""
        any_of = self._any_of(plan.weights)
        if any_of is None:
            return None
        clauses: list[tuple[Occur, Query]] = []
        for group in plan.required:
            held = self._any_of(dict.fromkeys(group, 1.0))
            if held is None:
                return None
            clauses.append((Occur.Must, _unscored(held)))
        excluded = self._any_of(dict.fromkeys(plan.excluded, 1.0))
        if excluded is not None:
            clauses.append((Occur.MustNot, excluded))
        return Query.boolean_query([(Occur.Must, any_of), *clauses]) if clauses else any_of

    def _filtered(
        self, query: Query, among: frozenset[str] | None, without: frozenset[str]
    ) -> Query:
        """A query that finds nothing but what is seen."""
        clauses = [(Occur.Must, query)]
        if among is not None:
            clauses.append((Occur.Must, _unscored(self._handles(among))))
        if without:
            clauses.append((Occur.MustNot, self._handles(without)))
        if self._hides is not None:
            clauses.append((Occur.MustNot, self._hides))
        return Query.boolean_query(clauses)

    def _handles(self, handles: Iterable[str]) -> Query:
        return Query.term_set_query(self.index.schema, "handle", list(handles))

    def _any_of(self, weights: Mapping[Leaf, float]) -> Query | None:
        if not self._state.documents:
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


def rank_key(candidate: Candidate) -> tuple[float, int, str, int]:
    """Best first, and a total order among equals."""
    handle, item, score = candidate
    return -score, order(handle, item), handle, item


def _unscored(query: Query) -> Query:
    return Query.const_score_query(query, 0.0)
