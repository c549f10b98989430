"""A versioned graph as a textbook has it: every commit holds a full copy of its state.

Nothing here is shared with the engine. Merging is the three-way merge of full states,
field by field; several merge bases are merged first, as git's recursive strategy does,
and where they disagree the common value is *torn*: it equals nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count

Value = object
"""A scalar, the handle that a reference names, or a frozenset or an ordered tuple of either."""
Fields = dict[str, Value]
State = dict[str, Fields]
"""Handle → field → value; a field without a value is not there."""


class Torn:
    """What merge bases can't agree upon: a value, or a whole node, that equals nothing."""


@dataclass(frozen=True)
class Field:
    """What the oracle knows of a field."""

    required: bool = False
    many: bool = False
    """Whether it is a set; an ordered list is one value, which is a tuple."""
    unique: bool = False
    target: str | None = None
    low: int = 0
    high: int | None = None
    kind: type = object
    least: int | None = None
    most: int | None = None
    shortest: int | None = None
    longest: int | None = None
    pattern: str | None = None
    one_of: tuple[Value, ...] | None = None
    default: Value = None
    """What a node gets that has no value when the field comes to be required."""
    owner: str = ""
    """The type that declares it."""

    def fits(self, value: Value) -> bool:
        """Whether a value alone keeps the rules."""
        if self.target is not None:
            return True
        if not isinstance(value, self.kind):
            return False
        if self.one_of is not None and value not in self.one_of:
            return False
        if isinstance(value, int):
            return (self.least is None or value >= self.least) and (
                self.most is None or value <= self.most
            )
        text = str(value)
        return (
            (self.shortest is None or len(text) >= self.shortest)
            and (self.longest is None or len(text) <= self.longest)
            and (self.pattern is None or re.search(self.pattern, text) is not None)
        )

    def holds(self, value: Value) -> bool:
        """Whether what a node has in this field keeps the rules: how many, and each alone."""
        members = items_of(value)
        if len(members) < max(self.low, int(self.required)):
            return False
        if self.high is not None and len(members) > self.high:
            return False
        return all(self.fits(each) for each in members)


@dataclass(frozen=True)
class Type:
    """What the oracle knows of a type; ``fields`` has the inherited ones too."""

    fields: Mapping[str, Field]
    extends: str | None = None
    groups: frozenset[tuple[str, ...]] = frozenset()
    ends: Mapping[str, tuple[str, int, int | None]] | None = None
    """Of an edge type: side → (the type there, the least and the most edges of one node)."""


@dataclass(frozen=True)
class Shape:
    """More rules for the fields of a type, and of those that extend it."""

    target: str
    fields: Mapping[str, Field]


@dataclass(frozen=True)
class Clash:
    """A conflict: its kind, the node and the field (empty for the whole node)."""

    kind: str
    handle: str
    field: str


@dataclass
class Version:
    """One commit: its state, and what it came from."""

    state: State
    parents: tuple[int, ...]
    order: int
    model: Model


@dataclass
class Judgement:
    """What is wrong with a state as a whole."""

    duplicates: set[tuple[frozenset[str], str]] = field(default_factory=set)
    dangling: set[tuple[str, str, str]] = field(default_factory=set)
    broken: set[tuple[str, str]] = field(default_factory=set)
    crowded: set[tuple[str, str]] = field(default_factory=set)
    """(node, edge type and side) with too few or too many edges."""

    def __bool__(self) -> bool:
        return bool(self.duplicates or self.dangling or self.broken or self.crowded)


