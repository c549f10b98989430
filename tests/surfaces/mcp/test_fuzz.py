"""A real server under fire: whatever is sent, it answers, stays and does not grow."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Literal, NamedTuple

import pytest
from mcp.client import Client
from tests.worlds.processes import Process
from tests.worlds.surfaces import META, MODERN, message_of

Way = Literal["whole", "slow", "cut", "leave"]
"""At once; in pieces with pauses; never to the end; to the end, without waiting for an answer."""

REVISIONS = (MODERN, MODERN, MODERN, "2025-11-25", "2025-06-18", "2024-11-05", None)
METHODS = (
    *("tools/list", "resources/list", "resources/templates/list", "prompts/list", "tools/CALL"),
    *("server/discover", "ping", "initialize", "logging/setLevel", "notifications/initialized"),
    *("notifications/cancelled", "resources/subscribe", "resources/unsubscribe", "../../etc"),
    *("subscriptions/listen", "completion/complete", "sampling/createMessage", "a\u0000b"),
)
TEXTS = (
    *("", " ", "a" * 300, "x" * 100_000, "\u0000", "\ud800", "\U0001f68b" * 50, "é" * 3, "e\u0301"),
    *("\u202e\u200b", "' OR 1=1 --", "<script>", "${7*7}", "%s%n", "../../../etc/passwd", "null"),
    *("trails://kg/Hazard/HAZ-001", "REQ-001", "HAZ-999", "2026-02-30", "2026-13-01T25:00:00Z"),
    *("main", "no/such", "-", "\r\nx: y", "NaN", "1e999", "٣", "A" * 70_000),
)
NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, 1.5, -0.0, 1e308, 1.0)
SPARQL = (
    "SELECT * { ?s ?p ?o } LIMIT 5",
    "SELECT (COUNT(*) AS ?n) { ?h a :Hazard }",
    "ASK { ?s :status 'open' }",
    "SELECT * { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }",
    "SELECT * {" * 500,
    "{" * 4000,
    "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o } LIMIT 3",
    "DESCRIBE <trails://northline/main/Hazard/HAZ-001>",
    "INSERT DATA { <a:b> <c:d> 1 }",
    "DELETE WHERE { ?s a :Team }",
    "LOAD <file:///etc/passwd>",
    "SELECT * { ?s ?p ?o . FILTER(REGEX(STR(?o), '(a+)+$')) } LIMIT 1",
)


BUSY = ("graph_query", "graph_mutate", "graph_load")
"""Tools that take whole texts and lists, and deserve more attention."""
TEAM = {
    "name": "A team of the fuzzer",
    "mission": "To be created and deleted.",
    "formed": "2026-01-02",
}
LINES = (
    json.dumps({"type": "Team", "data": {"code": "FUZZ", **TEAM}}),
    '{"type": "Team", "data": {"code": "x"}}',
    '{"edge": "Verification", "from": "TestCase/TC-001", "to": "Requirement/REQ-001", "data": {}}',
    "<urn:a> <urn:b> <urn:c> .",
    "code,name\nA,B",
    '{"@id": "urn:a", "@type": "urn:b"}',
    "{",
)


class Shot(NamedTuple):
    """One HTTP request, how it is sent, and what it was meant to be."""

    data: bytes
    way: Way
    what: str


class Gun:
    """Makes shots at an endpoint whose tools, URIs and keys are known."""

    def __init__(
        self, seed: int, path: str, tools: Mapping[str, Mapping[str, Any]], uris: Sequence[str]
    ) -> None:
        self._rng = Random(seed)
        self._path = path
        self._tools = tools
        self._names = [*tools, *BUSY * 3]
        self._uris = uris
        self._shots: Sequence[tuple[int, Callable[[], Shot]]] = (
            (50, self._call),
            (16, self._read),
            (10, self._other),
            (8, self._malformed),
            (6, self._odd_headers),
            (2, self._large),
            (4, self._odd_http),
        )

    def shoot(self) -> Shot:
        """The next one."""
        weights, makers = zip(*self._shots, strict=True)
        shot = self._rng.choices(makers, weights)[0]()
        if shot.way == "whole" and self._rng.random() < 0.06:
            return shot._replace(way=self._rng.choice(("slow", "cut", "leave", "leave")))
        return shot

    # -------------------------------------------------------------------- requests

    def _call(self) -> Shot:
        rng = self._rng
        name = rng.choice(self._names)
        arguments: Any = self._argue(self._tools[name], rng.choice((0.0, 0.0, 0.1, 0.5)))
        if name == "graph_mutate" and rng.random() < 0.5:
            arguments = {"operations": [self._operation() for _ in range(rng.randrange(1, 3))]}
        if rng.random() < 0.05:
            arguments = self._anything(2)
        if rng.random() < 0.03:
            name = rng.choice(TEXTS)
        return self._rpc("tools/call", {"name": name, "arguments": arguments}, name)

    def _read(self) -> Shot:
        uri = self._uri()
        return self._rpc("resources/read", {"uri": uri}, uri)

    def _other(self) -> Shot:
        rng = self._rng
        method = rng.choice(METHODS)
        params = rng.choice(({}, {"uri": self._uri()}, {"cursor": "x"}, self._anything(2)))
        if method == "completion/complete" and rng.random() < 0.8:
            params = {
                "ref": {"type": "ref/resource", "uri": self._uri()},
                "argument": {"name": rng.choice(("id", "branch", "x")), "value": self._text()},
            }
        if method == "subscriptions/listen":
            watched = [self._uri() for _ in range(rng.randrange(3))]
            params = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": watched}}
            return self._rpc(method, params, None)._replace(way="leave")
        return self._rpc(method, params, None)

    def _malformed(self) -> Shot:
        rng = self._rng
        good = self._body("tools/call", {"name": "graph_health", "arguments": {}, "_meta": META})
        body = rng.choice(
            (
                b"",
                b"null",
                b"[]",
                b"{}",
                b"\xff\xfe",
                good[: rng.randrange(len(good))],
                good + good,
                b"[" + good + b"," + good + b"]",
                good.replace(b"2.0", b"1.0"),
                good.replace(b'"id":', b'"id":1,"id":'),
                good.replace(b"graph_health", b"graph\\ud800health"),
                good.replace(b"{", b"[", 1),
                b"[" * 100_000,
                b'{"a":' * 20_000,
                b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
                b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
                bytes(rng.randrange(256) for _ in range(rng.randrange(200))),
            )
        )
        return self._http(body, self._headers("tools/call", "graph_health", MODERN), "malformed")

    def _odd_headers(self) -> Shot:
        rng = self._rng
        headers = self._headers("tools/call", "graph_health", MODERN)
        odd = rng.choice(
            (
                ("mcp-method", "tools/list"),
                ("mcp-name", "other"),
                ("mcp-protocol-version", "2099-01-01"),
                ("mcp-protocol-version", "\u00ff"),
                ("mcp-session-id", "00000000"),
                ("content-type", "text/plain"),
                ("content-encoding", "gzip"),
                ("accept", "text/html"),
                ("accept", "*/*"),
                ("origin", "https://evil.example"),
                ("host", "evil.example"),
                ("expect", "100-continue"),
                ("x-big", "y" * 20_000),
                ("mcp-param-region", "=?base64?!!?="),
                ("last-event-id", "1"),
            )
        )
        headers = [pair for pair in headers if rng.random() < 0.5 or pair[0] != odd[0]] + [odd]
        params = {"name": "graph_health", "arguments": {}, "_meta": META}
        return self._http(self._body("tools/call", params), headers, f"header {odd[0]}")

    def _large(self) -> Shot:
        rng = self._rng
        arguments = rng.choice(
            (
                {"query": "x" * 2_000_000},
                {"data": '{"type":"Team","data":{}}\n' * 20_000},
                {"operations": [{"op": "delete"}] * 11_000},
                {"query": "ASK {}", "params": {f"p{n}": n for n in range(5_000)}},
                {"deep": json.loads("[" * 400 + "]" * 400)},
            )
        )
        name = rng.choice(("graph_query", "graph_load", "graph_mutate"))
        return self._rpc("tools/call", {"name": name, "arguments": arguments}, name)

    def _odd_http(self) -> Shot:
        rng = self._rng
        method = rng.choice(("GET", "DELETE", "PUT", "OPTIONS", "PATCH", "HEAD"))
        path = rng.choice((self._path, self._path + "/", "/graphs/none/mcp", "/%00", "/sse"))
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
        lies = (
            b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999\r\n\r\n{"
            % self._path.encode()
        )
        return Shot(*rng.choice(((head.encode(), "whole"), (lies, "cut"))), f"{method} {path}")

    # -------------------------------------------------------------------- parts

    def _rpc(self, method: str, params: Any, name: str | None) -> Shot:
        revision = self._rng.choice(REVISIONS)
        if revision == MODERN and isinstance(params, dict):
            params = {**params, "_meta": META}
        headers = self._headers(method, name, revision)
        return self._http(self._body(method, params), headers, f"{method} {name}")

    def _body(self, method: str, params: Any) -> bytes:
        id = self._rng.choice((1, 2**53, "a", "\u00e9", 0, -5))
        return json.dumps(message_of(None, method, params, id)).encode()

    def _headers(
        self, method: str, name: str | None, revision: str | None
    ) -> list[tuple[str, str]]:
        headers = [
            ("host", "127.0.0.1"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ]
        if revision is not None:
            headers.append(("mcp-protocol-version", revision))
        if revision == MODERN:
            headers.append(("mcp-method", method))
            if name is not None:
                headers.append(("mcp-name", name))
        return headers

    def _http(self, body: bytes, headers: list[tuple[str, str]], what: str) -> Shot:
        """As it is: what a header can't carry is sent anyway, as bytes."""
        lines = [f"POST {self._path} HTTP/1.1".encode()]
        for name, value in (*headers, ("content-length", str(len(body))), ("connection", "close")):
            lines.append(name.encode() + b": " + value.encode("utf-8", "surrogatepass"))
        return Shot(b"\r\n".join([*lines, b"", b""]) + body, "whole", what[:80])

    def _uri(self) -> str:
        rng = self._rng
        uri = rng.choice(self._uris)
        for _ in range(rng.choice((0, 0, 1, 2))):
            at = rng.randrange(len(uri) + 1)
            uri = rng.choice(
                (
                    uri[:at] + rng.choice(TEXTS)[:200] + uri[at:],
                    uri[:at],
                    uri + rng.choice(("?limit=0", "?limit=5&offset=2", "?where=a", "#x", "/", "%")),
                    uri.replace("trails", rng.choice(("file", "http", "TRAILS", ""))),
                    uri.replace("kg", "at/0000/kg"),
                    uri.replace("kg", "branch/none/kg"),
                )
            )
        return uri

    def _text(self) -> str:
        return self._rng.choice(TEXTS)

    def _anything(self, depth: int) -> Any:
        rng = self._rng
        leaf = rng.choice((None, True, False, self._text(), rng.choice(NUMBERS)))
        if depth == 0 or rng.random() < 0.4:
            return leaf
        many = [self._anything(depth - 1) for _ in range(rng.randrange(4))]
        return rng.choice((many, {self._text()[:50]: each for each in many}))

    def _argue(self, schema: Mapping[str, Any], wrong: float) -> Any:
        """A value of a schema; each part is wrong with a probability."""
        rng = self._rng
        if rng.random() < wrong:
            return self._anything(1)
        kinds = schema.get("type", rng.choice(("string", "integer", "object")))
        kind = rng.choice(kinds) if isinstance(kinds, list) else kinds
        if "enum" in schema:
            return rng.choice(schema["enum"])
        return getattr(self, f"_make_{kind}")(schema, wrong)

    def _make_null(self, schema: Mapping[str, Any], wrong: float) -> None:
        return None

    def _make_boolean(self, schema: Mapping[str, Any], wrong: float) -> bool:
        return self._rng.random() < 0.5

    def _make_integer(self, schema: Mapping[str, Any], wrong: float) -> int:
        return self._rng.choice((schema.get("minimum", 0), schema.get("maximum", 9), 1, 3))

    def _make_number(self, schema: Mapping[str, Any], wrong: float) -> float:
        return self._rng.choice((0.5, 1.0, 99.25))

    def _make_array(self, schema: Mapping[str, Any], wrong: float) -> list[Any]:
        items = schema.get("items", {})
        if not items:
            return [self._operation() for _ in range(self._rng.randrange(3))]
        return [self._argue(items, wrong) for _ in range(self._rng.randrange(3))]

    def _make_object(self, schema: Mapping[str, Any], wrong: float) -> dict[str, Any]:
        rng, required = self._rng, schema.get("required", ())
        return {
            name: self._argue(each, wrong)
            for name, each in schema.get("properties", {}).items()
            if (name in required or rng.random() < 0.3) and rng.random() >= wrong / 3
        }

    def _make_string(self, schema: Mapping[str, Any], wrong: float) -> str:
        rng = self._rng
        if "trails:node_type" in schema:
            kind = schema["trails:node_type"]
            mine = [uri for uri in self._uris if f"/{kind}/" in uri]
            return rng.choice(mine or self._uris)
        if "SPARQL" in schema.get("description", ""):
            return rng.choice(SPARQL)
        if "text to load" in schema.get("description", ""):
            return rng.choice(LINES)
        made = rng.choice(
            (f"fuzz-{rng.randrange(30)}", "main", "REQ-001", "2026-01-02", "2026-01-02T03:04:05Z")
        )
        return made.ljust(schema.get("minLength", 0), "n")

    def _operation(self) -> dict[str, Any]:
        """One that works more often than not, when the code is free or taken as it should be."""
        rng = self._rng
        code = f"FUZ{rng.choice('ABCD')}"
        return rng.choice(
            (
                {"op": "create", "type": "Team", "data": {"code": code, **TEAM}},
                {"op": "update", "type": "Team", "id": code, "data": {"name": f"Team {code}"}},
                {"op": "delete", "type": "Team", "id": code},
                {"op": "update", "type": "Hazard", "id": "HAZ-001", "data": {"status": "open"}},
                {"op": rng.choice(("create", "")), "type": "Nothing", "data": self._text()},
                {"op": "delete", "iri": rng.choice(self._uris), "cascade": True},
            )
        )


