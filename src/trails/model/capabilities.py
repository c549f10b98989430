"""Descriptors of what can be called: capabilities, policy rules, stored queries, tools.

``CapabilityDescriptor`` is the one authoritative record: every surface is a projection of its
fields. ``MetaFacts`` adds what operations on the application itself carry. A ``PolicyRule``
checks the arguments of a call. Built-ins, capabilities and stored queries all become a
``Tool``, so that listing and calling never ask which of them a name belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Final, Literal

import msgspec

from trails.model.iris import digest_of
from trails.model.names import META_PREFIX, meta_tool_name
from trails.model.types import PredicateDescriptor, ValueType

Scope = Literal["runtime", "builder", "dev"]
SCOPES: tuple[Scope, ...] = ("runtime", "builder", "dev")
NO_EFFECTS: Final = "none"
"""The declared side effects of a capability that only reads."""


class CapabilityDescriptor(msgspec.Struct, frozen=True):
    """A callable: its shapes, its trust, its costs and its side effects."""

    id: str
    version: str
    description: str
    input_shape: tuple[PredicateDescriptor, ...] = ()
    output_shape: ValueType | None = None
    preconditions: tuple[str, ...] = ()
    side_effects: tuple[str, ...] = ()
    cost: Mapping[str, float] = {}
    policy_required: tuple[str, ...] = ()
    idempotent: bool = False
    reasoning: str = ""
    deprecates: tuple[str, ...] = ()
    assurance: str = ""
    consent_required: bool = False

    @property
    def reads_only(self) -> bool:
        """Whether it declares that it changes nothing, here or elsewhere."""
        return self.side_effects == (NO_EFFECTS,)

    @property
    def is_derived(self) -> bool:
        """Whether the version was derived from the content, and not given by hand."""
        return self.version == content_version(self)


class Deprecation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a capability should not be used any more."""

    by: str
    """What to use instead."""
    since: str = ""
    sunset: str = ""
    """Dates: when it was deprecated, and when it will be gone; empty if that is not said."""


def parse_deprecation(text: str) -> tuple[str, str, str]:
    """Id and dates of an item of ``deprecates``; a ValueError says what is wrong with it.

    ``notes.put``, or with dates ``notes.put; since=2026-10-01; sunset=2027-04-01``.
    """
    identifier, *parts = (each.strip() for each in text.split(";"))
    dates = {"since": "", "sunset": ""}
    for part in parts:
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in dates or dates[name]:
            raise ValueError(f"{part!r} is not since=DATE or sunset=DATE, each at most once")
        try:
            dates[name] = date.fromisoformat(value).isoformat()
        except ValueError:
            raise ValueError(f"{value!r} is not a date like 2026-10-01") from None
    if dates["since"] and dates["sunset"] and dates["sunset"] < dates["since"]:
        raise ValueError(f"sunset {dates['sunset']} is before since {dates['since']}")
    return identifier, dates["since"], dates["sunset"]


def content_version(descriptor: CapabilityDescriptor) -> str:
    """A version that changes exactly when the content does."""
    return digest_of(msgspec.structs.replace(descriptor, version=""))[:12]


class MetaFacts(msgspec.Struct, frozen=True):
    """What a meta-capability carries beside its descriptor."""

    scope: Scope
    namespace: str
    op: str

    @classmethod
    def of(cls, identifier: str, scope: Scope) -> MetaFacts:
        """Split ``trails.meta.gen.shape`` into namespace ``gen`` and op ``shape``."""
        namespace, _, op = identifier.removeprefix(META_PREFIX).rpartition(".")
        return cls(scope, namespace, op)


