"""Three-way merge of nodes, field by field.

Pure: it works on net changes alone. A field that one side changed is taken from that side; a field
that both changed to different values is a conflict, and so is a node that one side deleted and
the other changed. Members of a set are decided one by one and never conflict.

After criss-cross merges two sides have several newest common commits. ``common_state`` merges
those first. What they do not agree on is *torn*: it equals nothing, so that any difference there
is a conflict. Only nodes in which they differ are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from trails.engine.graph.changes import Net, NodeNet, net_between
from trails.engine.graph.graph import Graph
from trails.model.fairness import with_pauses
from trails.model.history import ConflictKind
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.model.values.lang_texts import LangText


class Edit(msgspec.Struct):
    """The change from our node to the merged one."""

    whole: Literal["", "take", "delete"] = ""
    """Take their node unchanged, or delete ours."""
    values: dict[str, tuple[object, object]] = msgspec.field(default_factory=dict)
    """Field → (ours, merged)."""
    members: dict[str, dict[object, bool]] = msgspec.field(default_factory=dict)


class Clash(msgspec.Struct, frozen=True):
    """A field or node that both sides changed."""

    kind: ConflictKind
    handle: str
    field: str
    """Empty for the whole node."""
    base: object = None
    ours: object = None
    theirs: object = None


class Base(msgspec.Struct):
    """The common state as changes to one commit's state, with its torn parts."""

    net: Net = msgspec.field(default_factory=dict)
    torn: set[tuple[str, str]] = msgspec.field(default_factory=set)


class Merge(msgspec.Struct):
    """The result: edits of our side, and clashes."""

    edits: dict[str, Edit] = msgspec.field(default_factory=dict)
    clashes: list[Clash] = msgspec.field(default_factory=list)


_NOTHING = NodeNet()


def three_way(base: Base, ours: Net, theirs: Net) -> Merge:
    """Merge both sides; all changes start from the same commit."""
    merge = Merge()
    handles = sorted({*theirs, *base.net, *(handle for handle, _ in base.torn)})
    agreed = not base.net and not base.torn
    for handle in with_pauses(handles):
        if agreed and handle not in ours:
            merge.edits[handle] = _taken(theirs[handle])
        else:
            _Node(handle, base, ours, theirs).decide(merge)
    return merge


def _taken(theirs: NodeNet) -> Edit:
    """All that the other side did to a node that ours did not touch."""
    if theirs.was != theirs.stays:
        return Edit("take" if theirs.stays else "delete")
    edit = Edit()
    for name in sorted(theirs.values) if len(theirs.values) > 1 else theirs.values:
        edit.values[name] = theirs.values[name]
    for name, members in theirs.members.items():
        edit.members[name] = {each: inside for each, (_, inside) in members.items()}
    return edit


