"""Spans and metrics of a real server, as a real collector gets them by OTLP."""

import gzip
import json
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.journeys.monitoring.test_metrics import ask
from tests.worlds.processes import Process, Stdio, Web
from tests.worlds.projects import NOTEBOOK, make_project
from tests.worlds.surfaces import MODERN, message_of

from trails.app.settings import read_settings
from trails.errors import SettingsError

SECRET = "classified-text"
SETTINGS = """
[project]
name = "notebook"
[telemetry]
otlp = "{url}/"
sample = {sample}
metrics_seconds = 3600
"""
MORE = '''

@capability("notes.inside")
def inside(ctx: Context) -> str:
    """Make a span of its own."""
    from opentelemetry import trace

    with trace.get_tracer("notebook").start_as_current_span("own work"):
        return str(len(ctx.kg.sparql("SELECT ?s { ?s ?p ?o }").rows))
'''


class Collector:
    """Takes OTLP over HTTP."""

    def __init__(self):
        self.bodies = defaultdict(list)
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.bodies[self.path].append(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *given):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        """Take no more."""
        self._server.shutdown()
        self._server.server_close()

    def spans(self):
        """Every span by name, each with its attributes as a dictionary."""
        found = defaultdict(list)
        for body in self.bodies["/v1/traces"]:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found[span.name].append((span, values(span.attributes)))
        return found

    def metrics(self):
        """Every metric by name."""
        return {
            metric.name: metric
            for body in self.bodies["/v1/metrics"]
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def values(attributes):
    """Attributes as Python values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@pytest.fixture(scope="module")
def collector():
    """One collector for all servers of this file."""
    made = Collector()
    yield made
    made.close()


def parent(number):
    """A ``traceparent``: its trace and its span are the same digit."""
    return f"00-{number * 32}-{number * 16}-01"


@pytest.fixture(scope="module")
def traced(collector, tmp_path_factory):
    """What the collector got of a server that has ended, and the activities of its calls."""
    folder = make_project(
        tmp_path_factory.mktemp("traces") / "notebook",
        NOTEBOOK + MORE,
        settings=SETTINGS.format(url=collector.url, sample=1),
    )
    with Web(folder) as server:
        url = server.url

        def call(name, given, **headers):
            path = f"/graphs/main/invoke/{name}"
            return ask(url, path, None, json.dumps(given), **headers)

        assert call("notes.add", {"text": SECRET}, traceparent=parent("a"))[0] == 200
        assert call("notes.inside", {})[0] == 200
        assert call("notes.add", {"text": 7})[0] == 422
        assert call(f"{SECRET}-invented", {})[0] == 404
        assert ask(url, f"/graphs/main/kg/Note/{SECRET}", traceparent=parent("b"))[0] == 200
        for number, revision in (("c", MODERN), ("d", "2025-06-18")):
            message = message_of(revision, "tools/call", {"name": "notes.count", "arguments": {}})
            message["params"].setdefault("_meta", {})["traceparent"] = parent(number)
            accept = "application/json, text/event-stream"
            more = {"MCP_Protocol_Version": revision, "Accept": accept}
            if revision == MODERN:
                more |= {"Mcp_Method": "tools/call", "Mcp_Name": "notes.count"}
            status, _, text = ask(url, "/graphs/main/mcp", None, json.dumps(message), **more)
            assert status == 200, text
        activities = json.loads(ask(url, "/graphs/main/prov?limit=100", None)[2])["activities"]
        assert server.close() == 0
    return collector.spans(), collector.metrics(), activities


def test_a_call_continues_the_trace_of_its_caller(traced):
    """By a header, and over MCP by ``_meta``, in either revision; its commit is named."""
    spans, _, _ = traced
    (added, failed) = spans["notes.add"]
    span, said = added
    assert span.trace_id.hex() == "a" * 32
    assert span.parent_span_id.hex() == "a" * 16
    assert said["trails.graph"] == "main"
    assert (said["trails.surface"], said["trails.outcome"]) == ("rest", "ok")
    assert said["enduser.id"] == "local"
    assert len(said["trails.commits"].values) == 1
    assert span.end_time_unix_nano > span.start_time_unix_nano
    assert failed[1]["trails.outcome"] == failed[1]["error.type"] == "validation"
    ((read, _),) = spans["resources/read"]
    assert read.trace_id.hex() == "b" * 32
    counted = {span.trace_id.hex(): said for span, said in spans["notes.count"]}
    assert set(counted) == {"c" * 32, "d" * 32}
    assert {said["trails.surface"] for said in counted.values()} == {"mcp"}


def test_a_trace_that_begins_here_has_the_id_of_the_activity(traced):
    """Spans of queries and of the project's own code are parts of it."""
    spans, _, activities = traced
    ((inside, _),) = spans["notes.inside"]
    (activity,) = [each for each in activities if each["name"] == "notes.inside"]
    assert inside.trace_id.hex() == activity["trace"]
    assert inside.parent_span_id == b""
    ((own, _),) = spans["own work"]
    assert (own.trace_id, own.parent_span_id) == (inside.trace_id, inside.span_id)
    (query,) = [span for span, _ in spans["sparql"] if span.trace_id == inside.trace_id]
    assert query.parent_span_id == own.span_id


def test_metrics_are_those_of_the_metrics_route(traced):
    """Every call counts, also one of a tool that does not exist."""
    _, metrics, _ = traced
    calls = defaultdict(int)
    for point in metrics["trails.call.duration"].histogram.data_points:
        said = values(point.attributes)
        calls[said["trails.tool"], said["trails.surface"], said["trails.outcome"]] += point.count
    assert calls["notes.add", "rest", "ok"] == 1
    assert calls["notes.add", "rest", "validation"] == 1
    assert calls["", "rest", "unknown"] == 1
    assert calls["notes.count", "mcp", "ok"] == 2
    (commits,) = metrics["trails.commits"].sum.data_points
    assert commits.as_int == 2
    assert "trails.sandbox.workers" in metrics
    assert metrics["process.memory.usage"].gauge.data_points[0].as_int > 10**7


def test_nothing_that_callers_sent_is_exported(collector, traced):
    """Nor a span of the MCP SDK, which would quote it."""
    spans, _, _ = traced
    assert not [name for name in spans if name.startswith("tools/call")]
    for bodies in collector.bodies.values():
        assert not any(SECRET.encode() in body for body in bodies)


def test_a_collector_that_is_not_there_stops_nothing(tmp_path):
    """Calls are answered, the server ends in time; over standard streams too."""
    folder = make_project(
        tmp_path / "notebook",
        NOTEBOOK,
        settings=SETTINGS.format(url="http://127.0.0.1:9", sample=0.5),
    )
    with Stdio(folder) as client:
        client.initialize()
        result = client.request("tools/call", {"name": "notes.count", "arguments": {}})
        assert result["structuredContent"] == {"result": 0}


def test_without_the_extra_the_error_says_what_to_install(tmp_path):
    """The server alone needs the library, and only if the settings name a collector."""
    folder = make_project(
        tmp_path / "notebook",
        NOTEBOOK,
        settings=SETTINGS.format(url="http://127.0.0.1:9", sample=1),
    )
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['opentelemetry.exporter'] = None\n"
    )
    given = ("serve", "-p", folder, "--port", 0)
    with Process(*given, cold=True, env={"PYTHONPATH": str(tmp_path)}) as process:
        assert process.process.wait(60) == 2
        assert "pip install 'trails[otel]'" in process.errors
        assert "Traceback" not in process.errors


@pytest.mark.parametrize("url", ["", "collector:4318", "http://", "http://[::1", "ftp://a.example"])
def test_a_url_that_no_collector_has_is_refused(tmp_path, url):
    """Before anything is opened; it is not repeated, since it may have a password."""
    settings = SETTINGS.format(url=url, sample=1).replace(f'"{url}/"', f'"{url}"')
    with pytest.raises(SettingsError, match=r"\[telemetry\] otlp must be the URL of a collector"):
        read_settings(make_project(tmp_path / "notebook", NOTEBOOK, settings=settings))
