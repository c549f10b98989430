"""Which Host and Origin pass: one policy, from where a server listens."""

from __future__ import annotations

import asyncio

import pytest
from tests.app.serve.http.fronts import Front
from tests.worlds.surfaces import ask_app

from trails.app.serve.http.hosts import Bind, HostPolicy
from trails.app.serve.http.limits import ClientLimits
from trails.app.serve.http.parser import parse_head
from trails.app.serve.http.responses import HEAD_KEY, AccessHeaders, access_headers
from trails.errors import SettingsError

REMOTE = "192.0.2.7"
HERE = [
    *("localhost", "LOCALHOST", "localhost.", "localhost:1", "127.0.0.1", "127.0.0.1:8321"),
    *("127.9.9.9", "[::1]", "[::1]:80", "[0:0:0:0:0:0:0:1]", "[0000::0001]:65535"),
]
GARBAGE = [
    *("", " ", ":80", "a:b", "a:99999", "a:0", "a:-1", "a:80:80", "a:+80", "a b", "a/b", "a?b"),
    *("a#b", "user@a", "user:p@a", "a@", "@a", "a,b", "a\\b", "a;b", "-a", "a-", "a..b", ".a", "."),
    *("http://a", "a%2e", "%61", "[", "]", "[]", "[::1", "::1]", "::1", "[::1]x", "[::1%25lo]"),
    *("[fe80::1%lo]", "[1.2.3.4]", "[::g]", "[v1.a]", "1.2.3", "1.2.3.4.5", "0x7f.1", "127.1"),
    *("2130706433", "0177.0.0.1", "127.0.0.1.", "256.1.1.1", "a.1", "a.0x1", "b\xfccher.example"),
    *("\xe2\x80\xaea", "\x7f", "\t", "a" * 64, "a." * 130 + "a", "*", "*.example.org"),
]
"""Neither name nor address, or written as nobody writes it who means well."""


def refuse(policy, headers, version="1.1"):
    """What a policy says of a request with some headers."""
    head = AccessHeaders({"path": "/", "query_string": b"", "headers": headers})
    return policy.refuse(head.hosts, head.origins, version)


def passes(policy, host=b"localhost", *origins, version="1.1"):
    """Whether a request with some Host and Origins is let in."""
    hosts = () if host is None else ((b"host", _bytes(host)),)
    headers = [*hosts, *((b"origin", _bytes(each)) for each in origins)]
    return refuse(policy, headers, version) is None


def _bytes(text):
    return text if isinstance(text, bytes) else text.encode("latin-1")


@pytest.fixture(scope="module")
def local():
    """The policy of a server on loopback."""
    return HostPolicy.for_bind("127.0.0.1")


@pytest.mark.req("G14")
@pytest.mark.parametrize("bind", ["127.0.0.1", "localhost", "::1", "[::1]", "127.3.2.1"])
def test_loopback_answers_to_names_of_this_machine(bind):
    """Whatever the port, ``::1`` in every form; names that resolve to it are not its names."""
    policy = HostPolicy.for_bind(bind)
    assert policy.loopback
    assert not policy.warnings
    assert all(passes(policy, host) for host in HERE)
    for host in (
        *("example.org", "localhost.example.org", "127.0.0.1.example.org", "localhost.localdomain"),
        *("0.0.0.0", "10.0.0.1", "[::]", "[::2]", "[::ffff:127.0.0.1]", "ip6-localhost"),  # noqa: S104
    ):
        assert not passes(policy, host), host


@pytest.mark.req("G14")
@pytest.mark.parametrize("host", GARBAGE)
def test_what_is_no_host_passes_nowhere(local, host):
    """On loopback, under public names, and where any name passes."""
    listed = HostPolicy.for_bind(REMOTE, ["a"], credentials=True)
    anything = HostPolicy.for_bind(REMOTE, credentials=True)
    for policy in (local, listed, anything):
        assert not passes(policy, host) or (policy is anything and not host.strip())
        assert not passes(policy, "localhost" if policy is local else "a", f"http://{host}")


@pytest.mark.req("G14")
def test_a_request_has_one_host(local):
    """None or two is no HTTP/1.1; HTTP/1.0 may leave it out, where any name passes."""
    anything = HostPolicy.for_bind(REMOTE, credentials=True)
    for policy in (local, anything):
        assert refuse(policy, [], "1.1").status == 400
        assert refuse(policy, [(b"host", b"localhost")] * 2, "1.1").status == 400
        assert refuse(policy, [(b"host", b"localhost")] * 2, "1.0").status == 400
    assert refuse(local, [], "1.0").status == 403
    assert refuse(anything, [], "1.0") is None


