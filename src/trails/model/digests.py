"""Canonical bytes and their digests: equal content, equal digest, in any process."""

from __future__ import annotations

from hashlib import sha256

import msgspec


def canonical(value: object) -> bytes:
    """JSON with sorted keys and no white space."""
    return msgspec.json.encode(value, order="sorted")


def digest_of(value: object) -> str:
    """SHA-256 of the canonical bytes, in hex."""
    return sha256(canonical(value)).hexdigest()