NORTHLINE = Path(__file__).parents[3] / "examples" / "northline"
GUNS = 4
PATIENCE = 60
TYPES = ("Component", "Hazard", "Person", "Requirement", "Team", "Verification")


class Target(NamedTuple):
    """A server process and where it listens."""

    process: Process
    port: int
    path: str


@pytest.fixture
def target(tmp_path):
    """``trails serve`` on the Northline example, in a process of its own."""
    folder = tmp_path / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    with Process("serve", "-p", folder, "--port", "0", "--json") as process:
        url = json.loads(process.line())["graphs"][0]["url"]
        port, _, path = url.removeprefix("http://127.0.0.1:").partition("/")
        yield Target(process, int(port), f"/{path}")


async def survey(target: Target) -> tuple[dict[str, Any], list[str]]:
    """The tools with their schemas, and URIs worth reading."""
    async with Client(f"http://127.0.0.1:{target.port}{target.path}") as client:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        uris = [str(each.uri) for each in (await client.list_resources()).resources]
        for kind in TYPES:
            page = await client.read_resource(f"trails://kg/{kind}")
            iris = [each["iri"] for each in json.loads(page.contents[0].text)[:20]]
            uris += iris + [f"trails://kg/{kind}/{iri.rpartition('/')[2]}" for iri in iris]
        commit = json.loads((await client.call_tool("graph_snapshot", {})).content[0].text)
        uris.append(f"trails://at/{commit['head']}/kg/Hazard")
        return tools, uris


