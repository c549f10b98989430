"""What a server tells its operator on standard error and at its start."""

import json
from urllib.request import urlopen

import pytest
from tests.worlds.processes import Process, Stdio, wait_until
from tests.worlds.projects import ACME_SETTINGS, READERS, make_acme

META = ACME_SETTINGS + '[graphs.main.mcp]\nstored_query_mode = "meta"\n'
READ_ONLY = "there are no policies, so no one can write"
TOKEN = {"TRAILS_MCP_TOKEN": "open sesame open sesame"}


@pytest.mark.req("G8")
def test_the_way_in_which_queries_are_offered_is_told(tmp_path):
    """Over standard streams too, where only standard error is the operator's."""
    with Stdio(make_acme(tmp_path / "acme", settings=META)) as client:
        client.initialize()
        client.request("tools/list")
        told = "its stored queries are now offered as stored_query_list and stored_query_run"
        wait_until(lambda: told in client.errors)


@pytest.mark.req("G8")
def test_a_switch_is_told_by_a_server_over_http(tmp_path):
    """When its tools are first asked for."""
    folder = make_acme(tmp_path / "acme", settings=META)
    with Process("serve", "--port", "0", "--json", "-p", folder) as server:
        served = json.loads(server.line())
        urlopen(f"{served['url']}/graphs/main/capabilities").close()  # noqa: S310 - our own
        wait_until(lambda: "are now offered as stored_query_list" in server.errors)


def test_a_token_without_policies_is_told_to_make_the_graph_read_only(tmp_path):
    """At the start, on both fronts, with what to do; with policies it is not."""
    folder = make_acme(tmp_path / "acme")
    with Process("serve", "--port", "0", "--json", "-p", folder, env=TOKEN) as server:
        (line,) = json.loads(server.line())["access"]
        assert line.startswith("read-only: ")
        assert "TRAILS_MCP_TOKEN" in line
        assert READ_ONLY in line
    with Stdio(folder, env=TOKEN) as client:
        wait_until(lambda: READ_ONLY in client.errors)
    guarded = make_acme(tmp_path / "guarded", {"a.cedar": READERS})
    with Process("serve", "--port", "0", "--json", "-p", guarded, env=TOKEN) as server:
        assert READ_ONLY not in str(json.loads(server.line())["access"])
