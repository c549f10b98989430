"""Ranking: a pure function of the query and the texts that are seen."""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trails.views.text.analysis import Analyzer
from trails.views.text.corpus import Corpus
from trails.views.text.grammar import parse
from trails.views.text.index import TextIndex
from trails.views.text.matching import Finder
from trails.views.text.ranking import Source, rank

PLAIN = Analyzer()
ENGLISH = Analyzer("english")


def source(texts, overlay=(), field="text", analyzer=PLAIN, before=()):
    """A source whose index was written in several steps, seen through an overlay."""
    index = TextIndex(None, analyzer)
    for step in before:
        index.put(step)
        index.flush()
    index.put(texts)
    index.flush()
    seen = {handle: held for step in before for handle, held in step.items()} | texts
    seen |= dict(overlay)
    return Source(Corpus(index, dict(overlay)), field, seen.get)


def found(query, *sources, k=10, **options):
    """What a query finds: handles, best first."""
    fields = {each.field for each in sources}
    return [each.handle for each in rank(parse(query, fields), sources, k, **options).records]


NOTES = {
    "N/1": "boundary layer of a wing",
    "N/2": "the boundary of a field and its layer of grass",
    "N/3": "wing wing wing",
    "N/4": "hydraulic press",
    "N/5": ("first item", "second item about hydraulics"),
    "N/6": "REQ-12 and REQ-13",
}


@pytest.mark.parametrize(
    ("query", "handles"),
    [
        ("press", ["N/4"]),
        ('"boundary layer"', ["N/1"]),
        ('"boundary layer" wing', ["N/1"]),
        ("hydraul*", ["N/4", "N/5"]),
        ("hydraulics~", ["N/4", "N/5"]),
        ("wing -boundary", ["N/3"]),
        ("wing -(boundary", ["N/3", "N/1", "N/2"]),
        ("req-13", ["N/6"]),
        ('press OR "boundary layer"', ["N/1", "N/4"]),
        ("zzz", []),
        ("zzz* yyy~", []),
        ("\ud800 \x00", []),
    ],
)
@pytest.mark.parametrize("overlaid", [False, True], ids=["indexed", "overlaid"])
def test_what_is_found(query, handles, overlaid):
    """The grammar means the same in an index and in an overlay."""
    one = source({}, NOTES) if overlaid else source(NOTES)
    assert sorted(found(query, one)) == sorted(handles)


def test_more_and_rarer_words_come_first():
    """BM25: the text with both words, then the one with the rarer word."""
    assert found("boundary wing", source(NOTES))[0] == "N/1"
    assert found("hydraulic item", source(NOTES))[0] in {"N/4", "N/5"}


def test_filters_apply_before_ranking():
    """A filter never costs hits: k of what it allows are found."""
    one = source({f"N/{n}": "flow " * (n % 5 + 1) for n in range(300)})
    allowed = frozenset(f"N/{n}" for n in range(0, 300, 50))
    assert sorted(found("flow", one, among=allowed)) == sorted(allowed)
    best = found("flow", one, k=20)
    assert found("flow", one, k=5, without=frozenset(best[:7])) == best[7:12]


def test_fields_are_added_and_scoped():
    """A record with words in two fields is before one with a word in one; a field can be named."""
    title = source({"N/1": "pump", "N/2": "valve", "N/3": "pump"}, field="title")
    body = source({"N/1": "a valve", "N/2": "a pump", "N/3": "a thing"}, field="body")
    assert found("pump valve", title, body)[:2] != ["N/3"]
    assert sorted(found("title:pump", title, body)) == ["N/1", "N/3"]
    assert found("body:pump", title, body) == ["N/2"]
    assert found('"a valve" pump', title, body) == ["N/1"]
    assert found("pump -thing", title, body)[-1] != "N/3"
    assert "N/3" not in found("pump -thing", title, body)


def test_a_record_counts_as_the_best_of_its_texts():
    """Of the items of a list, one is found: the first of those with the best score."""
    one = source({"N/1": ("pump", "a pump and more words", "pump pump"), "N/2": "a pump"})
    ranked = rank(parse("pump"), [one], 5).records
    assert [each.handle for each in ranked] == ["N/1", "N/2"]
    assert [(each.item, each.score) for each in ranked[0].found] == [(2, ranked[0].score)]
    assert ranked[0].score > ranked[1].score


