"""Which Host and Origin an HTTP request may have: the defence against DNS rebinding.

A web page can make a browser send requests to this machine, under a name that its author
controls. So a request is answered only if its Host is a name of this server and its Origin, if
there is one, is allowed. The policy follows from the address of the listener (``Bind``); no policy
allows everything.

Names are compared as browsers send them: lower case, without the last dot, in Punycode. Pages may
read answers only from origins that the settings list; there are no cookies and no wildcards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, Self

import msgspec

from trails.errors import SettingsError

if TYPE_CHECKING:
    from trails.app.serve.http.responses import Headers

_AUTHORITY: Final = re.compile(
    r"(?P<host>[a-z0-9_.-]{1,254}|\[[0-9a-f:.]{2,45}\])(?::(?P<port>[0-9]{0,5}))?",
    re.ASCII | re.IGNORECASE,
)
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBERS: Final = re.compile(r"[0-9.]+|.*\.[0-9]+|.*\.0x[0-9a-f]*", re.ASCII)
"""Names whose last part is a number: browsers read them as addresses in unusual forms."""
_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK_NAME: Final = "localhost"


class HostPort(msgspec.Struct, frozen=True):
    """A host, and its port if there is one."""

    host: str
    port: int | None = None

    @property
    def loopback(self) -> bool:
        """Whether this is a loopback name or address."""
        return is_loopback(self.host)


class Origin(msgspec.Struct, frozen=True):
    """Where a web page came from."""

    scheme: str
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether the page came from this machine."""
        return is_loopback(self.host)


