"""Policies: texts that were parsed and checked, ready to decide.

Check policies: Cedar's own rules, and that whatever they name exists.

Cedar knows kinds and types. That a policy names a type, field, query or capability which is
not there, or a branch that can't exist, it would take in silence, and a ``forbid`` with a
misspelled name forbids nothing.

Read policies from texts, and check them against what there is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from hashlib import sha256
from typing import Final

import cedarpy
import msgspec
from cedarpy import pst

from trails.errors import DeclarationError, PolicyError
from trails.model.capabilities import SCOPES, Action
from trails.model.decisions import PolicyProblem, Resource, ResourceKind
from trails.model.names import check_branch_name
from trails.policies.places import Conditions, read_conditions
from trails.policies.sources import PolicyFile, Statement, split_source
from trails.policies.trees import (
    Constraint,
    context_texts,
    read_actions,
    read_constraint,
    scope_texts,
)
from trails.policies.vocabulary import ATTRIBUTES, CONTEXT, World


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


_PEOPLE: Final = frozenset({"Actor", "Group"})
_PREFIX: Final = re.compile(r"^for policy `[^`]*`, ")
_ATTRIBUTE: Final = re.compile(r"attribute `([^`]*)`")
_ID: Final = r"@id\b"
_START: Final = r"\A"
_NOWHERE: Final = "unable to find an applicable action"


class KnownNames(msgspec.Struct, frozen=True):
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


def check_policies(policies: Policies, known: KnownNames) -> list[PolicyProblem]:
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


def _unknown_things(policy: Policy, known: KnownNames) -> Iterator[tuple[str, str]]:
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


def _unknown_action(name: str, known: KnownNames) -> Iterator[str]:
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


def _invalid(policies: Policies, known: KnownNames) -> Iterator[tuple[int, str, str]]:
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


_INCOMPLETE: Final = "unexpected end of input"
"""What the parser says of a text that could go on."""


def read_policies(sources: Iterable[PolicyFile], known: KnownNames) -> Policies:
    """Parse and check some files; every mistake of all of them is told at once."""
    found: list[Policy] = []
    problems: list[PolicyProblem] = []
    for source in sources:
        for parsed in _parse(source):
            if isinstance(parsed, Policy):
                found.append(parsed)
            else:
                problems.append(parsed)
    if not problems:
        policies = Policies(found)
        problems += check_policies(policies, known)
    if problems:
        told = "; ".join(map(str, problems[:20]))
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise PolicyError(f"{told}{more}", problems=problems)
    return policies


def _parse(source: PolicyFile) -> Iterator[Policy | PolicyProblem]:
    for statement in split_source(source):
        place = f"policy {statement.number}"
        try:
            parsed = cedarpy.policies_to_pst(statement.text)
        except ValueError as error:
            message = f"{error}; the text of a policy ends with ';'"
            line = _line_of_mistake(statement, str(error))
            yield PolicyProblem(statement.file, line, place, message)
            continue
        for template in parsed.templates.values():
            yield PolicyProblem(
                statement.file,
                statement.line_of(r"\?(?:principal|resource)"),
                template.annotations.get("id") or place,
                "a policy with ?principal or ?resource decides nothing by itself; "
                "name the principal and the resource",
            )
        for template in parsed.static_policies.values():
            name = template.annotations.get("id") or f"{statement.file}:{statement.line}"
            yield Policy(statement, name, template)


def _line_of_mistake(statement: Statement, message: str) -> int:
    """Where the parser stops, which it does not say: the first line that it can't take.

    What ends before its end may still become a policy; what is wrong stays wrong.
    """
    lines = statement.text.splitlines()
    if message == _INCOMPLETE:
        return statement.line + len(lines) - 1
    low, high = 1, len(lines)
    while low < high:
        middle = (low + high) // 2
        if _is_beginning("\n".join(lines[:middle])):
            low = middle + 1
        else:
            high = middle
    if low == len(lines) and "not a valid operator" in message:
        return statement.line_of(
            r"(?<![=!<>])=(?!=)", texts=False
        )  # found only once all of it was read
    return statement.line + low - 1


def _is_beginning(text: str) -> bool:
    try:
        cedarpy.policies_to_pst(text)
    except ValueError as error:
        return str(error) == _INCOMPLETE
    return False
