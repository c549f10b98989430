"""Tokens of Omnigraph's two languages, and the reader that parsers take them from."""

from __future__ import annotations

import json
import re
from typing import Final, Literal, NoReturn

import msgspec

from trails.importers.result import check_size, refuse

TokenKind = Literal["word", "variable", "string", "number", "sign", "end"]
_TOKEN: Final = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<variable>\$[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>-?[0-9]+\.[0-9]+|-?[0-9]+)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>->|\.\.|>=|<=|!=|[{}()\[\]:,?@.<>=*|;-])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
DEEPEST: Final = 64
"""How far blocks and expressions may be nested."""


class LanguageToken(msgspec.Struct, frozen=True):
    """A piece of text and the line that it is in."""

    kind: TokenKind
    text: str
    line: int


class TokenReader:
    """Reads the tokens of a text one after the other."""

    def __init__(self, text: str, file: str) -> None:
        check_size(text)
        self._file = file
        self._tokens = list(self._split(text))
        self._at = 0
        self._depth = 0

    def _split(self, text: str) -> list[LanguageToken]:
        found, at, line = [], 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                refuse(f"{self._file}:{line}: {text[at : at + 20]!r} can't be read here")
            kind, piece = match.lastgroup, match.group()
            if kind != "space":
                found.append(LanguageToken(kind, piece, line))  # type: ignore[arg-type]
            line += piece.count("\n")
            at = match.end()
        found.append(LanguageToken("end", "", line))
        return found

    @property
    def position(self) -> int:
        """How many tokens were read; setting it goes back to there."""
        return self._at

    @position.setter
    def position(self, at: int) -> None:
        self._at, self._depth = at, 0

    @property
    def now(self) -> LanguageToken:
        """The token that is read next."""
        return self._tokens[self._at]

    def after(self, distance: int = 1) -> LanguageToken:
        """A token further on."""
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    @property
    def place(self) -> str:
        """Where that is, for notes and errors."""
        return f"{self._file}:{self.now.line}"

    def take(self) -> LanguageToken:
        """Read a token, whatever it is."""
        token = self.now
        if token.kind != "end":
            self._at += 1
        return token

    def has(self, *texts: str) -> bool:
        """Whether one of these signs or words is next."""
        return self.now.kind in {"word", "sign"} and self.now.text in texts

    def skip(self, text: str) -> bool:
        """Read a sign or word, if it is next; whether it was."""
        found = self.has(text)
        if found:
            self.take()
        return found

    def expect(self, text: str) -> None:
        """Read a sign or word that must be next."""
        if not self.skip(text):
            self.fail(f"expected {text!r}")

    def kind(self, kind: TokenKind, what: str) -> str:
        """Read a token of a kind."""
        if self.now.kind != kind:
            self.fail(f"expected {what}")
        return self.take().text

    def string(self) -> str:
        """Read a text in quotes."""
        return unquoted(self.kind("string", "a text in quotes"))

    def descend(self) -> None:
        """Enter a nested block; ``ascend`` leaves it."""
        self._depth += 1
        if self._depth > DEEPEST:
            self.fail(f"blocks are nested more than {DEEPEST} deep")

    def ascend(self) -> None:
        """Leave a nested block."""
        self._depth -= 1

    def fail(self, message: str) -> NoReturn:
        """Refuse the text here."""
        found = self.now.text[:40] or "the end of the file"
        refuse(f"{self.place}: {message}, not {found!r}", found)


def unquoted(text: str) -> str:
    """The content of a text in quotes."""
    return re.sub(
        r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1], flags=re.DOTALL
    )


def quoted(text: str) -> str:
    """A text as SPARQL writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
