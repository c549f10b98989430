"""JSON objects that mean one thing: every other reader finds the same in them.

Readers differ in what they make of a name that stands twice, of numbers that are none, or
of text that is not UTF-8, and a check that reads otherwise than its user is no check.
"""

from __future__ import annotations

import json
from typing import Never

Object = dict[str, object]


def read_object(raw: bytes) -> Object:
    """The object that a text holds; ValueError for anything doubtful."""
    try:
        value = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise ValueError("it is too deep") from None
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - a text has no type of its own
    return value


def _distinct(pairs: list[tuple[str, object]]) -> Object:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _refuse_constant(_name: str) -> Never:
    raise ValueError("a number is none")