@pytest.mark.req("G14")
def test_a_server_that_others_reach_answers_to_its_public_names():
    """Exactly, whatever the case, with a last dot or not; a port counts where one is listed."""
    names = ["kg.example.org", "Other.Example:8443", "[2001:DB8::1]", "b\xfccher.example", "x:443"]
    policy = HostPolicy.for_bind("0.0.0.0", names, tls=True, credentials=True)  # noqa: S104
    assert not policy.loopback
    for host in (
        *("kg.example.org", "KG.Example.Org", "kg.example.org.", "kg.example.org:1"),
        *("other.example:8443", "OTHER.example.:8443", "[2001:db8:0::1]", "[2001:db8::1]:99"),
        *("xn--bcher-kva.example", "XN--BCHER-KVA.example:80", "x", "x:443"),
    ):
        assert passes(policy, host), host
    for host in (
        *("localhost", "127.0.0.1", "[::1]", "0.0.0.0", "example.org", "a.kg.example.org"),  # noqa: S104
        *("other.example", "other.example:443", "[2001:db8::2]", "kg.example.orgx", "x:80"),
    ):
        assert not passes(policy, host), host
    plain = HostPolicy.for_bind("0.0.0.0", ["x:80"], credentials=True)  # noqa: S104
    assert passes(plain, "x")


@pytest.mark.req("G14")
def test_without_public_names_any_host_passes_and_that_is_told():
    """A remote bind warns about names and encryption; with both set it has nothing to say."""
    policy = HostPolicy.for_bind(REMOTE, credentials=True)
    assert passes(policy, "anything.example")
    assert [("public_hosts" in each, "TLS" in each) for each in policy.warnings] == [
        (True, False),
        (False, True),
    ]
    assert not HostPolicy.for_bind(REMOTE, ["a"], tls=True, credentials=True).warnings


@pytest.mark.req("G14")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "kg.example.org", ""])  # noqa: S104
def test_a_server_that_others_reach_asks_for_credentials(host):
    """Without them it does not start, and the message says what to do."""
    with pytest.raises(SettingsError, match=r"access control.*trails token new"):
        HostPolicy.for_bind(host)
    assert not HostPolicy.for_bind(host, credentials=True).loopback


def test_public_names_count_behind_a_proxy_where_credentials_are_asked_for():
    """On loopback they add to the names of the machine; without credentials they do not."""
    behind = HostPolicy.for_bind("127.0.0.1", ["kg.example.org"], credentials=True)
    assert passes(behind, "kg.example.org")
    assert passes(behind, "localhost")
    assert not passes(behind, "other.example")
    bare = HostPolicy.for_bind("127.0.0.1", ["kg.example.org"])
    assert not passes(bare, "kg.example.org")
    assert "public_hosts" in bare.warnings[0]


@pytest.mark.req("G14")
def test_an_absent_origin_passes_and_a_configured_one_does():
    """In the form that browsers send; the default port is no other port."""
    given = ["https://App.Example.org", "http://a.example:8080", "https://b\xfccher.example:443"]
    policy = HostPolicy.for_bind(REMOTE, ["kg"], given, credentials=True)
    assert passes(policy, "kg")
    for origin in (
        *("https://app.example.org", "https://app.example.org:443", "HTTPS://APP.EXAMPLE.ORG"),
        *("http://a.example:8080", "https://xn--bcher-kva.example"),
    ):
        assert passes(policy, "kg", origin), origin
        assert policy.shares_with(origin.encode())
    for origin in (
        *("http://app.example.org", "https://app.example.org:444", "https://app.example.org.evil"),
        *("https://evil.example", "http://localhost", "http://127.0.0.1", "https://kg", "null"),
        *(
            "https://app.example.org/",
            "https://app.example.org,https://evil.example",
            "http://a.example",
        ),
    ):
        assert not passes(policy, "kg", origin), origin
        assert not policy.shares_with(origin.encode())