def parse_authority(text: str) -> HostPort | None:
    """The host of a ``Host`` header; None if it is invalid."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    host = _normal(found["host"].lower())
    port = int(found["port"]) if found["port"] else None
    if host is None or (port is not None and not 0 < port < 1 << 16):
        return None
    return HostPort(host, port)


def parse_origin(text: str) -> Origin | None:
    """The origin of a web page; None for ``null`` and invalid values."""
    scheme, between, rest = text.partition("://")
    scheme = scheme.lower()
    authority = parse_authority(rest) if between and scheme in _PORTS else None
    if authority is None or rest.endswith(":"):
        return None
    return Origin(scheme, authority.host, authority.port or _PORTS[scheme])


def default_port(*, tls: bool) -> int:
    """The default port of HTTP or HTTPS."""
    return _PORTS["https" if tls else "http"]


def to_ascii(text: str) -> str:
    """The Punycode form of an international name; other names unchanged."""
    try:
        return text if text.isascii() else text.encode("idna").decode("ascii")
    except UnicodeError:
        return text


def is_loopback(host: str) -> bool:
    """Whether a normalised name or address is a loopback one."""
    if host == _LOOPBACK_NAME:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _normal(host: str) -> str | None:
    """The normalised form of a host."""
    if host.startswith("["):
        try:
            return str(IPv6Address(host[1:-1]))
        except ValueError:
            return None
    if _NUMBERS.fullmatch(host.removesuffix(".")):
        try:
            return str(ip_address(host))
        except ValueError:
            return None
    name = host.removesuffix(".")
    return name if all(_LABEL.fullmatch(label) for label in name.split(".")) else None


_KNOWN: Final = 512
"""Cached decisions about header values."""
_LONGEST: Final = 300
"""The longest cached value in bytes."""
_NO_HOST: Final = "a request must have one Host header"
_OTHER_HOST: Final = "the Host header names another server than this one"
_NOT_LOCAL: Final = (
    "the Host header must name this machine, as localhost or 127.0.0.1 does; other names are "
    "listed in [server] public_hosts"
)
_OTHER_ORIGIN: Final = (
    "the Origin header names a page that may not use this server; those that may are listed in "
    "[server] browser_origins"
)


class Bind(msgspec.Struct, frozen=True, omit_defaults=True):
    """The address of a listener, and its settings about callers."""

    host: str = "localhost"
    public_hosts: tuple[str, ...] = ()
    browser_origins: tuple[str, ...] = ()
    tls: bool = False
    credentials: bool = False
    """Whether every request needs one."""


class Objection(msgspec.Struct, frozen=True):
    """Why a request is refused."""

    status: int
    message: str


class HostPolicy:
    """The hosts and origins that are allowed; use ``for_bind`` to make one."""

    def __init__(self, bind: Bind) -> None:
        self.bind = bind
        host = bind.host.removeprefix("[").removesuffix("]").lower()
        self.loopback = is_loopback(host)
        """Whether only this machine can reach it."""
        if not self.loopback and not bind.credentials:
            raise SettingsError(_exposed(bind.host))
        names = [_public_host(each) for each in bind.public_hosts]
        self._names = frozenset(names if bind.credentials else ())
        self._origins = frozenset(_browser_origin(each) for each in bind.browser_origins)
        self.shares = bool(self._origins)
        """Whether the script of any page may read answers."""
        self._port = default_port(tls=bind.tls)
        self._passes_host = _remember(self._judge_host)
        self._passes_origin = _remember(self._judge_origin)

    @classmethod
    def for_bind(
        cls,
        host: str,
        public_hosts: Iterable[str] = (),
        browser_origins: Iterable[str] = (),
        *,
        tls: bool = False,
        credentials: bool = False,
    ) -> Self:
        """The policy of a listener; raises SettingsError for an unsafe one.

        On loopback, names of this machine are allowed, those in ``public_hosts`` (behind a proxy)
        if credentials are required, and pages of this machine. Elsewhere credentials must be
        required; ``public_hosts`` are allowed (any name if there are none), and only pages in
        ``browser_origins``.
        """
        return cls(Bind(host, tuple(public_hosts), tuple(browser_origins), tls, credentials))

    @property
    def warnings(self) -> list[str]:
        """Warnings for the operator who starts the server."""
        notes = []
        if not self.loopback and not self._names:
            notes.append(
                "any Host is answered, because [server] public_hosts is empty: list there the "
                "names under which clients reach this server"
            )
        if not self.loopback and not self.bind.tls:
            notes.append(
                "others reach this server without TLS, so tokens travel in the clear unless a "
                "proxy encrypts them: set [server] tls_certificate and tls_key"
            )
        if self.bind.public_hosts and not self._names:
            notes.append("[server] public_hosts counts for nothing without credentials")
        return notes

    def refuse(
        self, hosts: Sequence[bytes], origins: Sequence[bytes], version: str = "1.1"
    ) -> Objection | None:
        """The refusal of a request with these headers, or None."""
        if len(hosts) != 1:
            if hosts or version != "1.0":
                return Objection(400, _NO_HOST)
            hosts = [b""]
        if not self._passes_host(hosts[0]):
            return Objection(403, _NOT_LOCAL if self.loopback else _OTHER_HOST)
        if origins and not (len(origins) == 1 and self._passes_origin(origins[0])):
            return Objection(403, _OTHER_ORIGIN)
        return None

    def shares_with(self, origin: bytes) -> bool:
        """Whether scripts of a page may read answers: only if the settings list it."""
        found = parse_origin(origin.decode("latin-1"))
        return found is not None and found in self._origins

    def _judge_host(self, value: bytes) -> bool:
        found = parse_authority(value.decode("latin-1").strip(" \t"))
        if not self.loopback and not self._names:
            return found is not None or not value
        if found is None:
            return False
        if self.loopback and found.loopback:
            return True
        port = found.port or self._port
        return HostPort(found.host) in self._names or HostPort(found.host, port) in self._names

    def _judge_origin(self, value: bytes) -> bool:
        found = parse_origin(value.decode("latin-1").strip(" \t"))
        if found is None:
            return False
        return found in self._origins or (self.loopback and found.loopback)


def _remember(judge: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """Cache a decision by header value; values that are too long are decided each time."""
    known = lru_cache(_KNOWN)(judge)
    return lambda value: known(value) if len(value) <= _LONGEST else judge(value)


def _exposed(host: str) -> str:
    return (
        f"can't listen on {host!r}: anyone who reaches that address could read and write, because "
        "no access control is configured. Create a token first with 'trails token new', set "
        "TRAILS_MCP_TOKEN or [auth.oauth], or listen on 127.0.0.1, ::1 or localhost"
    )


def _public_host(text: str) -> HostPort:
    found = parse_authority(to_ascii(text))
    if found is None:
        raise SettingsError(
            f"[server] public_hosts has {text!r}, which is not a valid host; write "
            "'kg.example.org' for any port, or 'kg.example.org:8443', without scheme, path or "
            "wildcard"
        )
    return found


def _browser_origin(text: str) -> Origin:
    scheme, between, rest = text.partition("://")
    found = parse_origin(scheme + between + to_ascii(rest))
    if found is None:
        raise SettingsError(
            f"[server] browser_origins has {text!r}, which is not a valid origin; write "
            "scheme, host and port of the page, as in 'https://app.example.org', without path or "
            "wildcard"
        )
    return found


_METHODS: Final = b"GET, HEAD, POST, DELETE, OPTIONS"
_ALLOWED: Final = frozenset(
    {
        *("accept", "authorization", "content-type", "content-encoding", "last-event-id"),
        *("if-match", "if-none-match", "idempotency-key"),
        *("mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"),
    }
)
_MIRRORED: Final = re.compile(r"mcp-param-[a-z0-9-]{1,100}", re.ASCII)
"""Headers that repeat arguments of tools."""
_MANY: Final = 64
_EXPOSED: Final = (
    b"mcp-session-id, mcp-protocol-version, www-authenticate, retry-after, allow, etag, link, "
    b"trails-registry, deprecation, sunset"
)
_SECONDS: Final = b"600"
_VARY: Final = (b"vary", b"Origin")
_ORIGIN: Final = b"origin"


def shared_headers(policy: HostPolicy, headers: Headers) -> Headers:
    """The CORS headers of an answer."""
    if not policy.shares:
        return ()
    origin = _find(headers, _ORIGIN)
    if origin is None or not policy.shares_with(origin):
        return (_VARY,)
    return (
        _VARY,
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
    )


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a request is a CORS preflight."""
    return (
        method == "OPTIONS"
        and _find(headers, _ORIGIN) is not None
        and _find(headers, b"access-control-request-method") is not None
    )


def preflight_headers(policy: HostPolicy, headers: Headers) -> Headers:
    """The CORS headers of a preflight answer; none for a page that is not allowed."""
    origin = _find(headers, _ORIGIN)
    if origin is None or not policy.shares_with(origin):
        return ()
    asked = (_find(headers, b"access-control-request-headers") or b"").decode("latin-1")
    named = {each.strip().lower() for each in asked.split(",")[:_MANY]}
    allowed = ", ".join(sorted(_ALLOWED.union(filter(_MIRRORED.fullmatch, named))))
    return (
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", allowed.encode("ascii")),
        (b"access-control-max-age", _SECONDS),
    )


def _find(headers: Headers, wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)
