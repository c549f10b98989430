"""``/schema``, ``/stats``, ``/doctor`` and ``/admin``: documents and operations about a graph."""

import json

import msgspec
import pytest
import rdflib
from jsonschema import Draft202012Validator
from tests.journeys.access.shop import ACTORS, Shop
from tests.worlds.surfaces import ask_app


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Tasks, people and hidden vaults, with policies."""
    with Shop(tmp_path_factory.mktemp("documents") / "shop") as shop:
        yield shop


@pytest.fixture(scope="module")
def get(shop):
    """Ask for a path as an actor."""

    def ask(path, who="admin", method="GET", document=None, **headers):
        path, _, query = path.partition("?")
        full = f"/graphs/main{path}"
        given = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
        body = b"" if document is None else json.dumps(document).encode()
        if document is not None:
            given.append((b"content-type", b"application/json"))
        scope = {"path": full, "raw_path": full.encode(), "query_string": query.encode()}
        caller = who if not isinstance(who, str) else ACTORS[who]
        return shop.doors.run(
            ask_app(shop.rest_app, given, [body], method, **{"trails.actor": caller}, **scope)
        )

    return ask


def header(reply, name):
    """A header of an answer."""
    return dict(reply.headers)[name.encode()].decode()


def test_types_are_json_json_schema_or_shacl(get):
    """By the Accept header; each has a tag, and is not sent again to who has it."""
    seen = {}
    for accept, media in (
        ("application/json", "application/json"),
        ("application/schema+json", "application/schema+json"),
        ("text/turtle", "text/turtle; charset=utf-8"),
        ("*/*", "application/json"),
    ):
        reply = get("/schema", accept=accept)
        assert (reply.status, header(reply, "content-type")) == (200, media)
        tag = seen[accept] = header(reply, "etag")
        assert get("/schema", accept=accept, if_none_match=tag).status == 304
    assert len(set(seen.values())) == 3
    whole = json.loads(get("/schema").body)
    assert [each["type"] for each in whole["types"]] == ["CanaryVault", "Person", "Task"]
    definitions = json.loads(get("/schema", accept="application/schema+json").body)
    Draft202012Validator.check_schema(definitions)
    assert set(definitions["$defs"]) == {"CanaryVault", "Person", "Task"}
    shapes = rdflib.Graph().parse(data=get("/schema", accept="text/turtle").body, format="turtle")
    assert len(shapes) > 10
    assert get("/schema", accept="image/png").status == 406


@pytest.mark.parametrize("accept", ["application/json", "application/schema+json", "text/turtle"])
def test_types_are_those_that_the_caller_sees(get, accept):
    """In every form, on every branch; who may read nothing finds nothing."""
    assert b"CanaryVault" in get("/schema", accept=accept).body
    for path in ("/schema", "/schema?branch=dev"):
        body = get(path, "clerk", accept=accept).body
        assert b"Person" in body
        assert b"anary" not in body
    assert get("/schema", "nobody", accept=accept).status == 404
    for query in ("?branch=nope", "?branch=canary-branch"):
        assert get(f"/schema{query}", "clerk", accept=accept).status == 404
    assert get("/schema?branch=a&snapshot=b", accept=accept).status == 400
    assert get("/schema?x=1", accept=accept).status == 400


def test_statistics_are_of_what_the_caller_sees(get):
    """As the resource has them."""
    every, some = (json.loads(get("/stats", who).body) for who in ("admin", "clerk"))
    assert "CanaryVault" in json.dumps(every)
    assert "anary" not in json.dumps(some)
    assert get("/stats", "nobody").status == 404
    assert get("/stats?branch=dev", "clerk").status == 200


@pytest.mark.req("W6")
def test_the_doctor_is_for_administrators(get):
    """Others find nothing at its path, as at one that does not exist."""
    found = json.loads(get("/doctor").body)
    assert found["healthy"] is True
    names = {each["name"] for each in found["findings"]}
    assert {"projections", "types", "log", "commit chain", "tool names", "policies"} <= names
    for who in ("reader", "writer", "clerk", "asker", "runner", "nobody"):
        reply = get("/doctor", who)
        assert reply.status == 404, who
        assert b"findings" not in reply.body
    assert get("/doctor", replace_scopes(ACTORS["admin"], ())).status in {401, 403}
    assert get("/doctor?branch=main").status == 400


def replace_scopes(who, scopes):
    """The same actor with other scopes."""
    return msgspec.structs.replace(who, scopes=frozenset(scopes))


def test_operations_on_the_application_need_their_scope(get):
    """As over MCP: what the scope does not allow is refused, what policies deny is unknown."""
    assert json.loads(get("/admin/ping", "nobody", "POST", {}).body)["pong"] is True
    assert get("/admin/shop.build", "admin", "POST", {}).status == 403
    builder = replace_scopes(ACTORS["admin"], ("runtime", "builder"))
    assert get("/admin/shop.build", builder, "POST", {}).status == 500  # it runs, and fails
    denied = replace_scopes(ACTORS["reader"], ("runtime", "builder"))
    phantom = get("/admin/shop.nothing", denied, "POST", {})
    masked = get("/admin/shop.build", denied, "POST", {})
    assert (masked.status, phantom.status) == (404, 404)
    assert masked.body.replace(b"build", b"nothing") == phantom.body
    for name in ("tasks.count", "graph_snapshot", "%00", "A" * 300, "..", "a%2Fb", "%F0%9F%92%A9"):
        assert get(f"/admin/{name}", builder, "POST", {}).status == 404
    assert get("/admin/ping", "admin").status == 405
