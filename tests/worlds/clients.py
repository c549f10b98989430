"""Clients of servers: REST requests, streams that stay open, lines with a token."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from urllib.parse import urlencode, urlsplit

import uvicorn
from tests.worlds.processes import Stdio, Web, wait_until
from tests.worlds.projects import code_of
from tests.worlds.surfaces import INFO, INITIALIZED, MODERN, OLD, envelope, hello, message_of

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"


def said(token):
    """A client info, with a token or without."""
    return dict(INFO) if token is None else {**INFO, "authorization": {"bearer": token}}


def meta_of(token):
    """The envelope of a request of the newest revision."""
    return envelope(MODERN, said(token))


class Client(Stdio):
    """A session, of an older revision where ``begin`` is called."""

    def begin(self, token=None):
        """Open a session: the answer to ``initialize``."""
        answer = self.answer(self.ask("initialize", hello(info=said(token))))
        if "result" in answer:
            self.send(INITIALIZED)
        return answer

    def old(self, method, **params):
        """The answer to a request of an older revision."""
        return self.answer(self.ask(method, params))

    def new(self, method, token=None, **params):
        """The answer to a request of the newest revision."""
        return self.answer(self.ask(method, {**params, "_meta": meta_of(token)}))

    def ping(self, token=None):
        """Who asks, in the newest revision; or the number of an error."""
        answer = self.new("tools/call", token, name="trails_meta_ping", arguments={})
        return code_of(answer) or answer["result"]["structuredContent"]["actor"]


JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
WATCHED = {"resourceSubscriptions": ["trails://kg/Note"], "toolsListChanged": True}


class Door:
    """An HTTP server, asked on one connection a request; the token is one that it knows by now."""

    def __init__(self, url, token):
        self._at = urlsplit(url)
        self._open = []
        self.token = token
        wait_until(lambda: token is None or self.post({})[0] != 401, "a token that is known")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for connection, reader in self._open:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
            reader.join()
            connection.close()

    def open(self, method, path, body=None, headers=None):
        """A connection, and a response whose body was not read yet."""
        connection = self.connect()
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {**self.headers(), **(headers or {})})
        return connection, connection.getresponse()

    def connect(self):
        """A connection."""
        return http.client.HTTPConnection(self._at.hostname, self._at.port, timeout=60)

    def headers(self):
        """What is sent with every request."""
        return JSON if self.token is None else {**JSON, "authorization": f"Bearer {self.token}"}

    def post(self, body, path="/graphs/main/mcp", **headers):
        """The answer to a message: its status, its body and its headers."""
        connection, response = self.open("POST", path, body, headers)
        answer = response.status, response.read(), dict(response.headers)
        connection.close()
        return answer

    def get(self, path):
        """The status of a request without a body."""
        connection, response = self.open("GET", path)
        response.read()
        connection.close()
        return response.status

    def stream(self, method, path, body=None, headers=None):
        """A response that goes on."""
        connection, response = self.open(method, path, body, headers)
        # A connection forgets its socket when the response says that it is the last one.
        connection.sock = connection.sock or response.fp.raw._sock
        stream = Stream(response)
        self._open.append((connection, stream.reader))
        return stream


class Stream:
    """What arrives on a response, read by a thread until it ends."""

    def __init__(self, response):
        assert response.status == 200, response.read()
        self.lines = []
        self.ended_at = None
        self._response = response
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with suppress(OSError, http.client.HTTPException):  # whoever opened it has closed it
            while line := self._response.readline():
                self.lines.append(line.strip().decode())
        self.ended_at = time.monotonic()

    def wait_for(self, text, seconds=60):
        """Wait until a line has a text."""
        deadline = time.monotonic() + seconds
        while not any(text in line for line in self.lines):
            assert time.monotonic() < deadline, self.lines
            assert self.ended_at is None, self.lines
            time.sleep(0.02)

    def has_ended(self, seconds):
        """Whether it ends within some time."""
        deadline = time.monotonic() + seconds
        while self.ended_at is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.ended_at is not None


def listen(door, **headers):
    """A listen stream of the newest revision."""
    params = {"notifications": WATCHED, "_meta": meta_of(None)}
    body = message_of(None, "subscriptions/listen", params, 7)
    given = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen", **headers}
    stream = door.stream("POST", "/graphs/main/mcp", body, given)
    stream.wait_for("acknowledged")
    return stream


def listen_fast(door):
    """One that is answered without the SDK."""
    return listen(door)


def listen_slow(door):
    """One that the SDK answers."""
    return listen(door, accept="application/json, text/event-stream;q=0.9")


def listen_session(door):
    """The GET stream of a session of an older revision, with a subscription."""
    status, _, headers = door.post(message_of(None, "initialize", hello()))
    assert status == 200
    known = {"mcp-session-id": headers["mcp-session-id"], "mcp-protocol-version": OLD}
    door.post(INITIALIZED, **known)
    stream = door.stream("GET", "/graphs/main/mcp", headers=known)
    subscribe = message_of(None, "resources/subscribe", {"uri": "trails://kg/Note"})
    status, body, _ = door.post(subscribe, **known)
    assert status == 200, body
    assert b"result" in body
    return stream


def listen_sse(door):
    """The stream of the HTTP+SSE transport, with a subscription."""
    stream = door.stream("GET", "/graphs/main/sse", headers={"accept": "text/event-stream"})
    stream.wait_for("session_id=")
    path = next(line for line in stream.lines if "session_id=" in line).removeprefix("data: ")
    for message in (
        message_of(None, "initialize", hello("2024-11-05")),
        INITIALIZED,
        message_of(None, "resources/subscribe", {"uri": "trails://kg/Note"}, 2),
    ):
        status, body, _ = door.post(message, path)
        assert status == 202, body
    stream.wait_for('"id":2')
    return stream


STREAMS = {"fast": listen_fast, "sdk": listen_slow, "session": listen_session, "sse": listen_sse}


SCOPES = {"TRAILS_MCP_SCOPES": "runtime,builder"}


def free_port():
    """A port that nobody has at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Reply:
    """What came back."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        """The JSON of the body."""
        return json.loads(self.body)

    @property
    def challenge(self):
        """What is asked for."""
        return self.headers.get("www-authenticate")


class Desk:
    """A served project, and a client that asks it on a connection a request."""

    def __init__(self, web):
        self.web = web
        self.url = web.url

    def ask(self, method, path, token=None, body=None, headers=()):
        """Make a request; a token may be bytes of any kind."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=120)
        connection.putrequest(method, path)
        text = b"" if body is None else json.dumps(body).encode()
        connection.putheader("Content-Length", str(len(text)))
        if body is not None:
            connection.putheader("Content-Type", "application/json")
        connection.putheader("Accept", "application/json, text/event-stream")
        for name, value in headers:
            connection.putheader(name, value)
        if token is not None:
            given = token if isinstance(token, bytes) else token.encode("utf-8", "surrogateescape")
            connection.putheader("Authorization", b"Bearer " + given)
        connection.endheaders(text)
        try:
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def call(self, name, token, revision="2025-06-18", **arguments):
        """Call a tool over MCP."""
        body = message_of(None, "tools/call", {"name": name, "arguments": arguments})
        headers = [("MCP-Protocol-Version", revision)]
        return self.ask("POST", "/graphs/main/mcp", token, body, headers)


