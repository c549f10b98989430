"""Project metrics into the text format of Prometheus.

Pure. The format is that of ``text/plain; version=0.0.4``, which every scraper reads; it has no
library here, since it is lines of names, labels and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trails.model.metrics import BOUNDS, CallCount, GraphMetrics, ServerMetrics

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
Sample = tuple[Labels, float]

_GAUGES: Final = {
    "calls_running": ("running", "Calls under way."),
    "calls_queued": ("queued", "Calls that wait for a thread."),
    "threads_busy": ("threads", "Threads that work for calls."),
    "writers": ("writers", "Whether somebody holds the writer's lock."),
    "writers_waiting": ("writers_waiting", "Who wait for the writer's lock."),
    "subscribers": ("subscribers", "Clients that watch something."),
    "watched_uris": ("watched", "URIs that they watch."),
    "activities_waiting": ("activities_waiting", "Activities that are not on the disk yet."),
}
_COUNTERS: Final = {
    "commits_total": ("commits", "The position of main in the log."),
    "slow_queries_total": ("slow_queries", "Queries above the threshold of the slow-query log."),
}


def project_prometheus(found: ServerMetrics) -> str:
    """The whole document."""
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: ServerMetrics) -> Iterator[str]:
    graphs, process = found.graphs, found.process
    build = {"version": found.version}
    if found.project:
        build["project"] = found.project
    yield from _family("trails_build_info", "gauge", "The version that runs.", [(build, 1)])
    yield from _calls(graphs)
    for kind, families in (("gauge", _GAUGES), ("counter", _COUNTERS)):
        for name, (attribute, text) in families.items():
            samples = [(_of(graph), getattr(graph, attribute)) for graph in graphs]
            yield from _family(f"trails_{name}", kind, text, samples)
    workers = [
        ({**_of(graph), "state": state}, getattr(graph.sandbox, state))
        for graph in graphs
        for state in ("running", "idle", "starting")
    ]
    yield from _family("trails_sandbox_workers", "gauge", "Processes of the sandbox.", workers)
    waiting: list[Sample] = [(_of(graph), graph.sandbox.waiting) for graph in graphs]
    text = "Queries that wait for a process of the sandbox."
    yield from _family("trails_sandbox_waiting", "gauge", text, waiting)
    responses = [({"status": str(status)}, n) for status, n in sorted(process.responses.items())]
    text = "Answers over HTTP, refusals included."
    yield from _family("trails_http_responses_total", "counter", text, responses)
    simple = (
        ("trails_http_connections", "gauge", "Open connections.", process.connections),
        ("trails_disk_free_bytes", "gauge", "Free space for the data.", found.disk_free_bytes),
        ("process_cpu_seconds_total", "counter", "Processor time.", process.cpu_seconds),
        ("process_resident_memory_bytes", "gauge", "Resident memory.", process.memory_bytes),
        ("process_open_fds", "gauge", "Open files and sockets.", process.open_files),
        ("process_threads", "gauge", "Threads.", process.threads),
        ("process_start_time_seconds", "gauge", "Start, in seconds since 1970.", process.started),
    )
    for name, kind, text, value in simple:
        if value is not None:
            yield from _family(name, kind, text, [({}, value)])


def _calls(graphs: Iterable[GraphMetrics]) -> Iterator[str]:
    """How many calls ended how, and how long those of each tool took."""
    counted: list[Sample] = []
    durations: dict[tuple[str, str], list[CallCount]] = {}
    for graph in graphs:
        for each in graph.calls:
            labels = {**_tool(graph, each.tool), "surface": each.surface, "outcome": each.outcome}
            counted.append((labels, each.calls))
            durations.setdefault((graph.graph, each.tool), []).append(each)
    yield from _family("trails_calls_total", "counter", "Calls that have ended.", counted)
    name = "trails_call_duration_seconds"
    yield from _head(name, "histogram", "How long calls took.")
    for (named, tool), found in durations.items():
        labels = {"graph": named, "tool": tool} if named else {}
        total = 0
        for at, count in enumerate(map(sum, zip(*(each.classes for each in found), strict=True))):
            total += count
            bound = f"{BOUNDS[at]:g}" if at < len(BOUNDS) else "+Inf"
            yield _line(f"{name}_bucket", {**labels, "le": bound}, total)
        yield _line(f"{name}_sum", labels, sum(each.seconds for each in found))
        yield _line(f"{name}_count", labels, total)


def _of(graph: GraphMetrics) -> Labels:
    return {"graph": graph.graph} if graph.graph else {}


def _tool(graph: GraphMetrics, tool: str) -> Labels:
    return {"graph": graph.graph, "tool": tool} if graph.graph else {}


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    found = list(samples)
    if found:
        yield from _head(name, kind, text)
        yield from (_line(name, *sample) for sample in found)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    number = str(value) if isinstance(value, int) else repr(float(value))
    return f"{name}{{{shown}}} {number}" if shown else f"{name} {number}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
