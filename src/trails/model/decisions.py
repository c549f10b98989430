"""Decisions: whether an actor may do something to a resource, on a branch.

The question has one form everywhere, and whoever can answer it is a Judge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, Protocol

import msgspec

from trails.model.actors import Actor
from trails.model.tools import Action

ResourceKind = Literal["Server", "Graph", "Type", "Field", "Query", "Capability"]


class Resource(msgspec.Struct, frozen=True, cache_hash=True):
    """What something is done to; a field is ``Type.field``."""

    kind: ResourceKind
    id: str


SERVER: Final = Resource("Server", "trails")
"""The server itself."""


class Decision(msgspec.Struct, frozen=True):
    """An answer with its reasons."""

    allowed: bool
    policies: tuple[str, ...] = ()
    """The policies that decided; none where none applied."""
    errors: tuple[str, ...] = ()
    """What went wrong on the way: then nothing is allowed."""


class Judge(Protocol):
    """Answers for one graph, or for the server."""

    @property
    def version(self) -> str:
        """Changes whenever an answer may."""
        ...

    @property
    def current(self) -> Judge:
        """Who decides now: a judge whose answers never change."""
        ...

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Whether it is allowed on a branch; ``target`` is the other branch of a merge or fork."""
        ...

    def allows_somewhere(
        self, actor: Actor, action: Action, resource: Resource, branches: Collection[str]
    ) -> bool:
        """Whether it is allowed on one of these branches, or between two of them."""
        ...

    def alike(self, actor: Actor, branches: Collection[str]) -> Mapping[str, str]:
        """Each branch, with one of them on which all is decided alike for this actor."""
        ...


class _Everything:
    """Allows everything."""

    version = "everything"

    @property
    def current(self) -> Judge:
        """It stays so."""
        return self

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Yes."""
        del actor, action, resource, branch, target
        return True

    def allows_somewhere(
        self, actor: Actor, action: Action, resource: Resource, branches: Collection[str]
    ) -> bool:
        """Yes."""
        del actor, action, resource, branches
        return True

    def alike(self, actor: Actor, branches: Collection[str]) -> Mapping[str, str]:
        """All are."""
        del actor
        return dict.fromkeys(branches, next(iter(branches), ""))


EVERYTHING: Final[Judge] = _Everything()
"""Local development: nothing is configured, so nothing is denied."""