@contextmanager
def served(folder, *arguments, env=None):
    """A desk that is served until it is left."""
    with Web(folder, *arguments, env={**SCOPES, **(env or {})}) as web:
        yield Desk(web)


class RestClient:
    """Sends requests, each on a connection of its own, and reads what comes back."""

    def __init__(self, port, token=None):
        self.port = port
        self._token = {} if token is None else {"Authorization": f"Bearer {token}"}

    def send(self, method, path, body=None, **headers):
        """A response, whatever its status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body=body, headers={**self._token, **given})
            got = connection.getresponse()
            data = got.read()
        finally:
            connection.close()
        return SimpleNamespace(status=got.status, headers=got.headers, body=data)

    def get(self, path, status=200, **query):
        """A JSON document."""
        asked = f"?{urlencode(query)}" if query else ""
        return self._json(self.send("GET", f"/graphs/main/{path}{asked}"), status)

    def post(self, path, document, status=200):
        """What comes of a JSON document."""
        body = json.dumps(document).encode()
        got = self.send("POST", f"/graphs/main/{path}", body, content_type="application/json")
        return self._json(got, status)

    @staticmethod
    def _json(got, status):
        assert got.status == status, got.body[:1000]
        return json.loads(got.body)


class ThreadedServer:
    """uvicorn in a thread."""

    def __init__(self, app):
        config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def close(self):
        """Let it end."""
        self._server.should_exit = True
        self._thread.join(30)
