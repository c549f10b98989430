"""Sources of an issuer's keys: the settings, a file, or a URL.

A source keeps the last keys that it could read. A file is read again when it changes; a URL
is fetched again when its answer is old, or when a token names an unknown key. A request never
waits for a source that already has keys.

A fetch is one GET over verified TLS, limited in size and time, without redirects.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import threading
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from time import monotonic
from typing import Final, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

import msgspec

from trails.errors import SettingsError
from trails.identity.oauth.keys import LARGEST, KeySet, read_keys

_BLOCK: Final = 1 << 16
_MAX_AGE: Final = re.compile(r"(?:^|[,\s])max-age=([0-9]{1,9})(?:$|[,\s])", re.IGNORECASE)


class FetchError(Exception):
    """A key set could not be fetched; says why."""


class Fetched(msgspec.Struct, frozen=True):
    body: bytes
    max_age: int | None
    """Seconds of freshness given by the server."""


def fetch(url: str, patience: float) -> Fetched:
    """Fetch a URL within about ``patience`` seconds; blocks."""
    ends = monotonic() + patience
    opener = build_opener(_way_to(url), _NoRedirect())
    request = Request(url, headers={"Accept": "application/json", "Accept-Encoding": "identity"})  # noqa: S310 - the settings allow https, and http on this machine
    try:
        with opener.open(request, timeout=patience) as answer:
            if answer.status != 200:
                raise FetchError(f"the server answered {answer.status}")
            found = _MAX_AGE.search(answer.headers.get("Cache-Control", ""))
            body = bytearray()
            while block := answer.read1(_BLOCK):
                body += block
                if len(body) > LARGEST:
                    raise FetchError(f"the answer is larger than {LARGEST:,} bytes")
                if monotonic() > ends:
                    raise FetchError("the answer took too long")
    except HTTPError as error:
        error.close()
        note = ", a redirect, which is not followed" if 300 <= error.code < 400 else ""
        raise FetchError(f"the server answered {error.code}{note}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise FetchError(f"{type(error).__name__}: {str(reason)[:200]}") from None
    return Fetched(bytes(body), int(found[1]) if found else None)


def _way_to(url: str) -> BaseHandler:
    """Open URLs with verified TLS; plain HTTP stays on this machine and uses no proxy."""
    if url.startswith("http:"):
        return ProxyHandler({})
    return HTTPSHandler(context=ssl.create_default_context())


class _NoRedirect(HTTPRedirectHandler):
    """Refuse redirects: keys come from the configured address only."""

    def redirect_request(self, *_: object, **__: object) -> None: ...


GLANCE: Final = 1.0
"""Seconds between two checks of a file."""
FRESH: Final = (60, 600, 3600)
"""Freshness of fetched keys, in seconds: minimum, default, maximum."""
PAUSE: Final = 30.0
"""Seconds between two requests to a URL."""
SOONER: Final = 3.0
"""The same while there are no keys at all."""
PATIENCE: Final = 5.0
"""Seconds that a request may take."""
OLDEST: Final = 24 * 3600.0
"""Seconds after which keys that could not be renewed are dropped."""
_logger: Final = logging.getLogger("trails")


class KeySource(Protocol):
    @property
    def known(self) -> KeySet | None:
        """The last known keys; None before there were any."""

    async def keys(self) -> KeySet | None:
        """Return the current keys; None if there are none."""

    async def renewed(self) -> KeySet | None:
        """Return keys for a token whose key is unknown: it may be newer than they are."""


class GivenKeys:
    """Keys given in the settings."""

    def __init__(self, text: str) -> None:
        self.known: KeySet = _read_now(text.encode(), "jwks")

    async def keys(self) -> KeySet:
        return self.known

    async def renewed(self) -> KeySet:
        return self.known


class KeyFile:
    """Keys in a file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked = monotonic()
        self._stamp = _stamp(path)
        try:
            text = path.read_bytes()
        except OSError as error:
            raise SettingsError(
                f"trails.toml: [auth.oauth] jwks_file: {path} can't be read: {error.strerror}"
            ) from None
        self.known: KeySet = _read_now(text, "jwks_file")

    async def keys(self) -> KeySet:
        """Return the keys of the file, or its last readable ones."""
        now = monotonic()
        if now - self._looked >= GLANCE:
            self._looked = now
            stamp = _stamp(self._path)
            if stamp is not None and stamp != self._stamp:
                self._stamp = stamp
                await self._read()
        return self.known

    async def renewed(self) -> KeySet:
        """Return ``keys``: the file is checked often enough."""
        return await self.keys()

    async def _read(self) -> None:
        try:
            found = read_keys(await asyncio.to_thread(self._path.read_bytes))
        except (OSError, ValueError) as error:
            _logger.warning(
                "[auth.oauth] jwks_file %s changed and can't be read (%s); "
                "its earlier keys stay in use",
                self._path,
                error,
                extra={"event": "keys.unreadable"},
            )
        else:
            _log_ignored(found, str(self._path))
            self.known = found


