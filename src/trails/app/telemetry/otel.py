"""OpenTelemetry: a span for each call and its queries, and metrics, sent to a collector by OTLP.

Imported only if ``[telemetry]`` names a collector; the libraries are the extra ``trails[otel]``. A
span continues the trace of the caller (``traceparent``), else it begins one whose id is that of the
call's activity, so the collector, the log and ``trails prov`` name the same trace. Spans have names
of graphs, tools and actors, and nothing that a caller sent.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import NoOpTracer, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from trails.app.settings import TelemetrySettings
from trails.engine.graph.activities import CallRecord
from trails.engine.graph.slow_queries import QueryKind, QueryTimer, SlowQueries
from trails.errors import TrailsError
from trails.model.metrics import BOUNDS, UNKNOWN_OUTCOME, GraphMetrics, ServerMetrics
from trails.model.origins import CURRENT_CALL
from trails.model.results import Failure

T = TypeVar("T")
_NAME: Final = "trails"
_SDK: Final = "mcp"
"""What the tracers of the MCP SDK are named after. Its spans quote error messages, and would
repeat ours."""
_LEAVING: Final = 3.0
"""Seconds that spans and metrics have to be sent when the server ends."""
_GAUGES: Final = {
    "running": "Calls under way.",
    "queued": "Calls that wait for a thread.",
    "writers_waiting": "Who wait for the writer's lock.",
    "subscribers": "Clients that watch something.",
    "activities_waiting": "Activities that are not on the disk yet.",
}
_propagator: Final = TraceContextTextMapPropagator()


class Telemetry:
    """The spans and metrics of this process."""

    def __init__(self, settings: TelemetrySettings, project: str, version: str) -> None:
        base = settings.otlp.rstrip("/")
        resource = Resource.create({"service.name": project, "service.version": version})
        self._closing: list[Callable[[], object]] = []
        self._tracer: Tracer | None = None
        if settings.traces:
            provider = _Provider(
                sampler=ParentBased(_Share(settings.sample)),
                resource=resource,
                id_generator=_TraceIds(),
                shutdown_on_exit=False,
            )
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces")))
            # Code of the project gets its tracers from here too.
            trace.set_tracer_provider(provider)
            self._tracer = provider.get_tracer(_NAME, version)
            self._closing.append(provider.shutdown)
        self._meters: MeterProvider | None = None
        if settings.metrics:
            reader = PeriodicExportingMetricReader(
                OTLPMetricExporter(f"{base}/v1/metrics"), settings.metrics_seconds * 1000
            )
            self._meters = MeterProvider([reader], resource, shutdown_on_exit=False)
            metrics.set_meter_provider(self._meters)
            self._closing.append(self._meters.shutdown)
            self._durations = self._meters.get_meter(_NAME, version).create_histogram(
                "trails.call.duration",
                "s",
                "How long calls took.",
                explicit_bucket_boundaries_advisory=BOUNDS,
            )

    # --- traces ------------------------------------------------------------------------

    async def trace(self, graph: str, call: CallRecord, work: Awaitable[T]) -> T:
        """Do the work of a call inside of a span."""
        if self._tracer is None:
            return await work
        CURRENT_CALL.set((graph, call))  # its id is that of a new trace
        span = self._tracer.start_span(
            call.name,
            _parent(call),
            SpanKind.SERVER,
            {
                "trails.graph": graph,
                "trails.tool": call.name,
                "trails.surface": call.origin.surface,
                "trails.kind": call.kind,
                "enduser.id": call.actor,
            },
        )
        token = contexts.attach(trace.set_span_in_context(span))
        outcome = "cancelled"
        try:
            found = await work
            outcome = found.code if isinstance(found, Failure) else "ok"
            return found
        finally:
            contexts.detach(token)
            _end(span, outcome)
            if call.generated and span.is_recording():
                span.set_attribute("trails.commits", call.generated)
            span.end()

    def time_queries(self, log: SlowQueries) -> SlowQueries:
        """The slow-query log of a graph, with a span for each query."""
        return log if self._tracer is None else _TracedQueries(log, self._tracer)

    # --- metrics -----------------------------------------------------------------------

    def count(self, graph: str, call: CallRecord, outcome: str, nanoseconds: int) -> None:
        """Count a call that has ended."""
        if self._meters is not None:
            labels = {
                "trails.graph": graph,
                "trails.tool": "" if outcome == UNKNOWN_OUTCOME else call.name,
                "trails.surface": call.origin.surface,
                "trails.outcome": outcome,
            }
            self._durations.record(nanoseconds / 1e9, labels)

    def measure(self, look: Callable[[], ServerMetrics | None]) -> None:
        """Send what is busy, as ``look`` finds it each time."""
        if self._meters is None:
            return
        meter = self._meters.get_meter(_NAME)

        def of_graphs(read: Callable[[GraphMetrics], Iterable[_Sample]]) -> _Callback:
            def observe(options: CallbackOptions) -> Iterable[Observation]:
                del options
                found = look()
                for graph in () if found is None else found.graphs:
                    for value, labels in read(graph):
                        yield Observation(value, {"trails.graph": graph.graph, **labels})

            return observe

        for name, text in _GAUGES.items():
            read = of_graphs(lambda graph, name=name: [(getattr(graph, name), {})])  # type: ignore[misc]
            meter.create_observable_gauge(f"trails.{name}", [read], description=text)
        meter.create_observable_gauge(
            "trails.sandbox.workers", [of_graphs(_workers)], description="Processes of the sandbox."
        )
        meter.create_observable_counter(
            "trails.commits",
            [of_graphs(lambda graph: [(graph.commits, {})])],
            description="The position of main in the log.",
        )

        def memory(options: CallbackOptions) -> Iterable[Observation]:
            del options
            found = look()
            return [] if found is None else [Observation(found.process.memory_bytes)]

        def processor(options: CallbackOptions) -> Iterable[Observation]:
            del options
            found = look()
            return [] if found is None else [Observation(found.process.cpu_seconds)]

        meter.create_observable_gauge("process.memory.usage", [memory], "By")
        meter.create_observable_counter("process.cpu.time", [processor], "s")

    def close(self) -> None:
        """Send what is left; a collector that does not answer is not waited for."""
        for shutdown in self._closing:
            ending = threading.Thread(target=shutdown, name="trails-telemetry", daemon=True)
            ending.start()
            ending.join(_LEAVING)


_Sample = tuple[float, Mapping[str, str]]
_Callback = Callable[[CallbackOptions], Iterable[Observation]]


def _workers(graph: GraphMetrics) -> Iterable[_Sample]:
    found = graph.sandbox
    return [(getattr(found, state), {"state": state}) for state in ("running", "idle", "starting")]


def _parent(call: CallRecord) -> contexts.Context | None:
    """The context of the caller's span, or of one that is open here already."""
    if trace.get_current_span().get_span_context().is_valid or not call.origin.traceparent:
        return None
    return _propagator.extract({"traceparent": call.origin.traceparent})


