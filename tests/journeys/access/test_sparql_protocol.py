"""The SPARQL endpoint shows and hides what ``query`` does, to everybody and everywhere."""

import json
from urllib.parse import quote, urlencode

import pytest
from tests.journeys.access.shop import ACTORS, BRANCHES, Shop, actor
from tests.worlds.surfaces import ask_app

QUERY = "SELECT ?s ?p ?o { ?s ?p ?o } LIMIT 10000"
SEEN = ("admin", "reader", "writer", "asker", "runner", "clerk", "nobody", "typist", "dev")
WHOLE = ("admin", "reader", "writer")
CSV = [(b"accept", b"text/csv")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The shop, served."""
    with Shop(tmp_path_factory.mktemp("sparql") / "shop") as shop:
        yield shop


def request(shop, who, method, path, *, query=b"", body=b"", headers=()):
    """What REST answers."""
    full = f"/graphs/main/{path}"
    scope = {"path": full, "raw_path": full.encode(), "query_string": query, "trails.actor": who}
    return shop.doors.run(ask_app(shop.rest_app, list(headers), [body], method, **scope))


def places(shop):
    """Paths, with the arguments of ``query`` that mean the same."""
    yield "sparql", {}
    for branch in (*BRANCHES, "nope"):
        yield f"branches/{quote(branch, safe='')}/sparql", {"branch": branch}
    for commit in (*shop.commits.values(), "0" * 64):
        yield f"commits/{commit}/sparql", {"snapshot": commit}


@pytest.mark.req("G7")
@pytest.mark.parametrize("name", SEEN)
def test_it_hides_what_query_hides(shop, name):
    """The same refusal, word by word, or as many rows; who reads a part of a graph gets none."""
    who = ACTORS.get(name) or actor(name)
    for path, place in places(shop):
        document = json.dumps({"query": QUERY, **place}).encode()
        sent = [(b"content-type", b"application/json")]
        plain = request(shop, who, "POST", "query", body=document, headers=sent)
        asked = urlencode({"query": QUERY}).encode()
        found = request(shop, who, "GET", path, query=asked, headers=CSV)
        assert found.status == plain.status, (path, found.body, plain.body)
        if found.status >= 400:
            assert found.message == plain.message, path
        else:
            rows = json.loads(plain.body)["rows"]
            assert found.body.count(b"\r\n") == len(rows) + 1
        if name not in WHOLE:
            assert b"canary-content" not in found.body
            assert found.status >= 400 or "branches/dev" in path
    names = [each.name for _, each in shop.app.graph().activities.read()]
    assert set(names) == {"graph_load", "graph_query"}
