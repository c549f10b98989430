"""Where SPARQL computes with numbers that it can't hold, or with values that are missing.

The engine's integers have 64 bits: a larger one is an error in an expression, and an error
there drops the row or leaves the result empty. The same happens to an aggregate with one value
missing. Both answers look complete, so they get a notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from trails.engine.query_terms import Piece, Reading, Vocabulary, pieces_of
from trails.model.answers import Answer
from trails.model.sparql import tokenize

_AGGREGATES: Final = frozenset({"SUM", "AVG", "MIN", "MAX"})
_AGGREGATED = re.compile(r"\b(?:SUM|AVG|MIN|MAX)\b", re.IGNORECASE)
_LARGE = re.compile(r"\d{19}")
_WITHOUT_ARITHMETIC: Final = frozenset({"COUNT", "SAMPLE", "BOUND", "STR", "DATATYPE", "SAMETERM"})
"""Functions that take an integer of any size, because they do not compute with it."""
_REPLACING: Final = frozenset({"COALESCE", "IF", "BOUND"})
"""Functions that can give a missing value another one."""
_MOST: Final = 2**63 - 1


def add_number_notices(answer: Answer, text: str, vocabulary: Vocabulary) -> Answer:
    """The answer, with a notice where its numbers may not be what they seem."""
    big = {
        iri: fields[0].name
        for iri, fields in vocabulary.descriptors.items()
        if any(field.type.scalar.kind == "BigInt" for field in fields)
    }
    if not big and _AGGREGATED.search(text) is None and _LARGE.search(text) is None:
        return answer
    pieces = pieces_of(tokenize(text))
    notices = [*_missing_values(pieces, answer), *_large_constants(pieces)]
    if big:
        notices += _large_integers(pieces, Reading(pieces, vocabulary.names), big)
    if not notices:
        return answer
    spelled = "; ".join((*filter(None, [answer.notice]), *dict.fromkeys(notices)))
    return msgspec.structs.replace(answer, notice=spelled)


def _large_integers(pieces: list[Piece], reading: Reading, big: dict[str, str]) -> Iterator[str]:
    """One notice for each BigInt field whose values an expression, or an order, works with."""
    computed = {pieces[at].text[1:] for at in _computed(pieces) if pieces[at].kind == "variable"}
    for each in reading.reached:
        variable = pieces[each.at]
        if variable.kind != "variable" or variable.text[1:] not in computed:
            continue
        for iri, name in big.items():
            if each.any_verb or iri in each.verbs:
                yield (
                    f":{name} holds integers of any size, and SPARQL computes with 64 bits: "
                    "larger ones are left out of comparisons and sums"
                )


def _large_constants(pieces: list[Piece]) -> Iterator[str]:
    """One notice for each constant that an expression can't work with."""
    for at in _computed(pieces):
        digits = pieces[at].text.strip("\"'+-")
        typed = at + 2 < len(pieces) and pieces[at + 1].text == "^^"
        is_integer = pieces[at].kind != "string" or (
            typed and pieces[at + 2].text.endswith(("integer", "integer>"))
        )
        if is_integer and digits.isascii() and digits.isdigit() and int(digits[:40]) > _MOST:
            yield (
                f"{digits[:40]} has more than 64 bits, with which SPARQL computes: comparisons and "
                "sums with it fail, and their rows are left out"
            )


def _computed(pieces: list[Piece]) -> Iterator[int]:
    """Places in parentheses, whose values are computed with, or in an ORDER BY."""
    functions: list[str] = []
    ordering = False
    for at, piece in enumerate(pieces):
        if piece.text == "(":
            functions.append(pieces[at - 1].word if at else "")
        elif piece.text == ")":
            del functions[-1:]
        elif piece.text in {"{", "}"}:
            ordering = False
        elif piece.kind == "variable" or not piece.word:
            if ordering or (functions and functions[-1] not in _WITHOUT_ARITHMETIC):
                yield at
        else:
            ordering = piece.word in {"BY", "ASC", "DESC"}


def _missing_values(pieces: list[Piece], answer: Answer) -> Iterator[str]:
    """One notice for each aggregate that fails, or whose failure can't be seen in the answer."""
    optional = _optional(pieces)
    for at, piece in enumerate(pieces):
        if piece.word not in _AGGREGATES:
            continue
        name = _named_as(pieces, at)
        if name in answer.variables:
            if any(row.get(name, "") is None for row in answer.rows):
                yield (
                    f"?{name} has no value in some rows, because {piece.word} fails where a value "
                    "is missing or the result exceeds 64 bits: give missing ones a number with "
                    "COALESCE(?value, 0), or leave them out"
                )
                continue
            if _is_alone(pieces, at):
                continue
        for inner in _arguments(pieces, at):
            if inner.kind == "variable" and inner.text in optional:
                yield (
                    f"{piece.word} fails where {inner.text} is missing, which may not show in this "
                    f"answer: write {piece.word}(COALESCE({inner.text}, 0)), or leave those out"
                )


def _arguments(pieces: list[Piece], at: int) -> list[Piece]:
    """What is between the parentheses of an aggregate; nothing if that replaces missing values."""
    end = _closing(pieces, at + 1)
    found = pieces[at + 2 : end]
    return [] if any(each.word in _REPLACING for each in found) else found


def _is_alone(pieces: list[Piece], at: int) -> bool:
    """Whether an aggregate is itself a result of the query: ``SELECT (SUM(?x) AS ?total)``."""
    after = pieces[_closing(pieces, at + 1) + 1 :][:1]
    inside = any(each.text == "{" for each in pieces[:at])
    return not inside and pieces[at - 1].text == "(" and any(each.word == "AS" for each in after)


def _closing(pieces: list[Piece], at: int) -> int:
    """Where the parenthesis that opens at a place is closed."""
    depth = 0
    for place in range(at, len(pieces)):
        depth += (pieces[place].text == "(") - (pieces[place].text == ")")
        if depth <= 0:
            return place
    return len(pieces)


def _optional(pieces: list[Piece]) -> set[str]:
    """Variables that only optional patterns give a value."""
    given: set[str] = set()
    optional: set[str] = set()
    groups, depth = [False], 0
    for at, piece in enumerate(pieces):
        if piece.text == "{":
            groups.append(groups[-1] or (at > 0 and pieces[at - 1].word == "OPTIONAL"))
        elif piece.text == "}":
            groups = groups[:-1] or [False]
        elif piece.text in {"(", ")"}:
            depth += 1 if piece.text == "(" else -1
        elif piece.kind == "variable" and not depth and len(groups) > 1:
            (optional if groups[-1] else given).add(piece.text)
    return optional - given


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
