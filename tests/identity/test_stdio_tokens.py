"""Over stdio every request is somebody's: by its own token, its session's, or the process's."""

import asyncio
import json

import pytest
from tests.worlds.clients import CLIENT_INFO, Client, meta_of, said
from tests.worlds.processes import Web, owner_first, wait_for_owner, wait_until
from tests.worlds.projects import (
    BUILD,
    DEBUG,
    PERMIT_ALL,
    PING,
    code_of,
    give_token,
    id_of,
    make_workshop,
    names_in,
    tokens_of,
)
from tests.worlds.surfaces import INITIALIZED, META, TrivialBackend, hello, message_of

from trails.app.access import make_hello
from trails.app.serve.relay.links import Hello, read_hello, write_hello
from trails.identity.tokens import TokenBook
from trails.model.actors import LOCAL, Actor, Secret
from trails.model.results import Failure
from trails.request.authenticate import Authenticator, SessionCallers
from trails.surfaces.mcp.callers import take_bearer, without_bearer
from trails.surfaces.mcp.streams import serve_stream

EVERY = "runtime,builder,dev"
UNAUTHENTICATED, SCOPE, UNKNOWN = -32001, -32004, -32602


@pytest.fixture
def folder(tmp_path):
    """A project whose policies permit everything."""
    return make_workshop(tmp_path / "p")


# --- T7: without a token ------------------------------------------------------------


@pytest.mark.req("T7")
def test_without_a_token_runtime_tools_work_and_others_are_hidden(folder):
    """Whatever scopes the process has; a call to one that is hidden did not run."""
    with Client(folder, env={"TRAILS_MCP_SCOPES": EVERY}) as client:
        assert "result" in client.begin()
        names = names_in(client.old("tools/list"))
        assert {PING, "notes.add", "notes.count"} <= names
        assert not {BUILD, DEBUG} & names
        assert client.call("notes.add", text="one") == {"result": "one"}
        for name in (BUILD, DEBUG):
            answer = client.old("tools/call", name=name, arguments={})
            assert code_of(answer) == UNAUTHENTICATED
            assert answer["error"]["data"]["required_scope"] in {"builder", "dev"}
        assert not (folder / "done").exists()
    with Client(folder, env={"TRAILS_MCP_SCOPES": EVERY}) as client:
        names = names_in(client.new("tools/list"))
        assert PING in names
        assert not {BUILD, DEBUG} & names
        answer = client.new("tools/call", name=BUILD, arguments={})
        assert code_of(answer) == UNAUTHENTICATED
        assert client.ping("whatever") == "local"


@pytest.mark.req("T23")
@pytest.mark.parametrize("env", ["production", "development"])
def test_in_production_development_tools_are_unknown(tmp_path, env):
    """Also to whoever has the scope: in the words for a tool that does not exist."""
    folder = make_workshop(tmp_path / env, env=env)
    token = give_token(folder, scopes=("runtime", "builder", "dev"))
    weak = give_token(folder)
    with Client(folder, env={"TRAILS_MCP_SCOPES": EVERY}) as client:
        names = names_in(client.new("tools/list", token))
        assert BUILD in names
        assert (DEBUG in names) is (env == "development")
        answer = client.new("tools/call", token, name=DEBUG, arguments={})
        lacking = client.new("tools/call", weak, name=DEBUG, arguments={})
        absent = client.new("tools/call", token, name="trails_meta_note_nothing", arguments={})
        if env == "production":
            assert code_of(lacking) == UNKNOWN
            assert lacking["error"] == answer["error"]
            words = json.dumps(answer["error"]).replace(DEBUG, "trails_meta_note_nothing")
            assert json.loads(words) == absent["error"]
            assert not (folder / "done").exists()
        else:
            assert (code_of(answer), code_of(lacking)) == (0, SCOPE)
            assert (folder / "done").read_text() == "debug"


# --- T4: with one -------------------------------------------------------------------


@pytest.mark.req("T4")
@pytest.mark.parametrize("owner", ["this process", "another process"])
def test_the_process_s_own_token_is_wanted_from_its_client(folder, owner):
    """In ``initialize`` or in each request; scopes are those of the process that was started."""
    env = {"TRAILS_MCP_TOKEN": "open sesame", "TRAILS_MCP_SCOPES": "runtime,builder"}
    first = [] if owner == "this process" else [Web(folder)]
    try:
        with Client(folder, env=env) as client:
            assert code_of(client.begin()) == UNAUTHENTICATED
            assert code_of(client.begin("open")) == UNAUTHENTICATED
            assert "result" in client.begin("open sesame")
            names = names_in(client.old("tools/list"))
            assert BUILD in names
            assert DEBUG not in names
            assert client.call(BUILD) == {"result": "built"}
            lacking = client.old("tools/call", name=DEBUG, arguments={})
            assert code_of(lacking) == SCOPE
        with Client(folder, env=env) as client:
            assert client.ping() == UNAUTHENTICATED
            assert client.ping("open sesame!") == UNAUTHENTICATED
            assert client.ping("open sesame") == "local"
            assert client.ping() == UNAUTHENTICATED
            assert BUILD in names_in(client.new("tools/list", "open sesame"))
    finally:
        for each in first:
            each.__exit__()