class _Node:
    """One node on both sides."""

    def __init__(self, handle: str, base: Base, ours: Net, theirs: Net) -> None:
        self.handle = handle
        self._torn = base.torn
        self._base = base.net.get(handle) or NodeNet()  # must be a different object than the sides
        self._ours = ours.get(handle, _NOTHING)
        self._theirs = theirs.get(handle, _NOTHING)
        self._all = (self._ours, self._theirs, self._base)

    def decide(self, merge: Merge) -> None:
        start = next((each.was for each in self._all if each.met), True)
        base, ours, theirs = (
            each.stays if each.met else start for each in (self._base, self._ours, self._theirs)
        )
        if ours and theirs:
            self._decide_fields(merge, inserted=not base and not self._is_torn(""))
        elif ours and (base or self._is_torn("")):
            if self._differs(self._ours) or self._is_torn(""):
                merge.clashes.append(Clash("delete_update", self.handle, "", True, True, None))
            else:
                merge.edits[self.handle] = Edit("delete")
        elif theirs and not base and not self._is_torn(""):
            merge.edits[self.handle] = Edit("take")
        elif theirs and (self._differs(self._theirs) or self._is_torn("")):
            merge.clashes.append(Clash("delete_update", self.handle, "", True, None, True))

    def _is_torn(self, field: str) -> bool:
        return (self.handle, field) in self._torn

    def _torn_fields(self) -> set[str]:
        """Fields that have no common value; all that either side touched, if the node has none."""
        torn = {field for handle, field in self._torn if handle == self.handle and field}
        if self._is_torn(""):
            torn |= {*self._ours.values, *self._theirs.values}
        return torn

    def _differs(self, side: NodeNet) -> bool:
        """Whether a side's node differs from the common one in any field."""
        if self._torn_fields():
            return True
        if any(
            self._after(side, name) != self._after(self._base, name)
            for name in {*side.values, *self._base.values}
        ):
            return True
        return any(
            self._inside(side, name, each) != self._inside(self._base, name, each)
            for name in {*side.members, *self._base.members}
            for each in {*side.members.get(name, ()), *self._base.members.get(name, ())}
        )

    def _start(self, name: str) -> object:
        return next((each.values[name][0] for each in self._all if name in each.values), None)

    def _after(self, side: NodeNet, name: str) -> object:
        return side.values[name][1] if name in side.values else self._start(name)

    def _inside(self, side: NodeNet, name: str, member: object) -> bool:
        if side is self._base and self._is_torn(""):
            return False
        found = side.members.get(name, {}).get(member)
        if found is not None:
            return found[1]
        known = (each.members.get(name, {}).get(member) for each in self._all)
        return next((pair[0] for pair in known if pair is not None), False)

    def _decide_fields(self, merge: Merge, *, inserted: bool) -> None:
        edit = Edit()
        torn = self._torn_fields()
        for name in sorted({*self._theirs.values, *self._base.values, *torn}):
            base, ours, theirs = (
                self._after(side, name) for side in (self._base, self._ours, self._theirs)
            )
            if ours == theirs:
                continue
            if name in torn or base not in (ours, theirs):
                kind: ConflictKind = "divergent_insert" if inserted else "divergent_field"
                known = None if name in torn else base
                merge.clashes.append(Clash(kind, self.handle, name, known, ours, theirs))
            elif ours == base:
                edit.values[name] = (ours, theirs)
        for name in sorted({name for side in self._all for name in side.members}):
            for each in {each for side in self._all for each in side.members.get(name, ())}:
                base, ours, theirs = (
                    self._inside(side, name, each)
                    for side in (self._base, self._ours, self._theirs)
                )
                if ours == base != theirs:
                    edit.members.setdefault(name, {})[each] = bool(theirs)
        if edit.values or edit.members:
            merge.edits[self.handle] = edit


class _Torn:
    """A value or node that equals nothing."""


_TORN: Final = _Torn()
_Fields = dict[str, object]
_BaseNode = _Fields | _Torn | None
_Nodes = Mapping[str, _BaseNode]
Read = Callable[[list[str]], Mapping[str, NodeState | None]]


def common_state(graph: Graph, bases: list[str], ours: str, read: Read, schema: Schema) -> Base:
    """What common commits agree upon, as changes of the first one's state.

    ``read`` gives nodes as they are at commit ``ours``, whose types are ``schema``.
    """
    first = bases[0]
    handles = sorted({each for other in bases[1:] for each in net_between(graph, first, other)})
    if not handles:
        return Base()
    now_there = {handle: _fields(schema, state) for handle, state in read(handles).items()}
    states = _States(graph, ours, now_there)
    merged, begun = states.merged(bases), states.at(first)
    base = Base()
    for handle in handles:
        was, after = begun[handle], merged[handle]
        if isinstance(after, _Torn):
            base.torn.add((handle, ""))
            continue
        base.torn |= {(handle, name) for name, value in (after or {}).items() if value is _TORN}
        base.net[handle] = _change(was, after)
    return base


def _fields(schema: Schema, state: NodeState | None) -> _Fields | None:
    if state is None:
        return None
    known, found = schema.by_name[state.type].by_name, _Fields()
    for name, value in state.values.items():
        if isinstance(value, LangText):
            found |= {f"{name}@{tag}": text for tag, text in value.items()}
        else:
            found[name] = frozenset(value) if known[name].is_set else value  # type: ignore[call-overload]
    return found


