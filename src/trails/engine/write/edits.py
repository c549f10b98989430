"""Change the nodes of a write: one by one, streamed in chunks, to given states, or by statements.

Every function works on the ``PendingNodes`` of an open write or draft. ``put`` and ``remove``
change one node, ``put_all`` and ``remove_all`` stream many in constant memory, and
``apply_states``, ``check_states`` and ``put_states`` take states from statements or a merge.
``apply_statements`` finds the nodes that RDF statements describe; raw statements and SPARQL Updates
both end there, as statements to remove and to add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol, cast

import msgspec
import pyoxigraph as ox

from trails.engine.graph.changes import changed_reading
from trails.engine.graph.checkouts import Checkout
from trails.engine.validation.rules import RuleError, of_node
from trails.engine.visibility.access import refuse_text
from trails.engine.write.lists import touches_lists, whole_lists
from trails.engine.write.pending import CHUNK, PendingNodes
from trails.engine.write.puts import Put, check_put, check_puts, misnamed, settle_put
from trails.engine.write.write import Write
from trails.errors import FieldError, NotFoundError, QueryError, ValidationError
from trails.model.constraints import showable
from trails.model.fairness import give_way, with_pauses, without_collections
from trails.model.history import Position
from trails.model.iris import RDF_TYPE, Names
from trails.model.nodes import NodeState
from trails.model.sparql.tokens import text_of, tokenize, update_form
from trails.model.texts import with_article
from trails.model.types import PredicateDescriptor, Schema
from trails.model.values.lang_texts import LangText
from trails.views.lines import Change
from trails.views.nodes.index import NodeIndex, Replacement, Stored
from trails.views.terms import Tagged, Terms


def put(
    nodes: PendingNodes, change: Put, *, prefix: str = "", alone: bool = False
) -> NodeState | None:
    """Create or change one node now; violations of its own rules raise at once.

    With ``alone``, no later change could repair a rule between nodes, so a refusal lists
    violations of those rules as well.
    """
    nodes.check_type(change.type)
    visible = nodes.visible
    wanted = check_put(visible.schema, visible.validator, change, prefix, nodes.exist)
    before = None
    if wanted.handle is not None:
        before = nodes.index.find(nodes.db, wanted.handle)
    state = settle_put(visible.schema, change, wanted, nodes.shown(before))
    if state is not None and (alone or not wanted.errors):
        nodes.store(before, state.handle, nodes.completed(before, state))
    if wanted.errors:
        if alone:
            nodes.rules.settle(wanted.errors)
        raise ValidationError(wanted.errors)
    return state


def remove(nodes: PendingNodes, handle: str, *, cascade: bool) -> None:
    """Delete a node; with ``cascade`` release its references, else the write's end refuses them."""
    pending = [handle]
    while pending:
        current = pending.pop()
        before = nodes.index.find(nodes.db, current)
        if nodes.shown(before) is None or before is None:
            if current == handle:
                raise NotFoundError(f"{handle} does not exist", handle=handle)
            continue
        nodes.store(before, current, None)
        if cascade:
            pending.extend(_release(nodes, before.state))


def _release(nodes: PendingNodes, gone: NodeState) -> Iterator[str]:
    """Clear the references to a deleted node; yield the nodes that require theirs."""
    for holder, field in list(nodes.rules.inbound(gone)):
        stored = nodes.index.find(nodes.db, holder)
        if stored is None:
            continue
        left = _without(stored.state, field, gone.handle)
        if left is None:
            yield holder
        else:
            nodes.release(stored, holder, left)


def _without(state: NodeState, field: PredicateDescriptor, handle: str) -> NodeState | None:
    """The node without one reference; None if the reference is required."""
    values = dict(state.values)
    if field.many:
        left = tuple(each for each in values.get(field.name, ()) if each != handle)  # type: ignore[attr-defined]
        if len(left) < field.min_count:
            return None
        values[field.name] = left
        if not left:
            del values[field.name]
    elif field.required:
        return None
    else:
        values.pop(field.name, None)
    return NodeState(state.type, state.id, values)


