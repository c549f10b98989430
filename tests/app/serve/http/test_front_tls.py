"""TLS: checked before a server listens, and spoken by it."""

from __future__ import annotations

import socket
import ssl

import pytest
from tests.app.serve.http.fronts import Front, make_certificate, read_all, read_answers

from trails.app.serve.http.hosts import HostPolicy
from trails.app.serve.http.sockets import load_tls
from trails.errors import SettingsError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A certificate and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def front(files):
    """A front that speaks TLS."""
    folder = files[0].parent
    policy = HostPolicy.for_bind("127.0.0.1", tls=True)
    with Front(policy, tls=load_tls(folder, "server.pem", "server.key")) as front:
        yield front


def trusting(files, *, newest=ssl.TLSVersion.TLSv1_3):
    """A client that trusts a certificate."""
    context = ssl.create_default_context(cafile=files[0])
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = newest
    return context


def ask(
    front, context, data=b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
):
    """What a request over TLS comes to."""
    with (
        socket.create_connection(("127.0.0.1", front.port), 30) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as secure,
    ):
        secure.sendall(data)
        return read_answers(read_all(secure))


def test_what_is_answered_over_tls_stays_there(front, files):
    """HSTS is told there alone; unreadable requests are refused there, too."""
    (found,) = ask(front, trusting(files))
    assert found.status == 200
    assert found.header("strict-transport-security").startswith("max-age=")
    assert found.header("vary") is None
    (refused,) = ask(front, trusting(files), b"garbage\r\n\r\n")
    assert refused.status == 400


def test_old_protocols_are_not_spoken(front, files):
    """TLS 1.2 is the oldest; plain HTTP gets no answer, and nobody else is disturbed."""
    assert ask(front, trusting(files, newest=ssl.TLSVersion.TLSv1_2))[0].status == 200
    with pytest.raises((ssl.SSLError, ConnectionError)), pytest.warns(match="TLSv1_1"):
        ask(front, trusting(files, newest=ssl.TLSVersion.TLSv1_1))
    with pytest.raises((AssertionError, ConnectionError)):
        front.get("/healthz")
    assert ask(front, trusting(files))[0].status == 200


def test_files_that_can_not_be_used_are_told(files, tmp_path):
    """Before anything listens, with the setting, the file and what is wrong with it."""
    folder = files[0].parent
    make_certificate(folder, "other")
    make_certificate(folder, "locked", password=b"secret")
    (folder / "text.pem").write_text("no certificate")
    (folder / "empty").touch()
    for certificate, key, told in (
        ("server.pem", "", "tls_certificate is set and tls_key is not"),
        ("", "server.key", "tls_key is set and tls_certificate is not"),
        ("none.pem", "server.key", r"tls_certificate: .*none.pem can't be read: No such file"),
        ("server.pem", "none.key", r"tls_key: .*none.key can't be read"),
        (".", "server.key", "can't be read: Is a directory"),
        ("server.pem", "other.key", "is not the key of the certificate"),
        ("locked.pem", "locked.key", r"tls_key is encrypted.*openssl pkey"),
        ("text.pem", "server.key", "not a certificate and its key in PEM form"),
        ("server.pem", "text.pem", "not a certificate and its key in PEM form"),
        ("empty", "empty", "not a certificate and its key in PEM form"),
        ("server.key", "server.pem", "not a certificate and its key in PEM form"),
    ):
        with pytest.raises(SettingsError, match=told) as raised:
            load_tls(folder, certificate, key)
        assert "PRIVATE KEY" not in raised.value.message
    assert load_tls(folder, "", "") is None
    context = load_tls(tmp_path, *map(str, files))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
