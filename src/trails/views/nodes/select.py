"""Answer selections from the index.

Two ways to a page. *Walk*: go along one slot in the wanted order and check each
node; cheap when matches are common. *Gather*: collect the nodes that the most
selective conditions allow, then test and sort them; cheap when matches are
rare. A few candidates are gathered at once; else a short walk shows whether
matches are common; only then the number of candidates decides. Of some thousands, those
that come first in the order are found by a walk that looks for their numbers alone.

Conditions are checked in SQL (``filters``). What SQL can't say exactly is tested in Python, on the
nodes that passed: ``icontains``, comparisons with texts that are longer than keys, of
numbers that are not Int, and of fields that are partly hidden.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from heapq import nsmallest
from itertools import islice
from math import isqrt
from typing import Any, Final

import msgspec

from trails.errors import QueryError, StaleError
from trails.model.constraints import Coerce
from trails.model.fairness import give_way, paced, read_deadline
from trails.model.nodes import NodeState, Order, PageEnd, Selection
from trails.model.types import Schema, TypeDescriptor
from trails.model.visibility import SchemaFilter
from trails.views.nodes.conditions import CompiledCondition, Compiler, Ranges, Test, Values
from trails.views.nodes.file import marks
from trails.views.nodes.filters import (
    NOTHING,
    Check,
    ConditionSql,
    HiddenRows,
    Sql,
    fitting,
    one_of,
    values_of,
)
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.long_texts import MARK
from trails.views.nodes.rows import MISSING, encoder, escape, slot_name
from trails.views.nodes.scans import (
    Keys,
    Ranker,
    Scan,
    keys_from,
    resume,
)

_END: Final = b"\xff" * 9
_START: Final = b""
_MOST: Final = 2**48
"""More nodes than there can be of a type."""
_FEW: Final = 256
"""So few candidates are cheaper to fetch than to meet on a walk, however common they are."""
_INSTRUCTIONS: Final = 20_000
"""Of SQLite, after which a statement looks at the clock: a millisecond or so."""
_CHUNK: Final = 256
"""Rows that are fetched at a time where all are wanted."""
_STEPS: Final = 16
"""Keys for each wanted node on a walk that shows whether matches are common."""
_SLOW_STEPS: Final = 6
"""The same where each node is tested in Python."""
_FETCH: Final = 16
"""How many keys a walk passes in the time in which one node is fetched and tested."""


_Row = tuple[int, str, bytes]
_Picked = tuple[int, NodeState]
_Read = Callable[[str, bytes], NodeState | None]


class Found(msgspec.Struct, frozen=True):
    """One page: nodes, and where it ended if more follow."""

    rows: tuple[NodeState, ...]
    next: PageEnd | None


class _Filters(msgspec.Struct, frozen=True):
    """What a walk checks: in SQL, and on the values of the nodes that are left."""

    checks: tuple[Check, ...] = ()
    test: Test | None = None
    test_of_long: Test | None = None
    """The test of nodes with long texts, whose documents SQL can't read."""
    in_sql: bool = True
    """Whether SQL checks every condition, if not exactly."""

    @property
    def values(self) -> tuple[object, ...]:
        """The values for the checks of one layer."""
        return values_of(self.checks)


def first_of(
    index: NodeIndex,
    db: sqlite3.Connection,
    handles: Iterable[str],
    schema_filter: SchemaFilter | None = None,
    *,
    in_parts: bool = False,
) -> NodeState | None:
    """The first of some nodes that there is, as far as it is visible."""
    find = index.find_in_parts if in_parts else index.find
    for handle in handles:
        found = find(db, handle)
        if found is not None:
            state = found.state if schema_filter is None else schema_filter.apply(found.state)
            if state is not None:
                return state
    return None


