"""Northline on every wire: each surface says of each callable what its declaration says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.worlds.processes import run_command
from tests.worlds.surfaces import Wires

from trails import App, Context, capability
from trails.model.actors import LOCAL, OPERATOR
from trails.model.capabilities import Capability, StoredQuery
from trails.projections.coherence import CARD, CLI, MCP, REST, compare, describe, describe_tool
from trails.request.operations import OPERATIONS

NORTHLINE = Path(__file__).parents[2] / "examples" / "northline"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Northline without data."""
    folder = tmp_path_factory.mktemp("agree") / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    return folder


def expected_of(wires, actor=LOCAL):
    """What declarations say of everything that is served."""
    registry, found = wires.kernel._service.registry, {}
    for entry in wires.kernel._pin().entries.values():
        if entry.tool.scope not in actor.scopes:
            continue
        if isinstance(entry.source, Capability | StoredQuery):
            found[entry.tool.name] = describe(entry.source, registry)
        else:
            (builtin,) = [each for each in OPERATIONS if each.name == entry.tool.name]
            made = describe_tool(entry.tool)
            assert (made.description, made.idempotent) == (
                builtin.description,
                builtin.hints.idempotent,
            )
            found[entry.tool.name] = made
    return found


def documents(wires):
    """Every wire's list of callables."""
    for revision, message in wires.everywhere("tools/list", {}):
        yield MCP, f"tools/list {revision}", message["result"]
    yield CARD, "card", json.loads(wires.rest("GET", "/card").body)
    yield REST, "capabilities", json.loads(wires.rest("GET", "/capabilities").body)


@pytest.mark.req("W4")
@pytest.mark.req("W2")
def test_every_wire_says_what_is_declared_also_after_a_change(folder):
    """A new version of a capability is on all of them at once, and what else they say stays."""
    with App.open(folder) as app, Wires(app) as wires:
        expected = expected_of(wires)
        for kind, where, document in documents(wires):
            assert list(compare(kind, expected, document)) == [], where

        @capability("agree.check", side_effects=["none"])
        def check(ctx: Context, text: str, often: int = 2) -> list[str]:
            """Check it."""
            return [text] * often

        app.register(check)
        first = expected_of(wires)
        assert first.keys() - expected.keys() == {"agree.check"}
        for kind, where, document in documents(wires):
            assert list(compare(kind, first, document)) == [], where

        @capability("agree.check", side_effects=["none"])
        def check_again(ctx: Context, text: str, times: int = 3) -> int:
            """Check it otherwise."""
            return times

        app.register(check_again)
        second = expected_of(wires)
        assert second["agree.check"] != first["agree.check"]
        for kind, where, document in documents(wires):
            assert list(compare(kind, second, document)) == [], where
            assert "agree.check" in {each.name for each in compare(kind, first, document)}
    with App.open(folder) as app, Wires(app) as wires:
        expected = expected_of(wires, OPERATOR)
    shown = run_command(("tools", "--json"), folder)
    assert list(compare(CLI, expected, json.loads(shown.stdout))) == []
