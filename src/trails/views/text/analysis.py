"""Analyzer: the words of a text, as the index and queries know them, and where each one is.

A text is folded (compatibility forms, case, diacritics), cut into words, and each word is stemmed
or dropped if the field has a language. Scripts that are written without spaces between words give
one word for each character, so that a phrase of them is found anywhere inside a run.

The index is given words that are joined by spaces, and cuts at spaces. So whatever it finds can
be located in the text: ``words`` and ``tokens`` are two forms of the same computation. Offsets
count code points of the original text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

import regex
import tantivy

from trails.model.types import LANGUAGES

WITHOUT_STOP_WORDS: Final = frozenset({"arabic", "greek", "romanian", "tamil", "turkish"})
"""The languages of which tantivy has no list of stop words."""

_ENGLISH: Final = (
    "i me my myself we us our ours ourselves you your yours yourself yourselves he him his himself "
    "she her hers herself it its itself they them their theirs themselves what which who whom this "
    "that these those am is are was were be been being have has had having do does did doing would "
    "should could ought a an the and but if or because as until while of at by for with about "
    "against between into through during before after above below to from up down in out on off "
    "over under again further then once here there when where why how all any both each few more "
    "most other some such no nor not only own same so than too very"
)
"""The list of the Snowball project, as it is used for the other languages: the list of tantivy for
English has 33 words and leaves questions full of words that ask and name nothing."""

LONGEST: Final = 100
"""Longer runs (hashes, encoded data) are cut, and become phrases. tantivy would drop them from
65 530 bytes on, without an error."""

_FORMAT: Final = 1
"""To be raised when this file gives other words for the same text."""

_REMEMBERED: Final = 200_000
"""How many words an analyzer keeps the stems of."""

FIRST_PIECE: Final = 4096
_PIECE: Final = 32768
"""How many characters are analysed at once, so that the first matches are found soon."""

# What is removed: combining diacritics of Latin, Greek and Cyrillic, the points of Hebrew and
# Arabic, the Arabic tatweel, and characters that are invisible inside a word (soft hyphen,
# joiners, directions, variation selectors, the byte order mark). Signs of other scripts are part
# of their words.
_REMOVED: Final = re.compile(
    "[\u00ad\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
    "\u08d3-\u08e1\u08e3-\u08ff\u1ab0-\u1aff\u1dc0-\u1dff\u200c-\u200f\u202a-\u202e"
    "\u2060-\u2064\u2066-\u206f\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\U000e0100-\U000e01ef]+"
)

# Letters with a stroke, and ligatures, that have no decomposition in Unicode.
_LETTERS: Final = {
    "æ": "ae",
    "œ": "oe",
    "ø": "o",
    "đ": "d",
    "ð": "d",
    "ħ": "h",
    "\u0131": "i",
    "ł": "l",
    "ŋ": "n",
    "þ": "th",
    "ŧ": "t",
    "ƀ": "b",
    "ɨ": "i",
    "ʉ": "u",
}
_LETTER: Final = regex.compile(f"[{''.join(_LETTERS)}]")

# Scripts without spaces between words; Korean is among them because its particles are attached.
_UNSPACED: Final = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\p{Tibetan}\p{Javanese}\p{Balinese}\p{Extended_Pictographic}"
)
_WORD: Final = regex.compile(
    r"(?V1)[\u1100-\u115f\ua960-\ua97c]+[\u1160-\u11a7\ud7b0-\ud7c6]*[\u11a8-\u11ff\ud7cb-\ud7fb]*"
    rf"|\p{{Hangul}}|[[{_UNSPACED}]--[\p{{M}}\p{{P}}0-9]]\p{{M}}*"
    rf"|[[\p{{L}}\p{{N}}]--[{_UNSPACED}\p{{Hangul}}]||0-9]"
    rf"[[\p{{L}}\p{{N}}\p{{M}}]--[{_UNSPACED}\p{{Hangul}}]||0-9]{{0,{LONGEST - 1}}}"
)
_ALPHABETIC_WORD: Final = re.compile(rf"[^\W_]{{1,{LONGEST}}}")


@cache
def _alphabetic() -> re.Pattern[str]:
    """Folded texts in which ``_ALPHABETIC_WORD`` finds what ``_WORD`` does, in a sixth of the time.

    Characters of Latin, Greek, Cyrillic and Armenian, and punctuation, that both take for a letter
    or digit, or both for none; not marks, which are part of a word but do not begin one.
    """
    places = (*range(0x590), *range(0x1E00, 0x2070), *range(0x20A0, 0x20C0))
    kept = (
        character
        for character in map(chr, places)
        if bool(_WORD.match(character)) == bool(_ALPHABETIC_WORD.match(character))
        and unicodedata.category(character)[0] != "M"
    )
    return re.compile(f"[{re.escape(''.join(kept))}]*")


_ASCII_WORD: Final = re.compile(rf"[A-Za-z0-9]{{1,{LONGEST}}}")
_ASCII: Final = bytes(
    code + 32 if 65 <= code <= 90 else code if code < 128 and chr(code).isalnum() else 32
    for code in range(256)
)
"""For each ASCII character: itself in lower case, or the space that separates words."""

# Where a long text may be cut: no word, and no run of combining characters, goes across.
_CUT: Final = regex.compile(r"[\x00-/:-@\[-`{-\x7f\u4e00-\u9fff\u3001\u3002]")


def _cut(text: str, start: int) -> int:
    cut = _CUT.search(text, start)
    return cut.start() if cut else len(text)


def _fold(text: str) -> str:
    """Compatibility forms, case and diacritics removed; signs in canonical order, decomposed."""
    if text.isascii():
        return text.lower()
    # Removed first: the Greek iota subscript, a diacritic, would become a letter.
    text = _REMOVED.sub("", unicodedata.normalize("NFKD", text)).casefold()
    text = unicodedata.normalize("NFKD", text)
    return str(_LETTER.sub(lambda found: _LETTERS[found[0]], text))


class _Lengths(dict[str, int]):
    """How long each character is when it is folded.

    Folding changes each character on its own; what it moves stays inside a run of combining
    signs, and there no word begins or ends.
    """

    def __missing__(self, character: str) -> int:
        if len(self) > _REMEMBERED:
            self.clear()
        length = self[character] = len(_fold(character))
        return length


_LENGTHS: Final = _Lengths()


_BIGRAM: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\p{Yi}]")
_QUADGRAM: Final = regex.compile(rf"[{_UNSPACED}]")


def window(term: str) -> int:
    """How many characters of a run without spaces make a word, about; 0 for other words."""
    if term.isascii():
        return 0
    if _BIGRAM.match(term):
        return 2
    return 4 if _QUADGRAM.match(term) else 0


class Token(NamedTuple):
    """A word of a text and its place in it."""

    text: str
    """As the index knows it: folded and stemmed."""
    start: int
    end: int
    position: int
    """The number of the word among those that are kept; neighbours in a phrase differ by one."""


class Analyzer:
    """How the texts of a field become words. Without a language, words are only folded."""

    def __init__(self, language: str | None = None, *, stop_words: bool = True) -> None:
        if language is not None and language not in LANGUAGES:
            raise ValueError(f"{language!r} is not a language; use {', '.join(LANGUAGES)}")
        self.language = language
        self.stop_words = stop_words and language not in {None, *WITHOUT_STOP_WORDS}
        self._terms = _Terms(language, stop_words=self.stop_words)

    @property
    def version(self) -> str:
        """Equal only if the same words come out; an index of another version is made again."""
        from importlib.metadata import version  # noqa: PLC0415 - imports a mail parser

        return (
            f"{_FORMAT} {self.language or '-'} {'stop' if self.stop_words else '-'} "
            f"unicode {unicodedata.unidata_version} regex {regex.__version__} "
            f"tantivy {version('tantivy')}"
        )

    def words(self, text: str) -> list[str]:
        """The words in their order: what is indexed, and what ``tokens`` locates."""
        return self.kept(_split(text))

    def kept(self, words: list[str]) -> list[str]:
        """Folded words as the index has them."""
        if self.language is None:
            return words
        terms = self._terms
        return [term for word in words if (term := terms[word])]

    def folded(self, text: str) -> list[str]:
        """The words before they are stemmed, stop words among them."""
        return _split(text)

    def term(self, word: str) -> str:
        """What a folded word is in the index; empty if it is a stop word."""
        return self._terms[word]

    def pieces(self, text: str, ahead: int = 0) -> Iterator[Piece]:
        """The text in parts, each with so many words of what follows; no word is cut."""
        if len(text) <= FIRST_PIECE:
            yield Piece(self, 0, len(text), text)
            return
        start, size = 0, FIRST_PIECE
        while start < len(text):
            end = reach = _cut(text, start + size)
            missing = ahead
            while missing > 0 and reach < len(text):
                further = _cut(text, reach + LONGEST)
                missing -= len(self.words(text[reach:further]))
                reach = further
                if reach - end > _PIECE:
                    # Hardly a word in so much text: let it be part of this piece.
                    end, missing = reach, ahead
            yield Piece(self, start, end, text[start:reach])
            start, size = end, _PIECE

    def tokens(self, text: str) -> Iterator[Token]:
        """The words with their places, computed as far as they are asked for."""
        position = 0
        for piece in self.pieces(text):
            for word, (start, end) in zip(piece.words, piece.spans(), strict=True):
                yield Token(word, start, end, position)
                position += 1


class Piece:
    """A part of a text, analysed on its own, and some words that follow it."""

    __slots__ = ("_analyzer", "_found", "_offset", "end", "text", "words")

    def __init__(self, analyzer: Analyzer, offset: int, end: int, text: str) -> None:
        self.text = text
        self.end = end
        """Where the part ends and the words that follow begin."""
        self._offset = offset
        self._analyzer = analyzer
        self._found = _split(text)
        self.words = analyzer.kept(self._found)

    def spans(self) -> list[tuple[int, int]]:
        """Where each of the words is: start and end in the whole text."""
        spans = _spans(self.text)
        if self.words is not self._found:
            term = self._analyzer.term
            spans = [span for word, span in zip(self._found, spans, strict=True) if term(word)]
        if self._offset:
            offset = self._offset
            spans = [(start + offset, end + offset) for start, end in spans]
        return spans


def has_long_run(text: str) -> bool:
    """Whether there may be a word that is longer than any that is indexed, so that it is cut."""
    return len(text) > LONGEST and max(map(len, text.split()), default=0) > LONGEST


def ascii_words(text: str) -> bytes:
    """The words of an ASCII text in lower case, each at its place, spaces around and between."""
    return b" %b " % text.encode().translate(_ASCII)


def _word_of(folded: str) -> re.Pattern[str]:
    """What finds the words of a folded text."""
    return _ALPHABETIC_WORD if _alphabetic().fullmatch(folded) else _WORD  # type: ignore[return-value]


def _split(text: str) -> list[str]:
    """The folded words of a text."""
    if not text.isascii():
        text = _fold(text)
        if not text.isascii():
            return _word_of(text).findall(text)
    words = text.encode().translate(_ASCII).decode().split()
    if len(text) > LONGEST and max(map(len, words), default=0) > LONGEST:
        return _WORD.findall(text.lower())
    return words


def _spans(text: str) -> list[tuple[int, int]]:
    """Where each of these words is in the text."""
    if text.isascii():
        return [found.span() for found in _ASCII_WORD.finditer(text)]
    origin = _origins(text)
    folded = _fold(text)
    spans = [found.span() for found in _word_of(folded).finditer(folded)]
    if origin is None:
        return spans
    origin.append(len(text))
    # What was removed after the last letter (its diacritics) belongs to the word.
    return [(origin[start], max(origin[end - 1] + 1, origin[end])) for start, end in spans]


class _Terms(dict[str, str]):
    """What a folded word is in the index; empty if it is a stop word."""

    def __init__(self, language: str | None, *, stop_words: bool) -> None:
        super().__init__()
        self._analyzer: tantivy.TextAnalyzer | None = None
        if language is not None:
            builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw())
            if stop_words:
                builder = builder.filter(tantivy.Filter.stopword(language))
                if language == "english":
                    builder = builder.filter(tantivy.Filter.custom_stopword(_ENGLISH.split()))
            self._analyzer = builder.filter(tantivy.Filter.stemmer(language)).build()

    def __missing__(self, word: str) -> str:
        if self._analyzer is None:
            return word
        if len(self) > _REMEMBERED:
            self.clear()
        term = self[word] = "".join(self._analyzer.analyze(word))
        return term


def _origins(text: str) -> list[int] | None:
    """For each character of the folded text, where it comes from; None if nothing moved."""
    lengths = _LENGTHS
    if all(lengths[character] == 1 for character in set(text)):
        return None
    return [place for place, character in enumerate(text) for _ in range(lengths[character])]