class Selector:
    """Runs selections over one connection: a reader's, or the writer's own."""

    def __init__(
        self,
        index: NodeIndex,
        db: sqlite3.Connection,
        schema: Schema,
        special: dict[str, Coerce],
        schema_filter: SchemaFilter | None = None,
    ) -> None:
        """``schema_filter`` is applied to every answer; ``schema`` is what it leaves."""
        if db is index.file.db:
            index.file.put_waiting()
        self.uncommitted = False
        """Whether it also reads what is not committed yet."""
        self._index = index
        self._layer_sql = index.layer_sql
        self._db = db
        self._schema = schema
        self._loaded: dict[str, Values | None] = {}
        self._schema_filter = schema_filter
        read: _Read = partial(index.state, db) if schema_filter is None else self._filtered
        self._read: _Read = paced(read)
        self._partly_hidden = {} if schema_filter is None else schema_filter.partly_hidden
        self._compiler = Compiler(schema, special, self._load, self._partly_hidden)
        self._sql = ConditionSql(index)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Statements in the block end at the deadline of the read, and give way to short work."""
        bound = read_deadline()
        if bound is not None:

            def look() -> bool:
                give_way()
                return bound.passed

            self._db.set_progress_handler(look, _INSTRUCTIONS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if bound is not None and error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise bound.error from None
            if "malformed JSON" in str(error):
                raise self._index.unreadable(error) from error
            raise
        finally:
            if bound is not None:
                self._db.set_progress_handler(None, 0)

    @property
    def index(self) -> NodeIndex:
        """The index that is read."""
        return self._index

    @property
    def db(self) -> sqlite3.Connection:
        """The connection that reads it."""
        return self._db

    @property
    def commit(self) -> str:
        """The commit whose state is read."""
        return self._index.position_in(self._db).commit

    def first(self, handles: Iterable[str], *, in_parts: bool = False) -> NodeState | None:
        """The first of some nodes that there is, as far as it is visible.

        ``in_parts``: long texts are read as their parts are asked for, within the transaction.
        """
        return first_of(self._index, self._db, handles, self._schema_filter, in_parts=in_parts)

    def all_of(self, handles: Sequence[str]) -> dict[str, NodeState]:
        """Those of some nodes that there are, as far as they are visible."""
        found = self._index.find_all(self._db, handles)
        hidden = self._schema_filter
        states = (
            each.state if hidden is None else hidden.apply(each.state) for each in found.values()
        )
        return {each.handle: each for each in states if each is not None}

    def matching(self, selection: Selection, handles: Sequence[str]) -> dict[str, NodeState]:
        """Those of some nodes that there are and that match a selection."""
        tree = self._compiler.compile(selection.type, selection.where)
        found = self.all_of(handles)
        if tree is None:
            return found
        return {handle: state for handle, state in found.items() if tree.test(state.values)}

    # --- the three questions -----------------------------------------------------

    def select(self, selection: Selection) -> Found:
        """A page of nodes in order."""
        descriptor = self._descriptor(selection)
        tree = self._compiler.compile(selection.type, selection.where)
        numbering, position = self._index.file.numbering, selection.after
        if position is not None and position.numbering != numbering:
            raise StaleError(
                "the node index was built anew since this cursor was given; begin again without a "
                "cursor"
            )
        limit = selection.limit if selection.limit is not None else None
        wanted = None if limit is None else min(limit + selection.offset + 1, _MOST)
        if limit == 0:
            return Found((), None)
        skip = min(selection.offset, _MOST)
        picked = list(self._pick(descriptor, tree, selection.order, position, wanted, skip))
        more = limit is not None and len(picked) > limit
        page = picked[:limit]
        rows = tuple([state for _, state in page])
        if not more or not page:
            return Found(rows, None)
        key = Ranker(descriptor, selection.order).key(rows[-1].values)
        return Found(rows, PageEnd(key, page[-1][0], numbering))

    def by_handle(
        self, selection: Selection, type_name: str, after: str, limit: int, size: int
    ) -> tuple[list[NodeState], str | None]:
        """Matching nodes of exactly one type of the selected family, in the order of handles.

        Looks at ``limit`` nodes that follow ``after``, or at fewer whose values have about ``size``
        bytes. With them comes the last handle that it has looked at, None at the end.
        """
        tree = self._compiler.compile(selection.type, selection.where)
        start, end = max(after, f"{type_name}/"), f"{type_name}0"  # "0" comes after "/"
        parts = [
            f"SELECT n.handle, n.doc FROM {sql.handled()}n.handle > ? AND n.handle < ?"  # noqa: S608
            for sql in self._layer_sql
        ]
        query = f"{' UNION ALL '.join(parts)} ORDER BY 1 LIMIT ?"
        found: list[NodeState] = []
        looked_at, last = 0, ""
        with closing(self._db.execute(query, (*(start, end) * len(parts), limit))) as rows:
            for handle, doc in rows:
                state = self._read(handle, doc)
                if state is not None and (tree is None or tree.test(state.values)):
                    found.append(state)
                    # Long texts are not in the document.
                    size -= sum(len(each) for each in state.values.values() if type(each) is str)
                looked_at, last, size = looked_at + 1, handle, size - len(doc)
                if size <= 0:
                    break
        more = size <= 0 or looked_at == limit
        return found, last if more else None

    def has_long_texts(self, type_name: str) -> bool:
        """Whether nodes of a type may have texts that are stored beside their documents."""
        return self._index.has_long_texts(self._db, self._schema.family(type_name))

    def count(self, selection: Selection) -> int:
        """How many nodes match."""
        descriptor = self._descriptor(selection)
        tree = self._compiler.compile(selection.type, selection.where)
        hidden_rows = self._hidden_rows(descriptor)
        if tree is None and not hidden_rows.edges:
            return self._index.live(self._db, self._schema.family(descriptor.name))
        conjuncts = _conjuncts(tree)
        first = self._smallest(conjuncts)
        checks = fitting(self._sql.exact(each) for each in conjuncts if each is not first)
        known = [check for check in checks if check is not None]
        if len(known) == len(checks) and (first is None or _is_exact(first)):
            return self._count(descriptor, first, (*hidden_rows.checks, *known))
        return sum(1 for _ in self._unordered(descriptor, conjuncts, hidden_rows))

    def _count(
        self, descriptor: TypeDescriptor, first: CompiledCondition | None, checks: Sequence[Check]
    ) -> int:
        """The nodes that have the keys of one condition, or all of a type, and pass checks."""
        keys = None if first is None else self._sql.keys(first)
        ranges = None if first is None or keys is None else first.ranges
        several = ranges is not None and ranges.many and not ranges.point
        what = "count(DISTINCT k.nid)" if several else "count(*)"
        starts = [keys] if keys is not None else self._node_ranges(descriptor)
        values, total = values_of(checks), 0
        for sql in self._layer_sql:
            place = sql.keyed() if keys is not None else sql.counted()
            conditions = "".join(f" AND {check.sql(sql)}" for check in checks)
            for text, bounds in starts:
                query = f"SELECT {what} FROM {place}{text}{conditions}"  # noqa: S608
                total += self._db.execute(query, (*bounds, *values)).fetchone()[0]
        return total

    def _node_ranges(self, descriptor: TypeDescriptor) -> list[Sql]:
        ranges = self._index.file.ranges(self._schema.family(descriptor.name))
        return [("k.nid >= ? AND k.nid < ?", each) for each in ranges]

    def _unordered(
        self,
        descriptor: TypeDescriptor,
        conjuncts: Sequence[CompiledCondition],
        hidden_rows: HiddenRows,
    ) -> Iterator[_Picked]:
        """All nodes that match, where the tests in Python have to decide."""
        total = self._index.live(self._db, self._schema.family(descriptor.name))
        nids = self._gather(conjuncts, total // 4)
        if nids is None:
            scan = Scan(0, self._node_spans(descriptor), by_node=True)
            yield from self._walk(scan, self._filters(conjuncts, hidden_rows), None, None)
            return
        test = _together([each.test for each in conjuncts])
        for nid, handle, doc in self._rows(nids):
            state = self._read(handle, doc)
            if state is not None and (test is None or test(state.values)):
                yield nid, state

    def _smallest(
        self, conjuncts: Sequence[CompiledCondition], cap: int = _MOST
    ) -> CompiledCondition | None:
        """The condition that the fewest keys meet; None if all have more than ``cap``."""
        keyed = [each for each in conjuncts if self._sql.keys(each) is not None]
        if len(keyed) == 1 and cap == _MOST:
            return keyed[0]
        most = cap if len(keyed) == 1 else min(_FEW, cap)
        while keyed:
            for each in keyed:
                if self._size(each, most) <= most:
                    return each
            if most == cap:
                break
            most = min((most + 1) * _FETCH, cap)
        return None

    def _size(self, tree: CompiledCondition, most: int) -> int:
        """How many keys a condition allows, at least; of more than ``most``, some more."""
        keys = self._sql.keys(tree)
        if keys is None:
            return most + 1
        if tree.op == "hop":
            # Every one of them is looked up before the first key is found.
            targets = max(_FEW, most // _FETCH)
            if self._size(tree.parts[0], targets) > targets:
                return most + 1
        found = 0
        for sql in self._layer_sql:
            query = f"SELECT count(*) FROM (SELECT 1 FROM {sql.any_keyed()}{keys[0]} LIMIT ?)"  # noqa: S608
            found += self._db.execute(query, (*keys[1], most + 1 - found)).fetchone()[0]
        return found

    # --- choosing a way ----------------------------------------------------------

    def _pick(
        self,
        descriptor: TypeDescriptor,
        tree: CompiledCondition | None,
        order: Sequence[Order],
        position: PageEnd | None,
        wanted: int | None,
        skip: int = 0,
    ) -> Iterator[_Picked]:
        """So many nodes in order, without those that are skipped at the start."""
        self._check_order(descriptor, order)
        scan = self._scan_for(descriptor, tree, order)
        if scan is None:
            nids = None if tree is None else self._gather(_conjuncts(tree), _MOST)
            rows = self._every_row(descriptor) if nids is None else self._rows(nids)
            picked = self._sorted(rows, tree, descriptor, order, position, wanted)
            return islice(picked, skip, None)
        residue = self._residue(tree, scan)
        hidden_rows = self._hidden_rows(descriptor)
        if tree is None or not residue:
            return self._walk(scan, self._filters((), hidden_rows), position, wanted, skip=skip)
        few = self._few_rows(tree)
        if few is not None:
            picked = self._sorted(few, tree, descriptor, order, position, wanted)
            return islice(picked, skip, None)
        if scan.by_node and wanted is not None:
            nids = self._gather(_conjuncts(tree), min(wanted * wanted, _MOST))
            if nids is not None:
                return islice(self._numbered(nids, tree, position, wanted), skip, None)
        filters = self._filters(residue, hidden_rows)
        if wanted is not None and len(self._layer_sql) == 1:
            steps = wanted * (_STEPS if filters.in_sql else _SLOW_STEPS)
            page = list(self._walk(scan, filters, position, wanted, steps))
            if len(page) == wanted:
                return islice(page, skip, None)
        total = self._index.live(self._db, self._schema.family(descriptor.name))
        balance = isqrt((wanted or total) * total)
        # Up to here, looking for candidates alone beats checking every node on the way.
        nids = self._gather(_conjuncts(tree), total // 4 if wanted is None else balance * 4)
        if nids is None:
            return self._walk(scan, filters, position, wanted, skip=skip)
        if wanted is not None and len(nids) > max(_FEW, balance // 4):
            limit = len(nids) * _FETCH if len(self._layer_sql) == 1 else None
            among = self._filters(residue, hidden_rows, nids)
            page = list(self._walk(scan, among, position, wanted, limit))
            if len(page) == wanted or limit is None:
                return islice(page, skip, None)
        picked = self._sorted(self._rows(nids), tree, descriptor, order, position, wanted)
        return islice(picked, skip, None)

    def _numbered(
        self, nids: Iterable[int], tree: CompiledCondition, position: PageEnd | None, wanted: int
    ) -> Iterator[_Picked]:
        """So many of some nodes, in the order of their numbers."""
        start = 0 if position is None else position.node
        ordered = iter(sorted(nid for nid in nids if nid > start))
        found = 0
        while some := list(islice(ordered, wanted)):
            for nid, handle, doc in sorted(self._rows(some)):
                state = self._read(handle, doc)
                if state is not None and tree.test(state.values):
                    yield nid, state
                    found += 1
                    if found == wanted:
                        return

    def _check_order(self, descriptor: TypeDescriptor, order: Sequence[Order]) -> None:
        for each in order:
            field = descriptor.by_name.get(each.field)
            if field is None:
                raise QueryError(
                    f"{descriptor.name} has no field {each.field!r} to sort by; it has "
                    f"{', '.join(descriptor.by_name)}",
                    field=each.field,
                )
            if field.many or field.tagged or encoder(field) is None:
                raise QueryError(
                    f"{descriptor.name}.{each.field} is {field.type}, which has no one order",
                    field=each.field,
                )

    def _scan_for(
        self, descriptor: TypeDescriptor, tree: CompiledCondition | None, order: Sequence[Order]
    ) -> Scan | None:
        """The slot whose order is the wanted one, narrowed by what the conditions allow."""
        conjuncts = _conjuncts(tree)
        points = [
            each.ranges
            for each in conjuncts
            if each.ranges is not None and each.ranges.point and each.ranges.exact
        ]
        if not order:
            # All keys of one value are in node order.
            for point in points:
                return Scan(self._index.file.slot_number(point.slot), point.spans, by_node=True)
            return Scan(0, self._node_spans(descriptor), by_node=True)
        if len(order) > 1:
            return None
        field, descending = order[0].field, order[0].descending
        if field in self._partly_hidden.get(descriptor.name, ()):
            return None
        for point in points:
            group = (point.field, field)
            if group in descriptor.index:
                name = slot_name(descriptor.name, group)
                prefix = escape(point.spans[0][0])
                whole = self._order_spans(((_START, _END),), descending=descending)
                spans = tuple((prefix + low, prefix + high) for low, high in whole)
                number = self._index.file.slot_number(name)
                return Scan(number, spans, descending, prefix, given=point.slot)
        spans = ((_START, _END),)
        for each in conjuncts:
            if each.ranges is not None and each.ranges.field == field and each.ranges.spans:
                spans = each.ranges.spans
                break
        sid = self._index.file.slot_number(slot_name(descriptor.name, (field,)))
        return Scan(sid, self._order_spans(spans, descending=descending), descending)

    def _node_spans(self, descriptor: TypeDescriptor) -> tuple[tuple[bytes, bytes], ...]:
        ranges = self._index.file.ranges(self._schema.family(descriptor.name))
        return tuple((low.to_bytes(9, "big"), high.to_bytes(9, "big")) for low, high in ranges)

    @staticmethod
    def _order_spans(
        spans: tuple[tuple[bytes, bytes], ...], *, descending: bool
    ) -> tuple[tuple[bytes, bytes], ...]:
        """Spans in walking order; missing values come last either way."""
        if not descending:
            return spans
        present = tuple((low, min(high, MISSING)) for low, high in reversed(spans) if low < MISSING)
        missing = ((MISSING, _END),) if any(high > MISSING for _, high in spans) else ()
        return present + missing

    # --- scanning ----------------------------------------------------------------

    def _walk(
        self,
        scan: Scan,
        filters: _Filters,
        position: PageEnd | None,
        wanted: int | None,
        within: int | None = None,
        skip: int = 0,
    ) -> Iterator[_Picked]:
        """Nodes in the order of a slot; ``within`` gives up after that many keys of a span.

        Of the ``wanted`` ones, those to ``skip`` are not made; in one span SQLite skips them.
        """
        test, test_of_long, read = filters.test, filters.test_of_long, self._read
        in_sql = test is None and test_of_long is None
        found = offset = skip if in_sql and len(scan.spans) == 1 else 0
        for span in scan.spans:
            place = resume(scan, position, *span)
            if place is None:
                continue
            left = wanted - found if in_sql and wanted is not None else -1
            keys = keys_from(scan, span, place)
            size = _CHUNK if wanted is None else min(max(wanted - found, 1), _CHUNK)
            with closing(self._found(keys, filters, within, left, offset)) as rows:
                # Some at a time: SQLite and Python would push each other out of the caches.
                while some := rows.fetchmany(size):
                    for row in some:
                        if found < skip and in_sql:
                            found += 1
                            continue
                        nid, doc = row[0], row[2]
                        state = read(row[1], doc)
                        holds = test if doc[0] != MARK or test_of_long is None else test_of_long
                        if state is not None and (holds is None or holds(state.values)):
                            found += 1
                            if found > skip:
                                yield nid, state
                            if found == wanted:
                                return
            if within is not None:
                return

    def _residue(self, tree: CompiledCondition | None, scan: Scan) -> list[CompiledCondition]:
        """The conditions that a walk does not meet by itself."""
        return [
            each
            for each in _conjuncts(tree)
            if each.ranges is None or not each.ranges.exact or not self._covers(scan, each.ranges)
        ]

    def _covers(self, scan: Scan, ranges: Ranges) -> bool:
        if scan.given == ranges.slot:
            return ranges.point and scan.prefix == escape(ranges.spans[0][0])
        return scan.sid == self._index.file.slot_number(ranges.slot) and scan.spans == ranges.spans

    def _hidden_rows(self, descriptor: TypeDescriptor) -> HiddenRows:
        """Which rows of a type a walk must leave out."""
        return (
            NOTHING
            if self._schema_filter is None
            else HiddenRows.of(self._index, self._schema_filter, descriptor)
        )

    def _filters(
        self,
        residue: Sequence[CompiledCondition],
        hidden_rows: HiddenRows,
        nids: Collection[int] | None = None,
    ) -> _Filters:
        """Checks in SQL as far as they go, and tests; ``nids``: of these nodes alone."""
        if nids is not None:
            test = _together([each.test for each in residue])
            return _Filters((*hidden_rows.checks, one_of(nids)), test)
        checks = fitting(self._sql.quick(each) for each in residue)
        known = [check for check in checks if check is not None]
        unsure = [
            each.test
            for each, check in zip(residue, checks, strict=True)
            if check is None or not check.exact
        ]
        reads = any(check.reads_document for check in known)
        return _Filters(
            (*hidden_rows.checks, *known),
            _together(unsure),
            _together([each.test for each in residue]) if reads else None,
            in_sql=len(known) == len(checks),
        )

    def _found(
        self, keys: Keys, filters: _Filters, within: int | None, limit: int, offset: int
    ) -> sqlite3.Cursor:
        """The nodes of some keys, in their order, that pass the checks."""
        if len(self._layer_sql) > 1:
            return self._found_in_arms(keys, filters, limit, offset)
        sql = self._layer_sql[0]
        table = sql.nodes if keys.of_nodes else sql.keys
        checks = " AND ".join(check.sql(sql) for check in filters.checks)
        if within is not None and checks:
            # An inner loop over so many keys, whose order is that of the result.
            return self._db.execute(
                f"SELECT k.nid, n.handle, n.doc FROM (SELECT nid FROM {table} k "  # noqa: S608
                f"WHERE {keys.where} ORDER BY {keys.order} LIMIT ?) k "
                f"CROSS JOIN {sql.nodes} n ON {sql.join} WHERE {checks} LIMIT ?",
                (*keys.bounds, within, *filters.values, limit),
            )
        return self._db.execute(
            f"SELECT k.nid, n.handle, n.doc FROM {table} k "  # noqa: S608
            f"CROSS JOIN {sql.nodes} n ON {sql.join} "
            f"WHERE {keys.where} AND {checks or '1'} ORDER BY {keys.order} LIMIT ? OFFSET ?",
            (*keys.bounds, *filters.values, limit if within is None else within, offset),
        )

    def _found_in_arms(
        self, keys: Keys, filters: _Filters, limit: int, offset: int
    ) -> sqlite3.Cursor:
        """The same where nodes are in several places: each in order, then merged by SQLite."""
        parts: list[str] = []
        place = "k.nid" if keys.of_nodes else "k.key"
        for sql in self._layer_sql:
            conditions = [keys.where, *(check.sql(sql) for check in filters.checks)]
            if sql.of_node:
                conditions.append(sql.of_node)
            parts.append(
                f"SELECT k.nid, n.handle, n.doc, {place} "  # noqa: S608
                f"FROM {sql.nodes if keys.of_nodes else sql.keys} k "
                f"CROSS JOIN {sql.nodes} n ON {sql.join} "
                f"WHERE {sql.fixed}{' AND '.join(conditions)}"
            )
        down = " DESC" if keys.descending else ""
        values = [*(*keys.bounds, *filters.values) * len(self._layer_sql), limit, offset]
        return self._db.execute(
            f"{' UNION ALL '.join(parts)} ORDER BY 4{down}, 1{down} LIMIT ? OFFSET ?", values
        )

    def _rows(self, nids: Iterable[int]) -> Iterator[_Row]:
        """Nodes by number."""
        left = iter(nids)
        while some := list(islice(left, 200)):
            for sql in self._layer_sql:
                yield from self._db.execute(
                    f"SELECT n.nid, n.handle, n.doc FROM {sql.noded()}"  # noqa: S608
                    f"n.nid IN ({marks(len(some))})",
                    some,
                ).fetchall()

    # --- gathering ---------------------------------------------------------------

    def _few_rows(self, tree: CompiledCondition) -> Iterable[_Row] | None:
        """All nodes that can match, where some condition allows only a few."""
        for each in _conjuncts(tree):
            keys = self._sql.keys(each)
            if keys is None:
                nids = self._gather([each], _FEW) if each.op == "or" else None
                if nids is not None:
                    return self._rows(nids)
            elif self._size(each, _FEW) <= _FEW:
                rows: dict[int, _Row] = {}
                for sql in self._layer_sql:
                    query = (
                        "SELECT n.nid, n.handle, n.doc "  # noqa: S608
                        f"FROM {sql.keyed(joined=True)}{keys[0]}"
                    )
                    rows.update((row[0], row) for row in self._db.execute(query, keys[1]))
                return rows.values()
        return None

    def _gather(self, conjuncts: Sequence[CompiledCondition], cap: int) -> set[int] | None:
        """All nodes that can match, or None when there are more than ``cap``."""
        first = self._smallest(conjuncts, cap)
        if first is not None:
            quick = fitting(self._sql.quick(each) for each in conjuncts if each is not first)
            probes = [each for each in quick if each is not None and not each.in_row]
            return self._having(first, probes)
        for each in conjuncts:
            if each.op == "or":
                union: set[int] = set()
                for part in each.parts:
                    nids = self._gather(_conjuncts(part), cap)
                    if nids is None or len(union := union | nids) > cap:
                        break
                else:
                    return union
        return None

    def _having(self, tree: CompiledCondition, checks: Sequence[Check]) -> set[int]:
        """The nodes that have the keys of a condition and pass checks of other keys."""
        keys = self._sql.keys(tree)
        assert keys is not None  # noqa: S101 - it is a condition on keys
        values, nids = (*keys[1], *values_of(checks)), set[int]()
        for sql in self._layer_sql:
            conditions = "".join(f" AND {check.sql(sql)}" for check in checks)
            query = f"SELECT k.nid FROM {sql.keyed()}{keys[0]}{conditions}"  # noqa: S608
            nids.update(nid for (nid,) in self._db.execute(query, values))
        return nids

    def _every_row(self, descriptor: TypeDescriptor) -> Iterator[_Row]:
        for low, high in self._index.file.ranges(self._schema.family(descriptor.name)):
            for sql in self._layer_sql:
                yield from self._db.execute(
                    f"SELECT n.nid, n.handle, n.doc FROM {sql.noded()}"  # noqa: S608
                    "n.nid >= ? AND n.nid < ?",
                    (low, high),
                )

    def _sorted(
        self,
        rows: Iterable[_Row],
        tree: CompiledCondition | None,
        descriptor: TypeDescriptor,
        order: Sequence[Order],
        position: PageEnd | None,
        wanted: int | None,
    ) -> Iterator[_Picked]:
        """Fetch, test and sort candidates."""
        rank = Ranker(descriptor, order)
        after = None if position is None else rank.place(position.key, position.node)
        read, test = self._read, None if tree is None else tree.test

        def matching() -> Iterator[tuple[tuple[object, ...], int, NodeState]]:
            for nid, handle, doc in rows:
                state = read(handle, doc)
                if state is not None and (test is None or test(state.values)):
                    place = rank.place(rank.key(state.values), nid)
                    if after is None or place > after:
                        yield place, nid, state

        if wanted is None:
            best = sorted(matching(), key=_by_place)
        else:
            best = nsmallest(wanted, matching(), key=_by_place)
        for _, nid, state in best:
            yield nid, state

    # --- small parts ---------------------------------------------------------------

    def _filtered(self, handle: str, doc: bytes) -> NodeState | None:
        """A row's node; None when it is hidden."""
        state = self._index.state(self._db, handle, doc)
        return state if self._schema_filter is None else self._schema_filter.apply(state)

    def _load(self, handle: str) -> Values | None:
        if handle not in self._loaded:
            if len(self._loaded) > 50_000:
                self._loaded.clear()
            found = self._index.find(self._db, handle)
            state = None if found is None else found.state
            if state is not None and self._schema_filter is not None:
                state = self._schema_filter.apply(state)
            self._loaded[handle] = None if state is None else state.values
        return self._loaded[handle]

    def _descriptor(self, selection: Selection) -> TypeDescriptor:
        found = self._schema.by_name.get(selection.type)
        if found is None:
            raise QueryError(
                f"there is no type {selection.type!r}; types are {', '.join(self._schema.by_name)}"
            )
        return found


def _together(tests: list[Test]) -> Test | None:
    """One test for all."""
    if len(tests) <= 1:
        return tests[0] if tests else None
    return lambda values: all(holds(values) for holds in tests)


def _by_place(entry: tuple[tuple[object, ...], int, NodeState]) -> Any:  # noqa: ANN401
    return entry[0]


def _is_exact(tree: CompiledCondition) -> bool:
    """Whether its keys are exactly those of the nodes that match."""
    return tree.ranges is not None and tree.ranges.exact


def _conjuncts(tree: CompiledCondition | None) -> list[CompiledCondition]:
    """The parts that must all hold."""
    if tree is None:
        return []
    if tree.op == "and":
        return [leaf for part in tree.parts for leaf in _conjuncts(part)]
    return [tree]
