"""The surface on a real graph: what a caller sees, over both doors, lines and all revisions."""

from __future__ import annotations

import json

import jsonschema
import pytest
from tests.worlds.surfaces import (
    LEGACY,
    MODERN,
    REVISIONS,
    Doors,
    ask_app,
    headers_of,
    message_of,
    session_of,
    talk,
)

from trails import App, Context, Node, Ref, capability, meta_capability, node_type, predicate
from trails.app.kernels import kernel_of
from trails.errors import BudgetError, CapabilityError, DeniedError
from trails.model.actors import LOCAL, Actor

BUILDER = Actor("ada", frozenset({"runtime", "builder"}))


@node_type
class Task(Node):
    """Something to do."""

    key: str = predicate(key=True, pattern=r"^T-\d+$")
    title: str = predicate(min_length=3, max_length=40)
    state: str = predicate(one_of=["open", "done"], default="open")


@capability("tasks.add")
def add(ctx: Context, task: Task) -> Task:
    """Add a task."""
    task.save(ctx)
    return task


@capability("tasks.finish", idempotent=True)
async def finish(ctx: Context, task: Ref[Task]) -> Task:
    """Finish a task."""
    task.state = "done"
    task.save(ctx)
    return task


@capability("tasks.titles")
async def titles(ctx: Context) -> list[str]:
    """Give all titles."""
    return [task.title for task in Task.objects(ctx)]


@capability("tasks.fail")
async def fail(ctx: Context, how: str) -> None:
    """Fail in some way."""
    errors = {
        "purpose": CapabilityError("the office is closed; come back tomorrow", opens="09:00"),
        "denied": DeniedError("these arguments are not for you; ask for others"),
        "budget": BudgetError("no calls are left today; come back tomorrow"),
        "bug": RuntimeError("a secret of the server"),
    }
    raise errors[how]


@meta_capability("trails.meta.tasks.purge", idempotent=True)
def purge(ctx: Context) -> dict[str, object]:
    """Say that everything is purged."""
    return {"purged": True}


class Stage:
    """Two graphs behind the two doors, and a session of lines on the first."""

    def __init__(self, **options):
        self.graphs = [App(Task, add, finish, titles, fail, purge) for _ in range(2)]
        kernels = iter([kernel_of(app) for app in self.graphs])
        self.doors = Doors(lambda: next(kernels), **options)
        self.options = options

    def __enter__(self):
        self.doors.__enter__()
        return self

    def __exit__(self, *_):
        self.doors.__exit__()
        for kernel, app in zip(self.doors.backends, self.graphs, strict=True):
            kernel.close()
            app.close()

    def ask(self, revision, method, params, actor=LOCAL):
        """What both doors answer, as messages."""
        headers = headers_of(revision, method, params)
        body = json.dumps(message_of(revision, method, params)).encode()
        replies = self.doors.ask(headers, body, **{"trails.actor": actor})
        return [reply.message for reply in replies]

    def say(self, revision, method, params, actor=LOCAL):
        """What a session of lines answers."""
        lines = session_of(revision, method, params)
        said = self.doors.run(talk(self.doors.backends[0], lines, actor, **self.options))
        return [one for one in said if one.get("id") == 1]

    def everywhere(self, method, params, actor=LOCAL):
        """All answers to one request, each with its revision."""
        for revision in REVISIONS:
            for message in self.ask(revision, method, params, actor):
                yield revision, message
        for revision in (*LEGACY, MODERN):
            for message in self.say(revision, method, params, actor):
                yield revision, message


WIRES = 2 * len(REVISIONS) + len(LEGACY) + 1


@pytest.fixture(scope="module")
def stage():
    """Graphs with the usual settings."""
    with Stage() as stage:
        yield stage


@pytest.mark.req("T1")
def test_every_capability_that_may_be_used_is_listed(stage):
    """Runtime and meta tools are listed by name, each with its kind twice; others are not."""
    mine = {"tasks.add", "tasks.finish", "tasks.titles", "tasks.fail"}
    purge_kind = {
        "kind": "meta",
        "scope": "builder",
        "namespace": "tasks",
        "op": "purge",
        "idempotent": True,
    }
    for actor, metas in ((LOCAL, set()), (BUILDER, {"trails_meta_tasks_purge"})):
        answers = list(stage.everywhere("tools/list", {}, actor))
        assert len(answers) == WIRES
        for _, message in answers:
            tools = {tool["name"]: tool for tool in message["result"]["tools"]}
            assert list(tools) == sorted(tools)
            assert mine <= tools.keys()
            assert {name for name in tools if name == "trails_meta_tasks_purge"} == metas
            for tool in tools.values():
                assert tool["trails"] == tool["_meta"]["dev.trails/tool"]
                assert tool["trails"]["kind"] in {"runtime", "meta"}
            assert all(tools[name]["trails"] == {"kind": "runtime"} for name in mine)
            for name in metas:
                assert tools[name]["trails"] == purge_kind


@pytest.mark.req("G12")
def test_results_validate_against_what_was_promised(stage):
    """Structure fits the output schema, text says the same, and neither is ever null."""
    calls = [
        ("tasks.titles", {}),
        ("graph_snapshot", {}),
        ("graph_health", {}),
        ("schema_get", {}),
        ("branch_list", {}),
        ("commit_list", {}),
    ]
    listed, _ = stage.ask(MODERN, "tools/list", {})
    schemas = {tool["name"]: tool.get("outputSchema") for tool in listed["result"]["tools"]}
    for name, arguments in calls:
        for revision in REVISIONS:
            for message in stage.ask(
                revision, "tools/call", {"name": name, "arguments": arguments}
            ):
                result = message["result"]
                assert isinstance(result["structuredContent"], dict)
                assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
                assert schemas[name] is not None
                jsonschema.validate(result["structuredContent"], schemas[name])


