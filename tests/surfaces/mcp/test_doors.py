"""Both doors answer the same, byte for byte."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.worlds.surfaces import (
    ECHO,
    LEGACY,
    MODERN,
    PLAIN,
    REVISIONS,
    Doors,
    TrivialBackend,
    envelope,
    headers_of,
    message_of,
)

from trails.model.actors import Actor
from trails.model.capabilities import ToolList
from trails.model.results import Failure

DATA = {"fields": [{"field": "a", "code": "required", "value": None}], "große": [1.5, 10**30]}
FAILURES = {
    f"fail_{kind}": Failure(kind, "some_code", f"{kind}: do “this” next 🧭", data)
    for kind in (
        "unknown",
        "validation",
        "unauthenticated",
        "scope",
        "denied",
        "budget",
        "semantic",
        "internal",
    )
    for data in (DATA,)
}
FAILURES |= {name.replace("fail_", "test://"): failure for name, failure in FAILURES.items()}
FAILURES["odd"] = Failure("semantic", "odd", "lone \ud800 surrogate", {"x": "\ud800"})
FAILURES["bare"] = Failure("semantic", "bare", "no data")


class Backend(TrivialBackend):
    """Fails in every way there is, and has a tool whose arguments are mirrored in headers."""

    def __init__(self):
        super().__init__(FAILURES)

    def tools(self, actor):
        """Two tools."""
        mirrored = {"a": {"type": "string", "x-mcp-header": "A"}}
        schema = {"type": "object", "properties": mirrored}
        return ToolList("1", (ECHO, msgspec.structs.replace(ECHO, name="m", input_schema=schema)))


@pytest.fixture(scope="module", params=["protocol", "tool"])
def doors(request):
    """Both doors, for each way to answer wrong arguments."""
    with Doors(Backend, validation_errors=request.param) as doors:
        yield doors


def encode(message: object) -> bytes:
    """As most clients encode."""
    return json.dumps(message, separators=(",", ":")).encode()


CALL = {"name": "echo", "arguments": {"a": 1}}
READ = {"uri": "test://note"}
VALID = [
    ("tools/call", CALL),
    ("tools/call", {"name": "echo"}),
    ("tools/call", {"name": "echo", "arguments": None}),
    ("tools/call", {"name": "echo", "arguments": {"größe": "日本\u0000語 🧭", "n": None}}),
    (
        "tools/call",
        {"name": "echo", "arguments": {"n": 10**400, "f": -0.0, "g": 1e16, "h": 5e-324}},
    ),
    ("tools/call", {"name": "nope"}),
    ("tools/call", {"name": ""}),
    ("tools/list", {}),
    ("tools/list", {"cursor": None}),
    ("resources/read", READ),
    ("resources/read", {"uri": "test://none"}),
    *(("tools/call", {"name": name}) for name in FAILURES if "://" not in name),
    *(("resources/read", {"uri": uri}) for uri in FAILURES if "://" in uri),
]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("id_", [1, 0, -5, 2**70, "a", "", "\u2028\U0001f9ed"])
def test_valid_requests(doors, revision, id_):
    """Requests without doubt are served at the fast door, as the SDK would serve them."""
    for method, params in VALID:
        headers = headers_of(revision, method, params)
        body = encode(message_of(revision, method, params, id_))
        assert doors.is_fast(headers, body), (method, params)
        fast, slow = doors.ask(headers, body)
        assert fast == slow


def test_list_without_params(doors):
    """Older revisions may leave out the parameters of a list."""
    for revision in (None, *LEGACY):
        headers = headers_of(revision, "tools/list", {})
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
        assert doors.is_fast(headers, body)
        fast, slow = doors.ask(headers, body)
        assert fast == slow
        assert fast.message["result"]["tools"]


BODIES = [
    b"",
    b" ",
    b"null",
    b"1",
    b"[]",
    b"{}",
    b"{",
    b'"',
    b"[" * 99 + b"]" * 99,
    b"[" * 101 + b"]" * 101,
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    '{"jsonrpc":"2.0"}'.encode("utf-16"),
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
    b'{"jsonrpc":"2.0","method":"nonsense"}',
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
    b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1.0,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":[],"method":"tools/list"}',
    b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
    b'{"jsonrpc":2.0,"id":1,"method":"tools/list"}',
    b'{"id":1,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1}',
    b'{"jsonrpc":"2.0","id":1,"method":5}',
    b'{"jsonrpc":"2.0","id":1,"method":"nonsense"}',
    b'{"jsonrpc":"2.0","id":1,"method":"TOOLS/LIST"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}',
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}',
    b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}',
    b'{"jsonrpc":"2.0","id":1,"method":"prompts/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"test://note"}}',
    b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]',
]


@pytest.mark.parametrize("revision", [*REVISIONS, "1999-01-01", "", "2026-07-28 "])
def test_bodies_of_every_kind(doors, revision):
    """Whatever a body is, both doors say the same of it, and never a server's error."""
    for body in BODIES:
        fast, slow = doors.ask(headers_of(revision, "tools/list", {}), body)
        assert fast == slow
        assert fast.status < 500
        assert b"-32603" not in fast.body


