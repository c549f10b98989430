"""Three ways: what two sides did since a common state, put together field by field.

Pure: it works on net changes alone. A field that one side changed is taken from that
side; one that both changed to different values is a conflict, and so is a node that one
side deleted and the other changed. The members of a set are decided one by one and never
conflict. After criss-cross merges there are several common states; they are merged first,
and what they can't agree upon is *torn*: any difference there is a conflict.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from trails.engine.changes import Net, NodeNet
from trails.model.merges import ConflictKind


class Edit(msgspec.Struct):
    """What our side's node needs to become the merged one."""

    whole: Literal["", "take", "delete"] = ""
    """Take their node as it is, or delete ours."""
    values: dict[str, tuple[object, object]] = msgspec.field(default_factory=dict)
    """Field → (ours, merged)."""
    members: dict[str, dict[object, bool]] = msgspec.field(default_factory=dict)


class Clash(msgspec.Struct, frozen=True):
    """A place that both sides changed."""

    kind: ConflictKind
    handle: str
    field: str
    """Empty where the whole node is meant."""
    base: object = None
    ours: object = None
    theirs: object = None


class Base(msgspec.Struct):
    """The common state, as changes of one commit's state, and where it is torn."""

    net: Net = msgspec.field(default_factory=dict)
    torn: set[tuple[str, str]] = msgspec.field(default_factory=set)


class Merge(msgspec.Struct):
    """The outcome: edits of our side, and clashes."""

    edits: dict[str, Edit] = msgspec.field(default_factory=dict)
    clashes: list[Clash] = msgspec.field(default_factory=list)


_NOTHING = NodeNet()


def three_way(base: Base, ours: Net, theirs: Net) -> Merge:
    """Put both sides together; all changes are seen from the same commit."""
    merge = Merge()
    for handle in sorted({*theirs, *base.net, *(handle for handle, _ in base.torn)}):
        node = _Node(handle, base, ours, theirs)
        node.decide(merge)
    return merge


class _Node:
    """One node on both sides."""

    def __init__(self, handle: str, base: Base, ours: Net, theirs: Net) -> None:
        self.handle = handle
        self._torn = base.torn
        self._base = base.net.get(handle) or NodeNet()  # told apart from the sides
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
