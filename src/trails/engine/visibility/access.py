"""Access: what one actor may do on one graph, as far as the engine asks.

A context carries one. The engine decides nothing: it asks, and hides or refuses.

Whether a write may go on: its caller can go away, and its credential can end, meanwhile.

Guards: what an actor who may not see or change everything may write.

For such an actor the graph is one without the hidden parts: what it writes is checked
against the types that it sees, and what is hidden in a node stays as it is. A rule that
hidden data could break (a value that must be unique, a node that must not be referred to)
is not tried, because its outcome would tell: the change is refused, whatever the data.

Mergers: what an actor needs to merge.

A merge changes its target by all that the source brings, and puts both sides together field by
field. From whom anything of either side is hidden, a conflict in it, and even that there is
none, would tell: so only those merge who see all types and fields of both. What they may not
change they can't bring in either.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

import msgspec

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.changes import net_between
from trails.engine.graph.checkouts import Checkout, CompiledSchema, compile_once
from trails.engine.graph.graph import Graph
from trails.errors import AbandonedError, BudgetError, FieldError, ForbiddenError, RevokedError
from trails.model.actors import is_limited
from trails.model.caches import LRUCache
from trails.model.capabilities import Action
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.model.visibility import FULL, SchemaFilter, Visibility
from trails.views.nodes.index import Stored


class Access(Protocol):
    """One actor's rights on one graph."""

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Whether an action on the graph is allowed on a branch."""
        ...

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """What is seen of some types on a branch; of a snapshot, on any branch that has it."""
        ...


class _Open:
    """Everything, for programs that open the project themselves."""

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Yes."""
        del action, branch, target
        return True

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """All of it."""
        del schema, branches
        return FULL


OPEN: Final[Access] = _Open()


def check_credential(graph: Graph, call: CallRecord | None) -> None:
    """Refuse to go on for a caller whose credential was revoked, or has expired, since it asked."""
    caller = None if call is None else call.caller
    if caller is not None and not graph.is_current(caller):
        raise RevokedError(
            "your credential was revoked or expired during this request; nothing was written. "
            "Retry with a valid one"
        )


def check_wanted(call: CallRecord | None) -> None:
    """Stop the work for a caller that has gone away."""
    if call is not None and call.abandoned:
        raise AbandonedError("the caller disconnected before this was done; nothing was written")


def check_write_time(graph: Graph, call: CallRecord | None) -> None:
    """Refuse a write to a caller whose writes have kept others waiting for too long lately."""
    caller = None if call is None else call.caller
    over = graph.blocking.excess(caller.name) if caller is not None and is_limited(caller) else None
    if caller is not None and over is not None:
        most = graph.blocking.limit
        raise BudgetError(
            f"the writes of {caller.name} kept other writers waiting for {over.used:.1f} s within "
            f"a minute, and {most:g} s are allowed (write_seconds_per_minute in "
            f"[graphs.{graph.name}.budgets]); try again in {over.retry_after} s, and write less at "
            "a time",
            limit="write_seconds_per_minute",
            allowed=most,
            used=round(over.used, 3),
            retry_after=over.retry_after,
        )


def most_seconds(graph: Graph, call: CallRecord | None) -> float:
    """How long a write of a call may keep others waiting; 0 where there is no limit."""
    caller = None if call is None else call.caller
    return graph.write_seconds if is_limited(caller) else 0.0


_NOTHING: Final = "; nothing was written"


def check_change(access: Access, branch: str) -> None:
    """Refuse to write on a branch that an actor may not change."""
    if access is not OPEN and not access.may("Change", branch):
        raise ForbiddenError(f"you may not change branch {branch!r}{_NOTHING}", branch=branch)


def refuse_text() -> ForbiddenError:
    """Why statements as text are not for those from whom something is hidden."""
    return ForbiddenError(
        "a SPARQL text can name anything, so it is not for actors that may not see all types and "
        f"fields; use typed operations, or save nodes{_NOTHING}"
    )


class _Plan(msgspec.Struct, frozen=True):
    """What is refused and what is kept for nodes of one type."""

    create: bool
    """Whether making one could meet what is hidden."""
    delete: bool
    """Whether deleting one could."""
    given: frozenset[str]
    """Fields that could, when a new node has a value for them."""
    changed: frozenset[str]
    """Fields that could, when a node gets another value for them."""
    partial: frozenset[str]
    """Fields that may refer to hidden nodes beside others; they stay as they are."""
    hidden: frozenset[str]
    """Fields that are kept as they are."""
    defaults: Mapping[str, object]
    """What hidden fields of a new node hold."""


