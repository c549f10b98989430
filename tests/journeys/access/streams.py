"""Streams of a server, opened with a token: each way that one can stay open."""

import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit

from tests.journeys.access.lines import meta_of
from tests.worlds.processes import wait_until
from tests.worlds.surfaces import INITIALIZED, MODERN, OLD, hello, message_of

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


def session(door):
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


def sse(door):
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


WAYS = {"fast": listen_fast, "sdk": listen_slow, "session": session, "sse": sse}
