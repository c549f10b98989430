"""Frequencies that are read from scores of tantivy."""

from __future__ import annotations

import struct

import tantivy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trails.views.text.analysis import Analyzer
from trails.views.text.corpus import Corpus, Plan
from trails.views.text.grammar import Leaf
from trails.views.text.index import TextIndex
from trails.views.text.scoring import decode, score

WEIGHTS = st.floats(1e-6, 40)
"""From words that every text has to those that one of a million has."""


def single(value: float) -> float:
    """A number in single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


@given(
    weights=st.lists(WEIGHTS, min_size=1, max_size=3),
    counts=st.lists(st.integers(0, 60), min_size=3, max_size=3),
    more=st.integers(0, 3000),
    average=st.floats(1, 500),
)
@settings(max_examples=500, deadline=None)
def test_what_is_read_from_a_score_is_what_it_was_made_of(weights, counts, more, average):
    """Or it is not sure, and nothing is read from it."""
    asked = {Leaf((str(place),)): single(weight) for place, weight in enumerate(weights)}
    held = {leaf: count for leaf, count in zip(asked, counts, strict=False) if count}
    assume(held)
    length = sum(held.values()) + more
    found = decode(single(score(asked, held, length, average)), asked, length, average)
    assert found in (None, held)


def test_usual_scores_are_read():
    """Otherwise tantivy would be asked for each, and nobody would notice."""
    one, two = Leaf(("one",)), Leaf(("two",))
    for asked in ({one: 7.5}, {one: 7.5, two: 3.1}):
        for count in (1, 2, 5):
            held = dict.fromkeys(asked, count)
            assert decode(single(score(asked, held, 12, 9.0)), asked, 12, 9.0) == held
    assert decode(1.0, {Leaf(("one",), distance=1): 1.0}, 12, 9.0) is None


TEXTS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), min_size=1, max_size=12)


@given(texts=TEXTS, words=st.sets(st.sampled_from("abcdef"), min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_frequencies_read_from_scores_are_those_that_tantivy_explains(texts, words):
    """For every text of an index that a search finds."""
    index = TextIndex(None, Analyzer())
    index.fill([(f"N/{number}", " ".join(each)) for number, each in enumerate(texts)])
    index.flush()
    corpus = Corpus(index, {})
    weights = {Leaf((word,)): 2.0 for word in sorted(words) if corpus.frequency(word)}
    assume(weights)
    query = corpus._query(Plan(weights))
    hits = index.state.searcher.search(query, 100, count=False).hits
    addresses: list[tantivy.DocAddress] = [address for _, address in hits]
    explained = corpus._frequencies(addresses, weights)
    lengths = corpus._values("length", addresses)
    average = index.state.stored_average
    assert average is not None
    for (found, _), length, held in zip(hits, lengths, explained, strict=True):
        assert decode(found, weights, length, average) in (None, held)