class WriteGuard:
    """Stands between one actor's writes and a graph with certain types."""

    def __init__(self, full: CompiledSchema, visibility: Visibility) -> None:
        self.visible = full
        """The types as the actor sees them."""
        self._fixed = visibility.fixed
        self.schema_filter = None if visibility.reads_all else visibility.filter(full.schema)
        """How the actor sees nodes; None where nothing is hidden."""
        self._plans: dict[str, _Plan] = {}
        if self.schema_filter is not None:
            self.visible = compile_once(self.schema_filter.schema, full.terms.names)
            rules = _HiddenRules(full, self.schema_filter)
            self._plans = {each.name: rules.plan(each) for each in self.schema_filter.schema.types}

    @property
    def reads_all(self) -> bool:
        """Whether nothing is hidden."""
        return self.schema_filter is None

    # --- what is seen of a node, and what becomes of the rest --------------------------------

    def show(self, stored: Stored | None) -> Stored | None:
        """What the actor sees of a node; None for one that it does not see."""
        if stored is None or self.schema_filter is None:
            return stored
        state = self.schema_filter.apply(stored.state)
        return None if state is None else msgspec.structs.replace(stored, state=state)

    def complete(self, before: Stored | None, after: NodeState) -> NodeState:
        """A node that shall be as the actor wrote it, with what it does not see."""
        if self.schema_filter is None:
            return after
        plan = self._plans[after.type]
        if before is None:
            kept = plan.defaults
        else:
            old, shown = before.state.values, self.schema_filter.apply(before.state)
            kept = {name: old[name] for name in plan.hidden if name in old}
            for name in plan.partial:
                same = shown is not None and shown.values.get(name) == after.values.get(name)
                if same and name in old:
                    kept[name] = old[name]
        return NodeState(after.type, after.id, {**after.values, **kept}) if kept else after

    # --- what is refused ---------------------------------------------------------------------

    def check_type(self, type_name: str) -> None:
        """Refuse to touch nodes of a type that the actor may only read."""
        if type_name in self._fixed and type_name in self.visible.schema.by_name:
            raise ForbiddenError(
                f"You have read-only access to {type_name}{_NOTHING}", type=type_name
            )

    def check(self, before: NodeState | None, after: NodeState | None) -> None:
        """Refuse a change of one node, in all its fields, that is not the actor's to make."""
        node = after if after is not None else before
        if node is None:
            return
        self.check_type(node.type)
        if self.schema_filter is not None and _meets(self._plans.get(node.type), before, after):
            raise ForbiddenError(
                f"Refused: this change of {node.type} could reveal data that you cannot see. "
                f"Ask an administrator{_NOTHING}",
                type=node.type,
            )


def _meets(plan: _Plan | None, before: NodeState | None, after: NodeState | None) -> bool:
    """Whether a rule about hidden data could decide on a change."""
    if plan is None:
        return True
    if after is None:
        return plan.delete
    new = after.values
    if before is None:
        return plan.create or any(new.get(name) is not None for name in plan.given)
    old = before.values
    return any(new.get(name) not in (None, old.get(name)) for name in plan.changed) or any(
        new.get(name) != old.get(name) for name in plan.partial
    )


def guard_of(access: Access, branch: str, full: CompiledSchema) -> WriteGuard | None:
    """The guard of an actor on a branch; None for one that may see and change all types."""
    if access is OPEN:
        return None
    visibility = access.visibility(full.schema, (branch,))
    if visibility.reads_all and not visibility.fixed:
        return None
    key = (full.terms.names, full.schema.digest, visibility.key, visibility.fixed)
    return _guards.get(key, lambda: WriteGuard(full, visibility))


_guards: Final[LRUCache[Hashable, WriteGuard]] = LRUCache(64)


