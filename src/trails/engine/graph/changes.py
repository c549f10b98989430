"""Changes between two commits: of nodes and fields, and of types.

The net changes of nodes are read from the log alone, so the cost follows what changed and not the
size of the graph. A field that ends as it began, and a node that was made and deleted, leave none.

A change of types is safe if the stored nodes keep every rule of the new schema and none of their
values disappears. That is decided by reading the nodes, only where the declarations changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from trails.engine.graph.ancestry import Path
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.folding import batched
from trails.engine.graph.graph import Graph
from trails.engine.validation.validate import Validator
from trails.errors import FieldError, SchemaMismatchError
from trails.model.fairness import with_pauses
from trails.model.history import Commit, FieldChange, NodeChange
from trails.model.nodes import NodeState
from trails.model.texts import count
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.views import terms

Member = object


class NodeNet(msgspec.Struct):
    """What happened to one node."""

    was: bool = True
    """Whether it was there before."""
    stays: bool = True
    """Whether it is there afterwards."""
    met: bool = False
    """Whether its being there was touched at all."""
    values: dict[str, tuple[object, object]] = msgspec.field(default_factory=dict)
    """Field of one value → before, after; None means no value."""
    members: dict[str, dict[Member, tuple[bool, bool]]] = msgspec.field(default_factory=dict)
    """Field of many values → member → in it before, in it after."""
    commits: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Field → the commits that touched it; the empty name is the node itself."""

    @property
    def touched(self) -> bool:
        """Whether anything is left of it."""
        return self.was != self.stays or (self.stays and bool(self.values or self.members))


Net = dict[str, NodeNet]


def net_changes(graph: Graph, path: Path, types: Container[str] | None = None) -> Net:
    """The net effect of a way through the log, by node; of certain types alone, if said."""
    net: Net = {}
    for commit in path.undo:
        _fold(graph, net, commit, types, undo=True)
    for commit in path.redo:
        _fold(graph, net, commit, types, undo=False)
    return {handle: node for handle, node in with_pauses(net.items()) if _settle(node)}


def net_between(graph: Graph, start: str, end: str) -> Net:
    """The net effect of going from one commit's state to another's."""
    return net_changes(graph, graph.ancestry.path(start, end))


def count_changes(net: Net) -> tuple[int, int, int]:
    """How many nodes are created, updated and deleted."""
    created = sum(not node.was for node in net.values())
    deleted = sum(not node.stays for node in net.values())
    return created, len(net) - created - deleted, deleted


def _fold(
    graph: Graph, net: Net, commit: Commit, types: Container[str] | None, *, undo: bool
) -> None:
    former, compiled = graph.folding.types_around(commit)
    with graph.folding.statements(commit) as (removed, added):
        # What a commit removes was written with the types before it.
        steps = [(former, removed, False), (compiled, added, True)]
        for known, stream, adding in reversed(steps) if undo else steps:
            for quads in batched(known.terms.parse(stream)):
                come, gone = (quads, []) if adding != undo else ([], quads)
                _note(net, known.schema, known.terms.changes(gone, come), commit.id, types)


def _note(
    net: Net,
    schema: Schema,
    changes: dict[str, terms.Change],
    commit: str,
    types: Container[str] | None,
) -> None:
    for handle, change in with_pauses(changes.items()):
        if types is not None and handle.partition("/")[0] not in types:
            continue
        node = net.get(handle)
        if node is None:
            node = net[handle] = NodeNet()
        if change.new or change.gone:
            if not node.met:
                node.met, node.was = True, change.gone
            node.stays = change.new
            _blame(node, "", commit)
        descriptor = schema.by_name[handle.partition("/")[0]]
        for name, values in change.removed.items():
            _remove(node, name, values, many=descriptor.by_name[name].many)
            _blame(node, name, commit)
        for name, values in change.added.items():
            _add(node, name, values, many=descriptor.by_name[name].many)
            _blame(node, name, commit)


def _blame(node: NodeNet, field: str, commit: str) -> None:
    commits = node.commits.setdefault(field, [])
    if not commits or commits[-1] != commit:
        commits.append(commit)


