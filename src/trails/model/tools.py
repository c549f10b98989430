"""A tool: what a surface shows of a built-in, a capability or a stored query.

All populations become the same record, so that listing and calling never ask
which one a name belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trails.model.capabilities import MetaFacts, Scope

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
    """What a call may do to the world; every hint is said, none is left to a default."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether a call may be made again when nobody knows what came of it."""
        return self.read_only or self.idempotent


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A name that can be called, with everything that a caller needs to call it well."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, object]
    output_schema: Mapping[str, object] | None = None
    """Always of an object; None where a result has no fixed form."""
    hints: Hints
    meta: MetaFacts | None = None
    """None for everything that is about data and not about the application."""
    action: Action | None = None
    """What a policy is asked about; None for what anybody may do."""

    @property
    def kind(self) -> Kind:
        """Whether it works on data or on the application itself."""
        return "runtime" if self.meta is None else "meta"

    @property
    def scope(self) -> Scope:
        """What a credential must permit."""
        return "runtime" if self.meta is None else self.meta.scope


class ToolList(msgspec.Struct, frozen=True):
    """The tools that an actor may use, in name order."""

    version: str
    """Changes whenever the tools do; what is encoded from them is kept under it."""
    tools: tuple[Tool, ...]
