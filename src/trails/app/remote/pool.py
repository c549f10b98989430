"""HTTP requests of a program to a server, over connections that are kept, with retries.

A request is sent again only if that can't do harm: it only reads, its tool says so, or it has an
idempotency key. A request that timed out is not: the server may still be at work on it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from threading import Lock
from time import sleep
from typing import Final

import httpx2
import msgspec

from trails.app.sessions.graphs import RemoteGraphClient
from trails.app.sessions.http import LIMITS, PROBES, unreachable
from trails.app.sessions.servers import ServerAddress, error_of, read_failure, url_of, write_query
from trails.errors import TrailsError, UnreachableError
from trails.model.actors import Secret
from trails.model.origins import AT_LEAST, COMMIT, MADE, MOST_COMMITS
from trails.request.operations import OPERATIONS

ATTEMPTS: Final = 4
_FIRST_PAUSE: Final = 0.1
"""Seconds until the second attempt; each further pause is three times as long."""
_CONNECT_SECONDS: Final = 10.0
_READING: Final = frozenset(each.name for each in OPERATIONS if each.hints.idempotent)
_AWAY: Final = frozenset({"busy", "lagging", "locked"})
"""Codes with which a server refuses a request before it has looked at it."""


class MadeCommits:
    """What a session has made last, so that its later answers include it, at any server.

    The log is one line, so of commits that were made one after the other the last one is enough.
    Of requests at the same time nobody knows which was later, so all of theirs are kept.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._commits: tuple[str, ...] = ()
        self._changes = 0

    def begin(self) -> tuple[int, dict[str, str]]:
        """A moment, and the headers of a request that is sent then."""
        with self._lock:
            return self._changes, {AT_LEAST: ", ".join(self._commits)} if self._commits else {}

    def learn(self, begun: int, commit: str) -> None:
        """Remember the commit of an answer whose request was sent at a moment."""
        made = commit.removesuffix(MADE)
        if made != commit:
            with self._lock:
                others = () if begun == self._changes else self._commits
                kept = [each for each in others if each != made]
                self._commits = (*kept, made)[-MOST_COMMITS:]
                self._changes += 1


class PooledConnection:
    """Requests to one server, or to several behind one address; any thread may use it."""

    def __init__(self, address: ServerAddress, token: Secret | None, timeout: float | None) -> None:
        self._address = address
        self._made = MadeCommits()
        connect = _CONNECT_SECONDS if timeout is None else min(timeout, _CONNECT_SECONDS)
        self._client = httpx2.Client(
            base_url=url_of(address),
            headers={} if token is None else {"Authorization": f"Bearer {token.reveal()}"},
            timeout=httpx2.Timeout(timeout, connect=connect, pool=None),
            transport=httpx2.HTTPTransport(
                verify=address.tls, limits=LIMITS, socket_options=PROBES
            ),
        )

    def close(self) -> None:
        self._client.close()

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a request without a body and return the answer."""
        return b"".join(self._stream(method, path, query, None, headers))

    def post(self, path: str, body: object) -> bytes:
        """Send a JSON document and return the answer."""
        data = msgspec.json.encode(body, enc_hook=str)
        headers = {"Content-Type": "application/json"}
        return b"".join(self._stream("POST", path, None, data, headers))

    def send(
        self,
        path: str,
        query: Mapping[str, object],
        blocks: Iterable[bytes],
        headers: Mapping[str, str],
    ) -> bytes:
        """Send a stream and return the answer."""
        given = {"Content-Type": "application/octet-stream", **headers}
        return b"".join(self._stream("POST", path, query, blocks, given))

    def receive(
        self, path: str, query: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> Generator[bytes, None, None]:
        """Yield a stream; raise an error if it ends early."""
        return self._stream("GET", path, query, None, headers)

    def _stream(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Generator[bytes, None, None]:
        """Yield a successful response; raise a failure as the error it was on the server."""
        begun, known = self._made.begin()
        target, given = f"{path}{write_query(query)}", {**known, **(headers or {})}
        try:
            with self._client.stream(method, target, content=content, headers=given) as response:
                if response.status_code >= 300:
                    body = response.read()
                    raise error_of(
                        read_failure(
                            response.status_code, response.reason_phrase, body, self._address
                        )
                    )
                self._made.learn(begun, response.headers.get(COMMIT, ""))
                yield from response.iter_bytes()
        except httpx2.TransportError as error:
            raise unreachable(error, self._address) from error


class PooledGraphClient(RemoteGraphClient):
    """A graph of a server, whose requests are repeated where that is safe."""

    def execute(self, name: str, arguments: Mapping[str, object]) -> bytes:
        return _repeat(
            lambda: super(PooledGraphClient, self).execute(name, arguments),
            lambda: "idempotency_key" in arguments or self._is_idempotent(name),
        )

    def record(self, name: str, arguments: Mapping[str, object]) -> bytes:
        """Return the structured result of a built-in, from its REST route."""
        return _repeat(
            lambda: super(PooledGraphClient, self).record(name, arguments),
            lambda: name in _READING or "idempotency_key" in arguments,
        )

    def _is_idempotent(self, name: str) -> bool:
        """Whether a tool may be called twice; asked when a call was lost."""
        return any(each.name == name and each.hints.idempotent for each in self.tools().tools)


def _repeat(ask: Callable[[], bytes], is_repeatable: Callable[[], bool]) -> bytes:
    """Ask until there is an answer."""
    pause = _FIRST_PAUSE
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return ask()
        except TrailsError as error:
            lost = isinstance(error, UnreachableError) and not isinstance(
                error.__cause__, httpx2.TimeoutException
            )
            if attempt == ATTEMPTS or not (error.code in _AWAY or (lost and is_repeatable())):
                raise
        sleep(pause)
        pause *= 3
    raise AssertionError  # the last attempt returns or raises
