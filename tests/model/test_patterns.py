r"""Patterns mean to RE2 what they mean to a JSON Schema validator, or are refused.

The judge is Python's engine with the text translated by tests/model/ecma.py, which is written
apart from the translation under test.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.ecma import SPACES, compile_ecma

from trails.errors import DeclarationError
from trails.model.constraints import check_pattern, compile_pattern

# ---------------------------------------------------------------------------- agreement

TEXTS = ["", "a", "ab", "abc", "A", "1", "12", "12\n", "\n", "\r", "\r\n", "a\nb", "_", "-", " "]
TEXTS += ["\t", "\v", "\x00", "\x7f", "\x85", "\xa0", "\u0663", "\u1680", "\u180e", "\u2003"]
TEXTS += [
    "\u2028",
    "\u2029",
    "\u200b",
    "\u3000",
    "\ufeff",
    "é",
    "e\u0301",
    "ß",
    "中文",
    "😀",
    "a😀b",
]
TEXTS += ["a]b", "a-b", "{1}", "a.b", "a/b", "\\", "^", "$", "x@y", "REQ-001", "REQ-001\n", "aaaa"]

PATTERNS = ["", "a", "^a$", "^$", "$", "^", ".", "^.$", "^..$", "a|b", "^(?:a|b)+$", "(a)(b)?"]
PATTERNS += [r"\d", r"^\d+$", r"^\D$", r"\w", r"^\W$", r"^\w+$", r"\s", r"^\s$", r"\S", r"^\S$"]
PATTERNS += [r"\bab\b", r"\Ba", r"[\d]", r"[^\d]", r"^[^\s]$", r"[\s_]", r"[\w-]", r"[^\n]"]
PATTERNS += [r"\n", r"\r", r"\t", r"\v", r"\x41", r"\xe9", r"\u00e9", r"[\u4e00-\u9fff]", r"\uFEFF"]
PATTERNS += ["^[^@ ]+@[^@ ]+$", "^REQ-[0-9]{3}$", "^.{2,4}$", "^a{2,}$", "^a{4}$", "a*?b", "a+?"]
PATTERNS += [r"\.", r"\/", r"\\", r"\^", r"\$", r"\{1\}", r"a\]b", r"[a\-z]", r"[\]]", r"[\^a]"]
PATTERNS += [
    "[.]",
    "[$^]",
    "[(){}*+?|]",
    "[^a]",
    "^[^a]*$",
    "é",
    "^é$",
    "[é-ü]",
    "😀",
    "^😀$",
    "^.😀.$",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_reads_as_ecma_262_reads_it(pattern):
    """Each accepted pattern finds exactly the texts that its ECMA-262 reading finds."""
    occurs, judge = compile_pattern(pattern), compile_ecma(pattern)
    found = {text for text in TEXTS if occurs(text)}
    assert found == {text for text in TEXTS if judge.search(text)}


ATOMS = ["a", "1", "é", "😀", "_", ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\n", r"\x61"]
ATOMS += [
    r"\u2028",
    "[a-c]",
    r"[^\d]",
    r"[\s_]",
    r"[^\s]",
    r"[\w\-]",
    "[.]",
    r"\.",
    "^",
    "$",
    r"\b",
]


def combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger patterns of smaller ones."""
    quantifier = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?", "+?", "??"])
    return (
        st.lists(inner, min_size=2, max_size=4).map("".join)
        | st.tuples(inner, inner).map("|".join)
        | inner.map("({})".format)
        | st.tuples(inner.map("(?:{})".format), quantifier).map("".join)
    )


SUBJECTS = st.text("ab1_-. é😀\n\r\t\u0663\u2028\xa0\u3000\ufeff", max_size=6)


@settings(max_examples=300, deadline=None)
@given(st.recursive(st.sampled_from(ATOMS), combine, max_leaves=5), st.lists(SUBJECTS, max_size=8))
def test_generated_patterns_read_as_ecma_262_reads_them(pattern, texts):
    """Combinations of everything that is accepted agree as well."""
    occurs, judge = compile_pattern(pattern), compile_ecma(pattern)
    for text in texts:
        assert occurs(text) == bool(judge.search(text)), text


def test_white_space_is_that_of_ecma_262():
    r"""Of the whole basic plane, `\s` finds the listed spaces and nothing else."""
    occurs, listed = compile_pattern(r"^\s$"), compile_ecma(f"^[{SPACES}]$")
    plane = [chr(code) for code in range(0x10000) if not 0xD800 <= code <= 0xDFFF]
    assert [c for c in plane if occurs(c)] == [c for c in plane if listed.search(c)]


def test_a_character_beyond_the_basic_plane_is_one_character():
    """Lengths and classes count code points, as the flag u does."""
    assert compile_pattern("^.{1}$")("😀")
    assert compile_pattern("^[😀-😂]$")("😁")
    assert not compile_pattern("^.{2}$")("😀")


# ---------------------------------------------------------------------------- refusal

REFUSED = [
    ("(?=a)", "(?:...)"),
    ("(?!a)b", "(?:...)"),
    ("(?<=a)b", "(?:...)"),
    ("(?P<n>a)", "(?:...)"),
    ("(?i)a", "(?:...)"),
    ("(?#x)", "(?:...)"),
    (r"(a)\1", r"\1 is not one of"),
    (r"\p{L}", r"\p is not one of"),
    (r"\A", r"\A is not one of"),
    (r"\Z", r"\Z is not one of"),
    (r"\Qa\E", r"\Q is not one of"),
    (r"\cA", r"\c is not one of"),
    (r"\0", r"\0 is not one of"),
    (r"\x4", r"\x is not one of"),
    (r"\u12", r"\u is not one of"),
    (r"\u{61}", r"\u is not one of"),
    (r"[\S]", r"\S is not one of"),
    (r"[\b]", "inside [...]"),
    (r"a\-b", "without the backslash"),
    (r"\@", "without the backslash"),
    (r"\é", "is not one of"),
    ("a\\", "lone backslash"),
    ("[]", "empty class"),
    ("[^]", "empty class"),
    ("[]a]", "empty class"),
    ("[[:alpha:]]", r"\["),
    ("[a&&b]", "set operator"),
    ("[a--]", "set operator"),
    ("a{", "lone {"),
    ("a{,5}", "lone {"),
    ("{1}a", "nothing to repeat"),
    ("a}", "lone }"),
    ("a]", "lone ]"),
    ("a{2,1}", "min repeat"),
    ("a{1001}", "repetition size"),
    ("(?:(?:a{100}){100}){100}", "repetition size"),
    ("a++", "repetition operator"),
    ("a**", "multiple repeat"),
    ("^*", "nothing to repeat"),
    ("*a", "nothing to repeat"),
    ("(a", "missing )"),
    ("a)", "parenthesis"),
    ("[a", "unterminated"),
    ("[b-a]", "range"),
    (r"[\d-z]", "range"),
    (r"\ud83d\ude00", "half a character"),
]


@pytest.mark.parametrize(("pattern", "reason"), REFUSED)
def test_a_pattern_without_one_meaning_is_refused(pattern, reason):
    """The error quotes the pattern, gives the reason and says what to do."""
    with pytest.raises(DeclarationError) as refused:
        check_pattern(pattern)
    message = refused.value.message
    assert repr(pattern) in message
    assert reason in message
    assert "rewrite it" in message
    assert ": b'" not in message
    assert refused.value.data == {"pattern": pattern}