MAX_ERRORS: Final = 1000
"""A batch stops after this many violations."""

Done = Callable[[Put, NodeState], None]
"""Called for each node that was put, with the state visible to the actor."""


def put_all(
    nodes: PendingNodes,
    changes: Iterable[Put],
    done: Done,
    found: list[FieldError] | None = None,
) -> int:
    """Create or change many nodes, each at most once in a write; return their number.

    Violations are raised, or collected in ``found`` if the caller raises them later.
    """
    errors: list[FieldError] = [] if found is None else found
    count = 0
    stream = iter(changes)
    while chunk := list(islice(stream, CHUNK)):
        nodes.go_on()
        count += len(chunk)
        with without_collections():
            _put_chunk(nodes, chunk, errors, done)
        if len(errors) >= MAX_ERRORS:
            break
    if not errors or found is not None:
        return count
    nodes.rules.settle(errors)
    raise ValidationError(errors)


def _put_chunk(nodes: PendingNodes, chunk: list[Put], errors: list[FieldError], done: Done) -> None:
    puts = _settled(nodes, chunk, errors, done)
    # Refused nodes go into the index too, with their valid values: the rules between nodes
    # then check every node, and everything is rolled back.
    _apply(nodes, puts, are_valid=not errors)


def _apply(nodes: PendingNodes, puts: list[Replacement], *, are_valid: bool = True) -> None:
    """Put or delete many nodes, each of them at most once in the write."""
    nodes.rules.weigh(nodes.index.put_all(nodes.seq, puts))
    nodes.changes.add_puts(puts)
    changes = [(None if put.before is None else put.before.state, put.after) for put in puts]
    new = {put.handle: put.after for put in puts if put.before is None and put.after is not None}
    if are_valid and len(new) == len(puts):
        nodes.delta.stream_new(new)
    elif are_valid:
        nodes.delta.stream(changes)
    give_way()
    if len(new) == len(puts):
        nodes.rules.watch_new(new)
    else:
        for before, after in with_pauses(changes):
            nodes.rules.watch(before, after)


def _settled(
    nodes: PendingNodes, chunk: list[Put], errors: list[FieldError], done: Done
) -> list[Replacement]:
    """The replacements for those nodes of a chunk that are valid and would change."""
    types, guard = nodes.visible, nodes.guard
    if guard is not None:
        for name in dict.fromkeys(change.type for change in chunk):
            nodes.check_type(name)
    checked = check_puts(types.schema, types.validator, chunk)
    wanted = (
        list(checked)
        if checked is not None
        else [
            check_put(types.schema, types.validator, change, None, nodes.exist)
            for change in with_pauses(chunk)
        ]
    )
    handles = [each.handle for each in wanted if each.handle is not None]
    there = nodes.index.find_all(nodes.db, handles)
    seen: set[str] = set()
    puts: list[Replacement] = []
    for change, each in with_pauses(zip(chunk, wanted, strict=True)):
        before = None if each.handle is None else there.get(each.handle)
        shown = before if guard is None else guard.show(before)
        state = settle_put(types.schema, change, each, shown)
        errors.extend(each.errors)
        if state is None:
            continue
        handle = each.handle or ""
        if handle in seen or (before is not None and before.seq == nodes.seq):
            message = f"{handle} appears twice in this batch; give each node once"
            errors.append(FieldError(handle, "unique", message, handle))
            continue
        seen.add(handle)
        done(change, state)
        if guard is not None:
            state = guard.complete(before, state)
        if before is None or before.state.values != state.values:
            if guard is not None:
                nodes.check(None if before is None else before.state, state)
            puts.append(Replacement(before, handle, state))
    return puts


def remove_all(nodes: PendingNodes, handles: Iterable[str]) -> int:
    """Delete many nodes, none of which is put in the same write."""
    count = 0
    stream = iter(handles)
    while chunk := list(islice(stream, CHUNK)):
        nodes.go_on()
        there = nodes.index.find_all(nodes.db, chunk)
        for stored in there.values():
            nodes.check(stored.state, None)
        _apply(nodes, [Replacement(stored, handle, None) for handle, stored in there.items()])
        count += len(there)
    return count