@pytest.mark.req("T4")
def test_a_wrong_token_is_an_error_whatever_is_asked(folder):
    """On that request alone, before anything is said of the method or its parameters."""
    token = give_token(folder)
    with Client(folder) as client:
        for method in ("tools/list", "server/discover", "ping", "no/such", "tools/call"):
            for wrong in (None, "nope", f"{token}x", ""):
                answer = client.new(method, wrong, name=3)
                assert code_of(answer) == UNAUTHENTICATED, (method, wrong)
                assert answer["error"]["data"] == {"code": "unauthenticated"}
        assert client.ping(token) == "ann"
        listened = client.new("subscriptions/listen", "nope", notifications={})
        assert code_of(listened) == UNAUTHENTICATED


@pytest.mark.req("T4")
def test_a_credential_of_the_process_counts_as_presented(folder):
    """For clients that can't send one; one that they do send counts instead."""
    ann, bob = give_token(folder), give_token(folder, "bob")
    with Client(folder, env={"TRAILS_TOKEN": ann}) as client:
        assert "result" in client.begin()
        assert client.call(PING)["actor"] == "ann"
    with Client(folder, env={"TRAILS_TOKEN": ann}) as client:
        assert [client.ping(), client.ping(bob), client.ping("x"), client.ping()] == [
            *("ann", "bob", UNAUTHENTICATED, "ann"),
        ]
    with Client(folder, env={"TRAILS_TOKEN": "nope"}) as client:
        assert client.ping() == UNAUTHENTICATED
        assert client.ping(bob) == "bob"


@pytest.mark.req("T4")
def test_a_session_s_token_is_asked_about_at_every_request(folder):
    """It stands for what follows, unless a request brings its own; revoked, it is worth nothing."""
    ann, bob = give_token(folder), give_token(folder, "bob")
    with Client(folder) as client:
        assert "result" in client.begin(ann)
        assert client.call(PING)["actor"] == "ann"
        own = {"name": PING, "arguments": {}, "_meta": {CLIENT_INFO: said(bob)}}
        assert client.request("tools/call", own)["structuredContent"]["actor"] == "bob"
        assert client.call(PING)["actor"] == "ann"
        tokens_of(folder).revoke([id_of(ann)])
        wait_until(lambda: code_of(client.old("ping")) == UNAUTHENTICATED, "a refusal")
        assert code_of(client.old("tools/list")) == UNAUTHENTICATED
        assert client.request("tools/call", own)["structuredContent"]["actor"] == "bob"


def test_the_first_token_closes_what_was_open(folder):
    """Sessions that began without one need one from then on."""
    with Client(folder) as client:
        assert client.ping() == "local"
        token = give_token(folder)
        wait_until(lambda: client.ping() == UNAUTHENTICATED, "a refusal")
        assert client.ping(token) == "ann"


def test_without_policies_a_token_reads(tmp_path):
    """And changes nothing: what would is not there."""
    folder = make_workshop(tmp_path / "p", policies=None)
    token = give_token(folder, scopes=("runtime", "builder", "dev"))
    with Client(folder, env={"TRAILS_MCP_SCOPES": EVERY}) as client:
        names = names_in(client.new("tools/list", token))
        assert "notes.count" in names
        assert not {"notes.add", "graph_mutate", BUILD} & names
        answer = client.new("tools/call", token, name="notes.add", arguments={"text": "x"})
        assert code_of(answer) == UNKNOWN


# --- behind another owner ---------------------------------------------------------------


@pytest.mark.req("T4")
def test_a_session_is_the_same_behind_the_next_owner(folder):
    """Its token is presented again; one that was revoked meanwhile is not taken."""
    ann = give_token(folder, scopes=("runtime", "builder"))
    bob = give_token(folder, "bob")
    scopes = {"TRAILS_MCP_SCOPES": EVERY}
    with (
        Client(folder, env=scopes) as one,
        Client(folder, env={**scopes, "TRAILS_TOKEN": bob}) as two,
    ):
        one.begin(ann)
        two.begin()
        both = {one: "ann", two: "bob"}
        first, second = owner_first(folder, one, two)
        first.kill()
        wait_for_owner(folder, second)
        assert second.call(PING)["actor"] == both[second]
        assert (BUILD in names_in(second.old("tools/list"))) is (both[second] == "ann")
        with Client(folder) as third:
            third.begin(ann)
            tokens_of(folder).revoke(actor=both[second])
            wait_until(lambda: code_of(second.old("ping")) == UNAUTHENTICATED, "a refusal")
            second.kill()
            wait_for_owner(folder, third)
            alive = both[second] != "ann"
            answer = third.old("tools/call", name=PING, arguments={})
            assert code_of(answer) == (0 if alive else UNAUTHENTICATED)