class Capability(msgspec.Struct, frozen=True, eq=False):
    """A descriptor and the function behind it."""

    descriptor: CapabilityDescriptor
    handler: Callable[..., object]
    meta: MetaFacts | None = None
    """None for a runtime capability."""
    held: Mapping[str, Callable[[object], object]] = {}
    """How the function takes some arguments, such as members of an Enum."""

    @property
    def id(self) -> str:
        """The descriptor's id."""
        return self.descriptor.id

    @property
    def tool_name(self) -> str:
        """The name under which agents call it."""
        return meta_tool_name(self.id) if self.meta else self.id


class StoredQuery(msgspec.Struct, frozen=True):
    """A named SPARQL text with typed parameters, written ``$name`` in it."""

    name: str
    description: str
    text: str
    params: tuple[PredicateDescriptor, ...] = ()
    tool_name: str = ""
    mutation: bool = False
    """Whether it changes the graph; else it reads."""
    expose: bool = True
    """Whether it is listed as a tool for agents."""
    columns: tuple[str, ...] = ()
    """The variables of a row, in order; empty where they are not spelled out."""
    source: str = ""
    """The file it was read from, relative to the project."""

    @property
    def effective_tool_name(self) -> str:
        """The name under which agents call it."""
        return self.tool_name or self.name


class PolicyRule(msgspec.Struct, frozen=True, eq=False):
    """A named check of a call, and the arguments that it needs."""

    name: str
    judge: Callable[..., object]
    """Takes the context and arguments by name; returns True, or the reason for refusal."""
    required: tuple[str, ...] = ()
    """Arguments that every capability with this rule must have."""
    optional: tuple[str, ...] = ()
    """Arguments that it receives if the capability has them."""
    every: bool = False
    """Whether it receives all arguments."""

    def select(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """The arguments of a call that it receives."""
        if self.every:
            return arguments
        wanted = (*self.required, *self.optional)
        return {name: arguments[name] for name in wanted if name in arguments}


Kind = Literal["runtime", "meta"]
Action = Literal[
    "Read",
    "Export",
    "Change",
    "SchemaApply",
    "BranchCreate",
    "BranchDelete",
    "BranchMerge",
    "Admin",
    "GraphList",
    "InvokeQuery",
    "InvokeCapability",
]


class Hints(msgspec.Struct, frozen=True):
    """MCP hints on what a call may do; each is explicit, because clients' defaults differ."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether a call may be repeated when its outcome is unknown."""
        return self.read_only or self.idempotent


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A callable as clients see it: name, description, schemas, hints."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, object]
    output_schema: Mapping[str, object] | None = None
    """Always an object schema; None where the result has no fixed form."""
    hints: Hints
    meta: MetaFacts | None = None
    """None for callables that work on data rather than on the application."""
    action: Action | None = None
    """The action that policies decide on; None: every actor may call it."""
    deprecated: Deprecation | None = None
    """What replaces it, as far as the caller may use that; None if nothing does."""
    controls: Mapping[str, object] = {}
    """Schemas of further arguments, by name: how a write is made. Lists for models leave them out,
    because every tool that writes has the same."""
    lists_controls: bool = False
    """Whether a list for models has them all the same."""

    @property
    def full_schema(self) -> Mapping[str, object]:
        """The schema of all arguments."""
        own = self.input_schema.get("properties")
        known = own if isinstance(own, Mapping) else {}
        return {**self.input_schema, "properties": {**known, **self.controls}}

    @property
    def kind(self) -> Kind:
        """Whether it works on data or on the application itself."""
        return "runtime" if self.meta is None else "meta"

    @property
    def scope(self) -> Scope:
        """The scope that a credential must have."""
        return "runtime" if self.meta is None else self.meta.scope


class ToolList(msgspec.Struct, frozen=True):
    """The tools that an actor may use, in name order."""

    version: str
    """Changes whenever the tools do; encoded lists are cached by it."""
    tools: tuple[Tool, ...]
    deprecated: Mapping[str, Deprecation] = {}
    """Those that have been replaced, by name."""
    registry: str = ""
    """The digest of what the actor sees of the registry: the same on every surface, so that a
    client of several can tell whether two documents come from one registry."""
