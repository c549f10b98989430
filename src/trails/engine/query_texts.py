"""What the text of a stored query says by itself: its form, its parameters, its columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from trails.engine.query_terms import Piece
from trails.model.sparql import Token
from trails.model.types import PredicateDescriptor
from trails.registry.query_headers import MARK, Entry, Problem

_READS: Final = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})
_CHANGES: Final = frozenset({"INSERT", "DELETE"})
_MANAGES: Final = frozenset({"LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY"})


_COMMENT: Final = re.compile(r"#[^\n]*")


def late_header(tokens: list[Token]) -> Iterator[Problem]:
    """Lines of a header that are not where a header is."""
    line = 1
    for token in tokens:
        for comment in _COMMENT.finditer(token.text) if token.kind == "space" else ():
            if comment.group().startswith(MARK):
                yield Problem(
                    "header lines stand together at the top of the file; move it up",
                    line + token.text.count("\n", 0, comment.start()),
                )
        line += token.text.count("\n")


def read_form(pieces: list[Piece], first: int, problems: list[Problem]) -> bool:
    """Whether the text changes data; what is neither a query nor a change is a problem."""
    depth = 0
    found: dict[str, int] = {}
    for piece in pieces:
        depth += (piece.kind == "open") - (piece.kind == "close")
        word = piece.word
        if word == "SERVICE":
            problems.append(
                Problem("SERVICE reaches other servers and is not available", piece.line)
            )
        elif not depth and word in _READS | _CHANGES | _MANAGES:
            found.setdefault(word, piece.line)
    problems += [
        Problem(f"{word} works on whole graphs and is not available; use INSERT and DELETE", line)
        for word, line in found.items()
        if word in _MANAGES
    ]
    reads, changes = found.keys() & _READS, found.keys() & _CHANGES
    if reads and changes:
        told = f"{min(reads)} and {min(changes)} are mixed; a query reads or changes, make two"
        problems.append(Problem(told, max(found.values())))
    elif len(reads) > 1:
        told = f"it has {' and '.join(sorted(reads))}; one file is one query"
        problems.append(Problem(told, max(found.values())))
    elif not found:
        told = "there is no query: it needs SELECT, ASK, CONSTRUCT or DESCRIBE, or INSERT or DELETE"
        problems.append(Problem(told, first))
    return bool(changes)


def unmatched_params(
    pieces: list[Piece], params: tuple[PredicateDescriptor, ...], header: Mapping[str, Entry]
) -> Iterator[Problem]:
    """Parameters that only the header or only the text has."""
    declared = {param.name for param in params}
    used: set[str] = set()
    for piece in pieces:
        if piece.kind == "variable" and piece.text.startswith("$"):
            name = piece.text[1:]
            if name not in declared and name not in used:
                told = (
                    f"${name} is not declared; add '{name}: <type>' to params, "
                    f"or write ?{name} if it is a variable"
                )
                yield Problem(told, piece.line)
            used.add(name)
    entries = header["params"].mapping if "params" in header else None
    for name in sorted(declared - used):
        line = entries[name].line if entries else 1
        told = f"is not in the query; write it there as ${name}, or remove it"
        yield Problem(told, line, f"params.{name}")


def uncounted_params(
    pieces: list[Piece], params: tuple[PredicateDescriptor, ...]
) -> Iterator[Problem]:
    """Parameters after LIMIT and OFFSET that could become something else than a count."""
    by_name = {param.name: param for param in params}
    before = ""
    for piece in pieces:
        param = by_name.get(piece.text[1:]) if piece.kind == "variable" else None
        if param is not None and before in {"LIMIT", "OFFSET"}:
            low = param.min_value
            if param.type.kind != "Int" or not isinstance(low, int) or low < 0:
                told = f"stands after {before}; make it '{{ type: Int, min_value: 0 }}'"
                yield Problem(told, piece.line, f"params.{param.name}")
        before = piece.word


def columns(pieces: list[Piece]) -> tuple[str, ...]:
    """The variables of the outermost SELECT; of CONSTRUCT and DESCRIBE, the parts of a triple."""
    depth = 0
    selecting = False
    names: list[str] = []
    last = ""
    for piece in pieces:
        if not depth and piece.word in {"CONSTRUCT", "DESCRIBE"} and not selecting:
            return ("subject", "predicate", "object")
        if not depth and piece.word == "SELECT":
            selecting = True
        elif selecting:
            if piece.text == "{" or (not depth and piece.word in {"WHERE", "FROM"}):
                break
            if piece.kind == "variable":
                last = piece.text[1:]
                if not depth:
                    names.append(last)
            elif piece.text == ")" and depth == 1:
                names.append(last)  # (expression AS ?name)
            elif piece.text == "*" and not depth:
                return ()
        depth += (piece.kind == "open") - (piece.kind == "close")
    return tuple(names)
