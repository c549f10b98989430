"""Whole servers: what they may listen on, several before one owner, and the command line."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from urllib.parse import urlsplit

import pytest
from tests.app.serve.http.fronts import make_certificate, read_all
from tests.worlds.processes import Process, Web
from tests.worlds.projects import make_notebook

from trails.app.serve.relay.links import Preamble
from trails.app.serve.relay.owners import find_owner

TOKEN = "canary-9d21-front"
SECRET = {"TRAILS_MCP_TOKEN": TOKEN}
ANYWHERE = ("--host", "0.0.0.0")  # noqa: S104 - the point of it
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def folder(tmp_path):
    """A project."""
    return make_notebook(tmp_path / "notebook")


def configure(folder, text):
    """Add to the settings of a project."""
    with (folder / "trails.toml").open("a") as file:
        file.write(f"\n[server]\n{text}\n")


def ask(url, path="/graphs/main/snapshot", *, context=None, **headers):
    """Status and JSON of a GET; the Host is the one that is given."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection("localhost", parts.port, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def speak(url, data):
    """What comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", urlsplit(url).port), 60) as sock:
        sock.sendall(data)
        return read_all(sock)


def run(*arguments, env=None):
    """The exit code of a command, what it says as JSON, and what it says beside."""
    with Process(*arguments, "--json", env=env) as process:
        said = b"".join(iter(process.line, None))
        return process.close(), json.loads(said or b"null"), process.errors


@pytest.mark.req("G14")
def test_a_server_that_others_reach_wants_tokens_and_tells_what_is_missing(folder):
    """Without a token it refuses to start; with one it warns of names and encryption."""
    with Process("serve", "-p", folder, "--port", "0", *ANYWHERE) as process:
        assert process.close() == 2
        assert "access control" in process.errors
        assert "trails token new" in process.errors
    with Web(folder, *ANYWHERE, env=SECRET) as web:
        url = web.url
        assert url.startswith("http://0.0.0.0:")
        assert "public_hosts" in web.errors
        assert "TLS" in web.errors
        assert ask(url, Host="anything.example", **BEARER)[0] == 200
        assert ask(url, Host="anything.example")[0] == 401
        assert ask(url, Host="anything.example", Origin="http://localhost", **BEARER)[0] == 403
        assert ask(url, "/healthz", Host="anything.example")[0] == 200
        assert TOKEN not in web.errors


@pytest.mark.req("G14")
def test_two_fronts_before_one_owner_keep_their_own_rules(folder):
    """Whichever of them owns the folder; a token of one process is asked for at its port alone."""
    configure(folder, "public_hosts = ['kg.example.org']\nbrowser_origins = ['https://a.example']")
    for local_first in (True, False):
        first, second = ({}, SECRET) if local_first else (SECRET, {})
        with (
            Web(folder, *(ANYWHERE if first else ()), env=first) as one,
            Web(folder, *(ANYWHERE if second else ()), env=second) as two,
        ):
            assert [each.served["owner"] for each in (one, two)] == [True, False]
            local, remote = (one, two) if local_first else (two, one)
            there, here = remote.url, local.url
            public = {"Host": "kg.example.org"}
            assert ask(there, **public, **BEARER)[0] == 200
            assert ask(there, **public)[0] == 401
            assert ask(there, Host="localhost", **BEARER)[0] == 403
            assert ask(there, **public, Origin="http://localhost", **BEARER)[0] == 403
            assert ask(there, **public, Origin="https://a.example", **BEARER)[0] == 200
            assert ask(here, **public, **BEARER)[0] == 403
            assert ask(here, Origin="http://localhost", **BEARER)[0] == 200
            for url in (there, here):
                large = b"GET / HTTP/1.1\r\nx: %b\r\n\r\n" % (b"y" * 20_000)
                assert speak(url, b"garbage\r\n\r\n").startswith(b"HTTP/1.1 400 ")
                assert speak(url, large).startswith(b"HTTP/1.1 431 ")
                assert speak(url, Preamble(operator="x").line() + large).startswith(
                    b"HTTP/1.1 400 "
                )
            # The owner's own token is asked for at every port before it.
            assert ask(here)[0] == (200 if local_first else 401)


def test_tls_is_spoken_by_owners_and_fronts_and_understood_by_commands(folder, tmp_path):
    """A command trusts what SSL_CERT_FILE names, and says so where it does not trust."""
    certificate, key = make_certificate(tmp_path)
    configure(folder, f"tls_certificate = '{certificate}'\ntls_key = '{key}'")
    context = ssl.create_default_context(cafile=certificate)
    with Web(folder) as owner, Web(folder) as front:
        for web in (owner, front):
            url = web.url.replace("127.0.0.1", "localhost")
            assert url.startswith("https://")
            assert ask(url, context=context)[0] == 200
            trusting = {"SSL_CERT_FILE": str(certificate)}
            code, found, _ = run("branch", "list", "--server", url, env=trusting)
            assert (code, found["branches"][0]["name"]) == (0, "main")
        code, found, _ = run("branch", "list", "--server", url)
        assert code != 0
        assert "SSL_CERT_FILE" in found["error"]["message"]
    key.unlink()
    with Process("serve", "-p", folder, "--port", "0") as process:
        assert process.close() == 2
        assert "tls_key" in process.errors


def test_a_command_is_the_operator_unless_it_has_a_token(folder):
    """The same through an owner as in the folder itself; a wrong token is nobody in both."""
    wrong, right = {"TRAILS_TOKEN": "nope"}, {"TRAILS_TOKEN": TOKEN}
    place = ("-p", folder)
    alone = [run("branch", "list", *place, env={**SECRET, **each}) for each in ({}, wrong, right)]
    with Web(folder, env=SECRET) as web:
        key = find_owner(folder).key.reveal()
        served = [run("branch", "list", *place, env=each) for each in ({}, wrong, right)]
        assert ask(web.url, Authorization=f"Bearer {key}")[0] == 401
        assert key not in web.errors
        assert key not in str(served)
    for found in (alone, served):
        assert [code for code, _, _ in found] == [0, 2, 0], found
        assert found[1][1]["error"]["code"] == "unauthenticated"
    assert served[1][1] == alone[1][1]
    assert TOKEN not in str((alone, served))


def test_a_token_loads_files_as_its_actor(folder, tmp_path):
    """In a folder that is open here: the way of everybody, not the operator's."""
    lines = tmp_path / "notes.ndjson"
    lines.write_text('{"type": "Note", "data": {"text": "one"}}\n')
    code, found, _ = run("load", lines, "-p", folder)
    assert (code, found["nodes"]) == (0, 1)
    lines.write_text('{"type": "Note", "data": {"text": "two"}}\n')
    code, found, _ = run("load", lines, "-p", folder, env={"TRAILS_TOKEN": "in open mode, ignored"})
    assert (code, found["nodes"]) == (0, 1), found
    code, found, _ = run("load", lines, "-p", folder, env={**SECRET, "TRAILS_TOKEN": TOKEN})
    assert code != 0
