"""Layers: what a branch or snapshot sees, as the parts of SQL that find it.

A state is spread over the layers from its own to the root. An *arm* is the share of
one of them: its tables, and the conditions under which its rows are seen from here,
namely as of the fork and not hidden by a nearer layer. ``main`` has one arm without
conditions, and its SQL is the plain one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from trails.views.nodes.layers import NOW, ROOT


class Arm(msgspec.Struct, frozen=True):
    """The rows of one layer that can be seen from another."""

    layer: int
    keys: str
    nodes: str
    fixed: str
    """What selects the layer's rows, on alias ``k``; ends in AND."""
    join: str
    """How a node ``n`` is found from a key or node ``k``."""
    of_key: str
    """Visibility where ``k`` is a key; empty when everything is seen."""
    of_node: str
    """Visibility where ``n`` is a node."""
    needs_node: bool
    """Whether the visibility of a key can only be told from its node."""

    def keyed(self, *, joined: bool = False) -> str:
        """FROM and WHERE of keys, to be followed by conditions on them."""
        if joined or self.needs_node:
            seen = f"{self.of_node} AND " if self.of_node else ""
            return (
                f"{self.keys} k CROSS JOIN {self.nodes} n ON {self.join} WHERE {self.fixed}{seen}"
            )
        seen = f"{self.of_key} AND " if self.of_key else ""
        return f"{self.keys} k WHERE {self.fixed}{seen}"

    def any_keyed(self) -> str:
        """As ``keyed``, with keys that can't be seen among them: enough for an upper bound."""
        return f"{self.keys} k WHERE {self.fixed}"

    def noded(self) -> str:
        """FROM and WHERE of nodes ``n``, to be followed by conditions on them."""
        fixed = f"{self.fixed} " if self.fixed else ""
        seen = f"{self.of_node} AND " if self.of_node else ""
        return f"{self.nodes} n WHERE {fixed.replace('k.', 'n.')}{seen}"

    def handled(self) -> str:
        """As ``noded``, to be followed by a condition on the handle.

        The index is named because SQLite, which has no statistics of these tables, would walk
        all rows of a layer to find one of them.
        """
        if not self.fixed:
            return self.noded()
        return self.noded().replace(" n WHERE", " n INDEXED BY rows_handle WHERE", 1)

    def probe(self) -> str:
        """Whether node ``k`` has one more key: takes a slot and a key."""
        return (
            f"EXISTS (SELECT 1 FROM {self.keys} p WHERE {self._of_probe()}p.sid = ? "  # noqa: S608
            f"AND p.key = ? AND p.nid = k.nid{self._same_version()})"
        )

    def among(self) -> str:
        """Whether node ``k`` has a key in a range: takes a slot, from, to."""
        return (
            f"(k.nid{', k.seq' if self.fixed else ''}) IN (SELECT p.nid"  # noqa: S608
            f"{', p.seq' if self.fixed else ''} FROM {self.keys} p WHERE {self._of_probe()}"
            "p.sid = ? AND p.key >= ? AND p.key < ?)"
        )

    def _of_probe(self) -> str:
        return self.fixed.replace("k.", "p.")

    def _same_version(self) -> str:
        return " AND p.seq = k.seq" if self.fixed else ""


def arms_of(lineage: Sequence[tuple[int, int]]) -> tuple[Arm, ...]:
    """The arms of a state, nearest first."""
    return _arms_in(lineage, lambda _: "")


def draft_arms_of(lineage: Sequence[tuple[int, int]], draft: int) -> tuple[Arm, ...]:
    """As ``arms_of``, where the rows of layer ``draft`` are in temporary tables."""
    return _arms_in(lineage, lambda layer: "temp." if layer == draft else "main.")


Place = Callable[[int], str]
"""Layer → the database that has its tables, as a prefix."""


def _arms_in(lineage: Sequence[tuple[int, int]], place: Place) -> tuple[Arm, ...]:
    arms: list[Arm] = []
    nearer: dict[str, list[tuple[int, int]]] = {}
    for layer, bound in lineage:
        hidden = _all(*(_hidden(each, some) for each, some in nearer.items()))
        if layer == ROOT:
            arms.append(_root(bound, hidden))
        if layer != ROOT or bound < NOW:
            arms.append(_other(layer, bound, hidden, place(layer)))
        nearer.setdefault(place(layer), []).append((layer, bound))
    return tuple(arms)


def _root(bound: int, hidden: str) -> Arm:
    seen = _all(f"n.seq <= {bound}" if bound < NOW else "", hidden.format("n"))
    return Arm(ROOT, "keys", "nodes", "", "n.nid = k.nid", "", seen, needs_node=bool(seen))


def _other(layer: int, bound: int, hidden: str, place: str) -> Arm:
    when = f"{{0}}.until > {bound}" + (f" AND {{0}}.seq <= {bound}" if bound < NOW else "")
    return Arm(
        layer,
        f"{place}row_keys",
        f"{place}rows",
        f"k.layer = {layer} AND ",
        f"n.layer = {layer} AND n.nid = k.nid AND n.seq = k.seq",
        _all(when.format("k"), hidden.format("k")),
        _all(when.format("n"), hidden.format("n")),
        needs_node=False,
    )


def _hidden(place: str, nearer: Iterable[tuple[int, int]]) -> str:
    """Not hidden by a nearer layer; keyed by node, this is one probe whatever the depth."""
    parts = [
        f"h.layer = {layer}" + (f" AND h.seq <= {bound}" if bound < NOW else "")
        for layer, bound in nearer
    ]
    any_of = " OR ".join(f"({part})" for part in parts)
    return f"NOT EXISTS (SELECT 1 FROM {place}hides h WHERE h.nid = {{0}}.nid AND ({any_of}))"  # noqa: S608


def _all(*conditions: str) -> str:
    return " AND ".join(each for each in conditions if each)
