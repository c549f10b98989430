"""Changes between two commits: of nodes and fields, and of types.

The net changes of nodes are read from the log alone, so the cost follows what changed and not the
size of the graph. A field that ends as it began, and a node that was made and deleted, leave none.

A change of types is safe if the stored nodes keep every rule of the new schema and none of their
values disappears. That is decided by reading the nodes, only where the declarations changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

import msgspec

from trails.engine.graph.ancestry import Path
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.validation.validate import Validator
from trails.errors import FieldError, SchemaMismatchError
from trails.imports import later
from trails.model.fairness import with_pauses
from trails.model.history import Commit, FieldChange, NodeChange
from trails.model.nodes import NodeState
from trails.model.texts import count
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.model.values.lang_texts import split_part

if TYPE_CHECKING:
    from trails.views import terms
    from trails.views.lines import Change
else:
    terms = later("trails.views.terms")

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
    """Field of one value, ordered list, or one language of a field (``title@en``) → before, after;
    None means no value."""
    members: dict[str, dict[Member, tuple[bool, bool]]] = msgspec.field(default_factory=dict)
    """Set → member → in it before, in it after."""
    commits: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Field → the commits that touched it; the empty name is the node itself."""

    @property
    def touched(self) -> bool:
        """Whether anything is left of it."""
        return self.was != self.stays or (self.stays and bool(self.values or self.members))


Net = dict[str, NodeNet]


class Naming(Protocol):
    """What the nodes and fields of one state are called in another one."""

    def handle(self, handle: str) -> str:
        """The handle of a node."""

    def field(self, type_name: str, field: str) -> str:
        """The name of a field."""


class NetNames(Protocol):
    """What nodes and fields are called in a net effect, if that is not what the commits say."""

    def at(self, commit: Commit, *, after: bool) -> Naming:
        """For what a commit says under its own types (``after``) or the former ones."""


def net_changes(
    graph: Graph,
    path: Path,
    types: Container[str] | None = None,
    names: NetNames | None = None,
) -> Net:
    """The net effect of a way through the log, by node; of certain types alone, if said."""
    net: Net = {}
    for commit in path.undo:
        _fold(graph, net, commit, types, names, undo=True)
    for commit in path.redo:
        _fold(graph, net, commit, types, names, undo=False)
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
    graph: Graph,
    net: Net,
    commit: Commit,
    types: Container[str] | None,
    names: NetNames | None,
    *,
    undo: bool,
) -> None:
    former, compiled = graph.folding.types_around(commit)
    with graph.folding.statements(commit) as (removed, added):
        # What a commit removes was written with the types before it.
        steps = [(former, removed, False), (compiled, added, True)]
        for known, stream, adding in reversed(steps) if undo else steps:
            for changes in known.terms.read_changes(stream, adding=adding != undo):
                naming = None if names is None else names.at(commit, after=adding)
                _note(net, known.schema, changes, commit.id, types, naming)


def _note(
    net: Net,
    schema: Schema,
    changes: dict[str, Change],
    commit: str,
    types: Container[str] | None,
    naming: Naming | None = None,
) -> None:
    known: dict[str, Mapping[str, _Field]] = {}
    for handle, change in with_pauses(changes.items()):
        type_name = handle.partition("/")[0]
        if types is not None and type_name not in types:
            continue
        named = handle if naming is None else naming.handle(handle)
        node = net.get(named)
        if node is None:
            node = net[named] = NodeNet()
        if change.new or change.gone:
            if not node.met:
                node.met, node.was = True, change.gone
            node.stays = change.new
            _blame(node, "", commit)
        fields = known.get(type_name)
        if fields is None:
            fields = known[type_name] = {
                each.name: (each, each.is_set, naming is None and not each.tagged)
                for each in schema.by_name[type_name].fields
            }
        for note, sides in ((_remove, change.removed), (_add, change.added)):
            for name, values in sides.items():
                field, is_set, is_plain = fields[name]
                if is_plain:
                    note(node, name, values, is_set=is_set)
                    _blame(node, name, commit)
                    continue
                for part, each in _named_parts(field, type_name, values, naming):
                    note(node, part, each, is_set=is_set)
                    _blame(node, part, commit)


_Field = tuple[PredicateDescriptor, bool, bool]
"""A field, whether it is a set, and whether its values are noted as they are."""


def _named_parts(
    field: PredicateDescriptor, type_name: str, values: Sequence[object], naming: Naming | None
) -> Iterator[tuple[str, Sequence[object]]]:
    """What changes alone, with its values, under the names of the net effect."""
    name = field.name
    if naming is not None:
        name = naming.field(type_name, name)
        if field.target is not None:
            values = [_renamed(naming, each) for each in values]
    yield from _parts(field, name, values)


def _parts(
    field: PredicateDescriptor, name: str, values: Sequence[object]
) -> Iterator[tuple[str, Sequence[object]]]:
    """What changes alone, with its values: a field, or ``title@en``, one language of it."""
    if not field.tagged:
        yield name, values
        return
    for tag, text in cast(Sequence[terms.Tagged], values):
        yield f"{name}@{tag}", (text,)


def _renamed(naming: Naming, value: object) -> object:
    """A reference, or an ordered list of them, under other names."""
    if isinstance(value, tuple):
        return tuple(naming.handle(str(each)) for each in value)
    return naming.handle(str(value))


def _blame(node: NodeNet, field: str, commit: str) -> None:
    commits = node.commits.setdefault(field, [])
    if not commits or commits[-1] != commit:
        commits.append(commit)


def _remove(node: NodeNet, name: str, values: Iterable[object], *, is_set: bool) -> None:
    if is_set:
        members = node.members.setdefault(name, {})
        for value in values:
            members[value] = (members.get(value, (True, True))[0], False)
    else:
        for value in values:
            node.values[name] = (node.values.get(name, (value, None))[0], None)


def _add(node: NodeNet, name: str, values: Iterable[object], *, is_set: bool) -> None:
    if is_set:
        members = node.members.setdefault(name, {})
        for value in values:
            members[value] = (members.get(value, (False, False))[0], True)
    else:
        for value in values:
            node.values[name] = (node.values.get(name, (None, None))[0], value)


def _settle(node: NodeNet) -> bool:
    """Drop what is as it was; whether anything is left."""
    node.values = {name: pair for name, pair in node.values.items() if pair[0] != pair[1]}
    if node.members:
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
        name, tag = split_part(name)
        field = next((each.by_name[name] for each in self._types if name in each.by_name), None)
        if tag:
            return value
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
    for what in ("description", "iri", "extends", "unique", "index", "edge", "abstract"):
        if getattr(before, what) != getattr(after, what):
            yield f"{what} changed"


def refuse_misfit(problems: Sequence[BrokenRule]) -> None:
    """Raise SchemaMismatchError where stored nodes do not fit a new schema."""
    if not problems:
        return
    raise misfit([str(each) for each in problems], sum(each.count for each in problems))


def misfit(listed: list[str], total: int) -> SchemaMismatchError:
    """The error for declared types that do not fit the data."""
    found, kinds = count(total, "problem"), count(len(listed), "kind")
    return SchemaMismatchError(
        f"the declared types do not fit the data of this graph ({found} of {kinds}): "
        f"{'; '.join(listed[:_SHOWN])}. Correct the declarations; or see what has to change with "
        "'trails schema plan', and bring the data along with a migration ('trails migrate plan')",
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
        elif field.ordered != changed.ordered:
            how = "became" if changed.ordered else "is no longer"
            yield field.name, f"{field.type} {how} ordered"


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
