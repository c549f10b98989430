"""Explain a decision: which policies apply, and why the others do not.

The decision is the judge's own. Each condition of a policy is evaluated alone with the same
request, so an explanation reports Cedar's own answers. ``advise`` warns about policies that
are valid but may not do what their author meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

import cedarpy
import msgspec
from cedarpy import pst

from trails.model.actors import Actor
from trails.model.capabilities import Action
from trails.model.decisions import Decision, Explanation, PolicyVerdict, Resource
from trails.policies.judge import CedarJudge, ask_cedar
from trails.policies.places import Place, read_actions, spell_uid, walk
from trails.policies.policies import Policies, Policy
from trails.policies.vocabulary import World

_NEEDLESS: Final = re.compile(r"(?<!\w)\(((?:context|principal|resource)(?:\.\w+)*)\)")
_PART: Final = "permit(principal, action, resource) when {"


class Question(msgspec.Struct, frozen=True):
    actor: Actor
    action: Action
    resource: Resource
    branch: str = ""
    target: str = ""


def explain(judge: CedarJudge, asked: Question) -> Explanation:
    """Explain why a request is allowed or denied."""
    (actor, action, resource), places = _request(judge, asked)
    (decision,) = judge.decide(actor, action, resource, places)
    looked_at = [
        _judge_policy(judge, policy, asked)
        for policy in judge.policies.policies
        if policy.is_about(asked.action)
    ]
    looked_at.sort(key=lambda each: (not each.applies, len(each.missing)))
    return Explanation(
        decision.allowed,
        _reason(decision, looked_at),
        decision.policies,
        tuple(looked_at),
        decision.errors,
    )


def _request(
    judge: CedarJudge, asked: Question
) -> tuple[tuple[Actor, Action, Resource], tuple[Place, ...]]:
    instead = judge.classes.representatives[asked.resource]
    return (asked.actor, asked.action, instead), ((asked.branch, asked.target),)


def _reason(decision: Decision, policies: Iterable[PolicyVerdict]) -> str:
    named = ", ".join(decision.policies)
    if decision.errors:
        return "a policy failed to evaluate, so the request is denied: " + "; ".join(
            decision.errors
        )
    if decision.allowed:
        return f"permitted by {named}"
    if named:
        return f"forbidden by {named}"
    nearest = next((each for each in policies if each.effect == "permit"), None)
    if nearest is None:
        return "no policy permits this action"
    return f"no policy permits it; the nearest is {nearest.policy}: " + "; ".join(nearest.missing)


def _judge_policy(judge: CedarJudge, policy: Policy, asked: Question) -> PolicyVerdict:
    missing = [*_head(judge, policy, asked), *_conditions(judge, policy, asked)]
    return PolicyVerdict(
        policy.label,
        policy.statement.file,
        policy.statement.line,
        policy.says.effect,
        not missing,
        tuple(missing),
        _attributes(judge, policy, asked),
    )


def _head(judge: CedarJudge, policy: Policy, asked: Question) -> Iterator[str]:
    """List the parts of the head that don't match."""
    actor, resource = asked.actor, (asked.resource.kind, asked.resource.id)
    groups = {("Group", each) for each in actor.groups}
    if not policy.principal.fits(("Actor", actor.name), groups):
        yield (
            f"it applies to {policy.principal}, but the actor is {actor.name!r} "
            f"in the groups: {', '.join(sorted(actor.groups)) or 'none'}"
        )
    if not policy.resource.fits(resource, judge.classes.uids_above(asked.resource)):
        yield f"it applies to {policy.resource}, but the resource is {spell_uid(resource)}"


def _conditions(judge: CedarJudge, policy: Policy, asked: Question) -> Iterator[str]:
    """For each condition, describe its first part that does not hold."""
    for clause in policy.says.clauses:
        wanted = isinstance(clause, pst.When)
        for part in _parts(clause.expr, "and" if wanted else "or"):
            text, held = _evaluate(judge, part, asked)
            if held is None:
                yield f"{text} can't be evaluated"
                break
            if held is not wanted:
                yield f"{text} is {'false' if wanted else 'true'}{_values(judge, part, asked)}"
                break


