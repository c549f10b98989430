"""Over MCP a write that breaks a rule fails as it does in the ORM; nothing gets around that."""

import json
import re

import pytest
from tests.worlds.surfaces import MODERN, REVISIONS, Doors, headers_of, message_of

from trails import App, Context, Node, capability, node_type, predicate
from trails.app.kernels import kernel_of
from trails.app.settings import GraphSettings, Project, Settings, Validation
from trails.errors import ValidationError


@node_type
class Task(Node):
    """Something to do."""

    key: str = predicate(key=True, pattern=r"^T-\d+$")
    title: str = predicate(min_length=3)
    state: str = predicate(one_of=["open", "done"])


@capability("tasks.put")
def put(ctx: Context, key: str, title: str, state: str) -> Task:
    """Store a task."""
    task = Task(key=key, title=title, state=state)
    task.save(ctx)
    return task


@capability("tasks.force")
def force(ctx: Context, statements: str) -> bool:
    """Store statements without looking at them."""
    ctx.kg.raw_sparql(statements, skip_validation=True)
    return True


WRONG = {"key": "7", "title": "x", "state": "lost"}
RULES = {("key", "pattern"), ("title", "min_length"), ("state", "one_of")}


@pytest.fixture(scope="module")
def doors():
    """A graph behind each door, in a project that allows its own programs to skip validation."""
    settings = Settings(
        Project("app"), {"main": GraphSettings()}, validation=Validation(allow_bypass=True)
    )
    apps = [App(Task, put, force, settings=settings) for _ in range(2)]
    kernels = iter([kernel_of(app) for app in apps])
    with Doors(lambda: next(kernels)) as doors:
        doors.graphs = apps
        yield doors
    for kernel, app in zip(doors.backends, apps, strict=True):
        kernel.close()
        app.close()


def ask(doors, revision, tool, arguments):
    """What both doors answer to a call."""
    params = {"name": tool, "arguments": arguments}
    body = json.dumps(message_of(revision, "tools/call", params)).encode()
    replies = doors.ask(headers_of(revision, "tools/call", params), body)
    return [reply.message for reply in replies]


def orm_errors(app):
    """What the ORM says of the wrong task."""
    with pytest.raises(ValidationError) as raised:
        Task(**WRONG).save(app.context())
    return raised.value


def rules(fields):
    """Fields and codes, whatever stands in front of a field's name."""
    return {(re.split(r"[. ]", each["field"])[-1], each["code"]) for each in fields}


@pytest.mark.req("T21c")
@pytest.mark.parametrize("revision", REVISIONS, ids=str)
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("tasks.put", WRONG),
        ("graph_mutate", {"operations": [{"op": "create", "type": "Task", "data": WRONG}]}),
        ("graph_load", {"data": json.dumps({"type": "Task", "data": WRONG})}),
        (
            "graph_mutate",
            {
                "update": "INSERT DATA { <trails://app/main/Task/T-1> a :Task ; "
                ':key "T-1" ; :title "x" ; :state "lost" }'
            },
        ),
    ],
    ids=["capability", "operations", "load", "update"],
)
def test_a_violation_is_the_orms(doors, revision, tool, arguments):
    """−32602 with the fields and codes that save() raises, and nothing is written."""
    expected = RULES if arguments.get("update") is None else RULES - {("key", "pattern")}
    before = [app.versions().branches() for app in doors.graphs]
    saved = {(each.field, each.code) for each in orm_errors(doors.graphs[0]).fields}
    assert expected <= saved
    for message in ask(doors, revision, tool, arguments):
        assert message["error"]["code"] == -32602
        assert rules(message["error"]["data"]["fields"]) == expected
    assert [app.versions().branches() for app in doors.graphs] == before


@pytest.mark.req("T21c")
def test_the_messages_are_the_orms(doors):
    """What a capability's write breaks is told in the very words of save()."""
    said = [each.message for each in orm_errors(doors.graphs[0]).fields]
    for message in ask(doors, MODERN, "tasks.put", WRONG):
        fields = message["error"]["data"]["fields"]
        assert [each["message"].rpartition("Task/7.")[2] for each in fields] == said
        assert all(each in message["error"]["message"] for each in said)


@pytest.mark.req("T21c")
@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_skipping_validation_is_out_of_reach(doors, revision):
    """The project allows it to its programs; a capability that tries in a call is refused."""
    wrong = 'INSERT DATA { <trails://app/main/Task/T-1> a :Task ; :key "T-1" }'
    before = [app.versions().branches() for app in doors.graphs]
    for message in ask(doors, revision, "tasks.force", {"statements": wrong}):
        assert message["result"]["isError"] is True
        assert "not allowed in a call over MCP" in message["result"]["content"][0]["text"]
    assert [app.versions().branches() for app in doors.graphs] == before


@pytest.mark.req("T21c")
def test_no_tool_has_an_argument_that_skips_validation(doors):
    """Neither by its name nor by smuggling one in."""
    for message in ask(doors, MODERN, "graph_mutate", {"operations": [], "skip_validation": True}):
        fields = message["error"]["data"]["fields"]
        assert ("skip_validation", "unknown_field") in rules(fields)


def test_a_program_may_still_skip_it(doors):
    """What is out of reach of a call works where the project was opened."""
    ctx = doors.graphs[0].context()
    text = '<trails://app/main/Task/T-9> a :Task ; :key "T-9"'
    assert ctx.kg.raw_sparql(f"INSERT DATA {{ {text} }}", skip_validation=True) is not None
    ctx.kg.raw_sparql(f"DELETE DATA {{ {text} }}", skip_validation=True)
