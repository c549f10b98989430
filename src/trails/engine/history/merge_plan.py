"""Work out one merge commit: the merged schema, the merged nodes, and the conflicts.

First the types are merged, then the nodes field by field, then the rules are checked on the
result. Resolutions settle conflicts. If one is missing, the merge continues with a side that
works, so that it can suggest resolutions for everything at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, get_args

from trails.engine.graph.changes import changed_reading, net_between, new_defaults, with_defaults
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.history.aligned_names import AlignedSides
from trails.engine.history.conflicts import (
    Sides,
    clash_id,
    concerned,
    of_schemas,
    schema_id,
    violation_id,
)
from trails.engine.history.three_way import Clash, Edit, Merge, common_state, three_way
from trails.engine.schema.merge import merge_schemas, with_field, with_type, without_idle_rules
from trails.engine.schema.rule_check import broken_around, broken_rules
from trails.engine.validation.rules import RuleError
from trails.engine.validation.validate import size_error, size_of
from trails.engine.visibility.access import Access, check_types
from trails.engine.write.edits import are_valid, change_types, check_states
from trails.engine.write.pending import DraftWrite
from trails.engine.write.write import Write
from trails.errors import (
    ConflictError,
    FieldError,
    ForbiddenError,
    NotFoundError,
    TransactionError,
    ValidationError,
)
from trails.model.fairness import with_pauses
from trails.model.history import (
    GENESIS,
    Conflict,
    ConflictKind,
    MergeRequest,
    MergeResult,
    Resolution,
    Side,
    Take,
)
from trails.model.nodes import NodeState, split_handle
from trails.model.types import Schema
from trails.model.values.lang_texts import split_part, with_part
from trails.views.nodes.index import Replacement, Stored
from trails.views.nodes.rows import handle_key, slot_name

_MANY: Final = 500
"""Changed nodes from which rules between them are checked only once, with the writer's lock."""
_ROUNDS: Final = 20
"""Rounds of resolving, since a resolution can cause new conflicts."""
_SIDES: Final[tuple[Side, ...]] = ("ours", "theirs")
States = dict[str, NodeState | None]


