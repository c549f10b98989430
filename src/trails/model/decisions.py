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
    """The object of an action; a field is ``Type.field``."""

    kind: ResourceKind
    id: str


SERVER: Final = Resource("Server", "trails")
"""The server itself."""


class Decision(msgspec.Struct, frozen=True):
    """Allowed or not, with the reasons."""

    allowed: bool
    policies: tuple[str, ...] = ()
    """The policies that decided; none where none applied."""
    errors: tuple[str, ...] = ()
    """Evaluation errors; with any, the decision is to deny."""


class Judge(Protocol):
    """Decides for one graph, or for the server."""

    @property
    def version(self) -> str:
        """Changes whenever a decision may change."""
        ...

    @property
    def current(self) -> Judge:
        """The judge at this version; its decisions never change."""
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
        """Each branch, mapped to a branch with the same decisions for this actor."""
        ...


class _AllowAll:
    """Allows everything."""

    version = "everything"

    @property
    def current(self) -> Judge:
        """Itself: its decisions never change."""
        return self

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Always true."""
        del actor, action, resource, branch, target
        return True

    def allows_somewhere(
        self, actor: Actor, action: Action, resource: Resource, branches: Collection[str]
    ) -> bool:
        """Always true."""
        del actor, action, resource, branches
        return True

    def alike(self, actor: Actor, branches: Collection[str]) -> Mapping[str, str]:
        """All branches have the same decisions."""
        del actor
        return dict.fromkeys(branches, next(iter(branches), ""))


ALLOW_ALL: Final[Judge] = _AllowAll()
"""Local development: nothing is configured, so nothing is denied."""


class PolicyProblem(msgspec.Struct, frozen=True):
    """A mistake in a policy: where it is and how to correct it."""

    file: str
    line: int
    policy: str
    """Its ``@id``, or its number in the file."""
    message: str

    def __str__(self) -> str:
        """As an error says it."""
        place = f"{self.file}:{self.line}: {self.policy}: " if self.file else ""
        return f"{place}{self.message}"


class PolicyVerdict(msgspec.Struct, frozen=True):
    """The effect of one policy on a request, and why."""

    policy: str
    file: str
    line: int
    effect: str
    """``permit`` or ``forbid``."""
    applies: bool
    missing: tuple[str, ...] = ()
    """The conditions that do not hold."""
    attributes: Mapping[str, object] = {}
    """The attributes that its conditions use, with their values in this request."""


class Explanation(msgspec.Struct, frozen=True):
    """Why a request is allowed or denied."""

    allowed: bool
    reason: str
    decided_by: tuple[str, ...]
    """The policies that decided; empty where none permits."""
    policies: tuple[PolicyVerdict, ...]
    """The policies for this action: those that apply first, then near misses."""
    errors: tuple[str, ...] = ()


class PolicyCheck(msgspec.Struct, frozen=True):
    """The state of the policies of one graph, or of the server."""

    subject: str
    mode: str
    """The mode: ``open``, ``read only``, ``closed`` (of the server) or ``policies``."""
    files: tuple[str, ...] = ()
    permits: int = 0
    forbids: int = 0
    problems: tuple[PolicyProblem, ...] = ()
    notes: tuple[str, ...] = ()
    """Permissions that may be unintended."""


class PolicyActor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The actor of a question."""

    actor: str
    groups: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ("runtime",)

    def resolved(self) -> Actor:
        """The actor as requests carry it."""
        return Actor(self.actor, frozenset(self.scopes), frozenset(self.groups))


class PolicyQuestion(PolicyActor, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A question to the policies."""

    action: Action
    resource: str = ""
    """``Type::Person``, or an unambiguous id; empty: the graph itself."""
    branch: str = "main"
    target: str = ""


class PolicyCase(PolicyQuestion, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A question with the expected answer."""

    expect: Literal["allow", "deny"]
    name: str = ""

    @property
    def title(self) -> str:
        """The name, or a summary of the question."""
        groups = f" in {', '.join(self.groups)}" if self.groups else ""
        on = f" {self.resource}" if self.resource else ""
        return self.name or f"{self.actor}{groups}: {self.action}{on} on {self.branch}"


class PolicyCases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of cases."""

    case: tuple[PolicyCase, ...] = ()


class PolicyResult(msgspec.Struct, frozen=True):
    """The outcome of a case."""

    case: str
    passed: bool
    expected: str
    reason: str


class MatrixRow(msgspec.Struct, frozen=True):
    """A tool, and whether each actor may use it: ``yes``, ``no``, or ``scope`` (scope missing)."""

    tool: str
    cells: tuple[str, ...]


class PolicyMatrix(msgspec.Struct, frozen=True):
    """Actors and tools on one branch."""

    graph: str
    branch: str
    actors: tuple[PolicyActor, ...]
    rows: tuple[MatrixRow, ...]
