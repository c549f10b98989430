"""Where keys come from: rotated, late, broken, or gone, and never asked for too often."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.identity.oauth.provider import AUDIENCE, ISSUER, KeyServer, Provider, pair, spell

from trails.identity.oauth import sources
from trails.identity.oauth.keys import KeySet, read_keys
from trails.identity.oauth.settings import OAuth
from trails.identity.oauth.sources import FRESH, OLDEST, PAUSE, FetchError, KeyFile, KeyUrl, fetch
from trails.identity.oauth.verifier import AccessTokenVerifier
from trails.model.actors import Actor, Secret
from trails.model.results import Failure

HERE = Path()


class Hand:
    """A clock that is moved by hand; keys grow old by it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        """The time."""
        return self.now


class World:
    """A provider, its server, and a verifier that asks it."""

    def __init__(self, server, clock=None, **more):
        self.server = server
        self.provider = server.provider
        self.clock = clock or Hand()
        self.source = KeyUrl(server.url, clock=self.clock, **{"patience": 60, **more})
        settings = OAuth(issuer=ISSUER, audience=AUDIENCE, jwks_url=server.url)
        self.verifier = AccessTokenVerifier(settings, HERE, source=self.source)

    async def verify(self, token=None):
        """What comes of a token; of a new and good one, if none is given."""
        text = self.provider.token() if token is None else token
        return await self.verifier.verify(Secret(text))

    async def taken(self, token=None):
        """Whether it is taken."""
        return isinstance(await self.verify(token), Actor)

    async def settle(self):
        """Let a request that was begun beside come to its end."""
        flight = self.source._flight
        if flight is not None:
            await flight


@pytest.fixture
def server():
    """A key server of its own provider."""
    with KeyServer(Provider()) as server:
        yield server


def test_keys_are_fetched_once(server):
    """Many tokens, one request; a token costs no request."""

    async def visit():
        world = World(server)
        for key, algorithm in [("rsa", "RS256"), ("ec", "ES256"), ("ed", "EdDSA")] * 5:
            token = server.provider.token(getattr(server.provider, key), algorithm)
            assert await world.taken(token)

    asyncio.run(visit())
    assert server.asked == ["/keys"]


@pytest.mark.req("G15")
def test_a_thundering_herd_makes_one_request(server):
    """Hundreds who come at the same time wait for the same answer."""

    async def visit():
        world = World(server)
        tokens = [server.provider.token(jti=str(at)) for at in range(200)]
        assert all(await asyncio.gather(*(world.taken(token) for token in tokens)))

    asyncio.run(visit())
    assert len(server.asked) == 1


@pytest.mark.req("G15")
def test_a_new_key_is_found_by_its_name(server):
    """After a rotation the first token of the new key makes one request, and is taken."""
    new = pair("r2", "RSA2048")

    async def visit():
        world = World(server)
        assert await world.taken()
        server.provider.pairs = [new, *server.provider.pairs]
        world.clock.now += PAUSE
        assert await world.taken(server.provider.token(new))
        assert await world.taken()

    asyncio.run(visit())
    assert len(server.asked) == 2


@pytest.mark.req("G15")
def test_unknown_names_make_few_requests(server):
    """Whoever invents names of keys can't make this server ask its issuer again and again."""

    async def visit():
        world = World(server)
        assert await world.taken()
        for at in range(100):
            forged = server.provider.token(header={"kid": f"x{at}"})
            assert not await world.taken(forged)
        assert len(server.asked) == 1
        world.clock.now += PAUSE
        forged = [server.provider.token(header={"kid": f"y{at}"}) for at in range(100)]
        assert not any(await asyncio.gather(*(world.taken(token) for token in forged)))

    asyncio.run(visit())
    assert len(server.asked) == 2


