"""Where SPARQL computes with numbers that it can't hold, or with values that are missing.

The engine's integers have 64 bits: a larger one is an error in an expression, and an error
there drops the row or leaves the result empty. The same happens to a sum with one value
missing. Both answers look complete, so they get a notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from trails.engine.query_terms import Piece, Reading, Vocabulary, pieces_of
from trails.model.answers import Answer
from trails.model.sparql import tokenize

_SUMS = re.compile(r"\b(?:SUM|AVG)\b", re.IGNORECASE)


def add_number_notices(answer: Answer, text: str, vocabulary: Vocabulary) -> Answer:
    """The answer, with a notice where its numbers may not be what they seem."""
    big = [
        iri
        for iri, fields in vocabulary.descriptors.items()
        if any(field.type.scalar.kind == "BigInt" for field in fields)
    ]
    if not big and _SUMS.search(text) is None:
        return answer
    pieces = pieces_of(tokenize(text))
    notices = [*_missing_sums(pieces, answer)]
    if big:
        notices += _large_integers(pieces, Reading(pieces, vocabulary.names), vocabulary)
    if not notices:
        return answer
    spelled = "; ".join((*filter(None, [answer.notice]), *notices))
    return msgspec.structs.replace(answer, notice=spelled)


def _large_integers(pieces: list[Piece], reading: Reading, vocabulary: Vocabulary) -> Iterator[str]:
    """One notice for each BigInt field whose values an expression, or an order, works with."""
    computed = set(_computed(pieces))
    named: set[str] = set()
    for each in reading.bound:
        variable = pieces[each.at]
        fields = vocabulary.descriptors.get(each.verb, [])
        if (
            variable.kind == "variable"
            and variable.text[1:] in computed
            and each.verb not in named
            and any(field.type.scalar.kind == "BigInt" for field in fields)
        ):
            named.add(each.verb)
            yield (
                f":{fields[0].name} holds integers of any size, and SPARQL computes with 64 bits: "
                "larger ones are left out of comparisons and sums"
            )


def _computed(pieces: list[Piece]) -> Iterator[str]:
    """Variables in parentheses or in an ORDER BY."""
    depth, ordering = 0, False
    for piece in pieces:
        if piece.text in {"(", ")"}:
            depth += 1 if piece.text == "(" else -1
        elif piece.kind == "variable":
            if depth or ordering:
                yield piece.text[1:]
        else:
            ordering = piece.word in {"BY", "ASC", "DESC"}


def _missing_sums(pieces: list[Piece], answer: Answer) -> Iterator[str]:
    """One notice for each sum or average that has no value in some row."""
    for at, piece in enumerate(pieces):
        if piece.word not in {"SUM", "AVG"}:
            continue
        name = _named_as(pieces, at)
        if name and any(row.get(name, "") is None for row in answer.rows):
            yield (
                f"?{name} has no value in some rows, because {piece.word} fails where a value is "
                "missing: give those a number with COALESCE(?value, 0), or leave them out"
            )


def _named_as(pieces: list[Piece], at: int) -> str:
    """The variable that the expression around a place gets: ``(SUM(?x) AS ?total)``."""
    depth = 0
    for place in range(at, len(pieces) - 1):
        depth += (pieces[place].text == "(") - (pieces[place].text == ")")
        if depth < 0:
            return ""
        if pieces[place].word == "AS" and depth == 0:
            return pieces[place + 1].text[1:]
    return ""
