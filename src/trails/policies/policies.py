"""Policies: parsed, checked and compiled Cedar texts.

Cedar's validator knows kinds and attributes, but not names: a ``forbid`` with a misspelled
type would be accepted and forbid nothing. So every type, field, query, capability, branch and
scope that a policy mentions is checked here, and all mistakes are reported together.
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
from trails.policies.places import (
    Conditions,
    Constraint,
    context_texts,
    read_actions,
    read_conditions,
    read_constraint,
    scope_texts,
)
from trails.policies.sources import PolicyFile, Statement, split_source
from trails.policies.vocabulary import ATTRIBUTES, CONTEXT, World


class Policy(msgspec.Struct, frozen=True, dict=True):
    """One policy: its location, and its syntax tree."""

    statement: Statement
    label: str
    """Its name for people: its ``@id``, or its location."""
    says: pst.Template

    @property
    def name(self) -> str:
        """Its ``@id``, or its position in its file."""
        return self.says.annotations.get("id") or f"policy {self.statement.number}"

    @cached_property
    def _actions(self) -> frozenset[str] | None:
        return read_actions(self.says.action)

    @cached_property
    def principal(self) -> Constraint:
        return read_constraint(self.says.principal)

    @cached_property
    def resource(self) -> Constraint:
        return read_constraint(self.says.resource)

    def is_about(self, action: Action) -> bool:
        """Whether it applies to an action."""
        return self._actions is None or action in self._actions

    @cached_property
    def conditions(self) -> Conditions:
        """How it uses the branches of a request."""
        return read_conditions(self.says)

    @property
    def permits(self) -> bool:
        """Whether it permits; otherwise it forbids."""
        return self.says.effect == "permit"


class Policies:
    """Compiled policies. Cedar calls them ``policy0``, ``policy1``… in this order."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self.policies = tuple(policies)
        self.text = "\n".join(each.statement.text for each in self.policies)
        self.handle = cedarpy.PolicySet.from_str(self.text)
        self.by_id: Mapping[str, Policy] = {
            f"policy{at}": each for at, each in enumerate(self.policies)
        }

    @cached_property
    def digest(self) -> str:
        """A digest of all policies."""
        return sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def mentioned(self) -> frozenset[pst.EntityUid]:
        """Every entity that a policy mentions."""
        found: frozenset[pst.EntityUid] = frozenset()
        return found.union(*(pst.entity_uids(each.says) for each in self.policies))

    @cached_property
    def mentioned_resources(self) -> frozenset[Resource]:
        """Every entity of a graph or the server that a policy mentions."""
        people = {"Actor", "Group", "Action"}
        return frozenset(
            msgspec.convert({"kind": str(each.type), "id": each.id}, Resource)
            for each in self.mentioned
            if str(each.type) not in people
        )

    def label(self, identifier: str) -> str:
        """Translate Cedar's name of a policy."""
        policy = self.by_id.get(identifier)
        return identifier if policy is None else policy.label


_PEOPLE: Final = frozenset({"Actor", "Group"})
_PREFIX: Final = re.compile(r"^for policy `[^`]*`, ")
_ATTRIBUTE: Final = re.compile(r"attribute `([^`]*)`")
_ID: Final = r"@id\b"
_START: Final = r"\A"
_NOWHERE: Final = "unable to find an applicable action"


class KnownNames(msgspec.Struct, frozen=True):
    """The names that policies may mention."""

    schema: str
    actions: Mapping[Action, tuple[ResourceKind, ...]]
    elsewhere: Mapping[Action, tuple[ResourceKind, ...]]
    """Actions that are decided by other policies."""
    world: World
    graphs: Collection[str]
    """All graphs of the project: a policy may be in several folders."""

    def has(self, kind: str, identifier: str) -> bool:
        """Whether an entity exists."""
        if kind in _PEOPLE:
            return True  # they come with the requests
        if kind == "Graph" and identifier in self.graphs:
            return True
        return identifier in self.world.names(kind)


def check_policies(policies: Policies, known: KnownNames) -> list[PolicyProblem]:
    """Return every mistake of all policies, in their order."""
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
    """Yield mentioned actions, kinds and entities that don't exist, with the text to look for."""
    for uid in sorted(pst.entity_uids(policy.says), key=str):
        kind = str(uid.type)
        pattern = rf"{re.escape(kind)}\s*::\s*{_quoted(uid.id)}"
        if kind == "Action":
            yield from ((pattern, message) for message in _unknown_action(uid.id, known))
        elif kind not in ATTRIBUTES:
            yield pattern, f"unknown entity type {kind!r}; {_suggest(kind, ATTRIBUTES)}"
        elif not known.has(kind, uid.id):
            there = known.graphs if kind == "Graph" else known.world.names(kind)
            what = f"{kind}::{msgspec.json.encode(uid.id).decode()}"
            yield pattern, f"{what} does not exist; {_suggest(uid.id, there)}"


