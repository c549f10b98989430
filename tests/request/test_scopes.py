"""Scopes: what a credential and a process permit at most, the same on every way in."""

import json

import pytest
from tests.worlds.clients import Client, Door, meta_of, said
from tests.worlds.processes import Web
from tests.worlds.projects import (
    BUILD,
    DEBUG,
    PERMIT_ALL,
    PING,
    code_of,
    give_token,
    make_workshop,
    names_in,
)
from tests.worlds.surfaces import MODERN, OLD, hello, message_of

EVERY = "runtime,builder,dev"
EVE = 'forbid(principal == Actor::"eve", action == Action::"Admin", resource);\n'
SDK = {"accept": "application/json, text/event-stream;q=0.9"}
"""A header that only the SDK's door understands."""
HELD = {
    "least": ("runtime",),
    "builder": ("runtime", "builder"),
    "most": ("runtime", "builder", "dev"),
    "odd": ("dev",),
    "eve": ("runtime",),
    "eve most": ("runtime", "builder", "dev"),
}
NEEDS = {PING: "runtime", BUILD: "builder", DEBUG: "dev", "notes.count": "runtime"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A project, a server and a stdio process on it that permit all scopes, and tokens."""
    mcp = "legacy_sse = true\nlegacy_sessions = true"
    folder = make_workshop(
        tmp_path_factory.mktemp("scopes") / "p", policies=PERMIT_ALL + EVE, mcp=mcp
    )
    tokens = {name: give_token(folder, name.split()[0], scopes) for name, scopes in HELD.items()}
    env = {"TRAILS_MCP_SCOPES": EVERY}
    with (
        Web(folder, env=env) as server,
        Client(folder, env=env) as new,
    ):
        yield folder, server.url, new, tokens


def over_http(url, token, method, params, revision, headers):
    """What a message over HTTP is answered."""
    given = {"mcp-protocol-version": revision, **headers}
    if revision == MODERN:
        params = {**params, "_meta": meta_of(None)}
        given |= {"mcp-method": method}
        given |= {"mcp-name": params["name"]} if "name" in params else {}
    status, body, _ = Door(url, token).post(message_of(None, method, params), **given)
    return status, json.loads(body)


def over_stdio(client, token, method, params, revision):
    """What a message over stdio is answered, in a session of its own for an older revision."""
    if revision == MODERN:
        return client.new(method, token, **params)
    return client.old(method, **params, _meta={"io.modelcontextprotocol/clientInfo": said(token)})


def everywhere(world, old, token, method, params):
    """What is answered on every way in, by its name; HTTP statuses apart."""
    _, url, new, tokens = world
    found = {}
    for door, headers in (("fast", {}), ("sdk", SDK)):
        for revision in (OLD, MODERN):
            _, answer = over_http(url, tokens[token], method, params, revision, headers)
            found[f"{door} {revision}"] = answer
    found["stdio new"] = over_stdio(new, tokens[token], method, params, MODERN)
    found["stdio old"] = over_stdio(old, tokens[token], method, params, OLD)
    return found


def outcome(answer):
    """What matters of an answer, whatever the revision."""
    if "error" in answer:
        return answer["error"]
    result = answer["result"]
    return sorted(names_in(answer)) if "tools" in result else result["structuredContent"]


@pytest.mark.req("T6")
@pytest.mark.parametrize("token", list(HELD))
def test_what_is_listed_can_be_called_and_the_call_decides(world, token):
    """On both doors, both eras and stdio alike; what is refused did not run."""
    folder = world[0]
    actor = token.split()[0]
    with Client(folder, env={"TRAILS_MCP_SCOPES": EVERY}) as old:
        old.begin(world[3][token])
        listed = [
            outcome(each) for each in everywhere(world, old, token, "tools/list", {}).values()
        ]
        assert all(each == listed[0] for each in listed)
        for tool, scope in NEEDS.items():
            (folder / "done").unlink(missing_ok=True)
            answers = everywhere(world, old, token, "tools/call", {"name": tool, "arguments": {}})
            outcomes = [outcome(each) for each in answers.values()]
            assert all(each == outcomes[0] for each in outcomes), (tool, answers)
            first = outcomes[0]
            if actor == "eve" and tool == DEBUG:
                assert first["code"] == -32602
                assert first["message"] == f"unknown tool: {DEBUG}"
            elif scope in HELD[token]:
                assert "code" not in first
                assert tool in listed[0]
                continue
            else:
                assert first["code"] == -32004
                data = first["data"]
                assert (data["tool"], data["required_scope"]) == (tool, scope)
                assert data["caller_scopes"] == sorted(HELD[token])
            assert tool not in listed[0]
            assert not (folder / "done").exists()


@pytest.mark.req("T5")
@pytest.mark.parametrize("process", ["runtime", "runtime,builder", "builder,dev", EVERY, ""])
def test_over_http_a_token_only_narrows(tmp_path, process):
    """The process's scopes are the most that anybody has, its own token included."""
    folder = make_workshop(tmp_path / "p")
    scopes = {each for each in process.split(",") if each} or {"runtime"}
    env = {"TRAILS_MCP_SCOPES": process, "TRAILS_MCP_TOKEN": "open sesame"}
    tokens = {give_token(folder, scopes=held): set(held) for held in HELD.values()}
    with Web(folder, env=env) as server:
        url = server.url
        for token, held in [*tokens.items(), ("open sesame", scopes)]:
            effective = scopes & held
            listed = names_in(over_http(url, token, "tools/list", {}, OLD, {})[1])
            assert {tool for tool in NEEDS if tool in listed} == {
                tool for tool, scope in NEEDS.items() if scope in effective
            }
            for tool, scope in NEEDS.items():
                call = {"name": tool, "arguments": {}}
                answer = over_http(url, token, "tools/call", call, MODERN, {})[1]
                assert code_of(answer) == (0 if scope in effective else -32004)


@pytest.mark.req("T5")
@pytest.mark.req("T7")
def test_over_http_without_a_token_there_is_runtime_at_most(tmp_path):
    """As over stdio: the rest is hidden, and a call to it asks for a credential."""
    folder = make_workshop(tmp_path / "p")
    with Web(folder, env={"TRAILS_MCP_SCOPES": EVERY}) as server:
        url = server.url
        for revision in (OLD, MODERN):
            for headers in ({}, SDK):
                listed = names_in(over_http(url, None, "tools/list", {}, revision, headers)[1])
                assert {tool for tool in NEEDS if tool in listed} == {PING, "notes.count"}
                for tool in (BUILD, DEBUG):
                    call = {"name": tool, "arguments": {}}
                    answer = over_http(url, None, "tools/call", call, revision, headers)[1]
                    assert code_of(answer) == -32001
    assert not (folder / "done").exists()


@pytest.mark.req("T5")
def test_the_older_sse_transport_has_the_same_checks(world):
    """On its stream and on its messages; without the setting it is not there."""
    folder, url, _, tokens = world
    with Door(url, tokens["least"]) as door, Door(url, tokens["most"]) as other:
        stream = door.stream("GET", "/graphs/main/sse", headers={"accept": "text/event-stream"})
        stream.wait_for("session_id=")
        path = next(each for each in stream.lines if "session_id=" in each).removeprefix("data: ")
        nobody = Door(url, None)
        assert nobody.post(message_of(None, "initialize", hello()), path)[0] == 401
        assert nobody.get("/graphs/main/sse") == 401
        nobody.token = "nope"
        assert nobody.post(message_of(None, "initialize", hello()), path)[0] == 401
        assert other.post(message_of(None, "initialize", hello()), path)[0] in {403, 404}
        assert door.post(message_of(None, "initialize", hello("2024-11-05")), path)[0] == 202
        door.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path)
        for number, tool in enumerate((PING, BUILD, DEBUG), 10):
            call = {"name": tool, "arguments": {}}
            assert door.post(message_of(None, "tools/call", call, number), path)[0] == 202
            stream.wait_for(f'"id":{number}')
        answers = [json.loads(each[6:]) for each in stream.lines if '"id":1' in each]
        codes = {each["id"]: code_of(each) for each in answers}
        assert (codes[10], codes[11], codes[12]) == (0, -32004, -32004)
    assert not (folder / "done").exists()


