"""Who may use which tool: one answer, for listing and for calling alike."""

from __future__ import annotations

from collections.abc import Hashable

from trails.model.actors import Actor
from trails.model.outcomes import Failure
from trails.model.tools import Tool


def refuse(actor: Actor, tool: Tool) -> Failure | None:
    """Why an actor may not use a tool, or None when it may."""
    if tool.scope in actor.scopes:
        return None
    held = sorted(actor.scopes)
    return Failure(
        "scope",
        "scope",
        f"{tool.name} needs the scope {tool.scope!r}, and this credential has "
        f"{', '.join(held) or 'none'}; ask for one that has it",
        {"tool": tool.name, "required_scope": tool.scope, "caller_scopes": held},
    )


def standing(actor: Actor) -> Hashable:
    """All that answers depend on: actors of the same standing see the same tools."""
    return actor.scopes