States = Mapping[str, NodeState | None]
"""Handle → wanted state; None deletes the node."""


def apply_states(
    nodes: PendingNodes,
    states: States,
    errors: list[FieldError],
    *,
    validate: bool,
    alone: bool,
) -> None:
    """Bring nodes into given visible states (from RDF statements).

    ``validate`` checks them and adds to the ``errors`` found in the statements.
    """
    visible = nodes.visible
    for handle, state in states.items():
        before = nodes.index.find(nodes.db, handle)
        if state is not None and validate:
            checked = visible.validator.check(state.type, state.values, f"{handle}.", errors)
            errors.extend(misnamed(visible.schema, state))
            if not errors:
                state = NodeState(state.type, state.id, checked)  # noqa: PLW2901 - canonical values
        if state is not None:
            nodes.store(before, handle, nodes.completed(before, state))
        elif nodes.shown(before) is not None:
            nodes.store(before, handle, None)
    if errors:
        if alone:
            nodes.rules.settle(errors)
        raise ValidationError(errors)


def check_states(nodes: PendingNodes, states: States) -> list[RuleError]:
    """Bring nodes into states; return violations of their own rules and of those between nodes."""
    checkout, found = nodes.checkout, list[RuleError]()
    for at, (handle, state) in enumerate(with_pauses(states.items())):
        if at % CHUNK == 0:
            nodes.go_on()
        if state is not None:
            errors = list(misnamed(checkout.schema, state))
            checkout.validator.check(state.type, state.values, f"{handle}.", errors)
            found.extend(of_node(handle, error) for error in errors)
    put_states(nodes, states)
    found.extend(nodes.rules.violations(each_reference=True))
    return found


def are_valid(checkout: Checkout, states: States) -> bool:
    """Whether all states keep the rules of their own types, as ``check_states`` sees it."""
    types: dict[str, list[NodeState]] = {}
    for state in states.values():
        if state is not None:
            types.setdefault(state.type, []).append(state)
    for type_name, some in types.items():
        for at in range(0, len(some), CHUNK):
            give_way()
            chunk = some[at : at + CHUNK]
            if not checkout.validator.accepts_all(type_name, [each.values for each in chunk]):
                errors: list[FieldError] = []
                for each in with_pauses(chunk):
                    checkout.validator.check(each.type, each.values, "", errors)
                if errors:
                    return False
            if any(next(misnamed(checkout.schema, each), None) is not None for each in chunk):
                return False
    return True


class KnownNodes(msgspec.Struct, frozen=True):
    """The nodes of a branch, read before the write began."""

    position: Position | None
    """Where the node index was, before they were read; None if that is not known."""
    nodes: Mapping[str, Stored]

    def are_current(self, index: NodeIndex) -> bool:
        """Whether the index would give them again.

        Its position is another object after every write and whenever it was read anew.
        """
        return index.position is self.position


def put_states(nodes: PendingNodes, states: States) -> None:
    """Bring nodes into states that were checked before; the write's end checks them again."""
    for some in _chunks(nodes, states):
        nodes.store_all(_replacements(nodes.index.find_all(nodes.db, some), some, states))


def stream_states(nodes: PendingNodes, states: States, known: KnownNodes) -> None:
    """As ``put_states`` for nodes that the write changes in no other way.

    ``known`` has those of them that exist.
    """
    is_current = known.are_current(nodes.index)
    for some in _chunks(nodes, states):
        stored = known.nodes if is_current else nodes.index.find_all(nodes.db, some)
        puts = _replacements(stored, some, states)
        for put in puts if nodes.guard is not None else ():
            nodes.check(_state(put.before), put.after)
        with without_collections():
            _apply(nodes, puts)


def _chunks(nodes: PendingNodes, states: States) -> Iterator[list[str]]:
    handles = iter(states)
    while some := list(islice(handles, CHUNK)):
        nodes.go_on()
        yield some