class Model:
    """The types, and rules between nodes."""

    def __eq__(self, other: object) -> bool:
        """Whether two models have the same types."""
        if not isinstance(other, Model):
            return False
        return (self.types, self.shapes) == (other.types, other.shapes)

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, types: Mapping[str, Type], shapes: Mapping[str, Shape] | None = None
    ) -> None:
        self.types = types
        self.shapes = shapes or {}

    def field(self, handle: str, name: str) -> Field:
        """A field of a node."""
        return self.types[handle.partition("/")[0]].fields[name]

    def is_a(self, handle: str, target: str) -> bool:
        """Whether a node's type is another or extends it."""
        name: str | None = handle.partition("/")[0]
        while name is not None and name != target:
            name = self.types[name].extends
        return name is not None

    def root(self, type_name: str, name: str) -> str:
        """The type that declared a field: uniqueness holds among all that have it."""
        found = type_name
        while (up := self.types[found].extends) is not None and name in self.types[up].fields:
            found = up
        return found

    def fill(self, state: State) -> State:
        """A state with defaults where values are required and missing."""
        return {
            handle: {
                **{
                    name: spec.default
                    for name, spec in self.types[handle.partition("/")[0]].fields.items()
                    if spec.required and spec.default is not None
                },
                **fields,
            }
            for handle, fields in state.items()
        }

    def judge(self, state: State) -> Judgement:
        """Every rule that a state breaks."""
        found = Judgement()
        holders: dict[tuple[str, str, Value], set[str]] = {}
        for handle, fields in state.items():
            type_name = handle.partition("/")[0]
            for name, spec in self.types[type_name].fields.items():
                value = fields.get(name)
                members = items_of(value)
                if not spec.holds(value):
                    found.broken.add((handle, name))
                if spec.unique and value is not None:
                    key = (self.root(type_name, name), name, value)
                    holders.setdefault(key, set()).add(handle)
                if spec.target is not None:
                    for each in members:
                        if each not in state or not self.is_a(str(each), spec.target):
                            found.dangling.add((handle, name, str(each)))
            for group in self.types[type_name].groups:
                values = tuple(fields.get(name) for name in group)
                if None not in values:
                    key = (self.group_root(type_name, group), ", ".join(group), values)
                    holders.setdefault(key, set()).add(handle)
            for shape in self.shapes.values():
                if self.is_a(handle, shape.target):
                    found.broken |= {
                        (handle, name)
                        for name, spec in shape.fields.items()
                        if not spec.holds(fields.get(name))
                    }
        found.duplicates = {
            (frozenset(group), name) for (_, name, _), group in holders.items() if len(group) > 1
        }
        found.crowded = set(self._crowded(state))
        return found

    def group_root(self, type_name: str, group: tuple[str, ...]) -> str:
        """The topmost type with a group: it holds among all that have it."""
        found = type_name
        while (up := self.types[found].extends) is not None and group in self.types[up].groups:
            found = up
        return found

    def _crowded(self, state: State) -> Iterator[tuple[str, str]]:
        for edge, spec in self.types.items():
            for side, (end, low, high) in (spec.ends or {}).items():
                for handle in state:
                    if not self.is_a(handle, end):
                        continue
                    number = sum(
                        each.partition("/")[0] == edge and fields.get(side) == handle
                        for each, fields in state.items()
                    )
                    if number < low or (high is not None and number > high):
                        yield handle, f"{edge}.{side}"

    def without(self, state: State, handle: str) -> None:
        """Delete a node, empty what points at it, and delete what can't stand without it."""
        pending = [handle]
        while pending:
            gone = pending.pop()
            state.pop(gone, None)
            for holder in list(state):
                for name, value in list(state[holder].items()):
                    spec = self.field(holder, name)
                    if spec.target is None or gone not in items_of(value):
                        continue
                    left = type(items_of(value))(each for each in items_of(value) if each != gone)
                    if len(left) < max(spec.low, int(spec.required)):
                        pending.append(holder)
                    elif left:
                        state[holder][name] = left
                    else:
                        del state[holder][name]


class AnyField:
    """The fields of several models; the first that has one says what it is."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models = list(models)

    def field(self, handle: str, name: str) -> Field:
        """A field of a node."""
        type_name = handle.partition("/")[0]
        return next(
            each.types[type_name].fields[name]
            for each in self._models
            if type_name in each.types and name in each.types[type_name].fields
        )


def items_of(value: Value) -> frozenset[Value] | tuple[Value, ...]:
    """The values in a field, each as often as it is there."""
    return value if isinstance(value, tuple) else members_of(value)


def members_of(value: Value) -> frozenset[Value]:
    """A field's value as a set."""
    if value is None:
        return frozenset()
    return value if isinstance(value, frozenset) else frozenset({value})


@dataclass
class Merged:
    """The merged state, in which what clashes is ours, and the clashes."""

    state: dict[str, Fields | Torn]
    clashes: dict[Clash, tuple[Value, Value, Value]] = field(default_factory=dict)


def merge_states(
    model: AnyField,
    base: Mapping[str, Fields | Torn],
    ours: Mapping[str, Fields | Torn],
    theirs: Mapping[str, Fields | Torn],
) -> Merged:
    """The textbook: what one side changed is taken, what both changed differently clashes."""
    merged = Merged({})
    for handle in sorted({*base, *ours, *theirs}):
        was, mine, other = base.get(handle), ours.get(handle), theirs.get(handle)
        chosen = _merge_node(model, merged, handle, (was, mine, other))
        if chosen is not None:
            merged.state[handle] = chosen
    return merged


def _merge_node(
    model: AnyField,
    merged: Merged,
    handle: str,
    three: tuple[Fields | Torn | None, Fields | Torn | None, Fields | Torn | None],
) -> Fields | Torn | None:
    was, mine, other = three
    if isinstance(mine, Torn) or isinstance(other, Torn):
        # Only states that are bases themselves can be torn; they stay so.
        merged.clashes[Clash("delete_update", handle, "")] = three
        return mine
    if mine is None and other is None:
        return None
    if mine is None or other is None:
        if was is None:
            return mine if other is None else other
        if (other if mine is None else mine) == was:
            return None
        merged.clashes[Clash("delete_update", handle, "")] = three
        return mine
    kind = "divergent_insert" if was is None else "divergent_field"
    fields: Fields = {}
    for name in sorted({*mine, *other, *(was if isinstance(was, dict) else ())}):
        here, there = mine.get(name), other.get(name)
        many = model.field(handle, name).many
        before: Value = was.get(name) if isinstance(was, dict) else None
        if isinstance(was, Torn) and not many:
            before = Torn()
        if many:
            old, left, right = members_of(before), members_of(here), members_of(there)
            chosen: Value = frozenset(
                each
                for each in old | left | right
                if (each in right if (each in left) == (each in old) else each in left)
            )
            chosen = chosen or None
        elif there in (here, before):
            chosen = here
        elif here == before:
            chosen = there
        else:
            merged.clashes[Clash(kind, handle, name)] = (before, here, there)
            chosen = here
        if chosen is not None:
            fields[name] = chosen
    return fields


