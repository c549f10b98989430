"""What one actor may see and change on one graph.

``Access`` is the seam: the engine asks it, then hides or refuses. ``WriteGuard`` limits the
writes of an actor with partial access: it checks them against the visible types and leaves hidden
values as they are. A write whose outcome depends on hidden data (a unique value, a node that is
referred to) is always refused, because the outcome would reveal that data. For the same reason a
merge requires access to all types and fields of both sides. Names of branches and commits are
resolved in ``refs``.
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
    """One actor's permissions on one graph."""

    @property
    def unrestricted(self) -> bool:
        """Whether the actor may see and do everything; then no question needs to be asked."""
        ...

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Whether an action on the graph is allowed on a branch."""
        ...

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """The visible part of a schema on any of these branches (a snapshot can be on several)."""
        ...


class Unrestricted:
    """Full access, for example of programs that open the project themselves."""

    unrestricted = True

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Allow every action."""
        del action, branch, target
        return True

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """Hide nothing."""
        del schema, branches
        return FULL


OPEN: Final[Access] = Unrestricted()


def check_credential(graph: Graph, call: CallRecord | None) -> None:
    """Refuse if the caller's credential was revoked or expired during the request."""
    caller = None if call is None else call.caller
    if caller is not None and not graph.is_current(caller):
        raise RevokedError(
            "your credential was revoked or expired during this request; nothing was written. "
            "Retry with a valid one"
        )


def check_wanted(call: CallRecord | None) -> None:
    """Stop the work if the caller has disconnected."""
    if call is not None and call.abandoned:
        raise AbandonedError("the caller disconnected before this was done; nothing was written")


def check_write_time(graph: Graph, call: CallRecord | None) -> None:
    """Refuse a write if the caller's recent writes blocked other writers for too long."""
    caller = None if call is None else call.caller
    over = graph.blocking.excess(caller.name) if caller is not None and is_limited(caller) else None
    if caller is not None and over is not None:
        most = graph.blocking.limit
        raise BudgetError(
            f"the writes of {caller.name} blocked other writers for {over.used:.1f} s within a "
            f"minute; the limit is {most:g} s (write_seconds_per_minute in "
            f"[graphs.{graph.name}.budgets]). Try again in {over.retry_after} s, with smaller "
            "writes",
            limit="write_seconds_per_minute",
            allowed=most,
            used=round(over.used, 3),
            retry_after=over.retry_after,
        )


def most_seconds(graph: Graph, call: CallRecord | None) -> float:
    """How many seconds a write of a call may block other writers; 0 means no limit."""
    caller = None if call is None else call.caller
    return graph.write_seconds if is_limited(caller) else 0.0


_NOTHING: Final = "; nothing was written"


def check_change(access: Access, branch: str) -> None:
    """Refuse a write to a branch that the actor may not change."""
    if not access.may("Change", branch):
        raise ForbiddenError(f"you may not change branch {branch!r}{_NOTHING}", branch=branch)


def refuse_text() -> ForbiddenError:
    """The refusal of SPARQL text from an actor with partial access."""
    return ForbiddenError(
        "SPARQL text can name anything, so it requires access to all types and fields; use typed "
        f"operations, or save nodes{_NOTHING}"
    )


class _Plan(msgspec.Struct, frozen=True):
    """What a guard refuses and preserves for nodes of one type."""

    create: bool
    """Whether creating a node could reveal hidden data."""
    delete: bool
    """Whether deleting a node could."""
    given: frozenset[str]
    """Fields that could, if a new node sets them."""
    changed: frozenset[str]
    """Fields that could, if their value changes."""
    partial: frozenset[str]
    """Fields that may refer to hidden nodes among others; they keep their values."""
    hidden: frozenset[str]
    """Hidden fields, which keep their values."""
    defaults: Mapping[str, object]
    """The values of hidden fields in a new node."""


