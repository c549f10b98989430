"""The heads of policies: whom, what and which things each is about, before any condition."""

from __future__ import annotations

from collections.abc import Collection

from cedarpy import pst

from trails.model.actors import Actor
from trails.model.decisions import Resource
from trails.model.tools import Action


def concerns_actor(template: pst.Template, actor: Actor) -> bool:
    """Whether the principal of a policy is this actor, or a group that it is in."""
    groups = {("Group", each) for each in actor.groups}
    return _concerns(template.principal, ("Actor", actor.name), groups)


def concerns_action(template: pst.Template, action: Action) -> bool:
    """Whether a policy is about an action."""
    match template.action:
        case pst.ActionEq(entity=entity):
            return entity.id == action
        case pst.ActionIn(entities=entities):
            return any(entity.id == action for entity in entities)
    return True


def concerns_resource(
    template: pst.Template, resource: Resource, above: Collection[Resource]
) -> bool:
    """Whether the resource of a policy is this one, or something that it is part of."""
    within = {(each.kind, each.id) for each in above}
    return _concerns(template.resource, (resource.kind, resource.id), within)


def _concerns(
    constraint: pst.PrincipalOrResourceConstraint,
    uid: tuple[str, str],
    above: Collection[tuple[str, str]],
) -> bool:
    """Templates have slots, and were refused: an entity is a name."""
    match constraint:
        case pst.ScopeEq(entity=entity):
            return _named(entity) == uid
        case pst.ScopeIn(entity=entity):
            return _named(entity) == uid or _named(entity) in above
        case pst.ScopeIs(entity_type=kind):
            return str(kind) == uid[0]
        case pst.ScopeIsIn(entity_type=kind, entity=entity):
            named = _named(entity)
            return str(kind) == uid[0] and (named == uid or named in above)
    return True


def _named(entity: pst.EntityOrSlot) -> tuple[str, str] | None:
    return None if isinstance(entity, pst.Slot) else (str(entity.type), entity.id)
