"""Change types over MCP, REST and the command line: one operation, the same behaviour.

And the journey of an agent with a running server: plan, apply on a branch, inspect, merge, undo,
while other branches exist.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest
from tests.request.meta.test_schema import DROP, DUE, NARROW, PYTHON, STATUS, TASK
from tests.worlds.clients import RestClient, served
from tests.worlds.processes import run_command
from tests.worlds.projects import PERMIT_ALL, give_token, make_project
from tests.worlds.surfaces import message_of

from trails import App
from trails.model.capabilities import SCOPES


class Surface:
    """A server of a project with tasks, asked in one way."""

    def __init__(self, folder, desk, token, way):
        self.folder, self.token, self.way = folder, token, way
        self._desk = desk
        self.rest = RestClient(urlsplit(desk.url).port, token)

    def ask(self, tool, **given):
        """The result of a tool over MCP, or its error."""
        body = message_of(None, "tools/call", {"name": tool, "arguments": given})
        headers = [("MCP-Protocol-Version", "2025-06-18")]
        reply = self._desk.ask("POST", "/graphs/main/mcp", self.token, body, headers).json
        if "error" in reply:
            data = reply["error"].get("data") or {}
            return {"error": {"code": data.get("code", "validation"), **data}}
        result = reply["result"]
        if result.get("isError"):
            return {"error": result["_meta"]["dev.trails/error"]}
        return result["structuredContent"]

    def change(self, steps, *, plan_only=False, **given):
        """Plan or apply steps, in the way of this surface."""
        if self.way == "mcp":
            return self.ask("schema_apply", steps=steps, dry_run=plan_only, **given)
        if self.way == "rest":
            path = "/graphs/main/schema/" + ("plan" if plan_only else "apply")
            body = json.dumps({"steps": steps, **given}).encode()
            got = self.rest.send("POST", path, body, content_type="application/json")
            found = json.loads(got.body)
            return found if got.status < 300 else {"error": found}
        file = self.folder / "steps.json"
        file.write_text(json.dumps(steps))
        options = [
            part
            for name, value in given.items()
            for part in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
        ]
        words = [
            "schema",
            "plan" if plan_only else "apply",
            "-f",
            str(file),
            "-g",
            "main",
            *options,
            "--json",
        ]
        environment = {"TRAILS_TOKEN": self.token, "TRAILS_SERVER": self._desk.url}
        done = run_command(words, self.folder, environment=environment)
        return json.loads(done.stdout)

    def types(self, branch="main"):
        """The fields of a task on a branch."""
        found = self.ask("schema_get", types=["Task"], branch=branch)["types"][0]
        return set(found["predicates"])


@pytest.fixture(scope="module", params=["python", "graph"])
def project(request, tmp_path_factory):
    """A served project for each authority."""
    settings = '[project]\nname = "acme"\n'
    if request.param == "graph":
        settings += '[graphs.main]\nschema = "graph"\n'
    folder = make_project(
        tmp_path_factory.mktemp(request.param) / "p",
        PYTHON if request.param == "python" else {},
        settings=settings,
        policies={"all.cedar": PERMIT_ALL},
    )
    token = give_token(folder, scopes=SCOPES)
    with served(folder, env={"TRAILS_MCP_SCOPES": ",".join(SCOPES)}) as desk:
        if request.param == "graph":
            made = Surface(folder, desk, token, "mcp").ask("schema_apply", types=[TASK])
            assert made["applied"]
        yield request.param, folder, desk, token


@pytest.fixture(params=["mcp", "rest", "cli"])
def surface(request, project):
    """One for each way in."""
    _, folder, desk, token = project
    return Surface(folder, desk, token, request.param)


def add(surface, branch, *keys, **data):
    """Add tasks to a branch."""
    rows = [{"key": key, "title": f"Task {key}", **data} for key in keys]
    made = [{"op": "upsert", "type": "Task", "data": row} for row in rows]
    done = surface.ask("graph_mutate", operations=made, branch=branch)
    assert "error" not in done, done


@pytest.mark.req("G21")
def test_types_change_with_a_plan_on_every_surface(surface):
    """The same plan, the same refusals, one commit."""
    branch = f"{surface.way}-work"
    surface.ask("branch_create", name=branch)
    add(surface, branch, "a", "b", points=9)
    refused = surface.change([NARROW], branch=branch)
    assert "max_value" in json.dumps(refused["error"])
    plan = surface.change([DUE, DROP], plan_only=True, branch=branch)
    assert [each["effect"] for each in plan["steps"]] == ["safe", "destructive"]
    assert not plan["applied"]
    lost = surface.change([DUE, DROP], branch=branch)
    assert "data_loss" in json.dumps(lost["error"])
    add(surface, branch, "c")
    stale = surface.change([DUE, DROP], branch=branch, plan=plan["plan"], allow_data_loss=True)
    assert stale["error"]["code"] == "conflict"
    done = surface.change([DUE, DROP], branch=branch, allow_data_loss=True, message="Plan days")
    assert done["applied"]
    assert "due" in surface.types(branch)
    assert "points" not in surface.types(branch)
    assert "points" in surface.types()
    commit = surface.ask("commit_get", commit=done["commit"])
    assert "Plan days" in json.dumps(commit)
    surface.ask("branch_delete", name=branch, force=True)


def test_an_agent_plans_applies_inspects_merges_and_undoes(project):
    """With more branches: one that changed data, and two that changed types."""
    source, folder, desk, token = project
    agent = Surface(folder, desk, token, "mcp")
    module = folder / "app.py"
    before = module.read_text() if source == "python" else ""
    add(agent, "main", "one", points=1)
    for name in ("data", "work", "other", "torn"):
        agent.ask("branch_create", name=name)
    add(agent, "data", "two", state="done")
    extra = {"step": "add_field", "type": "Task", "field": {"name": "extra", "type": "str | None"}}
    assert agent.change([extra], branch="torn")["applied"]
    person = {"step": "add_type", "type": {"name": "Person", "fields": [{"name": "name"}]}}
    assert agent.change([person], branch="other")["applied"]

    plan = agent.change([DUE, STATUS], plan_only=True, branch="work")
    done = agent.change([DUE, STATUS], branch="work", plan=plan["plan"])
    assert done["diff"] is None
    difference = agent.ask("trails_meta_schema_diff", **{"from": "main", "to": "work"})
    assert len(difference["steps"]) >= 2
    add(agent, "work", "three", status="done", due="2026-12-24")
    add(agent, "main", "four")
    merged = agent.ask("branch_merge", source="work")
    assert merged["outcome"] == "merged", merged
    assert {"status", "due"} <= agent.types()
    if source == "python":
        assert 'status: str = predicate(one_of=["open", "done"], default="open")  # where' in (
            module.read_text()
        )
    merged = agent.ask("branch_merge", source="data")
    assert merged.get("outcome") == "merged", merged
    merged = agent.ask("branch_merge", source="other")
    assert merged.get("outcome") == "merged", merged
    assert agent.ask("schema_get", types=["Person"])["types"]
    torn = agent.ask("branch_merge", source="torn")
    assert torn["error"]["code"] == "conflict"
    assert "schema:Task" in json.dumps(torn)
    listed = agent.ask("graph_query", query="SELECT ?k ?s { ?t a :Task ; :key ?k ; :status ?s }")
    found = {row["k"]: row["s"] for row in listed["rows"]}
    assert found["two"] == found["three"] == "done"
    assert found["one"] == found["four"] == "open"

    back = [
        {**STATUS, "field": "status", "to": "state"},
        {"step": "drop_field", "type": "Task", "field": "due", "hard": True},
        {"step": "drop_type", "type": "Person"},
    ]
    undone = agent.change(back, allow_data_loss=True)
    assert undone.get("applied"), undone
    assert agent.types() == {"key", "title", "state", "points"}
    if source == "python":
        assert module.read_text() == before


def test_the_next_start_agrees(project):
    """Whatever the tests before did, files and graph declare the same."""
    _, folder, desk, token = project
    agent = Surface(folder, desk, token, "mcp")
    agent.change([DUE])
    copy = make_project(folder.parent / "copy", {})
    for name in ("app.py", "trails.toml"):
        if (folder / name).exists():
            (copy / name).write_text((folder / name).read_text())
    with App.open(copy) as app:
        assert not app.quarantined
    assert agent.ask("trails_meta_schema_diff", **{"from": "main", "to": "files"})["steps"] == []
