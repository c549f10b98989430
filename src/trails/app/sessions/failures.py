"""Failures that were told by a kernel, as the errors that they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from trails.errors import FieldError, TrailsError, ValidationError
from trails.model.outcomes import Failure


def error_of(failure: Failure) -> TrailsError:
    """The error that a failure tells of, with its code, its message and its data."""
    fields = _fields(failure.data)
    if failure.kind == "validation" or (failure.code == ValidationError.code and fields):
        error: TrailsError = ValidationError(fields)
    else:
        kind = _CLASSES.get(failure.code, TrailsError)
        error = TrailsError.__new__(kind)
        TrailsError.__init__(error, failure.message)
    error.code = failure.code
    error.message = failure.message
    error.data = failure.data
    return error


def _fields(data: Mapping[str, object]) -> tuple[FieldError, ...]:
    try:
        return msgspec.convert(data.get("fields", ()), tuple[FieldError, ...])
    except msgspec.ValidationError:
        return ()


def _all(kind: type[TrailsError]) -> Iterator[type[TrailsError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _all(each)


_CLASSES = {each.code: each for each in _all(TrailsError)}
