"""``/batch``: several calls in one request, done one after the other.

Each call is authorized, admitted, recorded and answered on its own, with the status that it would
have alone, and a later one sees what an earlier one has written. There is no transaction around
them: a capability decides itself what it commits, and holding the one writer of a graph while the
code of several capabilities runs would stop everybody else. What has to be in one commit is sent as
one list of operations to ``/mutate``, or is a capability.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from trails.errors import FieldError, ValidationError
from trails.model.results import Failure, Outcome
from trails.projections.problems import project_problem
from trails.request.answers import failure_of
from trails.request.operations import OPERATIONS
from trails.surfaces.rest.bodies import read_object
from trails.surfaces.rest.conditions import header_arguments
from trails.surfaces.rest.replies import JSON, Refused, status_of
from trails.surfaces.rest.routing import RestCall

MOST_CALLS: Final = 100
"""Calls of one batch."""
_LARGEST: Final = 32 << 20
"""Bytes of results after which no further call is made."""
_RECORDS: Final = frozenset(each.name for each in OPERATIONS if each.routes)
"""Built-ins, which give programs the same as their own routes."""
_MEMBERS: Final = frozenset({"calls", "stop_on_error"})


class BatchedCall(msgspec.Struct, frozen=True):
    """One call of a batch."""

    name: str
    arguments: Mapping[str, object]


async def batch(call: RestCall) -> Response:
    """Make the calls of the body in order; a result or a problem for each."""
    header_arguments(call.request, ())  # what is about one call is an argument of that call
    calls, stops = _read(await read_object(call))
    results: list[bytes] = []
    size, refused = 0, None
    for each in calls:
        if refused is None:
            outcome = await _make(call, each)
        else:
            outcome = refused
        results.append(_show(outcome))
        size += len(results[-1])
        if refused is None and stops and isinstance(outcome, Failure):
            refused = _not_made("an earlier call failed, and stop_on_error is true")
        elif refused is None and size > _LARGEST:
            refused = _not_made(f"the results before it have more than {_LARGEST >> 20} MiB")
    return Response(b'{"results":[%b]}' % b",".join(results), media_type=JSON)


async def _make(call: RestCall, wanted: BatchedCall) -> Outcome:
    make = call.backend.transfers.record if wanted.name in _RECORDS else call.backend.invoke
    return await make(call.actor, wanted.name, wanted.arguments)


def _show(outcome: Outcome) -> bytes:
    if not isinstance(outcome, Failure):
        return b'{"status":200,"result":%b}' % outcome.body
    status = status_of(outcome)
    problem = project_problem(status, outcome.code, outcome.message, outcome.data)
    return b'{"status":%d,"problem":%b}' % (status, problem)


def _not_made(why: str) -> Failure:
    return Failure("semantic", "not_executed", f"this call was not made: {why}")


def _read(body: Mapping[str, object]) -> tuple[list[BatchedCall], bool]:
    """The calls of a body, and whether they end with the first failure; or all that is wrong."""
    errors = list(_check(body))
    if errors:
        raise Refused(failure_of(ValidationError(errors), "batch"))
    calls = body["calls"]
    assert isinstance(calls, list)  # noqa: S101 - checked above
    found = [BatchedCall(each["name"], each.get("arguments") or {}) for each in calls]
    return found, body.get("stop_on_error") is True


def _check(body: Mapping[str, object]) -> Iterator[FieldError]:
    if body.get("atomic", False) is not False:
        yield FieldError(
            "atomic",
            "unsupported",
            "calls of a batch can't be atomic, because each commits on its own; send the changes "
            "as one list of operations to mutate, or write a capability",
            body["atomic"],
        )
    for name in sorted(body.keys() - _MEMBERS - {"atomic"}):
        message = f"{name[:100]!r} is not known; a batch has calls and stop_on_error"
        yield FieldError(name[:100], "unknown", message)
    if not isinstance(body.get("stop_on_error", False), bool):
        yield FieldError("stop_on_error", "datatype", "stop_on_error must be true or false")
    calls = body.get("calls")
    if not isinstance(calls, list) or not 1 <= len(calls) <= MOST_CALLS:
        yield FieldError(
            "calls",
            "length",
            f'calls must be a list of 1 to {MOST_CALLS} objects like {{"name": "graph_query", '
            '"arguments": {}}',
            constraint=MOST_CALLS,
        )
        return
    for at, each in enumerate(calls):
        yield from _check_call(f"calls[{at}]", each)


def _check_call(place: str, given: object) -> Iterator[FieldError]:
    if not isinstance(given, dict):
        yield FieldError(place, "datatype", f"{place} must be an object with name and arguments")
        return
    if not isinstance(given.get("name"), str):
        message = f"{place}.name must be the name of a capability, stored query or operation"
        yield FieldError(f"{place}.name", "required", message)
    if not isinstance(given.get("arguments", {}), dict):
        yield FieldError(f"{place}.arguments", "datatype", f"{place}.arguments must be an object")
    for name in sorted(given.keys() - {"name", "arguments"}):
        message = f"{name[:100]!r} is not known; a call has name and arguments"
        yield FieldError(f"{place}.{name[:100]}", "unknown", message)
