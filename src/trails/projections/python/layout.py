"""Lay out Python code as formatters do: literals, calls, imports, docstrings.

The rules are those of ``ruff format`` and Black, so that generated code stays as it is when a
project is formatted. Every literal is made here from a value; no text of a caller gets into code
in another way.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

WIDTH: Final = 88
"""Columns of a line where a project does not say how many."""
INDENT: Final = "    "


class CodeGroup(msgspec.Struct, frozen=True):
    """Items in brackets; ``is_call``: arguments, which may share a line of their own."""

    items: tuple[tuple[str, Code], ...]
    """(what comes before a value, like ``name=``; the value)"""
    opening: str = "("
    closing: str = ")"
    is_call: bool = False


class Words(msgspec.Struct, frozen=True):
    """A string literal that may be split between words."""

    text: str


Code = str | CodeGroup | Words


def flat(code: Code) -> str:
    """The code in one line."""
    if isinstance(code, str):
        return code
    if isinstance(code, Words):
        return quote(code.text)
    inner = ", ".join(before + flat(each) for before, each in code.items)
    alone = len(code.items) == 1 and code.opening == "(" and not code.is_call
    return f"{code.opening}{inner}{',' if alone else ''}{code.closing}"


def lay_out(before: str, code: Code, after: str, indent: str, width: int) -> list[str]:
    """The lines of ``before code after``, split as formatters do where one is not enough."""
    line = f"{indent}{before}{flat(code)}{after}"
    if columns(line) <= width or isinstance(code, str):
        return [line]
    inner = indent + INDENT
    if isinstance(code, Words):
        parts = _split(code.text, width - len(inner) - 2)
        if len(parts) == 1:
            return [line]
        pieces = [f"{inner}{quote(part)}" for part in parts]
        return [f"{indent}{before}(", *pieces, f"{indent}){after}"]
    if not code.items:
        return [line]
    body = inner + ", ".join(start + flat(each) for start, each in code.items)
    lines = [f"{indent}{before}{code.opening}"]
    if code.is_call and columns(body) <= width:
        lines.append(body)
    else:
        for start, each in code.items:
            lines += lay_out(start, each, ",", inner, width)
    return [*lines, f"{indent}{code.closing}{after}"]


def columns(text: str) -> int:
    """How wide a line is: some characters take two columns, some none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def _split(text: str, room: int) -> list[str]:
    """Parts of a plain text that fit, each but the last with the space at its end."""
    if not text.isascii() or not text.isprintable() or any(char in "\"'\\" for char in text):
        return [text]
    words = text.split(" ")
    lines, line = [], words[0]
    for word in words[1:]:
        if len(line) + 1 + len(word) + 1 > room:
            lines.append(f"{line} ")
            line = word
        else:
            line += f" {word}"
    lines.append(line)
    return lines if all(len(each) <= room and each.strip() for each in lines) else [text]


def quote(text: str) -> str:
    """A string literal, in the quotes that need fewer escapes."""
    mark = "'" if text.count('"') > text.count("'") else '"'
    return mark + "".join(_escape(char, mark) for char in text) + mark


def _escape(char: str, mark: str) -> str:
    if char in {mark, "\\"}:
        return "\\" + char
    if char.isprintable():
        return char
    return char.encode("unicode_escape").decode()


def quote_pattern(text: str) -> str:
    """A string literal for a regular expression: raw where that is possible."""
    raw = "\\" in text and text.isprintable() and '"' not in text and not text.endswith("\\")
    return f'r"{text}"' if raw else quote(text)


def literal(value: object) -> Code:
    """The literal of a JSON value."""
    match value:
        case str():
            return Words(value)
        case Mapping():
            items = tuple((f"{quote(str(key))}: ", literal(each)) for key, each in value.items())
            return CodeGroup(items, "{", "}")
        case list() | tuple():
            return CodeGroup(tuple(("", literal(each)) for each in value), "[", "]")
        case None | bool() | int() | float():
            return repr(value).replace("e+", "e")
        case _:
            raise TypeError(f"{type(value).__name__} has no literal")


def groups(given: Iterable[Sequence[str]]) -> Code:
    """A list of groups of names: ``[("code", "version")]``."""
    items = (CodeGroup(tuple(("", quote(name)) for name in group)) for group in given)
    return CodeGroup(tuple(("", each) for each in items), "[", "]")


def call(name: str, arguments: Iterable[tuple[str, Code]]) -> tuple[str, CodeGroup]:
    """What comes before the arguments of a call, and the arguments by name."""
    named = tuple((f"{each}=" if each else "", code) for each, code in arguments)
    return name, CodeGroup(named, is_call=True)


def docstring(text: str, indent: str) -> list[str]:
    """The lines of a docstring; ``inspect.cleandoc`` gives the text back."""
    escaped = "".join(
        char if char.isprintable() or char == "\n" else _escape(char, "")
        for char in text.replace("\\", "\\\\")
    )
    lines = escaped.replace('"""', r"\"\"\"").split("\n")
    start = " " if lines[0].startswith('"') else ""
    first = f'{indent}"""{start}{lines[0]}'
    if len(lines) == 1:
        before = lines[0][:-1]
        escaped_end = (len(before) - len(before.rstrip("\\"))) % 2 == 1
        end = " " if lines[0].endswith('"') and not escaped_end else ""
        return [f'{first}{end}"""']
    rest = [f"{indent}{line}" if line.strip() else "" for line in lines[1:]]
    return [first, *rest, f'{indent}"""']


def import_lines(module: str, names: Iterable[str], width: int) -> list[str]:
    """``from module import …``, with its names in the order that isort and ruff use."""
    ordered = sorted(set(names), key=_import_key)
    line = f"from {module} import {', '.join(ordered)}"
    if columns(line) <= width:
        return [line]
    return [f"from {module} import (", *(f"{INDENT}{each}," for each in ordered), ")"]


def _import_key(name: str) -> tuple[int, str, str]:
    """Constants, then classes, then the others."""
    own = name.split(" as ", maxsplit=1)[0]
    kind = 0 if own.isupper() and len(own) > 1 else 1 if own[:1].isupper() else 2
    return kind, own.lower(), own


def wrap(text: str, width: int) -> str:
    """A long text of one line as lines, for a docstring; other texts as they are."""
    if "\n" in text or columns(text) <= width:
        return text
    lines, line = [], ""
    for word in text.split(" "):
        if line and columns(line) + 1 + columns(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join((*lines, line))
