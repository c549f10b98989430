"""What browsers are told: which pages may read answers, and what not to do with them."""

from __future__ import annotations

import json
import re

import pytest
from tests.app.serve.http.fronts import LOCALHOST, Front
from tests.worlds.surfaces import REVISIONS, headers_of, message_of

from trails.app.serve.http.hosts import HostPolicy

PAGE = "https://app.example.org"
TOKEN = "canary-77aa"
BEARER = f"authorization: Bearer {TOKEN}"
MCP = "/graphs/main/mcp"
PATHS = [
    *("/healthz", "/graphs", "/graphs/main/snapshot", MCP, "/graphs/main/nothing", "/nothing"),
    *("/graphs/none/mcp", "/graphs/none/snapshot", "/graphs/main/export"),
]


@pytest.fixture(scope="module")
def front():
    """A front that asks for a token, and shares with one page."""
    policy = HostPolicy.for_bind("127.0.0.1", (), [PAGE], credentials=True)
    with Front(policy, token=TOKEN) as front:
        yield front


@pytest.fixture(scope="module")
def private():
    """A front that shares with nobody."""
    with Front() as front:
        yield front


def preflight(front, *headers, path=MCP, origin=PAGE, method="POST"):
    """What a browser is told that asks in advance."""
    asked = f"access-control-request-method: {method}"
    return front.ask(f"OPTIONS {path} HTTP/1.1", LOCALHOST, f"origin: {origin}", asked, *headers)


def names(answer, header):
    """The members of a header that is a list."""
    return set(re.split(r",\s*", answer.header(header) or ""))


@pytest.mark.parametrize("path", PATHS)
def test_a_preflight_needs_no_credential(front, path):
    """The page is named, never all pages, and no cookies are spoken of."""
    wanted = "access-control-request-headers: authorization, mcp-protocol-version, x-evil"
    found = preflight(front, wanted, path=path)
    assert (found.status, found.body) == (204, b"")
    assert found.header("access-control-allow-origin") == PAGE
    assert found.header("vary") == "Origin"
    assert names(found, "access-control-allow-methods") == {
        "GET",
        "HEAD",
        "POST",
        "DELETE",
        "OPTIONS",
    }
    allowed = names(found, "access-control-allow-headers")
    assert {"authorization", "content-type", "mcp-protocol-version", "mcp-session-id"} <= allowed
    assert not {"x-evil", "*", "cookie"} & allowed
    assert found.header("access-control-allow-credentials") is None
    assert int(found.header("access-control-max-age")) <= 7200


def test_headers_that_repeat_arguments_may_be_sent(front):
    """Those of that form alone, of the many that a page may name."""
    odd = "Mcp-Param-Region, mcp-param-, mcp-param-a b, mcp-param-\xe9, mcp-param-" + "a" * 200
    found = preflight(front, f"access-control-request-headers: {odd}")
    allowed = names(found, "access-control-allow-headers")
    assert "mcp-param-region" in allowed
    assert sum(each.startswith("mcp-param") for each in allowed) == 1


def test_a_configured_page_may_read_answers(front):
    """Good ones and bad ones, with the headers that a client of MCP needs to see."""
    for path in PATHS:
        for given in ((), (BEARER,)):
            found = front.get(path, f"origin: {PAGE}", *given)
            assert found.header("access-control-allow-origin") == PAGE
            assert ("vary", "Origin") in found.headers
            exposed = names(found, "access-control-expose-headers")
            assert {"mcp-session-id", "mcp-protocol-version", "www-authenticate"} <= exposed
            assert {"etag", "link"} <= exposed
            assert "access-control-allow-credentials" not in dict(found.headers)


def test_other_pages_are_told_nothing(front, private):
    """Pages of this machine pass the guard, and their scripts read nothing; others do not pass."""
    for each in (front, private):
        for origin in ("http://localhost:3000", "http://127.0.0.1"):
            plain = each.get("/healthz", f"origin: {origin}")
            assert plain.status == 200
            asked = preflight(each, origin=origin)
            assert asked.status == 204
            for found in (plain, asked):
                assert not [name for name, _ in found.headers if name.startswith("access-control")]
        for origin in ("https://evil.example", "null", PAGE + ".evil.example"):
            found = preflight(each, origin=origin)
            assert found.status == 403
            assert not [name for name, _ in found.headers if name.startswith("access-control")]
    assert front.get("/healthz").header("vary") == "Origin"
    assert private.get("/healthz").header("vary") is None


