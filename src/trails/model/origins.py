"""Where a call comes from: the surface, the trace that it belongs to, what its caller knows.

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
AT_LEAST: Final = "trails-at-least"
"""The header with commits, separated by commas, that an answer must not be older than."""
COMMIT: Final = "trails-commit"
"""The header of answers with the commit that they show; with ``MADE``, that they have made."""
MADE: Final = "; made"
_trace = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?").fullmatch
_NONE: Final = "0" * 32
_TRACEPARENT: Final = TRACEPARENT.encode()
_AT_LEAST: Final = AT_LEAST.encode()
_LONGEST: Final = 100
"""Characters of what names a commit."""
MOST_COMMITS: Final = 8
"""Commits that an answer can be asked to include."""


class Origin(NamedTuple):
    """Where a call comes from."""

    surface: str = "python"
    """``mcp``, ``stdio``, ``rest``, ``cli`` or ``python``."""
    trace: str = ""
    """Thirty-two hexadecimal digits; empty if the caller sent none."""
    traceparent: str = ""
    """All that the caller sent of it: its own span is the parent of ours."""
    at_least: tuple[str, ...] = ()
    """The commits that the answer must not be older than."""


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
    sent = ""
    commits: tuple[str, ...] = ()
    for key, value in headers:
        if key == _TRACEPARENT:
            sent = value.decode("latin-1")
        elif key == _AT_LEAST:
            commits = split_commits(value.decode("latin-1"))
    trace = parse_trace(sent) if sent else ""
    return Origin(surface, trace, sent if trace else "", commits)


def split_commits(text: str) -> tuple[str, ...]:
    """The commits that a text names, separated by commas."""
    parts = text.split(",", MOST_COMMITS)[:MOST_COMMITS]
    named = (each.partition(";")[0].strip()[:_LONGEST] for each in parts)
    return tuple(each for each in named if each)


def adopt_trace(traceparent: object) -> None:
    """Take the trace that a message names itself, if it does."""
    trace = parse_trace(traceparent)
    if trace:
        ORIGIN.set(ORIGIN.get()._replace(trace=trace, traceparent=str(traceparent)))


def adopt_commits(at_least: object) -> None:
    """Take the commits that a message names as those that its answer must not be older than."""
    if isinstance(at_least, str) and at_least:
        ORIGIN.set(ORIGIN.get()._replace(at_least=split_commits(at_least)))