def raw_call(revision: str | None, arguments: bytes) -> bytes:
    """A call whose arguments are spelled by hand."""
    meta = encode(envelope(revision))
    head = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":'
    return head + arguments + (b',"_meta":' + meta if revision == MODERN else b"") + b"}}"


ARGUMENTS = [
    rb'{"a":1,"a":2}',
    rb'{"a":{"b":1,"b":null}}',
    rb'{"\u0061":1,"a":2}',
    rb'{"a":"\ud83e\udded"}',
    rb'{"a":"\ud800"}',
    rb'{"a":"\udc00\ud800"}',
    rb'{"\ud800":1}',
    b'{"a":"\xff"}',
    b'{"a":"\x00"}',
    rb'{"a":"\u0000\/\b"}',
    rb'{"a":"\x41"}',
    rb'{"a":NaN}',
    rb'{"a":-Infinity}',
    rb'{"a":1e400}',
    rb'{"a":-1e-400}',
    rb'{"a":-0}',
    rb'{"a":1.0}',
    rb'{"a":1E+2}',
    rb'{"a":01}',
    rb'{"a":0.1e1}',
    rb'{"a":9007199254740993}',
    rb'{"a":18446744073709551616}',
    rb'{"a":' + b"9" * 4299 + b"}",
    rb'{"a":' + b"9" * 4301 + b"}",
    rb'{"a":12345678901234567890.123456789}',
    rb"[]",
    rb'"a"',
    rb"5",
    rb'{"a":1,}',
    rb'{"a":' + b"[" * 95 + b"]" * 95 + b"}",
    rb'{"a":' + b"[" * 96 + b"]" * 96 + b"}",
    rb'{"a":' + b"[" * 97 + b"]" * 97 + b"}",
    rb'{"a":' + b"[" * 98 + b"]" * 98 + b"}",
    rb'{"a":' + b"[" * 300 + b"]" * 300 + b"}",
    rb'{"a":' + b'{"b":' * 1500 + b"1" + b"}" * 1500 + b"}",
    rb'{"a":[' + b"[]," * 500 + b"{}]}",
    b'{"a":"' + b"[" * 500 + b'"}',
    b'{"a":"' + b"x" * 300_000 + b'"}',
]


@pytest.mark.parametrize("revision", [None, "2025-11-25", MODERN])
def test_arguments_of_every_kind(doors, revision):
    """Odd numbers, texts and keys are understood alike, or refused alike."""
    for arguments in ARGUMENTS:
        fast, slow = doors.ask(
            headers_of(revision, "tools/call", CALL), raw_call(revision, arguments)
        )
        assert fast == slow, arguments[:60]
        assert fast.status < 500
        assert b"-32603" not in fast.body


