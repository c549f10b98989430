"""Query strings as arguments. What can't be read stays text, so that the call's own check tells."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from trails.surfaces.rest.replies import refused
from trails.surfaces.rest.routing import Call

_NUMBERS: Final = frozenset({"limit", "offset"})
_FLAGS: Final = frozenset({"force", "dry_run", "all_branches"})
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_TRUTHS: Final = {"true": True, "false": False}


def query_arguments(call: Call, *, lists: Collection[str] = ()) -> dict[str, object]:
    """The query string: numbers and truth values as such, ``lists`` as lists."""
    found: dict[str, object] = {}
    for name, text in call.request.query_params.multi_items():
        if name in lists:
            known = found.setdefault(name, [])
            assert isinstance(known, list)  # noqa: S101 - set by the line above
            known.append(text)
        elif name in found:
            raise refused("query_string", f"{name[:100]!r} is given twice; give it once")
        else:
            found[name] = _value(name, text)
    return found


def query_texts(call: Call) -> dict[str, list[str]]:
    """The query string as it is: every text of every name."""
    found: dict[str, list[str]] = {}
    for name, text in call.request.query_params.multi_items():
        found.setdefault(name, []).append(text)
    return found


def _value(name: str, text: str) -> object:
    if name in _NUMBERS and _WHOLE.fullmatch(text):
        return int(text)
    if name in _FLAGS:
        return _TRUTHS.get(text, text)
    return text
