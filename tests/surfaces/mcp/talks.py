"""Sessions of lines with a backend in this process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.surfaces.mcp.trivial import OneCaller

from trails.model.actors import LOCAL
from trails.surfaces.mcp.streams import serve_stream


async def talk(
    backend: Any, lines: Iterable[object], actor: Any = LOCAL, **options: Any
) -> list[dict[str, Any]]:
    """Give a session some lines, or messages; what it answers."""
    given = iter(lines)
    said: list[dict[str, Any]] = []

    async def receive():
        line = next(given, None)
        return line if line is None or isinstance(line, bytes) else json.dumps(line).encode()

    async def send(line):
        said.append(json.loads(line))

    await serve_stream(backend, receive, send, callers=OneCaller(actor), **options)
    return said
