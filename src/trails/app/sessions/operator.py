"""Operations that the process carries out which serves a folder, for the one who owns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from trails.app.sessions.connection import Address, Connection
from trails.app.sessions.failures import error_of
from trails.app.upkeep import Operation
from trails.errors import UnreachableError
from trails.model.outcomes import Failure

_A = TypeVar("_A", bound=msgspec.Struct)
_R = TypeVar("_R")


class _Line(msgspec.Struct):
    tell: str | None = None
    error: dict[str, object] | None = None
    done: msgspec.Raw = msgspec.Raw()


def ask_owner(
    address: Address, operation: Operation[_A, _R], given: _A, tell: Callable[[str], None]
) -> _R:
    """The result of an operation in the serving process, asked for with the owner's key."""
    connection = Connection(address, operator=True)
    for text in connection.lines(f"/operator/{operation.name}", given):
        line = msgspec.json.decode(text, type=_Line)
        if line.tell is not None:
            tell(line.tell)
        elif line.error is not None:
            raise error_of(msgspec.convert({"kind": "semantic", **line.error}, Failure))
        elif bytes(line.done):
            return msgspec.json.decode(line.done, type=operation.gives)
    raise UnreachableError(
        f"{address.name} ended before {operation.name} was done; run the command again"
    )