def test_an_option_request_that_is_no_preflight_needs_a_credential(front):
    """Only what a browser sends by itself is answered to everybody."""
    assert front.ask("OPTIONS /graphs HTTP/1.1", LOCALHOST).status == 401
    assert front.ask("OPTIONS /graphs HTTP/1.1", LOCALHOST, f"origin: {PAGE}").status == 401
    wanted = "access-control-request-method: GET"
    assert front.ask("OPTIONS /graphs HTTP/1.1", LOCALHOST, wanted).status == 401


@pytest.mark.parametrize("path", PATHS)
def test_every_response_has_the_security_headers(front, private, path):
    """Whatever its status; nothing is said about the software, and HSTS belongs to TLS."""
    answers = [front.get(path), front.get(path, BEARER), private.get(path)]
    answers += [front.get(path, "host: evil.example"), private.get(path, f"origin: {PAGE}")]
    answers += [private.ask(f"PUT {path} HTTP/1.1", LOCALHOST), preflight(front, path=path)]
    answers += [private.get(path, "x: " + "y" * 20_000), *private.send(b"garbage\r\n\r\n")]
    assert {each.status for each in answers} >= {403, 204, 431, 400}
    for found in answers:
        assert found.header("x-content-type-options") == "nosniff"
        assert found.header("referrer-policy") == "no-referrer"
        assert found.header("content-security-policy").startswith("default-src 'none'")
        assert found.header("cross-origin-resource-policy") == "same-origin"
        assert "no-" in found.header("cache-control")
        assert found.header("server") is None
        assert found.header("strict-transport-security") is None


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_answers_of_mcp_have_them_too(private, revision):
    """Results and errors, of every revision; a stream is not kept by a cache either."""
    for name in ("graph_health", "no_such_tool"):
        params = {"name": name, "arguments": {}}
        body = json.dumps(message_of(revision, "tools/call", params)).encode()
        lines = [b"%b: %b" % each for each in headers_of(revision, "tools/call", params)]
        found = private.ask(
            f"POST {MCP} HTTP/1.1", *lines, f"content-length: {len(body)}", body=body
        )
        assert found.header("x-content-type-options") == "nosniff"
        assert found.header("cache-control") == "no-store"
        assert found.json["id"] == 1


def test_refusals_have_one_form_and_tell_no_graph(front):
    """Problems of RFC 9457; a graph that is not there is not told from others."""
    for path, status, code in (
        ("/graphs", 401, "unauthenticated"),
        (MCP, 401, "unauthenticated"),
        ("/graphs/none/mcp", 401, "unauthenticated"),
        ("/nothing", 401, "unauthenticated"),
    ):
        found = front.get(path)
        assert (found.status, found.code) == (status, code)
        assert set(found.json) == {"type", "title", "status", "detail", "code"}
        assert found.header("content-type") == "application/problem+json"
        assert front.get(found.json["type"]).header("content-type").startswith("text/html")
        assert found.header("www-authenticate") == "Bearer"
    first, second = (
        front.get("/graphs/none/mcp", BEARER),
        front.get("/graphs/none/snapshot", BEARER),
    )
    assert first.status == second.status == 404
    assert first.body == second.body
    assert b"main" not in first.body
    assert TOKEN not in str([first, second])


def test_whether_it_lives_is_all_that_is_told(front):
    """To everybody who asks under a right name; nothing else is open, however it is spelt."""
    found = front.get("/healthz")
    assert (found.status, found.json) == (200, {"status": "ok"})
    for path in (
        "/errors%2fgraphs",
        "/errors/../graphs",
        "/errors/%2e%2e/graphs",
    ):
        assert front.get(path).status in {400, 401, 404}
    for path in (
        "/healthz/",
        "/healthz/../graphs",
        "//healthz",
        "/HEALTHZ",
        "/graphs/%2e%2e/healthz",
    ):
        assert front.get(path).status == 401
    for path in ("/healthz%2f..%2fgraphs", "/%68ealthz"):
        assert front.get(path).status in {401, 404}