async def fire(port: int, shot: Shot) -> bytes | None:
    """Send a shot as it wants to be sent; the answer, or None where none is due."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if shot.way == "slow":
            third = len(shot.data) // 3 + 1
            for start in range(0, len(shot.data), third):
                writer.write(shot.data[start : start + third])
                await asyncio.sleep(0.02)
        else:
            writer.write(
                shot.data[: -max(1, len(shot.data) // 4)] if shot.way == "cut" else shot.data
            )
        if shot.way in {"cut", "leave"}:
            await asyncio.sleep(0.005)
            return None
        return await reader.read()
    except ConnectionError:
        return None  # refused before it had been sent: a body beyond the limit
    finally:
        writer.close()


def complain(shot: Shot, answer: bytes) -> str | None:
    """What is wrong with an answer, or None."""
    status = answer[:12]
    if not answer.startswith(b"HTTP/1.1 ") or status[9:10] == b"5":
        return f"{shot.what}: {answer[:300]!r} to {shot.data[:1500]!r}"
    if b"-32603" in answer or b"Traceback" in answer:
        return f"{shot.what}: {answer[-600:]!r} to {shot.data[:1500]!r}"
    return None


def resident(pid: int) -> int:
    """Kilobytes of memory that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0])


class Course:
    """How much memory a server held during a part of a campaign."""

    def __init__(self, part: str, kilobytes: list[int]) -> None:
        self._part = part
        self._megabytes = [each / 1024 for each in kilobytes]
        self.median = median(self._megabytes)

    def __str__(self) -> str:
        """Its median and its course, in tenths."""
        tenth = max(1, len(self._megabytes) // 10)
        tenths = [self._megabytes[at : at + tenth] for at in range(0, len(self._megabytes), tenth)]
        course = " ".join(f"{median(each):.0f}" for each in tenths[:10])
        return f"{self._part}: {self.median:.1f} MB; in tenths {course}"


async def campaign(target: Target, shots: int, seed: int) -> tuple[list[str], list[int]]:
    """Fire from several guns at once; what went wrong, and the memory along the way."""
    tools, uris = await survey(target)
    complaints: list[str] = []
    memory: list[int] = []

    async def keep_firing(gun: Gun) -> None:
        for number in range(shots // GUNS):
            shot = gun.shoot()
            try:
                async with asyncio.timeout(PATIENCE):
                    answer = await fire(target.port, shot)
            except TimeoutError:
                complaints.append(f"no answer to {shot.what}: {shot.data[:1500]!r}")
                continue
            if answer is not None:
                complaints.extend(filter(None, [complain(shot, answer)]))
            if number % 5 == 0:
                memory.append(resident(target.process.pid))

    guns = [Gun(seed * GUNS + each, target.path, tools, uris) for each in range(GUNS)]
    await asyncio.gather(*map(keep_firing, guns))
    await survey(target)
    return complaints, memory


def test_nothing_that_is_sent_breaks_the_server(target):
    """600 requests of all sorts: no 5xx, no internal error, no silence, no exit."""
    complaints, _memory = asyncio.run(campaign(target, 600, seed=1))
    assert complaints == []
    assert target.process.process.poll() is None
    assert "Traceback" not in target.process.errors


@pytest.mark.long(cases=10_000)
def test_ten_thousand_requests_leave_the_server_as_it_was(target, capsys):
    """As above, from its first request on; the memory of the halves differs by at most 5 %."""
    complaints, memory = asyncio.run(campaign(target, 10_000, seed=3))
    first = Course("first half", memory[: len(memory) // 2])
    second = Course("second half", memory[len(memory) // 2 :])
    with capsys.disabled():
        sys.stdout.write(f"\n{first}\n{second}\n")
    assert complaints == []
    assert target.process.process.poll() is None
    assert "Traceback" not in target.process.errors
    assert second.median <= 1.05 * first.median, f"{first}; {second}"
