"""The first page of a real server, and the documentation that it carries."""

import hashlib
import json
import re
import tomllib
from base64 import b64encode
from contextlib import closing
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.worlds.clients import Desk, Reply
from tests.worlds.processes import PATIENCE, Web, run_command
from tests.worlds.projects import give_token, make_project

from trails.projections.landing import GraphSummary, Landing, project_landing_page
from trails.surfaces.rest.manual import manual

DOCS = Path(__file__).parents[2] / "docs"
TYPES = '''
from trails import node_type, predicate


@node_type
class Pallet:
    """Goods <script>alert(1)</script> & more."""

    key: str = predicate(key=True)


@node_type
class Salary:
    """What nobody else sees."""

    key: str = predicate(key=True)
'''
SETTINGS = """
[project]
name = "warehouse"
[graphs.stock]
policies = "policies/stock"
[graphs.vault]
policies = "policies/vault"
"""
READER = """
permit(principal == Actor::"ann", action == Action::"Read", resource in Graph::"stock");
forbid(principal == Actor::"ann", action == Action::"Read", resource in Type::"Salary");
permit(principal == Actor::"root", action, resource);
"""
ROOT = 'permit(principal == Actor::"root", action, resource);'
LINES = '{"type": "Pallet", "data": {"key": "p1"}}\n{"type": "Salary", "data": {"key": "s1"}}\n'


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A server with two graphs; ann may read one type of one of them, and root everything."""
    folder = make_project(tmp_path_factory.mktemp("landing") / "w", TYPES, settings=SETTINGS)
    for graph, policy in {"stock": READER, "vault": ROOT}.items():
        (folder / "policies" / graph).mkdir(parents=True)
        (folder / "policies" / graph / "all.cedar").write_text(policy)
    load = ["load", "-", "--format", "ndjson", "--graph", "stock"]
    assert run_command(load, folder, LINES).returncode == 0
    tokens = {name: give_token(folder, name) for name in ("ann", "root", "eve")}
    with Web(folder) as web:
        found = Desk(web)
        found.tokens = tokens
        yield found


def page(desk, path="/", actor=None, accept="text/html"):
    """A response for an actor."""
    given = {"Accept": accept}
    if actor is not None:
        given["Authorization"] = f"Bearer {desk.tokens[actor]}"
    with closing(HTTPConnection(urlsplit(desk.url).netloc, timeout=PATIENCE)) as connection:
        connection.request("GET", path, headers=given)
        return Reply(connection.getresponse())


def test_a_stranger_sees_how_to_sign_in_and_nothing_else(desk):
    """No graph, type or name of the project; a token that is wrong is refused."""
    shown = page(desk).body.decode() + json.dumps(page(desk, accept="application/json").json)
    assert "Authorization: Bearer" in shown
    for hidden in ("warehouse", "stock", "vault", "Pallet", "Salary"):
        assert hidden not in shown
    assert desk.ask("GET", "/", "trails_nonsense").status == 401
    assert desk.ask("POST", "/").status == 405


def test_an_actor_sees_what_it_may_read(desk):
    """Graphs, types and counts, as HTML and as JSON; for who may read nothing, nothing."""
    shown = page(desk, actor="ann", accept="application/json").json
    (stock,) = shown["graphs"]
    assert (stock["graph"], stock["nodes"], stock["mcp"]) == (
        "stock",
        1,
        f"{desk.url}/graphs/stock/mcp",
    )
    assert [(each["type"], each["count"]) for each in stock["types"]] == [("Pallet", 1)]
    text = page(desk, actor="ann").body.decode()
    assert "Goods &lt;script&gt;alert(1)&lt;/script&gt; &amp; more." in text
    assert "claude mcp add --transport http warehouse-stock" in text
    assert "Salary" not in text
    assert "vault" not in text
    assert page(desk, actor="eve", accept="application/json").json["graphs"] == []
    every = page(desk, actor="root", accept="application/json").json["graphs"]
    assert [each["graph"] for each in every] == ["stock", "vault"]
    assert page(desk, accept="image/png").status == 406


def test_a_page_may_use_its_own_style_and_nothing_else(desk):
    """The policy has the digest of the style; there are no scripts, and nothing is fetched."""
    for path in ("/", "/docs", "/docs/how-to/rest", "/errors/validation"):
        got = page(desk, path)
        text = got.body.decode()
        (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
        digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = got.headers["content-security-policy"]
        assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
        assert not re.search(r"<script|<img|<link|\ssrc=|\sstyle=|\son\w+=|@import|url\(", text)
    assert "style-src" not in page(desk, "/healthz").headers["content-security-policy"]


class Links(HTMLParser):
    """Where a page leads, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Collect them."""
        found = dict(attrs)
        if tag == "a":
            self.links.append(found["href"])
        if "id" in found:
            self.anchors.add(found["id"])


def test_every_page_of_the_documentation_is_served(desk):
    """As Markdown and for people; links between pages lead somewhere."""
    sources = {each.relative_to(DOCS).as_posix() for each in DOCS.rglob("*.md")}
    assert {f"{name}.md" for name in manual().pages} == sources
    pages = {f"/docs/{name}": Links(manual().html(name)) for name in manual().pages}
    pages["/docs"] = pages["/docs/index"]
    for path, found in pages.items():
        for link in found.links:
            target, _, anchor = link.partition("#")
            at = target or path
            if at.startswith("/docs"):
                assert at in pages, f"{path}: {link}"
                assert not anchor or anchor in pages[at].anchors, f"{path}: {link}"
    assert page(desk, "/docs/how-to/rest").body.decode() == manual().html("how-to/rest")
    assert page(desk, "/docs/how-to/rest.md").body.decode().startswith("# Use the REST")
    for odd in (
        "/docs/nothing",
        "/docs/..%2f..%2fpyproject.toml",
        "/docs/%00",
        "/docs/" + "x" * 500,
    ):
        assert page(desk, odd).status == 404


def test_language_models_get_an_index_and_the_whole(desk):
    """``llms.txt`` has the form of llmstxt.org, and its links lead to pages of this server."""
    index = page(desk, "/llms.txt").body.decode()
    assert re.match(r"# .+\n\n> .+", index)
    links = re.findall(r"^- \[[^\]]+\]\((/docs/[^)]+)\): ", index, re.MULTILINE)
    assert {each.removeprefix("/docs/") for each in links} == {
        f"{name}.md" for name in manual().pages if name != "index"
    }
    whole = page(desk, "/llms-full.txt").body.decode()
    assert whole.startswith("# Trails")
    for part in ("# Tutorial", "# Connect an agent", "# Commands", "`graph_mutate`"):
        assert part in whole
    assert "# Architecture" not in whole  # optional


def test_an_open_server_asks_for_no_token():
    """Nor do the lines that it offers for copying."""
    graph = GraphSummary("main", "acme", 0, [], 3)
    shown = Landing("http://127.0.0.1:1", [graph], known=True, guarded=False)
    text = project_landing_page(shown)
    assert "claude mcp add --transport http acme http://127.0.0.1:1/graphs/main/mcp<" in text
    assert "Bearer" not in text
    signed = Landing("https://kg", [graph], known=True, guarded=True, issuer="https://login")
    assert "--header" not in project_landing_page(signed)  # it would turn signing in off


def test_a_wheel_has_all_pages():
    """A page that the build does not pack would be missing where Trails is installed."""
    settings = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    packed = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert all(target == f"trails/{source}" for source, target in packed.items())
    for each in DOCS.rglob("*.md"):
        path = each.relative_to(DOCS.parent).as_posix()
        assert any(path == source or path.startswith(f"{source}/") for source in packed), path
