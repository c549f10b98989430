"""Values that are written as text, in a cell or an RDF literal, as the validator takes them.

What can't be read stays text, so that the validator says what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from trails.model.iris import TRAILS, XSD
from trails.model.kinds import Kind

_is_integer = re.compile(r"[+-]?[0-9]{1,1000}").fullmatch
_is_decimal = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?").fullmatch
_is_double = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?").fullmatch
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


def _integer(text: str, row: Kind) -> object:
    if not _is_integer(text):
        return text
    return int(text) if row.native is int else text.removeprefix("+")


def _decimal(text: str, _: Kind) -> object:
    found = _is_decimal(text)
    if found is None or not (found[2] or found[3]):
        return text
    sign = "-" if found[1] == "-" else ""
    return f"{sign}{found[2].lstrip('0') or '0'}.{(found[3] or '').rstrip('0') or '0'}"


def _double(text: str, _: Kind) -> object:
    return float(text) if _is_double(text) else text


def _boolean(text: str, _: Kind) -> object:
    return _TRUTH.get(text, text)


def _vector(text: str, _: Kind) -> object:
    try:
        return msgspec.json.decode(text, type=list[float])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


_READERS: Final[Mapping[str, Callable[[str, Kind], object]]] = {
    XSD + "integer": _integer,
    XSD + "decimal": _decimal,
    XSD + "double": _double,
    XSD + "boolean": _boolean,
    TRAILS + "vector": _vector,
}


def read_text(row: Kind, text: str) -> object:
    """The raw value that a text stands for."""
    reader = _READERS.get(row.datatype)
    return text if reader is None else reader(text, row)
