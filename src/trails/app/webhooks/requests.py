"""One signed request to another server, bounded in time and in what is read of the answer.

Signatures are those of Standard Webhooks: HMAC-SHA256 over id, timestamp and body. The name of the
server is resolved once, every address is checked, and the connection is made to a checked one, so a
name can't lead elsewhere between the check and the connection. Redirects and proxies are not used.
Only the head of the answer is read.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec

from trails import __version__
from trails.app.webhooks.settings import is_public

_HEAD: Final = 16 << 10
"""Bytes of an answer that are read."""
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r\n)")
_AGAIN: Final = re.compile(rb"\r\nretry-after:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)
_INTERIM: Final = 200
"""Answers with a lower status come before the final one."""


class WebhookMessage(msgspec.Struct, frozen=True):
    """What is sent; a retry has the same id."""

    id: str
    body: bytes


class DeliveryResult(msgspec.Struct, frozen=True):
    """What came of an attempt."""

    status: int | None = None
    error: str = ""
    """Why it failed; empty if the server has accepted it."""
    retry_after: int = 0
    """Seconds that the server asks for."""


def sign(secrets: Sequence[bytes], message: WebhookMessage, timestamp: int) -> str:
    """The value of ``webhook-signature``: one signature for each secret."""
    text = f"{message.id}.{timestamp}.".encode() + message.body
    made = (b64encode(hmac.digest(each, text, sha256)).decode() for each in secrets)
    return " ".join(f"v1,{each}" for each in made)


async def send(
    url: str, headers: dict[str, str], body: bytes, *, seconds: float, allow_private: bool
) -> DeliveryResult:
    """Send a POST request; raises nothing except for cancellation."""
    try:
        async with asyncio.timeout(seconds):
            return await _send(url, headers, body, allow_private=allow_private)
    except TimeoutError:
        return DeliveryResult(error=f"no answer within {seconds:g} s")
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        return DeliveryResult(error=_describe(error))


def _describe(error: Exception) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "the server closed the connection without an answer"
    if isinstance(error, asyncio.LimitOverrunError):
        return f"the head of the answer is larger than {_HEAD:,} bytes"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    return f"{type(error).__name__}: {str(error)[:200]}"


async def _send(
    url: str, headers: dict[str, str], body: bytes, *, allow_private: bool
) -> DeliveryResult:
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    addresses = await _resolve(host, port, allow_private=allow_private)
    reader, writer = await _connect(addresses, port, host if tls else None)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        given = {
            "host": parts.netloc,
            "user-agent": f"trails/{__version__}",
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        writer.write(f"POST {target} HTTP/1.1\r\n{lines}\r\n".encode("ascii") + body)
        await writer.drain()
        return _read(await _final_head(reader))
    finally:
        writer.transport.abort()  # the body is not read, and a server may never close


async def _final_head(reader: asyncio.StreamReader) -> bytes:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        found = _STATUS.match(head)
        if found is None:
            raise ValueError("the answer is not HTTP/1.1")
        if int(found[1]) >= _INTERIM:
            return head


def _read(head: bytes) -> DeliveryResult:
    found = _STATUS.match(head)
    status = int(found[1]) if found else 0
    if 200 <= status < 300:
        return DeliveryResult(status)
    again = _AGAIN.search(head)
    note = ", a redirect, which is not followed" if 300 <= status < 400 else ""
    error = f"the server answered {status}{note}"
    return DeliveryResult(status, error, int(again[1]) if again else 0)


async def _connect(
    addresses: Sequence[str], port: int, tls_host: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers; others may be of no use to this machine."""
    for at, address in enumerate(addresses):
        try:
            return await asyncio.open_connection(
                address,
                port,
                limit=_HEAD,
                ssl=None if tls_host is None else _tls_context(),
                server_hostname=tls_host,
            )
        except ssl.SSLError:
            raise
        except OSError:
            if at == len(addresses) - 1:
                raise
    raise OSError("the host has no address")


async def _resolve(host: str, port: int, *, allow_private: bool) -> list[str]:
    """The addresses of a host, if all of them may be used."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(each[4][0]) for each in found]
    for each in addresses:
        if not allow_private and not is_public(ip_address(each.partition("%")[0])):
            raise ValueError(
                f"{host} has the private address {each}; set allow_private = true if that is meant"
            )
    return addresses


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()
