"""Read JSON with comments, remembering where every value stands.

Comments and a comma after the last member are let pass, because the clients whose
files these are let them pass. Nothing is ever written from what is read here: the
places are what :mod:`trails.app.clients.splice` needs to change a text in one spot.

Put one member into a JSON text, change it, or take it out, and touch nothing else.

The text is never written anew: comments, the order of keys, blanks and line ends stay
as their owner left them. What was inserted can be seen, and taken out again.
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
    """A text that is not JSON; says what is wrong, and in which line."""


@dataclass(frozen=True, slots=True)
class Member:
    """A key and its value in an object."""

    key: str
    start: int
    """Where the key begins."""
    value: JsonValue


@dataclass(frozen=True, slots=True)
class JsonValue:
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

    def node(self) -> JsonValue:
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
            return JsonValue(start, self.place, text)
        found = _SCALAR.match(self.text, start)
        if found is None:
            raise self.wrong("a value")
        self.place = found.end()
        return JsonValue(start, self.place, _scalar(found[0]))

    def object(self, start: int) -> JsonValue:
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
        return JsonValue(start, self.place, value, tuple(members))

    def array(self, start: int) -> JsonValue:
        """Pass over an array."""
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


def parse_jsonc(text: str) -> JsonValue | None:
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


_INDENT = re.compile(r"\n([ \t]+)\S")
_TAIL = re.compile(r"(?:[ \t]+|/\*[^\r\n]*?\*/)*(?://[^\r\n]*)?")
_LINE_END = re.compile(r"[ \t]*\r?\n")
_BLANKS = re.compile(r"[ \t]*")
_PLAIN: Final = "  "


def read_entry(text: str, path: Sequence[str], name: str) -> object:
    """The entry of this name below ``path``; ``None`` if there is none."""
    found = _find(text, path)
    members = found.find(name) if found is not None else []
    if len(members) > 1:
        raise JsoncError(f"{name!r} stands there twice")
    return members[0].value.value if members else None


def put_entry(text: str, path: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    """The text with this entry below ``path``, in place of one of the same name."""
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
    """The text without the entry of this name, which must be there."""
    node = _find(text, path)
    if node is None or node.members is None:
        raise JsoncError(f"{name!r} does not stand there")
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
    """Where the comma after a value is, behind blanks and comments."""
    place = skip_blank(text, place)
    return place if text.startswith(",", place) else None


def _find(text: str, path: Sequence[str]) -> JsonValue | None:
    root = parse_jsonc(text)
    if root is None:
        return None
    node, rest = _descend(root, path)
    return None if rest else node


def _descend(root: JsonValue, path: Sequence[str]) -> tuple[JsonValue, Sequence[str]]:
    """Follow a path as far as it goes: the last object, and what of the path is missing."""
    node, way = root, "the file"
    for index, key in enumerate(path):
        _check_object(node, way)
        found = node.find(key)
        if not found:
            return node, path[index:]
        if len(found) > 1:
            raise JsoncError(f"{key!r} stands there twice")
        node, way = found[0].value, repr(key)
    _check_object(node, way)
    return node, ()


def _check_object(node: JsonValue, way: str) -> None:
    if node.members is None:
        raise JsoncError(f"{way} is not an object")


def _insert(text: str, node: JsonValue, key: str, value: object, unit: str, end: str) -> str:
    """A new last member of an object."""
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
    """After the last member and the comment on its line; the comma stays with the member."""
    comma = _comma(text, last.value.end)
    after = last.value.end if comma is None else comma + 1
    tail = _TAIL.match(text, after)
    place = tail.end() if tail else after
    separator = "," if comma is None else ""
    return text[:after] + separator + text[after:place] + spelled + text[place:]


def _cut(text: str, start: int, end: int) -> str:
    """Take a part out: the whole line if nothing else is on it, else the blanks beside it."""
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
    """JSON over several lines, all but the first moved in by ``margin``."""
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (end + margin).join(lines)


def _nest(path: Sequence[str], name: str, entry: Mapping[str, object]) -> dict[str, object]:
    made: dict[str, object] = {name: dict(entry)}
    for key in reversed(path):
        made = {key: made}
    return made


def _margin(text: str, place: int) -> str:
    """What the line of a place begins with."""
    line = text.rfind("\n", 0, place) + 1
    found = _BLANKS.match(text, line)
    return found[0] if found else ""


def _unit(text: str) -> str:
    """By how much the text moves its first level in."""
    found = _INDENT.search(text)
    if found is None:
        return _PLAIN
    return "\t" if found[1].startswith("\t") else found[1]
