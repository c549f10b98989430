"""The one place where an exception becomes a failure that a caller can act on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final
from uuid import uuid4

import msgspec

from trails.errors import (
    BudgetError,
    DeniedError,
    FieldError,
    ReadOnlyError,
    RevokedError,
    StorageError,
    StorageFullError,
    TrailsError,
    ValidationError,
)
from trails.model.constraints import showable
from trails.model.history import Activity
from trails.model.results import Failure, FailureKind
from trails.request.repair import Repaired, suggest_each

_KINDS: Final[Mapping[FailureKind, type[TrailsError]]] = {
    "denied": DeniedError,
    "budget": BudgetError,
    "unauthenticated": RevokedError,
}
_MOST_FIELDS: Final = 200
_SPELLED: Final = 500
"""Characters of the longest corrected arguments that the message spells out too."""
_logger: Final = logging.getLogger("trails")


def failure_of(error: BaseException, name: str) -> Failure:
    """The failure that a caller gets for an error."""
    if isinstance(error, ValidationError):
        return invalid(error, Repaired(suggest_each(error.fields)))
    if isinstance(error, (ReadOnlyError, StorageFullError)):
        _logger.warning("%s was refused: %s", name, error.message)
        return Failure("semantic", error.code, error.message, plain_data(error.data))
    if isinstance(error, TrailsError) and not isinstance(error, StorageError):
        return Failure(_kind_of(error), error.code, error.message, plain_data(error.data))
    return _internal(error, name)


def _kind_of(error: TrailsError) -> FailureKind:
    for kind, error_type in _KINDS.items():
        if isinstance(error, error_type):
            return kind
    return "semantic"


def near_name(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest that exists, if one is near."""
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_tool(name: str) -> Failure:
    """No such tool: the same whatever the reason."""
    return Failure("unknown", "unknown", f"unknown tool: {name}")


MASKED: Final = "masked"
"""The outcome of a call that was answered as unknown because a policy denies it."""


def unmask(activity: Activity) -> Activity:
    """An activity as its own actor may know it: what was masked was unknown."""
    unknown = unknown_tool(activity.name)
    if activity.outcome not in {MASKED, unknown.code}:
        return activity
    return msgspec.structs.replace(activity, outcome=unknown.code, detail=unknown.message)


def invalid(error: ValidationError, repaired: Repaired) -> Failure:
    """The failure for broken rules: all of them, with corrections where there are any."""
    shown = error.fields[:_MOST_FIELDS]
    fields = [_field(each, at, repaired) for at, each in enumerate(shown)]
    data: dict[str, object] = {**plain_data({**error.data, "fields": ()}), "fields": fields}
    message = error.message
    if repaired.arguments is not None:
        data["corrected_arguments"] = repaired.arguments
        spelled = msgspec.json.encode(repaired.arguments).decode()
        if len(spelled) <= _SPELLED:
            says = "These arguments would pass" if repaired.certain else "Corrected arguments"
            stop = "" if message.endswith("?") else "."
            message = f"{message}{stop} {says}: {spelled}"
    return Failure("validation", error.code, message, data)


def _field(error: FieldError, at: int, repaired: Repaired) -> dict[str, object]:
    shown: dict[str, object] = {
        "field": error.field,
        "code": error.code,
        "message": error.message,
        "value": showable(error.value),
        "constraint": showable(error.constraint),
    }
    if at in repaired.suggestions:
        shown["suggestion"] = repaired.suggestions[at]
    return shown


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
        f"{name} failed: internal error (trace {trace}); details are in the server log.",
        {"trace_id": trace},
    )
