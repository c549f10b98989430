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
from trails.views.text.scoring import Decoder, score

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
    found = Decoder(asked, average).counts(single(score(asked, held, length, average)), length)
    assert found in (None, held)


def test_usual_scores_are_read():
    """Otherwise tantivy would be asked for each, and nobody would notice."""
    one, two, three = Leaf(("one",)), Leaf(("two",)), Leaf(("three",))
    for asked in ({one: 7.5}, {one: 3.1, two: 7.5}, {one: 3.1, two: 7.5, three: 5.2}):
        for count in (1, 2, 5):
            held = dict.fromkeys(asked, count)
            for some in (held, {one: count}):
                found = single(score(asked, some, 15, 9.0))
                assert Decoder(asked, 9.0).counts(found, 15) == some
    alone = {one: 7.5}
    for length in (50, 5000):
        for count in (1, 40, 41):
            found = single(score(alone, {one: count}, length, 5000.0))
            assert Decoder(alone, 5000.0).counts(found, length) == (
                {one: count} if count <= 40 else None
            )


def test_scores_of_other_plans_and_texts_are_not_read():
    """Of long texts there are too many sums to try; words that differ in a letter have no count."""
    one, two, other = Leaf(("one",)), Leaf(("two",)), Leaf(("one",), distance=1)
    long = {one: 7.5, two: 3.1}
    assert Decoder(long, 9.0).counts(single(score(long, {one: 1, two: 1}, 41, 9.0)), 41) is None
    assert Decoder({other: 1.0}, 9.0).counts(1.0, 12) is None
    many = {Leaf((str(number),)): 2.0 + number for number in range(4)}
    held = dict.fromkeys(many, 1)
    assert Decoder(many, 9.0).counts(single(score(many, held, 12, 9.0)), 12) is None


def test_a_score_that_has_two_readings_is_not_read():
    """Two words that count the same: either of them may be the one that is in the text."""
    asked = {Leaf(("one",)): 4.0, Leaf(("two",)): 4.0}
    found = single(score(asked, {Leaf(("two",)): 2}, 12, 9.0))
    assert Decoder(asked, 9.0).counts(found, 12) is None


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
    decoder = Decoder(weights, average)
    for (found, _), length, held in zip(hits, lengths, explained, strict=True):
        assert decoder.counts(found, length) in (None, held)