def _remove(node: NodeNet, name: str, values: Iterable[object], *, many: bool) -> None:
    if many:
        members = node.members.setdefault(name, {})
        for value in values:
            members[value] = (members.get(value, (True, True))[0], False)
    else:
        for value in values:
            node.values[name] = (node.values.get(name, (value, None))[0], None)


def _add(node: NodeNet, name: str, values: Iterable[object], *, many: bool) -> None:
    if many:
        members = node.members.setdefault(name, {})
        for value in values:
            members[value] = (members.get(value, (False, False))[0], True)
    else:
        for value in values:
            node.values[name] = (node.values.get(name, (None, None))[0], value)


def _settle(node: NodeNet) -> bool:
    """Drop what is as it was; whether anything is left."""
    node.values = {name: pair for name, pair in node.values.items() if pair[0] != pair[1]}
    node.members = {
        name: changed
        for name, members in node.members.items()
        if (changed := {each: pair for each, pair in members.items() if pair[0] != pair[1]})
    }
    return node.touched


# --- as it is shown ---------------------------------------------------------------------


def show_changes(graph: Graph, net: Net, *schemas: Schema) -> Iterator[NodeChange]:
    """Changes in JSON form, nodes in the order of their handles; the newest schema comes first."""
    for handle in sorted(net):
        node = net[handle]
        how = "updated" if node.was and node.stays else "created" if node.stays else "deleted"
        plain = Plain(graph, handle, *schemas)
        fields = [
            FieldChange(name, plain(name, pair[0]), plain(name, pair[1]))
            for name, pair in node.values.items()
        ]
        for name, members in node.members.items():
            gone = [plain(name, each) for each, pair in members.items() if not pair[1]]
            come = [plain(name, each) for each, pair in members.items() if pair[1]]
            fields.append(
                FieldChange(
                    name, removed=tuple(sorted(gone, key=str)), added=tuple(sorted(come, key=str))
                )
            )
        yield NodeChange(handle, how, tuple(sorted(fields, key=lambda each: each.field)))


class Plain:
    """The values of one node in JSON form."""

    def __init__(self, graph: Graph, handle: str, *schemas: Schema) -> None:
        """A field is read with the first of the schemas that has it."""
        self._names = graph.names
        name = handle.partition("/")[0]
        found = (schema.by_name.get(name) for schema in schemas)
        self._types = [each for each in found if each is not None]

    def __call__(self, name: str, value: object) -> object:
        """One value of a field, or all the values of a field of many; references as IRIs."""
        field = next((each.by_name[name] for each in self._types if name in each.by_name), None)
        if value is None or field is None:
            return value if value is None or isinstance(value, bool | int | float) else str(value)
        if field.many and isinstance(value, tuple):
            return [self._plain(field, each) for each in value]
        return self._plain(field, value)

    def _plain(self, field: PredicateDescriptor, value: object) -> object:
        if field.target is not None:
            return self._names.nodes + str(value)
        row = field.type.scalar.row
        return row.plain(value) if row is not None and row.plain is not None else value


ACTOR = "trails"


_EXAMPLES: Final = 3


class BrokenRule(msgspec.Struct):
    """One rule that is broken: how often, and a few examples."""

    type: str
    field: str
    code: str
    count: int = 0
    examples: list[str] = msgspec.field(default_factory=list)

    def note(self, message: str) -> None:
        """Take down a violation."""
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(message)

    def __str__(self) -> str:
        """On one line."""
        more = self.count - len(self.examples)
        rest = f" (and {more} more)" if more else ""
        place = f"{self.type}.{self.field}" if self.field else self.type
        return f"{place} [{self.code}]: {'; '.join(self.examples)}{rest}"


def change_message(old: Schema, new: Schema) -> str:
    """What the message of a commit says that changes types."""
    return "schema: " + "; ".join(describe_changes(old, new))[:2000]


_SHOWN = 20


