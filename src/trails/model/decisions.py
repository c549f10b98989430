"""Authorization as values: the question, the decision, and what a policy check reports.

``Judge`` is the interface that decides whether an actor may perform an action on a resource
and a branch. ``trails.policies`` implements it; nothing here evaluates a policy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, Protocol

import msgspec

from trails.model.actors import Actor
from trails.model.capabilities import Action, Scope

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


class PolicyProblem(msgspec.Struct, frozen=True):
    """A mistake in a policy, with where it is and what to do."""

    file: str
    line: int
    policy: str
    """Its ``@id``, or its place among the policies of its file."""
    message: str

    def __str__(self) -> str:
        """As an error says it."""
        place = f"{self.file}:{self.line}: {self.policy}: " if self.file else ""
        return f"{place}{self.message}"


class PolicyVerdict(msgspec.Struct, frozen=True):
    """What one policy says about a request, and why."""

    policy: str
    file: str
    line: int
    effect: str
    """``permit`` or ``forbid``."""
    applies: bool
    missing: tuple[str, ...] = ()
    """What keeps it from applying."""
    attributes: Mapping[str, object] = {}
    """What its conditions look at, with the values that it has in this request."""


class Explanation(msgspec.Struct, frozen=True):
    """Why a request is allowed or denied."""

    allowed: bool
    reason: str
    decided_by: tuple[str, ...]
    """The policies that decided; none where nothing permits."""
    policies: tuple[PolicyVerdict, ...]
    """Those about this action: what applies first, then what nearly does."""
    errors: tuple[str, ...] = ()


class PolicyCheck(msgspec.Struct, frozen=True):
    """How the policies of one graph, or of the server, are."""

    subject: str
    mode: str
    """What holds there: ``open``, ``read only``, ``closed`` (of the server) or ``policies``."""
    files: tuple[str, ...] = ()
    permits: int = 0
    forbids: int = 0
    problems: tuple[PolicyProblem, ...] = ()
    notes: tuple[str, ...] = ()
    """What is allowed, and may not be meant."""


class PolicyActor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who asks."""

    actor: str
    groups: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ("runtime",)

    def resolved(self) -> Actor:
        """As requests have it."""
        return Actor(self.actor, frozenset(self.scopes), frozenset(self.groups))


class PolicyQuestion(PolicyActor, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What somebody asks for."""

    action: Action
    resource: str = ""
    """``Type::Person``, or an id that only one thing has; the graph itself if empty."""
    branch: str = "main"
    target: str = ""


class PolicyCase(PolicyQuestion, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A question with the answer that is wanted."""

    expect: Literal["allow", "deny"]
    name: str = ""

    @property
    def title(self) -> str:
        """What people call it."""
        groups = f" in {', '.join(self.groups)}" if self.groups else ""
        on = f" {self.resource}" if self.resource else ""
        return self.name or f"{self.actor}{groups}: {self.action}{on} on {self.branch}"


class PolicyCases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of cases."""

    case: tuple[PolicyCase, ...] = ()


class PolicyResult(msgspec.Struct, frozen=True):
    """What became of a case."""

    case: str
    passed: bool
    expected: str
    reason: str


class MatrixRow(msgspec.Struct, frozen=True):
    """A tool, and whether each actor may use it: ``yes``, ``no``, or ``scope`` if that lacks."""

    tool: str
    cells: tuple[str, ...]


class PolicyMatrix(msgspec.Struct, frozen=True):
    """Actors and tools on one branch."""

    graph: str
    branch: str
    actors: tuple[PolicyActor, ...]
    rows: tuple[MatrixRow, ...]
