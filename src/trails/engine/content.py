"""The content digest: one number for what a graph holds, however it came to hold it.

It is the sum of the SHA-256 of every statement in canonical N-Quads, modulo
2^256: independent of order, so that it streams, and equal for two graphs that
hold the same statements.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from trails.model.nodes import NodeState
from trails.views.terms import Terms


def content_digest(terms: Terms, states: Iterable[NodeState]) -> str:
    """The digest of all statements of these nodes."""
    total = 0
    for state in states:
        for line in terms.statements(state):
            total += int.from_bytes(sha256(line.encode()).digest(), "big")
    return f"{total % 2**256:064x}"