def test_equal_scores_have_a_total_order():
    """Which of many equal texts come first depends on their names, not on when they came."""
    texts = {f"N/{n}": "same words" for n in range(3000)}
    items = list(texts.items())
    forward = source(texts)
    backward = source(dict(reversed(items[:10])), before=[dict(items[1500:]), dict(items[:1500])])
    assert found("same", forward) == found("same", backward)
    assert found("same", forward, k=40)[:10] == found("same", forward)


WORDS = st.lists(
    st.sampled_from(["flow", "wing", "heat", "flux", "the", "REQ-12", "東京", "café"]), max_size=8
)
TEXTS = st.dictionaries(
    st.sampled_from([f"N/{n}" for n in range(12)]),
    st.none() | WORDS.map(" ".join) | st.tuples(WORDS.map(" ".join), WORDS.map(" ".join)),
    max_size=12,
)
QUERY = st.lists(
    st.sampled_from(
        ["flow", "wing", '"heat flux"', "fl*", "wimg~", "-wing", "REQ-12", "京", "cafe", "OR"]
    ),
    min_size=1,
    max_size=4,
).map(" ".join)


@given(query=QUERY, steps=st.lists(TEXTS, max_size=3), texts=TEXTS, overlay=TEXTS)
@settings(max_examples=60, deadline=None)
def test_scores_depend_on_the_texts_that_are_seen_alone(query, steps, texts, overlay):
    """An index with a history, seen through an overlay, answers like a new index: byte for byte."""
    seen = {handle: held for step in (*steps, texts, overlay) for handle, held in step.items()}
    grown = source(texts, overlay, before=steps)
    assert rank(parse(query), [grown], 5) == rank(parse(query), [source(seen)], 5)
    assert rank(parse(query), [grown], 5) == rank(parse(query), [source({}, seen)], 5)


@given(query=QUERY, texts=TEXTS, overlay=TEXTS)
@settings(max_examples=60, deadline=None)
def test_what_is_found_can_be_proven(query, texts, overlay):
    """Each text that was found has a match, and no text with a match is missed."""
    seen = texts | overlay
    query = parse(query)
    records = rank(query, [source(texts, overlay)], 100).records
    for record in records:
        held = seen[record.handle]
        text = held if isinstance(held, str) else held[record.found[0].item]
        assert Finder(query, PLAIN).find(text)
    if not query.excluded and not any(clause.quoted for g in query.groups for clause in g):
        expected = {
            handle
            for handle, held in seen.items()
            for text in ((held,) if isinstance(held, str) else held or ())
            if Finder(query, PLAIN).find(text)
        }
        assert {record.handle for record in records} == expected


@given(query=QUERY, title=TEXTS, body=TEXTS)
@settings(max_examples=40, deadline=None)
def test_pages_of_several_fields_fit_together(query, title, body):
    """What is on the first page does not depend on how many pages are read."""
    sources = source(title, field="title"), source(body, field="body")
    every = rank(parse(query), sources, 50).records
    for k in (1, 2, 5):
        assert rank(parse(query), sources, k).records == every[:k]


def test_sums_of_many_texts_are_found():
    """A record that is nowhere among the first, but in both fields, has the best sum."""
    title = {f"N/{n}": "pump " * 3 for n in range(200)} | {"M/1": "pump " * 2 + "x"}
    body = {f"K/{n}": "pump " * 3 for n in range(200)} | {"M/1": "pump " * 2 + "y"}
    sources = source(title, field="title"), source(body, field="body")
    assert found("pump", *sources, k=3)[0] == "M/1"


