"""A token is seen by whoever checks it, and by nobody else: not in a log, an answer, a file.

Real servers that log everything are driven with tokens that are good, wrong and broken, at
every place where a token can stand, through calls that succeed, fail and crash. Then all that
they said and wrote is searched.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import secrets
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.worlds.clients import CLIENT_INFO, STREAMS, Client, Door, meta_of, said
from tests.worlds.processes import Web, owner_first, wait_for_owner, wait_until
from tests.worlds.projects import (
    PING,
    WORKSHOP,
    code_of,
    give_token,
    headers_for,
    id_of,
    make_workshop,
    tokens_of,
)
from tests.worlds.surfaces import MODERN, OLD, ask_app, hello, message_of

from trails import App
from trails.app.access import access_of
from trails.app.kernels import kernel_of
from trails.app.serve.http.front import HttpInterface
from trails.app.serve.http.hosts import HostPolicy
from trails.model.actors import Secret

LOGGING = "import logging\nlogging.basicConfig(level=logging.DEBUG)\n"
LEGACY = "legacy_sessions = true\nlegacy_sse = true"
TOKEN = "trails_{}_{}"


class Canaries:
    """Tokens that must not be found again."""

    def __init__(self):
        self.kept = {}
        """Each with the file that may have the hash of its secret, or None."""

    def good(self, folder, actor="ann"):
        """A token that the project knows; its file may have the hash of its secret."""
        return self._keep(give_token(folder, actor), folder / ".trails" / "tokens.json")

    def wrong(self):
        """A token in form that nobody gave out."""
        return self._keep(TOKEN.format(secrets.token_hex(6), secrets.token_urlsafe(32)))

    def odd(self):
        """A token of another kind."""
        return self._keep(f"canary+/{secrets.token_hex(20)}~")

    def _keep(self, token, file=None):
        self.kept[token] = file
        return token

    def found_in(self, name, data):
        """Which of them stand in some bytes, in which form."""
        for token, file in self.kept.items():
            for form, text in forms_of(token):
                by_design = form == "hash of the secret" and file is not None and name == str(file)
                if text in data and not by_design:
                    at = data.index(text)
                    yield name, form, data[max(0, at - 80) : at + len(text) + 20]


def forms_of(token):
    """A token as it might be written somewhere."""
    raw = token.encode()
    yield "itself", raw
    yield "escaped", quote(token, safe="").encode()
    yield "base64", base64.b64encode(raw).rstrip(b"=")
    yield "base64 for addresses", base64.urlsafe_b64encode(raw).rstrip(b"=")
    yield "hexadecimal", raw.hex().encode()
    yield "hash", hashlib.sha256(raw).hexdigest().encode()
    yield "raw hash", hashlib.sha256(raw).digest()
    if token.startswith("trails_"):
        secret = token.split("_", 2)[2].encode()
        yield "its secret", secret
        yield "hash of the secret", hashlib.sha256(secret).hexdigest().encode()
        yield "raw hash of the secret", hashlib.sha256(secret).digest()


class Recorded(Client):
    """A client that keeps everything that it hears."""

    def __init__(self, *arguments, **options):
        self.heard = []
        super().__init__(*arguments, **options)

    def line(self):
        """The next line."""
        line = super().line()
        self.heard.append(line or b"")
        return line


def places(canary):
    """Requests that have a canary where it does not belong, by name: params, path, headers."""
    call = {"name": "notes.add", "arguments": {"text": "x"}}
    yield "argument", {**call, "arguments": {"text": canary}}, {}
    yield "argument name", {**call, "arguments": {"text": "x", canary: 1}}, {}
    yield "deep inside", {**call, "arguments": {"text": ["x", {"a": {canary: [canary]}}]}}, {}
    yield "tool", {"name": canary, "arguments": {}}, {}
    yield "crash", {"name": "notes.crash", "arguments": {"text": canary}}, {}
    yield "client info", {**call, "clientInfo": said(canary)}, {}
    yield "progress token", {**call, "_meta": {"progressToken": canary}}, {}
    yield "session", call, {"mcp-session-id": canary}
    yield "last event", call, {"last-event-id": canary}
    yield "header", call, {"x-api-key": canary, "cookie": f"token={canary}"}
    yield "header name", call, {canary.replace("+/", "").replace("~", ""): "1"}
    yield "accept", call, {"accept": f"application/json, {canary}"}


def in_the_address(canary):
    """Paths that have one."""
    escaped = quote(canary, safe="")
    yield f"/graphs/main/mcp?access_token={escaped}"
    yield f"/graphs/{escaped}/mcp"
    yield f"/graphs/main/{escaped}"
    yield f"/graphs/main/commits/{escaped}"
    yield f"/graphs/main/snapshot?token={escaped}"
    yield f"/graphs/main/messages?session_id={escaped}"
    yield f"/{escaped}?{escaped}"
    yield f"/graphs/main/snapshot?branch=%{ord(canary[0]):02x}{escaped[1:]}"


def ask(door, params, headers, revision):
    """A call over HTTP; what was answered."""
    meta = {**meta_of(None), **params.get("_meta", {})}
    given = {"mcp-protocol-version": revision}
    if revision == MODERN:
        params = {**params, "_meta": meta}
        given |= {"mcp-method": "tools/call", "mcp-name": quote(params["name"])}
    return door.post(message_of(None, "tools/call", params), **{**given, **headers})


def drive_calls(door, wrong):
    """Calls with a token where none belongs, and calls that crash; what is answered."""
    for revision in (OLD, MODERN):
        for name, params, headers in places(wrong):
            answer = ask(door, params, headers, revision)
            assert answer[0] in {200, 202, 400, 404, 406}, (name, answer)
            yield answer
        yield ask(door, {"name": PING, "arguments": {}}, {}, revision)
        yield ask(door, {"name": "notes.crash", "arguments": {"text": "boom"}}, {}, revision)


def drive_rest(door, wrong):
    """Addresses and bodies that have a token; what is answered."""
    for path in in_the_address(wrong):
        for method in ("GET", "POST", "DELETE"):
            connection, response = door.open(method, path, {} if method == "POST" else None)
            yield response.status, response.read(), response.getheaders()
            connection.close()
    escaped = f"\\u{ord(wrong[0]):04x}{wrong[1:]}"
    hidden = json.dumps(
        message_of(None, "tools/call", {"name": "notes.add", "arguments": {wrong: 1}})
    )
    for text in (hidden.replace(wrong, escaped), hidden[:-3], f"{wrong} {{"):
        connection = door.connect()
        connection.request("POST", "/graphs/main/mcp", text, door.headers())
        yield connection.getresponse().read()
        connection.close()
    for body in ({"text": wrong}, {wrong: wrong}, {"params": {wrong: 1}}):
        for path in ("/graphs/main/invoke/notes.add", "/graphs/main/query", "/graphs/main/mutate"):
            yield door.post(body, path)


def drive_sessions(door, canaries, wrong):
    """Every kind of stream, and client infos with tokens, which say nothing over HTTP."""
    streams = {name: way(door) for name, way in STREAMS.items()}
    lines = streams["sse"].lines
    path = next(each for each in lines if "session_id=" in each).removeprefix("data: ")
    begin = message_of(None, "initialize", hello())
    for token in (wrong, door.token, canaries.odd()):
        begin["params"]["clientInfo"] = said(token)
        yield door.post(begin)
        yield door.post(begin, path)
        yield door.post(message_of(None, "tools/list", {"_meta": meta_of(token)}), path)
    for odd in ("", "Bearer", "Basic {}", "Bearer {} {}", "{}", "Bearer\t{}", "Bearer {}\x01"):
        bad = canaries.odd()
        yield door.post(message_of(None, "tools/list", {}), authorization=odd.format(bad, bad))
    for each in streams.values():
        yield "\n".join(each.lines)


def drive_lines(client, good, wrong, odd):
    """Everything over stdio."""
    for token in (good, wrong, odd):
        client.new("tools/call", token, name=PING, arguments={})
        client.new("tools/call", token, name="notes.crash", arguments={"text": "boom"})
        client.new("no/such", token)
        client.new("tools/call", token, name=3)
        client.new("subscriptions/listen", token, notifications=7)
    for params in (
        {CLIENT_INFO: {"authorization": wrong}},
        {CLIENT_INFO: {"authorization": {"bearer": [wrong]}}},
        {CLIENT_INFO: [{"authorization": {"bearer": wrong}}]},
    ):
        client.answer(client.ask("tools/list", {"_meta": params}))
    for name, params, _ in places(wrong):
        answer = client.answer(client.ask("tools/call", {**params, "_meta": meta_of(good)}))
        assert (
            ("error" in answer)
            or name in {"client info", "progress token"}
            or ("error" not in answer and wrong not in json.dumps(params))
        ), (name, answer)
    client.send(json.dumps({"jsonrpc": "2.0", "id": wrong, "method": "ping"}).encode())
    client.receive()
    client.send(f'{{"token": "{wrong}"'.encode())
    client.receive()
    escaped = f"\\u{ord(wrong[0]):04x}{wrong[1:]}"
    line = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {"x": wrong}})
    client.send(line.replace(wrong, escaped).encode())
    client.receive()
    client.send(
        {"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": meta_of(wrong)}}
    )


def written(*folders):
    """Everything in some folders, by name."""
    for folder in folders:
        for place, _, names in os.walk(folder):  # which minds nothing that is removed meanwhile
            for name in names:
                path = Path(place, name)
                with contextlib.suppress(OSError):
                    if path.is_file():
                        yield str(path), path.read_bytes()


def titles():
    """What the system shows of every process."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for name in ("cmdline", "comm"):
                yield str(process / name), (process / name).read_bytes()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project that logs everything, and a folder of its own for what is temporary."""
    folder = make_workshop(tmp_path / "p", mcp=LEGACY)
    (folder / "app.py").write_text(
        WORKSHOP.replace("import annotations\n", f"import annotations\n{LOGGING}")
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return folder


def check(canaries, texts):
    """No canary anywhere."""
    found = [each for name, data in texts for each in canaries.found_in(name, data)]
    assert not found, found[:5]


@pytest.mark.req("G15")
def test_no_token_leaves_a_trace_over_http(place, tmp_path):
    """Neither one that is given out nor the one that the process was started with."""
    canaries = Canaries()
    good, static = canaries.good(place), canaries.odd()
    wrong, dead = canaries.wrong(), canaries.good(place, "bob")
    tokens_of(place).revoke([id_of(dead)])
    env = {"TRAILS_MCP_TOKEN": static, "PYTHONASYNCIODEBUG": "1"}
    with Web(place, env=env, cold=True) as server:
        url = server.url
        heard = []
        for token in (good, static):
            with Door(url, token) as door:
                heard += map(repr, drive_calls(door, wrong))
                heard += map(repr, drive_rest(door, wrong))
                heard += map(repr, drive_sessions(door, canaries, wrong))
                heard += map(repr, drive_calls(door, token))
                heard += map(repr, drive_rest(door, token))
        for token in (wrong, dead, canaries.odd()):
            door = Door(url, None)
            door.token = token
            heard.append(repr(door.post(message_of(None, "tools/list", {}))))
        shown = list(titles())
        server.close()
        assert "Received JSON" in server.errors, "the SDK logs nothing"
        assert "crashed with boom" in server.errors
        texts = [
            ("standard error", server.errors.encode()),
            *((f"answer {n}", each.encode()) for n, each in enumerate(heard)),
            *shown,
            *written(place, tmp_path, os.environ["XDG_RUNTIME_DIR"]),
        ]
    check(canaries, texts)
    assert any(b"notes.crash" in data for name, data in texts if name.endswith("log.db"))


@pytest.mark.req("G15")
def test_no_token_leaves_a_trace_over_stdio(place, tmp_path):
    """Also when a session goes on behind another owner."""
    canaries = Canaries()
    good, other = canaries.good(place), canaries.good(place, "bob")
    static, wrong, odd = canaries.odd(), canaries.wrong(), canaries.odd()
    env = {"TRAILS_MCP_TOKEN": static, "TRAILS_TOKEN": other, "PYTHONASYNCIODEBUG": "1"}
    with Recorded(place, env=env, cold=True) as one, Recorded(place, env=env, cold=True) as two:
        first, second = owner_first(place, one, two)
        assert [first.ping(good), first.ping(wrong)] == ["ann", -32001]
        drive_lines(second, good, wrong, odd)
        first.kill()
        wait_for_owner(place, second)
        assert second.ping(good) == "ann"
        assert second.ping() == "bob"
        drive_lines(second, good, wrong, odd)
        for each in (odd, static):
            add = {"name": "notes.add", "arguments": {"text": f"with {each}"}}
            assert code_of(second.new("tools/call", each, **add)) == -32600
        tokens_of(place).revoke([id_of(good)])
        wait_until(lambda: second.ping(good) == -32001, "a refusal")
        shown = list(titles())
        second.close()
        texts = [
            *((f"error {n}", each.errors.encode()) for n, each in enumerate((one, two))),
            *(("answers", b"\n".join(each.heard)) for each in (one, two)),
            *shown,
            *written(place, tmp_path, os.environ["XDG_RUNTIME_DIR"]),
        ]
    check(canaries, texts)
    assert any(b"crashed with boom" in data for _, data in texts)


@pytest.mark.req("G15")
def test_whoever_handles_a_request_sees_an_actor_and_no_token(place):
    """The header is gone before any surface gets the request."""
    token = give_token(place)
    seen = []

    async def handle(scope, receive, send):
        seen.append((scope["trails.actor"].name, repr(scope)))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with App() as app:
        kernel = kernel_of(app)
        gate = access_of(place, app.settings, {})
        policy = HostPolicy.for_bind("127.0.0.1")
        graphs, settings = {"main": kernel}, app.settings.graphs
        interface = HttpInterface(graphs, settings, gate.authenticator, policy)
        interface._rest = interface._endpoints["main"] = handle
        headers = [(b"host", b"localhost"), *headers_for(token)]
        for path in ("/graphs/main/mcp", "/graphs/main/snapshot"):
            reply = asyncio.run(ask_app(interface, headers, [b""], path=path))
            assert reply.status == 204
        kernel.close()
    assert [name for name, _ in seen] == ["ann", "ann"]
    assert token not in repr(seen)


def test_the_search_finds_what_is_there():
    """In every form, but for the hash that a project keeps."""
    canaries = Canaries()
    token = canaries.wrong()
    for form, text in forms_of(token):
        found = {each[1] for each in canaries.found_in("x", b"before" + text + b"after")}
        assert form in found


def test_a_token_at_the_wrong_place_is_refused_before_anything_is_done(tmp_path):
    """Whoever sent it is told what to do, and nothing of it is kept."""
    folder = make_workshop(tmp_path / "p")
    token = give_token(folder)
    with Client(folder) as client:
        for number in count():
            arguments = {"text": f"{number} {token}"}
            answer = client.new("tools/call", token, name="notes.add", arguments=arguments)
            assert code_of(answer) == -32600
            assert "revoke" in answer["error"]["message"]
            if number == 2:
                break
        counted = client.new("tools/call", token, name="notes.count", arguments={})
        assert counted["result"]["structuredContent"] == {"result": 0}


FOREIGN = f'canary+/{secrets.token_hex(20)}"~'
"""A token that no form tells, with what JSON and addresses spell in several ways."""


def again(token):
    """Requests that have the token that they came with once more: path, query, headers, parts."""
    spelled = json.dumps(token)
    argument = {"name": "notes.add", "arguments": {"text": "x"}}
    mcp = json.dumps(message_of(None, "tools/call", argument))
    for each in (
        spelled[1:-1],
        spelled[1:-1].replace("/", "\\/"),
        "".join(f"\\u{ord(letter):04x}" for letter in token),
    ):
        yield "/graphs/main/mcp", b"", [], [mcp.replace('"x"', f'"a {each} z"').encode()]
        yield "/graphs/main/invoke/notes.add", b"", [], [f'{{"text": "{each}"}}'.encode()]
        yield "/graphs/main/invoke/notes.add", b"", [], [f'{{"{each}": 1}}'.encode()]
    yield "/graphs/main/mcp", b"", [(b"x-key", token.encode())], [mcp.encode()]
    yield "/graphs/main/mcp", quote(token, safe="").encode(), [], [mcp.encode()]
    yield f"/graphs/main/invoke/{token}", b"", [], [b"{}"]
    line = f'{{"type": "Note", "data": {{"text": {spelled}}}}}'.encode()
    ndjson = [(b"content-type", b"application/x-ndjson")]
    for cut in (0, 40, 50, len(line)):
        yield "/graphs/main/load", b"", ndjson, [b"\n" * 70_000, line[:cut], line[cut:], b"\n"]


def test_a_token_of_any_form_is_refused_in_the_request_that_it_came_with(place):
    """Over HTTP; its text tells, however it is spelled, and nothing of it is kept."""
    with App.open(place) as app:
        kernel = kernel_of(app)
        gate = access_of(place, app.settings, {"TRAILS_MCP_TOKEN": FOREIGN})
        policy = HostPolicy.for_bind("127.0.0.1")
        graphs, settings = {"main": kernel}, app.settings.graphs
        interface = HttpInterface(graphs, settings, gate.authenticator, policy)

        async def visit():
            async with interface.run():
                common = [(b"host", b"localhost"), *headers_for(FOREIGN)]
                plain = [*common, (b"content-type", b"application/json")]
                for path, query, headers, parts in again(FOREIGN):
                    given = [*(common if b"content-type" in dict(headers) else plain), *headers]
                    reply = await ask_app(interface, given, parts, path=path, query_string=query)
                    assert reply.status == 400, (path, parts, reply)
                    assert b"token was found outside the Authorization header" in reply.body
                good = [b'{"text": "fine"}']
                path = "/graphs/main/invoke/notes.add"
                assert (await ask_app(interface, plain, good, path=path)).status == 200
                path = "/graphs/main/snapshot"
                found = await ask_app(interface, plain, [], "GET", path=path)
                assert found.message["nodes"] == 1

        asyncio.run(visit())
        kernel.close()
    kept = b"".join(data for _, data in written(place / ".trails"))
    assert b"fine" in kept
    assert FOREIGN.encode() not in kept
    assert FOREIGN[8:40].encode() not in kept


def test_a_token_of_any_form_is_refused_in_the_session_that_it_began(tmp_path):
    """Over stdio: in a message that carries it, and in those that it stands for."""
    folder = make_workshop(tmp_path / "p", policies=None)
    with Client(folder, env={"TRAILS_MCP_TOKEN": FOREIGN}) as client:
        call = {"name": "notes.add", "arguments": {"text": f"a {FOREIGN}"}}
        assert code_of(client.new("tools/call", FOREIGN, **call)) == -32600
        assert "result" in client.begin(FOREIGN)
        assert code_of(client.old("tools/call", **call)) == -32600
        counted = client.old("tools/call", name="notes.count", arguments={})
        assert counted["result"]["structuredContent"] == {"result": 0}
    assert FOREIGN[8:40].encode() not in b"".join(data for _, data in written(folder / ".trails"))


def test_the_secret_part_of_a_token_is_a_token(tmp_path):
    """Its id is in every list of tokens, so that part alone is refused like the whole."""
    folder = make_workshop(tmp_path / "p")
    token = give_token(folder)
    secret = token[-43:]
    with App.open(folder) as app:
        kernel = kernel_of(app)
        gate = access_of(folder, app.settings, {})
        policy = HostPolicy.for_bind("127.0.0.1")
        interface = HttpInterface({"main": kernel}, app.settings.graphs, gate.authenticator, policy)

        async def visit():
            async with interface.run():
                common = [(b"host", b"localhost"), *headers_for(token)]
                plain = [*common, (b"content-type", b"application/json")]
                for path, query, headers, parts in again(secret):
                    given = [*(common if b"content-type" in dict(headers) else plain), *headers]
                    reply = await ask_app(interface, given, parts, path=path, query_string=query)
                    assert reply.status == 400, (path, parts, reply)

        asyncio.run(visit())
        kernel.close()
    with Client(folder) as client:
        call = {"name": "notes.add", "arguments": {"text": f"a {secret}"}}
        assert code_of(client.new("tools/call", token, **call)) == -32600
        assert "result" in client.begin(token)
        assert code_of(client.old("tools/call", **call)) == -32600
    assert secret.encode() not in b"".join(data for _, data in written(folder / ".trails"))


def test_a_short_token_is_not_looked_for():
    """It may stand anywhere by chance."""
    assert not Secret("open sesame").occurs_in(b"open sesame")
    assert Secret("open sesame, please").occurs_in(b"say open sesame, please!")
