"""Access tokens over real HTTP: who gets in, what others are told, and what is left behind."""

from __future__ import annotations

import threading
import time

import pytest
from tests.identity.oauth.forgeries import FORGERIES, parts, prepared
from tests.identity.oauth.provider import AUDIENCE, ISSUER, KeyServer, Provider, spell
from tests.worlds.clients import Client, served
from tests.worlds.processes import PATIENCE, Process
from tests.worlds.projects import make_desk
from tests.worlds.surfaces import MODERN, message_of

from trails.identity.tokens import make_token

PING = "trails_meta_ping"
DRAWER = "trails_meta_drawer_open"
BURN = "trails_meta_drawer_burn"
METADATA = "/.well-known/oauth-protected-resource"
PROVIDER = prepared()


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A project that takes the tokens of a provider whose keys are at a URL."""
    with KeyServer(PROVIDER) as keys:
        folder = tmp_path_factory.mktemp("desks") / "desk"
        make_desk(folder, issuer=ISSUER, audience=AUDIENCE, jwks_url=keys.url)
        with served(folder) as desk:
            yield desk


@pytest.fixture(scope="module")
def open_desk(tmp_path_factory):
    """One that tells clients where to get a token."""
    folder = tmp_path_factory.mktemp("desks") / "desk"
    make_desk(
        folder,
        issuer=ISSUER,
        audience=AUDIENCE,
        jwks=spell(PROVIDER.keys).decode(),
        advertise=True,
        scopes={"graph:build": "builder"},
    )
    with served(folder) as desk:
        yield desk


@pytest.mark.req("G15")
def test_a_good_token_gets_in(desk):
    """Over MCP and REST, as whom it names."""
    token = PROVIDER.token()
    answer = desk.call(PING, token)
    assert answer.status == 200
    assert answer.json["result"]["structuredContent"]["actor"] == "ada"
    assert desk.ask("GET", "/graphs/main/snapshot", token).status == 200
    added = desk.ask("POST", "/graphs/main/invoke/notes.add", token, {"text": "one"})
    assert added.json == {"result": "ada"}


def test_an_access_token_is_refused_as_an_argument_of_its_own_request(desk):
    """Nobody but the one who checks it gets to see it."""
    token = PROVIDER.token()
    added = desk.ask("POST", "/graphs/main/invoke/notes.add", token, {"text": f"my {token}"})
    assert (added.status, added.json["code"]) == (400, "misplaced_token")
    assert desk.ask("GET", f"/graphs/main/snapshot?branch={token}", token).status == 400
    assert desk.call(token, token).status == 400


def sendable(token):
    """Whether a header can hold it."""
    return token.strip() == token and token.isprintable()


@pytest.mark.req("G15", "G13")
@pytest.mark.parametrize("name", [*FORGERIES])
def test_a_forgery_is_401_over_http(desk, name):
    """On every surface alike, before any protocol, and nothing of it comes back."""
    token = FORGERIES[name](PROVIDER)
    if not sendable(token):
        token = token.encode("utf-8", "replace").decode("latin-1").encode("unicode_escape").decode()
    for answer in (desk.call(PING, token), desk.ask("GET", "/graphs/main/snapshot", token)):
        if answer.status == 431:  # longer than any header may be
            assert len(token) > 16 << 10
            return
        assert answer.status == 401, answer.body
        assert answer.challenge == 'Bearer error="invalid_token"'
        assert answer.json["code"] == "unauthenticated"
        for part in token.split("."):
            assert len(part) < 8 or part.encode() not in answer.body
    assert desk.call(PING, PROVIDER.token()).status == 200


def test_a_token_of_our_own_that_is_not_good_is_told_as_such(desk):
    """It has the form of ours, so it is not judged as an access token."""
    own = make_token().token.reveal()
    answer = desk.call(PING, own)
    assert answer.status == 401
    assert "Invalid or expired token." in answer.json["detail"]
    assert own not in answer.body.decode()


@pytest.mark.req("G15")
def test_who_presents_nothing_is_told_that_a_token_is_needed(desk):
    """No error is named, since none was made; nothing is advertised unasked."""
    answer = desk.call(PING, None)
    assert (answer.status, answer.challenge) == (401, "Bearer")


@pytest.mark.req("G15")
def test_metadata_is_served_only_where_it_is_advertised(desk, open_desk):
    """Otherwise its path is one like any other that does not exist."""
    for path in (METADATA, f"{METADATA}/graphs/main/mcp"):
        for token in (None, PROVIDER.token()):
            hidden = desk.ask("GET", path, token)
            nowhere = desk.ask("GET", path.replace("oauth", "other"), token)
            assert hidden.status == nowhere.status == (401 if token is None else 404)
            assert hidden.body == nowhere.body.replace(b"other", b"oauth")
            assert hidden.challenge == nowhere.challenge
        shown = open_desk.ask("GET", path)
        assert shown.status == 200
        assert shown.headers["content-type"] == "application/json"
        assert shown.json == {
            "resource": AUDIENCE,
            "authorization_servers": [ISSUER],
            "scopes_supported": ["runtime", "graph:build"],
            "bearer_methods_supported": ["header"],
        }


def test_metadata_says_nothing_about_what_exists(open_desk):
    """The document of an endpoint is the same whether there is one or not."""
    known = open_desk.ask("GET", f"{METADATA}/graphs/main/mcp")
    unknown = open_desk.ask("GET", f"{METADATA}/graphs/secret/mcp")
    assert (known.status, known.body) == (unknown.status, unknown.body)
    for path in (f"{METADATA}x", f"{METADATA}/graphs/main/snapshot", f"{METADATA}/graphs//mcp"):
        assert open_desk.ask("GET", path).status == 401
    assert open_desk.ask("POST", METADATA).status == 401
    assert open_desk.ask("HEAD", METADATA).status == 200


@pytest.mark.req("G15")
def test_a_challenge_leads_to_the_metadata_where_it_is_advertised(open_desk):
    """With the scope to begin with; a bad token is named as such."""
    leads = 'scope="runtime", resource_metadata="https://graphs.example' + METADATA + '"'
    assert open_desk.call(PING, None).challenge == f"Bearer {leads}"
    bad = f'Bearer error="invalid_token", {leads}'
    assert open_desk.call(PING, "nonsense").challenge == bad
    assert open_desk.ask("GET", "/graphs/main/snapshot", "nonsense").challenge == bad


# --- step-up -------------------------------------------------------------------------------

REVISIONS = ["2024-11-05", "2025-06-18", "2025-11-25"]


@pytest.mark.req("G15")
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_scope_that_is_lacking_is_asked_for(desk, open_desk, revision):
    """403 with what to ask the issuer for, and the error of the protocol as the body."""
    token = PROVIDER.token()
    for where, name, leads in [
        (desk, "builder", ""),
        (
            open_desk,
            "graph:build",
            f', resource_metadata="https://graphs.example{METADATA}"',
        ),
    ]:
        wanted = f'Bearer error="insufficient_scope", scope="runtime {name}"{leads}'
        answer = where.call(DRAWER, token, revision)
        assert (answer.status, answer.challenge) == (403, wanted)
        error = answer.json["error"]
        assert error["code"] == -32004
        assert error["data"] == {
            "code": "scope",
            "tool": DRAWER,
            "required_scope": "builder",
            "caller_scopes": ["runtime"],
        }
        rest = where.ask("POST", f"/graphs/main/invoke/{DRAWER}", token, {})
        assert (rest.status, rest.challenge) == (403, wanted)
        assert rest.json["code"] == "scope"


def test_whoever_has_the_scope_gets_on(desk, open_desk):
    """By the name that the issuer has for it."""
    assert desk.call(DRAWER, PROVIDER.token(scope="runtime builder")).status == 200
    assert open_desk.call(DRAWER, PROVIDER.token(scope="graph:build")).status == 200


def test_a_scope_that_nobody_gets_here_is_not_asked_for(desk):
    """The process has no ``dev``: another token would not help, so none is asked for."""
    answer = desk.call(BURN, PROVIDER.token(scope="runtime builder dev"))
    assert (answer.status, answer.challenge) == (200, None)
    assert answer.json["error"]["code"] == -32004
    rest = desk.ask("POST", f"/graphs/main/invoke/{BURN}", PROVIDER.token(scope="dev"), {})
    assert (rest.status, rest.challenge) == (403, None)


def test_a_token_without_scopes_may_do_nothing(desk):
    """Not even read: it is asked for the first of them."""
    token = PROVIDER.token(scope=...)
    wanted = 'Bearer error="insufficient_scope", scope="runtime"'
    answer = desk.call("graph_snapshot", token)
    assert (answer.status, answer.challenge) == (403, wanted)
    read = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "resources/read",
        "params": {"uri": "trails://schema"},
    }
    headers = [("MCP-Protocol-Version", "2025-06-18")]
    answer = desk.ask("POST", "/graphs/main/mcp", token, read, headers)
    assert (answer.status, answer.challenge) == (403, wanted)


@pytest.mark.req("G15")
def test_without_an_issuer_nothing_changes(tmp_path):
    """A token of our own is refused in the protocol: 200, and over REST 403."""
    folder = make_desk(tmp_path / "desk")
    text = (folder / "trails.toml").read_text().replace("[auth.oauth]", "")
    (folder / "trails.toml").write_text(text)
    with served(folder, env={"TRAILS_MCP_TOKEN": "sesame", "TRAILS_MCP_SCOPES": "runtime"}) as desk:
        answer = desk.call(DRAWER, "sesame")
        assert (answer.status, answer.challenge) == (200, None)
        assert answer.json["error"]["code"] == -32004
        rest = desk.ask("POST", f"/graphs/main/invoke/{DRAWER}", "sesame", {})
        assert (rest.status, rest.challenge) == (403, None)
        for token in (None, "wrong"):
            refused = desk.call(PING, token)
            assert (refused.status, refused.challenge) == (401, "Bearer")
        assert desk.ask("GET", METADATA).status == 401


def test_a_token_of_our_own_is_not_stepped_up(tmp_path):
    """Where there are both, nobody is sent to an issuer that never knew them."""
    folder = make_desk(
        tmp_path / "desk",
        issuer=ISSUER,
        audience=AUDIENCE,
        jwks=spell(PROVIDER.keys).decode(),
    )
    with served(folder, env={"TRAILS_MCP_TOKEN": "sesame", "TRAILS_MCP_SCOPES": "runtime"}) as desk:
        assert desk.call(PING, "sesame").status == 200
        assert desk.call(PING, PROVIDER.token()).status == 200
        assert desk.call(DRAWER, "sesame").status == 200
        assert desk.call(PING, "wrong").status == 401


# --- beyond one request --------------------------------------------------------------------


@pytest.mark.req("G15")
def test_a_stream_ends_with_the_token_that_opened_it(tmp_path):
    """Whoever listens is let go when its token expires; what it had until then was its own."""
    folder = make_desk(
        tmp_path / "desk",
        issuer=ISSUER,
        audience=AUDIENCE,
        jwks=spell(PROVIDER.keys).decode(),
        leeway=0,
    )
    wanted = {"notifications": {"toolsListChanged": True}}
    body = message_of(MODERN, "subscriptions/listen", wanted)
    headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "subscriptions/listen")]
    with served(folder) as desk:
        assert desk.call(PING, PROVIDER.token()).status == 200  # the keys were read, all is ready
        ends = int(time.time()) + 6
        stream = desk.ask("POST", "/graphs/main/mcp", PROVIDER.token(exp=ends), body, headers)
        assert stream.status == 200
        assert ends - 1 <= time.time() < ends + 60
        assert b"acknowledged" in stream.body


@pytest.mark.req("G15")
def test_an_access_token_is_taken_over_stdio_too(tmp_path):
    """From the environment of the process, or with each request."""
    folder = make_desk(
        tmp_path / "desk", issuer=ISSUER, audience=AUDIENCE, jwks=spell(PROVIDER.keys).decode()
    )
    token = PROVIDER.token()
    with Client(folder, env={"TRAILS_TOKEN": token}) as client:
        assert client.ping() == "ada"
    with Client(folder) as client:
        assert client.ping() == -32001
        assert client.ping(token) == "ada"
        assert client.ping(PROVIDER.token(aud="other")) == -32001


# --- what is left behind -------------------------------------------------------------------


@pytest.mark.req("G15")
def test_nothing_of_a_token_is_left(tmp_path):
    """Neither in a file of the project, nor in what the process said, nor in provenance."""
    folder = make_desk(
        tmp_path / "desk", issuer=ISSUER, audience=AUDIENCE, jwks=spell(PROVIDER.keys).decode()
    )
    good = [PROVIDER.token(jti=f"canary{at}", scope="runtime builder") for at in range(3)]
    bad = [FORGERIES[name](PROVIDER) for name in ("exp a minute ago", "aud of another")]
    with served(folder) as desk:
        for token in good:
            added = desk.ask("POST", "/graphs/main/invoke/notes.add", token, {"text": token[-9:-1]})
            assert added.status == 200
            assert desk.call("notes.add", token, text=1).status == 200  # a failure is recorded too
        for token in bad:
            assert desk.call(PING, token).status == 401
        latest = desk.call("commit_list", good[0]).body
        desk.web.close()
        kept = [latest, desk.web.errors.encode()]
        kept += [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert len(kept) > 5
    assert any(b"ada" in each for each in kept)
    for token in (*good, *bad):
        for part in (token, *parts(token)[1:], "canary"):
            assert not any(part.encode() in each for each in kept)


# --- keys ----------------------------------------------------------------------------------


def test_a_server_whose_issuer_is_down_starts_and_says_so(tmp_path):
    """Tokens can't be checked then: 503, try again; when the keys are there, all is well."""
    keys = KeyServer(Provider())
    keys.mode = "error"
    with keys:
        folder = make_desk(tmp_path / "desk", issuer=ISSUER, audience=AUDIENCE, jwks_url=keys.url)
        with served(folder) as desk:
            answer = desk.call(PING, keys.provider.token())
            assert answer.status == 503
            assert answer.headers["retry-after"] == "5"
            assert answer.json["code"] == "unavailable"
            assert desk.call(PING, "nonsense").status == 401
            keys.mode = "good"
            pause = threading.Event()
            for _ in range(200):
                if desk.call(PING, keys.provider.token()).status == 200:
                    break
                pause.wait(0.1)
            else:
                pytest.fail("the keys were never asked for again")


def test_a_server_does_not_start_with_settings_that_can_not_be(tmp_path):
    """It says which and why, and takes no request."""
    folder = make_desk(
        tmp_path / "desk", issuer=ISSUER, audience=AUDIENCE, jwks="{}", algorithms=["none"]
    )
    with Process("serve", "-p", folder, "--port", "0") as process:
        assert process.process.wait(PATIENCE) != 0
        assert "'none', which is not a signature" in process.errors