PIECES = st.lists(
    st.sampled_from(
        [
            "Straße",
            "Cafe\u0301",
            "ﬁ",
            "東京",
            "都庁",
            "가나다",
            "ภาษา",
            "हिन्दी",
            "REQ-12",
            "a_b",
            "🚀",
            "½",
            "x",
            " ",
        ]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    max_size=6,
).map("".join)


@given(texts=st.lists(PIECES, min_size=1, max_size=5), data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_part_of_a_text_finds_it(texts, data):
    """In any script: what is copied from a text finds it, and is located in it."""
    one = source({f"N/{n}": text for n, text in enumerate(texts)})
    number = data.draw(st.integers(0, len(texts) - 1))
    words = list(PLAIN.tokens(texts[number]))
    if not words:
        return
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(words) - 1)] * 2)))
    part = texts[number][words[start].start : words[end].end].replace('"', " ")
    if PLAIN.words(part) != [word.text for word in words[start : end + 1]]:
        return  # a character that is several words, such as a fraction, was cut
    for query in (parse(f'"{part}"'), parse(part.replace("*", " ").replace("~", " "))):
        if query.excluded or not query.groups:
            continue
        records = rank(query, [one], 10).records
        assert f"N/{number}" in {record.handle for record in records}, query
        for record in records:
            assert Finder(query, PLAIN).find(texts[int(record.handle[2:])])


WORD = st.text("abcé東", min_size=3, max_size=5)


@given(words=st.lists(WORD, min_size=1, max_size=20), query=WORD, distance=st.sampled_from("12"))
@settings(max_examples=100, deadline=None)
def test_distance_means_the_same_to_index_and_proof(words, query, distance):
    """Exactly the texts that have a match are found."""
    asked = parse(f"{query}~{distance}")
    one = source({f"N/{n}": word for n, word in enumerate(words)})
    records = rank(asked, [one], 100).records
    expected = {f"N/{n}" for n, word in enumerate(words) if Finder(asked, PLAIN).find(word)}
    assert {record.handle for record in records} == expected


def test_a_prefix_stands_for_a_limited_number_of_words():
    """The most frequent ones are taken, and the answer says so."""
    one = source({f"N/{n}": f"word{n} {'word1' if n < 50 else ''}" for n in range(200)})
    ranking = rank(parse("wor*"), [one], 100)
    assert ranking.notices == ("wor* stands for its 64 most frequent words",)
    assert len(ranking.records) == 100
    assert rank(parse("the of"), [source(NOTES, analyzer=ENGLISH)], 5).notices == (
        "the query has no word that can be searched for",
    )


def test_a_question_finds_what_is_related():
    """Words of the best texts find more; what only they found is marked."""
    texts = {f"N/{n}": f"unrelated filler number {n}" for n in range(150)}
    for n in range(8):
        texts[f"Q/{n}"] = "ice forms on cold aircraft wings deicing boots"
    texts["R/1"] = "deicing boots in use"
    one = source(texts, analyzer=ENGLISH)
    records = rank(parse("why does ice form on cold aircraft wings"), [one], 20).records
    related = {record.handle: record.related for record in records}
    assert related["R/1"]
    assert not related["Q/1"]
    assert "R/1" not in found("ice aircraft", one)


def test_few_texts_teach_nothing():
    """What the best of a few texts have in common is chance, so nothing is related."""
    texts = {f"Q/{n}": "ice forms on cold aircraft deicing boots" for n in range(8)}
    texts |= {"W/1": "wings", "R/1": "deicing boots in use"}
    question = "why does ice form on cold aircraft wings"
    assert "R/1" not in found(question, source(texts, analyzer=ENGLISH), k=20)
    texts |= {f"N/{n}": f"unrelated filler number {n}" for n in range(100)}
    assert "R/1" in found(question, source(texts, analyzer=ENGLISH), k=20)


def test_what_is_related_comes_behind_a_text_with_all_the_words():
    """It is what was meant; without it, what the best texts have in common counts as much."""
    texts = {f"N/{n}": f"unrelated filler number {n} of wings" for n in range(150)}
    for n in range(8):
        texts[f"Q/{n}"] = "ice forms on cold aircraft deicing boots deicing boots"
    texts["A/1"] = "after all, cold ice will form on each of the wings of an aircraft, be it large"
    question = "why does ice form on cold aircraft wings"
    one = source(texts, analyzer=ENGLISH)
    assert found(question, one, k=20)[0] == "A/1"
    others = frozenset(texts) - {"A/1"}
    with_all, without = (
        {each.handle: each.score for each in rank(parse(question), [one], 20, among=among).records}
        for among in (None, others)
    )
    assert with_all["Q/1"] < 0.7 * without["Q/1"]
    hidden = rank(parse(question), [one], 20, without=frozenset({"A/1"})).records
    assert {each.handle: each.score for each in hidden} == without


