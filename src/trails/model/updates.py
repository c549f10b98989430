"""SPARQL Update text: which operations it has, in order.

A graph's data is its default graph; there are no named graphs to write to, to read from
or to manage. So INSERT DATA, DELETE DATA, DELETE WHERE and DELETE/INSERT … WHERE are
allowed, and what names or manages graphs is refused with what to use instead.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from trails.errors import QueryError
from trails.model.constraints import shorten
from trails.model.sparql import Token, check, could_be, significant, skip_prologue, text_of

Form = Literal["INSERT DATA", "DELETE DATA", "DELETE WHERE", "MODIFY"]


class Operation(msgspec.Struct, frozen=True):
    """One operation; each part is the tokens between its braces, or None if it has none.

    ``prologue`` is every PREFIX and BASE from the beginning of the text to here.
    """

    form: Form
    prologue: str
    delete: tuple[Token, ...] | None = None
    insert: tuple[Token, ...] | None = None
    where: tuple[Token, ...] | None = None


_INSTEAD: Final = {
    "LOAD": "use the load operation",
    "CLEAR": "delete the nodes with DELETE WHERE",
    "DROP": "delete the nodes with DELETE WHERE",
    "CREATE": "make a branch to keep data apart",
    "COPY": "make a branch to have a copy",
    "MOVE": "write the data where it shall be with DELETE and INSERT",
    "ADD": "write the data with INSERT",
    "WITH": "leave it out: the data is the default graph",
    "USING": "leave it out: the data is the default graph",
    "GRAPH": "leave it out: the data is the default graph",
}
_NO_GRAPHS: Final = "graphs here have no named graphs"


def update_form(tokens: list[Token]) -> tuple[Operation, ...]:
    """The operations of an update within the limits; anything else is refused."""
    check(tokens)
    reader = _Reader(tokens)
    operations = []
    while (operation := reader.operation()) is not None:
        operations.append(operation)
    if not operations:
        raise QueryError(
            "there is nothing to write here; write INSERT DATA, DELETE DATA, DELETE WHERE or "
            "DELETE … INSERT … WHERE"
        )
    return tuple(operations)


class _Reader:
    """Reads operations one after another."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._read = significant(tokens)
        self._places = [at for at, token in enumerate(tokens) if token.kind != "space"]
        self._at = 0
        self._prologue = ""

    def operation(self) -> Operation | None:
        """The next operation, or None at the end."""
        begin = self._at
        self._at = skip_prologue(self._read, begin)
        if begin < self._at:
            self._prologue += text_of(self._tokens[self._places[begin] : self._place()]) + "\n"
        if self._at == len(self._read):
            return None
        found = self._operation()
        if self._at < len(self._read):
            if self._read[self._at].text != ";":
                raise self._unexpected("';' or the end")
            self._at += 1
        return found

    def _operation(self) -> Operation:
        first = self._word()
        if first in _INSTEAD:
            raise _refuse(first)
        if first not in {"INSERT", "DELETE"}:
            raise self._unexpected("INSERT or DELETE")
        self._at += 1
        second = self._word()
        if second == "DATA":
            self._at += 1
            block = self._block()
            if first == "INSERT":
                return Operation("INSERT DATA", self._prologue, insert=block)
            return Operation("DELETE DATA", self._prologue, delete=block)
        if first == "DELETE" and second == "WHERE":
            self._at += 1
            block = self._block()
            return Operation("DELETE WHERE", self._prologue, delete=block, where=block)
        parts = {first: self._block()}
        if first == "DELETE" and self._word() == "INSERT":
            self._at += 1
            parts["INSERT"] = self._block()
        if self._word() in _INSTEAD:
            raise _refuse(self._word())
        if self._word() != "WHERE":
            raise self._unexpected("WHERE")
        self._at += 1
        return Operation(
            "MODIFY", self._prologue, parts.get("DELETE"), parts.get("INSERT"), self._block()
        )

    def _place(self) -> int:
        """Where in the text the next token is."""
        return self._places[self._at] if self._at < len(self._read) else len(self._tokens)

    def _word(self) -> str:
        if self._at < len(self._read) and self._read[self._at].kind == "word":
            return self._read[self._at].text.upper()
        return ""

    def _block(self) -> tuple[Token, ...]:
        """The tokens between braces."""
        if self._at >= len(self._read) or self._read[self._at].text != "{":
            raise self._unexpected("'{'")
        begin, depth = self._place() + 1, 0
        for at in range(self._at, len(self._read)):
            token = self._read[at]
            depth += (token.text == "{") - (token.text == "}")
            following = self._read[at + 1].text if at + 1 < len(self._read) else ""
            if could_be("GRAPH", token, following):
                raise _refuse("GRAPH")
            if not depth:
                self._at = at + 1
                return tuple(self._tokens[begin : self._places[at]])
        raise QueryError("a '{' has no '}'; check the brackets")

    def _unexpected(self, wanted: str) -> QueryError:
        near = text_of(Token("", each.text + " ") for each in self._read[self._at : self._at + 3])
        found = shorten(near.strip()) if near else "the end of the text"
        return QueryError(
            f"the update can't be read: {wanted} is expected, not {found}; it may have "
            "INSERT DATA, DELETE DATA, DELETE WHERE and DELETE … INSERT … WHERE, with ';' between"
        )


def _refuse(word: str) -> QueryError:
    why = "" if word == "LOAD" else f", because {_NO_GRAPHS}"
    return QueryError(f"{word} is not available{why}; {_INSTEAD[word]}")
