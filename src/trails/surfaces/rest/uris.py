"""The URI of an instance or list from a path and its query, and pages as one JSON object.

Nothing is validated here; the reader of the URI reports what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from trails.model.uris import Content


def write_uri(
    parts: Sequence[str], query: Mapping[str, str], *, branch: str | None, snapshot: str | None
) -> str:
    """The URI of a type or instance, on a branch or in the past."""
    place: tuple[str, ...] = () if branch is None else ("branch", branch)
    if snapshot is not None:
        place = ("at", snapshot)
    path = "/".join(_encoded(each) for each in (*place, "kg", *parts))
    asked = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in query.items())
    return f"trails://{path}?{asked}" if asked else f"trails://{path}"


def place_problem(branch: str | None, snapshot: str | None) -> str | None:
    """What is wrong with a place that no URI can say, in words of those who name it."""
    for name, value in (("branch", branch), ("snapshot", snapshot)):
        if value == "":
            return f"{name} is empty; give it a value or leave it out"
    return None


def join_page(contents: Sequence[Content]) -> bytes:
    """A page of instances with the cursor of the next one, if there is one."""
    page, *rest = contents
    following = parse_qs(urlsplit(rest[0].uri).query)["cursor"][0] if rest else None
    return b'{"instances":%s,"next":%s}' % (page.text.encode(), msgspec.json.encode(following))


def _encoded(text: str) -> str:
    return quote(text, safe="")
