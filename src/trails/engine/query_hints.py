"""Hints for SPARQL texts: names and values that match nothing, and what a refusal means.

A misspelled class is not an error in SPARQL, it just matches nothing; and the parser
reports what it expected in terms of its grammar. Both leave a reader with nothing to correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from trails.engine.query_terms import Reading, Vocabulary, pieces_of
from trails.engine.value_hints import impossible_values
from trails.model.iris import COMMON_PREFIXES
from trails.model.sparql import Token, significant

_LETTERS: Final = re.compile(r",? ?\['?.+?'?\](?=,|$)")
"""Letters that could stand at a place, as the parser lists them."""
_MOST: Final = 5
"""Hints in one notice."""


def find_mistakes(tokens: list[Token], vocabulary: Vocabulary) -> str | None:
    """Names and values in a text that match nothing in the graph; None without any."""
    pieces = pieces_of(tokens)
    reading = Reading(pieces, vocabulary.names)
    hints = [
        *(hint for _, hint in vocabulary.unknown(reading.named)),
        *vocabulary.foreign(reading.named),
        *impossible_values(pieces, reading.bound, vocabulary.descriptors, reading.prefixes),
    ]
    return "; ".join(list(dict.fromkeys(hints))[:_MOST]) or None


def explain_refusal(told: str, tokens: list[Token], vocabulary: Vocabulary) -> str:
    """What the parser said, for people and agents: with what to write instead, where that shows."""
    hints = [*_undeclared(tokens), *_bare(tokens, vocabulary)][:_MOST]
    plain = told.replace("['0'..='9']", "digits").replace("Prefix not found", "a declared prefix")
    plain = _LETTERS.sub("", plain).replace("one of, ", "one of ")
    return "; ".join((plain, *hints))


def _undeclared(tokens: list[Token]) -> Iterator[str]:
    """Prefixes that the text uses and does not declare."""
    read = significant(tokens)
    declared = {"", *COMMON_PREFIXES}
    for before, each in pairwise(read):
        if before.kind == "word" and before.text.upper() == "PREFIX" and each.kind == "name":
            declared.add(each.text.partition(":")[0])
    used = dict.fromkeys(each.text.partition(":")[0] for each in read if each.kind == "name")
    for prefix in used:
        if prefix not in declared:
            yield f"the prefix {prefix}: is not declared: begin with PREFIX {prefix}: <…>"


def _bare(tokens: list[Token], vocabulary: Vocabulary) -> Iterator[str]:
    """Classes and fields that are written without a colon."""
    names = {*vocabulary.classes.values(), *vocabulary.fields.values()}
    words = dict.fromkeys(each.text for each in tokens if each.kind == "word")
    for word in words:
        if word in names:
            yield f"{word} is written :{word}"
