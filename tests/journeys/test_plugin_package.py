"""The sample plugin: installed by pip, enabled by a setting, used on every surface."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from tests.worlds.clients import Desk
from tests.worlds.packages import MONEY, install
from tests.worlds.processes import Web, command
from tests.worlds.projects import PERMIT_ALL, give_token, make_project
from tests.worlds.surfaces import message_of

from trails.model.capabilities import SCOPES

SETTINGS = '[project]\nname = "acme"\nplugins = ["money"]\n'
APP = '''
from __future__ import annotations

from trails import Node, Ref, node_type, predicate
from trails_money import Money
from trails_money.rates import ExchangeRate


@node_type
class Invoice(Node):
    """An invoice."""

    number: str = predicate(key=True)
    total: Money = predicate(description="What is to be paid.")
    rate: Ref[ExchangeRate] | None = predicate()
'''
QUERY = """#+ name: dear
#+ description: Invoices of an amount.
#+ params:
#+   total: Money
SELECT ?invoice ?total WHERE { ?invoice :total ?total FILTER (?total = $total) }
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A served project, with the package in a folder of its own."""
    root = tmp_path_factory.mktemp("plugins")
    folder = make_project(
        root / "acme",
        APP,
        settings=SETTINGS,
        queries={"dear.rq": QUERY},
        policies={"all.cedar": PERMIT_ALL},
    )
    token = give_token(folder, scopes=SCOPES)
    env = {
        "PYTHONPATH": str(install(MONEY, root / "site")),
        "TRAILS_MCP_SCOPES": ",".join(SCOPES),
    }
    with Web(folder, env=env, cold=True) as web:
        yield Plugged(folder, web, token, env)


class Plugged:
    """The ways to the server."""

    def __init__(self, folder, web, token, env):
        self.folder, self.token, self.env = folder, token, env
        self.desk = Desk(web)

    def rest(self, method, path, body=None):
        """A request below the graph."""
        return self.desk.ask(method, f"/graphs/main/{path}", self.token, body)

    def mcp(self, method, **params):
        """The result of a request over MCP."""
        headers = [("MCP-Protocol-Version", "2025-06-18")]
        body = message_of(None, method, params)
        found = self.desk.ask("POST", "/graphs/main/mcp", self.token, body, headers).json
        return found.get("result", found)

    def call(self, name, **arguments):
        """What a tool gives."""
        return self.mcp("tools/call", name=name, arguments=arguments)["structuredContent"]

    def cli(self, *arguments, code=0):
        """What a command prints."""
        done = subprocess.run(
            command(*arguments),
            cwd=self.folder,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@pytest.mark.req("T25")
def test_the_sample_plugin_works_on_every_surface(world):
    """Kind, type, capability, meta-capability, document and command."""
    tools = {each["name"]: each for each in world.mcp("tools/list")["tools"]}
    assert {"money.convert", "trails_meta_money_missing"} <= tools.keys()
    rate = {"op": "create", "type": "ExchangeRate", "data": {"currency": "USD", "price": "0.9 EUR"}}
    bill = {"op": "create", "type": "Invoice", "data": {"number": "1", "total": "100.00 USD"}}
    assert world.rest("POST", "mutate", {"operations": [rate, bill]}).status == 200
    # the capability, the same on each surface
    asked = {"amount": "10 USD", "to": "EUR"}
    assert world.call("money.convert", **asked) == {"result": "9 EUR"}
    assert world.rest("POST", "invoke/money.convert", asked).json == {"result": "9 EUR"}
    assert world.cli("convert", "--amount", "10 USD", "--to", "EUR").strip() == "9 EUR"
    assert "money.convert" in world.cli("convert", "--help")
    assert "convert" in world.cli("--help").partition("\nPlugins\n")[2]
    # the kind: checked, repaired, stored, queried
    refused = world.rest("POST", "invoke/money.convert", {**asked, "amount": "ten"})
    assert refused.status == 422
    assert "an amount of money like '12.50 EUR'" in refused.json["detail"]
    assert "10 USD" in json.dumps(
        world.mcp("tools/call", name="money.convert", arguments={**asked, "amount": "USD 10"})
    )
    assert world.rest("GET", "kg/Invoice/1?fields=total").json
    assert world.call("dear", params={"total": "100 USD"})["rows"][0]["total"] == "100 USD"
    schema = world.call("schema_get", types=["Invoice"])["types"][0]
    assert "What is to be paid." in json.dumps(schema)
    # the meta-capability
    missing = {"currencies": ["GBP", "USD"]}
    assert world.call("trails_meta_money_missing", **missing) == {"result": ["GBP"]}
    assert world.rest("POST", "admin/money.missing", missing).json == {"result": ["GBP"]}
    # the document
    uri = "trails://plugins/money/currencies"
    assert uri in {each["uri"] for each in world.mcp("resources/list")["resources"]}
    (content,) = world.mcp("resources/read", uri=uri)["contents"]
    assert json.loads(content["text"])["USD"] == "0.9 EUR"
    assert world.rest("GET", "plugins/money/currencies").json["USD"] == "0.9 EUR"
    assert world.rest("GET", "plugins/money/nope").status == 404
    # and doctor
    assert "money 1.0.0" in world.cli("doctor")


def test_data_of_a_plugin_is_exported_and_loaded(world, tmp_path):
    """With the datatype of its kind."""
    rate = {"op": "create", "type": "ExchangeRate", "data": {"currency": "GBP", "price": "1.2 EUR"}}
    world.rest("POST", "mutate", {"operations": [rate]})
    for format, name in (("turtle", "out.ttl"), ("ndjson", "out.ndjson")):
        world.cli("export", "--output", str(tmp_path / name), "--format", format)
        assert "1.2 EUR" in (tmp_path / name).read_text()
        world.cli("load", str(tmp_path / name), "--branch", f"from-{format}", "--from", "main")
    assert "https://example.org/money#amount" in (tmp_path / "out.ttl").read_text()


def test_a_project_without_the_setting_runs_nothing_of_it(world, tmp_path):
    """An installed package is named by doctor, and its command does not exist."""
    folder = make_project(tmp_path / "plain", "")
    assert "money is installed, and not enabled" in world.cli("doctor", "-p", str(folder))
    world.cli("convert", "--amount", "1 USD", "--to", "EUR", "-p", str(folder), code=2)