def _replacements(
    stored: Mapping[str, Stored], handles: Sequence[str], states: States
) -> list[Replacement]:
    """What is to be put of some nodes."""
    puts = (Replacement(stored.get(handle), handle, states[handle]) for handle in handles)
    return [put for put in puts if _state(put.before) != put.after]


class Changeable(Protocol):
    """A write, or a draft of one."""

    nodes: PendingNodes

    def change_schema(self, schema: Schema) -> None:
        """Switch to other types."""


def change_types(write: Changeable, states: States, schema: Schema) -> None:
    """Give a branch other types, under which some stored values can't be read.

    ``states`` has every node that loses a value.
    """
    nodes, gone = write.nodes, list[NodeState]()
    handles = iter(states)
    while some := list(islice(handles, CHUNK)):
        for handle, stored in nodes.index.find_all(nodes.db, some).items():
            before = stored.state
            lost = {
                field for field, _ in changed_reading(nodes.checkout.schema, schema, before.type)
            }
            if not lost & {"", *before.values}:
                continue
            kept = {name: value for name, value in before.values.items() if name not in lost}
            if "" in lost or states[handle] is None:
                gone.append(before)
                nodes.store(stored, handle, None)
            else:
                nodes.store(stored, handle, NodeState(before.type, before.id, kept))
    write.change_schema(schema)
    # The rules of the new types were not notified of these deletions.
    for before in gone:
        if before.type in schema.by_name:
            nodes.rules.watch(before, None)


def bypass(nodes: PendingNodes, removed: bytes, added: bytes, counts: tuple[int, int]) -> None:
    """Log statements without validation."""
    nodes.delta.write_raw(removed, added, counts)
    nodes.changes.add_edits(nodes.edits)
    nodes.changes.add_everything()
    nodes.edits.clear()
    nodes.rules.forget()
    nodes.rules.watch_raw(added)


_RAW_FORMS: Final = "only INSERT DATA and DELETE DATA can be written raw"


def apply_statements(
    write: Write, removed: bytes, added: bytes, *, validate: bool, alone: bool
) -> None:
    """Bring the nodes of a write into the state that a delta (N-Quads) leaves them in.

    Without ``validate`` the statements are logged as they are.
    """
    nodes = write.nodes
    terms = nodes.visible.terms
    gone, come = list(terms.parse(removed)), list(terms.parse(added))
    if validate:
        gone, come = whole_lists(terms, gone, come, lambda handle: _state(nodes.find(handle)))
    elif touches_lists(terms, (*gone, *come)):
        raise QueryError("ordered lists can't be written raw; write them with validation")
    outside = [quad for quad in (*gone, *come) if not terms.describes(quad)]
    if outside and not nodes.sees_all:
        raise refuse_text()
    if outside and validate:
        _refuse_kinds(terms, outside)
        raise QueryError(
            f"{outside[0]} describes nothing that this graph's types declare; statements "
            "are about nodes of declared types, their classes and their fields"
        )
    states: dict[str, NodeState | None] = {}
    errors: list[FieldError] = []
    for handle, change in terms.changes(gone, come).items():
        before = _state(nodes.find(handle))
        state = states[handle] = terms.state_after(handle, before, change)
        if validate:
            if state is None and before is None and change.added:
                raise QueryError(f"{handle} does not exist; insert its class too")
            errors.extend(_crowded(terms.schema, handle, before, change))
    if validate:
        _check_classes(terms, gone, come, states)
    try:
        apply_states(nodes, states, errors, validate=validate, alone=alone)
    except ValidationError:
        nodes.spoil()  # the states are stored: a surrounding transaction must not commit them
        raise
    if not validate:
        bypass(nodes, removed, added, (len(gone), len(come)))


def _state(stored: Stored | None) -> NodeState | None:
    return None if stored is None else stored.state