class History:
    """All commits and branches."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.versions: dict[int, Version] = {0: Version({}, (), 0, model)}
        self.branches: dict[str, int] = {"main": 0}
        self._numbers = count(1)
        self._virtual = count(-1, -1)
        self._behind: dict[int, set[int]] = {}

    def state(self, number: int) -> State:
        """A commit's state; not to be changed."""
        return self.versions[number].state

    def copy(self, branch: str) -> State:
        """A branch's state, to be changed."""
        return deepcopy(self.state(self.branches[branch]))

    def commit(self, branch: str, state: State, *others: int, model: Model | None = None) -> int:
        """Add a commit on a branch, perhaps with other types than it had."""
        number = next(self._numbers)
        parents = (self.branches[branch], *others)
        types = model or self.versions[parents[0]].model
        self.versions[number] = Version(deepcopy(state), parents, number, types)
        self.branches[branch] = number
        return number

    def ancestors(self, number: int) -> set[int]:
        """A commit and all behind it."""
        found = self._behind.get(number)
        if found is None:
            parents = self.versions[number].parents
            found = {number}.union(*(self.ancestors(each) for each in parents))
            self._behind[number] = found
        return found

    def writer(self, number: int, handle: str, name: str, member: Value) -> int:
        """The commit that wrote a value which a commit has, found by looking at all copies."""
        while True:
            parents = self.versions[number].parents
            older = [
                each
                for each in parents
                if member in members_of(self.state(each).get(handle, {}).get(name))
            ]
            if not older:
                return number
            number = older[0]

    def bases(self, one: int, two: int) -> list[int]:
        """The common ancestors that are behind no other common ancestor, newest first."""
        common = self.ancestors(one) & self.ancestors(two)
        best = [
            each
            for each in common
            if not any(each != other and each in self.ancestors(other) for other in common)
        ]
        return sorted(best, key=lambda each: -self.versions[each].order)

    def base_state(self, one: int, two: int) -> Mapping[str, Fields | Torn]:
        """The common state of two commits; a merged one where there are several."""
        bases = self.bases(one, two)
        current = bases[0]
        for other in bases[1:]:
            current = self._merge_bases(current, other)
        return self.versions[current].state

    def _merge_bases(self, one: int, two: int) -> int:
        merged = merge_states(
            self.fields(one, two), self.base_state(one, two), self.state(one), self.state(two)
        )
        for clash in merged.clashes:
            node = merged.state.get(clash.handle)
            if not clash.field:
                merged.state[clash.handle] = Torn()
            elif isinstance(node, dict):
                node[clash.field] = Torn()
        number = next(self._virtual)
        order = max(self.versions[one].order, self.versions[two].order)
        model = self.versions[one].model
        self.versions[number] = Version(merged.state, (one, two), order, model)  # type: ignore[arg-type]
        return number

    def fields(self, *numbers: int) -> AnyField:
        """The fields of commits, and of all that is behind them."""
        models = [self.versions[each].model for each in numbers]
        models += [each.model for each in self.versions.values()]
        return AnyField(models)

    def merge(self, one: int, two: int) -> Merged:
        """Merge commit ``two`` into commit ``one``."""
        found = merge_states(
            self.fields(one, two), self.base_state(one, two), self.state(one), self.state(two)
        )
        found.state = deepcopy(found.state)
        return found

    def unmerged(self, branch: str) -> bool:
        """Whether a branch has commits that no other branch has."""
        others = [number for name, number in self.branches.items() if name != branch]
        kept: set[int] = {0}.union(*(self.ancestors(number) for number in others))
        return not self.ancestors(self.branches[branch]) <= kept

    def reachable(self) -> Iterable[int]:
        """All real commits."""
        return [number for number in self.versions if number >= 0]


def difference(before: State, after: State) -> Iterator[tuple[str, str, str, Value, Value]]:
    """(handle, how, field, before, after) between two states."""
    for handle in sorted({*before, *after}):
        old, new = before.get(handle), after.get(handle)
        how = "created" if old is None else "deleted" if new is None else "updated"
        for name in sorted({*(old or {}), *(new or {})}):
            left, right = (old or {}).get(name), (new or {}).get(name)
            if left != right:
                yield handle, how, name, left, right
