"""``Json``: a JSON value that is kept as one text, with what is read from inside it.

One value has one text: members sorted by name, no white space, numbers as the parser gave them
(an integer keeps its digits, ``1.0`` stays a float). So equal means equal as JSON: ``1``, ``1.0``
and ``true`` are three values, which Python takes for one. Of two members with one name the last
counts, as in every parser here.

A place inside is named by a JSON pointer (RFC 6901): ``/sections/0/title``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final, cast

import msgspec

MAX_JSON_DEPTH: Final = 64
"""Levels of arrays and objects: a request or a line of a file may wrap a value in some more."""
_MAX_DIGITS: Final = 1000
_MAX_INT: Final = 10**_MAX_DIGITS
_ENCODE: Final = msgspec.json.Encoder(order="sorted").encode
_is_index = re.compile(r"0|[1-9][0-9]{0,17}").fullmatch
_is_escaped = re.compile(r"(?:[^~]|~[01])*").fullmatch


class JsonError(ValueError):
    """A value that JSON does not have, or a place that a value does not have."""


class Json:
    """A JSON value: anything but null at the top, which means that there is no value.

    ``Json({"a": [1, 2]})`` is made of plain Python values and never changes.
    """

    __slots__ = ("_text",)

    def __init__(self, value: object) -> None:
        """Take dictionaries, lists, texts, numbers, truth values and, inside, None."""
        if value is None:
            raise JsonError("null means that there is no value; leave the field out")
        self._text = _ENCODE(_checked(value)).decode()

    @classmethod
    def from_text(cls, text: str) -> Json:
        """The value of any JSON text."""
        try:
            value = msgspec.json.decode(text)
        except msgspec.ValidationError as error:  # a number beyond the range of a float
            raise JsonError(str(error)) from None
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError, ValueError):
            raise JsonError("it can't be parsed") from None
        return cls(value)

    @classmethod
    def trusted(cls, text: str) -> Json:
        """The value of a text that an instance had: it is not parsed."""
        made = cls.__new__(cls)
        made._text = text  # noqa: SLF001 - an instance of this class
        return made

    @property
    def text(self) -> str:
        """The value as JSON: the same text for equal values."""
        return self._text

    @property
    def value(self) -> object:
        """The value as plain Python, a copy that the caller may change."""
        return cast(object, msgspec.json.decode(self._text))

    def at(self, pointer: str) -> object:
        """What a JSON pointer names, as plain Python; JsonError if there is nothing."""
        return resolve(self.value, pointer)

    def texts(self) -> Iterator[tuple[str, str]]:
        """Every string in the value with the JSON pointer to it; names of members are not values.

        They come in the order of the text.
        """
        waiting: list[tuple[str, object]] = [("", self.value)]
        while waiting:
            pointer, value = waiting.pop()
            if isinstance(value, str):
                yield pointer, value
            elif isinstance(value, dict):
                waiting += [(f"{pointer}/{_escape(name)}", value[name]) for name in [*value][::-1]]
            elif isinstance(value, list):
                last = len(value) - 1
                waiting += [(f"{pointer}/{last - at}", v) for at, v in enumerate(value[::-1])]

    def __eq__(self, other: object) -> bool:
        """Equal as JSON."""
        return self._text == other._text if isinstance(other, Json) else NotImplemented

    def __hash__(self) -> int:
        """Consistent with equality."""
        return hash(self._text)

    def __repr__(self) -> str:
        """As it would be written in a program."""
        return f"Json({self.value!r})"


def resolve(value: object, pointer: str) -> object:
    """What a JSON pointer (RFC 6901) names in a plain value; JsonError if there is nothing."""
    if pointer and (not pointer.startswith("/") or not _is_escaped(pointer)):
        raise JsonError(
            f"{pointer[:100]!r} is not a JSON pointer; write '/name/0', with ~1 for / and ~0 for ~"
        )
    for at, part in enumerate(parts := pointer.split("/")[1:]):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _is_index(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            reached = "".join(f"/{each}" for each in parts[:at])
            raise JsonError(f"{reached[:200]!r} has no {name[:100]!r}; {_contents(value)}")
    return value


def _contents(value: object) -> str:
    if isinstance(value, dict):
        names = ", ".join(repr(name[:50]) for name in [*value][:10])
        return f"its members are {names}{', …' if len(value) > 10 else ''}" if value else "it is {}"
    if isinstance(value, list):
        return f"its items are 0 to {len(value) - 1}" if value else "it is []"
    return "it is neither an object nor an array"


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _checked(value: object, depth: int = 0) -> object:
    """The value, of plain types all through; JsonError for what JSON does not have."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return _checked_text(cast(str, value)) if kind is str else value
    if kind is float:
        if math.isfinite(cast(float, value)):
            return value
        raise JsonError("infinity and NaN are not JSON")
    if kind is int:
        if -_MAX_INT < cast(int, value) < _MAX_INT:
            return value
        raise JsonError(f"an integer may have at most {_MAX_DIGITS:,} digits")
    if depth == MAX_JSON_DEPTH:
        raise JsonError(f"arrays and objects nest deeper than {MAX_JSON_DEPTH} levels")
    if isinstance(value, dict):
        return {_checked_name(name): _checked(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_checked(each, depth + 1) for each in value]
    if isinstance(value, Json):
        return _checked(value.value, depth)
    for base in (str, int, float):
        if isinstance(value, base):
            return _checked(base(value), depth)
    raise JsonError(f"a {kind.__name__} is not JSON")


def _checked_text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise JsonError("half of a surrogate pair is not a character") from None
    return text


def _checked_name(name: object) -> str:
    if isinstance(name, str):
        return _checked_text(str(name))
    raise JsonError(f"the name of a member is a string, not {str(name)[:50]}")
