"""Advice: what policies may say without meaning it."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from cedarpy import pst

from trails.policies.entities import World
from trails.policies.heads import read_actions
from trails.policies.policies import Policies, Policy

_PARTS: Final = frozenset({"Type", "Field"})
"""What a graph is made of, as far as reading is concerned."""


def advise(policies: Policies, world: World, groups: frozenset[str] | None) -> Iterator[str]:
    """Policies that are valid, and yet may surprise; ``groups``: those that somebody is in."""
    for policy in policies.policies:
        place = f"{policy.statement.file}:{policy.statement.line}: {policy.name}"
        yield from (f"{place}: {each}" for each in _narrow(policy, world))
        yield from (f"{place}: {each}" for each in _unopened(policy, policies))
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


def _unopened(policy: Policy, policies: Policies) -> Iterator[str]:
    """A ``permit`` to read a type, of a graph that the same principals may not read."""
    match policy.says.resource:
        case (
            pst.ScopeEq(entity=pst.EntityUid(type=kind, id=name))
            | pst.ScopeIn(entity=pst.EntityUid(type=kind, id=name))
        ) if str(kind) in _PARTS and _permits_reading(policy):
            opened = (
                each
                for each in policies.policies
                if _permits_reading(each) and not _is_about_parts(each)
            )
            whose = {pst.ScopeAny(), policy.says.principal}
            if all(each.says.principal not in whose for each in opened):
                yield (
                    f"it permits to read {name}, and nothing lets the same principals read the "
                    "graph, without which they are shown nothing; permit Read on the graph, and "
                    "forbid what is to be hidden"
                )


def _permits_reading(policy: Policy) -> bool:
    actions = read_actions(policy.says.action)
    return policy.permits and (actions is None or "Read" in actions)


def _is_about_parts(policy: Policy) -> bool:
    named = pst.entity_uids(policy.says.resource)
    return bool(named) and all(str(each.type) in _PARTS for each in named)


def _empty_groups(policy: Policy, groups: frozenset[str]) -> Iterator[str]:
    for uid in sorted(pst.entity_uids(policy.says), key=str):
        if str(uid.type) == "Group" and uid.id not in groups:
            near = get_close_matches(uid.id, groups, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield f"no token is in the group {uid.id!r}{hint}"
