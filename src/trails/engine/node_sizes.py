"""How large a node may be: so large that every export of it can be loaded again.

A text is one token to whatever reads a file. The RDF parser takes tokens of up to 16 MiB,
in JSON-LD of up to 8 MiB, and also reads the log. So a node is measured by its longest form.
"""

from __future__ import annotations

from trails.errors import FieldError
from trails.model.nodes import MAX_NODE, NodeState
from trails.views.nodes.docs import Docs

_DELETE = b"\x7f"
"""The character that JSON writes as it is, and N-Quads in six bytes."""


def field_sizes(docs: Docs, state: NodeState) -> dict[str, int]:
    """Bytes that each field takes, with its name, where it is longest."""
    sizes = {}
    for name, value in state.values.items():
        doc = docs.encode(state.type, {name: value})
        sizes[name] = len(doc) - 1 + 5 * doc.count(_DELETE)
    return sizes


def size_of(docs: Docs, state: NodeState) -> int:
    """Bytes of a node's values."""
    return 1 + sum(field_sizes(docs, state).values())


def size_error(docs: Docs, state: NodeState, allowed: int = 0) -> FieldError | None:
    """A node is larger than nodes may be, and than what was ``allowed`` before."""
    sizes = field_sizes(docs, state)
    size = 1 + sum(sizes.values())
    if size <= max(MAX_NODE, allowed):
        return None
    largest = max(sizes, key=sizes.__getitem__)
    return FieldError(
        largest,
        "max_size",
        f"{state.handle} takes {size:,} bytes, {sizes[largest]:,} of them in {largest!r}; a node "
        f"may take {MAX_NODE:,}. Shorten {largest!r}, split it over several nodes, or keep large "
        "content elsewhere and store its URI in a Blob field",
        size,
        MAX_NODE,
    )
