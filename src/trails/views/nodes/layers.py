"""Layers: the tree of states that the node index holds, and the SQL that finds their rows.

A layer is a state that grew out of another one: it holds the nodes that it changed, and *hides*
those of its parent, which it sees as the parent was at the *fork*. The root is the layer of
``main`` and the only one that holds everything. Each branch and snapshot has one layer; making one
is a row, whatever the size of the graph.

A state is spread over the layers from its own to the root. A ``LayerSql`` is the share of one:
its tables, and the conditions under which its rows are seen from here, namely as of the fork and
not hidden by a nearer layer. ``main`` has one without conditions, and its SQL is the plain one.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Self

import msgspec

from trails.errors import CorruptionError
from trails.model.history import Position

ROOT: Final = 0
ROOT_NAME: Final = "/root"
"""Stands on the root always; ``main`` can be ahead of it after a fast-forward."""
UNFINISHED: Final = "/unfinished/"
"""How the names of layers begin that are still being built; no branch's does."""
FOREVER: Final = 2**62
"""Later than every commit: until when a row holds that nothing has replaced."""
NOW: Final = FOREVER - 1
"""The bound of a state that is followed as it moves."""


_TABLES: Final = {"row_keys": "sid, key, nid, seq", "rows": "nid, seq", "hides": "nid"}
"""Where layers have rows, and what distinguishes those of one layer."""


class Layer(msgspec.Struct):
    """One state: what it grew out of, how far it is, how many nodes it has."""

    number: int
    parent: int | None
    fork: int
    position: Position
    schema: str
    live: dict[int, int]
    """Type number → how many nodes of that type are visible here."""
    newest_fork: int = -1
    """The latest fork of a child: what was there then must be kept for it."""


