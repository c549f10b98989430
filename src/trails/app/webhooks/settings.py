"""``[[graphs.<id>.webhooks]]``: who is notified of which changes, and as whom.

A URL is https, unless private addresses are allowed explicitly: a server that sends requests for
others must not be led into its own network. The secret is in the environment, never in the file.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from trails.errors import SettingsError
from trails.model.actors import WEBHOOK, Actor

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_LONGEST: Final = 2000
_PREFIX: Final = "whsec_"
_KEY: Final = (16, 64)
"""Bytes of a secret: at least, at most."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=604_800)]


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[graphs.<id>.webhooks]]``: a server that is notified of changes."""

    name: str
    """Identifies it; its position in the log is stored under this name."""
    url: str
    """Where messages are sent."""
    secret: str
    """The environment variable with the secret, ``whsec_`` and base64; several are separated by
    spaces."""
    actor: str
    """The actor whose rights decide what is sent."""
    groups: tuple[str, ...] = ()
    """The groups of that actor."""
    branch: str = "main"
    """The branch whose changes are sent."""
    types: tuple[str, ...] = ()
    """Only changes of these types; none for all."""
    query: str = ""
    """A stored query: notify when its result changes, instead of for each commit."""
    allow_private: bool = False
    """Whether the URL may be http, and its address that of a private network."""
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=300)] = 15.0
    """How long one attempt may take."""
    retry_seconds: tuple[Seconds, ...] = (5, 60, 300, 1800, 7200, 18_000, 36_000, 36_000)
    """Pauses between attempts; if the last one fails too, the webhook is disabled."""

    @property
    def identity(self) -> Actor:
        """The actor for whom changes are read."""
        return Actor(self.actor, groups=frozenset(self.groups), credential=WEBHOOK)

    def secrets(self, environment: Mapping[str, str]) -> list[bytes]:
        """The keys with which requests are signed; SettingsError if there is none."""
        texts = environment.get(self.secret, "").split()
        if not texts:
            raise SettingsError(
                f"webhook {self.name!r}: the environment variable {self.secret} is not set; "
                "create a secret with: echo whsec_$(openssl rand -base64 32)"
            )
        return [self._key(each) for each in texts]

    def _key(self, text: str) -> bytes:
        try:
            key = b64decode(text.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not text.startswith(_PREFIX) or not _KEY[0] <= len(key) <= _KEY[1]:
            raise SettingsError(
                f"webhook {self.name!r}: {self.secret} must be whsec_ and 16 to 64 bytes, base64; "
                "create a secret with: echo whsec_$(openssl rand -base64 32)"
            )
        return key


def check_webhooks(graph: str, webhooks: Sequence[WebhookSettings]) -> None:
    """Refuse what no webhook can have."""
    seen: set[str] = set()
    for each in webhooks:
        where = f"[[graphs.{graph}.webhooks]] {each.name[:100]!r}"
        if not _NAME.fullmatch(each.name):
            raise SettingsError(
                f"{where}: name must be a lower-case letter, then lower-case letters, digits and "
                "'-', 63 at most"
            )
        if each.name in seen:
            raise SettingsError(f"{where}: there are two of this name; give one another name")
        seen.add(each.name)
        if not each.actor:
            raise SettingsError(f"{where}: actor is empty; name the actor whose rights apply")
        if not _VARIABLE.fullmatch(each.secret) or each.secret.startswith(_PREFIX):
            raise SettingsError(
                f"{where}: secret must name an environment variable, not be the secret itself"
            )
        problem = url_problem(each.url, allow_private=each.allow_private)
        if problem is not None:
            raise SettingsError(f"{where}: url {problem}")


def url_problem(url: str, *, allow_private: bool) -> str | None:
    """What is wrong with a URL; its address is checked with each request."""
    if len(url) > _LONGEST or not url.isascii() or not url.isprintable() or " " in url:
        return f"must be a URL of at most {_LONGEST} printable ASCII characters, without spaces"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not a URL"
    if not parts.hostname or parts.scheme not in {"https", "http"}:
        return "must begin with https:// and name a host"
    if parts.scheme == "http" and not allow_private:
        return "must begin with https://; set allow_private = true to send to a private http server"
    if "@" in parts.netloc or parts.fragment:
        return "must have no user, password or fragment"
    if not allow_private and _is_private_literal(parts):
        return "has a private address; set allow_private = true if that is meant"
    return None


def _is_private_literal(parts: SplitResult) -> bool:
    try:
        return not is_public(ip_address(parts.hostname or ""))
    except ValueError:
        return False


_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is of the public internet, also one that is wrapped in another."""
    if isinstance(address, IPv6Address):
        wrapped = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            wrapped = IPv4Address(int(address) & 0xFFFF_FFFF)
        if wrapped is not None:
            return is_public(wrapped)
        if address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast
