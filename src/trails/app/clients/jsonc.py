"""Read and edit JSON with comments.

Comments and trailing commas are accepted, because the clients accept them. A text is never
written anew: one member is inserted, replaced or removed at its position, so comments, order
of keys, whitespace and line ends stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

BOM: Final = "\ufeff"
_DEEPEST: Final = 100
_BLANK = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


class JsoncError(ValueError):
    """A text that is not JSON; says what is wrong, and on which line."""


@dataclass(frozen=True, slots=True)
class Member:
    """A key and its value in an object."""

    key: str
    start: int
    """Where the key begins."""
    value: JsonValue


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value, and its range in the text."""

    start: int
    end: int
    value: object
    members: tuple[Member, ...] | None = None
    """The members of an object, in the order of the text."""

    def find(self, key: str) -> list[Member]:
        """Return the members of this name: several if a key is repeated."""
        return [each for each in self.members or () if each.key == key]


@dataclass(slots=True)
class _Reader:
    text: str
    place: int = 0
    depth: int = 0

    def skip(self) -> None:
        """Skip whitespace and comments."""
        self.place = skip_blank(self.text, self.place)

    def take(self, mark: str) -> bool:
        """Skip a mark, if it is next."""
        self.skip()
        if not self.text.startswith(mark, self.place):
            return False
        self.place += 1
        return True

    def string(self) -> str:
        """Read a string."""
        found = _STRING.match(self.text, self.place)
        if found is None:
            raise self.wrong("a text in double quotes")
        self.place = found.end()
        return str(json.loads(found[0]))

    def node(self) -> JsonValue:
        """Read any value."""
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
            return JsonValue(start, self.place, text)
        found = _SCALAR.match(self.text, start)
        if found is None:
            raise self.wrong("a value")
        self.place = found.end()
        return JsonValue(start, self.place, _scalar(found[0]))

    def object(self, start: int) -> JsonValue:
        """Read an object."""
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
        return JsonValue(start, self.place, value, tuple(members))

    def array(self, start: int) -> JsonValue:
        """Read an array."""
        self.place += 1
        items: list[object] = []
        comma = True
        while not self.take("]"):
            if not comma:
                raise self.wrong("a comma or ]")
            items.append(self.node().value)
            comma = self.take(",")
        return JsonValue(start, self.place, items)

    def wrong(self, wanted: str) -> JsoncError:
        """Return the error that something else was expected here."""
        line = self.text.count("\n", 0, self.place) + 1
        found = self.text[self.place : self.place + 12].split("\n")[0]
        seen = repr(found) if found else "the end" if self.place >= len(self.text) else "a new line"
        return JsoncError(f"line {line}: expected {wanted}, found {seen}")


def _scalar(token: str) -> object:
    try:
        return json.loads(token)
    except ValueError:  # an integer with more digits than Python converts
        return token


def skip_blank(text: str, place: int) -> int:
    """Return the next position outside whitespace and comments."""
    found = _BLANK.match(text, place)
    return found.end() if found else place


def parse_jsonc(text: str) -> JsonValue | None:
    """Return the value of a text; ``None`` if it has only whitespace and comments."""
    reader = _Reader(text, len(BOM) if text.startswith(BOM) else 0)
    reader.skip()
    if reader.place == len(text):
        return None
    found = reader.node()
    reader.skip()
    if reader.place != len(text):
        raise reader.wrong("the end of the file")
    return found


_INDENT = re.compile(r"\n([ \t]+)\S")
_TAIL = re.compile(r"(?:[ \t]+|/\*[^\r\n]*?\*/)*(?://[^\r\n]*)?")
_LINE_END = re.compile(r"[ \t]*\r?\n")
_BLANKS = re.compile(r"[ \t]*")
_PLAIN: Final = "  "


def read_entry(text: str, path: Sequence[str], name: str) -> object:
    """Return the entry ``name`` below ``path``, or ``None``."""
    found = _find(text, path)
    members = found.find(name) if found is not None else []
    if len(members) > 1:
        raise JsoncError(f"{name!r} occurs twice")
    return members[0].value.value if members else None


