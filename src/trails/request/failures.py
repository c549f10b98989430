"""The one place where an exception becomes a failure that a caller can act on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

import msgspec

from trails.errors import (
    BudgetError,
    DeniedError,
    FieldError,
    StorageError,
    TrailsError,
    ValidationError,
)
from trails.model.constraints import showable
from trails.model.outcomes import Failure, FailureKind

_KINDS: Final[Mapping[FailureKind, type[TrailsError]]] = {
    "denied": DeniedError,
    "budget": BudgetError,
}
_MOST_FIELDS: Final = 200
_logger: Final = logging.getLogger("trails")


def failure_of(error: BaseException, name: str) -> Failure:
    """What a caller of a tool is told of an error."""
    if isinstance(error, ValidationError):
        data = {**plain_data({**error.data, "fields": ()}), "fields": field_data(error)}
        return Failure("validation", error.code, error.message, data)
    if isinstance(error, TrailsError) and not isinstance(error, StorageError):
        return Failure(_kind_of(error), error.code, error.message, plain_data(error.data))
    return _internal(error, name)


def _kind_of(error: TrailsError) -> FailureKind:
    for kind, error_type in _KINDS.items():
        if isinstance(error, error_type):
            return kind
    return "semantic"


def unknown_tool(name: str) -> Failure:
    """No such tool: the same whatever the reason."""
    return Failure("unknown", "unknown", f"unknown tool: {name}")


def field_data(error: ValidationError) -> list[dict[str, object]]:
    """Every violation, ready for JSON."""
    return [_field(each) for each in error.fields[:_MOST_FIELDS]]


def _field(error: FieldError) -> dict[str, object]:
    return {
        "field": error.field,
        "code": error.code,
        "message": error.message,
        "value": showable(error.value),
        "constraint": showable(error.constraint),
    }


def plain_data(data: Mapping[str, object]) -> Mapping[str, object]:
    """An error's data as JSON values; what has no such form is shown as text."""
    plain: dict[str, object] = msgspec.to_builtins(dict(data), str_keys=True, enc_hook=str)
    return plain


def _internal(error: BaseException, name: str) -> Failure:
    trace = str(uuid4())
    _logger.error("%s failed (trace %s)", name, trace, exc_info=error)
    code = error.code if isinstance(error, TrailsError) else "internal"
    return Failure(
        "internal",
        code,
        f"{name} failed inside the server; its log says why under the trace id {trace}",
        {"trace_id": trace},
    )