def describe_changes(old: Schema, new: Schema) -> list[str]:
    """The differences, a line each, in words."""
    lines = []
    for name in sorted({*old.by_name, *new.by_name}):
        before, after = old.by_name.get(name), new.by_name.get(name)
        if before is None:
            lines.append(f"new type {name}")
        elif after is None:
            lines.append(f"type {name} is gone")
        elif before != after:
            lines += [f"{name}: {line}" for line in _field_changes(before, after)]
    if old.shapes != new.shapes:
        lines.append("constraints of attached shapes changed")
    return lines


def _field_changes(before: TypeDescriptor, after: TypeDescriptor) -> Iterator[str]:
    for name in sorted({*before.by_name, *after.by_name}):
        old, new = before.by_name.get(name), after.by_name.get(name)
        if old is None:
            yield f"new field {name}"
        elif new is None:
            yield f"field {name} is gone"
        elif old != new:
            yield f"field {name} changed"
    for what in ("description", "iri", "extends", "unique", "index", "edge"):
        if getattr(before, what) != getattr(after, what):
            yield f"{what} changed"


def refuse_misfit(problems: Sequence[BrokenRule]) -> None:
    """Raise SchemaMismatchError where stored nodes do not fit a new schema."""
    if not problems:
        return
    found = count(sum(each.count for each in problems), "problem")
    kinds = count(len(problems), "kind")
    listed = [str(each) for each in problems]
    raise SchemaMismatchError(
        f"the declared types do not fit the data of this graph ({found} of {kinds}): "
        f"{'; '.join(listed[:_SHOWN])}. Correct the declarations; or declare the former types "
        "again, change the data, and then the types",
        problems=listed,
    )


def lost_data(checkout: Checkout, db: sqlite3.Connection, new: Schema) -> list[BrokenRule]:
    """What a branch holds that a new schema could not read, by type and field."""
    found: dict[tuple[str, str], BrokenRule] = {}
    for name in checkout.schema.by_name:
        changed = dict(changed_reading(checkout.schema, new, name))
        if not changed or not checkout.nodes.live(db, (name,)):
            continue
        for state in checkout.nodes.states(db, (name,)):
            for field in changed.keys() & {"", *state.values}:
                rule = found.setdefault((name, field), BrokenRule(name, field, "schema"))
                rule.note(f"{state.handle}{field and '.'}{field} would be lost: {changed[field]}")
    return list(found.values())


def changed_reading(old: Schema, new: Schema, name: str) -> Iterator[tuple[str, str]]:
    """(field, why) where stored statements of a type would no longer be read as they were.

    The field is empty where the type itself is meant.
    """
    before, after = old.by_name[name], new.by_name.get(name)
    if after is None:
        yield "", f"type {name} is gone"
        return
    if before.iri != after.iri or old.lineage(name) != new.lineage(name):
        yield "", f"the class or the ancestors of {name} changed"
    if (before.key and before.key.name) != (after.key and after.key.name):
        yield "", f"the key of {name} changed, and ids are derived from it"
    if before.edge is not None and after.edge is None:
        yield "", f"{name} is no longer an edge type"
    for field in before.fields:
        changed = after.by_name.get(field.name)
        if changed is None:
            yield field.name, "the field is gone"
        elif (field.iri, field.type.scalar.kind, field.many) != (
            changed.iri,
            changed.type.scalar.kind,
            changed.many,
        ):
            yield field.name, f"{field.type} became {changed.type}"


def new_defaults(before: TypeDescriptor | None, after: TypeDescriptor) -> dict[str, object]:
    """The defaults of fields that have to have a value from now on."""
    known = {} if before is None else before.by_name
    return {
        field.name: field.default
        for field in after.fields
        if field.required
        and field.default is not None
        and not (field.name in known and known[field.name].required)
    }


def with_defaults(
    validator: Validator, defaults: Mapping[str, object], state: NodeState
) -> NodeState:
    """A node with defaults where it has no value; the node itself where it has them all."""
    missing = defaults.keys() - state.values.keys()
    if not missing:
        return state
    errors: list[FieldError] = []  # the caller that puts the node reports what is wrong with it
    checked = validator.check(state.type, {**defaults, **state.values}, "", errors)
    filled = {name: checked[name] for name in missing & checked.keys()}
    return NodeState(state.type, state.id, {**state.values, **filled})
