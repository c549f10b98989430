"""The log of a real server as JSON lines: whose each line is, and what none of them has."""

import json
import logging
import threading

import pytest
from tests.journeys.monitoring.test_metrics import ask
from tests.worlds.processes import Process, Stdio, Web, wait_until
from tests.worlds.projects import PERMIT_ALL, WORKSHOP, give_token, make_project

from trails.app.telemetry import logs
from trails.app.telemetry.logs import JsonHandler, encode_record

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
SECRET = "classified-text"
SETTINGS = """
[project]
name = "workshop"
[log]
format = "json"
calls = true
slow_query_ms = {slow}
texts = {texts}
"""
MORE = '''

@capability("notes.odd")
def odd(ctx: Context) -> int:
    """Write to a log of its own, warn, and start a thread that fails."""
    import logging, threading, warnings

    logging.getLogger("workshop").warning("this is odd")
    warnings.warn("this is old")
    failing = threading.Thread(target=lambda: 1 / 0)
    failing.start()
    failing.join()
    return 1
'''


def make(folder, *, slow=1, texts="false"):
    """A project that logs as JSON, and a token for it."""
    made = make_project(
        folder,
        WORKSHOP + MORE,
        settings=SETTINGS.format(slow=slow, texts=texts),
        policies={"all.cedar": PERMIT_ALL},
    )
    return made, give_token(made, "ann")


def lines_of(process):
    """What a server has written so far; every line must be a JSON object with the common fields."""
    found = [json.loads(line) for line in process.errors.splitlines()]
    for each in found:
        assert each["time"].endswith("Z")
        assert each["level"] in {"info", "warning", "error", "critical"}
        assert {"event", "message"} <= each.keys()
    return found


def events(process, event):
    """The lines of one event."""
    return [each for each in lines_of(process) if each["event"] == event]


def call(url, token, name, arguments, **headers):
    """Call a capability over REST."""
    return ask(url, f"/graphs/main/invoke/{name}", token, json.dumps(arguments), **headers)


