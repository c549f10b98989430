"""Rules that involve other nodes: uniqueness, references, edges at a node; and a node's size.

Each rule is checked right after a change, against the index at that point. A failed check is
repeated when the write ends, because a later change of the same write may fix it. Only the
final state counts, and only failed checks use memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

from trails.engine.validation.blob_names import BlobNames, blob_fields
from trails.engine.validation.validate import VisibleNodes, size_error, size_of, suggest_nodes
from trails.errors import FieldError
from trails.model.fairness import with_pauses
from trails.model.nodes import NodeState
from trails.model.texts import count, with_article
from trails.model.types import PredicateDescriptor, Schema
from trails.model.visibility import SchemaFilter
from trails.views.nodes.index import NodeIndex, Replacement
from trails.views.nodes.rows import MISSING, handle_key, slot_name

_SHOWN = 10


_REMEMBERED = 100_000


class RuleError(FieldError, frozen=True):
    """A violation that concerns several nodes."""

    nodes: tuple[str, ...] = ()
    """The handles of the nodes that break the rule; the last one is the changed node."""
    others: tuple[str, ...] = ()
    """The handles of other nodes involved."""
    edge: str = ""
    """The edge type, if the number of edges at a node is wrong."""


def of_node(handle: str, error: FieldError) -> RuleError:
    """A violation within one node, with the node."""
    return RuleError(
        error.field, error.code, error.message, error.value, error.constraint, (handle,)
    )


class RuleBook:
    """The rules of a schema that involve other nodes, compiled once."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.pointers = {each.name: list(self._pointing_at(each.name)) for each in schema.types}
        self.ends = {each.name: list(self._edges_at(each.name)) for each in schema.types}
        self.references = {
            each.name: [field for field in each.fields if field.target is not None]
            for each in schema.types
        }
        self.blobs = blob_fields(schema)

    def _pointing_at(self, type_name: str) -> Iterator[tuple[str, PredicateDescriptor]]:
        """The slots of reference fields that may point at a type."""
        lineage = self.schema.lineage(type_name)
        for descriptor in self.schema.types:
            for field in descriptor.fields:
                if field.target in lineage and field.declared_in == descriptor.name:
                    yield slot_name(descriptor.name, (field.name,)), field

    def _edges_at(self, type_name: str) -> Iterator[tuple[str, str, int, int | None]]:
        """(edge type, side, least, most) for edge types that limit edges at a type."""
        lineage = self.schema.lineage(type_name)
        for descriptor in self.schema.types:
            edge = descriptor.edge
            if edge is not None:
                for side, end, limits in (
                    ("source", edge.source, edge.per_source),
                    ("target", edge.target, edge.per_target),
                ):
                    if end in lineage and limits != (0, None):
                        yield descriptor.name, side, *limits


