"""Random requests: whatever is sent, the answer is JSON and never a 5xx."""

import json
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import sized

from trails.surfaces.rest.routes import build_routes

PATHS = sorted(route.path for route in build_routes({}))
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
TYPES = (
    "application/json",
    "application/ld+json",
    "application/x-ndjson",
    "application/sparql-query",
    "application/sparql-update",
    "text/turtle",
    "text/csv",
    "multipart/form-data",
    "",
)
WORDS = (
    b"main",
    b"Note",
    b"a",
    b"graph_query",
    b"graph_mutate",
    b"notes.finish",
    b"by_status",
    b"branch_merge",
    b"..",
)
NAMES = ("branch", "snapshot", "limit", "offset", "cursor", "where", "from", "to", "type", "format")
MEMBERS = ("query", "update", "operations", "params", "name", "source", "resolutions", "message")

parts = st.one_of(st.sampled_from(WORDS), st.binary(min_size=1, max_size=12)).map(
    lambda part: quote_from_bytes(part, safe="")
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(("main", "Note/a", "ASK {}", "DELETE WHERE { ?s ?p ?o }", "SELECT * {")),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(("op", "type", "id", "data", "@id", "x")), inner),
    ),
    max_leaves=8,
)
members = st.sampled_from((*MEMBERS, *NAMES, "note", "conflict"))
bodies = st.one_of(
    st.none(),
    st.binary(max_size=60),
    st.dictionaries(members, values, max_size=5).map(lambda body: json.dumps(body).encode()),
    values.map(lambda body: json.dumps(body).encode()),
)
queries = st.lists(st.tuples(st.sampled_from((*NAMES, "x")), parts).map("=".join), max_size=3).map(
    "&".join
)


@st.composite
def requests(draw):
    """A request for something that may exist."""
    path = draw(st.sampled_from(PATHS))
    for name in ("graph", "type", "id", "name", "branch", "commit"):
        if f"{{{name}}}" in path:
            part = draw(parts) if name != "graph" or draw(st.integers(0, 9)) == 0 else "main"
            path = path.replace(f"{{{name}}}", part)
    if draw(st.integers(0, 9)) == 0:
        path += "/" + draw(parts)
    query = draw(queries)
    target = f"{path}?{query}" if query else path
    return draw(st.sampled_from(METHODS)), target, draw(bodies), draw(st.sampled_from(TYPES))


def check(client, request):
    """Send it, and judge what comes back."""
    method, target, body, media = request
    headers = {"content_type": media} if media else {}
    got = client.send(method, target, body, **headers)
    # One graph of this server is in quarantine, so it is not ready.
    assert got.status < 500 or (got.status == 503 and target.startswith("/readyz")), got.body
    if got.status >= 400 and method != "HEAD":
        error = json.loads(got.body)
        assert got.headers["content-type"] == "application/problem+json"
        assert (error["status"], error["type"]) == (got.status, f"/errors/{error['code']}")
        assert error["detail"]
        assert "Traceback" not in error["detail"]


@settings(max_examples=200)
@given(request=requests())
def test_random_requests_are_answered(client, request):
    """Known paths with odd names, odd parameters and odd bodies."""
    check(client, request)


@pytest.mark.long
@settings(max_examples=sized(10_000, nightly=1_000))
@given(request=requests())
def test_ten_thousand_random_requests_are_answered(client, request):
    """The same, for longer."""
    check(client, request)
