"""A scope that is lacking is asked for alike, whichever door a request comes through."""

from __future__ import annotations

import json

import pytest
from tests.worlds.surfaces import (
    LEGACY,
    MODERN,
    REVISIONS,
    Doors,
    TrivialBackend,
    headers_of,
    message_of,
)

from trails.identity.oauth.challenges import PLAIN, Challenges
from trails.identity.oauth.settings import OAuth
from trails.model.actors import Actor
from trails.model.results import Failure

DATA = {"tool": "locked", "required_scope": "builder", "caller_scopes": ["runtime"]}
LOCKED = Failure("scope", "scope", "locked needs the scope 'builder'", DATA)
DENIED = Failure("denied", "denied", "not today", {})
ADA = Actor("ada", credential="oauth:1:k:t")
CHALLENGES = Challenges(
    OAuth(issuer="https://login.example", audience="trails", jwks="{}"), {"runtime", "builder"}
)
ASK = CHALLENGES.step_up(ADA, {"runtime", "builder"})
WANTED = (b"www-authenticate", b'Bearer error="insufficient_scope", scope="runtime builder"')


class Backend(TrivialBackend):
    """Locked, for calling and for reading."""

    def __init__(self):
        super().__init__({"locked": LOCKED, "denied": DENIED})

    async def read(self, actor, uri):
        """Nothing."""
        self.calls.append(("read", uri))
        return LOCKED if uri == "test://locked" else DENIED


@pytest.fixture(scope="module", params=[False, True], ids=["without sessions", "with sessions"])
def doors(request):
    """Both doors, with a backend of each."""
    with Doors(Backend, legacy_sessions=request.param) as doors:
        yield doors


def ask(doors, revision, method, params, **scope):
    """What both doors answer; they agree in everything."""
    headers = headers_of(revision, method, params)
    body = json.dumps(message_of(revision, method, params)).encode()
    fast, slow = doors.ask(headers, body, **scope)
    assert (fast.status, sorted(fast.headers), fast.body) == (
        slow.status,
        sorted(slow.headers),
        slow.body,
    )
    return fast


CALL = ("tools/call", {"name": "locked", "arguments": {}})
READ = ("resources/read", {"uri": "test://locked"})


@pytest.mark.req("G15")
@pytest.mark.parametrize("revision", REVISIONS, ids=str)
@pytest.mark.parametrize("asked", [CALL, READ], ids=["call", "read"])
def test_both_doors_ask_alike(doors, revision, asked):
    """403, the challenge, and the error of the protocol unchanged."""
    plain = ask(doors, revision, *asked)
    stepped = ask(doors, revision, *asked, **{"trails.challenge": ASK})
    assert plain.status == 200
    assert stepped.status == 403
    assert stepped.body == plain.body
    assert WANTED in stepped.headers
    assert all(name != b"www-authenticate" for name, _ in plain.headers)
    assert stepped.message["error"]["code"] == -32004


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
@pytest.mark.parametrize(
    "asked",
    [
        ("tools/call", {"name": "echo", "arguments": {}}),
        ("tools/call", {"name": "echo", "arguments": {"error": {"code": -32004}}}),
        ("tools/call", {"name": "denied", "arguments": {}}),
        ("tools/call", {"name": "nothing", "arguments": {}}),
        ("resources/read", {"uri": "test://denied"}),
        ("tools/list", {}),
    ],
    ids=["echo", "echo of an error", "denied", "unknown", "denied reading", "list"],
)
def test_nothing_else_is_asked_for(doors, revision, asked):
    """Whatever else goes wrong, no scope would mend it."""
    plain = ask(doors, revision, *asked)
    stepped = ask(doors, revision, *asked, **{"trails.challenge": ASK})
    assert (stepped.status, stepped.headers, stepped.body) == plain


@pytest.mark.parametrize("revision", [LEGACY[-1], MODERN])
def test_a_scope_that_can_not_be_had_is_not_asked_for(doors, revision):
    """Where the server gives it to nobody, the answer is as without an issuer."""
    never = CHALLENGES.step_up(ADA, {"runtime"})
    plain = ask(doors, revision, *CALL)
    assert ask(doors, revision, *CALL, **{"trails.challenge": never}) == plain
    assert ask(doors, revision, *CALL, **{"trails.challenge": None}) == plain


# --- what is said ---------------------------------------------------------------------------


@pytest.mark.parametrize("credential", ["", "static", "t-1", "operator"])
def test_only_those_whom_the_issuer_knows_are_sent_to_it(credential):
    """A token of our own is not made better elsewhere."""
    actor = Actor("ada", credential=credential)
    assert CHALLENGES.step_up(actor, {"builder"}) is None
    assert PLAIN.step_up(ADA, {"builder"}) is None


@pytest.mark.parametrize("challenges", [PLAIN, CHALLENGES], ids=["no issuer", "not advertised"])
def test_nothing_is_advertised_unasked(challenges):
    """Who presents nothing learns that a bearer token is needed, and there is no metadata."""
    assert challenges.ask(presented=False) == b"Bearer"
    assert challenges.metadata("/.well-known/oauth-protected-resource") is None


@pytest.mark.parametrize(
    ("resource", "audience", "url"),
    [
        ("", "https://a.example", "https://a.example/.well-known/oauth-protected-resource"),
        ("https://b.example/", "x", "https://b.example/.well-known/oauth-protected-resource"),
        (
            "https://b.example:8443/kg/",
            "x",
            "https://b.example:8443/.well-known/oauth-protected-resource/kg",
        ),
    ],
)
def test_the_metadata_stands_where_rfc_9728_says(resource, audience, url):
    """Between the host and the path of what clients call this server."""
    oauth = OAuth(
        issuer="https://login.example",
        audience=audience,
        jwks="{}",
        advertise=True,
        resource=resource,
    )
    challenges = Challenges(oauth)
    assert f'resource_metadata="{url}"'.encode() in challenges.ask(presented=True)
    base = url.partition(".well-known")[2].partition("resource")[2]
    for path in ("", base, f"{base}/graphs/main/mcp", "/graphs/main/mcp"):
        told = challenges.metadata(f"/.well-known/oauth-protected-resource{path}")
        assert told is not None
        assert json.loads(told)["resource"] == (resource or audience)
    assert challenges.metadata("/.well-known/oauth-protected-resources") is None
    assert challenges.metadata(f"/.well-known/oauth-protected-resource{base}/other") is None


def test_a_name_that_is_no_scope_of_oauth_is_not_asked_for():
    """Roles with spaces are mapped, but nobody can ask for one."""
    oauth = OAuth(
        issuer="https://login.example",
        audience="https://a.example",
        jwks="{}",
        advertise=True,
        scopes={"Graph Readers": "runtime", 'x"y': "builder"},
    )
    challenges = Challenges(oauth)
    assert b"scope=" not in challenges.ask(presented=False)
    ask_more = challenges.step_up(ADA, {"builder"})
    assert ask_more is not None
    assert b"scope=" not in (ask_more("builder") or b"").replace(b"insufficient_scope", b"")