WRONG = {"task": {"key": "x", "title": "a", "state": "opne"}}


@pytest.mark.req("T16")
def test_field_errors_come_all_at_once(stage):
    """Every broken rule is a field with code, value and constraint, spelled out in the message."""
    answers = list(stage.everywhere("tools/call", {"name": "tasks.add", "arguments": WRONG}))
    assert len(answers) == WIRES
    for _, message in answers:
        error = message["error"]
        assert error["code"] == -32602
        fields = {one["field"].rpartition(".")[2]: one for one in error["data"]["fields"]}
        assert {name: one["code"] for name, one in fields.items()} == {
            "key": "pattern",
            "title": "min_length",
            "state": "one_of",
        }
        for name, one in fields.items():
            assert {"field", "code", "message", "value", "constraint"} <= one.keys()
            assert one["value"] == WRONG["task"][name]
            assert name in error["message"]
        assert "3 field" in error["message"]


@pytest.mark.req("T16")
def test_field_errors_as_results():
    """A setting makes the same content a tool's result, on every wire."""
    with Stage(validation_errors="tool") as stage:
        params = {"name": "tasks.add", "arguments": WRONG}
        for _, message in stage.everywhere("tools/call", params):
            result = message["result"]
            assert result["isError"] is True
            assert "structuredContent" not in result
            data = result["_meta"]["dev.trails/error"]["data"]
            assert len(data["fields"]) == 3
            text, _, line = result["content"][0]["text"].partition("\n")
            assert "3 field" in text
            assert json.loads(line) == data


@pytest.mark.req("T16")
def test_field_errors_of_the_graph(stage):
    """Rules that only the graph can judge are told in the same form."""
    task = {"task": {"key": "T-1", "title": "Write tests"}}
    call = {"name": "tasks.add", "arguments": task}
    stage.ask(MODERN, "tools/call", call)
    unknown = {"name": "tasks.finish", "arguments": {"task": "trails://kg/Task/T-404"}}
    for params, code in ((call, {"unique", "immutable_key"}), (unknown, {"reference"})):
        for _, message in stage.everywhere("tools/call", params):
            assert message["error"]["code"] == -32602
            assert {one["code"] for one in message["error"]["data"]["fields"]} <= code


@pytest.mark.req("T17")
def test_failures_are_told_apart(stage, caplog):
    """On purpose: a result; denied, out of budget, anything else: their own numbers."""
    for how in ("purpose", "denied", "budget", "bug"):
        params = {"name": "tasks.fail", "arguments": {"how": how}}
        revisions = 0
        for revision in REVISIONS:
            for message in stage.say(revision, "tools/call", params) if revision else ():
                check_failure(how, revision, message, caplog.text)
                revisions += 1
            headers = headers_of(revision, "tools/call", params)
            body = json.dumps(message_of(revision, "tools/call", params)).encode()
            for app in stage.doors.apps:
                reply = stage.doors.run(ask_app(app, headers, [body]))
                check_failure(how, revision, reply.message, caplog.text)
                revisions += 1
        assert revisions == WIRES


def check_failure(how: str, revision: str | None, message: dict, log: str) -> None:
    """What one wire says of one failure."""
    assert "secret" not in json.dumps(message)
    assert "Traceback" not in json.dumps(message)
    if how == "purpose" or (how == "denied" and revision == MODERN):
        assert message["result"]["isError"] is True
        text = message["result"]["content"][0]["text"]
        assert text.startswith("the office is closed" if how == "purpose" else "these arguments")
        return
    codes = {"denied": -32002, "budget": -32003, "bug": -32603}
    error = message["error"]
    assert error["code"] == codes[how]
    if how == "bug":
        assert error["data"]["trace_id"] in log
    else:
        assert error["message"].endswith(("ask for others", "come back tomorrow"))


def test_operational_failures_are_protocol_errors(stage):
    """An unknown tool and a missing credential are the protocol's errors, on every wire."""
    meta = {"name": "trails_meta_tasks_purge", "arguments": {}}
    for _, message in stage.everywhere("tools/call", meta):
        assert message["error"]["code"] == -32001
        assert message["error"]["data"]["required_scope"] == "builder"
    for _, message in stage.everywhere("tools/call", {"name": "nope"}):
        assert message["error"]["code"] == -32602
        assert message["error"]["message"] == "unknown tool: nope"


@pytest.mark.req("T14")
def test_resources_can_not_be_written(stage):
    """No method of the protocol writes a resource: there is none, on any wire."""
    heads = [app.graph().log_head for app in stage.graphs]
    for method in ("resources/write", "resources/create", "resources/update", "resources/delete"):
        params = {"uri": "trails://kg/Task/T-1", "text": "{}"}
        answers = list(stage.everywhere(method, params))
        assert len(answers) == WIRES
        for _, message in answers:
            assert message["error"]["code"] == -32601
    assert [app.graph().log_head for app in stage.graphs] == heads


def test_a_call_writes_once(stage):
    """What a tool writes is there once, whichever door it came through."""
    for at, revision in enumerate(REVISIONS):
        task = {"key": f"T-{at + 100}", "title": f"Task number {at}"}
        params = {"name": "tasks.add", "arguments": {"task": task}}
        for message in stage.ask(revision, "tools/call", params):
            assert message["result"]["structuredContent"]["key"] == task["key"]
    for app in stage.graphs:
        keys = [task.key for task in Task.objects(app.context())]
        assert len(keys) == len(set(keys))
        assert {f"T-{at + 100}" for at in range(len(REVISIONS))} <= set(keys)
