"""``trails top``: what a running server does, live: calls, writers, workers, subscribers, memory.

It reads the metrics of the server again and again (``model.metrics``) and shows what happened in
between. Into a file or pipe it prints one picture, of the time since the server was started.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from shutil import get_terminal_size
from time import sleep
from typing import Annotated, Final, NamedTuple

import typer

from trails.errors import UnreachableError
from trails.model.metrics import GraphMetrics, ServerMetrics, quantile
from trails.surfaces.cli.operations import Operations, ProjectLocation
from trails.surfaces.cli.options import FolderOption, JsonOption, ServerOption, place_of
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Part, Reporting, text_lines
from trails.surfaces.cli.output.tables import TextTable
from trails.surfaces.cli.values import size

_BEGIN: Final = "\x1b[?1049h\x1b[?25l"
"""Switch to the other screen of a terminal, without a cursor."""
_AGAIN: Final = "\x1b[H\x1b[J"
"""Clear it."""
_END: Final = "\x1b[?25h\x1b[?1049l"
"""Switch back."""
_OTHER_LINES: Final = 9
"""Lines of a picture that are neither graphs nor tools."""


def add_top_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(epilog="Example: trails top --server https://graph.example.org")
    def top(
        *,
        interval: Annotated[
            float, typer.Option(help="Seconds between two pictures.", min=0.2, max=60)
        ] = 2.0,
        project: FolderOption = None,
        server: ServerOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show what a running server does: calls, writers, workers, subscribers, memory."""
        with Reporting(as_json=as_json) as report:
            place = place_of(project, server)
            found = operations.metrics(place)
            report.value = found
            if as_json or not sys.stdout.isatty():
                report.text = list(_picture(Interval(found, None), None))
                return
            report.silent = True
            _follow(operations, place, found, interval)


def _follow(
    operations: Operations, place: ProjectLocation, found: ServerMetrics, interval: float
) -> None:
    """Show one picture after the other until Ctrl-C; a server that is away is waited for."""
    before: ServerMetrics | None = None
    notice = ""
    sys.stdout.write(_BEGIN)
    try:
        while True:
            height = get_terminal_size().lines
            shown = list(_picture(Interval(found, before), height, notice))
            lines = list(text_lines(shown, sys.stdout))
            sys.stdout.write(_AGAIN + "\n".join(lines[:height]))
            sys.stdout.flush()
            sleep(interval)
            try:
                before, found, notice = found, operations.metrics(place), ""
            except UnreachableError as error:
                notice = error.message
    except KeyboardInterrupt:
        return
    finally:
        sys.stdout.write(_END)
        sys.stdout.flush()


class ToolCalls(NamedTuple):
    """The calls of one tool within an interval."""

    graph: str
    tool: str
    calls: int
    failed: int
    classes: tuple[int, ...]
    """By duration."""


class Interval:
    """What happened between two moments of a server, or since its start."""

    def __init__(self, now: ServerMetrics, before: ServerMetrics | None) -> None:
        if before is not None and before.process.started != now.process.started:
            before = None  # it was restarted, and counts anew
        self.now = now
        self._before = before
        begun = now.process.started if before is None else before.time
        self.seconds = max(now.time - begun, 0.001)
        self.is_since_start = before is None

    def _was(self, graph: str) -> GraphMetrics:
        known = () if self._before is None else self._before.graphs
        return next((each for each in known if each.graph == graph), GraphMetrics(graph=graph))

    def tools(self) -> list[ToolCalls]:
        """The tools that were called, those with the most calls first."""
        found: dict[tuple[str, str], ToolCalls] = {}
        for graph in self.now.graphs:
            was = {
                (each.tool, each.surface, each.outcome): each.classes
                for each in self._was(graph.graph).calls
            }
            for each in graph.calls:
                old = was.get((each.tool, each.surface, each.outcome), (0,) * len(each.classes))
                classes = tuple(new - begun for new, begun in zip(each.classes, old, strict=True))
                key, calls = (graph.graph, each.tool), sum(classes)
                failed = 0 if each.outcome == "ok" else calls
                known = found.get(key, ToolCalls(*key, 0, 0, (0,) * len(classes)))
                joined = tuple(map(sum, zip(known.classes, classes, strict=True)))
                found[key] = ToolCalls(*key, known.calls + calls, known.failed + failed, joined)
        called = [each for each in found.values() if each.calls]
        return sorted(called, key=lambda each: (-each.calls, each.graph, each.tool))

    def commits(self, graph: GraphMetrics) -> int:
        """How many were made on main."""
        return 0 if self.is_since_start else graph.commits - self._was(graph.graph).commits

    @property
    def processor(self) -> float:
        """The share of one core that the process used."""
        used = 0.0 if self._before is None else self._before.process.cpu_seconds
        return (self.now.process.cpu_seconds - used) / self.seconds


