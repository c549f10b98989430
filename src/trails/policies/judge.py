"""CedarJudge: decides by some policies about some world, neither of which changes.

When a policy or the registry changes, there is another judge; so nothing that this one
remembers is ever out of date. Whatever goes wrong is a denial: Cedar skips a ``forbid`` that
fails, and would allow what it was to forbid.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import cedarpy

from trails.model.actors import Actor
from trails.model.decisions import Decision, Resource
from trails.model.kept import Kept
from trails.model.tools import Action
from trails.policies.asking import ask_cedar, deny
from trails.policies.places import Place, join_conditions, kinds_of, places_for
from trails.policies.policies import Policies, Policy
from trails.policies.stage import Stage
from trails.policies.vocabulary import PAIRS

Standing = tuple[str, frozenset[str], frozenset[str]]

_ACTORS: Final = 256
_DECISIONS: Final = 1 << 16
_BRANCHES: Final = 8
"""Sets of branches about which answers are remembered; a set may be large."""
_TOLD: Final = 100
_NAME: Final = re.compile(r"policy `(policy\d+)`")
_logger: Final = logging.getLogger("trails")


class CedarJudge:
    """Answers from policies, and remembers what it answered."""

    def __init__(self, policies: Policies, stage: Stage, version: str) -> None:
        self.policies = policies
        self.stage = stage
        self.version = version
        self._actors: Kept[Standing, cedarpy.Entities] = Kept(_ACTORS)
        self._policies_about: Kept[Standing, list[Policy]] = Kept(_ACTORS)
        self._decided: dict[object, bool] = {}
        self._somewhere: Kept[frozenset[str], dict[object, bool]] = Kept(_BRANCHES)
        self._told: set[str] = set()

    @property
    def current(self) -> CedarJudge:
        """Itself."""
        return self

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Whether some policy permits it, none forbids it, and all could be asked."""
        asked = self.stage.find(resource)
        if asked is None:
            return False
        key = (actor.name, actor.groups, actor.scopes, action, asked, branch, target)
        found = self._decided.get(key)
        if found is None:
            (found,) = self._ask(actor, action, asked, ((branch, target),))
        return found

    def allows_somewhere(
        self, actor: Actor, action: Action, resource: Resource, branches: Collection[str]
    ) -> bool:
        """Whether it is allowed on one of these branches, or between two of them.

        A fork is to a branch that is not there yet, so it is allowed somewhere if it is to some
        name. Where policies compare the two branches of a fork or merge in ways that can't be
        foreseen, the answer is yes, and each call is decided by itself.
        """
        if len(branches) == 1 and action not in PAIRS:
            return self.allows(actor, action, resource, *branches)
        asked = self.stage.find(resource)
        if asked is None:
            return False
        names = branches if isinstance(branches, frozenset) else frozenset(branches)
        known = self._somewhere.get(names, dict)
        key = (actor.name, actor.groups, actor.scopes, action, asked)
        found = known.get(key)
        if found is None:
            if len(known) >= _DECISIONS:
                known.clear()
            found = known[key] = self._find_somewhere(actor, action, asked, names)
        return found

    def alike(self, actor: Actor, branches: Collection[str]) -> Mapping[str, str]:
        """Each branch, with one of them on which all is decided alike for this actor."""
        conditions = join_conditions(each.conditions for each in self._about(actor))
        return kinds_of(conditions.for_actor(actor), frozenset(branches))

    def _find_somewhere(
        self, actor: Actor, action: Action, asked: Resource, branches: frozenset[str]
    ) -> bool:
        concerned = self.concerned(actor, action, asked)
        if not any(policy.permits for policy in concerned):
            return False
        conditions = join_conditions(policy.conditions for policy in concerned)
        places = places_for(action, conditions.for_actor(actor), branches)
        if places is None:
            return True
        return any(
            any(self._ask(actor, action, asked, some)) for some in (places[:1], places[1:]) if some
        )

    def concerned(self, actor: Actor, action: Action, resource: Resource) -> list[Policy]:
        """The policies that may apply, whatever their conditions say."""
        uid, above = (resource.kind, resource.id), self.stage.uids_above(resource)
        return [
            each
            for each in self._about(actor)
            if each.is_about(action) and each.resource.fits(uid, above)
        ]

    def _about(self, actor: Actor) -> list[Policy]:
        standing = (actor.name, actor.groups, actor.scopes)
        return self._policies_about.get(standing, lambda: self.stage.about(actor))

    def _ask(
        self, actor: Actor, action: Action, asked: Resource, places: Sequence[Place]
    ) -> list[bool]:
        """Answers for some places: those that are remembered, or new ones, which then are."""
        about = (actor.name, actor.groups, actor.scopes, action, asked)
        known = [self._decided.get((*about, *place)) for place in places]
        if None not in known:
            return [bool(each) for each in known]
        decisions = self.decide(actor, action, asked, places)
        return [
            self._keep((*about, *place), decision.allowed)
            for place, decision in zip(places, decisions, strict=True)
        ]

    def _keep(self, key: object, answer: bool) -> bool:  # noqa: FBT001
        if len(self._decided) >= _DECISIONS:
            self._decided = {}
        self._decided[key] = answer
        return answer

    def decide(
        self, actor: Actor, action: Action, resource: Resource, places: Sequence[Place]
    ) -> list[Decision]:
        """Ask Cedar about one thing in some places, with all reasons and nothing from memory."""
        try:
            entities = self.entities_with(actor)
        except ValueError as error:
            return [deny(error)] * len(places)
        found = ask_cedar(self.policies.handle, entities, (actor, action, resource), places)
        return [self._label(each) for each in found]

    def entities_with(self, actor: Actor) -> cedarpy.Entities:
        """What Cedar is told about; raises ValueError if the actor can't be told about."""
        standing = (actor.name, actor.groups, actor.scopes)
        return self._actors.get(standing, lambda: self.stage.with_actor(actor))

    def _label(self, decision: Decision) -> Decision:
        labels = tuple(self.policies.label(each) for each in decision.policies)
        errors = tuple(_NAME.sub(self._name, each) for each in decision.errors)
        for error in errors:
            if error not in self._told and len(self._told) < _TOLD:
                self._told.add(error)
                _logger.warning("a policy failed, so what was asked is denied: %s", error)
        return Decision(decision.allowed, labels, errors)

    def _name(self, found: re.Match[str]) -> str:
        return f"policy {self.policies.label(found[1])!r}"
