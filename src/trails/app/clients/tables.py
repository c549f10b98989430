"""Put one table into a TOML text, change it, or take it out, and touch nothing else.

Tables are found by their heading lines, which a text in quotes could imitate; whoever
calls compares what the new text says with what it should (:mod:`trails.app.clients.install`).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Final

_HEADING = re.compile(r"^[ \t]*\[[^\r\n]*", re.MULTILINE)
_NOTHING: Final = re.compile(r"[ \t]*(?:#[^\r\n]*)?\r?\n?")


def read_table(text: str, path: Sequence[str], name: str) -> object:
    """The table of this name below ``path``; ``None`` if there is none."""
    found: object = tomllib.loads(text)
    for key in (*path, name):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def put_table(text: str, path: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    """The text with this table, at the end or in place of one of the same name."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join((*path, name))}]", *(f"{key} = {_spell(entry[key])}" for key in entry)]
    spelled = end.join(lines) + end
    span = _span(text, path, name)
    if span is not None:
        return text[: span[0]] + spelled + text[span[1] :]
    gap = "" if not text else end if text.endswith("\n") else end + end
    return f"{text}{gap}{spelled}"


def drop_table(text: str, path: Sequence[str], name: str) -> str:
    """The text without the table of this name, and without the empty line before it."""
    span = _span(text, path, name)
    if span is None:
        return text
    before = text[: span[0]]
    for end in ("\r\n", "\n"):
        if before.endswith(end + end):
            return before.removesuffix(end) + text[span[1] :]
    return before + text[span[1] :]


def _span(text: str, path: Sequence[str], name: str) -> tuple[int, int] | None:
    """From the heading of a table to its last line; tables inside it belong to it."""
    keys = r"\s*\.\s*".join(rf"[\"']?{re.escape(each)}[\"']?" for each in (*path, name))
    own = re.compile(rf"[ \t]*\[\s*{keys}\s*[.\]]")
    headings = [each.start() for each in _HEADING.finditer(text)]
    mine = [place for place in headings if own.match(text, place)]
    if not mine:
        return None
    after = [place for place in headings if place > mine[-1]]
    stop = after[0] if after else len(text)
    return mine[0], _trim(text, mine[-1], stop)


def _trim(text: str, start: int, stop: int) -> int:
    """The end of the last line of a part that says something."""
    lines = text[start:stop].splitlines(keepends=True)
    while lines and _NOTHING.fullmatch(lines[-1]):
        stop -= len(lines.pop())
    return stop


def _spell(value: object) -> str:
    """A value as TOML: what JSON escapes TOML escapes alike, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
