"""The card of a graph: what it says is so, over real HTTP."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.cards import problems_of
from tests.worlds.clients import served
from tests.worlds.surfaces import Wires

from trails import App
from trails.model.actors import LOCAL
from trails.projections.thing_description import data_schema

NORTHLINE = Path(__file__).parents[3] / "examples" / "northline"
EXTENSIONS = {
    "trails:assurance",
    "trails:costEstimate",
    "trails:policyRequired",
    "trails:consentRequired",
    "trails:preconditions",
    "trails:sideEffects",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Northline with its data."""
    folder = tmp_path_factory.mktemp("cards") / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def wires(folder):
    """Northline over every wire."""
    with App.open(folder) as app, Wires(app) as opened:
        yield opened


def card_of(wires):
    """The card of the graph."""
    reply = wires.rest("GET", "/card")
    assert (reply.status, dict(reply.headers)[b"content-type"]) == (200, b"application/td+json")
    return json.loads(reply.body)


@pytest.mark.req("W7")
def test_a_card_is_a_thing_description(wires):
    """With an action for each tool, and a property and an event for each type."""
    card = card_of(wires)
    assert problems_of(card) == []
    assert set(card["actions"]) == {each.name for each in wires.kernel.tools(LOCAL).tools}
    types = {each.name for each in wires.kernel.card(LOCAL).schema.types}
    assert set(card["events"]) == types
    assert set(card["properties"]) == types | {f"{each}.instance" for each in types}


@pytest.mark.req("W3")
def test_what_tools_and_actions_share_is_equal(wires):
    """And neither has what belongs to the other."""
    card = card_of(wires)
    (listed, _) = wires.by_doors("2025-06-18", "tools/list", {})
    for tool in listed.message["result"]["tools"]:
        action = card["actions"][tool["name"]]
        assert action["description"] == tool["description"]
        assert action["input"] == data_schema(tool["inputSchema"])
        assert action["output"] == data_schema(tool["outputSchema"])
        hints = tool["annotations"]
        assert action["safe"] == hints.get("readOnlyHint", False)
        assert action["idempotent"] == hints.get("idempotentHint", action["safe"])
        assert not {"annotations", "_meta", "inputSchema", "outputSchema", "execution"} & set(
            action
        )
        text = json.dumps(tool)
        assert not re.search(r'"(forms|security\w*|trails:(?!node_type)\w+)"', text), text
    extended = {
        name: {each for each in action if each.startswith("trails:")}
        for name, action in card["actions"].items()
    }
    assert extended["requirements.accept"] == EXTENSIONS
    assert extended["graph_query"] == set()


def expand(template, **given):
    """A URI template with some of its variables."""

    def query(found):
        names = [each for each in found[1].split(",") if each in given]
        return "?" + "&".join(f"{each}={given[each]}" for each in names) if names else ""

    filled = re.sub(r"{\?([^}]*)}", query, template)
    return re.sub(r"{(\w+)}", lambda found: given[found[1]], filled)


def test_forms_lead_where_they_say(wires):
    """Every safe action, and every property, of which the arguments are known."""
    card = card_of(wires)
    first = card["actions"]["programme.summary"]["forms"][0]
    assert wires.rest("POST", f"/{first['href']}", {}).status == 200
    for name in ("Requirement", "Component"):
        page = card["properties"][name]["forms"][0]["href"]
        path, _, query = expand(page, limit="2").partition("?")
        reply = wires.rest("GET", f"/{path}", query=query.encode())
        shown = json.loads(reply.body)
        assert len(shown["instances"]) == 2
        identifier = shown["instances"][0]["iri"].rpartition("/")[2]
        one = expand(card["properties"][f"{name}.instance"]["forms"][0]["href"], id=identifier)
        assert wires.rest("GET", f"/{one}").status == 200
    mcp = card["actions"]["programme.summary"]["forms"][1]
    call = {"name": mcp["trails:tool"], "arguments": {}}
    fast, _ = wires.by_doors("2025-06-18", mcp["trails:method"], call)
    assert fast.status == 200


@pytest.mark.req("W7")
def test_security_is_that_of_the_server(folder):
    """A card says how callers are recognised; the directory leads to it."""
    with served(folder, env={"TRAILS_MCP_TOKEN": "s" * 40}) as desk:
        token = "s" * 40
        assert desk.ask("GET", "/.well-known/wot").status == 401
        directory = desk.ask("GET", "/.well-known/wot", token)
        assert directory.headers["content-type"] == "application/td+json"
        found = json.loads(directory.body)
        assert problems_of(found) == []
        (link,) = found["links"]
        assert found["base"] + link["href"] == f"{desk.url}/graphs/main/card"
        card = json.loads(desk.ask("GET", "/graphs/main/card", token).body)
        assert problems_of(card) == []
        assert card["base"] == f"{desk.url}/graphs/main/"
        for each in (found, card):
            (scheme,) = each["securityDefinitions"].values()
            assert (scheme["scheme"], scheme["in"]) == ("bearer", "header")