def _picture(found: Interval, height: int | None, notice: str = "") -> Iterator[Part]:
    """One picture, with as many tools as fit into a height."""
    tools = found.tools()
    shown = tools
    if height is not None:
        room = height - _OTHER_LINES - len(found.now.graphs) - bool(notice)
        shown = tools[: max(1, room)]
    yield from _summary(found, tools)
    yield ""
    yield _graphs(found, tools)
    yield ""
    yield _tools(found, shown) if shown else "[dim]No calls.[/]"
    if len(shown) < len(tools):
        yield f"[dim]… and {len(tools) - len(shown)} more tools[/]"
    if notice:
        yield f"[yellow]{escape(notice)}[/]"


def _summary(found: Interval, tools: list[ToolCalls]) -> Iterator[str]:
    now, process = found.now, found.now.process
    uptime = timedelta(seconds=int(now.time - process.started))
    name = escape(now.project or "A server")
    span = "since the start" if found.is_since_start else f"in the last {found.seconds:.1f} s"
    yield f"[bold]{name}[/] · Trails {escape(now.version)} · pid {process.pid} · up {uptime}"
    failed = sum(each.failed for each in tools)
    classes = _join(tools)
    yield (
        f"calls {_rate(sum(classes), found)} ({_rate(failed, found)} failed), "
        f"p50 {_duration(classes, 0.5)}, p95 {_duration(classes, 0.95)}, "
        f"p99 {_duration(classes, 0.99)} {span}"
    )
    free = "" if now.disk_free_bytes is None else f" · disk {size(now.disk_free_bytes)} free"
    yield (
        f"processor {found.processor:.0%} · memory {size(process.memory_bytes)} · "
        f"threads {process.threads} · files {process.open_files} · "
        f"connections {process.connections}{free}"
    )


def _graphs(found: Interval, tools: list[ToolCalls]) -> TextTable:
    table = TextTable(
        *("graph", "calls/s", "running", "queued", "commits/s", "writers", "workers"),
        *("subscribers", "slow"),
    )
    for graph in found.now.graphs:
        calls = sum(each.calls for each in tools if each.graph == graph.graph)
        workers = graph.sandbox
        waiting = graph.writers_waiting
        table.add_row(
            escape(graph.graph) or "all",
            _number(calls, found),
            str(graph.running),
            str(graph.queued),
            _number(found.commits(graph), found),
            f"{graph.writers}" + (f" + {waiting} waiting" if waiting else ""),
            f"{workers.running} of {workers.running + workers.idle + workers.starting}"
            + (f" + {workers.waiting} waiting" if workers.waiting else ""),
            f"{graph.subscribers} ({graph.watched} URIs)",
            str(graph.slow_queries),
        )
    return table


def _tools(found: Interval, tools: list[ToolCalls]) -> TextTable:
    table = TextTable("tool", "graph", "calls/s", "failed/s", "p50", "p95", "p99")
    for each in tools:
        table.add_row(
            escape(each.tool) or ("(unknown tools)" if each.graph else "all"),
            escape(each.graph) or "all",
            _number(each.calls, found),
            _number(each.failed, found),
            *(_duration(each.classes, share) for share in (0.5, 0.95, 0.99)),
        )
    return table


def _join(tools: list[ToolCalls]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(each.classes for each in tools), strict=True)))


def _rate(calls: int, found: Interval) -> str:
    return f"{_number(calls, found)}/s"


def _number(calls: int, found: Interval) -> str:
    rate = calls / found.seconds
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _duration(classes: tuple[int, ...], share: float) -> str:
    """A duration that a share of calls did not exceed."""
    seconds = quantile(classes, share)
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
