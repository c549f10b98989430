"""Notices for SPARQL texts that are legal and probably wrong, and explanations of parser errors.

- Names and values that match nothing: a misspelled class is not an error in SPARQL, a date never
  equals a plain string, and a field with three allowed values never holds a fourth.
- Numbers: the engine's integers have 64 bits. A larger one, or a missing value in an aggregate, is
  an error in the expression, which silently drops the row or empties the result.

Notices are made from the text and the schema, never from data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

import msgspec

from trails.model.iris import COMMON_PREFIXES, XSD
from trails.model.kinds import KindError
from trails.model.results import QueryAnswer
from trails.model.sparql.terms import Bound, Piece, TermScan, Vocabulary, pieces_of
from trails.model.sparql.tokens import Token, significant, tokenize
from trails.model.types import PredicateDescriptor

_COMPARES: Final = frozenset({"=", "!=", "<", ">", "<=", ">="})
_NUMBERS: Final = frozenset(
    XSD + name
    for name in ("integer", "decimal", "double", "float", "int", "long", "short", "byte",
                 "nonNegativeInteger", "positiveInteger", "unsignedInt", "unsignedLong")
)  # fmt: skip
_LANGUAGE: Final = COMMON_PREFIXES["rdf"] + "langString"
_example: Final = re.compile(r"like '([^']+)'").search
_SHOWN: Final = 8
_OTHER_SPELLINGS: Final = {
    XSD + "dateTime": re.compile(r"T.*[+-](?!00:00$)").search,
    XSD + "double": re.compile(r"-[0.]+(?:[eE].*)?$").match,
}
"""Datatypes with several literals for one value (time offsets, -0.0)."""
Fields = Mapping[str, list[PredicateDescriptor]]
"""Fields by IRI; several types can share an IRI."""


class Value(msgspec.Struct, frozen=True):
    """A literal or an IRI as written; ``datatype`` is empty for an IRI."""

    lexical: str
    datatype: str
    written: str


def impossible_values(
    pieces: list[Piece], bound: Iterable[Bound], fields: Fields, prefixes: Mapping[str, str]
) -> Iterator[str]:
    """One notice for each value that its field can't hold."""
    variables: dict[str, set[str]] = {}
    for each in bound:
        piece = pieces[each.at]
        if piece.kind == "variable":
            variables.setdefault(piece.text[1:], set()).add(each.verb)
        elif not _has_sign(pieces, each.at) and (value := read_value(pieces, each.at, prefixes)):
            yield from _explain(fields.get(each.verb, []), value, exact=True)
    for name, value in _tabled(pieces, prefixes):
        for verb in sorted(variables.get(name, set())):
            yield from _explain(fields.get(verb, []), value, exact=True)
    assigned = _assigned(pieces)
    for name, value in _compared(pieces, prefixes):
        verbs = variables.get(name, set())
        if name not in assigned and verbs and all(verb in fields for verb in verbs):
            wanted = [field for verb in sorted(verbs) for field in fields[verb]]
            yield from _explain(wanted, value, exact=False)


