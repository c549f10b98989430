"""The common state of several merge bases: they are merged first, then stand for one.

After criss-cross merges two sides have several newest common commits. Only nodes on which
these differ matter, so whole nodes are looked at here, and few of them. What the bases
can't agree upon is *torn*: it equals nothing, so that any difference there is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trails.engine.changes import NodeNet, net_between
from trails.engine.graph import Graph
from trails.engine.three_way import Base
from trails.model.nodes import NodeState
from trails.model.types import Schema


class _Torn:
    """A value or node that equals nothing."""


_TORN: Final = _Torn()
_Fields = dict[str, object]
_Node = _Fields | _Torn | None
_Nodes = Mapping[str, _Node]
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
    known = schema.by_name[state.type].by_name
    return {
        name: frozenset(value) if known[name].many else value  # type: ignore[call-overload]
        for name, value in state.values.items()
    }


def _change(was: _Node, after: _Fields | None) -> NodeNet:
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


def _merge_node(base: _Node, ours: _Node, theirs: _Node) -> _Node:
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