@pytest.mark.req("G15")
def test_a_key_that_is_withdrawn_ends_what_it_signed(server):
    """Also tokens that were good before, and for those who hold a stream open."""

    async def visit():
        world = World(server)
        old, other = server.provider.token(), server.provider.token(server.provider.ec, "ES256")
        actor, second = await world.verify(old), await world.verify(other)
        assert world.verifier.is_current(actor)
        server.provider.pairs = [pair("r2", "RSA2048"), server.provider.ec]
        world.clock.now += FRESH[1] + 1
        assert await world.taken(old)  # nobody waits for the request that begins now
        await world.settle()
        assert not await world.taken(old)
        assert await world.taken(other)
        assert not world.verifier.is_current(actor)
        assert world.verifier.is_current(second)

    asyncio.run(visit())


def test_the_same_keys_again_forget_nothing(server):
    """A token that is known stays known when the keys come again unchanged."""

    async def visit():
        world = World(server)
        token = server.provider.token()
        actor = await world.verify(token)
        world.clock.now += FRESH[1] + 1
        await world.verify(token)
        await world.settle()
        world.verifier._accept = None
        assert await world.verify(token) is actor

    asyncio.run(visit())
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("header", "fresh"),
    [
        ("", FRESH[1]),
        ("max-age=900", 900),
        ("public, max-age=900, must-revalidate", 900),
        ("max-age=1", FRESH[0]),
        ("max-age=99999999", FRESH[2]),
        ("s-maxage=900", FRESH[1]),
        ("no-store", FRESH[1]),
        ("max-age=x", FRESH[1]),
    ],
)
def test_keys_are_fresh_for_as_long_as_their_sender_says(server, header, fresh):
    """Within bounds: neither a request a second, nor keys that stay for weeks."""
    server.headers = {"Cache-Control": header} if header else {}

    async def visit():
        world = World(server)
        assert await world.taken()
        world.clock.now = fresh
        assert await world.taken()
        await world.settle()
        assert len(server.asked) == 1
        world.clock.now = fresh + 1
        assert await world.taken()
        await world.settle()
        assert len(server.asked) == 2

    asyncio.run(visit())


BROKEN = [
    "error",
    "missing",
    "created",
    "redirect",
    "garbage",
    "cut",
    "list",
    "no list",
    "no objects",
    "twice",
    "huge",
    "many",
]


@pytest.mark.req("G15")
@pytest.mark.parametrize("mode", [*BROKEN, "down"])
def test_the_last_good_keys_stay_when_the_server_fails(server, mode, caplog):
    """However it fails; they are asked for again after a pause, and in the log is why."""

    async def visit():
        world = World(server)
        assert await world.taken()
        if mode == "down":
            server.close()
        server.mode = mode
        world.clock.now = FRESH[1] + 1
        assert await world.taken()
        await world.settle()
        assert await world.taken()
        assert not await world.taken(server.provider.token(header={"kid": "new"}))
        world.clock.now = OLDEST
        assert await world.taken()
        await world.settle()
        world.clock.now = OLDEST + 1 + PAUSE
        refused = await world.verify()
        assert isinstance(refused, Failure)
        assert refused.code == "unavailable"

    asyncio.run(visit())
    assert "earlier ones stay in use" in caplog.text
    assert set(server.asked) == {"/keys"}  # a redirect leads nowhere


@pytest.mark.parametrize("mode", [*BROKEN, "down"])
def test_without_any_keys_nothing_can_be_checked(server, mode):
    """That is no fault of the token: it is told so, and soon tried again."""
    server.mode = mode
    if mode == "down":
        server.close()

    async def visit():
        world = World(server)
        for _ in range(20):
            refused = await world.verify()
            assert isinstance(refused, Failure)
            assert (refused.kind, refused.code) == ("internal", "unavailable")
            assert "retry" in refused.message
        assert len(server.asked) <= 1
        if mode == "down":
            return
        server.mode = "good"
        assert not await world.taken()
        world.clock.now += sources.SOONER
        assert await world.taken()

    asyncio.run(visit())


