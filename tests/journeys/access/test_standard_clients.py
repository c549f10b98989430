"""What standard clients can ask for hides what it has to: SPARQL, and records in their formats."""

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


@pytest.mark.req("G7")
@pytest.mark.parametrize(
    "accept", ["application/json", "application/ld+json", "text/turtle", "text/csv"]
)
def test_no_form_of_a_record_shows_a_hidden_field(shop, accept):
    """A porter sees people without their salaries, and can't ask for those; vaults don't exist."""
    headers = [(b"accept", accept.encode())]
    for who, shown in (("admin", True), ("porter", False)):
        for path in ("kg/Person", "kg/Person/ann"):
            if accept == "text/csv" and path.endswith("ann"):
                continue
            found = request(shop, actor(who), "GET", path, headers=headers)
            assert found.status == 200, found.body
            if accept != "application/json" or path.endswith("ann"):
                assert (b"canary_salary" in found.body) == shown
            asked = b"fields=canary_salary"
            found = request(shop, actor(who), "GET", path, query=asked, headers=headers)
            assert found.status == (200 if shown else 422), found.body
        found = request(shop, actor(who), "GET", "kg/CanaryVault", headers=headers)
        assert found.status == (200 if shown else 404)
