"""Read JSON with comments, remembering where every value stands.

Comments and a comma after the last member are let pass, because the clients whose
files these are let them pass. Nothing is ever written from what is read here: the
places are what :mod:`trails.app.clients.splice` needs to change a text in one spot.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

BOM: Final = "\ufeff"
_DEEPEST: Final = 100
_BLANK = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


class JsoncError(ValueError):
    """A text that is not JSON; says what is wrong, and in which line."""


@dataclass(frozen=True, slots=True)
class Member:
    """A key and its value in an object."""

    key: str
    start: int
    """Where the key begins."""
    value: Node


@dataclass(frozen=True, slots=True)
class Node:
    """A value, and the part of the text that it is."""

    start: int
    end: int
    value: object
    members: tuple[Member, ...] | None = None
    """Of an object, in the order of the text."""

    def find(self, key: str) -> list[Member]:
        """The members of this name: more than one where a key is repeated."""
        return [each for each in self.members or () if each.key == key]


@dataclass(slots=True)
class _Reader:
    """One pass over a text."""

    text: str
    place: int = 0
    depth: int = 0

    def skip(self) -> None:
        """Pass over blanks and comments."""
        self.place = skip_blank(self.text, self.place)

    def take(self, mark: str) -> bool:
        """Pass over a mark, if it stands here."""
        self.skip()
        if not self.text.startswith(mark, self.place):
            return False
        self.place += 1
        return True

    def string(self) -> str:
        """Pass over a string."""
        found = _STRING.match(self.text, self.place)
        if found is None:
            raise self.wrong("a text in double quotes")
        self.place = found.end()
        return str(json.loads(found[0]))

    def node(self) -> Node:
        """Pass over any value."""
        self.skip()
        start = self.place
        if self.text.startswith(("{", "["), start):
            self.depth += 1
            if self.depth > _DEEPEST:
                raise self.wrong(f"at most {_DEEPEST} levels")
            made = self.object(start) if self.text[start] == "{" else self.array(start)
            self.depth -= 1
            return made
        if self.text.startswith('"', start):
            text = self.string()
            return Node(start, self.place, text)
        found = _SCALAR.match(self.text, start)
        if found is None:
            raise self.wrong("a value")
        self.place = found.end()
        return Node(start, self.place, _scalar(found[0]))

    def object(self, start: int) -> Node:
        """Pass over an object."""
        self.place += 1
        members: list[Member] = []
        comma = True
        while not self.take("}"):
            if not comma:
                raise self.wrong("a comma or }")
            self.skip()
            place = self.place
            key = self.string()
            if not self.take(":"):
                raise self.wrong("a colon")
            members.append(Member(key, place, self.node()))
            comma = self.take(",")
        value = {each.key: each.value.value for each in members}
        return Node(start, self.place, value, tuple(members))

    def array(self, start: int) -> Node:
        """Pass over an array."""
        self.place += 1
        items: list[object] = []
        comma = True
        while not self.take("]"):
            if not comma:
                raise self.wrong("a comma or ]")
            items.append(self.node().value)
            comma = self.take(",")
        return Node(start, self.place, items)

    def wrong(self, wanted: str) -> JsoncError:
        """What stands here is not what must."""
        line = self.text.count("\n", 0, self.place) + 1
        found = self.text[self.place : self.place + 12].split("\n")[0]
        seen = repr(found) if found else "the end" if self.place >= len(self.text) else "a new line"
        return JsoncError(f"line {line}: {wanted} should stand where {seen} is")


def _scalar(token: str) -> object:
    try:
        return json.loads(token)
    except ValueError:  # an integer of more digits than Python turns into a number
        return token


def skip_blank(text: str, place: int) -> int:
    """The next place that is neither blank nor in a comment."""
    found = _BLANK.match(text, place)
    return found.end() if found else place


def parse_jsonc(text: str) -> Node | None:
    """The value of a text; ``None`` if it has nothing but blanks and comments."""
    reader = _Reader(text, len(BOM) if text.startswith(BOM) else 0)
    reader.skip()
    if reader.place == len(text):
        return None
    found = reader.node()
    reader.skip()
    if reader.place != len(text):
        raise reader.wrong("the end of the file")
    return found
