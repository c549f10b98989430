"""Shape the outcome of a request: a result as JSON text, an exception as a failure.

``shape_of`` writes the result of a capability, ``show_answer`` that of a query; every surface
passes the text on. ``failure_of`` is the one place where an exception becomes a failure that a
caller can act on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from trails.engine.session.results import conformer, encoded
from trails.errors import (
    BudgetError,
    DeniedError,
    FieldError,
    LogUnavailableError,
    OutcomeUnknownError,
    ReadOnlyError,
    RevokedError,
    StorageError,
    StorageFullError,
    TrailsError,
    ValidationError,
)
from trails.imports import later
from trails.model.constraints import showable
from trails.model.history import Activity
from trails.model.iris import Names
from trails.model.kinds import BigInt, kind_of
from trails.model.operations.graph import QueryResult
from trails.model.origins import current_trace
from trails.model.results import Failure, FailureKind, QueryAnswer
from trails.model.types import ANY, ValueType
from trails.projections.tools import RESULT, is_wrapped
from trails.registry.registry import Declared
from trails.request.fitting import Locate, Page, nowhere

if TYPE_CHECKING:
    from trails.request import repair
    from trails.request.repair import Repaired
else:
    repair = later("trails.request.repair")


def show_answer(answer: QueryAnswer, commit: str = "", locate: Locate = nowhere) -> Page:
    """The result of a query that reads; the rest of it is read at the same commit."""
    notice = answer.notice
    if answer.truncated is not None:
        notice = (
            f"{notice}. The rows after these: the same query with ORDER BY, "
            f"OFFSET {len(answer.rows)} and a LIMIT"
        )
    result = QueryResult(
        answer.columns,
        tuple(plain_rows(answer)),
        answer.truncated is not None,
        answer.truth,
        notice,
    )

    def changes(at: int) -> Mapping[str, object] | None:
        if at >= len(answer.rows):
            return None
        return {"offset": at, "branch": None, "snapshot": commit}

    return Page(result, "rows", changes, len(answer.rows), locate=locate)


def plain_rows(answer: QueryAnswer) -> list[dict[str, object]]:
    """Its rows as JSON values."""
    return [{name: _cell(value) for name, value in row.items()} for row in answer.rows]


def _cell(value: object) -> object:
    """The JSON form of a value; never silently null."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, BigInt):
        return int(value)
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return list(value)
    kind = kind_of(value)
    return str(value) if kind is None else kind.lexical(value)


Shape = Callable[[object, Declared | None], bytes]
"""(result, visible declarations; None means all) → JSON text."""


def shape_of(name: str, output: ValueType | None, names: Names) -> Shape:
    """How results of a capability are written; a result that is not an object is wrapped in one."""
    loose = output is not None and output.kind == ANY and not output.nullable
    wrapped = is_wrapped(output)

    conform = conformer(name, output)

    def shape(result: object, declared: Declared | None) -> bytes:
        body = encoded(names, conform(result), declared)
        if wrapped or (loose and body[:1] != b"{"):
            return b'{"%s":%s}' % (RESULT.encode(), body)
        if body[:1] != b"{":
            found = body[:60].decode(errors="replace")
            raise TrailsError(
                f"{name} declares that it returns {output}, but returned {found}; correct it"
            )
        return body

    return shape


def shape_object(names: Names) -> Shape:
    """How the object or page that a built-in returns is written."""

    def shape(result: object, declared: Declared | None) -> bytes:
        return encoded(names, result.whole() if isinstance(result, Page) else result, declared)

    return shape


_KINDS: Final[Mapping[FailureKind, type[TrailsError]]] = {
    "denied": DeniedError,
    "budget": BudgetError,
    "unauthenticated": RevokedError,
}
_MOST_FIELDS: Final = 200
_SPELLED: Final = 500
"""Corrected arguments up to this length are repeated in the message."""
_OUTAGES: Final = (ReadOnlyError, StorageFullError, LogUnavailableError, OutcomeUnknownError)
_LOG_AWAY: Final = "The database server of the log does not answer. Nothing was written; try again."
_logger: Final = logging.getLogger("trails")


def failure_of(error: BaseException, name: str) -> Failure:
    """The failure that a caller gets for an error."""
    if isinstance(error, ValidationError):
        return invalid(error, repair.Repaired(repair.suggest_each(error.fields)))
    if isinstance(error, _OUTAGES):
        _logger.warning(
            "%s was refused: %s", name, error.message, extra={"event": "call.unwritable"}
        )
        # Where the server of the log is, and what it said, is for those who run this one.
        away = isinstance(error, LogUnavailableError)
        message = _LOG_AWAY if away else error.message
        return Failure("semantic", error.code, message, plain_data(error.data))
    if isinstance(error, TrailsError) and not isinstance(error, StorageError):
        return Failure(_kind_of(error), error.code, error.message, plain_data(error.data))
    return _internal(error, name)


def _kind_of(error: TrailsError) -> FailureKind:
    for kind, error_type in _KINDS.items():
        if isinstance(error, error_type):
            return kind
    return "semantic"


def near_name(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, or nothing."""
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


UNKNOWN: Final = "unknown"
"""The code of what does not exist, or may not be seen."""


def unknown_tool(name: str) -> Failure:
    """The failure for an unknown tool; the same for a denied one."""
    return Failure("unknown", UNKNOWN, f"unknown tool: {name}")


MASKED: Final = "masked"
"""The outcome of a call that was answered as unknown because a policy denies it."""


def unmask(activity: Activity) -> Activity:
    """An activity as its own actor may see it: a denied call looks unknown."""
    unknown = unknown_tool(activity.name)
    if activity.outcome not in {MASKED, unknown.code}:
        return activity
    return msgspec.structs.replace(activity, outcome=unknown.code, detail=unknown.message)


def invalid(error: ValidationError, repaired: Repaired) -> Failure:
    """The failure for wrong arguments: all problems, with corrections if there are any."""
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
    """The data of an error as JSON values; other values become text."""
    plain: dict[str, object] = msgspec.to_builtins(dict(data), str_keys=True, enc_hook=str)
    return plain


def _internal(error: BaseException, name: str) -> Failure:
    trace = current_trace() or uuid4().hex
    _logger.error(
        "%s failed (trace %s)", name, trace, exc_info=error, extra={"event": "call.failed"}
    )
    code = error.code if isinstance(error, TrailsError) else "internal"
    return Failure(
        "internal",
        code,
        f"{name} failed: internal error (trace {trace}); details are in the server log",
        {"trace_id": trace},
    )