def test_what_is_no_token_at_all_needs_no_keys(server):
    """It is refused before anybody is asked."""
    server.mode = "error"

    async def visit():
        world = World(server)
        for text in ("", "x", "a.b.c", server.provider.token(header={"alg": "none"})):
            refused = await world.verify(text)
            assert isinstance(refused, Failure)
            assert refused.kind == "unauthenticated"

    asyncio.run(visit())
    assert server.asked == []


def test_an_empty_key_set_withdraws_all(server):
    """An issuer that publishes no keys vouches for nobody."""

    async def visit():
        world = World(server)
        assert await world.taken()
        server.mode = "empty"
        world.clock.now = FRESH[1] + 1
        await world.verify()
        await world.settle()
        refused = await world.verify()
        assert isinstance(refused, Failure)
        assert refused.kind == "unauthenticated"

    asyncio.run(visit())


@pytest.mark.req("G15")
@pytest.mark.parametrize("mode", ["silent", "drip"])
def test_a_slow_server_holds_up_nobody(server, mode):
    """Who has a known key does not wait; who has not waits for a while; the loop goes on."""

    async def visit():
        world = World(server)
        assert await world.taken()
        world.source._patience = 1.0
        server.mode = mode
        world.clock.now = FRESH[1] + 1
        new = server.provider.token(header={"kid": "new"})
        waiting = asyncio.create_task(world.taken(new))
        ticks = 0
        while not waiting.done():
            assert await world.taken(server.provider.token(jti=str(ticks)))
            ticks += 1
            await asyncio.sleep(0.005)
        assert ticks > 1
        assert not await waiting
        server.release.set()

    asyncio.run(visit())
    assert len(server.asked) <= 2


def test_a_request_that_never_ends_is_not_joined_by_another(server):
    """As long as it hangs there is one thread and one connection, however often it is time."""
    server.mode = "trickle"

    async def visit():
        world = World(server, patience=2)
        for _ in range(5):
            assert not await world.taken()
            world.clock.now += PAUSE
        assert len(server.asked) == 1
        server.mode = "good"
        server.release.set()
        while world.source._fetching:  # noqa: ASYNC110 - a thread has no event
            await asyncio.sleep(0.005)
        world.clock.now += PAUSE
        world.source._patience = 30
        assert await world.taken()

    asyncio.run(visit())


def test_whoever_gives_up_waiting_leaves_the_request_to_others(server):
    """A client that goes away does not take the keys with it."""
    server.mode = "silent"

    async def visit():
        world = World(server)
        first = asyncio.create_task(world.taken())
        second = asyncio.create_task(world.taken())
        while not server.asked:  # noqa: ASYNC110 - another thread's list
            await asyncio.sleep(0.005)
        first.cancel()
        await asyncio.sleep(0)
        server.mode = "good"
        server.release.set()
        assert await second

    asyncio.run(visit())
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("mode", "why"),
    [("huge", "the answer is larger than 524,288 bytes"), ("drip", "the answer took too long")],
)
def test_a_request_is_bounded_by_itself(server, mode, why):
    """Also where nobody waits for it any more, it takes neither all memory nor for ever."""
    server.mode = mode
    with pytest.raises(FetchError, match=why):
        fetch(server.url, 3)


# --- TLS -----------------------------------------------------------------------------------


def self_signed(folder):
    """A certificate for this machine that nobody vouches for."""
    key = pair("tls", "P-256").key
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "chain.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    return path


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path, monkeypatch):
    """TLS is checked; with a root that is trusted the same server is believed."""
    chain = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    keys = KeyServer(Provider())
    server = ThreadingHTTPServer(("127.0.0.1", 0), keys.handler())
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    url = f"https://localhost:{server.server_port}/keys"
    try:
        with pytest.raises(FetchError, match="certificate verify failed"):
            fetch(url, 5)
        assert keys.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(chain))
        assert read_keys(fetch(url, 5).body).keys
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        keys._server.server_close()