class Layers:
    """All layers, and their names."""

    def __init__(self) -> None:
        self._all: dict[int, Layer] = {}
        self.refs: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._changed: set[int] = set()
        self._counted: set[tuple[int, int]] = set()
        self._clock = 0
        self._above: dict[int, frozenset[str]] = {}
        self._sizes: dict[int, int] = {}

    @classmethod
    def read(cls, db: sqlite3.Connection) -> Self:
        """As the tables have them; an empty file gets its root."""
        found = cls()
        for layer, parent, fork, seq, head, schema in db.execute("SELECT * FROM layers"):
            found._all[layer] = Layer(layer, parent, fork, Position(seq, head), schema, {})
        for layer, tid, count in db.execute("SELECT layer, tid, n FROM lives"):
            found[layer].live[tid] = count
        for name, layer, used in db.execute("SELECT name, layer, used FROM refs"):
            found.refs[name] = found[layer].number
            found._used[name] = used
            found._clock = max(found._clock, used)
        for layer in list(found._all.values()):
            found._keep_for(layer)
        if ROOT not in found._all:
            if found._all or db.execute("SELECT 1 FROM nodes LIMIT 1").fetchone():
                raise CorruptionError("the node index has nodes, but does not say how far it is")
            found._all[ROOT] = Layer(ROOT, None, 0, Position(0, ""), "", {})
            found._changed.add(ROOT)
        found.refs[ROOT_NAME] = ROOT
        return found

    def __getitem__(self, number: int) -> Layer:
        """A layer by number."""
        layer = self._all.get(number)
        if layer is None:
            raise CorruptionError(f"the node index has no layer {number}")
        return layer

    def __iter__(self) -> Iterator[Layer]:
        """All layers."""
        return iter(self._all.values())

    def _keep_for(self, layer: Layer) -> None:
        if layer.parent is not None:
            parent = self[layer.parent]
            parent.newest_fork = max(parent.newest_fork, layer.fork)

    # --- the shape of the tree ---------------------------------------------------

    def lineage(self, number: int) -> list[tuple[int, int]]:
        """(layer, bound) from a layer to the root, nearest first."""
        steps, bound = [], NOW
        layer = self[number]
        while True:
            steps.append((layer.number, bound))
            if layer.parent is None:
                return steps
            bound, layer = layer.fork, self[layer.parent]

    def schemas_above(self, number: int) -> frozenset[str]:
        """The schemas with which states that grew out of a layer are read."""
        found = self._above.get(number)
        if found is None:
            found = self._above[number] = frozenset(
                each.schema
                for each in self._all.values()
                if any(layer == number for layer, _ in self.lineage(each.number)[1:])
            )
        return found

    def children(self, number: int) -> list[Layer]:
        """The layers that grew out of one."""
        return [each for each in self._all.values() if each.parent == number]

    def size(self, db: sqlite3.Connection, number: int) -> int:
        """How many rows a layer holds that does not change any more; counted once."""
        found = self._sizes.get(number)
        if found is None:
            query = "SELECT count(*) FROM rows WHERE layer = ?"
            found = self._sizes[number] = db.execute(query, (number,)).fetchone()[0]
        return found

    # --- changes, written with the transaction ------------------------------------

    def move(self, number: int, position: Position, schema: str) -> None:
        """A layer has reached a commit."""
        layer = self[number]
        if layer.schema != schema:
            self._above.clear()
        layer.position, layer.schema = position, schema
        self._changed.add(number)

    def count(self, number: int, tid: int, step: int) -> None:
        """A layer has more or fewer nodes of a type."""
        live = self[number].live
        live[tid] = live.get(tid, 0) + step
        self._counted.add((number, tid))

    def fork(self, db: sqlite3.Connection, name: str, parent: int) -> int:
        """Give a name a new layer that grows out of the head of another."""
        before = self[parent]
        number = max(self._all) + 1
        layer = Layer(
            number, parent, before.position.seq, before.position, before.schema, dict(before.live)
        )
        self._all[number] = layer
        self._above.clear()
        self._keep_for(layer)
        self._changed.add(number)
        self._counted.update((number, tid) for tid in layer.live)
        self.point(db, name, number)
        return number

    def point(self, db: sqlite3.Connection, name: str, number: int) -> None:
        """Give a name a layer."""
        self._clock += 1
        self.refs[name], self._used[name] = number, self._clock
        db.execute("INSERT OR REPLACE INTO refs VALUES (?, ?, ?)", (name, number, self._clock))

    def forget(self, db: sqlite3.Connection, name: str) -> None:
        """Remove a name."""
        self.refs.pop(name, None)
        self._used.pop(name, None)
        db.execute("DELETE FROM refs WHERE name = ?", (name,))

    def touch(self, name: str) -> None:
        """A name was used: remembered until the process ends."""
        self._clock += 1
        self._used[name] = self._clock

    def oldest(self, names: list[str]) -> list[str]:
        """Names, those first that were used longest ago."""
        return sorted(names, key=lambda name: self._used.get(name, 0))

    @property
    def unused(self) -> list[int]:
        """The layers that no name leads to, so that nobody can read them; children first."""
        used: set[int | None] = {ROOT, None}
        for name in self.refs.values():
            number: int | None = name
            while number is not None and number not in used:
                used.add(number)
                number = self[number].parent
        return sorted((number for number in self._all if number not in used), reverse=True)

    def release(self) -> bool:
        """Keep no more versions for unused layers; whether there are any."""
        unused = set(self.unused)
        for layer in self._all.values():
            layer.newest_fork = -1
        for number, layer in self._all.items():
            if number not in unused:
                self._keep_for(layer)
        self._above.clear()
        return bool(unused)

    def sweep(self, db: sqlite3.Connection, most: int = -1) -> int:
        """Remove unused layers, or at most so many of their rows; how many rows that freed."""
        freed = 0
        for number in self.unused:
            freed += self._empty(db, number, most - freed if most >= 0 else -1)
            if 0 <= most <= freed:
                break  # it may have more
            self._remove(db, number)
        return freed

    @staticmethod
    def _empty(db: sqlite3.Connection, number: int, most: int) -> int:
        """Remove rows of a layer, at most so many, the first ones; how many that were."""
        freed = 0
        for table, key in _TABLES.items():
            those = f"FROM {table} WHERE layer = {number}"
            if most >= 0:
                some = f"SELECT {key} {those} ORDER BY {key} LIMIT 1 OFFSET {most - freed}"
                rest = db.execute(some).fetchone()
                if rest is not None:
                    those += f" AND ({key}) < ({','.join('?' * len(rest))})"
            else:
                rest = None
            values = rest or ()
            if table == "rows":
                db.execute(
                    f"INSERT OR IGNORE INTO past SELECT handle, seq {those} AND seq > 0",
                    values,
                )
            freed += db.execute(f"DELETE {those}", values).rowcount
            if rest is not None:
                break
        return freed

    def _remove(self, db: sqlite3.Connection, number: int) -> None:
        """Remove a layer that has no rows."""
        # Others may look through the layers at this moment.
        self._all = {each: layer for each, layer in self._all.items() if each != number}
        self._sizes.pop(number, None)
        self._changed.discard(number)
        self._counted = {each for each in self._counted if each[0] != number}
        for table in ("lives", "layers"):
            db.execute(f"DELETE FROM {table} WHERE layer = ?", (number,))  # noqa: S608

    def write(self, db: sqlite3.Connection) -> None:
        """Put what changed into the tables."""
        for number in self._changed:
            each = self[number]
            db.execute(
                "INSERT OR REPLACE INTO layers VALUES (?, ?, ?, ?, ?, ?)",
                (
                    number,
                    each.parent,
                    each.fork,
                    each.position.seq,
                    each.position.commit,
                    each.schema,
                ),
            )
        if self._counted:
            db.executemany(
                "INSERT OR REPLACE INTO lives VALUES (?, ?, ?)",
                [(number, tid, self[number].live[tid]) for number, tid in self._counted],
            )
        self._changed.clear()
        self._counted.clear()


