"""Queries, and where they match in a text."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trails.views.text.analysis import Analyzer
from trails.views.text.grammar import MOST_CLAUSES, Clause, parse
from trails.views.text.matching import Finder, within

PLAIN = Analyzer()
ENGLISH = Analyzer("english")
TEXT = "The Boundary-Layer flow, boundary laYer. Hydraulics REQ-12; Müller’s turbulenec 東京都庁"


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("boundary layer", ["Boundary", "Layer", "boundary", "laYer"]),
        ('"boundary layer"', ["Boundary-Layer", "boundary laYer"]),
        ("boundary-layer flow", ["Boundary-Layer", "flow", "boundary laYer"]),
        ("req-12", ["REQ-12"]),
        ("REQ-1*", ["REQ-12"]),
        ("REQ-13", []),
        ("hydr*", ["Hydraulics"]),
        ("turbulence~", ["turbulenec"]),
        ("hydraulik~2", ["Hydraulics"]),
        ("hydraulik~", []),
        ("muller", ["Müller"]),
        ("京都", ["京都"]),
        ("都庁の食堂", ["都庁"]),
        ("title:flow", []),
        ("body:flow", ["flow"]),
        ("flow -boundary", ["flow"]),
        ("nothing OR flow", ["flow"]),
        ("x:flow", []),
        ("", []),
    ],
)
def test_matches_are_located(query, matches):
    """Each form of the grammar is found where it is, as it is written there."""
    found = Finder(parse(query, {"title", "body"}), PLAIN, "body").find(TEXT)
    assert [TEXT[match.start : match.end] for match in found] == matches


def test_words_of_ascii_are_located_in_their_order():
    """Whichever the query has first, next to each other, at the start and at the end."""
    finder = Finder(parse("layer flow"), PLAIN)
    assert finder.find("Flow flow,LAYER_flow flows flow") == [
        (0, 4),
        (5, 9),
        (10, 15),
        (16, 20),
        (27, 31),
    ]


def test_stems_are_located():
    """In a field with a language, the forms of a word are found, and prefixes of any of them."""
    text = "Boundaries of running systems"
    for query in ("boundary", "bounda*", "boundarie*", "boundary*", '"boundary run"'):
        assert Finder(parse(query), ENGLISH).find(text), query
    assert Finder(parse("the of"), ENGLISH).find(text) == []


def test_bounded_forms_agree():
    """The first matches are those of the whole list."""
    text = "flow and more flow, then no flow; " * 3000
    query = parse("flow")
    every = Finder(query, PLAIN).find(text)
    assert len(every) == 9000
    assert Finder(query, PLAIN).find(text, 5) == every[:5]


@pytest.mark.parametrize("filler", ["x ", "… ", "東", "é-", "\x00"], ids=ascii)
def test_a_phrase_is_found_wherever_a_long_text_is_cut(filler):
    """Texts are analysed in pieces; a match may go across any number of them."""
    for size in (4090, 4096, 36_860, 120_000):
        gap = filler if filler in {"x ", "東", "é-"} else filler * size
        text = f"{filler * size} heat {'' if filler in {'x ', '東', 'é-'} else gap} flux end"
        (match,) = Finder(parse('"heat flux"'), PLAIN).find(text)
        assert text[match.start :].startswith("heat")
        assert text[: match.end].endswith("flux")


def test_operators_in_wrong_places_are_text():
    """Nothing is an error, and what is no operator is a word."""
    for text in (
        "-",
        "*",
        "~",
        '"',
        '""',
        "OR",
        "OR OR",
        "a:",
        ":",
        "-*",
        '-"',
        "x:*",
        "~2",
        "a OR",
    ):
        parse(text, {"a", "x"})
    assert parse("note: this").groups == ((Clause("note:"),), (Clause("this"),))
    assert parse('say"this"').groups == ((Clause("say"),), (Clause("this", quoted=True),))


def test_work_is_bounded_and_the_query_says_so():
    """A long query is cut, with a notice."""
    query = parse("word " * 1000)
    assert len(query.groups) == MOST_CLAUSES
    assert query.notices == (
        "only the first 4096 characters of the query were used",
        "only the first 64 parts of the query were used",
    )
    assert parse("-only").notices == ("the query only excludes; add a word that is searched for",)


QUERIES = st.text(
    st.sampled_from('ab Z9-_*~2":OR\n東京éß\u0301\x00\ud800') | st.characters(), max_size=40
)


@given(query=QUERIES, text=st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_query(query, text):
    """No query fails, and matches are in range, in order and apart."""
    for analyzer in (PLAIN, ENGLISH):
        last = 0
        found = Finder(parse(query, {"b", "Z9"}), analyzer).find(text)
        padded = Finder(parse(query, {"b", "Z9"}), analyzer).find(text + " " * 5000)
        assert found == padded  # a long text is read in another way
        for start, end in found:
            assert last <= start < end <= len(text)
            last = end


@given(words=st.lists(st.sampled_from(["flow", "OR", "A1", "or", "", "9"]), max_size=70))
@settings(max_examples=200, deadline=None)
def test_plain_words_are_read_as_any_query(words):
    """They are read in a shorter way, which gives the same; a tab is an end to it."""
    text = " ".join(words)
    assert parse(text) == parse(text + "\t")


ASCII = st.lists(
    st.text("aAb9", max_size=4) | st.sampled_from(["_", "-", " ", "a" * 100, "b" * 101, "9" * 250]),
    max_size=12,
).map("".join)


@given(text=ASCII, data=st.data())
@settings(max_examples=300, deadline=None)
def test_words_of_ascii_are_found_where_any_words_are(text, data):
    """They are looked for without analysing the text, which gives the same."""
    words = PLAIN.words(text)[:20]
    query = parse(" ".join(data.draw(st.lists(st.sampled_from([*words, "a", "ab"]), max_size=3))))
    finder = Finder(query, PLAIN)
    assert finder.find(text) == list(finder.matches(text))


@given(first=st.text("abc", max_size=6), second=st.text("abc", max_size=6))
@settings(max_examples=200, deadline=None)
def test_distance_is_symmetric(first, second):
    """A word is within a distance of another if the other is within that of it."""
    for distance in (1, 2):
        assert within(first, second, distance) == within(second, first, distance)


def test_long_texts_take_linear_time():
    """Ten times the text takes about ten times as long, whatever it consists of."""
    for part in ("words of é text, ", "a" * 50, "東京", " . ", "\u0301"):
        short, long = (best_time(part * (size // len(part))) for size in (20_000, 200_000))
        assert long < 60 * max(short, 0.005), part


def best_time(text):
    """The least processor time of a search, which other work disturbs the least."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        Finder(parse('"text words" tex* 京東'), PLAIN).find(text)
        times.append(time.process_time() - begun)
    return min(times)