class _HiddenRules:
    """Finds the rules of a schema that hidden types, fields and nodes take part in."""

    def __init__(self, full: CompiledSchema, schema_filter: SchemaFilter) -> None:
        self._full = full
        self._schema = full.schema
        self._schema_filter = schema_filter
        self._visible = schema_filter.schema.by_name

    def _hides(self, type_name: str, field: str) -> bool:
        """Whether values of a field are hidden, at least for some nodes of exactly this type."""
        visible = self._visible.get(type_name)
        return (
            visible is None
            or field not in visible.by_name
            or type_name in self._schema_filter.partial_edges
        )

    def plan(self, visible: TypeDescriptor) -> _Plan:
        """What follows for nodes of a type that is seen."""
        name = visible.name
        declared = self._schema.by_name[name]
        hidden = declared.by_name.keys() - visible.by_name.keys()
        partial = self._schema_filter.partial_refs.get(name, frozenset())
        defaults, refused = self._defaults(declared, hidden)
        groups = [*((each,) for each in _distinct(declared)), *declared.unique]
        shared = {each for group in groups if self._spans_hidden(name, group) for each in group}
        torn = [group for group in declared.unique if not (hidden | partial).isdisjoint(group)]
        crowded = self._counts_hidden(name)
        key = declared.key
        return _Plan(
            create=refused
            or crowded
            or self._needs_hidden_edges(name)
            or (key is not None and key.name in shared)
            or not defaults.keys().isdisjoint(_distinct(declared))
            or any(gone <= defaults.keys() for group in torn if (gone := hidden & set(group))),
            delete=crowded or self._is_pointed_at(name),
            given=frozenset(shared - hidden),
            changed=frozenset(shared.union(*torn) - hidden),
            partial=partial,
            hidden=frozenset(hidden),
            defaults=defaults,
        )

    def _defaults(
        self, declared: TypeDescriptor, hidden: AbstractSet[str]
    ) -> tuple[dict[str, object], bool]:
        """What hidden fields of a new node hold, and whether a rule of their own refuses that."""
        given = {
            each: default
            for each in hidden
            if (default := declared.by_name[each].default) is not None
        }
        errors: list[FieldError] = []
        values = self._full.validator.check(declared.name, given, "", errors)
        wrong = {error.field.partition("[")[0] for error in errors}
        return {each: values[each] for each in hidden if each in values}, not wrong.isdisjoint(
            hidden
        )

    def _spans_hidden(self, type_name: str, group: tuple[str, ...]) -> bool:
        """Whether values must differ from those of other nodes, of which some are hidden."""
        holders = [
            each
            for each in self._schema.lineage(type_name)
            if all(field in self._schema.by_name[each].by_name for field in group)
        ]
        return any(
            self._hides(each, field)
            for each in self._schema.family(holders[-1])
            for field in group
            if each != type_name or each in self._schema_filter.partial_edges
        )

    def _counts_hidden(self, type_name: str) -> bool:
        """Whether edges of this type are counted, hidden ones among them."""
        edge = self._schema.by_name[type_name].edge
        return (
            edge is not None
            and (edge.per_source, edge.per_target) != ((0, None), (0, None))
            and any(
                each not in self._visible or each in self._schema_filter.partial_edges
                for each in self._schema.family(type_name)
            )
        )

    def _needs_hidden_edges(self, type_name: str) -> bool:
        """Whether a node must have edges that are hidden, or may be."""
        return any(
            least > 0 and (edge not in self._visible or edge in self._schema_filter.partial_edges)
            for edge, _, least, _ in self._full.rules.ends[type_name]
        )

    def _is_pointed_at(self, type_name: str) -> bool:
        """Whether hidden values may refer to nodes of a type, or count with those that do."""
        lineage = self._schema.lineage(type_name)
        return any(
            self._hides_pointer(each, field)
            for each in self._schema.types
            for field in each.fields
            if field.target in lineage
        )

    def _hides_pointer(self, declared: TypeDescriptor, field: PredicateDescriptor) -> bool:
        visible = self._visible.get(declared.name)
        if visible is None or field.name not in visible.by_name:
            return True
        if field.name in self._schema_filter.partial_refs.get(declared.name, ()):
            return field.many and field.min_count > 0
        edge = declared.edge
        if edge is None or field.name not in {"source", "target"}:
            return False
        other = edge.target if field.name == "source" else edge.source
        return not self._schema_filter.hidden.isdisjoint(self._schema.family(other))


def _distinct(declared: TypeDescriptor) -> list[str]:
    """The fields of which no two nodes may have the same value."""
    return [each.name for each in declared.fields if each.unique or each.key]


def check_merge_visibility(access: Access, checkout: Checkout, branches: tuple[str, ...]) -> None:
    """Refuse a side of which something is hidden, whatever it holds."""
    if access is not OPEN and not access.visibility(checkout.schema, branches).reads_all:
        raise ForbiddenError(
            "a merge is for actors that may see all types and fields of both sides; leave it to "
            "one who does. Nothing was written"
        )


def check_types(access: Access, target: str, mine: Schema, merged: Schema) -> None:
    """Refuse to change the declaration of a type that an actor may not change."""
    if access is OPEN or mine.digest == merged.digest:
        return
    _refuse_fixed(
        access,
        target,
        merged,
        (
            each.name
            for each in merged.types
            if mine.by_name.get(each.name) != each
            or mine.shapes_of(each.name) != merged.shapes_of(each.name)
        ),
    )
    _refuse_fixed(
        access, target, mine, (each.name for each in mine.types if each.name not in merged.by_name)
    )


def check_forward(graph: Graph, access: Access, checkout: Checkout, theirs: Checkout) -> None:
    """Refuse to move a branch forward over changes that its actor may not make."""
    if access is OPEN:
        return
    check_types(access, checkout.name, checkout.schema, theirs.schema)
    ours, end = checkout.nodes.position.commit, theirs.nodes.position.commit
    if any(access.visibility(each.schema, (checkout.name,)).fixed for each in (checkout, theirs)):
        names = {handle.partition("/")[0] for handle in net_between(graph, ours, end)}
        _refuse_fixed(
            access, checkout.name, theirs.schema, sorted(names & theirs.schema.by_name.keys())
        )
        _refuse_fixed(
            access, checkout.name, checkout.schema, sorted(names & checkout.schema.by_name.keys())
        )


def _refuse_fixed(access: Access, target: str, schema: Schema, names: Iterable[str]) -> None:
    fixed = access.visibility(schema, (target,)).fixed
    for name in names:
        if name in fixed:
            raise ForbiddenError(
                f"This merge would change {name} on {target!r}, to which you have read-only "
                f"access{_NOTHING}",
                type=name,
            )