class Merging:
    """One merge inside a write or a draft."""

    def __init__(
        self,
        graph: Graph,
        write: Write | DraftWrite,
        theirs: Checkout,
        asked: MergeRequest,
        access: Access,
        aligned: AlignedSides | None = None,
        *,
        in_full: bool = True,
    ) -> None:
        """``aligned``: both sides under the same names, where one of them renamed something.

        Without ``in_full``, rules between nodes may be left to the write that follows.
        """
        self._in_full = in_full or asked.dry_run or aligned is not None
        self.stored: dict[str, Stored] = {}
        """Our nodes, of those that the other side changed."""
        self.states: States | None = None
        """The merged nodes, if rules between nodes are left to the write; else it has them."""
        self._aligned = aligned
        theirs = theirs if aligned is None else aligned.theirs
        self._graph = graph
        self._access = access
        self._write = write
        self._ours, self._theirs = write.checkout, theirs
        self._mine, self._other = write.checkout.schema, theirs.schema
        self._merged = self._mine
        """The merged types."""
        self._former: Schema | None = None
        """The target's types before the merge, if the merge changes them."""
        self._asked = asked
        self._taken: list[tuple[list[str], str, Side]] = []
        """(type, field) whose values come from one side."""
        self._used: set[str] = set()
        self._conflicts: dict[str, Conflict] = {}
        self._suggested: dict[str, Side] = {}
        self._supposing = False
        """Whether a resolution is missing, so that everything after it is a suggestion."""

    def run(self) -> MergeResult:
        """Merge everything in the write's transaction."""
        self._check_names()
        graph = self._graph
        ours, theirs = self._ours.nodes.position.commit, self._theirs.nodes.position.commit
        bases = graph.ancestry.bases(ours, theirs)
        self._merge_schemas(bases[0])
        if self._aligned is not None:
            net_ours, net_theirs = self._aligned.net_ours, self._aligned.net_theirs
        else:
            net_ours = net_between(graph, bases[0], ours)
            net_theirs = net_between(graph, bases[0], theirs)
        common = common_state(graph, bases, ours, self._ours_now, self._mine)
        merged = three_way(common, net_ours, net_theirs)
        handles = [*merged.edits, *(each.handle for each in merged.clashes)]
        self.stored = self._ours.nodes.find_all(self._write.nodes.db, handles)
        self._before = _states_of(self.stored, handles)
        schemas = (self._merged, self._mine, self._other)
        self._sides = Sides(graph, schemas, net_ours, net_theirs)
        states = self._edited(merged)
        if self._is_plain(merged, states):
            self.states = states
            return self._result(ours, bases, _count(self._before, states))
        self._settle_schemas(states)
        self._fill_defaults(states)
        counts = _count(self._before, states)
        try:
            self._change_schema(states)
            counts = self._settle(states)
        except (ForbiddenError, TransactionError, ValidationError):
            if not self._supposing:
                raise
            self._suggested.clear()
        return self._result(ours, bases, counts)

    def _is_plain(self, merged: Merge, states: States) -> bool:
        """Whether nothing is left to decide, except by rules between nodes when it is written.

        Those are left to the write if there is much to check, or if it can't break any.
        """
        if self._in_full or merged.clashes or self._mine.digest != self._other.digest:
            return False
        if len(states) < _MANY and any(
            self._write.nodes.rules.concern(self._before[handle], state)
            for handle, state in states.items()
        ):
            return False
        return are_valid(self._ours, states)

    def _result(self, ours: str, bases: list[str], counts: tuple[int, int, int]) -> MergeResult:
        conflicts = tuple(self._conflicts.values())
        return MergeResult(
            "conflicts" if conflicts else "merged",
            self._asked.source,
            self._asked.target,
            ours if conflicts else None,
            tuple(bases),
            *counts,
            conflicts=conflicts,
            dry_run=self._asked.dry_run,
            suggested=self._suggested if conflicts else {},
            unused=() if conflicts else tuple(sorted(set(self._asked.resolutions) - self._used)),
        )

    # --- decisions -------------------------------------------------------------------------

    def _check_names(self) -> None:
        """Refuse malformed conflict ids; ids of conflicts that do not arise are allowed."""
        kinds = get_args(ConflictKind)
        for identifier in self._asked.resolutions:
            if identifier.partition(":")[0] not in kinds:
                raise NotFoundError(
                    f"{identifier!r} is not the id of a conflict; take ids from the result of a "
                    "merge, such as 'divergent_field:Task/t1.title'",
                    conflict=identifier,
                )

    def _resolution(self, identifier: str) -> Resolution | None:
        found = self._asked.resolutions.get(identifier)
        if found is not None:
            self._used.add(identifier)
        elif self._asked.resolve_all is not None:
            found = Resolution(self._asked.resolve_all)
        return found

    def _side(self, identifier: str) -> Side | None:
        """The side that settles a conflict, for conflicts that take no value."""
        found = self._resolution(identifier)
        if found is None:
            return None
        if found.take == "value":
            raise _no_value(identifier)
        return found.take

    def _list(self, conflict: Conflict) -> None:
        """Record a conflict without a resolution; consequences of another are only suggested."""
        if not self._supposing:
            self._conflicts.setdefault(conflict.id, conflict)
        self._suggested.setdefault(conflict.id, "ours")

    # --- schemas ---------------------------------------------------------------------------

    def _merge_schemas(self, base_commit: str) -> None:
        if self._mine.digest == self._other.digest:
            return
        graph = self._graph
        if self._aligned is not None:
            base = self._aligned.base
        elif base_commit == GENESIS:
            base = Schema()
        else:
            base = graph.compiled(graph.ancestry.commit(base_commit).schema).schema
        self._base = base
        self._merged, torn = merge_schemas(
            base, self._mine, self._other, lambda name: self._side(schema_id(name))
        )
        for name in torn:
            self._list(of_schemas(name, "both sides changed it", base, self._mine, self._other))
        self._supposing = bool(torn)

    def _settle_schemas(self, states: States) -> None:
        """Take one side's declarations if the merged types can't hold the data."""
        for _ in range(_ROUNDS):
            lost = sorted(set(self._lost(states)))
            if not lost:
                return
            decided: list[tuple[str, str, Side]] = []
            for owner, field in lost:
                name = f"{owner}.{field}" if field else owner
                side = self._side(schema_id(name))
                if side is None:
                    side = self._side(schema_id(owner)) or "ours"
                    what = "one side removed or changed it, and the other uses it"
                    base, mine, other = self._base, self._mine, self._other
                    if self._side(schema_id(owner)) is None:
                        self._list(of_schemas(name, what, base, mine, other))
                decided.append((owner, field, side))
            self._supposing = self._supposing or bool(self._conflicts_of("schema"))
            for owner, field, side in decided:
                self._take(states, owner, field, side)

    def _fill_defaults(self, states: States) -> None:
        """Fill fields that are required in the merged types with their defaults."""
        if self._mine.digest == self._other.digest:
            return
        self._merged = without_idle_rules(self._merged)
        self._validator = self._graph.compile(self._merged).validator
        self._defaults = {each.name: new_defaults(None, each) for each in self._merged.types}
        for handle, state in states.items():
            states[handle] = self._with_defaults(state)
        for each in self._merged.types:
            before = self._mine.by_name.get(each.name)
            if before is None or not new_defaults(before, each):
                continue
            for state in self._ours.nodes.states(self._write.nodes.db, (each.name,)):
                if state.handle not in states:
                    self._before[state.handle] = state
                    states[state.handle] = self._with_defaults(state)

    def _with_defaults(self, state: NodeState | None) -> NodeState | None:
        if state is None or not self._defaults.get(state.type):
            return state
        return with_defaults(self._validator, self._defaults[state.type], state)

    def _conflicts_of(self, kind: str) -> list[Conflict]:
        return [each for each in self._conflicts.values() if each.kind == kind]

    def _lost(self, states: Mapping[str, NodeState | None]) -> Iterator[tuple[str, str]]:
        """(type, field) of values, and types of nodes, that the merged types can't read."""
        mine, other = (self._changed(schema) for schema in (self._mine, self._other))
        for handle, state in states.items():
            if state is None:
                continue
            ours = self._before_of(handle)
            held = {} if ours is None else ours.values
            if "" in (other if ours is None else mine).get(state.type, ()):
                yield state.type, ""
                continue
            for name, value in state.values.items():
                changed = mine if name in held and held[name] == value else other
                if name in changed.get(state.type, ()):
                    yield self._owner(state.type, name), name
        for type_name, changed_fields in mine.items():
            for state in self._ours.nodes.states(self._write.nodes.db, (type_name,)):
                if state.handle not in states:
                    if "" in changed_fields:
                        yield type_name, ""
                        break
                    for name in changed_fields & state.values.keys():
                        yield self._owner(type_name, name), name

    def _changed(self, schema: Schema) -> dict[str, set[str]]:
        """Type → fields of a side that the merged types read differently."""
        found = {
            each.name: {field for field, _ in changed_reading(schema, self._merged, each.name)}
            for each in schema.types
        }
        return {name: fields for name, fields in found.items() if fields}

    def _owner(self, type_name: str, field: str) -> str:
        """The type that declares a field."""
        for schema in (self._mine, self._other):
            declared = schema.by_name.get(type_name)
            if declared is not None and field in declared.by_name:
                return declared.by_name[field].declared_in or type_name
        return type_name

    def _take(self, states: States, owner: str, field: str, side: Side) -> None:
        """Take a type with its nodes, or a field with its values, from one side."""
        mine, other = self._mine, self._other
        if not field:
            self._merged = with_type(self._merged, owner, mine, other, side)
            states.update(self._side_states(side, self._handles_of([owner], states)))
            return
        family = [
            name
            for name in {*mine.by_name, *other.by_name}
            if any(name in each.by_name and owner in each.lineage(name) for each in (mine, other))
        ]
        self._merged = with_field(self._merged, owner, field, mine, other, side)
        self._taken.append((family, field, side))
        handles = self._handles_of(family, states)
        chosen, ours = self._side_states(side, handles), self._side_states("ours", handles)
        for handle in handles:
            current = states.get(handle, ours[handle])
            if current is None:
                continue
            wanted = chosen[handle]
            value = None if wanted is None else wanted.values.get(field)
            if current.values.get(field) != value:
                values = {name: each for name, each in current.values.items() if name != field}
                if value is not None:
                    values[field] = value
                states[handle] = NodeState(current.type, current.id, values)

    def _handles_of(self, types: Iterable[str], states: Mapping[str, object]) -> list[str]:
        """All nodes of types, on either side and in the merge so far."""
        names, db = set(types), self._write.nodes.db
        found = dict.fromkeys(each for each in states if each.partition("/")[0] in names)
        for checkout in (self._ours, self._theirs):
            for each in sorted(names & checkout.schema.by_name.keys()):
                found.update(dict.fromkeys(s.handle for s in checkout.nodes.states(db, (each,))))
        return list(found)

    def _side_states(self, side: Side, handles: list[str]) -> States:
        if side == "theirs":
            return self._theirs_now(handles)
        return {handle: self._before_of(handle) for handle in handles}

    def _before_of(self, handle: str) -> NodeState | None:
        """A node of the target, before its types change."""
        if handle not in self._before:
            self._before.update(self._states(self._ours, [handle]))
        return self._before[handle]

    def _change_schema(self, states: States) -> None:
        if self._merged.digest == self._mine.digest:
            return
        check_types(self._access, self._ours.name, self._mine, self._merged)
        change_types(self._write, states, self._merged)
        self._former = self._mine

    # --- fields ----------------------------------------------------------------------------

    def _edited(self, merged: Merge) -> States:
        """The merged nodes; clashes keep our side unless a resolution decides otherwise."""
        wanted = [handle for handle, edit in merged.edits.items() if edit.whole == "take"]
        wanted += [clash.handle for clash in merged.clashes]
        other = self._theirs_now(wanted)
        states: States = {
            handle: self._apply(edit, handle, other.get(handle))
            for handle, edit in with_pauses(merged.edits.items())
        }
        unreadable = (self._changed(self._mine), self._changed(self._other))
        for clash in merged.clashes:
            type_name = clash.handle.partition("/")[0]
            # A field with conflicting declarations is decided with its type.
            field = split_part(clash.field)[0]
            if field and any(field in each.get(type_name, ()) for each in unreadable):
                continue
            self._settle_clash(clash, states, other)
        return states

    def _settle_clash(self, clash: Clash, states: States, other: States) -> None:
        handle = clash.handle
        before = self._before[handle]
        resolution = self._resolution(clash_id(clash))
        if resolution is None:
            self._list(self._sides.of_clash(clash, before, other[handle]))
        elif not clash.field:
            if resolution.take == "value":
                raise _no_value(clash_id(clash))
            states[handle] = before if resolution.take == "ours" else other[handle]
        elif resolution.take == "value":
            current = states.get(handle, before)
            states[handle] = self._with(current, handle, clash.field, resolution.value)
        elif resolution.take == "theirs" and (current := states.get(handle, before)) is not None:
            # A value that violates a rule of the other side is a normal conflict.
            values = dict(current.values)
            with_part(values, clash.field, clash.theirs)
            states[handle] = NodeState(current.type, current.id, values)

    def _apply(self, edit: Edit, handle: str, theirs: NodeState | None) -> NodeState | None:
        ours = self._before[handle]
        if edit.whole == "take":
            return theirs
        if edit.whole == "delete" or ours is None:
            return None
        values = dict(ours.values)
        for name, (_, value) in edit.values.items():
            with_part(values, name, value)
        type_name, identifier = split_handle(handle)
        for name, members in edit.members.items():
            held = values.get(name)
            kept = held if isinstance(held, tuple) else ()
            left = {each for each in kept if members.get(each, True)}
            left |= {each for each, inside in members.items() if inside}
            values[name] = tuple(sorted(left, key=self._sort_key(type_name, name)))
            if not left:
                del values[name]
        return NodeState(type_name, identifier, values)

    def _sort_key(self, type_name: str, field: str) -> Callable[..., bytes] | None:
        for schema in (self._merged, self._mine, self._other):
            declared = schema.by_name.get(type_name)
            if declared is not None and field in declared.by_name:
                row = declared.by_name[field].type.scalar.row
                return None if row is None else row.sort_key
        return None

    def _with(
        self, state: NodeState | None, handle: str, field: str, value: object
    ) -> NodeState | None:
        """A node with one field replaced; the value may be in JSON form."""
        if state is None:
            return None
        values = dict(state.values)
        with_part(values, field, value)
        field = split_part(field)[0]
        errors: list[FieldError] = []
        validator = self._graph.compile(self._merged).validator
        checked = validator.check(state.type, values, f"{handle}.", errors)
        refused = [each for each in errors if _last_name(each.field) == field]
        if refused:
            raise ValidationError(refused)
        if field in checked:
            values[field] = checked[field]
        elif field in values:
            del values[field]
        return NodeState(state.type, state.id, values)

    # --- rules -----------------------------------------------------------------------------

    def _settle(self, states: States) -> tuple[int, int, int]:
        """Put the nodes and settle violated rules by the resolutions."""
        left: list[RuleError] = []
        for _ in range(_ROUNDS):
            left = list(self._violations(states))
            again = False
            for violation in left:
                resolution = self._resolution(violation_id(violation))
                if resolution is not None:
                    again |= self._resolve(states, violation, resolution)
            if not again:
                break
        counts = _count(self._ours_before(list(states)), states)
        # Violations that remain, even if a resolution was given.
        for violation in left:
            self._list(self._of_violation(violation))
        if self._conflicts:
            self._supposing = True
            self._suppose(states, left)
        return counts

    def _suppose(self, states: States, left: list[RuleError]) -> None:
        """Settle everything that is left, with its consequences, and suggest how."""
        known, begun = dict(self._suggested), dict(states)
        for violation in left:
            known.pop(violation_id(violation), None)
        for preferred in (_SIDES, _SIDES[::-1]):
            self._suggested = dict(known)
            if self._settles(states, left, preferred):
                return
            restored = self._ours_before([each for each in states if each not in begun])
            states.clear()
            states.update(restored | begun)
            left = list(self._violations(states))
        self._suggested = {}

    def _settles(self, states: States, left: list[RuleError], preferred: tuple[Side, ...]) -> bool:
        """Whether everything is settled by preferring one side, else the other."""
        tried: dict[str, list[Side]] = {}
        for _ in range(_ROUNDS):
            for violation in left:
                identifier = violation_id(violation)
                sides = tried.setdefault(identifier, [])
                settling = self._sides_that_settle(violation)
                choice = [each for each in preferred if each in settling and each not in sides]
                if not choice:
                    return False
                sides.append(choice[0])
                self._suggested[identifier] = choice[0]
                states.update(self._chosen(violation, choice[0]))
            left = list(self._violations(states))
            if not left:
                return True
        return False

    def _violations(self, states: Mapping[str, NodeState | None]) -> Iterator[RuleError]:
        """Violations of the merged nodes, and of other nodes under rules that are new to them."""
        found = {violation_id(each): each for each in check_states(self._write.nodes, states)}
        ours, db = self._ours, self._write.nodes.db
        if self._former is not None:
            for each in broken_rules(ours.nodes, db, ours.compiled, [self._former]):
                found.setdefault(violation_id(each), each)
        yield from found.values()

    def _resolve(self, states: States, violation: RuleError, resolution: Resolution) -> bool:
        """Apply a resolution to the nodes of a violation; return whether anything changed."""
        if resolution.take == "value":
            identifier = violation_id(violation)
            field = _last_name(violation.field)
            if not self._takes_value(violation):
                raise _no_value(identifier)
            holder = concerned(violation)[0]
            current = states.get(holder) or self._ours_now([holder])[holder]
            chosen: States = {holder: self._with(current, holder, field, resolution.value)}
        else:
            chosen = self._chosen(violation, resolution.take)
        changed = any(states.get(each, ...) != state for each, state in chosen.items())
        states.update(chosen)
        return changed

    def _chosen(self, violation: RuleError, side: Side) -> States:
        """The nodes of a violation as one side has them."""
        handles = concerned(violation)
        if violation.edge:
            handles += self._edges(violation)
        theirs = side == "theirs"
        states = self._theirs_now(handles) if theirs else self._ours_before(handles)
        if self._mine.digest == self._other.digest:
            return states
        changed = self._changed(self._other if theirs else self._mine)
        return {handle: self._fitted(handle, each, changed) for handle, each in states.items()}

    def _fitted(
        self, handle: str, state: NodeState | None, changed: Mapping[str, set[str]]
    ) -> NodeState | None:
        """A side's node without the values that the merged types can't read.

        What was taken from one side with its declaration is taken for every node.
        """
        if state is None or "" in changed.get(state.type, ()):
            return None
        unread = changed.get(state.type, set())
        values = {name: each for name, each in state.values.items() if name not in unread}
        for types, field, side in self._taken:
            if state.type in types:
                chosen = self._theirs_now([handle]) if side == "theirs" else self._before
                found = chosen.get(handle)
                values.pop(field, None)
                if found is not None and field in found.values:
                    values[field] = found.values[field]
        return self._with_defaults(NodeState(state.type, state.id, values))

    def _edges(self, violation: RuleError) -> list[str]:
        """The edges of a type that a node has on either side or now."""
        slot, side = slot_name(violation.edge, (violation.field,)), violation.field
        key, db = handle_key(violation.nodes[0]), self._write.nodes.db
        found = [
            *self._ours.nodes.holders(db, slot, key),
            *self._theirs.nodes.holders(db, slot, key),
        ]
        for handle, before, _ in self._write.nodes.edits.differences():
            if before is None or before.values.get(side) != violation.nodes[0]:
                continue
            if self._mine.is_a(before.type, violation.edge):
                found.append(handle)
        return list(dict.fromkeys(found))

    def _of_violation(self, violation: RuleError) -> Conflict:
        holder = concerned(violation)[0]
        takes: tuple[Take, ...] = self._sides_that_settle(violation)
        if self._takes_value(violation):
            takes = (*takes, "value")
        if violation.edge:
            edges = self._edges(violation)
            mine, other = (
                [
                    handle
                    for handle, state in states.items()
                    if state is not None and state.values.get(violation.field) == holder
                ]
                for states in (self._ours_before(edges), self._theirs_now(edges))
            )
            return self._sides.of_edges(violation, mine, other, takes)
        return self._sides.of_violation(
            violation,
            self._ours_before([holder])[holder],
            self._theirs_now([holder])[holder],
            takes,
        )

    def _takes_value(self, violation: RuleError) -> bool:
        """Whether a different value of one field can settle a violation."""
        field, type_name = _last_name(violation.field), violation.nodes[0].partition("/")[0]
        declared = self._merged.by_name.get(type_name)
        if violation.edge or declared is None or field not in declared.by_name:
            return False
        if declared.edge is not None and field in {"source", "target"}:
            return False
        return not declared.by_name[field].key

    def _sides_that_settle(self, violation: RuleError) -> tuple[Side, ...]:
        """The sides whose nodes satisfy the rule; tried out and undone."""
        return tuple(side for side in _SIDES if self._resolves(violation, side))

    def _resolves(self, violation: RuleError, side: Side) -> bool:
        nodes, chosen = self._write.nodes, self._chosen(violation, side)
        if violation.code == "max_size":
            return not self._is_oversized(chosen)
        held = self._ours_now(list(chosen))
        self._try(chosen)
        found = list(broken_around(nodes.index, nodes.db, self._ours.compiled, list(chosen)))
        self._try(held)
        return not any(_is_same(violation, each) for each in found)

    def _is_oversized(self, states: States) -> bool:
        """Whether one of these nodes is too large, and larger than ours."""
        docs, before = self._write.nodes.index.docs, self._ours_before(list(states))
        for handle, state in states.items():
            ours = before[handle]
            allowed = 0 if ours is None else size_of(docs, ours)
            if state is not None and size_error(docs, state, allowed) is not None:
                return True
        return False

    def _try(self, states: Mapping[str, NodeState | None]) -> None:
        """Put nodes into the index only; a merge with conflicts is rolled back anyway."""
        nodes = self._write.nodes
        stored = nodes.index.find_all(nodes.db, list(states))
        for handle, state in states.items():
            before = stored.get(handle)
            if (None if before is None else before.state) != state:
                nodes.index.put_all(nodes.seq, [Replacement(before, handle, state)])

    # --- nodes -----------------------------------------------------------------------------

    def _states(self, checkout: Checkout, handles: list[str]) -> States:
        return _states_of(checkout.nodes.find_all(self._write.nodes.db, handles), handles)

    def _ours_now(self, handles: list[str]) -> States:
        return self._states(self._ours, handles)

    def _theirs_now(self, handles: list[str]) -> States:
        return self._states(self._theirs, handles)

    def _ours_before(self, handles: list[str]) -> States:
        """The state of nodes before this write."""
        now_there = self._states(self._ours, handles)
        edits = self._write.nodes.edits
        return {handle: edits.before(handle, now_there[handle]) for handle in handles}


def _states_of(found: Mapping[str, Stored], handles: Iterable[str]) -> States:
    return {
        handle: found[handle].state if handle in found else None
        for handle in dict.fromkeys(handles)
    }


def _is_same(one: RuleError, two: RuleError) -> bool:
    """Whether two violations are of the same rule and share nodes."""
    rules = [(each.code, each.edge, _last_name(each.field)) for each in (one, two)]
    if rules[0] != rules[1] or not {*one.nodes} & {*two.nodes}:
        return False
    return one.code != "reference" or one.others == two.others


def _count(
    before: Mapping[str, NodeState | None], states: Mapping[str, NodeState | None]
) -> tuple[int, int, int]:
    created = updated = deleted = 0
    for handle, state in states.items():
        old = before.get(handle)
        created += old is None and state is not None
        deleted += old is not None and state is None
        updated += old is not None and state is not None and old != state
    return created, updated, deleted


def _last_name(path: str) -> str:
    return split_part(path.rpartition(".")[2].partition("[")[0])[0]


def _no_value(identifier: str) -> ConflictError:
    return ConflictError(
        f"{identifier} can't be settled by a value; resolve it with 'ours' or 'theirs'",
        conflict=identifier,
    )