class Rules:
    """Checks the changes of one write."""

    def __init__(
        self,
        book: RuleBook,
        nodes: NodeIndex,
        db: sqlite3.Connection,
        schema_filter: SchemaFilter | None = None,
        blobs: BlobNames | None = None,
        seq: int = 0,
    ) -> None:
        """``schema_filter``: what the writer may see; messages name no other nodes.

        ``blobs`` checks the blobs that are named; ``seq`` is the place of the write in the log.
        """
        self._blobs = blobs
        self._place = nodes, db, schema_filter, seq
        self._visible = VisibleNodes(
            nodes, db, book.schema if schema_filter is None else schema_filter.schema, schema_filter
        )
        self._book = book
        self._schema = book.schema
        self._nodes = nodes
        self._db = db
        self._duplicates: dict[tuple[str, bytes], tuple[tuple[str, ...], str]] = {}
        self._dangling: dict[tuple[str, str, str], PredicateDescriptor] = {}
        self._gone: dict[str, NodeState] = {}
        self._crowded: set[tuple[str, str, str]] = set()
        self._oversized: dict[str, int] = {}
        """The previous sizes of nodes that are too large now."""
        self._fields_ruled: dict[str, tuple[frozenset[str], bool]] = {}
        self._known: set[str] = set()
        """Handles known to exist, so that a batch looks up each target once; bounded."""

    def concern(self, before: NodeState | None, after: NodeState | None) -> bool:
        """Whether a change may break a rule between nodes, whatever the graph holds."""
        state = after or before
        if state is None:
            return False
        fields, is_alone = self._ruled(state.type)
        if before is None or after is None:
            return not is_alone
        old, new = before.values, after.values
        return any(old.get(name) != new.get(name) for name in fields)

    def _ruled(self, type_name: str) -> tuple[frozenset[str], bool]:
        """The fields of a type that rules look at, and whether its nodes may come and go."""
        found = self._fields_ruled.get(type_name)
        if found is None:
            book = self._book
            looked_at = {each.name for each in book.references[type_name]}
            looked_at.update(each.name for each in book.blobs[type_name])
            for slot in self._nodes.unique_slots(type_name):
                looked_at.update(slot.fields)
            is_alone = not (
                looked_at
                or book.pointers[type_name]
                or book.ends[type_name]
                or self._schema.by_name[type_name].edge
            )
            found = self._fields_ruled[type_name] = frozenset(looked_at), is_alone
        return found

    # --- watching ----------------------------------------------------------------------

    def watch(self, before: NodeState | None, after: NodeState | None) -> None:
        """Check a change that the index already has."""
        if after is None:
            if before is not None:
                self._watch_deleted(before)
            return
        self._watch_unique(before, after)
        self._watch_others(before, after)

    def _watch_others(self, before: NodeState | None, after: NodeState) -> None:
        old = {} if before is None else before.values
        for field in self._book.references[after.type]:
            value = after.values.get(field.name)
            if value is not None and value != old.get(field.name):
                self._watch_references(after, field, value)
        if self._blobs is not None:
            for field in self._book.blobs[after.type]:
                self._blobs.watch(before, after, field)
        if before is None:
            self._watch_new_ends(after)

    def watch_new(self, nodes: Mapping[str, NodeState]) -> None:
        """Check new nodes, by handle, as ``watch`` does, with fewer queries."""
        types = {node.type for node in nodes.values()}
        if any(self._book.references[each] for each in types):
            self._look_up(nodes.values())
        repeated = self._repeated_keys(nodes.values())
        plain = {
            each
            for each in types
            if not self._book.references[each]
            and not self._book.ends[each]
            and (self._blobs is None or not self._book.blobs[each])
            and self._schema.by_name[each].edge is None
        }
        for handle, node in with_pauses(nodes.items()):
            for slot in self._nodes.unique_slots(node.type) if repeated else ():
                for key in slot.extract(node.values):
                    if (slot.name, key) in repeated:
                        self._duplicates[slot.name, key] = slot.unique, handle
            if node.type not in plain:
                self._watch_others(None, node)

    def _repeated_keys(self, nodes: Iterable[NodeState]) -> set[tuple[str, bytes]]:
        """Which keys of these nodes several nodes have, with their slots that allow only one."""
        wanted: dict[str, set[bytes]] = {}
        for node in nodes:
            for slot in self._nodes.unique_slots(node.type):
                wanted.setdefault(slot.name, set()).update(slot.extract(node.values))
        return {
            (slot, key)
            for slot, keys in wanted.items()
            for key, count in self._nodes.count_keys(
                self._db, slot, sorted(keys - {MISSING})
            ).items()
            if count > 1
        }

    def _look_up(self, nodes: Iterable[NodeState]) -> None:
        """Find out which targets of references exist, many at a time."""
        wanted: set[str] = set()
        for node in nodes:
            for field in self._book.references[node.type]:
                value = node.values.get(field.name)
                if isinstance(value, tuple):
                    wanted.update(value)
                elif value is not None:
                    wanted.add(str(value))
        wanted -= self._known
        if len(self._known) + len(wanted) > _REMEMBERED:
            self._known.clear()
        self._known |= self._nodes.existing(self._db, sorted(wanted))

    def _watch_unique(self, before: NodeState | None, after: NodeState) -> None:
        for slot in self._nodes.unique_slots(after.type):
            keys = slot.extract(after.values)
            if before is not None and keys == slot.extract(before.values):
                continue
            for key in keys:
                if key != MISSING and len(self._nodes.holders(self._db, slot.name, key, 2)) > 1:
                    self._duplicates[slot.name, key] = slot.unique, after.handle

    def _watch_references(self, node: NodeState, field: PredicateDescriptor, value: object) -> None:
        for handle in value if isinstance(value, tuple) else (value,):
            if not self._reference_holds(field, str(handle)):
                self._dangling[node.handle, field.name, str(handle)] = field

    def _reference_holds(self, field: PredicateDescriptor, handle: str) -> bool:
        target = field.target or ""
        if not self._schema.is_a(handle.partition("/")[0], target):
            return False
        if handle in self._known:
            return True
        if not self._nodes.exists(self._db, handle):
            return False
        if len(self._known) < _REMEMBERED:
            self._known.add(handle)
        return True

    def _watch_new_ends(self, node: NodeState) -> None:
        descriptor = self._schema.by_name[node.type]
        if descriptor.edge is not None:
            for side in ("source", "target"):
                self._watch_count(node.type, side, str(node.values[side]))
        for edge, side, low, _ in self._book.ends[node.type]:
            if low:
                self._watch_count(edge, side, node.handle)

    def _watch_count(self, edge: str, side: str, handle: str) -> None:
        if self._count_error(edge, side, handle) is not None:
            self._crowded.add((edge, side, handle))

    def _watch_deleted(self, node: NodeState) -> None:
        self._known.discard(node.handle)
        # A later reference to it is reported as a dangling reference.
        if next(self.inbound(node), None) is not None:
            self._gone[node.handle] = node
        if self._schema.by_name[node.type].edge is not None:
            for side in ("source", "target"):
                self._watch_count(node.type, side, str(node.values[side]))

    def inbound(self, node: NodeState) -> Iterator[tuple[str, PredicateDescriptor]]:
        """(handle, field) of every reference to a node."""
        key = handle_key(node.handle)
        for slot, field in self._book.pointers[node.type]:
            for holder in self._nodes.holders(self._db, slot, key):
                yield holder, field

    def weigh(self, large: Iterable[Replacement]) -> None:
        """Check the sizes of large nodes; a node that was larger before may stay so."""
        docs = self._nodes.docs
        for change in large:
            before, after = change.before, change.after
            if after is not None and size_error(docs, after) is not None:
                was = 0 if before is None else size_of(docs, before.state)
                self._oversized.setdefault(change.handle, was)

    def forget(self) -> None:
        """Forget all failed checks."""
        for suspects in (
            self._duplicates,
            self._dangling,
            self._gone,
            self._crowded,
            self._oversized,
        ):
            suspects.clear()
        if self._blobs is not None:
            self._blobs.forget()

    def watch_raw(self, added: bytes) -> None:
        """Note the blobs in statements that are not validated."""
        if self._blobs is not None:
            self._blobs.watch_raw(added)

    def named_blobs(self) -> set[str]:
        """The digests of the blobs that the write names."""
        return set() if self._blobs is None else self._blobs.digests(self._nodes, self._db)

    # --- the verdict -------------------------------------------------------------------

    def settle(self, errors: list[FieldError]) -> None:
        """Repeat all failed checks on the final state; add the remaining violations."""
        errors.extend(self.violations())

    def violations(self, *, each_reference: bool = False) -> Iterator[RuleError]:
        """Repeat all failed checks on the current state.

        ``each_reference`` reports references to what was deleted one by one, at their holders.
        """
        yield from self._duplicate_errors()
        yield from self._dangling_errors()
        yield from self._gone_references() if each_reference else self._gone_errors()
        for suspect in sorted(self._crowded):
            error = self._count_error(*suspect)
            if error is not None:
                yield error
        yield from self._size_errors()
        if self._blobs is not None:
            for handle, found in self._blobs.errors(*self._place):
                yield of_node(handle, found)

    def _size_errors(self) -> Iterator[RuleError]:
        for handle, allowed in self._oversized.items():
            stored = self._nodes.find(self._db, handle)
            error = None if stored is None else size_error(self._nodes.docs, stored.state, allowed)
            if error is not None:
                yield of_node(handle, error)

    def _duplicate_errors(self) -> Iterator[RuleError]:
        for (slot, key), (fields, newcomer) in self._duplicates.items():
            error = duplicate_error(self._nodes, self._db, slot, key, fields, newcomer)
            if error is not None:
                yield error

    def _dangling_errors(self) -> Iterator[RuleError]:
        hints = 0
        for (holder, name, handle), field in self._dangling.items():
            stored = self._nodes.find(self._db, holder)
            value = None if stored is None else stored.state.values.get(name)
            points = handle in value if isinstance(value, tuple) else handle == value
            if points and not self._reference_holds(field, handle):
                there = self._is_seen(handle)
                hint = ""
                if hints < _SHOWN:  # each costs some searches
                    hints += 1
                    hint = self.suggest(field.target or "", unquote(handle.partition("/")[2]))
                yield dangling_error(holder, field, handle, there=there, hint=hint)

    def _is_seen(self, handle: str) -> bool:
        stored, schema_filter = self._nodes.find(self._db, handle), self._visible.schema_filter
        return stored is not None and (
            schema_filter is None or schema_filter.apply(stored.state) is not None
        )

    def suggest(self, target: str, identifier: str) -> str:
        """A hint for a message about a missing node: similar nodes."""
        if target not in self._visible.schema.by_name:
            return ""
        return f"; {suggest_nodes(self._visible, target, identifier)}"

    def _gone_references(self) -> Iterator[RuleError]:
        for handle, node in self._gone.items():
            if not self._nodes.exists(self._db, handle):
                for holder, field in self.inbound(node):
                    yield dangling_error(holder, field, handle, there=False)

    def _gone_errors(self) -> Iterator[RuleError]:
        for handle, node in self._gone.items():
            if self._nodes.exists(self._db, handle):
                continue
            users = list(self.inbound(node))
            if users:
                shown = ", ".join(f"{user}.{field.name}" for user, field in users[:_SHOWN])
                more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
                verb = "refers" if len(users) == 1 else "refer"
                yield RuleError(
                    users[0][1].name,
                    "in_use",
                    f"{handle} can't be deleted while {shown}{more} {verb} to it; change that "
                    "first, or delete with cascade",
                    handle,
                    [user for user, _ in users[:_SHOWN]],
                    nodes=(handle,),
                    others=tuple(user for user, _ in users),
                )

    def _count_error(self, edge: str, side: str, handle: str) -> RuleError | None:
        for name, end, low, high in self._book.ends.get(handle.partition("/")[0], ()):
            if name == edge and end == side and self._nodes.exists(self._db, handle):
                found = self._nodes.count_key(
                    self._db, slot_name(edge, (side,)), handle_key(handle)
                )
                return count_error(edge, side, handle, (low, high), found)
        return None


