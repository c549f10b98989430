"""Ask Cedar: one actor, one action, one thing, some places."""

from __future__ import annotations

from collections.abc import Sequence

import cedarpy
import msgspec

from trails.model.actors import Actor
from trails.model.decisions import Decision, Resource
from trails.model.tools import Action
from trails.policies.places import Place


def ask_cedar(
    policies: cedarpy.PolicySet,
    entities: cedarpy.Entities,
    asked: tuple[Actor, Action, Resource],
    places: Sequence[Place],
) -> list[Decision]:
    """Cedar's answers, with its own names of policies. Any error is a denial.

    Things are named by records, never by Cedar's syntax: a name may hold any character.
    """
    actor, action, resource = asked
    try:
        requests = [
            {
                "principal": {"type": "Actor", "id": actor.name},
                "action": {"type": "Action", "id": action},
                "resource": {"type": resource.kind, "id": resource.id},
                "context": msgspec.json.encode({"branch": branch, "target": target}).decode(),
            }
            for branch, target in places
        ]
        answers = cedarpy.is_authorized_batch(requests, policies, entities)
    except (ValueError, TypeError, KeyError) as error:
        # A name that is no Unicode text, for example: a caller may send anything.
        return [deny(error)] * len(places)
    return [_read(each) for each in answers]


def deny(error: Exception) -> Decision:
    """What is answered if Cedar can't be asked."""
    return Decision(False, errors=(f"{type(error).__name__}: {error}",))


def _read(answer: cedarpy.AuthzResult) -> Decision:
    errors = tuple(answer.diagnostics.errors)
    return Decision(answer.allowed and not errors, tuple(answer.diagnostics.reasons), errors)