class LayerSql(msgspec.Struct, frozen=True):
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
    """Whether the visibility of a key depends on its node."""

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

    def counted(self) -> str:
        """As ``noded``, of nodes ``k``."""
        return re.sub(r"\bn\b", "k", self.noded())

    def handled(self) -> str:
        """As ``noded``, to be followed by a condition on the handle.

        The index is named because SQLite, which has no statistics of these tables, would walk
        all rows of a layer to find one of them.
        """
        if not self.fixed:
            return self.noded()
        return self.noded().replace(" n WHERE", " n INDEXED BY rows_handle WHERE", 1)

    def probe(self, keys: str) -> str:
        """Whether node ``k`` has one of a few more keys, which are a condition on ``p``."""
        return (
            f"EXISTS (SELECT 1 FROM {self.keys} p WHERE {self._of_probe()}{keys} "  # noqa: S608
            f"AND p.nid = k.nid{self._same_version()})"
        )

    def among(self, keys: str) -> str:
        """As ``probe``, of any number of keys: all their nodes are collected first."""
        return (
            f"(k.nid{', k.seq' if self.fixed else ''}) IN (SELECT p.nid"  # noqa: S608
            f"{', p.seq' if self.fixed else ''} FROM {self.keys} p WHERE {self._of_probe()}{keys})"
        )

    def _of_probe(self) -> str:
        return self.fixed.replace("k.", "p.")

    def _same_version(self) -> str:
        return " AND p.seq = k.seq" if self.fixed else ""


def layer_sql_of(lineage: Sequence[tuple[int, int]]) -> tuple[LayerSql, ...]:
    """The SQL of each layer of a state, nearest first."""
    return _layer_sql_in(lineage, lambda _: "")


def draft_layer_sql_of(
    lineage: Sequence[tuple[int, int]], own: Collection[int]
) -> tuple[LayerSql, ...]:
    """As ``layer_sql_of``, where the rows of some layers are in temporary tables."""
    return _layer_sql_in(lineage, lambda layer: "temp." if layer in own else "main.")


Place = Callable[[int], str]
"""Layer → the database that has its tables, as a prefix."""


def _layer_sql_in(lineage: Sequence[tuple[int, int]], place: Place) -> tuple[LayerSql, ...]:
    layer_sql: list[LayerSql] = []
    nearer: dict[str, list[tuple[int, int]]] = {}
    for layer, bound in lineage:
        hidden = _all(*(_hidden(each, some) for each, some in nearer.items()))
        if layer == ROOT:
            layer_sql.append(_root(bound, hidden))
        if layer != ROOT or bound < NOW:
            layer_sql.append(_other(layer, bound, hidden, place(layer)))
        nearer.setdefault(place(layer), []).append((layer, bound))
    return tuple(layer_sql)


def _root(bound: int, hidden: str) -> LayerSql:
    seen = _all(f"n.seq <= {bound}" if bound < NOW else "", hidden.format("n"))
    return LayerSql(ROOT, "keys", "nodes", "", "n.nid = k.nid", "", seen, needs_node=bool(seen))


def _other(layer: int, bound: int, hidden: str, place: str) -> LayerSql:
    when = f"{{0}}.until > {bound}" + (f" AND {{0}}.seq <= {bound}" if bound < NOW else "")
    return LayerSql(
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