def callers_of(gate, hello):
    """The callers of a session that begins with a hello."""
    return SessionCallers(gate, frozenset(hello.scopes), hello.token, hello.wanted)


def test_what_a_front_says_can_only_narrow(tmp_path):
    """A token that it wants opens nothing where this project asks for others."""
    data = tmp_path / ".trails"
    every = frozenset({"runtime", "builder", "dev"})
    hello = make_hello("main", {"TRAILS_MCP_TOKEN": "mine", "TRAILS_MCP_SCOPES": EVERY})

    def who(gate, token, hello=hello):
        callers = callers_of(gate, hello)
        found = asyncio.run(callers.resolve(token and Secret(token), begins=False))
        if isinstance(found, Failure):
            return found.code
        assert callers.is_current(found)
        return found

    open_ = Authenticator(LOCAL, None, TokenBook(data))
    assert who(open_, "mine") == Actor("local", every, credential="wanted")
    assert who(open_, "other") == who(open_, None) == "unauthenticated"
    assert who(open_, None, Hello("main", ("runtime", "dev"))) == LOCAL
    other = Authenticator(LOCAL, Secret("theirs"), TokenBook(data))
    assert who(other, "mine") == who(other, None) == "unauthenticated"
    assert who(other, "theirs") == Actor("local", every, credential="static")
    assert who(other, "theirs", Hello("main")).scopes == {"runtime"}
    callers = callers_of(open_, hello)
    began = asyncio.run(callers.resolve(Secret("mine"), begins=True))
    give_token(tmp_path)
    wait_until(lambda: not callers.is_current(began), "the first token")
    assert isinstance(asyncio.run(callers.resolve(Secret("mine"), begins=False)), Failure)


def test_a_wrong_token_begins_no_session(tmp_path):
    """What was good before it stands; a right one takes its place."""
    ann, bob = give_token(tmp_path), give_token(tmp_path, "bob")
    gate = Authenticator(LOCAL, None, TokenBook(tmp_path / ".trails"))
    callers = callers_of(gate, make_hello("main", {"TRAILS_TOKEN": ann}))

    def who(token, *, begins):
        found = asyncio.run(callers.resolve(token and Secret(token), begins=begins))
        return found.code if isinstance(found, Failure) else found.name

    assert who(None, begins=True) == "ann"
    assert who("nope", begins=True) == "unauthenticated"
    assert who(None, begins=False) == "ann"
    assert who(bob, begins=True) == who(None, begins=False) == "bob"


def test_a_hello_says_no_token_to_whoever_prints_it():
    """Only the line that goes into the socket has it, and of the wanted one only its hash."""
    hello = make_hello("main", {"TRAILS_TOKEN": "canary-1", "TRAILS_MCP_TOKEN": "canary-2"})
    assert "canary" not in repr(hello)
    line = write_hello(hello)
    assert (b"canary-1" in line, b"canary-2" in line) == (True, False)
    again = read_hello(line)
    assert "canary" not in repr(again)
    assert (again.token.reveal(), again.wanted) == ("canary-1", hello.wanted)
    assert read_hello(write_hello(Hello())) == Hello()


# --- inside a message -------------------------------------------------------------------


def message(method, **params):
    """A request."""
    return message_of(None, method, params)


@pytest.mark.parametrize(
    ("sent", "token"),
    [
        (message("initialize", clientInfo=said("a")), "a"),
        (message("initialize", clientInfo=said("a"), _meta=meta_of("a")), "a"),
        (message("initialize", clientInfo=said("a"), _meta=meta_of("b")), ""),
        (message("tools/call", _meta=meta_of("a")), "a"),
        (message("tools/call", clientInfo=said("a")), None),
        (message("tools/call", _meta=meta_of(None)), None),
        (message("tools/call", _meta={CLIENT_INFO: {"authorization": {"bearer": 3}}}), ""),
        (message("tools/call", _meta={CLIENT_INFO: {"authorization": "a"}}), "a"),
        (message("tools/call", _meta={CLIENT_INFO: {"authorization": ["a"]}}), ""),
        (message("tools/call", _meta={CLIENT_INFO: {"authorization": {}}}), None),
        (message("tools/call", _meta={CLIENT_INFO: "a"}), None),
        (message("tools/call", _meta="a"), None),
        ({"method": "tools/call", "params": ["a"]}, None),
        ({"method": "tools/call"}, None),
        (["a"], None),
    ],
    ids=str,
)
def test_a_token_is_taken_out_of_a_message(sent, token):
    """From both places, whatever its form; the rest stays as it is."""
    body = json.dumps(sent).encode()
    found = take_bearer(sent)
    assert (found if found is None else found.reveal()) == token
    assert "authorization" not in json.dumps(sent)
    assert json.loads(without_bearer(body)) == sent
    hidden = body.replace(b"authorization", b"\\u0061uthorization")
    assert json.loads(without_bearer(hidden)) == sent