class KeyUrl:
    """Keys at a URL; one request at a time, rate-limited."""

    def __init__(
        self,
        url: str,
        *,
        patience: float = PATIENCE,
        pause: float = PAUSE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.known: KeySet | None = None
        self._url = url
        self._patience = patience
        self._pause = pause
        self._clock = clock
        self._text = b""
        self._fetched = self._tried = -OLDEST
        self._fresh = 0.0
        self._flight: asyncio.Task[None] | None = None
        self._fetching = False
        """Whether a thread is fetching, even if no request waits for it."""

    async def keys(self) -> KeySet | None:
        """Return the known keys if they are not too old; start a fetch when one is due."""
        age = self._clock() - self._fetched
        if self.known is None or age > OLDEST:
            return await self.renewed()
        if age > self._fresh:
            self._begin()
        return self.known

    async def renewed(self) -> KeySet | None:
        """Fetch again, unless that was just done."""
        flight = self._begin()
        if flight is not None:
            await asyncio.shield(flight)
        return self.known if self._clock() - self._fetched <= OLDEST else None

    def _begin(self) -> asyncio.Task[None] | None:
        """Return the fetch in progress, or start one if it is due."""
        if self._flight is not None and not self._flight.done():
            return self._flight
        now = self._clock()
        pause = self._pause if self.known is not None else min(self._pause, SOONER)
        if now - self._tried < pause or self._fetching:
            return None
        self._tried = now
        self._flight = asyncio.create_task(self._ask())
        return self._flight

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                fetched = await self._in_thread()
            if self.known is None or fetched.body != self._text:
                found = read_keys(fetched.body)
                _log_ignored(found, self._url)
                self.known, self._text = found, fetched.body
        except (FetchError, ValueError, TimeoutError) as error:
            _logger.warning(
                "[auth.oauth] no keys from %s: %s; %s",
                self._url,
                str(error) or "the answer took too long",
                "there are none" if self.known is None else "earlier ones stay in use",
                extra={"event": "keys.unavailable"},
            )
            return
        least, usual, most = FRESH
        said = usual if fetched.max_age is None else fetched.max_age
        self._fresh = min(max(said, least), most)
        self._fetched = self._clock()

    def _in_thread(self) -> asyncio.Future[Fetched]:
        """Fetch in a daemon thread, so that the process can end meanwhile."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[Fetched] = loop.create_future()

        def settle(outcome: Fetched | FetchError) -> None:
            if arrived.done():
                return
            if isinstance(outcome, FetchError):
                arrived.set_exception(outcome)
            else:
                arrived.set_result(outcome)

        def run() -> None:
            outcome: Fetched | FetchError
            try:
                outcome = fetch(self._url, self._patience)
            except FetchError as error:
                outcome = error
            self._fetching = False
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome)

        self._fetching = True
        threading.Thread(target=run, name="trails-keys", daemon=True).start()
        return arrived


def _read_now(text: bytes, key: str) -> KeySet:
    """Read keys that must exist when a server starts."""
    try:
        found = read_keys(text)
    except ValueError as error:
        raise SettingsError(f"trails.toml: [auth.oauth] {key} is not a key set: {error}") from None
    if not found.keys:
        why = "; ".join(found.ignored) or "it is empty"
        raise SettingsError(f"trails.toml: [auth.oauth] {key} has no usable key: {why}")
    _log_ignored(found, key)
    return found


def _log_ignored(found: KeySet, where: str) -> None:
    for reason in found.ignored:
        _logger.info("[auth.oauth] %s: %s; skipped", where, reason, extra={"event": "keys.skipped"})


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