def test_big_integers_arrive_exactly(doors):
    """An integer beyond 64 bits comes back digit for digit, in text and in structure."""
    digits = b"123456789" * 50
    for revision in REVISIONS:
        fast, slow = doors.ask(
            headers_of(revision, "tools/call", CALL), raw_call(revision, b'{"a":' + digits + b"}")
        )
        assert fast == slow
        assert fast.body.count(digits) == 2


def test_lone_surrogates_are_a_parse_error(doors):
    """A text that no UTF-8 holds is refused with a reason, on every revision."""
    for revision in REVISIONS:
        fast, slow = doors.ask(
            headers_of(revision, "tools/call", CALL), raw_call(revision, rb'{"a":"\ud800"}')
        )
        assert fast == slow
        assert (fast.status, fast.message["error"]["code"]) == (400, -32700)
        assert "half of a surrogate pair" in fast.message["error"]["message"]


def test_the_last_of_two_equal_keys_counts(doors):
    """Both doors read an object with a key twice alike."""
    for revision in REVISIONS:
        fast, slow = doors.ask(
            headers_of(revision, "tools/call", CALL), raw_call(revision, rb'{"a":17,"a":42}')
        )
        assert fast == slow
        assert (b"17" in fast.body, b"42" in fast.body) == (False, True)


ODD_HEADERS = [
    [],
    [(b"accept", b"application/json")],
    [(b"accept", b"text/html")],
    [(b"accept", b"*/*")],
    [(b"accept", b"APPLICATION/JSON;q=0.1")],
    [(b"accept", b"application/json"), (b"accept", b"text/html")],
    [(b"accept", b"text/html"), (b"accept", b"application/json")],
    [(b"accept", b" application/json , text/event-stream ")],
    [(b"content-type", b"text/plain")],
    [(b"content-type", b"application/json; charset=utf-8")],
    [(b"content-type", b"application/json;charset=latin-1")],
    [(b"content-type", b"application/jsonx")],
    [(b"content-type", b"Application/JSON")],
    [(b"content-type", b" application/json\t")],
    [(b"content-type", b"text/plain"), (b"content-type", b"application/json")],
    [(b"mcp-protocol-version", b"2025-06-18")],
    [(b"mcp-protocol-version", b"2026-07-28")],
    [(b"mcp-protocol-version", b" 2026-07-28")],
    [(b"mcp-protocol-version", b"2030-01-01")],
    [(b"mcp-protocol-version", b"\xff")],
    [(b"mcp-protocol-version", b"2026-07-28"), (b"mcp-protocol-version", b"2026-07-28")],
    [(b"mcp-protocol-version", b"2025-06-18"), (b"mcp-protocol-version", b"2026-07-28")],
    [(b"mcp-method", b"tools/list")],
    [(b"mcp-method", b"tools/call")],
    [(b"mcp-method", b" tools/call ")],
    [(b"mcp-method", b"Tools/Call")],
    [(b"mcp-method", b"tools/call"), (b"mcp-method", b"tools/call")],
    [(b"mcp-name", b"echo")],
    [(b"mcp-name", b"other")],
    [(b"mcp-name", b"echo ")],
    [(b"mcp-name", b"=?base64?ZWNobw==?=")],
    [(b"mcp-name", b"=?base64?!!?=")],
    [(b"mcp-name", b"echo"), (b"mcp-name", b"echo")],
    [(b"mcp-param-a", b"1")],
    [(b"mcp-param-", b"")],
    [(b"mcp-session-id", b"abc")],
    [(b"last-event-id", b"1")],
    [(b"content-encoding", b"gzip")],
    [(b"x-other", b"\xff\x00")],
]


@pytest.mark.parametrize("revision", [None, "2025-06-18", MODERN])
@pytest.mark.parametrize("replace", [True, False], ids=["replace", "add"])
def test_odd_headers(doors, revision, replace):
    """Headers that are missing, doubled or odd are judged alike."""
    for odd in ODD_HEADERS:
        for method, params in (("tools/call", CALL), ("tools/list", {}), ("resources/read", READ)):
            given = headers_of(revision, method, params)
            names = {name for name, _ in odd} if replace else set()
            headers = [*(one for one in given if one[0] not in names), *odd]
            fast, slow = doors.ask(headers, encode(message_of(revision, method, params)))
            assert fast == slow, odd
            assert fast.status < 500


