"""A signed token taken apart: header, claims, signature. Nothing is believed yet.

Compact serialization only, three parts, each in the one base64url spelling that its bytes
have. So a token has one spelling too, and what is signed is what is read.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from trails.identity.oauth.objects import Object, read_object


class Signed(msgspec.Struct, frozen=True):
    """The parts of a token."""

    header: Object
    claims: Object
    content: bytes
    """What was signed."""
    signature: bytes


def take_apart(text: str) -> Signed:
    """The parts; ValueError for a text that is no such token."""
    header, claims, signature = text.encode().split(b".")
    return Signed(
        header=read_object(_decode(header)),
        claims=read_object(_decode(claims)),
        content=header + b"." + claims,
        signature=_decode(signature),
    )


def _decode(part: bytes) -> bytes:
    raw = urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    if urlsafe_b64encode(raw).rstrip(b"=") != part:
        raise ValueError("its base64url has another spelling")
    return raw