def _quoted(text: str) -> str:
    """Spell a text as it appears in a policy."""
    return re.escape(msgspec.json.encode(text).decode())


def _unknown_action(name: str, known: KnownNames) -> Iterator[str]:
    if name in known.actions:
        return
    if name in known.elsewhere:
        where = "[server] policies" if name == "GraphList" else "the policies of a graph"
        yield f"the action {name} is decided by {where}; put this policy there"
    else:
        yield f"unknown action {name!r}; {_suggest(name, known.actions)}"


def _impossible_texts(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield branches and scopes that no request can have."""
    for name, text in context_texts(policy.says):
        try:
            if text:
                check_branch_name(text)
        except DeclarationError as error:
            yield _quoted(text), f"context.{name} can't be {text!r}: {error.message}"
    for text in scope_texts(policy.says):
        if text not in SCOPES:
            yield (
                _quoted(text),
                f"principal.scopes can't contain {text!r}; {_suggest(text, SCOPES)}",
            )


def _invalid(policies: Policies, known: KnownNames) -> Iterator[tuple[int, str, str]]:
    """Yield the findings of Cedar's validator."""
    ids = {identifier: at for at, identifier in enumerate(policies.by_id)}
    for error in cedarpy.validate_policies(policies.text, known.schema).errors:
        message, pattern = _PREFIX.sub("", error.error), _START
        if _NOWHERE in message:
            applies = "; ".join(
                f"{action}: {', '.join(kinds)}" for action, kinds in known.actions.items()
            )
            message = (
                "none of its actions applies to its resource, so it "
                f"would never apply; the actions are {applies}"
            )
        elif unknown := _ATTRIBUTE.search(message):
            there = sorted({*CONTEXT, *(name for each in ATTRIBUTES.values() for name in each)})
            message += f"; {_suggest(unknown[1], there)}"
            pattern = rf"\b{re.escape(unknown[1])}\b"
        yield ids.get(error.policy_id, 0), pattern, message


def _same_names(policies: Policies) -> Iterator[tuple[int, str, str]]:
    """Yield ``@id`` values used twice: an ``@id`` must identify one policy."""
    first: dict[str, Policy] = {}
    for at, policy in enumerate(policies.policies):
        name = policy.says.annotations.get("id")
        other = first.setdefault(name, policy) if name else policy
        if other is not policy:
            place = f"{other.statement.file}:{other.statement.line}"
            yield at, _ID, f"the policy at {place} has the same @id; rename one"


def _suggest(name: str, there: Collection[str]) -> str:
    near = get_close_matches(name, there, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    some = sorted(there)[:12]
    return f"known are {', '.join(some)}{' …' if len(there) > 12 else ''}" if some else "none exist"


_INCOMPLETE: Final = "unexpected end of input"
"""The parser's message for a text that is incomplete."""


def read_policies(sources: Iterable[PolicyFile], known: KnownNames) -> Policies:
    """Parse and check policy files; report all mistakes together."""
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
        shown = "; ".join(map(str, problems[:20]))
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise PolicyError(f"{shown}{more}", problems=problems)
    return policies


def _parse(source: PolicyFile) -> Iterator[Policy | PolicyProblem]:
    for statement in split_source(source):
        place = f"policy {statement.number}"
        try:
            parsed = cedarpy.policies_to_pst(statement.text)
        except ValueError as error:
            message = f"{error}; a policy must end with ';'"
            line = _line_of_mistake(statement, str(error))
            yield PolicyProblem(statement.file, line, place, message)
            continue
        for template in parsed.templates.values():
            yield PolicyProblem(
                statement.file,
                statement.line_of(r"\?(?:principal|resource)"),
                template.annotations.get("id") or place,
                "policy templates (?principal, ?resource) are not supported; "
                "name the principal and the resource",
            )
        for template in parsed.static_policies.values():
            name = template.annotations.get("id") or f"{statement.file}:{statement.line}"
            yield Policy(statement, name, template)


def _line_of_mistake(statement: Statement, message: str) -> int:
    """Find the first line that the parser rejects, which it does not report itself.

    A text that ends too early may still become a policy; a wrong one stays wrong.
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
        )  # found only after all of it was read
    return statement.line + low - 1


def _is_beginning(text: str) -> bool:
    try:
        cedarpy.policies_to_pst(text)
    except ValueError as error:
        return str(error) == _INCOMPLETE
    return False
