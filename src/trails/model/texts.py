"""Values that are written as text, in a query string or on a command line.

What can't be read stays text, so that the check of whoever takes it says what is expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from trails.model.types import PredicateDescriptor, ValueType


def read_texts(declared: PredicateDescriptor, texts: Sequence[str]) -> object:
    """The value of a parameter: its declaration says what a text means.

    A list is a JSON array, or the same parameter several times.
    """
    if declared.many:
        return [item for text in texts for item in _items(declared, text)]
    return _value(declared.type, texts[0]) if len(texts) == 1 else list(texts)


def _items(declared: PredicateDescriptor, text: str) -> Iterable[object]:
    if text.startswith("["):
        items = read_json(text)
        if isinstance(items, list):
            return items
    return [_value(declared.type.scalar, text)]


def _value(wanted: ValueType, text: str) -> object:
    row = wanted.row
    if row is None or row.schema.get("type") == "string":
        return text
    return read_json(text)


def read_json(text: str) -> object:
    """What a text means as JSON, or the text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
