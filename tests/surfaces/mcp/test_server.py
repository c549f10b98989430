"""The MCP surface on a backend of a few lines."""

from __future__ import annotations

import asyncio
import json

from tests.worlds.surfaces import OneCaller, TrivialBackend, hello, message_of
from tests.worlds.surfaces import talk as talk_in_memory

from trails.model.actors import LOCAL
from trails.surfaces.mcp import streams


def talk(*lines: bytes, backend: TrivialBackend | None = None) -> list[dict]:
    """Give a session some lines; what it answers."""
    return asyncio.run(talk_in_memory(backend or TrivialBackend(), lines))


def request(id_: int, method: str, params: dict[str, object]) -> bytes:
    """One line."""
    return json.dumps(message_of(None, method, params, id_)).encode()


def test_a_stream_answers_what_was_asked_before_it_ended():
    """Requests that are in flight when the input ends are answered still."""
    said = talk(
        request(1, "initialize", hello()),
        b"",
        request(2, "tools/call", {"name": "echo", "arguments": {"a": 10**30}}),
    )
    assert [message["id"] for message in said] == [1, 2]
    assert said[1]["result"]["structuredContent"] == {"a": 10**30}


def test_a_line_that_is_not_json_is_answered_and_the_session_goes_on():
    """A parse error costs one line, not the session."""
    odd = b'{"jsonrpc":"2.0","id":[],"method":"ping"}'
    wrong = b'{"jsonrpc":"2.0","id":7,"method":5}'
    said = talk(b"{", b"[]", odd, wrong, request(0, "initialize", hello()))
    codes = [message.get("error", {}).get("code") for message in said]
    assert codes == [-32700, -32600, -32600, -32600, None]
    assert [message["id"] for message in said] == [None, None, None, 7, 0]


class Stuck(TrivialBackend):
    """Never comes back, unless it is told to stop."""

    cancelled = False

    def __init__(self):
        super().__init__()
        self.begun = asyncio.Event()

    async def execute(self, actor, name, arguments):
        """Wait."""
        self.begun.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def test_a_call_that_is_taken_back_is_ended_and_not_waited_for(monkeypatch):
    """A cancelled call gets no answer, and does not hold up the end of the session."""
    monkeypatch.setattr(streams, "GRACE", 60.0)
    backend = Stuck()
    said = talk(
        request(1, "initialize", hello()),
        request(2, "tools/call", {"name": "echo"}),
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}',
        request(3, "ping", {}),
        backend=backend,
    )
    assert [message["id"] for message in said] == [1, 3]
    assert backend.cancelled


def test_calls_that_do_not_end_are_not_waited_for_long(monkeypatch):
    """When the input ends, what does not finish soon is given up."""
    monkeypatch.setattr(streams, "GRACE", 0.1)
    backend = Stuck()
    lines = [request(1, "initialize", hello()), request(2, "tools/call", {"name": "x"})]
    said = []

    async def receive():
        if lines:
            return lines.pop(0)
        await backend.begun.wait()
        return None

    async def send(line):
        said.append(json.loads(line))

    asyncio.run(streams.serve_stream(backend, receive, send, callers=OneCaller(LOCAL)))
    assert backend.cancelled
    assert said[1:] == [] or said[1]["error"]["code"] == -32000


def test_a_line_that_is_too_long_is_refused(monkeypatch):
    """A line has a limit, and the next one is served."""
    monkeypatch.setattr(streams, "MAX_BODY", 1000)
    said = talk(b"x" * 1001, request(1, "initialize", hello()))
    assert [message.get("error", {}).get("code") for message in said] == [-32600, None]
