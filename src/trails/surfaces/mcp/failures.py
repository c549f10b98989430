"""Map failures to MCP errors: the one table of this surface.

A failure becomes a protocol error or, where a model should read it and try again, a
tool's result with ``isError``. Which of the two depends on the kind, on the revision
(−32002 is retired from 2026-07-28 on) and on what was asked for: reading has no
``isError``. Text of an exception never gets here.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

from trails.model.origins import current_trace
from trails.model.results import Failure, FailureKind
from trails.surfaces.mcp.wire import ERROR_META, MODERN, Json, ValidationErrors, encode

logger = logging.getLogger(__name__)

UNAUTHENTICATED: Final = -32001
DENIED: Final = -32002
BUDGET: Final = -32003
SCOPE: Final = -32004
RESOURCE_NOT_FOUND: Final = -32002
"""Before 2026-07-28; the same number as ``DENIED``, distinguished by ``data.code``."""

Asked = Literal["tool", "resource"]

_CODES: Final[Mapping[FailureKind, int]] = {
    "unknown": INVALID_PARAMS,
    "validation": INVALID_PARAMS,
    "unauthenticated": UNAUTHENTICATED,
    "scope": SCOPE,
    "denied": DENIED,
    "budget": BUDGET,
    "semantic": INVALID_PARAMS,
    "internal": INTERNAL_ERROR,
}


class ProtocolError(msgspec.Struct, frozen=True):
    """A JSON-RPC error."""

    code: int
    message: str
    data: Json


class ErrorResult(msgspec.Struct, frozen=True):
    """A tool's error result."""

    result: Json


def map_failure(
    failure: Failure, revision: str, validation: ValidationErrors, asked: Asked = "tool"
) -> ProtocolError | ErrorResult:
    """The error of a failure in a protocol revision."""
    if asked == "tool" and _is_result(failure.kind, revision, validation):
        return ErrorResult(_error_result(failure))
    return ProtocolError(
        _code(failure, revision, asked),
        _clean(failure.message),
        {**_ready(failure.data), "code": failure.code},
    )


def conceal(error: BaseException) -> Failure:
    """Log an unexpected exception; the caller gets its trace id only."""
    trace_id = current_trace() or secrets.token_hex(16)
    logger.error(
        "unexpected error (trace %s)", trace_id, exc_info=error, extra={"event": "request.failed"}
    )
    return Failure(
        "internal",
        "internal",
        f"Internal error (trace {trace_id}); details are in the server log.",
        {"trace_id": trace_id},
    )


def _is_result(kind: FailureKind, revision: str, validation: ValidationErrors) -> bool:
    """Whether a failure becomes an error result, which models read."""
    if kind == "validation":
        return validation == "tool"
    return kind == "semantic" or (kind == "denied" and revision in MODERN)


def _code(failure: Failure, revision: str, asked: Asked) -> int:
    """The code of a protocol error."""
    if asked == "resource":
        if failure.kind == "unknown" or failure.code == "not_found":
            return INVALID_PARAMS if revision in MODERN else RESOURCE_NOT_FOUND
        if failure.kind == "denied" and revision in MODERN:
            return SCOPE
    return _CODES[failure.kind]


def _error_result(failure: Failure) -> Json:
    """An error result whose text is complete, because hosts drop everything else."""
    message, data = _clean(failure.message), _ready(failure.data)
    text = f"{message}\n{encode(data).decode()}" if data else message
    return {
        "_meta": {ERROR_META: {"code": failure.code, "data": data}},
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "resultType": "complete",
    }


def _clean(text: str) -> str:
    """A text that UTF-8 can carry: lone surrogates come from file names and bad input."""
    return text.encode("utf-8", "replace").decode()


def _ready(data: Mapping[str, object]) -> Json:
    """The data if it can be encoded, or None: reporting a failure must not fail."""
    try:
        ready: Json = msgspec.json.decode(encode(data))
    except (TypeError, ValueError, RecursionError, OverflowError):
        logger.exception(
            "the data of a failure can't be encoded", extra={"event": "request.failed"}
        )
        return {}
    return ready
