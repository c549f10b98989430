"""Traces: which nodes a change left something at, facet by facet.

What somebody sees of a change is found from the facets that it sees. How much changed in
others makes no difference to these, so nobody learns of what it does not see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trails.model.facets import Facet

MANY: Final = 2_000
"""Above so many nodes only their facet is named."""


class Traces:
    """Nodes by facet; bounded, since there are only so many facets and nodes of each."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Mapping[Facet, Iterable[str] | None] | None = None) -> None:
        """``nodes``: handles by facet, None where they are too many."""
        self._nodes: dict[Facet, set[str] | None] = {}
        for facet, handles in (nodes or {}).items():
            self._join(facet, handles)

    def __iter__(self) -> Iterator[Facet]:
        return iter(self._nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Traces) and self._nodes == other._nodes

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Traces({self._nodes!r})"

    def add(self, facet: Facet, handle: str) -> None:
        """A node changed in a facet."""
        known = self._nodes.get(facet)
        if known is not None:
            known.add(handle)
            if len(known) > MANY:
                self._nodes[facet] = None
        elif facet not in self._nodes:
            self._nodes[facet] = {handle}

    def update(self, other: Traces) -> None:
        """Put the traces of another change to these."""
        for facet, handles in other._nodes.items():
            self._join(facet, handles)

    def _join(self, facet: Facet, handles: Iterable[str] | None) -> None:
        if handles is None:
            self._nodes[facet] = None
        else:
            for handle in handles:
                self.add(facet, handle)

    def may_be_at(self, facet: Facet, handle: str) -> bool:
        """Whether a node changed in a facet, or may have, among many."""
        if facet not in self._nodes:
            return False
        known = self._nodes[facet]
        return known is None or handle in known
