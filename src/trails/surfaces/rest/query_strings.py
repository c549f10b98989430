"""Read the arguments of a call from a query string.

A value that cannot be converted stays text, so that the check of the call itself reports it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

from trails.surfaces.rest.replies import refused
from trails.surfaces.rest.routing import RestCall

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_TRUTHS: Final = {"true": True, "false": False}


def query_arguments(
    call: RestCall,
    *,
    lists: Collection[str] = (),
    numbers: Collection[str] = (),
    flags: Collection[str] = (),
    objects: Collection[str] = (),
) -> dict[str, object]:
    """The query string, with the named arguments as lists, numbers, booleans and JSON objects."""
    found: dict[str, object] = {}
    for name, text in call.request.query_params.multi_items():
        if name in lists:
            known = found.setdefault(name, [])
            assert isinstance(known, list)  # noqa: S101 - set by the line above
            known.append(text)
        elif name in found:
            raise refused("query_string", f"{name[:100]!r} is given twice; give it once")
        else:
            found[name] = (
                int(text)
                if name in numbers and _WHOLE.fullmatch(text)
                else _TRUTHS.get(text, text)
                if name in flags
                else _read_json(text)
                if name in objects
                else text
            )
    return found


def _read_json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def query_texts(call: RestCall) -> dict[str, list[str]]:
    """The query string as it is: every text of every name."""
    found: dict[str, list[str]] = {}
    for name, text in call.request.query_params.multi_items():
        found.setdefault(name, []).append(text)
    return found
