"""The sender of a large body is admitted before the body is parsed, and counted once."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.worlds.surfaces import PLAIN, Wires, ask_app, message_of

from trails import App, Context, capability
from trails.app.settings import Budgets, GraphSettings, Project, Settings
from trails.model.actors import Actor
from trails.model.fairness import LARGE
from trails.model.results import Failure
from trails.model.texts import scan_json
from trails.request.admission import Admission, Budget
from trails.surfaces.mcp import bodies as mcp_bodies
from trails.surfaces.mcp.http import McpApp
from trails.surfaces.rest import bodies as rest_bodies
from trails.surfaces.rest.routes import build_app

ANN = Actor("ann", credential="t1")
BOB = Actor("bob", credential="t2")
LONG = "x" * LARGE
OLD = "2025-06-18"
JSON = (b"content-type", b"application/json")


@capability("measure")
def measure(ctx: Context, text: str) -> int:
    """How long a text is."""
    return len(text)


class Scans:
    """Counts the large bodies that are parsed."""

    def __init__(self, patch):
        self.count = 0
        for module in (mcp_bodies, rest_bodies):
            patch.setattr(module, "scan_json", self._scan)

    def _scan(self, body):
        self.count += 1
        return scan_json(body)


@pytest.fixture
def scans(monkeypatch):
    """The large bodies that are parsed."""
    return Scans(monkeypatch)


def opened(**budgets):
    """An app with a budget."""
    settings = Settings(Project("app"), {"main": GraphSettings(budgets=Budgets(**budgets))})
    return App(measure, settings=settings)


def call_of(tool):
    """A call with a large argument."""
    params = {"name": tool, "arguments": {"text": LONG}}
    return json.dumps(message_of(OLD, "tools/call", params)).encode()


async def ask_mcp(app, tool, *more):
    """Call a tool over MCP."""
    scope = {"trails.actor": ANN}
    return await ask_app(app, [*PLAIN, *more], [call_of(tool)], **scope)


async def ask_rest(app, tool):
    """Call a tool over REST."""
    path = f"/graphs/main/invoke/{tool}"
    scope = {"path": path, "raw_path": path.encode(), "trails.actor": ANN}
    return await ask_app(app, [JSON], [json.dumps({"text": LONG}).encode()], **scope)


async def ask_text(app, tool):
    """Send a large query text."""
    del tool
    path = "/graphs/main/query"
    scope = {"path": path, "raw_path": path.encode(), "trails.actor": ANN}
    typed = [(b"content-type", b"application/sparql-query")]
    return await ask_app(app, typed, [b"ASK {} # " + LONG.encode()], **scope)


async def begin_session(app):
    """The header of a session of an older revision."""
    hello = {
        "protocolVersion": OLD,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    body = json.dumps(message_of(OLD, "initialize", hello)).encode()
    answer = await ask_app(app, list(PLAIN), [body], **{"trails.actor": ANN})
    assert answer.status == 200
    return b"mcp-session-id", dict(answer.headers)[b"mcp-session-id"]


async def ask_three(kernel, way):
    """A call, one of a tool that does not exist, and one more."""
    if way in {"rest", "text"}:
        app, ask = build_app({"main": kernel}), ask_rest if way == "rest" else ask_text
        return [await ask(app, tool) for tool in ("measure", "nothing", "measure")]
    app = McpApp(kernel, fast=way == "fast", legacy_sessions=way == "sessions")
    async with app.run():
        more = [await begin_session(app)] if way == "sessions" else []
        return [await ask_mcp(app, tool, *more) for tool in ("measure", "nothing", "measure")]


def data_of(reply):
    """The data of an error, over either protocol."""
    return reply.message.get("error", reply.message)["data"]


@pytest.mark.parametrize("way", ["fast", "sdk", "sessions", "rest", "text"])
def test_a_used_up_budget_leaves_a_large_body_unparsed(way, scans):
    """A call counts once, a tool that the actor can't see costs a call, and then it is enough."""
    with opened(in_flight=1, calls_per_minute=2) as app, Wires(app) as wires:
        admission = wires.kernel._admission
        first, second, third = asyncio.run(ask_three(wires.kernel, way))
        assert first.status == (400 if way == "text" else 200)  # no query is that long
        assert b"calls under way" not in first.body + second.body
        assert b"within a minute" not in first.body + second.body
        assert third.status == 429
        assert 1 <= int(dict(third.headers)[b"retry-after"]) <= 61
        assert b"measure" not in third.body
        assert data_of(third)["limit"] == "calls_per_minute"
        assert scans.count == (0 if way == "text" else 2)
        assert (admission.running("ann"), len(admission)) == (0, 0)
        assert admission._calls._minutes["ann"].total == 2