def _end(span: Span, outcome: str) -> None:
    span.set_attribute("trails.outcome", outcome)
    if outcome != "ok":
        span.set_attribute("error.type", outcome)
    if outcome in {"internal", "error"}:
        span.set_status(Status(StatusCode.ERROR))


class _Provider(TracerProvider):
    """Makes tracers for everybody but the MCP SDK."""

    def get_tracer(self, instrumenting_module_name: str, *given: object, **more: object) -> Tracer:
        if instrumenting_module_name.startswith(_SDK):
            return NoOpTracer()
        return super().get_tracer(instrumenting_module_name, *given, **more)  # type: ignore[arg-type]


class _TraceIds(RandomIdGenerator):
    """Gives a new trace the id of the call's activity."""

    def generate_trace_id(self) -> int:
        found = CURRENT_CALL.get()
        return super().generate_trace_id() if found is None else int(found[1].trace_id, 16)


class _Share(Sampler):
    """Samples a share of the traces that begin here, whatever their ids: ours are not random."""

    def __init__(self, share: float) -> None:
        self._share = share

    def should_sample(
        self,
        parent_context: contexts.Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: object = None,
        links: Sequence[trace.Link] | None = None,
        trace_state: trace.TraceState | None = None,
    ) -> SamplingResult:
        del parent_context, trace_id, name, kind, attributes, links, trace_state
        sampled = random.random() < self._share  # noqa: S311 - not for secrets
        return SamplingResult(Decision.RECORD_AND_SAMPLE if sampled else Decision.DROP)

    def get_description(self) -> str:
        return f"Share({self._share:g})"


class _TracedQueries(SlowQueries):
    """A slow-query log that makes a span of each query."""

    __slots__ = ("_tracer",)

    def __init__(self, log: SlowQueries, tracer: Tracer) -> None:
        super().__init__()
        self.threshold, self.texts = log.threshold, log.texts
        self._tracer = tracer

    def watch(self, kind: QueryKind, branch: str, text: object) -> QueryTimer:
        return _TracedTimer(self, kind, branch, text, self._tracer)


class _TracedTimer(QueryTimer):
    __slots__ = ("_span", "_token")

    def __init__(
        self, log: SlowQueries, kind: QueryKind, branch: str, text: object, tracer: Tracer
    ) -> None:
        super().__init__(log, kind, branch, text)
        attributes = {"trails.branch": branch}
        self._span = tracer.start_span(kind, attributes=attributes)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        code = error.code if isinstance(error, TrailsError) else "error"
        _end(self._span, "ok" if error is None else code)
        self._span.end()
