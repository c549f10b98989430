"""The query language: any text becomes a ``TextQuery``, and nothing is an error.

::

    boundary layer         texts with any of the words; those with more and rarer ones first
    "boundary layer"       this phrase, required
    REQ-12                 what is joined by punctuation is a phrase
    hydr*                  words that begin like this
    turbulense~            words that differ in one letter; ~2 in two
    title:flow             only in this field
    -wing                  not in texts of the record
    "heat flux" OR drag    either of them

Everything else (brackets, ``AND``, a colon after what is no field) is plain text. Work is bounded:
a query has at most ``MOST_CLAUSES`` clauses, and says in ``notices`` what was left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec
import regex

from trails.views.text.analysis import Analyzer, window

MOST_CLAUSES: Final = 64
MOST_CHARACTERS: Final = 4096
LONGEST_PHRASE: Final = 32
"""Words; what is behind them in a longer phrase is not compared."""
MOST_FUZZY: Final = 8
"""Words with ~; the index compares each of them with all its words."""
SHORTEST_FUZZY: Final = 3
"""With fewer letters, almost every short word would be within the distance."""

_CLAUSE: Final = regex.compile(
    r"""(?P<excluded>-(?=["\w]))?
        (?:(?P<field>[\p{L}_][\p{L}\p{N}_]*):(?=["\w]))?
        (?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"\u2013\u2014\u2026\u3000-\u301f\uff01-\uff0f]+))""",
    regex.VERBOSE,
)
_FUZZY: Final = regex.compile(r"(?P<word>.*\w)~(?P<distance>[12]?)")
_IDENTIFIER: Final = regex.compile(r"\p{N}|\w[_.:@#/\\=&%+$]+\w")
"""What makes of joined words a name: ``REQ-12``, ``foo_bar``, ``a.b``; not ``boundary-layer``."""


class Leaf(msgspec.Struct, frozen=True, cache_hash=True):
    """What a text is compared with: words that follow each other."""

    terms: tuple[str, ...]
    """As the analyzer of the text gives them."""
    prefix: bool = False
    """Whether the last word may go on."""
    distance: int = 0
    """In how many letters the word, which is then the only one, may differ."""
    bonus: bool = False
    """Whether its parts are leaves too, so that the whole only counts for their order."""

    @property
    def is_word(self) -> bool:
        """Whether it is one word, as it is."""
        return len(self.terms) == 1 and not self.prefix and not self.distance


class Clause(msgspec.Struct, frozen=True, cache_hash=True):
    """One part of a query, as it was written."""

    text: str
    field: str | None = None
    quoted: bool = False
    prefix: bool = False
    distance: int = 0
    excluded: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is text without any operator."""
        return self.field is None and not (
            self.quoted or self.prefix or self.distance or self.excluded
        )

    def leaves(self, analyzer: Analyzer) -> list[Leaf]:
        """What it asks of a text that has this analyzer; a text has it if it has one of them."""
        if self.prefix:
            return _prefix(analyzer, self.text)
        terms = tuple(analyzer.words(self.text)[:LONGEST_PHRASE])
        if not terms:
            return []
        if self.distance and len(terms) == 1 and len(terms[0]) >= SHORTEST_FUZZY:
            return [Leaf(terms), Leaf(terms, distance=self.distance)]
        if self.quoted or len(terms) == 1:
            return [Leaf(terms)]
        if any(map(window, terms)):
            return _windows(terms)
        if _IDENTIFIER.search(self.text):
            return [Leaf(terms)]
        return [Leaf(terms, bonus=True), *(Leaf((term,)) for term in dict.fromkeys(terms))]


class TextQuery(msgspec.Struct, frozen=True, cache_hash=True):
    """What a text asks for."""

    groups: tuple[tuple[Clause, ...], ...]
    """Clauses; those that are joined by OR are one group."""
    excluded: tuple[Clause, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def natural(self) -> bool:
        """Whether it is words alone, as in a question, without any operator."""
        return not self.excluded and all(
            len(group) == 1 and group[0].is_plain for group in self.groups
        )

    @property
    def fields(self) -> frozenset[str]:
        """The fields that it names."""
        clauses = (*self.excluded, *(clause for group in self.groups for clause in group))
        return frozenset(clause.field for clause in clauses if clause.field is not None)


def required(group: tuple[Clause, ...]) -> bool:
    """Whether a record without this group is no hit."""
    return any(clause.quoted for clause in group)


def parse(text: str, fields: Collection[str] = ()) -> TextQuery:
    """Read a query; ``fields`` are the names that may stand before a colon."""
    notices: list[str] = []
    if len(text) > MOST_CHARACTERS:
        text = text[:MOST_CHARACTERS]
        notices.append(f"only the first {MOST_CHARACTERS} characters of the query were used")
    groups: list[tuple[Clause, ...]] = []
    excluded: list[Clause] = []
    joined, count, fuzzy = False, 0, 0
    for clause in _clauses(text, fields):
        if clause is None:
            joined = bool(groups)
            continue
        count += 1
        if count > MOST_CLAUSES:
            notices.append(f"only the first {MOST_CLAUSES} parts of the query were used")
            break
        if clause.distance:
            fuzzy += 1
            if fuzzy > MOST_FUZZY:
                clause = msgspec.structs.replace(clause, distance=0)  # noqa: PLW2901
        if clause.excluded:
            excluded.append(clause)
        elif joined:
            groups[-1] = (*groups[-1], clause)
        else:
            groups.append((clause,))
        joined = False
    if fuzzy > MOST_FUZZY:
        notices.append(f"only the first {MOST_FUZZY} words with ~ were searched for as such")
    if excluded and not groups:
        notices.append("the query only excludes; add a word that is searched for")
    return TextQuery(tuple(groups), tuple(excluded), tuple(notices))


def _clauses(text: str, fields: Collection[str]) -> Iterator[Clause | None]:
    """The clauses in their order; None for the word OR."""
    if text.isascii() and text.replace(" ", "").isalnum():  # there is no other operator in it
        for word in text.split():
            yield None if word == "OR" else Clause(word)
        return
    position = 0
    while found := _CLAUSE.search(text, position):
        position = max(found.end(), found.start() + 1)
        field, phrase, word = found["field"], found["phrase"], found["word"]
        if field is not None and field not in fields:
            # Not a field: the colon is punctuation inside a word.
            field, phrase, word = None, None, text[found.start("field") : found.end()]
            if '"' in word:
                word = word.partition('"')[0]
                position = found.start("field") + len(word)
        excluded = found["excluded"] is not None
        if phrase is not None:
            yield Clause(phrase, field, quoted=True, excluded=excluded)
        elif word == "OR" and not excluded and field is None:
            yield None
        else:
            yield _word(word, field, excluded=excluded)


def _word(word: str, field: str | None, *, excluded: bool) -> Clause:
    if word.endswith("*") and word.strip("*"):
        return Clause(word.rstrip("*"), field, prefix=True, excluded=excluded)
    if fuzzy := _FUZZY.fullmatch(word):
        distance = int(fuzzy["distance"] or 1)
        return Clause(fuzzy["word"], field, distance=distance, excluded=excluded)
    return Clause(word, field, excluded=excluded)


def _prefix(analyzer: Analyzer, text: str) -> list[Leaf]:
    *head, last = analyzer.folded(text)[-LONGEST_PHRASE:] or [""]
    # A stem may end otherwise than the word ("boundari"): compare what they have in common.
    stem = analyzer.term(last) or last
    while not stem.startswith(last):
        last = last[:-1]
    terms = tuple(term for word in head if (term := analyzer.term(word)))
    return [Leaf((*terms, last), prefix=True)] if last else []


def _windows(terms: tuple[str, ...]) -> list[Leaf]:
    """A run without spaces: the whole, and if it is long, its parts that may be words."""
    if len(terms) <= 4:
        return [Leaf(terms)]
    leaves = {Leaf(terms, bonus=True): None}
    for start, term in enumerate(terms):
        size = window(term) or 1
        part = terms[start : start + size]
        if len(part) == size and all(map(window, part)) == bool(window(term)):
            leaves[Leaf(part)] = None
    return list(leaves)