def put_entry(text: str, path: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    """Return the text with this entry below ``path``, added or replaced."""
    end = "\r\n" if "\r\n" in text else "\n"
    root = parse_jsonc(text)
    if root is None:
        whole = _spell({path[0]: _nest(path[1:], name, entry)}, "", _PLAIN, end)
        gap = end if text.removeprefix(BOM) and not text.endswith("\n") else ""
        return f"{text}{gap}{whole}{end}"
    node, rest = _descend(root, path)
    value: object = _nest(rest[1:], name, entry) if rest else entry
    key = rest[0] if rest else name
    unit = _unit(text)
    present = node.find(key)
    if present:
        old = present[0].value
        new = _spell(value, _margin(text, present[0].start), unit, end)
        return text[: old.start] + new + text[old.end :]
    return _insert(text, node, key, value, unit, end)


def drop_entry(text: str, path: Sequence[str], name: str) -> str:
    """Return the text without the entry ``name``, which must exist."""
    node = _find(text, path)
    if node is None or node.members is None:
        raise JsoncError(f"{name!r} does not exist")
    place = [each.key for each in node.members].index(name)
    member = node.members[place]
    start, end = member.start, member.value.end
    following = _comma(text, end)
    if following is not None:
        end = following + 1
    elif place:
        before = _comma(text, node.members[place - 1].value.end)
        if before is not None:
            text = text[:before] + text[before + 1 :]
            start, end = start - 1, end - 1
    return _cut(text, start, end)


def _comma(text: str, place: int) -> int | None:
    """Return the position of the comma after a value, behind whitespace and comments."""
    place = skip_blank(text, place)
    return place if text.startswith(",", place) else None


def _find(text: str, path: Sequence[str]) -> JsonValue | None:
    root = parse_jsonc(text)
    if root is None:
        return None
    node, rest = _descend(root, path)
    return None if rest else node


def _descend(root: JsonValue, path: Sequence[str]) -> tuple[JsonValue, Sequence[str]]:
    """Follow a path as far as it exists; return the last object and the missing keys."""
    node, way = root, "the file"
    for index, key in enumerate(path):
        _check_object(node, way)
        found = node.find(key)
        if not found:
            return node, path[index:]
        if len(found) > 1:
            raise JsoncError(f"{key!r} occurs twice")
        node, way = found[0].value, repr(key)
    _check_object(node, way)
    return node, ()


def _check_object(node: JsonValue, way: str) -> None:
    if node.members is None:
        raise JsoncError(f"{way} is not an object")


def _insert(text: str, node: JsonValue, key: str, value: object, unit: str, end: str) -> str:
    """Insert a new last member into an object."""
    if not node.members:
        margin = _margin(text, node.start)
        body = end + margin + unit + _member(key, value, margin + unit, unit, end)
        closed = "\n" in text[node.start : node.end]
        place = node.start + 1
        return text[:place] + body + ("" if closed else end + margin) + text[place:]
    last = node.members[-1]
    if "\n" not in text[node.start : last.start]:
        spelled = f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        comma = _comma(text, last.value.end)
        place = last.value.end if comma is None else comma + 1
        return text[:place] + ("," if comma is None else "") + spelled + text[place:]
    margin = _margin(text, last.start)
    spelled = end + margin + _member(key, value, margin, unit, end)
    return _append(text, last, spelled)


def _append(text: str, last: Member, spelled: str) -> str:
    """Insert after the last member and the comment on its line; the comma follows the member."""
    comma = _comma(text, last.value.end)
    after = last.value.end if comma is None else comma + 1
    tail = _TAIL.match(text, after)
    place = tail.end() if tail else after
    separator = "," if comma is None else ""
    return text[:after] + separator + text[after:place] + spelled + text[place:]


def _cut(text: str, start: int, end: int) -> str:
    """Cut a range: the whole line if nothing else is on it, else also the whitespace beside it."""
    line = text.rfind("\n", 0, start) + 1
    rest = _LINE_END.match(text, end)
    if rest is not None and not text[line:start].strip(" \t"):
        return text[:line] + text[rest.end() :]
    if text[end - 1] == ",":
        return text[:start] + text[end:].lstrip(" \t")
    return text[:start].rstrip(" \t") + text[end:]


def _member(key: str, value: object, margin: str, unit: str, end: str) -> str:
    return f"{json.dumps(key)}: {_spell(value, margin, unit, end)}"


def _spell(value: object, margin: str, unit: str, end: str) -> str:
    """Spell JSON over several lines, all but the first indented by ``margin``."""
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (end + margin).join(lines)


def _nest(path: Sequence[str], name: str, entry: Mapping[str, object]) -> dict[str, object]:
    made: dict[str, object] = {name: dict(entry)}
    for key in reversed(path):
        made = {key: made}
    return made


def _margin(text: str, place: int) -> str:
    """Return the indentation of a position's line."""
    line = text.rfind("\n", 0, place) + 1
    found = _BLANKS.match(text, line)
    return found[0] if found else ""


def _unit(text: str) -> str:
    """Return the indentation of the first level."""
    found = _INDENT.search(text)
    if found is None:
        return _PLAIN
    return "\t" if found[1].startswith("\t") else found[1]