def _tabled(pieces: list[Piece], prefixes: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    """Each variable with a value from its table: ``VALUES ?x { 1 2 }``."""
    for at in range(len(pieces) - 2):
        if pieces[at].word != "VALUES" or pieces[at + 1].kind != "variable":
            continue
        for place in range(at + 3, len(pieces)):
            if pieces[place].text == "}":
                break
            if pieces[place - 1].text == "^^" or _has_sign(pieces, place):
                continue
            if value := read_value(pieces, place, prefixes):
                yield pieces[at + 1].text[1:], value


def _has_sign(pieces: list[Piece], at: int) -> bool:
    """Whether a number was read with the sign before it."""
    return pieces[at].kind == "number" and pieces[at - 1].text in {"+", "-"}


def read_value(pieces: list[Piece], at: int, prefixes: Mapping[str, str]) -> Value | None:
    """The literal or IRI at a position; None for anything else."""
    piece = pieces[at]
    if piece.text in {"+", "-"} and at + 1 < len(pieces) and pieces[at + 1].kind == "number":
        piece = msgspec.structs.replace(pieces[at + 1], text=piece.text + pieces[at + 1].text)
    if piece.kind == "iri":
        return Value(piece.text[1:-1], "", piece.text)
    if piece.kind == "number":
        kind = "double" if "e" in piece.text.lower() else "decimal" if "." in piece.text else ""
        return Value(piece.text, XSD + (kind or "integer"), piece.text)
    if piece.word in {"TRUE", "FALSE"}:
        return Value(piece.text.lower(), XSD + "boolean", piece.text)
    if piece.kind != "string" or "\\" in piece.text:
        return None
    lexical = piece.text[3:-3] if piece.text[:3] in {'"""', "'''"} else piece.text[1:-1]
    after = pieces[at + 1] if at + 1 < len(pieces) else None
    if after is not None and after.kind == "tag":
        return Value(lexical, _LANGUAGE, piece.text + after.text)
    if after is None or after.text != "^^" or at + 2 >= len(pieces):
        return Value(lexical, XSD + "string", piece.text)
    datatype = _iri_of(pieces[at + 2], prefixes)
    return Value(lexical, datatype, f"{piece.text}^^{pieces[at + 2].text}") if datatype else None


def _iri_of(piece: Piece, prefixes: Mapping[str, str]) -> str:
    if piece.kind == "iri":
        return piece.text[1:-1]
    prefix, colon, local = piece.text.partition(":")
    return prefixes[prefix] + local if colon and prefix in prefixes else ""


def _assigned(pieces: list[Piece]) -> set[str]:
    """Variables with a value from BIND, SELECT or VALUES, not only from a field."""
    found, table = set(), False
    for before, piece in pairwise(pieces):
        table = (table or before.word == "VALUES") and piece.text != "{"
        if piece.kind == "variable" and (table or before.word == "AS"):
            found.add(piece.text[1:])
    return found


def _compared(pieces: list[Piece], prefixes: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    """Each variable that is compared with a value: ``?x < 1``, ``1 > ?x``, ``?x IN (1, 2)``."""
    for at in range(len(pieces) - 2):
        first, middle, last = pieces[at : at + 3]
        if middle.text in _COMPARES and first.kind == "variable":
            if value := read_value(pieces, at + 2, prefixes):
                yield first.text[1:], value
        elif middle.text in _COMPARES and last.kind == "variable":
            if value := _ending_at(pieces, at, prefixes):
                yield last.text[1:], value
        elif first.kind == "variable" and (middle.word == "IN" or last.word == "IN"):
            for value in _listed(pieces, at + 2 + (last.word == "IN"), prefixes):
                yield first.text[1:], value


def _ending_at(pieces: list[Piece], at: int, prefixes: Mapping[str, str]) -> Value | None:
    if at >= 2 and pieces[at - 1].text == "^^":
        return read_value(pieces, at - 2, prefixes)
    return read_value(pieces, at - (pieces[at].kind == "tag"), prefixes)


def _listed(pieces: list[Piece], at: int, prefixes: Mapping[str, str]) -> Iterator[Value]:
    """The values of a list in parentheses, if it contains only values."""
    if at >= len(pieces) or pieces[at].text != "(":
        return
    for place in range(at + 1, len(pieces)):
        if pieces[place].text == ")":
            return
        if pieces[place - 1].text in {"(", ","} and (value := read_value(pieces, place, prefixes)):
            yield value


def _explain(fields: list[PredicateDescriptor], value: Value, *, exact: bool) -> Iterator[str]:
    """The notice for a value that fits none of the fields."""
    if not fields or fields[0].ordered:  # the object is a cell: there is a notice already
        return
    fitting = [field for field in fields if _fits(field, value, exact=exact)]
    if not fitting:
        yield _misfit(fields[0], value, exact=exact)
    elif all(field.one_of is not None and not _allowed(field, value) for field in fitting):
        yield _outside(fitting[0], value)
    elif exact and (legal := _stored_as(fitting[0], value)):
        datatype = _spell(value.datatype)
        yield (
            f":{fitting[0].name} never equals {value.written}, since such a value is stored as "
            f'"{legal}"; write "{legal}"^^{datatype}, or compare in a FILTER'
        )


def _stored_as(field: PredicateDescriptor, value: Value) -> str:
    """The stored form of a value that is equal to the written one but a different term."""
    row = field.type.scalar.row
    if row is None or _is_other_spelling(value.datatype, value.lexical) is None:
        return ""
    try:
        legal = row.lexical(row.coerce(row.parse(value.lexical)))
    except (KindError, ValueError, ArithmeticError):
        return ""
    return legal if _is_other_spelling(value.datatype, legal) is None else ""


def _is_other_spelling(datatype: str, lexical: str) -> re.Match[str] | None:
    """Whether the store distinguishes a literal from the equal one that fields hold."""
    return _OTHER_SPELLINGS[datatype](lexical) if datatype in _OTHER_SPELLINGS else None


def _fits(field: PredicateDescriptor, value: Value, *, exact: bool) -> bool:
    """Whether the types can match: exactly in a pattern, any number in a comparison."""
    row = field.type.scalar.row
    if row is None or not value.datatype:
        return row is None and not value.datatype
    if not exact and {row.datatype, value.datatype} <= _NUMBERS:
        return True
    return row.datatype == value.datatype


def _allowed(field: PredicateDescriptor, value: Value) -> bool:
    return value.lexical in _choices(field)


def _choices(field: PredicateDescriptor) -> list[str]:
    row = field.type.scalar.row
    spell = str if row is None else row.lexical
    return [spell(each) for each in field.one_of or ()]


def _misfit(field: PredicateDescriptor, value: Value, *, exact: bool) -> str:
    row = field.type.scalar.row
    never = "never equals" if exact else "can't be compared with"
    if row is None:
        return (
            f":{field.name} holds references to {field.target}, so it {never} "
            f"{value.written}; write an IRI such as <{field.target}/…>"
        )
    hint = f":{field.name} holds {_spell(row.datatype)}, so it {never} {value.written}"
    try:
        legal = row.lexical(row.coerce(row.parse(value.lexical)))
    except (KindError, ValueError, ArithmeticError):
        example = _example(row.expected)
        return f'{hint}; write it like "{example[1]}"^^{_spell(row.datatype)}' if example else hint
    return f'{hint}; write "{legal}"^^{_spell(row.datatype)}'


def _outside(field: PredicateDescriptor, value: Value) -> str:
    choices = _choices(field)
    near = get_close_matches(value.lexical, choices, n=1)
    if near:
        hint = f'did you mean "{near[0]}"?'
    else:
        listed = ", ".join(f'"{each}"' for each in choices[:_SHOWN])
        hint = f"its values are {listed}{', …' if len(choices) > _SHOWN else ''}"
    return f":{field.name} is never {value.written}; {hint}"


def _spell(datatype: str) -> str:
    return f"xsd:{datatype.removeprefix(XSD)}" if datatype.startswith(XSD) else f"<{datatype}>"


_LETTERS: Final = re.compile(r",? ?\['?.+?'?\](?=,|$)")
"""Lists of expected characters in the parser's messages."""
_MOST: Final = 5
"""The most hints in one notice."""


def find_mistakes(tokens: list[Token], vocabulary: Vocabulary) -> str | None:
    """Names and values in a text that match nothing in the graph; None without any."""
    pieces = pieces_of(tokens)
    reading = TermScan(pieces, vocabulary.names)
    hints = [
        *(hint for _, hint in vocabulary.unknown(reading.named)),
        *vocabulary.foreign(reading.named),
        *vocabulary.unread_lists(reading.named),
        *impossible_values(pieces, reading.bound, vocabulary.descriptors, reading.prefixes),
    ]
    return "; ".join(list(dict.fromkeys(hints))[:_MOST]) or None


def explain_refusal(error: str, tokens: list[Token], vocabulary: Vocabulary) -> str:
    """A readable parser error, with a correction if one can be derived."""
    hints = [*_undeclared(tokens), *_bare(tokens, vocabulary)][:_MOST]
    plain = error.replace("['0'..='9']", "digits").replace("Prefix not found", "a declared prefix")
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


_AGGREGATES: Final = frozenset({"SUM", "AVG", "MIN", "MAX"})
_AGGREGATED = re.compile(r"\b(?:SUM|AVG|MIN|MAX)\b", re.IGNORECASE)
_LARGE = re.compile(r"\d{19}")
_WITHOUT_ARITHMETIC: Final = frozenset({"COUNT", "SAMPLE", "BOUND", "STR", "DATATYPE", "SAMETERM"})
"""Functions that accept an integer of any size, because they do not compute with it."""
_REPLACING: Final = frozenset({"COALESCE", "IF", "BOUND"})
"""Functions that can replace a missing value."""
_MOST_INTEGER: Final = 2**63 - 1


def add_number_notices(answer: QueryAnswer, text: str, vocabulary: Vocabulary) -> QueryAnswer:
    """The answer, with notices about numbers that may be wrong."""
    big = vocabulary.big_integers
    if not big and _AGGREGATED.search(text) is None and _LARGE.search(text) is None:
        return answer
    pieces = pieces_of(tokenize(text))
    notices = [*_missing_values(pieces, answer), *_large_constants(pieces)]
    if big:
        notices += _large_integers(pieces, TermScan(pieces, vocabulary.names), big)
    if not notices:
        return answer
    spelled = "; ".join((*filter(None, [answer.notice]), *dict.fromkeys(notices)))
    return msgspec.structs.replace(answer, notice=spelled)


def _large_integers(pieces: list[Piece], reading: TermScan, big: dict[str, str]) -> Iterator[str]:
    """One notice for each BigInt field that is used in an expression or an order."""
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
    """One notice for each constant that is too large for an expression."""
    for at in _computed(pieces):
        digits = pieces[at].text.strip("\"'+-")
        typed = at + 2 < len(pieces) and pieces[at + 1].text == "^^"
        is_integer = pieces[at].kind != "string" or (
            typed and pieces[at + 2].text.endswith(("integer", "integer>"))
        )
        if (
            is_integer
            and digits.isascii()
            and digits.isdigit()
            and int(digits[:40]) > _MOST_INTEGER
        ):
            yield (
                f"{digits[:40]} has more than 64 bits, with which SPARQL computes: comparisons and "
                "sums with it fail, and their rows are left out"
            )


def _computed(pieces: list[Piece]) -> Iterator[int]:
    """Positions inside parentheses or an ORDER BY, whose values are computed with."""
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


def _missing_values(pieces: list[Piece], answer: QueryAnswer) -> Iterator[str]:
    """One notice for each aggregate that fails or may fail invisibly."""
    optional = _optional(pieces)
    for at, piece in enumerate(pieces):
        if piece.word not in _AGGREGATES:
            continue
        name = _named_as(pieces, at)
        if name in answer.columns:
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
    """The arguments of an aggregate; empty if they replace missing values."""
    end = _closing(pieces, at + 1)
    found = pieces[at + 2 : end]
    return [] if any(each.word in _REPLACING for each in found) else found


def _is_alone(pieces: list[Piece], at: int) -> bool:
    """Whether an aggregate is itself a result of the query: ``SELECT (SUM(?x) AS ?total)``."""
    after = pieces[_closing(pieces, at + 1) + 1 :][:1]
    inside = any(each.text == "{" for each in pieces[:at])
    return not inside and pieces[at - 1].text == "(" and any(each.word == "AS" for each in after)


def _closing(pieces: list[Piece], at: int) -> int:
    """The position of the matching closing parenthesis."""
    depth = 0
    for place in range(at, len(pieces)):
        depth += (pieces[place].text == "(") - (pieces[place].text == ")")
        if depth <= 0:
            return place
    return len(pieces)


def _optional(pieces: list[Piece]) -> set[str]:
    """Variables that only optional patterns bind."""
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
    """The variable of the expression around a position: ``(SUM(?x) AS ?total)``."""
    depth = 0
    for place in range(at, len(pieces) - 1):
        depth += (pieces[place].text == "(") - (pieces[place].text == ")")
        if depth < 0:
            return ""
        if pieces[place].word == "AS" and depth == 0:
            return pieces[place + 1].text[1:]
    return ""
