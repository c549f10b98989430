"""Headers of deprecated calls: ``Deprecation`` (RFC 9745), ``Sunset`` (RFC 8594) and ``Link``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from time import time
from typing import Final
from urllib.parse import quote

from trails.model.capabilities import Deprecation
from trails.model.names import portable_name

_STARTED: Final = int(time())
"""Since when a capability is deprecated at the latest, where its successor names no date."""


def deprecation_headers(deprecated: Mapping[str, Deprecation], name: str) -> dict[str, str]:
    """The headers of the answer to a call, by a name in any spelling."""
    found = deprecated.get(name)
    if found is None:
        spelled = portable_name(name)
        matching = (each for key, each in deprecated.items() if portable_name(key) == spelled)
        found = next(matching, None)
    if found is None:
        return {}
    since = int(_midnight(found.since).timestamp()) if found.since else _STARTED
    headers = {
        "Deprecation": f"@{since}",
        "Link": f'<{quote(found.by, safe="")}>; rel="successor-version"',
    }
    if found.sunset:
        headers["Sunset"] = format_datetime(_midnight(found.sunset), usegmt=True)
    return headers


def _midnight(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)
