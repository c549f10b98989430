"""Words of a text: folded, cut, and located by code points of the original."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trails.views.text import analysis
from trails.views.text.analysis import LANGUAGES, LONGEST, Analyzer

PLAIN = Analyzer()
ENGLISH = Analyzer("english")

FOLDED = [
    ("Straße STRASSE", ["strasse", "strasse"]),
    ("Müller Mu\u0308ller", ["muller", "muller"]),
    ("Čeština Ελλάδα ΟΔΟΣ ёлка Йод", ["cestina", "ελλαδα", "οδοσ", "елка", "иод"]),
    ("ﬁre Ｆｕｌｌ Ⅳ ㎏", ["fire", "full", "iv", "kg"]),
    (
        "Øre Łódź Æon œuvre İstanbul ıspanak",
        ["ore", "lodz", "aeon", "oeuvre", "istanbul", "ispanak"],
    ),
    ("שָׁלוֹם مُحَمَّد محـــمد", ["שלום", "محمد", "محمد"]),
    ("REQ-12 foo_bar v2.0.1", ["req", "12", "foo", "bar", "v2", "0", "1"]),
    ("state-of-the-art", ["state", "of", "the", "art"]),
    ("soft\u00adware zero\u200dwidth", ["software", "zerowidth"]),
    ("東京都 ﾃｽﾄ", ["東", "京", "都", "テ", "ス", "ト"]),
    ("हिन्दी", ["हिन्दी"]),
    ("deploy 🚀", ["deploy", "🚀"]),
    ("a\x00b\rc\u2028d", ["a", "b", "c", "d"]),
    ("\ud800x", ["x"]),
    ("", []),
]


@pytest.mark.parametrize(("text", "words"), FOLDED)
def test_words_are_folded(text, words):
    """Case, diacritics, compatibility forms and punctuation do not matter."""
    assert [unicodedata.normalize("NFC", word) for word in PLAIN.words(text)] == words


def test_scripts_without_spaces_give_one_word_for_each_character():
    """Han, kana, Hangul and Thai are found inside a run."""
    assert len(PLAIN.words("がぎ")) == 2
    assert len(PLAIN.words("서울에서")) == 4
    assert len(PLAIN.words("ภาษาไทย")) == 7
    assert PLAIN.words("가") == PLAIN.words(unicodedata.normalize("NFD", "가"))


def test_long_runs_become_several_words():
    """No word is longer than the index takes."""
    for letter in "aé":
        assert [len(word) for word in PLAIN.words(letter * 250)] == [LONGEST, LONGEST, 50]


def test_a_language_stems_and_drops_stop_words():
    """Stems are compared, and what is dropped leaves no gap."""
    assert ENGLISH.words("The Runners were running to the shops") == [
        "runner",
        "run",
        "shop",
    ]
    found = [(token.text, token.position) for token in ENGLISH.tokens("The dogs of the house")]
    assert found == [("dog", 0), ("hous", 1)]
    assert Analyzer("english", stop_words=False).words("the dogs") == ["the", "dog"]


def test_every_language_works():
    """Each of the list has a stemmer, and an analyzer's version says which it is."""
    assert len({Analyzer(language).version for language in LANGUAGES}) == len(LANGUAGES)
    for language in LANGUAGES:
        assert Analyzer(language).words("Haus x2")
    with pytest.raises(ValueError, match="'klingon' is not a language"):
        Analyzer("klingon")


def test_a_decomposed_diacritic_belongs_to_its_word():
    """An offset never separates a letter from its signs."""
    text = "cafe\u0301 x"
    (first, second) = PLAIN.tokens(text)
    assert text[first.start : first.end] == "cafe\u0301"
    assert text[second.start : second.end] == "x"


UNICODE = st.text(st.characters(), max_size=60)
TRICKY = st.text(
    st.sampled_from(
        "aZ9 _-.ßéE\u0301\u0323\u0308İıﬁ½㎏ﾊﾞガハ\u3099가ㄱㅏ\u1100\u1161\u11a8東。हिन्दी\u093c\u094d"
        "กำ\u0e49שָׁ\u200d\ufe0f👩🏽\ud83d\x00\u2028\u0345ΐς\u0130Å\u212b"
    ),
    max_size=40,
)


@pytest.mark.parametrize("analyzer", [PLAIN, ENGLISH], ids=["plain", "english"])
@given(text=UNICODE | TRICKY)
@example("½½a")
@example("\u0344x\u0345\u0344")
@settings(max_examples=300, deadline=None)
def test_tokens_are_the_words_in_their_places(analyzer, text):
    """Offsets are in range and ordered, and what is there gives the word again."""
    tokens = list(analyzer.tokens(text))
    assert [token.text for token in tokens] == analyzer.words(text)
    assert [token.position for token in tokens] == list(range(len(tokens)))
    last = 0
    for token in tokens:
        assert last <= token.start < token.end <= len(text)
        last = token.start
        assert token.text in analyzer.words(text[token.start : token.end])


@given(text=UNICODE | TRICKY)
@settings(max_examples=200, deadline=None)
def test_the_forms_of_unicode_do_not_matter(text):
    """A text and its normal forms have the same words."""
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert PLAIN.words(unicodedata.normalize(form, text)) == PLAIN.words(text)


@given(text=TRICKY, times=st.integers(100, 900))
@settings(max_examples=50, deadline=None)
def test_a_long_text_has_the_same_words_in_pieces(text, times):
    """Analysing piece by piece changes nothing."""
    for long in (text * times, (text + " ") * times):
        assert [token.text for token in PLAIN.tokens(long)] == PLAIN.words(long)


ALPHABETS = st.characters(max_codepoint=0x600) | st.characters(
    min_codepoint=0x1D00, max_codepoint=0x2200
)


@given(text=st.text(ALPHABETS | st.sampled_from("\u0301\u200d東ह\u093f"), max_size=40))
@example(text="é" * (2 * LONGEST + 3))
@example(text="a\u0483б ©™‼ ½²ªº ŉ ǰ ﬃ ẞ ꙮ")
@settings(max_examples=300, deadline=None)
def test_texts_in_alphabets_have_the_words_that_any_text_has(text):
    """They are cut in a faster way, which gives the same."""
    folded = analysis._fold(text)
    found = analysis._word_of(folded)
    spans = [each.span() for each in found.finditer(folded)]
    assert spans == [each.span() for each in analysis._WORD.finditer(folded)]


def test_usual_alphabets_are_cut_in_the_fast_way():
    """Otherwise the test above would hold, and nothing be faster."""
    for text in ("Straße nach Łódź – où la rivière", "дорога скользкая", "Ελλάδα; «ΟΔΟΣ»"):
        assert analysis._word_of(analysis._fold(text)) is analysis._ALPHABETIC_WORD
