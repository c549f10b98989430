"""Compare the node index with the log by sums, without folding the log again.

The statements of all documents of a state add up to a number that the log gives, too, and the keys
of all nodes to the one that the keys in the file add up to. One state is added up whole, every
other by its difference from a neighbour, as ``compare`` does. Memory holds some thousand nodes.

The answer is only whether all is well; ``compare`` says what is wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import add
from typing import Final, TypeVar

import msgspec

from trails.model.fairness import give_way, with_pauses
from trails.model.types import Schema
from trails.views.nodes.compare import UNREADABLE, States
from trails.views.nodes.layers import NOW, ROOT
from trails.views.nodes.long_texts import MARK
from trails.views.nodes.rows import Extract, KeyColumn, Values, all_slots, docs_of, unseal
from trails.views.sums import MODULUS, sum_of_lines, sum_of_rows
from trails.views.terms import Terms

_NODES: Final = 2_000
_BYTES: Final = 1 << 20
"""Nodes, and bytes of their documents, that are added up at once."""
_PLAIN: Final = [(ROOT, NOW)]
"""Over which layers a state is spread that is the root."""

_BLOCK: Final = 10_000
"""Rows that are only added up, which memory holds at once."""

T = TypeVar("T")
Row = tuple[int, str, bytes]
"""The number of a node, or 0, its handle and its document."""
Keys = list[tuple[Extract, KeyColumn | None, list[int]]]


class Differs(Exception):  # noqa: N818 - it is an answer
    """The file is not what the log says."""


class _Total(msgspec.Struct):
    """What some nodes add up to."""

    statements: int = 0
    nodes: Counter[str] = msgspec.field(default_factory=Counter)
    """How many there are of each type."""
    keys: dict[int, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    """By number of a slot."""


def rows_as_logged(
    states: States,
    terms_of: Callable[[Schema], Terms],
    wanted: Callable[[str], int],
    progress: Callable[[str], None],
) -> int | None:
    """How many rows were looked at, if every state is what the log says; None if one is not.

    ``wanted`` gives the sum of the statements of the state at a commit.
    """
    try:
        return _Check(states, terms_of, progress).run(wanted)
    except (Differs, *UNREADABLE):
        return None


class _Check:
    def __init__(
        self,
        states: States,
        terms_of: Callable[[Schema], Terms],
        progress: Callable[[str], None],
    ) -> None:
        self._states = states
        self._terms_of = terms_of
        self._progress = progress
        self._rows = 0
        self._root_keys: dict[str, dict[int, int]] = {}
        """Digest of a schema → what the keys of the root's nodes add up to."""

    def run(self, wanted: Callable[[str], int]) -> int:
        states = self._states
        for names in states.groups():
            schema, total = states.schema(names[0]), _Total()
            for at, name in enumerate(names):
                if at == 0:
                    total = self._whole(name, schema)
                else:
                    self._move(total, names[at - 1], name, schema)
                _expect(total.statements % MODULUS == wanted(states.commit(name)))
                _expect(dict(+total.nodes) == states.counts(name))
        self._check_handles()
        self._check_keys()
        _expect(not states.wrong_texts())
        return self._rows

    # --- statements ----------------------------------------------------------------------

    def _whole(self, name: str, schema: Schema) -> _Total:
        """What all nodes of a state add up to."""
        adder = _Adder(self._states, schema, self._terms_of(schema))
        if self._states.lineage(name) == _PLAIN:
            self._add_root(adder)
            self._root_keys[schema.digest] = adder.total.keys
        else:
            self._add(adder, ((0, handle, doc) for handle, doc in self._states.documents(name)))
        return adder.total

    def _add_root(self, adder: _Adder) -> None:
        self._add(adder, self._states.root_rows())

    def _add(self, adder: _Adder, rows: Iterable[Row]) -> None:
        for page in _pages(rows):
            adder.add(page)
            self._rows += len(page)
            if self._rows // _TOLD > (self._rows - len(page)) // _TOLD:
                self._progress(f"added up {self._rows} nodes")

    def _move(self, total: _Total, neighbour: str, name: str, schema: Schema) -> None:
        """Go from the sum of a state to that of its neighbour."""
        states, terms = self._states, self._terms_of(schema)
        handles = sorted(states.between(neighbour, name))
        self._rows += len(handles)
        for at in range(0, len(handles), _NODES):
            some = handles[at : at + _NODES]
            for state, sign in ((neighbour, -1), (name, 1)):
                found = states.find(state, some)
                adder = _Adder(states, schema, terms)
                rows = ((0, handle, doc) for handle in some for doc in found[handle])
                for page in _pages(rows):
                    adder.add(page)
                total.statements += sign * adder.total.statements
                for type_name, count in adder.total.nodes.items():
                    total.nodes[type_name] += sign * count

    # --- what finds nodes ------------------------------------------------------------------

    def _check_handles(self) -> None:
        """Nodes are found by the index of their handles, which has to be in order."""
        by_table, by_index = self._states.handle_rows()
        total, last = 0, ""
        for rows in _blocks(by_index):
            handles = [last, *(row.rpartition(":")[0] for (row,) in rows)]
            _expect(handles == sorted(handles))
            last = handles[-1]
            total += sum_of_rows(rows)
        _expect(total % MODULUS == _sum_of_blocks(by_table))

    def _check_keys(self) -> None:
        """Check the keys of the root's nodes for every schema with which they are read."""
        # Keys that no state reads, or nodes that one with other types does not see, are no fault.
        well = self._have_root_keys()
        _expect(next(self._states.wrong_keys(of_root=not well), None) is None)

    def _have_root_keys(self) -> bool:
        """Whether the root's nodes have just the keys of their documents, seen or not."""
        states, held = self._states, dict[int, int]()
        for digest, schema in states.root_schemas().items():
            expected = self._root_keys.get(digest)
            if expected is None:
                adder = _Adder(states, schema, None)
                try:
                    self._add_root(adder)
                except (Differs, *UNREADABLE):
                    return False
                expected = adder.total.keys
            for sid in {each for keys in _keys_of(states, schema).values() for each in _sids(keys)}:
                if sid not in held:
                    held[sid] = _sum_of_blocks(states.key_rows(sid))
                if expected.get(sid, 0) % MODULUS != held[sid]:
                    return False
        return True