def _parts(expression: pst.Expr, operator: str) -> Iterator[pst.Expr]:
    """Split ``a && b && c`` into its parts."""
    if isinstance(expression, pst.BinaryOp) and expression.op == operator:
        yield from _parts(expression.left, operator)
        yield from _parts(expression.right, operator)
    else:
        yield expression


def _evaluate(judge: CedarJudge, part: pst.Expr, asked: Question) -> tuple[str, bool | None]:
    """Return a condition as text, and whether it holds; None if its evaluation fails."""
    anything = pst.ScopeAny()
    template = pst.Template(
        "part", "permit", anything, anything, anything, (pst.When(part),), pst.FrozenMap()
    )
    alone = pst.PolicySet(pst.FrozenMap(), pst.FrozenMap({"part": template}), ())
    compiled = cedarpy.PolicySet.from_pst(alone)
    text = str(compiled).strip().removeprefix(_PART).removesuffix("};").strip()
    (decision,) = ask_cedar(compiled, judge.entities_with(asked.actor), *_request(judge, asked))
    return _NEEDLESS.sub(r"\1", text), None if decision.errors else decision.allowed


def _values(judge: CedarJudge, node: object, asked: Question) -> str:
    """Describe the values of the attributes in a condition."""
    known = _known(judge, asked)
    named = [each for each in _named(node) if each in known]
    shown = ", ".join(f"{each} is {msgspec.json.encode(known[each]).decode()}" for each in named)
    return f" ({shown})" if shown else ""


def _attributes(judge: CedarJudge, policy: Policy, asked: Question) -> Mapping[str, object]:
    known = _known(judge, asked)
    return {each: known[each] for each in _named(policy.says.clauses) if each in known}


def _known(judge: CedarJudge, asked: Question) -> Mapping[str, object]:
    """Return all attributes of a request."""
    return {
        "context.branch": asked.branch,
        "context.target": asked.target,
        "principal.name": asked.actor.name,
        "principal.scopes": sorted(asked.actor.scopes),
        **{
            f"resource.{name}": value
            for name, value in judge.classes.world.entities[asked.resource].attributes.items()
        },
    }


def _named(node: object) -> list[str]:
    """List the attributes that a condition reads, each once."""
    found = (
        f"{each.base.name}.{each.attr}"
        for each in walk(node)
        if isinstance(each, pst.GetAttr) and isinstance(each.base, pst.Var)
    )
    return sorted(set(found))


_PARTS: Final = frozenset({"Type", "Field"})
"""The kinds that make up a graph's data."""


def advise(policies: Policies, world: World, groups: frozenset[str] | None) -> Iterator[str]:
    """Warn about valid policies that may surprise; ``groups`` are those with members."""
    for policy in policies.policies:
        place = f"{policy.statement.file}:{policy.statement.line}: {policy.name}"
        yield from (f"{place}: {each}" for each in _narrow(policy, world))
        yield from (f"{place}: {each}" for each in _unopened(policy, policies))
        if groups is not None:
            yield from (f"{place}: {each}" for each in _empty_groups(policy, groups))


def _narrow(policy: Policy, world: World) -> Iterator[str]:
    """Find a ``forbid`` of a type or field that does not cover its subtypes."""
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
                yield f"it forbids {name} but not {also}; write 'resource in' to cover them too"


def _unopened(policy: Policy, policies: Policies) -> Iterator[str]:
    """Find a ``permit`` to read a type for principals that can't read the graph."""
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
                    f"it permits reading {name}, but no policy lets the same principals read the "
                    "graph, so they see nothing; permit Read on the graph and "
                    "forbid what they must not see"
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
            yield f"no token belongs to the group {uid.id!r}{hint}"