def test_a_joined_word_alone_means_itself():
    """Texts that have it come first; in a question it is two words that may be apart."""
    texts = {
        "N/1": "a format that is easy to read for a human, and readable",
        "N/2": "human human human",
        "N/3": "a long text in which, among many other words, human-readable is found but once",
        "N/4": "readable, readable",
        **{f"F/{n}": f"filler number {n}" for n in range(50)},
    }
    one = source(texts)
    assert found("human-readable", one)[0] == "N/3"
    assert found("human-readable text", one)[0] == "N/3"


CRANFIELD = (
    Path(os.environ.get("TRAILS_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
    / "cranfield"
)


@pytest.mark.skipif(
    not CRANFIELD.is_dir(), reason=f"the Cranfield collection is not in {CRANFIELD}"
)
def test_cranfield():
    """nDCG@10 on a public collection, with parameters of the literature: the halves are alike."""
    documents = _lines("documents.jsonl")
    queries = [each["text"] for each in _lines("queries.jsonl")]
    judged: dict[int, dict[str, int]] = {}
    for line in (CRANFIELD / "qrels.txt").read_text().splitlines():
        if line:
            number, _, document, grade = line.split()
            judged.setdefault(int(number), {})[document] = max(0, int(grade))
    one = source({each["id"]: each["text"] for each in documents}, analyzer=ENGLISH)
    gains = []
    for number, query in enumerate(queries, 1):
        grades = judged.get(number, {})
        reached = _gain([grades.get(handle, 0) for handle in found(query, one)])
        best = _gain(sorted(grades.values(), reverse=True)[:10])
        gains.append(reached / best if best else 0.0)
    assert sum(gains) / len(gains) >= 0.42
    for half in (gains[::2], gains[1::2]):
        assert sum(half) / len(half) >= 0.41


def _lines(name):
    return [json.loads(line) for line in (CRANFIELD / name).read_text().splitlines()]


def _gain(grades):
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(grades))


def test_stop_words_of_one_field_count_in_none() -> None:
    """In a field without a language they would be rare; alone, they are searched for."""
    english, plain = Analyzer("english"), Analyzer()
    body = TextIndex(None, english)
    body.put({f"d{at}": f"the wing of number{at}" for at in range(20)})
    body.flush()
    name = TextIndex(None, plain)
    name.put({**{f"d{at}": f"plane {at}" for at in range(20)}, "d7": "the plane"})
    name.flush()
    sources = [Source(Corpus(body, {}), "body"), Source(Corpus(name, {}), "name")]
    assert rank(parse("the number3"), sources, 1).records[0].handle == "d3"
    assert [each.handle for each in rank(parse("the"), sources, 5).records] == ["d7"]


def test_words_that_stand_for_a_prefix_count_alike():
    """None of them was asked for, so being rare says nothing."""
    texts = {f"N/{n}": "hydraulic press" for n in range(20)}
    one = source({**texts, "N/rare": "hydrofoil press"})
    scores = {each.handle: each.score for each in rank(parse("hydr*"), [one], 30).records}
    assert len(scores) == 21
    assert len(set(scores.values())) == 1


def test_limits_of_a_query():
    """Few words may differ in letters, short ones never; a phrase is compared up to a length."""
    names = [f"word{letter}" for letter in "abcdefghi"]
    one = source({"N/1": "wordix", "N/2": "ab", "N/3": " ".join(f"w{n}" for n in range(32))})
    assert found("wordi~", one) == ["N/1"]
    asked = parse(" ".join(f"{name}~" for name in names))
    assert [group[0].distance for group in asked.groups] == [1] * 8 + [0]
    assert asked.notices == ("only the first 8 words with ~ were searched for as such",)
    assert found("ac~", one) == []
    phrase = " ".join(f"w{n}" for n in range(40))
    assert found(f'"{phrase}"', one) == ["N/3"]
    assert found(f'"{phrase.replace("w31", "x")}"', one) == []