def duplicate_error(
    nodes: NodeIndex,
    db: sqlite3.Connection,
    slot: str,
    key: bytes,
    fields: tuple[str, ...],
    newcomer: str | None = None,
) -> RuleError | None:
    """Several nodes have the same key; ``newcomer`` is the last one."""
    holders = nodes.holders(db, slot, key, _SHOWN)
    if len(holders) < 2:
        return None
    stored = nodes.find(db, holders[-1])
    values = {} if stored is None else stored.state.values
    shown = [values.get(name) for name in fields]
    return RuleError(
        fields[0] if len(fields) == 1 else ", ".join(fields),
        "unique",
        f"{' and '.join(fields)} must be unique: {', '.join(map(repr, shown))} is shared by "
        f"{', '.join(holders)}",
        str(shown[0]) if len(shown) == 1 else [str(each) for each in shown],
        list(fields),
        nodes=tuple(sorted(holders, key=lambda handle: handle == newcomer)),
    )


def dangling_error(
    holder: str, field: PredicateDescriptor, handle: str, *, there: bool, hint: str = ""
) -> RuleError:
    """A dangling reference, or one to a node of another type; ``hint`` ends the message."""
    wanted = with_article(field.target or "node")
    why = f"which is not {wanted}" if there else "which does not exist"
    return RuleError(
        field.name,
        "reference",
        f"{field.name} must refer to {wanted}; {holder} refers to {handle}, {why}{hint}",
        handle,
        field.target,
        nodes=(holder,),
        others=(handle,),
    )


def count_error(
    edge: str, side: str, handle: str, limits: tuple[int, int | None], found: int
) -> RuleError | None:
    """A node has too few or too many edges of a type; None if the number is legal."""
    low, high = limits
    if found < low:
        least = count(low, f"{edge} edge")
        message = f"{handle} needs at least {least} as {side}, not {found}"
        return RuleError(side, "min_count", message, handle, low, (handle,), edge=edge)
    if high is not None and found > high:
        most = count(high, f"{edge} edge")
        message = f"{handle} may have at most {most} as {side}, not {found}"
        return RuleError(side, "max_count", message, handle, high, (handle,), edge=edge)
    return None
