"""Fields in the short form of the command line: ``title:str(min_length=3)``, ``status:str=open``.

``name:type(arguments)?=default``: the arguments are those of ``predicate()``, and ``?`` is
``| None``. A mark needs no value (``key``). A value is JSON, or text where it is not JSON; the
values of ``one_of`` may be separated by ``|``. A text with ``,``, ``(`` or ``)`` is written in
double quotes. This module reads the form; ``specs`` checks the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from trails.errors import FieldError, ValidationError
from trails.model.changes.steps import FieldSpec
from trails.model.names import suggest
from trails.model.texts import read_json

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ARGUMENTS: Final = tuple(
    name for name in FieldSpec.__struct_fields__ if name not in {"name", "type"}
)
_EXAMPLE: Final = "title:str(min_length=3,max_length=200), status:str=open or 'owner:Ref[Person]?'"


class _FormFault(Exception):  # noqa: N818 - an internal signal, never seen by users
    """What is wrong with the text of a field."""


def parse_field(text: str, where: str = "fields[0]") -> FieldSpec:
    """The field that a short form names."""
    try:
        return msgspec.convert(_parse(text), FieldSpec)
    except (_FormFault, msgspec.ValidationError) as fault:
        message = f"{where}: {text[:100]!r} is not a field: {fault}; write it like {_EXAMPLE}"
        raise ValidationError([FieldError(where, "field", message, text[:200])]) from None


def _parse(text: str) -> dict[str, object]:
    match = _NAME.match(text)
    if match is None:
        raise _FormFault("it begins with a name")
    found: dict[str, object] = {"name": match[0]}
    rest = text[match.end() :]
    if rest.startswith(":"):
        kind, rest = _take_type(rest[1:])
        found["type"] = kind
    if rest.startswith("("):
        inner, rest = _take_group(rest)
        found |= dict(_arguments(inner))
    if rest.startswith("?"):
        found["type"] = f"{found.get('type', 'str')} | None"
        rest = rest[1:]
    if rest.startswith("="):
        found["default"] = _value(rest[1:], is_text=_is_text(str(found.get("type", "str"))))
        rest = ""
    if rest:
        raise _FormFault(f"{rest[:20]!r} is not expected")
    return found


def _take_type(text: str) -> tuple[str, str]:
    """A type, and what follows; a dimension may be in parentheses."""
    match = re.match(r"Vector\([0-9]+\)", text)
    if match:
        return match[0], text[match.end() :]
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char in "(?=" and not depth:
            return text[:at].strip(), text[at:]
    return text.strip(), ""


def _take_group(text: str) -> tuple[str, str]:
    """What is in parentheses, and what follows them."""
    depth, quoted, escaped = 0, False, False
    for at, char in enumerate(text):
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
            continue
        quoted = char == '"'
        depth += (char in "([{") - (char in ")]}")
        if not depth:
            return text[1:at], text[at + 1 :]
    raise _FormFault("a parenthesis is not closed")


def _arguments(text: str) -> Iterator[tuple[str, object]]:
    for part in _split(text):
        name, equals, value = part.partition("=")
        name = name.strip()
        if name not in _ARGUMENTS:
            raise _FormFault(f"there is no argument {name[:40]!r}, {suggest(name, _ARGUMENTS)}")
        if not equals:
            yield name, True
        elif name == "one_of" and not value.strip().startswith("["):
            yield name, [_value(each) for each in value.split("|")]
        else:
            yield name, _value(value, is_text=name in {"description", "pattern", "iri"})


def _split(text: str) -> Iterator[str]:
    """The parts between commas, except those in quotes and brackets."""
    begin, depth, quoted, escaped = 0, 0, False, False
    for at, char in enumerate(text):
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
            continue
        quoted = char == '"'
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:]


def _value(text: str, *, is_text: bool = False) -> object:
    text = text.strip()
    if is_text and not text.startswith('"'):
        return text
    found = read_json(text)
    return str(found) if is_text and not isinstance(found, str) else found


def _is_text(kind: str) -> bool:
    return kind.removesuffix("| None").strip() in {"str", "String"}