@pytest.mark.req("G14")
@pytest.mark.parametrize("bind", ["127.0.0.1", REMOTE])
@pytest.mark.parametrize(
    "origin",
    [
        *("null", "", " ", "http://", "://localhost", "localhost", "file://localhost", "*"),
        *("ws://localhost", "chrome-extension://abc", "http://localhost:", "http:localhost"),
        *("http://evil.example", "http://localhost.evil.example", "http://localhost@evil.example"),
        *("http://localhost/", "http://localhost http://evil.example", "http://localhost\x00"),
    ],
)
def test_any_other_origin_is_refused_everywhere(bind, origin):
    """What is no page of a configured origin, or of this machine on loopback, is 403."""
    policy = HostPolicy.for_bind(bind, ["localhost"], credentials=True)
    objection = refuse(policy, [(b"host", b"localhost"), (b"origin", _bytes(origin))])
    assert objection.status == 403


@pytest.mark.req("G14")
def test_pages_of_this_machine_pass_on_loopback_alone(local):
    """Several Origin headers never do, even if each would."""
    remote = HostPolicy.for_bind(REMOTE, credentials=True)
    for host in HERE:
        assert passes(local, "localhost", f"http://{host}")
        assert passes(local, "localhost", f"https://{host}")
        assert not passes(remote, "localhost", f"http://{host}")
    assert not passes(local, "localhost", "http://localhost", "http://localhost")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("public_hosts", ["", "https://kg.example", "*.example.org", "a/b", "a:0", "a b", "::1"]),
        (
            "browser_origins",
            ["", "*", "null", "app.example", "https://a/b", "https://*.a", "ws://a"],
        ),
    ],
)
def test_settings_that_name_no_host_or_origin_are_refused(name, values):
    """With the setting, the value and a right one."""
    for value in values:
        with pytest.raises(SettingsError, match=rf"{name} has .*write"):
            HostPolicy.for_bind("127.0.0.1", **{name: [value]})


def test_a_policy_travels_as_its_bind():
    """What one front was told is what another process rebuilds."""
    policy = HostPolicy.for_bind(REMOTE, ["a"], ["https://b"], tls=True, credentials=True)
    assert HostPolicy(policy.bind).bind == policy.bind
    with pytest.raises(SettingsError):
        HostPolicy(Bind(REMOTE))


PATHS = [
    *("/healthz", "/graphs", "/graphs/main/snapshot", "/graphs/main/mcp", "/graphs/main/sse"),
    *("/graphs/none/mcp", "/nothing", "/", "/.well-known/oauth-protected-resource"),
]


@pytest.mark.req("G14")
def test_the_guard_stands_in_front_of_everything():
    """Whatever the path and the method, 403 comes before 401, 404 and 405, in one form."""
    with Front(token="a-token") as front:
        for path in PATHS:
            for method in ("GET", "POST", "OPTIONS", "DELETE"):
                for odd in (
                    "host: evil.example",
                    "host: localhost\r\norigin: https://evil.example",
                ):
                    found = front.ask(f"{method} {path} HTTP/1.1", odd)
                    assert (found.status, found.code) == (403, "forbidden")
                    assert "evil" not in found.body.decode()
            assert front.ask(f"GET {path} HTTP/1.1").status == 400
        assert front.get("/healthz", "host: [::1]:99").status == 200
        assert front.get("/healthz", "origin: http://localhost:3000").status == 200
        assert front.get("/graphs").status == 401


@pytest.mark.req("G14")
def test_nothing_but_http_is_served():
    """A web socket is closed before it opens; an upgrade is not taken."""
    with Front() as front:
        upgrade = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")
        assert front.get("/graphs/main/mcp", *upgrade).status == 405
        interface = front.interface
        closed = []

        async def send(message):
            closed.append(message)

        async def visit():
            await interface({"type": "websocket", "headers": [], "path": "/"}, None, send)
            with pytest.raises(RuntimeError):
                await interface({"type": "lifespan"}, None, send)
            headers = [(b"host", b"evil.example")]
            return await ask_app(interface, headers, [b""], path="/graphs/main/mcp")

        assert asyncio.run(visit()).status == 403
        assert [each["type"] for each in closed] == ["websocket.close"]


def test_the_credential_is_taken_out_of_the_scope():
    """With the head as the parser gave it, on the first request and when it is sent again."""
    head = parse_head(
        b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer s3cret\r\n", ClientLimits()
    )
    for _ in range(2):
        scope = {"path": "/", "query_string": b"", "headers": [*head.headers], HEAD_KEY: head}
        assert access_headers(scope).authorization == b"Bearer s3cret"
        assert scope == {"path": "/", "query_string": b"", "headers": [(b"host", b"a")]}