def _refuse_kinds(terms: Terms, outside: list[ox.Quad]) -> None:
    """Report statements with a known field and a wrong value as violations of that field."""
    errors: list[FieldError] = []
    for quad in outside:
        handle = terms.handle_of(quad.subject)
        field = None if handle is None else terms.field_of(handle, quad.predicate.value)
        if handle is None or field is None or not isinstance(quad.graph_name, ox.DefaultGraph):
            return
        row, path = field.type.scalar.row, f"{handle}.{field.name}"
        code, wanted = "reference", f"the IRI of {with_article(field.target or 'node')}"
        if row is not None:
            code, wanted = "datatype", f"a literal of type <{row.datatype}>, {row.expected}"
            if row.tagged:
                wanted = 'a literal with a language tag, like "…"@en'
        message = f"{path} takes {wanted}; {quad.object} is not one"
        errors.append(FieldError(path, code, message, str(quad.object)[:200], str(field.type)))
    raise ValidationError(errors)


def _check_classes(
    terms: Terms,
    gone: list[ox.Quad],
    come: list[ox.Quad],
    states: Mapping[str, NodeState | None],
) -> None:
    """Refuse to remove a class of a node that still exists."""
    for quad in gone:
        handle = terms.handle_of(quad.subject) or ""
        if quad.predicate.value == RDF_TYPE and states.get(handle) and quad not in come:
            raise QueryError(
                f"{quad} can't be removed while {handle} exists: the class follows from its "
                "type; delete the node, or leave its classes as they are"
            )


def _crowded(
    schema: Schema, handle: str, before: NodeState | None, change: Change
) -> Iterator[FieldError]:
    """Violations by several values for a single-valued field."""
    values = {} if before is None else before.values
    for name, come in change.added.items():
        field = schema.by_name[handle.partition("/")[0]].by_name[name]
        if field.tagged:
            yield from _crowded_texts(f"{handle}.{name}", values.get(name), change, name)
            continue
        if field.many:
            continue
        old = [values[name]] if name in values else []
        left = {*(each for each in old if each not in change.removed.get(name, ())), *come}
        if len(left) > 1:
            path = f"{handle}.{name}"
            message = f"{path} may have at most 1 value, not {len(left)}"
            yield FieldError(path, "max_count", message, [showable(each) for each in left], 1)


def _crowded_texts(path: str, held: object, change: Change, name: str) -> Iterator[FieldError]:
    """Violations by several texts for one language."""
    old = [*held.items()] if isinstance(held, LangText) else []
    gone = change.removed.get(name, ())
    left = {*(each for each in old if each not in gone), *change.added[name]}
    texts: dict[str, list[str]] = {}
    for tag, text in cast(set[Tagged], left):
        texts.setdefault(tag, []).append(text)
    for tag, several in texts.items():
        if len(several) > 1:
            message = f"{path}@{tag} may have at most 1 text, not {len(several)}"
            yield FieldError(f"{path}@{tag}", "max_count", message, sorted(several), 1)


def data_statements(text: str, names: Names) -> tuple[bytes, bytes]:
    """The statements of INSERT DATA and DELETE DATA: (removed, added) as N-Quads.

    The library parses them: each operation runs alone in an empty store.
    """
    removed, added = ox.Store(), ox.Store()
    for operation in update_form(tokenize(text)):
        if operation.form not in {"INSERT DATA", "DELETE DATA"}:
            raise QueryError(f"{operation.form}: {_RAW_FORMS}")
        target = removed if operation.insert is None else added
        body = text_of(operation.delete or operation.insert or ())
        try:
            target.update(
                f"{operation.prologue} INSERT DATA {{ {body} }}",
                base_iri=names.nodes,
                prefixes=names.prefixes,
            )
        except (SyntaxError, ValueError) as error:
            raise QueryError(f"the update can't be parsed: {error}") from None
    return _dump(removed), _dump(added)


def _dump(store: ox.Store) -> bytes:
    text = store.dump(format=ox.RdfFormat.N_QUADS) or b""
    if b"_:" in text and any(
        isinstance(part, ox.BlankNode)
        for quad in store
        for part in (quad.subject, quad.object, quad.graph_name)
    ):
        raise QueryError("blank nodes are not supported; use IRIs")
    return text
