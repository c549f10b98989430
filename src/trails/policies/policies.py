"""Policies: texts that were parsed and checked, ready to decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256

import cedarpy
import msgspec
from cedarpy import pst

from trails.model.decisions import Resource
from trails.model.tools import Action
from trails.policies.heads import Constraint, read_actions, read_constraint
from trails.policies.places import Conditions, read_conditions
from trails.policies.sources import Statement


class Policy(msgspec.Struct, frozen=True, dict=True):
    """One policy: its place, and what it says."""

    statement: Statement
    label: str
    """What people call it: its ``@id``, or where it stands."""
    says: pst.Template

    @property
    def name(self) -> str:
        """Its ``@id``, or its place in its file."""
        return self.says.annotations.get("id") or f"policy {self.statement.number}"

    @cached_property
    def _actions(self) -> frozenset[str] | None:
        return read_actions(self.says.action)

    @cached_property
    def principal(self) -> Constraint:
        """Whom it is about."""
        return read_constraint(self.says.principal)

    @cached_property
    def resource(self) -> Constraint:
        """What it is about."""
        return read_constraint(self.says.resource)

    def is_about(self, action: Action) -> bool:
        """Whether an action is among those that it speaks of."""
        return self._actions is None or action in self._actions

    @cached_property
    def conditions(self) -> Conditions:
        """How it uses the branches of a request."""
        return read_conditions(self.says)

    @property
    def permits(self) -> bool:
        """Whether it permits; else it forbids."""
        return self.says.effect == "permit"


class Policies:
    """Some policies, compiled. Cedar calls them ``policy0``, ``policy1``… in this order."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self.policies = tuple(policies)
        self.text = "\n".join(each.statement.text for each in self.policies)
        self.handle = cedarpy.PolicySet.from_str(self.text)
        self.by_id: Mapping[str, Policy] = {
            f"policy{at}": each for at, each in enumerate(self.policies)
        }

    @cached_property
    def digest(self) -> str:
        """Changes when any policy does."""
        return sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def mentioned(self) -> frozenset[pst.EntityUid]:
        """Every thing that some policy names."""
        found: frozenset[pst.EntityUid] = frozenset()
        return found.union(*(pst.entity_uids(each.says) for each in self.policies))

    @cached_property
    def mentioned_resources(self) -> frozenset[Resource]:
        """Every thing of a graph or the server that some policy names."""
        people = {"Actor", "Group", "Action"}
        return frozenset(
            msgspec.convert({"kind": str(each.type), "id": each.id}, Resource)
            for each in self.mentioned
            if str(each.type) not in people
        )

    def label(self, identifier: str) -> str:
        """What people call a policy that Cedar names."""
        policy = self.by_id.get(identifier)
        return identifier if policy is None else policy.label