def test_what_is_not_encrypted_goes_through_no_proxy(server, monkeypatch):
    """A proxy could answer with keys of its own."""
    with KeyServer(Provider()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        assert read_keys(fetch(server.url, 30).body).keys
        assert proxy.asked == []
    assert server.asked == ["/keys"]


# --- files ---------------------------------------------------------------------------------


@pytest.mark.req("G15")
def test_a_file_is_read_again_when_it_changes(tmp_path, monkeypatch, caplog):
    """Also one that was broken in between: then its earlier keys stay in use."""
    monkeypatch.setattr(sources, "GLANCE", 0.0)
    provider, path = Provider(), tmp_path / "keys.json"
    path.write_bytes(spell(provider.keys))
    settings = OAuth(issuer=ISSUER, audience=AUDIENCE, jwks_file="keys.json")
    verifier = AccessTokenVerifier(settings, tmp_path)
    new = pair("r2", "RSA2048")
    tokens = [provider.token(), provider.token(new)]

    async def taken():
        return [isinstance(await verifier.verify(Secret(token)), Actor) for token in tokens]

    def replace(text):
        fresh = tmp_path / "fresh.json"
        fresh.write_bytes(text)
        fresh.replace(path)

    async def visit():
        assert await taken() == [True, False]
        provider.pairs = [provider.rsa, new]
        replace(spell(provider.keys))
        assert await taken() == [True, True]
        replace(b"{")
        assert await taken() == [True, True]
        assert "its earlier keys stay in use" in caplog.text
        path.unlink()
        assert await taken() == [True, True]
        provider.pairs = [new]
        replace(spell(provider.keys))
        assert await taken() == [False, True]

    asyncio.run(visit())


def test_a_file_is_looked_at_once_a_second(tmp_path, monkeypatch):
    """A token costs no look at the disk."""
    path = tmp_path / "keys.json"
    path.write_bytes(spell(Provider().keys))
    source = KeyFile(path)
    looks = []
    monkeypatch.setattr(sources, "_stamp", looks.append)

    async def visit():
        began = time.monotonic()
        for _ in range(1000):
            await source.keys()
        return time.monotonic() - began

    seconds = asyncio.run(visit())
    assert len(looks) <= seconds + 1


def test_a_file_that_is_touched_is_read_without_the_loop(tmp_path, monkeypatch):
    """A slow disk is waited for in a thread."""
    monkeypatch.setattr(sources, "GLANCE", 0.0)
    path = tmp_path / "keys.json"
    path.write_bytes(spell(Provider().keys))
    source = KeyFile(path)
    read_in = []
    original = Path.read_bytes

    def read(self):
        read_in.append(threading.current_thread())
        return original(self)

    monkeypatch.setattr(Path, "read_bytes", read)
    os.utime(path, ns=(1, 1))
    asyncio.run(source.keys())
    assert read_in
    assert threading.main_thread() not in read_in


# --- key sets ------------------------------------------------------------------------------


def test_keys_of_no_use_are_left_out():
    """As RFC 7517 asks: a key set may have keys of kinds that are not known yet."""
    good = pair("r1", "RSA2048").jwk
    others = [{"kty": "AKP", "alg": "ML-DSA-44", "pub": "x"}, {}, {**good, "use": "enc"}]
    found = read_keys(spell({"keys": [*others, {**good, "x5c": [1], "exp": 5}]}))
    assert [key.kid for key in found.keys] == ["r1"]
    assert [reason.partition(":")[0] for reason in found.ignored] == ["key 0", "key 1", "key 2"]


def test_of_several_keys_none_is_guessed():
    """A name that two keys have is as good as none, unless the algorithm tells them apart."""
    rsa, ec = pair("k", "RSA2048", "a").jwk, pair("k", "P-256", "b").jwk
    found = read_keys(spell({"keys": [rsa, ec]}))
    assert found.find("RS256", "k") is found.keys[0]
    assert found.find("ES256", "k") is found.keys[1]
    both = KeySet([*found.keys, *read_keys(spell({"keys": [pair("k", "RSA2048", "c").jwk]})).keys])
    assert both.find("RS256", "k") is None
    assert both.find("RS256", None) is None