def test_what_a_body_says_twice_is_not_kept():
    """Of two members of one name the last counts; the first is not passed on either."""
    first, last = json.dumps(said("canary")), json.dumps(said(None))
    meta = f'{{"{CLIENT_INFO}": {first}, "{CLIENT_INFO}": {last}}}'
    body = f'{{"method": "tools/list", "params": {{"_meta": {meta}}}}}'.encode()
    assert b"canary" in body
    assert b"canary" not in without_bearer(body)


def test_nothing_but_the_resolver_sees_a_token():
    """Not the SDK, not the backend: the client info that they get has no such member."""
    seen = []

    class Callers:
        default_token = None

        async def resolve(self, token, *, begins):
            seen.append((token and token.reveal(), begins))
            return LOCAL

        def is_current(self, actor):
            return True

    backend = TrivialBackend()
    lines = [
        message("initialize", **hello(info=said("canary"))),
        INITIALIZED,
        message("tools/call", name="echo", arguments={}, _meta={CLIENT_INFO: said("canary")}),
    ]
    queue = [json.dumps(each).encode() for each in lines]
    sent = []

    async def receive():
        await asyncio.sleep(0.01)
        return queue.pop(0) if queue else None

    async def send(line):
        sent.append(line)

    asyncio.run(serve_stream(backend, receive, send, callers=Callers()))
    assert seen == [("canary", True), (None, False), ("canary", False)]
    assert len(sent) == 2
    assert b"canary" not in b"".join(sent)
    assert "canary" not in repr(backend.calls)


def test_a_notification_of_nobody_is_dropped(folder):
    """It has no answer, and does nothing."""
    token = give_token(folder)
    with Client(folder) as client:
        client.send(INITIALIZED)
        client.send({"jsonrpc": "2.0", "method": "no/such", "params": {"_meta": META}})
        client.send(b"garbage")
        assert client.receive()["error"]["code"] == -32700
        assert client.ping(token) == "ann"


def test_whoever_may_not_ask_any_more_may_still_stop():
    """A call that runs is taken back by a connection whose token was revoked since."""
    ended = []

    class Slow(TrivialBackend):
        async def execute(self, actor, name, arguments):
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append(name)
                raise

    class Callers:
        default_token = None
        asked = 0

        async def resolve(self, token, *, begins):
            self.asked += 1
            refused = Failure("unauthenticated", "unauthenticated", "no")
            return LOCAL if self.asked == 1 else refused

        def is_current(self, actor):
            return True

    lines = [
        message("tools/call", name="echo", arguments={}, _meta=META),
        message("tools/list", _meta=META),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    ]
    queue = [json.dumps(each).encode() for each in lines]
    sent = []
    begun = asyncio.Event()

    async def receive():
        if len(queue) < len(lines):
            await begun.wait()
        return queue.pop(0) if queue else None

    async def send(line):
        sent.append(json.loads(line))

    asyncio.run(serve_stream(Slow(), receive, send, callers=Callers()))
    assert ended == ["echo"]
    assert [code_of(each) for each in sent] == [UNAUTHENTICATED]


def test_the_subscriptions_of_a_session_are_of_one_credential(folder):
    """Another one is told so: what it may see need not be the same, nor last as long."""
    ann, bob = give_token(folder), give_token(folder, "bob")
    with Client(folder) as client:
        client.begin(ann)
        asked = {"uri": "trails://kg/Note"}
        assert "result" in client.old("resources/subscribe", **asked)
        other = client.old("resources/subscribe", **asked, _meta={CLIENT_INFO: said(bob)})
        assert other["error"]["data"]["code"] == "conflict"


def test_policies_still_decide(tmp_path):
    """A token says who asks; what that one may is for policies to say."""
    only = 'permit(principal in Group::"writers", action, resource);\n'
    folder = make_workshop(tmp_path / "p", policies=only)
    assert only != PERMIT_ALL
    ann, bob = give_token(folder), give_token(folder, "bob", groups=("writers",))
    with Client(folder) as client:
        assert "notes.add" not in names_in(client.new("tools/list", ann))
        assert "notes.add" in names_in(client.new("tools/list", bob))