@pytest.mark.req("T5")
def test_the_older_sse_transport_is_there_where_it_was_asked_for(tmp_path):
    """And nowhere else."""
    folder = make_workshop(tmp_path / "p")
    with Web(folder) as server:
        door = Door(server.url, None)
        for path in ("/graphs/main/sse", "/graphs/main/messages?session_id=1"):
            assert door.get(path) == 404


@pytest.mark.req("T23")
def test_over_http_development_tools_are_unknown_in_production(tmp_path):
    """Through both doors, whatever the scopes."""
    folder = make_workshop(tmp_path / "p", env="production")
    token = give_token(folder, scopes=("runtime", "builder", "dev"))
    with Web(folder, env={"TRAILS_MCP_SCOPES": EVERY}) as server:
        url = server.url
        for revision in (OLD, MODERN):
            for headers in ({}, SDK):
                listed = names_in(over_http(url, token, "tools/list", {}, revision, headers)[1])
                assert BUILD in listed
                assert DEBUG not in listed
                answers = [
                    over_http(url, token, "tools/call", call, revision, headers)
                    for call in (
                        {"name": DEBUG, "arguments": {}},
                        {"name": DEBUG[:-1] + "x", "arguments": {}},
                    )
                ]
                told = json.dumps(answers[0]).replace(DEBUG, DEBUG[:-1] + "x")
                assert json.loads(told) == json.loads(json.dumps(answers[1]))
                assert code_of(answers[0][1]) == -32602
    assert not (folder / "done").exists()
