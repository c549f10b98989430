"""Names and encodings that the fast path, the SDK and every transport share."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from trails.projections.mcp_tools import PREFIX

Json = dict[str, Any]
"""An object of a message."""

ValidationErrors = Literal["protocol", "tool"]
"""Whether wrong arguments are answered as a protocol error or as a tool's error result."""

LEGACY: Final = frozenset(HANDSHAKE_PROTOCOL_VERSIONS)
"""Revisions that begin with ``initialize``."""

MODERN: Final = frozenset(MODERN_PROTOCOL_VERSIONS)
"""Revisions whose requests carry their own envelope."""

DEFAULT_REVISION: Final = DEFAULT_NEGOTIATED_VERSION
"""The revision of requests without a version header."""

ERROR_META: Final = PREFIX + "error"
AT_LEAST_META: Final = PREFIX + "at_least"
"""A commit that the answer must not be older than; the answer then names its own."""
COMMIT_META: Final = PREFIX + "commit"
ALIAS: Final = "trails"
"""The top-level key of a tool that repeats what is under ``TOOL_META``."""

encode: Final = msgspec.json.Encoder().encode


def error_message(id_: object, code: int, message: str, data: object = None) -> Json:
    """A JSON-RPC error response."""
    error: Json = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id_, "error": error}
