"""Put one member into a JSON text, change it, or take it out, and touch nothing else.

The text is never written anew: comments, the order of keys, blanks and line ends stay
as their owner left them. What was inserted can be seen, and taken out again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from trails.app.clients.jsonc import BOM, JsoncError, Member, Node, parse_jsonc, skip_blank

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


def _find(text: str, path: Sequence[str]) -> Node | None:
    root = parse_jsonc(text)
    if root is None:
        return None
    node, rest = _descend(root, path)
    return None if rest else node


def _descend(root: Node, path: Sequence[str]) -> tuple[Node, Sequence[str]]:
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


def _check_object(node: Node, way: str) -> None:
    if node.members is None:
        raise JsoncError(f"{way} is not an object")


def _insert(text: str, node: Node, key: str, value: object, unit: str, end: str) -> str:
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
