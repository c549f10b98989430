"""Ways in: each connection to an owner says on whose behalf it comes, before any HTTP."""

from __future__ import annotations

import stat

import pytest
from tests.app.serve.http.fronts import KEY, LOCALHOST, Front

from trails.app.ownership import Ownership
from trails.app.serve.http.hosts import Bind
from trails.app.serve.relay.links import Preamble
from trails.app.serve.relay.owners import SocketFolder, find_owner, read_owner
from trails.model.actors import OPERATOR, Secret
from trails.request.authenticate import hash_of

TOKEN = "canary-51c0"
BEARER = f"authorization: Bearer {TOKEN}"
REMOTE = Bind("192.0.2.7", ("kg.example.org",), ("https://app.example.org",), credentials=True)


def arrive(front, preamble, *lines, path="/graphs", host=LOCALHOST):
    """What is answered to a request on the Unix socket, after a first line."""
    first = preamble.line() if isinstance(preamble, Preamble) else preamble
    head = "\r\n".join([f"GET {path} HTTP/1.1", host, *lines, "connection: close", "", ""])
    (found,) = front.send(first + head.encode(), unix=True)
    return found


@pytest.fixture(scope="module")
def guarded():
    """An owner that asks for a token."""
    with Front(token=TOKEN) as front:
        yield front


@pytest.fixture(scope="module")
def opened():
    """An owner that asks for none."""
    with Front() as front:
        yield front


def test_the_operator_shows_the_key(guarded):
    """Then no token is asked for; a wrong key, or part of it, opens nothing."""
    assert arrive(guarded, Preamble(operator=KEY)).status == 200
    for wrong in ("x", KEY[:-1], KEY + "x", KEY.upper(), " " + KEY, "\u00fc"):
        found = arrive(guarded, Preamble(operator=wrong))
        assert (found.status, found.code) == (400, "bad_request")
    assert arrive(guarded, Preamble()).status == 401


def test_a_token_goes_before_the_key(guarded):
    """Whoever presents one is who it says, and nobody if it is wrong."""
    assert arrive(guarded, Preamble(operator=KEY), BEARER).status == 200
    assert arrive(guarded, Preamble(operator=KEY), "authorization: Bearer nope").status == 401
    assert arrive(guarded, Preamble(operator=KEY), BEARER, BEARER).status == 401


@pytest.mark.parametrize(
    "given",
    [
        *(f"authorization: Bearer {KEY}", f"authorization: Operator {KEY}", f"operator: {KEY}"),
        *(f"x-trails-operator: {KEY}", f"authorization: {KEY}", f"cookie: operator={KEY}"),
    ],
)
def test_the_key_is_good_for_nothing_over_a_port(guarded, given):
    """Nor behind a front, where a client's bytes come after the front's own line."""
    assert guarded.get("/graphs", given).status == 401
    assert arrive(guarded, Preamble(), given).status == 401
    line = Preamble(operator=KEY).line()
    request = b"GET /graphs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert [each.status for each in guarded.send(line + request)] == [400]
    assert [
        each.status for each in guarded.send(Preamble().line() + line + request, unix=True)
    ] == [400]


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"\n", b"GET /graphs HTTP/1.1\r\n", b"[]\n", b"{\n", b'{"operator":1}\n', b"\xff\n"),
        *(b'{"bind":{"host":"192.0.2.7"}}\n', b'{"token":"xyz"}\n', b'{"scopes":["root"]}\n'),
        *(b'{"bind":{"public_hosts":["*"]}}\n', b"{" + b" " * 100_000),
    ],
)
def test_a_connection_that_does_not_say_is_refused(opened, line):
    """Also one that claims what no front could: to listen to the world without credentials."""
    found = arrive(opened, line)
    assert (found.status, found.code) == (400, "bad_request")


def test_each_front_is_judged_by_its_own_bind(opened, guarded):
    """A remote front's names pass behind an owner on loopback, and loopback's do not."""
    public, page = "host: kg.example.org", "origin: https://app.example.org"
    remote = Preamble(REMOTE, token=hash_of(Secret(TOKEN)).hex())
    for front in (opened, guarded):
        assert arrive(front, remote, BEARER, host=public).status == 200
        assert arrive(front, remote, BEARER, page, host=public).status == 200
        assert arrive(front, remote, host=public).status == 401
        assert arrive(front, remote, BEARER).status == 403
        assert arrive(front, remote, BEARER, "origin: http://localhost", host=public).status == 403
        assert arrive(front, Preamble(), BEARER).status == 200
        assert arrive(front, Preamble(), BEARER, host=public).status == 403
        assert arrive(front, Preamble(), BEARER, page).status == 403
        found = arrive(front, remote, BEARER, page, host=public)
        assert found.header("access-control-allow-origin") == "https://app.example.org"


def test_a_front_that_promised_credentials_lets_in_nobody_without(opened):
    """Even if the owner asks for none, because it was started before there were any."""
    promised = Preamble(REMOTE)
    found = arrive(opened, promised, BEARER, host="host: kg.example.org")
    assert (found.status, found.code) == (401, "unauthenticated")
    assert arrive(opened, Preamble(Bind(credentials=True))).status == 401
    assert arrive(opened, Preamble(Bind(credentials=True)), path="/healthz").status == 200


def test_a_front_can_not_ask_for_less_than_the_owner(guarded):
    """Its own token counts there beside the owner's; without one the owner's is still asked for."""
    other = Preamble(token=hash_of(Secret("another")).hex())
    assert arrive(guarded, other).status == 401
    assert arrive(guarded, other, "authorization: Bearer another").status == 200
    assert arrive(guarded, other, BEARER).status == 200
    assert guarded.get("/graphs", "authorization: Bearer another").status == 401


def test_tls_of_a_front_is_known_to_the_owner(opened):
    """So HSTS is told where it belongs."""
    found = arrive(opened, Preamble(Bind(tls=True)), path="/healthz")
    assert found.header("strict-transport-security")
    assert arrive(opened, Preamble(), path="/healthz").header("strict-transport-security") is None


def test_the_owner_file_is_private_and_keeps_the_key_from_view(tmp_path):
    """Mode 0600 also where an older one was wider; texts of it never show the key."""
    data = tmp_path / ".trails"
    data.mkdir()
    (data / "owner").touch(0o644)
    ownership, sockets = Ownership(data), SocketFolder()
    ownership.announce(sockets.http, sockets.mcp, Secret(KEY))
    assert stat.S_IMODE((data / "owner").stat().st_mode) == 0o600
    address = find_owner(tmp_path)
    assert address.key.reveal() == KEY
    assert KEY not in f"{address!r} {read_owner(data)!r} {read_owner(data)}"
    ownership.release()
    sockets.remove()
    assert KEY not in (data / "owner").read_text()


def test_the_operator_has_every_scope_and_a_name_of_its_own():
    """So that whoever judges can tell it from everybody who is merely called the same."""
    assert (OPERATOR.name, OPERATOR.credential) == ("local", "operator")
    assert OPERATOR.scopes == {"runtime", "builder", "dev"}
