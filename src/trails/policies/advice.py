"""Advice: what policies may say without meaning it."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from cedarpy import pst

from trails.policies.entities import World
from trails.policies.policies import Policies, Policy


def advise(policies: Policies, world: World, groups: frozenset[str] | None) -> Iterator[str]:
    """Policies that are valid, and yet may surprise; ``groups``: those that somebody is in."""
    for policy in policies.policies:
        place = f"{policy.statement.file}:{policy.statement.line}: {policy.name}"
        yield from (f"{place}: {each}" for each in _narrow(policy, world))
        if groups is not None:
            yield from (f"{place}: {each}" for each in _empty_groups(policy, groups))


def _narrow(policy: Policy, world: World) -> Iterator[str]:
    """A ``forbid`` of a type or field that does not reach what extends it."""
    match policy.says:
        case pst.Template(
            effect="forbid", resource=pst.ScopeEq(entity=pst.EntityUid(type=kind, id=name))
        ) if str(kind) in {"Type", "Field"}:
            below = [
                each.id
                for each in world.entities
                if each.kind == str(kind)
                and any(above.kind == each.kind and above.id == name for above in world.above(each))
            ]
            if below or str(kind) == "Type":
                also = ", ".join(below) or "its fields"
                yield f"it forbids {name} and not {also}; write 'resource in' to reach them too"


def _empty_groups(policy: Policy, groups: frozenset[str]) -> Iterator[str]:
    for uid in sorted(pst.entity_uids(policy.says), key=str):
        if str(uid.type) == "Group" and uid.id not in groups:
            near = get_close_matches(uid.id, groups, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield f"no token is in the group {uid.id!r}{hint}"