@pytest.mark.parametrize("missing", [name for name, _ in headers_of(MODERN, "tools/call", CALL)])
def test_missing_headers(doors, missing):
    """A header that is left out is judged alike."""
    given = headers_of(MODERN, "tools/call", CALL)
    headers = [one for one in given if one[0] != missing]
    fast, slow = doors.ask(headers, encode(message_of(MODERN, "tools/call", CALL)))
    assert fast == slow


def nested(depth: int) -> object:
    """Arrays within arrays."""
    value: list = []
    for _ in range(depth - 1):
        value = [value]
    return value


METAS = [
    *(
        {"io.modelcontextprotocol/clientCapabilities": {"experimental": {"x": {"y": nested(n)}}}}
        for n in (93, 94, 95, 96)
    ),
    None,
    {},
    [],
    "x",
    {"progressToken": 1},
    {"progressToken": "p"},
    {"progressToken": True},
    {"progressToken": []},
    {"io.modelcontextprotocol/logLevel": "debug"},
    {"io.modelcontextprotocol/logLevel": "loud"},
    {"io.modelcontextprotocol/protocolVersion": "2025-06-18"},
    {"io.modelcontextprotocol/protocolVersion": 5},
    {"io.modelcontextprotocol/clientCapabilities": None},
    {"io.modelcontextprotocol/clientCapabilities": []},
    {"io.modelcontextprotocol/clientCapabilities": {"roots": {"listChanged": True}}},
    {"io.modelcontextprotocol/clientCapabilities": {"roots": 5}},
    {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"x/y": {}}}},
    {"io.modelcontextprotocol/clientInfo": None},
    {"io.modelcontextprotocol/clientInfo": {}},
    {"io.modelcontextprotocol/clientInfo": {"name": "ü"}},
    {"traceparent": "00-00-00-00"},
    {"com.example/x": {"y": [1]}},
]


@pytest.mark.parametrize("revision", [None, "2025-06-18", MODERN])
@pytest.mark.parametrize("added", [True, False], ids=["added", "alone"])
def test_envelopes_of_every_kind(doors, revision, added):
    """A ``_meta`` is judged alike, whether it stands alone or beside the usual one."""
    for meta in METAS:
        full = {**envelope(revision), **meta} if added and isinstance(meta, dict) else meta
        for method, params in (("tools/call", CALL), ("tools/list", {}), ("resources/read", READ)):
            message = message_of(revision, method, params)
            message["params"] = {**params, "_meta": full}
            fast, slow = doors.ask(headers_of(revision, method, params), encode(message))
            assert fast == slow, full


EXTRAS = [
    {"name": 5},
    {"name": None},
    {"uri": 5},
    {"uri": "test://note"},
    {"arguments": 5},
    {"cursor": "x"},
    {"cursor": 5},
    {"task": {"ttl": 5}},
    {"task": 5},
    {"inputResponses": {}},
    {"inputResponses": 5},
    {"requestState": "x"},
    {"requestState": 5},
    {"unknown": 1},
    {"meta": {}},
    {"name": "m", "arguments": {"a": "x"}},
    {"name": "m", "arguments": {}},
    {"name": "größe"},
    {"name": "=?base64?ZWNobw==?="},
    {"name": "=?base64?"},
]


@pytest.mark.parametrize("revision", [None, "2025-06-18", MODERN])
def test_parameters_of_every_kind(doors, revision):
    """Parameters that are wrong, unknown or too many are judged alike."""
    for extra in EXTRAS:
        for method, params in (("tools/call", CALL), ("tools/list", {}), ("resources/read", READ)):
            full = {**params, **extra}
            body = encode(message_of(revision, method, full))
            fast, slow = doors.ask(headers_of(revision, method, full), body)
            assert fast == slow, extra
            body = encode({**message_of(revision, method, params), **extra})
            fast, slow = doors.ask(headers_of(revision, method, params), body)
            assert fast == slow, extra


