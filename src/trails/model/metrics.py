"""Metrics of a server: how many calls, how long they took, and what is busy now.

``CallCounter`` counts where a call ends, on whatever surface it came. The structs are one moment of
a server; ``/metrics`` writes them for Prometheus, ``trails top`` shows them, OpenTelemetry exports
them. None has the name of an actor, or anything that a caller sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

METRICS_PATH: Final = "/metrics"
"""The path of metrics, below the root of a server."""
BOUNDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of the classes of durations, in seconds; one more class is above them all."""
_NANOSECONDS: Final = tuple(round(each * 1e9) for each in BOUNDS)
_TOTAL: Final = len(BOUNDS) + 1
"""The place of the sum of durations in a row, after the classes."""
UNKNOWN_TOOL: Final = ""
"""The name under which calls of unknown tools are counted: names can be invented."""
UNKNOWN_OUTCOME: Final = "unknown"
"""Their outcome."""
_MOST: Final = 5_000
"""Rows of a graph; more would be a mistake of an application, and are counted together."""
_OTHER: Final = "other"
"""Their outcome."""


class CallCount(msgspec.Struct, frozen=True):
    """Calls of one tool over one surface that ended alike."""

    tool: str
    """Empty for tools that do not exist."""
    surface: str
    outcome: str
    """``ok`` or the code of an error."""
    classes: tuple[int, ...]
    """How many calls are in each class of durations."""
    seconds: float
    """The sum of their durations."""

    @property
    def calls(self) -> int:
        return sum(self.classes)


class CallCounter:
    """Counts the calls of one graph, from any thread.

    There is no lock: adding to an item of a list is one step for other threads, as long as the
    interpreter runs one thread at a time. A count that gets lost elsewhere would do no harm.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], list[int]] = {}

    def add(self, tool: str, surface: str, outcome: str, nanoseconds: int) -> None:
        """Count a call that has ended."""
        row = self._rows.get((tool, surface, outcome))
        if row is None:
            row = self._begin(tool, surface, outcome)
        row[bisect_left(_NANOSECONDS, nanoseconds)] += 1
        row[_TOTAL] += nanoseconds

    def _begin(self, tool: str, surface: str, outcome: str) -> list[int]:
        if len(self._rows) >= _MOST:
            tool, outcome = UNKNOWN_TOOL, _OTHER
        elif outcome == UNKNOWN_OUTCOME:
            tool = UNKNOWN_TOOL
        return self._rows.setdefault((tool, surface, outcome), [0] * (_TOTAL + 1))

    def counts(self) -> Iterator[CallCount]:
        """What was counted so far."""
        for key, row in sorted(self._rows.items()):
            yield CallCount(*key, tuple(row[:_TOTAL]), row[_TOTAL] / 1e9)


class SandboxCount(msgspec.Struct, frozen=True):
    """The processes that run untrusted text."""

    running: int = 0
    idle: int = 0
    starting: int = 0
    waiting: int = 0
    """Queries that wait for a process."""


def add_workers(counts: Iterable[SandboxCount]) -> SandboxCount:
    """Several groups of processes as one."""
    rows = [msgspec.structs.astuple(each) for each in counts]
    return SandboxCount(*map(sum, zip(*rows, strict=True)))


class GraphMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One graph at one moment."""

    graph: str
    calls: tuple[CallCount, ...] = ()
    """Since the server was started."""
    running: int = 0
    """Calls that are under way."""
    threads: int = 0
    """Threads that work for calls."""
    queued: int = 0
    """Calls that wait for a thread."""
    commits: int = 0
    """The position of main in the log."""
    writers: int = 0
    """Whether somebody writes: 0 or 1."""
    writers_waiting: int = 0
    """Who wait for their turn to write."""
    sandbox: SandboxCount = SandboxCount()
    subscribers: int = 0
    """Clients that watch something."""
    watched: int = 0
    """URIs that they watch."""
    activities_waiting: int = 0
    """Activities that are not on the disk yet."""
    slow_queries: int = 0
    """Queries above the threshold of the slow-query log, since the server was started."""


class ProcessMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The process that serves."""

    pid: int
    started: float
    """Seconds since 1970."""
    cpu_seconds: float
    memory_bytes: int
    """Resident memory, without the processes of the sandbox."""
    threads: int
    open_files: int
    connections: int = 0
    """Connections over HTTP that are open."""
    responses: dict[int, int] = {}
    """Answers over HTTP by status, those included that reach no graph."""


class ServerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """A server at one moment: what one caller may see of it."""

    version: str
    project: str
    time: float
    """Seconds since 1970."""
    process: ProcessMetrics
    disk_free_bytes: int | None = None
    graphs: tuple[GraphMetrics, ...] = ()
    """Those that the caller administers; without names, one for all."""


def add_up(graphs: Sequence[GraphMetrics]) -> GraphMetrics:
    """All graphs as one, without the names of graphs and tools.

    Calls have succeeded or failed: a caller could see by its own which tools exist but are denied.
    """
    rows: dict[tuple[str, str], list[CallCount]] = {}
    for graph in graphs:
        for each in graph.calls:
            outcome = "ok" if each.outcome == "ok" else "failed"
            rows.setdefault((each.surface, outcome), []).append(each)
    calls = tuple(
        CallCount(
            UNKNOWN_TOOL,
            surface,
            outcome,
            tuple(map(sum, zip(*(each.classes for each in found), strict=True))),
            sum(each.seconds for each in found),
        )
        for (surface, outcome), found in sorted(rows.items())
    )
    return GraphMetrics(
        graph="",
        calls=calls,
        sandbox=add_workers(each.sandbox for each in graphs),
        **{name: sum(getattr(each, name) for each in graphs) for name in _NUMBERS},
    )


_NUMBERS: Final = tuple(
    each.name for each in msgspec.structs.fields(GraphMetrics) if each.type in {int, "int"}
)


def quantile(classes: Sequence[int], share: float) -> float | None:
    """The duration in seconds below which a share of calls are, estimated within their class."""
    wanted = share * sum(classes)
    if not wanted:
        return None
    below = 0
    for at, count in enumerate(classes):
        if count and below + count >= wanted:
            low = BOUNDS[at - 1] if at else 0.0
            high = BOUNDS[at] if at < len(BOUNDS) else BOUNDS[-1]
            return low + (high - low) * (wanted - below) / count
        below += count
    return BOUNDS[-1]
