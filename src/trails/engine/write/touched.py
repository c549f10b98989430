"""The nodes that a write touched one by one: as they were before it, and as they are now."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trails.model.nodes import NodeState
from trails.views.nodes.index import Stored


class Touched(msgspec.Struct):
    """A node as it was before this write, and as it is now."""

    before: Stored | None
    after: NodeState | None

    @property
    def change(self) -> tuple[NodeState | None, NodeState | None]:
        """Its values before, and now."""
        return None if self.before is None else self.before.state, self.after


class Touches:
    """Every node that was touched, once each, however often that was."""

    def __init__(self) -> None:
        self._touched: dict[str, Touched] = {}

    def __bool__(self) -> bool:
        return bool(self._touched)

    def note(self, handle: str, before: Stored | None, after: NodeState | None) -> Touched:
        """Take down a change; what was before the write is what the first one says."""
        touched = self._touched.get(handle)
        if touched is None:
            touched = self._touched[handle] = Touched(before, after)
        touched.after = after
        return touched

    def before(self, handle: str, now_there: NodeState | None) -> NodeState | None:
        """A node as it was before this write."""
        touched = self._touched.get(handle)
        return now_there if touched is None else touched.change[0]

    def restored(self) -> list[Stored]:
        """Those that are again as they were."""
        return [
            each.before
            for each in self._touched.values()
            if each.before is not None and each.before.state == each.after
        ]

    def changes(self) -> Iterator[tuple[NodeState | None, NodeState | None]]:
        """Each node's values before, and now."""
        return (each.change for each in self._touched.values())

    def differences(self) -> Iterator[tuple[str, NodeState | None, NodeState | None]]:
        """The handles of those that are not as they were, with their values before, and now."""
        for handle, each in self._touched.items():
            before, after = each.change
            if before != after:
                yield handle, before, after

    def clear(self) -> None:
        """Forget them all."""
        self._touched.clear()