_TOLD: Final = 200_000
"""Rows after which progress is reported."""


class _Adder:
    """Adds up nodes that are read with one schema."""

    def __init__(self, states: States, schema: Schema, terms: Terms | None) -> None:
        """``terms``: None where only keys are wanted."""
        self.total = _Total()
        self._texts = states.texts
        self._terms = terms
        self._docs = docs_of(schema)
        self._keys = _keys_of(states, schema)

    def add(self, rows: list[Row]) -> None:
        """Add some nodes of one type."""
        type_name = rows[0][1].partition("/")[0]
        values = [
            self._docs.decode(type_name, unseal(handle, doc), *self._texts, declared=True)
            for _, handle, doc in rows
        ]
        if any(None in each.values() for each in values):
            raise Differs
        total = self.total
        total.nodes[type_name] += len(rows)
        if self._terms is not None:
            handles = [handle for _, handle, _ in rows]
            for text in self._terms.unordered(type_name, list(zip(handles, values, strict=True))):
                lines = text.encode().split(b"\n")
                lines.pop()
                total.statements += sum_of_lines(lines)
        if rows[0][0]:
            self._add_keys(self._keys[type_name], [b"/%d" % nid for nid, _, _ in rows], values)

    def _add_keys(self, plan: Keys, ends: list[bytes], values: Sequence[Values]) -> None:
        for extract, column, sids in plan:
            if column is not None:
                rows = list(map(add, column(values), ends))
            else:
                rows = [
                    key + end
                    for held, end in zip(values, ends, strict=True)
                    for key in set(extract(held))
                ]
            found = sum_of_rows(zip(rows, strict=True))
            for sid in sids:
                self.total.keys[sid] += found


def _keys_of(states: States, schema: Schema) -> dict[str, Keys]:
    """How the keys of each type are made: each once, for all slots that hold it."""
    plans: dict[str, Keys] = {}
    for type_name, slots in all_slots(schema).items():
        held: dict[Extract, tuple[KeyColumn | None, list[int]]] = {}
        for slot in slots:
            held.setdefault(slot.extract, (slot.column, []))[1].append(states.slot(slot.name))
        plans[type_name] = [(extract, column, sids) for extract, (column, sids) in held.items()]
    return plans


def _sids(keys: Keys) -> Iterator[int]:
    for _, _, sids in keys:
        yield from sids


def _pages(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows of one type, as many at a time as memory should hold with their long texts."""
    page: list[Row] = []
    start, size = "/", 0
    for row in with_pauses(rows):
        _, handle, doc = row
        is_long = doc[:1] == bytes([MARK])
        if page and (
            is_long or len(page) >= _NODES or size > _BYTES or not handle.startswith(start)
        ):
            yield page
            page, size = [], 0
        if not page:
            start = handle.partition("/")[0] + "/"
        page.append(row)
        size += _BYTES + 1 if is_long else len(doc)
    if page:
        yield page


def _blocks(rows: Iterator[T]) -> Iterator[list[T]]:
    while block := list(islice(rows, _BLOCK)):
        yield block
        give_way()


def _sum_of_blocks(rows: Iterator[tuple[bytes | str]]) -> int:
    return sum(map(sum_of_rows, _blocks(rows))) % MODULUS


def _expect(condition: object) -> None:
    if not condition:
        raise Differs