@pytest.mark.parametrize("revision", [None, "2025-06-18", MODERN])
@pytest.mark.parametrize(
    "wish",
    [
        {"progressToken": True},
        {"progressToken": None},
        {"io.modelcontextprotocol/logLevel": "debug"},
        {"traceparent": "00-00-00-00"},
        {"com.example/x": 1},
    ],
    ids=str,
)
def test_wishes_are_left_to_the_sdk(plain_doors, revision, wish):
    """A log level, a token that is none, or anything unknown is not for the fast door to judge."""
    message = message_of(revision, "tools/call", CALL)
    message["params"] = {**CALL, "_meta": {**envelope(revision), **wish}}
    assert not plain_doors.is_fast(headers_of(revision, "tools/call", CALL), encode(message))


@pytest.mark.parametrize("revision", [None, "2025-06-18", MODERN])
@pytest.mark.parametrize("token", [1, -7, 10**30, "p", "", "é"])
def test_a_progress_token_changes_nothing(plain_doors, revision, token):
    """Nothing reports progress in an answer of one piece: the same bytes, from the fast door."""
    message = message_of(revision, "tools/call", CALL)
    message["params"] = {**CALL, "_meta": {**envelope(revision), "progressToken": token}}
    asked = headers_of(revision, "tools/call", CALL), encode(message)
    fast, slow = plain_doors.ask(*asked)
    assert fast == slow
    assert plain_doors.is_fast(*asked)


RAW_METAS = [
    b'{"a":"\xff"}',
    rb'{"a":"\ud800"}',
    b'{"a":1e999}',
    b'{"a":' + b"[" * 96 + b"]" * 96 + b"}",
    b'{"a":' + b"[" * 97 + b"]" * 97 + b"}",
    b'{"a":' + b"[" * 98 + b"]" * 98 + b"}",
    b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"a":1,"a":2}',
    b'{"a":NaN}',
    b"{'a':1}",
]


@pytest.mark.parametrize("revision", [None, MODERN])
def test_envelopes_of_every_spelling(doors, revision):
    """A ``_meta`` that is no JSON, or too deep, is refused alike."""
    for raw in RAW_METAS:
        usual = encode(envelope(revision))[1:-1]
        meta = b"{" + usual + b"," + raw[1:] if usual else raw
        head = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":'
        fast, slow = doors.ask(headers_of(revision, "tools/list", {}), head + meta + b"}}")
        assert fast == slow, raw[:40]
        assert fast.status < 500


def test_mirrored_arguments_are_compared(doors):
    """A tool whose arguments stand in headers too is left to the SDK, which compares them."""
    params = {"name": "m", "arguments": {"a": "x"}}
    body = encode(message_of(MODERN, "tools/call", params))
    headers = headers_of(MODERN, "tools/call", params)
    fast, slow = doors.ask(headers, body)
    assert fast == slow
    assert (fast.status, fast.message["error"]["code"]) == (400, -32020)
    fast, slow = doors.ask([*headers, (b"mcp-param-a", b"x")], body)
    assert fast == slow
    assert fast.message["error"]["message"] == "unknown tool: m"


class Private(Backend):
    """Shows the tool with mirrored arguments to one actor alone."""

    def tools(self, actor):
        """All tools, or the first."""
        tools = super().tools(actor)
        return tools if actor.name == "ada" else ToolList("2", tools.tools[:1])

    def schema_of(self, name):
        """Of any of them."""
        return Backend().schema_of(name)


def test_mirrored_arguments_are_those_of_the_caller(plain_doors):
    """The schema that headers are compared by is one that the caller may see."""
    params = {"name": "m", "arguments": {"a": "x"}}
    body = encode(message_of(MODERN, "tools/call", params))
    headers = headers_of(MODERN, "tools/call", params)
    with Doors(Private) as doors:
        for name, code in (("ada", -32020), ("bob", -32602)):
            fast, slow = doors.ask(headers, body, **{"trails.actor": Actor(name)})
            assert fast == slow
            assert fast.message["error"]["code"] == code


