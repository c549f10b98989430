"""Decisions about access, beside one bare call of Cedar on the same policies.

The bare call has everything compiled beforehand. A cold decision is about a branch that was
never asked about; a cold list is for an actor that was never seen. The graph has 300 branches.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import cedarpy

from bench.measure import OUT, Goal, Result, Times, interleave
from trails import App
from trails.app.kernels import kernel_of
from trails.model.actors import Actor
from trails.model.decisions import Resource
from trails.policies.vocabulary import actor_records, graph_world

TOOLS: Final = 50
BRANCHES: Final = 300
APP: Final = """
from trails import Context, Node, capability, node_type, predicate
"""
TYPE: Final = '''

@node_type
class Thing{number:02}(Node):
    """One of many kinds."""

    code: str = predicate(key=True)
    title: str = predicate()
    state: str = predicate()
    owner: str = predicate()
    cost: int | None = predicate()
    notes: str | None = predicate()
'''
CAPABILITY: Final = '''

@capability("things.do_{number:02}", side_effects=[{effect!r}])
async def do_{number:02}(ctx: Context, text: str = predicate(max_length=1000)) -> str:
    """Do something."""
    return text
'''
TEAMS: Final = """
@id("team {number} reads")
permit(principal in Group::"team-{number}", action == Action::"Read", resource in Graph::"main")
when {{ context.branch == "main" || context.branch like "team-{number}/*" }};
@id("team {number} works")
permit(principal in Group::"team-{number}",
       action in [Action::"Change", Action::"BranchCreate", Action::"InvokeCapability"],
       resource in Graph::"main")
when {{ context.branch like "team-{number}/*" }};
"""
POLICIES: Final = """
@id("agents read")
permit(principal in Group::"agents", action in [Action::"Read", Action::"Export"],
       resource in Graph::"main");
@id("agents see no costs")
forbid(principal in Group::"agents", action == Action::"Read", resource in Field::"Thing03.cost");
@id("agents work on their branches")
permit(principal in Group::"agents",
       action in [Action::"Change", Action::"BranchCreate", Action::"BranchMerge"],
       resource in Graph::"main")
when { context.branch like "agents/*" && context.target != "main" };
@id("agents call what only reads")
permit(principal in Group::"agents", action == Action::"InvokeCapability", resource)
when { resource.reads_only };
@id("agents do not touch releases")
forbid(principal in Group::"agents", action, resource)
when { context.branch like "release-*" || ["stable", "archive"].contains(context.branch) };
@id("admins")
permit(principal in Group::"admins", action, resource) unless { context.branch == "archive" };
"""
GROUPS: Final = frozenset({"agents", "team-3"})
GRAPH: Final = Resource("Graph", "main")


def run(*, quick: bool) -> list[Result]:
    """All comparisons on one project."""
    with TemporaryDirectory(dir=OUT) as temporary, App.open(_project(Path(temporary))) as app:
        for name in _branches(20 if quick else BRANCHES):
            app.versions().create_branch(name)
        return [*_decisions(app, 50 if quick else 3000), *_lists(app, 5 if quick else 200)]


def _project(folder: Path) -> Path:
    (folder / "trails.toml").write_text('[project]\nname = "bench"\n', encoding="utf-8")
    types = "".join(TYPE.format(number=number) for number in range(10))
    capabilities = "".join(
        CAPABILITY.format(number=number, effect="none" if number % 3 else "sends mail")
        for number in range(TOOLS)
    )
    (folder / "app.py").write_text(APP + types + capabilities, encoding="utf-8")
    (folder / "policies").mkdir()
    text = POLICIES + "".join(TEAMS.format(number=number) for number in range(7))
    (folder / "policies" / "access.cedar").write_text(text, encoding="utf-8")
    return folder


def _branches(number: int) -> list[str]:
    kinds = ("agents/a{}", "team-3/b{}", "team-5/c{}", "release-{}", "topic-{}")
    return [kinds[each % len(kinds)].format(each) for each in range(number - 1)]


def _bare(app: App, actor: Actor) -> tuple[Callable[[], object], Callable[[], object]]:
    """One call of Cedar with compiled policies and entities; and with the context encoded."""
    assert app.folder is not None  # noqa: S101 - a project has one
    text = (app.folder / "policies" / "access.cedar").read_text(encoding="utf-8")
    policies = cedarpy.PolicySet.from_str(text)
    records = [each.record() for each in graph_world(app.registry(), "main").entities.values()]
    entities = cedarpy.Entities.from_json_str(json.dumps([*records, *actor_records(actor)]))
    request = {
        "principal": {"type": "Actor", "id": actor.name},
        "action": {"type": "Action", "id": "Change"},
        "resource": {"type": "Graph", "id": "main"},
        "context": {"branch": "agents/x", "target": ""},
    }
    encoded = {**request, "context": json.dumps(request["context"])}
    return (
        lambda: cedarpy.is_authorized(request, policies, entities),
        lambda: cedarpy.is_authorized(encoded, policies, entities),
    )


def _decisions(app: App, rounds: int) -> list[Result]:
    judge = app.policies.judge("main")
    actor = Actor("bench", groups=GROUPS)
    bare, encoded = _bare(app, actor)
    numbers = count()
    many = range(100)

    def cold() -> None:
        judge.allows(actor, "Change", GRAPH, f"agents/{next(numbers)}")

    def warm() -> None:
        for _ in many:
            judge.allows(actor, "Change", GRAPH, "agents/x")

    times = interleave({"cold": cold, "warm": warm, "bare": bare, "encoded": encoded}, rounds)
    return [
        _result("a decision, cold", times["cold"].p50, times, Goal("<=", 1.6)),
        _result("a decision, remembered", times["warm"].p50 / 100, times, Goal("<=", 0.1)),
    ]


def _lists(app: App, rounds: int) -> list[Result]:
    kernel = kernel_of(app)
    actor = Actor("bench", groups=GROUPS)
    bare, encoded = _bare(app, actor)
    numbers = count()
    shown = kernel.tools(actor).tools

    def cold() -> None:
        kernel.tools(Actor(f"bench-{next(numbers)}", groups=GROUPS))

    calls = {
        "cold": cold,
        "warm": lambda: kernel.tools(actor),
        "bare": bare,
        "encoded": encoded,
    }
    try:
        times = interleave(calls, rounds)
    finally:
        kernel.close()
    extra = {"tools": len(shown), "branches": BRANCHES}
    return [
        _result("the tools of an actor, cold", times["cold"].p50, times, Goal("<=", 120), extra),
        _result("the tools of an actor, warm", times["warm"].p50, times, Goal("<=", 1), extra),
    ]


def _result(
    name: str,
    ours: float,
    times: dict[str, Times],
    goal: Goal,
    extra: dict[str, object] | None = None,
) -> Result:
    return Result(
        name,
        "µs",
        ours * 1e6,
        times["bare"].p50 * 1e6,
        times["encoded"].p50 * 1e6,
        goal,
        "one call of cedarpy, all compiled · the same with the context encoded",
        extra or {},
    )
