"""Access: what one actor may do on one graph, as far as the engine asks.

A context carries one. The engine decides nothing: it asks, and hides or refuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from trails.model.sights import FULL, Sight
from trails.model.tools import Action
from trails.model.types import Schema


class Access(Protocol):
    """One actor's rights on one graph."""

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Whether an action on the graph is allowed on a branch."""
        ...

    def sight(self, schema: Schema, branches: Iterable[str]) -> Sight:
        """What is seen of some types on a branch; of a snapshot, on any branch that has it."""
        ...


class _Open:
    """Everything, for programs that open the project themselves."""

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Yes."""
        del action, branch, target
        return True

    def sight(self, schema: Schema, branches: Iterable[str]) -> Sight:
        """All of it."""
        del schema, branches
        return FULL


OPEN: Final[Access] = _Open()