class Growing(Backend):
    """Has one more tool each time it was called."""

    def tools(self, actor):
        """As many tools as calls."""
        names = [f"t{at}" for at in range(len(self.grown))]
        tools = tuple(msgspec.structs.replace(ECHO, name=name) for name in names)
        return ToolList(str(len(names)), tools)

    def __init__(self):
        super().__init__()
        self.grown = []

    async def execute(self, actor, name, arguments):
        """Grow."""
        self.grown.append(name)
        return await super().execute(actor, name, arguments)


def test_a_list_is_that_of_now():
    """Encoded lists are kept a version, so a changed registry shows at once."""
    with Doors(Growing) as doors:
        for count in range(3):
            for revision in (None, MODERN):
                headers, body = (
                    headers_of(revision, "tools/list", {}),
                    encode(message_of(revision, "tools/list", {})),
                )
                fast, slow = doors.ask(headers, body)
                assert fast == slow
                assert len(fast.message["result"]["tools"]) == count
            doors.ask(
                headers_of(None, "tools/call", CALL), encode(message_of(None, "tools/call", CALL))
            )


def test_white_space_around_a_header_is_not_part_of_it(plain_doors):
    """Some servers leave it there; the request is served all the same."""
    for revision in (None, MODERN):
        headers = headers_of(revision, "tools/call", CALL)
        padded = [(name, b" " + value + b"\t") for name, value in headers]
        body = encode(message_of(revision, "tools/call", CALL))
        fast, slow = plain_doors.ask(padded, body)
        assert fast == slow
        assert fast.message["result"]["structuredContent"] == {"a": 1}


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
ids = st.integers(-(10**30), 10**30) | st.text(st.characters(codec="utf-8"), max_size=20)


@pytest.fixture(scope="module")
def plain_doors():
    """Both doors, with the usual settings."""
    with Doors(Backend) as doors:
        yield doors


generated = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@generated
@given(
    revision=st.sampled_from(REVISIONS),
    id_=ids,
    arguments=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), values),
    ascii_=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_generated_calls(plain_doors, revision, id_, arguments, ascii_, indent):
    """Any valid call is served at the fast door, whatever its arguments and spelling."""
    params = {"name": "echo", "arguments": arguments}
    message = message_of(revision, "tools/call", params, id_)
    body = json.dumps(message, ensure_ascii=ascii_, indent=indent).encode()
    headers = headers_of(revision, "tools/call", params)
    assert plain_doors.is_fast(headers, body)
    fast, slow = plain_doors.ask(headers, body)
    assert fast == slow
    assert fast.status == 200
    result = fast.message["result"]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


@generated
@given(
    revision=st.sampled_from([*REVISIONS, "x"]),
    method=st.sampled_from(["tools/call", "tools/list", "resources/read", "ping", "x"]),
    params=st.dictionaries(
        st.sampled_from(["name", "uri", "arguments", "cursor", "_meta", "task", "x"]), values
    ),
    wrap=st.booleans(),
    extra=st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "x"]), values, max_size=1
    ),
    headers=st.lists(
        st.tuples(
            st.sampled_from([*(name for name, _ in PLAIN), b"mcp-method", b"mcp-name"]),
            st.binary(max_size=12),
        ),
        max_size=1,
    ),
    cut=st.none() | st.integers(0, 200),
    noise=st.none() | st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=3)),
)
def test_generated_nonsense(
    plain_doors, revision, method, params, wrap, extra, headers, cut, noise
):
    """Whatever is wrong with a request, both doors say the same, and no door breaks."""
    message = message_of(revision, method, params) if wrap else {"method": method, **params}
    body = encode({**message, **extra})[:cut]
    if noise is not None:
        body = body[: noise[0]] + noise[1] + body[noise[0] :]
    fast, slow = plain_doors.ask([*headers_of(revision, method, params), *headers], body)
    assert fast == slow
    assert fast.status < 500
    assert b"-32603" not in fast.body
