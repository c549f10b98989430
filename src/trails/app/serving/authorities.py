"""What Host and Origin headers say: names with ports, read strictly, written in one way.

Pure. A name is compared in the form that browsers send: lower case, without the last dot,
other scripts as Punycode; addresses as the standard library writes them. What is no name and
no address is None, never a guess.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec

_AUTHORITY: Final = re.compile(
    r"(?P<host>[a-z0-9_.-]{1,254}|\[[0-9a-f:.]{2,45}\])(?::(?P<port>[0-9]{0,5}))?",
    re.ASCII | re.IGNORECASE,
)
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBERS: Final = re.compile(r"[0-9.]+|.*\.[0-9]+|.*\.0x[0-9a-f]*", re.ASCII)
"""Names whose last part is a number: browsers read them as addresses, in forms of their own."""
_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK_NAME: Final = "localhost"


class Authority(msgspec.Struct, frozen=True):
    """A host, and the port that was named with it."""

    host: str
    port: int | None = None

    @property
    def loopback(self) -> bool:
        """Whether this is a name of the machine itself."""
        return is_loopback(self.host)


class Origin(msgspec.Struct, frozen=True):
    """Where a web page came from."""

    scheme: str
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether the page came from the machine itself."""
        return is_loopback(self.host)


def parse_authority(text: str) -> Authority | None:
    """What a ``Host`` header names."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    host = _normal(found["host"].lower())
    port = int(found["port"]) if found["port"] else None
    if host is None or (port is not None and not 0 < port < 1 << 16):
        return None
    return Authority(host, port)


def parse_origin(text: str) -> Origin | None:
    """What an ``Origin`` header names; None for ``null``, and whatever else is no web page's."""
    scheme, between, rest = text.partition("://")
    scheme = scheme.lower()
    authority = parse_authority(rest) if between and scheme in _PORTS else None
    if authority is None or rest.endswith(":"):
        return None
    return Origin(scheme, authority.host, authority.port or _PORTS[scheme])


def default_port(*, tls: bool) -> int:
    """The port that is meant where none is named."""
    return _PORTS["https" if tls else "http"]


def to_ascii(text: str) -> str:
    """A name of another script as it is sent; unchanged where it is none."""
    try:
        return text if text.isascii() else text.encode("idna").decode("ascii")
    except UnicodeError:
        return text


def is_loopback(host: str) -> bool:
    """Whether a name or address, as written here, is one of the machine itself."""
    if host == _LOOPBACK_NAME:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _normal(host: str) -> str | None:
    """The one way to write a host."""
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
