"""Who may use which tool and read what: one answer, for listing and for using alike."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from trails.model.actors import Actor
from trails.model.capabilities import Scope
from trails.model.outcomes import Failure
from trails.model.tools import Tool


def refuse(actor: Actor, tool: Tool) -> Failure | None:
    """Why an actor may not use a tool, or None when it may."""
    if tool.scope in actor.scopes:
        return None
    return _lacking(actor, tool.scope, tool.name, {"tool": tool.name})


def refuse_reading(actor: Actor) -> Failure | None:
    """Why an actor may not read resources, or None when it may."""
    if "runtime" in actor.scopes:
        return None
    return _lacking(actor, "runtime", "reading resources", {})


def _lacking(actor: Actor, scope: Scope, what: str, about: Mapping[str, object]) -> Failure:
    held = sorted(actor.scopes)
    return Failure(
        "scope",
        "scope",
        f"{what} needs the scope {scope!r}, and this credential has "
        f"{', '.join(held) or 'none'}; ask for one that has it",
        {**about, "required_scope": scope, "caller_scopes": held},
    )


def standing(actor: Actor) -> Hashable:
    """All that answers depend on: actors of the same standing see the same tools."""
    return actor.scopes