QUERY = f'SELECT * {{ ?s ?p ?o FILTER(?o != "{SECRET}") }}'


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A server after a crash, a slow query, an invented name and lines of others."""
    folder, token = make(tmp_path_factory.mktemp("logs") / "workshop")
    with Web(folder) as server:
        url = server.url
        status, _, text = call(url, token, "notes.crash", {"text": SECRET}, traceparent=PARENT)
        assert status == 500
        call(url, token, "notes.odd", {})
        call(url, token, "notes.add", {"text": SECRET})
        ask(url, "/graphs/main/query", token, json.dumps({"query": QUERY}))
        ask(url, f"/graphs/main/kg/Note?where=text={SECRET}", token)
        call(url, token, f"{SECRET}-%F0%9F%98%80", {})
        ask(url, f"/graphs/main/kg/Note?token={token}", token)
        wait_until(lambda: len(events(server, "call.ended")) >= 5, "lines")
        yield server, token, json.loads(text)


def test_a_failed_call_has_one_trace_everywhere(workshop):
    """In the answer, in the log and in its activity: that of the caller."""
    server, token, problem = workshop
    assert problem["data"]["trace_id"] == TRACE
    (failed,) = events(server, "call.failed")
    assert (failed["trace"], failed["graph"]) == (TRACE, "main")
    assert (failed["actor"], failed["tool"], failed["surface"]) == ("ann", "notes.crash", "rest")
    assert failed["error"]["type"] == "builtins.RuntimeError"
    assert failed["error"]["stack"][-1].endswith(" crash")
    (ended,) = [each for each in events(server, "call.ended") if each["trace"] == TRACE]
    assert (ended["outcome"], ended["tool"]) == ("internal", "notes.crash")
    found = json.loads(ask(server.url, "/graphs/main/prov", token)[2])["activities"]
    assert TRACE in {each["trace"] for each in found if each["name"] == "notes.crash"}


def test_lines_of_others_are_json_too(workshop):
    """Loggers of the project, warnings and threads; inside of a call they say which."""
    server, _, _ = workshop
    others = {each["logger"]: each for each in events(server, "log")}
    assert others["workshop"]["message"] == "this is odd"
    assert (others["workshop"]["tool"], others["workshop"]["actor"]) == ("notes.odd", "ann")
    assert "this is old" in others["py.warnings"]["message"]
    (thread,) = events(server, "thread.failed")
    assert thread["error"]["type"] == "builtins.ZeroDivisionError"
    (ready,) = events(server, "server.ready")
    assert (ready["url"], ready["graphs"]) == (server.url, ["main"])


def test_slow_queries_are_logged_without_their_texts(workshop):
    """SPARQL and lists, with the time, the call and the branch."""
    server, _, _ = workshop
    slow = {each["kind"]: each for each in events(server, "query.slow")}
    assert (slow["sparql"]["tool"], slow["sparql"]["actor"]) == ("graph_query", "ann")
    assert (slow["sparql"]["branch"], slow["sparql"]["outcome"]) == ("main", "ok")
    assert slow["sparql"]["milliseconds"] >= 1


def test_no_line_has_what_callers_sent(workshop):
    """No argument, no text of a query, no invented name, no token."""
    server, token, _ = workshop
    assert SECRET not in server.errors
    assert token not in server.errors
    assert token.rpartition("_")[2] not in server.errors


def test_texts_are_quoted_where_that_is_allowed(tmp_path):
    """Of slow queries and of errors, also over standard streams."""
    folder, token = make(tmp_path / "workshop", texts="true")
    with Stdio(folder, env={"TRAILS_TOKEN": token}) as client:
        client.initialize()
        for name, given in (("notes.crash", {"text": SECRET}), ("graph_query", {"query": QUERY})):
            client.ask("tools/call", {"name": name, "arguments": given})
        wait_until(lambda: events(client, "query.slow"), "a slow query")
        assert any(QUERY in each["text"] for each in events(client, "query.slow"))
        (failed,) = events(client, "call.failed")
        assert failed["error"]["message"] == f"crashed with {SECRET}"
        assert failed["surface"] == "stdio"


def test_a_server_that_can_not_start_says_so_in_its_log(tmp_path):
    """As a line like the others, with exit code 2."""
    folder, _ = make(tmp_path / "workshop")
    with Process("serve", "-p", folder, "--host", "host.invalid", "--port", 0) as process:
        assert process.process.wait(60) == 2
        (failed,) = lines_of(process)
        assert (failed["event"], failed["level"]) == ("server.failed", "critical")
        assert "host.invalid" in failed["message"]


def record_of(message, *given, **more):
    """A log record."""
    record = logging.LogRecord("trails", logging.INFO, __file__, 1, message, given, None)
    record.__dict__.update(more)
    return record


@pytest.mark.parametrize(
    "text",
    ["\ud800 half", "line\nline", "\x00\x1b[31m", "\u2028", "x" * 100_000, "\U0001f600", "%s %d"],
)
def test_any_text_fits_into_a_line(text):
    """Whatever it has, it is one line of valid JSON."""
    line = encode_record(record_of("said: %s", text, event="e"), texts=False)
    assert line.count(b"\n") == 1
    assert json.loads(line)["message"].startswith("said: ")
    assert len(line) < 30_000


def test_a_token_in_a_message_is_redacted():
    """The id stays, since lists show it."""
    token = "trails_0123456789ab_" + "s" * 43
    line = encode_record(record_of(f"oops {token}"), texts=True)
    assert json.loads(line)["message"] == "oops trails_0123456789ab_[redacted]"


def test_a_reader_that_stops_holds_up_nobody(monkeypatch):
    """What does not fit into the queue is dropped, and counted."""
    monkeypatch.setattr(logs, "_MOST", 50)
    begun, reads, written = threading.Event(), threading.Event(), []

    def write(data):
        begun.set()
        assert reads.wait(60)
        written.append(data)

    handler = JsonHandler(write)
    handler.emit(record_of("first"))
    assert begun.wait(60)
    for number in range(80):
        handler.emit(record_of("line %d", number))
    reads.set()
    handler.close()
    found = [json.loads(line) for line in b"".join(written).splitlines()]
    assert len(found) == 1 + 50 + 1
    assert found[-1]["dropped"] == 30