def test_a_used_up_budget_leaves_a_posted_message_unparsed(scans):
    """Over the HTTP+SSE transport likewise."""
    with opened(calls_per_minute=1) as app, Wires(app) as wires:

        async def check():
            endpoint = McpApp(wires.kernel, legacy_sse=True)
            wires.kernel._admission.enter(ANN).end()
            async with endpoint.run():
                scope = {"trails.actor": ANN, "path": "/messages"}
                return await ask_app(endpoint, list(PLAIN), [call_of("measure")], **scope)

        assert asyncio.run(check()).status == 429
        assert scans.count == 0


@pytest.mark.parametrize("way", ["fast", "rest"])
def test_a_large_body_that_is_parsed_is_a_call_under_way(way, monkeypatch):
    """The next one is refused at once, instead of waiting for its turn."""
    with opened(in_flight=1) as app, Wires(app) as wires:
        admission, ask = wires.kernel._admission, ask_mcp if way == "fast" else ask_rest

        async def check():
            endpoint = McpApp(wires.kernel)
            served = endpoint if way == "fast" else build_app({"main": wires.kernel})
            second = []
            loop = asyncio.get_running_loop()

            def scan(body):
                if not second:
                    second.append(asyncio.run_coroutine_threadsafe(ask(served, "measure"), loop))
                    second[0].result(60)
                return scan_json(body)

            for module in (mcp_bodies, rest_bodies):
                monkeypatch.setattr(module, "scan_json", scan)
            async with endpoint.run():
                first = await ask(served, "measure")
            return first, second[0].result()

        first, second = asyncio.run(check())
        assert (first.status, second.status) == (200, 429)
        assert data_of(second)["limit"] == "in_flight"
        assert len(admission) == 0


def test_a_body_that_is_not_json_gives_its_place_back():
    """And has cost one call."""
    with opened(in_flight=1, calls_per_minute=1) as app, Wires(app) as wires:
        path = "/graphs/main/invoke/measure"
        scope = {"path": path, "raw_path": path.encode(), "trails.actor": ANN}
        served = build_app({"main": wires.kernel})

        def ask():
            return asyncio.run(ask_app(served, [JSON], [LONG.encode() + b"!"], **scope)).status

        assert (ask(), ask()) == (400, 429)
        assert len(wires.kernel._admission) == 0


def test_a_reservation_is_for_one_call_of_one_actor_on_one_graph():
    """Whoever else is admitted in its block is counted as always."""
    here, there = Admission(Budget(calls_per_minute=2)), Admission(Budget(calls_per_minute=1))
    with here.reserve(ANN):
        there.enter(ANN).end()
        here.enter(BOB).end()
        assert there.enter(ANN).kind == "budget"
        assert here.running("ann") == 1
        call = here.enter(ANN)
        assert here.running("ann") == 1
        here.enter(ANN).end()
        assert here.enter(ANN).kind == "budget"
        assert here.enter(BOB).end() is None
    assert here.running("ann") == 1
    call.end()
    assert not len(here)


def test_a_task_that_outlives_the_block_uses_the_reservation():
    """As a message does that is handed on after its request was answered."""

    async def check():
        admission, go = Admission(Budget(in_flight=1, calls_per_minute=1)), asyncio.Event()

        async def later():
            await go.wait()
            return admission.enter(ANN)

        with admission.reserve(ANN):
            task = asyncio.create_task(later())
        go.set()
        assert not isinstance(await task, Failure)
        assert admission.running("ann") == 1

    asyncio.run(check())