def _change(was: _BaseNode, after: _Fields | None) -> NodeNet:
    """The way from a base's node to what all of them agree upon."""
    old = was if isinstance(was, dict) else {}
    new = after or {}
    net = NodeNet(was=was is not None, stays=after is not None, met=True)
    for name in {*old, *new}:
        before, then = old.get(name), new.get(name)
        if isinstance(before, frozenset) or isinstance(then, frozenset):
            left, right = _members(before), _members(then)
            if left != right:
                net.members[name] = {each: (each in left, each in right) for each in left ^ right}
        elif before != then and then is not _TORN:
            net.values[name] = (before, then)
    return net


def _members(value: object) -> frozenset[object]:
    return value if isinstance(value, frozenset) else frozenset()


class _States:
    """Some nodes as they were at any commit."""

    def __init__(self, graph: Graph, known_at: str, known: Mapping[str, _Fields | None]) -> None:
        self._graph = graph
        self._known_at = known_at
        self._known = known

    def at(self, commit: str) -> _Nodes:
        """The nodes at a commit."""
        net = net_between(self._graph, self._known_at, commit)
        return {handle: _changed(node, net.get(handle)) for handle, node in self._known.items()}

    def merged(self, commits: list[str]) -> _Nodes:
        """The nodes of several commits, merged one after the other."""
        current = self.at(commits[0])
        for count, other in enumerate(commits[1:], 1):
            base = self.merged(self._deeper(commits[:count], other))
            there = self.at(other)
            current = {
                handle: _merge_node(base[handle], node, there[handle])
                for handle, node in current.items()
            }
        return current

    def _deeper(self, merged: list[str], other: str) -> list[str]:
        """The newest common commits of what is merged so far and one more."""
        ancestry = self._graph.ancestry
        found = list(dict.fromkeys(each for one in merged for each in ancestry.bases(one, other)))
        return [
            each
            for each in found
            if not any(each != newer and ancestry.is_ancestor(each, newer) for newer in found)
        ]


def _changed(node: _Fields | None, change: NodeNet | None) -> _Fields | None:
    if change is None:
        return node
    if change.met and not change.stays:
        return None
    fields = dict(node or {})
    for name, (_, value) in change.values.items():
        fields[name] = value
    for name, members in change.members.items():
        left = {each for each in _members(fields.get(name)) if members.get(each, (True, True))[1]}
        fields[name] = frozenset(left | {each for each, pair in members.items() if pair[1]})
    return {name: value for name, value in fields.items() if value not in (None, frozenset())}


def _merge_node(base: _BaseNode, ours: _BaseNode, theirs: _BaseNode) -> _BaseNode:
    if isinstance(ours, _Torn) or isinstance(theirs, _Torn):
        return _TORN
    if ours is None or theirs is None:
        if ours is None and theirs is None:
            return None
        there = ours if theirs is None else theirs
        if base is None:
            return there
        return None if _same(base, there) else _TORN
    before: _Fields = base if isinstance(base, dict) else {}
    fields: _Fields = {}
    for name in {*ours, *theirs, *before}:
        was, mine, other = before.get(name), ours.get(name), theirs.get(name)
        if any(isinstance(each, frozenset) for each in (was, mine, other)):
            old, left, right = _members(was), _members(mine), _members(other)
            fields[name] = (left & right) | ((left ^ right) - old)
        elif mine is _TORN or other is _TORN or was is _TORN or isinstance(base, _Torn):
            fields[name] = mine if mine == other and mine is not _TORN else _TORN
        elif other in (mine, was):
            fields[name] = mine
        else:
            fields[name] = other if mine == was else _TORN
    return {name: value for name, value in fields.items() if value not in (None, frozenset())}


def _same(base: _Fields | _Torn, node: _Fields | None) -> bool:
    return (
        isinstance(base, dict)
        and base == node
        and not any(value is _TORN for value in base.values())
    )
