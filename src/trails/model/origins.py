"""Where a call comes from: the surface, and the trace of the caller that it belongs to.

A surface says so before it hands a request on; the record of the call takes it from here. A trace
is that of W3C Trace Context, whose ``traceparent`` a caller sends as a header or in ``_meta``.
While a call runs, ``CURRENT_CALL`` has it, in its threads too: lines of the server's log say whose
they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

TRACEPARENT: Final = "traceparent"
_trace = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?").fullmatch
_NONE: Final = "0" * 32


class Origin(NamedTuple):
    """Where a call comes from."""

    surface: str = "python"
    """``mcp``, ``stdio``, ``rest``, ``cli`` or ``python``."""
    trace: str = ""
    """Thirty-two hexadecimal digits; empty if the caller sent none."""
    traceparent: str = ""
    """All that the caller sent of it: its own span is the parent of ours."""


_PYTHON: Final = Origin()
ORIGIN: Final[ContextVar[Origin]] = ContextVar("trails_origin", default=_PYTHON)
"""That of the request which is being answered."""


class CallInProgress(Protocol):
    """What is known of a call while it runs."""

    actor: str
    name: str
    origin: Origin

    @property
    def trace_id(self) -> str:
        """The trace of the caller, or one of its own."""


CURRENT_CALL: Final[ContextVar[tuple[str, CallInProgress] | None]] = ContextVar(
    "trails_call", default=None
)
"""The graph and the call that this context works for, if any."""


def current_trace() -> str:
    """The trace of the call that runs here; empty outside of calls."""
    found = CURRENT_CALL.get()
    return "" if found is None else found[1].trace_id


def parse_trace(traceparent: object) -> str:
    """The id of the trace in a ``traceparent``; empty if it is not one."""
    found = _trace(traceparent) if isinstance(traceparent, str) else None
    return "" if found is None or found[1] == _NONE else found[1]


def begin_request(surface: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Say where the request comes from that this task answers."""
    ORIGIN.set(read_origin(surface, headers))


def read_origin(surface: str, headers: Iterable[tuple[bytes, bytes]]) -> Origin:
    """Where a request with these headers comes from."""
    name = TRACEPARENT.encode()
    sent = next((value for key, value in headers if key == name), b"").decode("latin-1")
    trace = parse_trace(sent) if sent else ""
    return Origin(surface, trace, sent if trace else "")


def adopt_trace(traceparent: object) -> None:
    """Take the trace that a message names itself, if it does."""
    trace = parse_trace(traceparent)
    if trace:
        ORIGIN.set(ORIGIN.get()._replace(trace=trace, traceparent=str(traceparent)))