class WriteGuard:
    """Limits one actor's writes to what it may see and change of one schema."""

    def __init__(self, full: CompiledSchema, visibility: Visibility) -> None:
        self.visible = full
        """The visible part of the schema."""
        self._fixed = visibility.fixed
        self.schema_filter = None if visibility.reads_all else visibility.filter(full.schema)
        """Filters nodes for this actor; None if nothing is hidden."""
        self._plans: dict[str, _Plan] = {}
        if self.schema_filter is not None:
            self.visible = compile_once(self.schema_filter.schema, full.terms.names)
            rules = _HiddenRules(full, self.schema_filter)
            self._plans = {each.name: rules.plan(each) for each in self.schema_filter.schema.types}

    @property
    def reads_all(self) -> bool:
        """Whether nothing is hidden."""
        return self.schema_filter is None

    # --- visible and hidden values --------------------------------------------------------

    def show(self, stored: Stored | None) -> Stored | None:
        """The visible part of a node; None if the whole node is hidden."""
        if stored is None or self.schema_filter is None:
            return stored
        state = self.schema_filter.apply(stored.state)
        return None if state is None else msgspec.structs.replace(stored, state=state)

    def complete(self, before: Stored | None, after: NodeState) -> NodeState:
        """A node as the actor wrote it, plus the hidden values that it keeps."""
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

    # --- refusals -----------------------------------------------------------------------------

    def check_type(self, type_name: str) -> None:
        """Refuse to change nodes of a type that the actor may only read."""
        if type_name in self._fixed and type_name in self.visible.schema.by_name:
            raise ForbiddenError(
                f"you have read-only access to {type_name}{_NOTHING}", type=type_name
            )

    def check(self, before: NodeState | None, after: NodeState | None) -> None:
        """Refuse a change of one node (with all its fields) that the actor may not make."""
        node = after if after is not None else before
        if node is None:
            return
        self.check_type(node.type)
        if self.schema_filter is not None and _meets(self._plans.get(node.type), before, after):
            raise ForbiddenError(
                f"refused: this change of {node.type} could reveal data that you cannot see; "
                f"ask an administrator{_NOTHING}",
                type=node.type,
            )


def _meets(plan: _Plan | None, before: NodeState | None, after: NodeState | None) -> bool:
    """Whether the outcome of a change could depend on hidden data."""
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
    """The guard of an actor on a branch; None if the actor may see and change all types."""
    visibility = access.visibility(full.schema, (branch,))
    if visibility.reads_all and not visibility.fixed:
        return None
    key = (full.terms.names, full.schema.digest, visibility.key, visibility.fixed)
    return _guards.get(key, lambda: WriteGuard(full, visibility))


_guards: Final[LRUCache[Hashable, WriteGuard]] = LRUCache(64)


class _HiddenRules:
    """Finds the rules of a schema that involve hidden types, fields or nodes."""

    def __init__(self, full: CompiledSchema, schema_filter: SchemaFilter) -> None:
        self._full = full
        self._schema = full.schema
        self._schema_filter = schema_filter
        self._visible = schema_filter.schema.by_name

    def _hides(self, type_name: str, field: str) -> bool:
        """Whether a field is hidden for at least some nodes of exactly this type."""
        visible = self._visible.get(type_name)
        return (
            visible is None
            or field not in visible.by_name
            or type_name in self._schema_filter.partial_edges
        )

    def plan(self, visible: TypeDescriptor) -> _Plan:
        """The plan for nodes of a visible type."""
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
        """The values of hidden fields in a new node, and whether their own rules refuse them."""
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
        """Whether values must be unique among nodes some of which are hidden."""
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
        """Whether a cardinality rule counts edges of this type, including hidden ones."""
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
        """Whether a node requires edges that are, or may be, hidden."""
        return any(
            least > 0 and (edge not in self._visible or edge in self._schema_filter.partial_edges)
            for edge, _, least, _ in self._full.rules.ends[type_name]
        )

    def _is_pointed_at(self, type_name: str) -> bool:
        """Whether hidden values may refer to nodes of a type, or are counted with those that do."""
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
    """The fields whose values are unique; the key of an edge is not, without its ends."""
    key = declared.id_field
    return [each.name for each in declared.fields if each.unique or each is key]


def check_merge_visibility(access: Access, checkout: Checkout, branches: tuple[str, ...]) -> None:
    """Refuse to merge a side if any of its types or fields is hidden from the actor."""
    if not access.visibility(checkout.schema, branches).reads_all:
        raise ForbiddenError(
            "a merge requires access to all types and fields of both sides; ask an "
            f"administrator{_NOTHING}"
        )


def check_types(access: Access, target: str, mine: Schema, merged: Schema) -> None:
    """Refuse a change of types by an actor who may not make it, or may only read one of them."""
    if access.unrestricted or mine.digest == merged.digest:
        return
    if not access.may("SchemaApply", target):
        raise ForbiddenError(
            f"this changes the types of branch {target!r}, which needs the action SchemaApply "
            f"there{_NOTHING}",
            branch=target,
        )
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
    """Refuse to fast-forward a branch over changes that the actor may not make."""
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
                f"this would change {name} on {target!r}, to which you have read-only "
                f"access{_NOTHING}",
                type=name,
            )
