"""Find the thing that somebody means, as people write it."""

from __future__ import annotations

from typing import Final, get_args

from trails.errors import NotFoundError, PolicyError
from trails.model.decisions import Resource, ResourceKind
from trails.model.names import suggest
from trails.model.policies import PolicyQuestion
from trails.policies.entities import World
from trails.policies.vocabulary import GRAPH_ACTIONS, SERVER_ACTIONS

_KINDS: Final = get_args(ResourceKind)


def find_resource(world: World, question: PolicyQuestion, whole: Resource) -> Resource:
    """``Type::Person``, an id that only one thing has, or the whole where none is named."""
    if not question.resource:
        return _check_whole(question, whole)
    kind, separator, identifier = question.resource.partition("::")
    if not separator:
        kind, identifier = "", question.resource
    elif kind not in _KINDS:
        raise PolicyError(f"there is no kind of thing {kind!r}; {suggest(kind, _KINDS)}")
    identifier = identifier.removeprefix('"').removesuffix('"')
    of_kind = [each for each in world.entities if kind in {"", each.kind}]
    found = [each for each in of_kind if each.id == identifier]
    if len(found) == 1:
        return found[0]
    if found:
        spelled = " or ".join(f"{each.kind}::{each.id}" for each in found)
        raise PolicyError(f"{identifier!r} may be {spelled}; say which")
    hint = suggest(identifier, [each.id for each in of_kind])
    raise NotFoundError(f"there is no {kind or 'thing'} {identifier!r}; {hint}")


def _check_whole(question: PolicyQuestion, whole: Resource) -> Resource:
    kinds = {**GRAPH_ACTIONS, **SERVER_ACTIONS}[question.action]
    if whole.kind not in kinds:
        raise PolicyError(
            f"{question.action} is done to a {' or '.join(kinds)}; say which: {kinds[0]}::<name>"
        )
    return whole
