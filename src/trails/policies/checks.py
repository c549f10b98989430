"""Check policies: Cedar's own rules, and that whatever they name exists.

Cedar knows kinds and types. That a policy names a type, field, query or capability which is
not there, or a branch that can't exist, it would take in silence, and a ``forbid`` with a
misspelled name forbids nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

import cedarpy
import msgspec
from cedarpy import pst

from trails.errors import DeclarationError
from trails.model.capabilities import SCOPES
from trails.model.decisions import ResourceKind
from trails.model.names import check_branch_name
from trails.model.policies import PolicyProblem
from trails.model.tools import Action
from trails.policies.entities import World
from trails.policies.policies import Policies, Policy
from trails.policies.trees import context_texts, scope_texts
from trails.policies.vocabulary import ATTRIBUTES, CONTEXT

_PEOPLE: Final = frozenset({"Actor", "Group"})
_PREFIX: Final = re.compile(r"^for policy `[^`]*`, ")
_ATTRIBUTE: Final = re.compile(r"attribute `([^`]*)`")
_ID: Final = r"@id\b"
_START: Final = r"\A"
_NOWHERE: Final = "unable to find an applicable action"


class Known(msgspec.Struct, frozen=True):
    """What policies can speak of."""

    schema: str
    actions: Mapping[Action, tuple[ResourceKind, ...]]
    elsewhere: Mapping[Action, tuple[ResourceKind, ...]]
    """Actions that other policies are about."""
    world: World
    graphs: Collection[str]
    """All graphs of the project: a policy may be in several folders."""

    def has(self, kind: str, identifier: str) -> bool:
        """Whether there is such a thing."""
        if kind in _PEOPLE:
            return True  # they come with the requests
        if kind == "Graph" and identifier in self.graphs:
            return True
        return identifier in self.world.names(kind)


def check_policies(policies: Policies, known: Known) -> list[PolicyProblem]:
    """Every mistake of all policies, in their order."""
    found = [
        (at, policy.statement.line_of(pattern), message)
        for at, policy in enumerate(policies.policies)
        for pattern, message in (*_unknown_things(policy, known), *_impossible_texts(policy))
    ]
    at_fault = {at for at, _, _ in found}
    for at, pattern, message in (*_invalid(policies, known), *_same_names(policies)):
        if at not in at_fault or pattern == _ID:
            found.append((at, policies.policies[at].statement.line_of(pattern), message))
    return [
        PolicyProblem(policy.statement.file, line, policy.name, message)
        for at, line, message in sorted(dict.fromkeys(found))
        for policy in (policies.policies[at],)
    ]


def _unknown_things(policy: Policy, known: Known) -> Iterator[tuple[str, str]]:
    """Names of actions, kinds and things that are not there; each with what to look for."""
    for uid in sorted(pst.entity_uids(policy.says), key=str):
        kind = str(uid.type)
        pattern = rf"{re.escape(kind)}\s*::\s*{_quoted(uid.id)}"
        if kind == "Action":
            yield from ((pattern, message) for message in _unknown_action(uid.id, known))
        elif kind not in ATTRIBUTES:
            yield pattern, f"there is no kind of thing {kind!r}; {_suggest(kind, ATTRIBUTES)}"
        elif not known.has(kind, uid.id):
            there = known.graphs if kind == "Graph" else known.world.names(kind)
            what = f"{kind}::{msgspec.json.encode(uid.id).decode()}"
            yield pattern, f"{what} does not exist; {_suggest(uid.id, there)}"


def _quoted(text: str) -> str:
    """How a text is looked for in a policy."""
    return re.escape(msgspec.json.encode(text).decode())


def _unknown_action(name: str, known: Known) -> Iterator[str]:
    if name in known.actions:
        return
    if name in known.elsewhere:
        where = "[server] policies" if name == "GraphList" else "the policies of a graph"
        yield f"the action {name} is decided by {where}; put this policy there"
    else:
        yield f"there is no action {name!r}; {_suggest(name, known.actions)}"


def _impossible_texts(policy: Policy) -> Iterator[tuple[str, str]]:
    """Branches and scopes that no request will ever have."""
    for name, text in context_texts(policy.says):
        try:
            if text:
                check_branch_name(text)
        except DeclarationError as error:
            yield _quoted(text), f"context.{name} is never {text!r}: {error.message}"
    for text in scope_texts(policy.says):
        if text not in SCOPES:
            yield _quoted(text), f"principal.scopes never has {text!r}; {_suggest(text, SCOPES)}"


def _invalid(policies: Policies, known: Known) -> Iterator[tuple[int, str, str]]:
    """What Cedar's validator finds."""
    ids = {identifier: at for at, identifier in enumerate(policies.by_id)}
    for error in cedarpy.validate_policies(policies.text, known.schema).errors:
        message, pattern = _PREFIX.sub("", error.error), _START
        if _NOWHERE in message:
            applies = "; ".join(
                f"{action}: {', '.join(kinds)}" for action, kinds in known.actions.items()
            )
            message = (
                "no action that it names can be done to the resource that it names, so it "
                f"would never apply; the actions are {applies}"
            )
        elif unknown := _ATTRIBUTE.search(message):
            there = sorted({*CONTEXT, *(name for each in ATTRIBUTES.values() for name in each)})
            message += f"; {_suggest(unknown[1], there)}"
            pattern = rf"\b{re.escape(unknown[1])}\b"
        yield ids.get(error.policy_id, 0), pattern, message


def _same_names(policies: Policies) -> Iterator[tuple[int, str, str]]:
    """An ``@id`` is how people find a policy, so it is one policy's."""
    first: dict[str, Policy] = {}
    for at, policy in enumerate(policies.policies):
        name = policy.says.annotations.get("id")
        other = first.setdefault(name, policy) if name else policy
        if other is not policy:
            place = f"{other.statement.file}:{other.statement.line}"
            yield at, _ID, f"the policy at {place} has this @id as well; rename one"


def _suggest(name: str, there: Collection[str]) -> str:
    near = get_close_matches(name, there, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    some = sorted(there)[:12]
    return (
        f"there is {', '.join(some)}{' …' if len(there) > 12 else ''}" if some else "there is none"
    )
