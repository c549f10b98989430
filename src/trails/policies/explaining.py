"""Explain a decision: which policies apply, and what keeps the others from applying.

The decision is the judge's own. Each condition of a policy is asked by itself, with the same
request, so what is told is what Cedar finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import cedarpy
import msgspec
from cedarpy import pst

from trails.model.actors import Actor
from trails.model.decisions import Decision, Resource
from trails.model.policies import Explanation, PolicyVerdict
from trails.model.tools import Action
from trails.policies.asking import ask_cedar
from trails.policies.heads import spell_uid
from trails.policies.judge import CedarJudge
from trails.policies.places import Place
from trails.policies.policies import Policy
from trails.policies.trees import walk

_NEEDLESS: Final = re.compile(r"(?<!\w)\(((?:context|principal|resource)(?:\.\w+)*)\)")
_PART: Final = "permit(principal, action, resource) when {"


class Question(msgspec.Struct, frozen=True):
    """What is to be explained."""

    actor: Actor
    action: Action
    resource: Resource
    branch: str = ""
    target: str = ""


def explain(judge: CedarJudge, asked: Question) -> Explanation:
    """Why something is allowed or denied."""
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
    instead = judge.stage.stands_for[asked.resource]
    return (asked.actor, asked.action, instead), ((asked.branch, asked.target),)


def _reason(decision: Decision, policies: Iterable[PolicyVerdict]) -> str:
    named = ", ".join(decision.policies)
    if decision.errors:
        return "a policy failed, and then nothing is allowed: " + "; ".join(decision.errors)
    if decision.allowed:
        return f"permitted by {named}"
    if named:
        return f"forbidden by {named}"
    nearest = next((each for each in policies if each.effect == "permit"), None)
    if nearest is None:
        return "no policy permits this action to anybody"
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
    """What of the head does not fit."""
    actor, resource = asked.actor, (asked.resource.kind, asked.resource.id)
    groups = {("Group", each) for each in actor.groups}
    if not policy.principal.fits(("Actor", actor.name), groups):
        yield (
            f"it is for {policy.principal}, and the actor is {actor.name!r} "
            f"in the groups: {', '.join(sorted(actor.groups)) or 'none'}"
        )
    if not policy.resource.fits(resource, judge.stage.uids_above(asked.resource)):
        yield f"it is about {policy.resource}, and the resource is {spell_uid(resource)}"


def _conditions(judge: CedarJudge, policy: Policy, asked: Question) -> Iterator[str]:
    """The first part of each condition that does not hold."""
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
    """``a && b && c``, one by one."""
    if isinstance(expression, pst.BinaryOp) and expression.op == operator:
        yield from _parts(expression.left, operator)
        yield from _parts(expression.right, operator)
    else:
        yield expression


def _evaluate(judge: CedarJudge, part: pst.Expr, asked: Question) -> tuple[str, bool | None]:
    """A condition as text, and whether it holds; None if that fails."""
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
    """What the attributes in a condition are."""
    known = _known(judge, asked)
    named = [each for each in _named(node) if each in known]
    told = ", ".join(f"{each} is {msgspec.json.encode(known[each]).decode()}" for each in named)
    return f" ({told})" if told else ""


def _attributes(judge: CedarJudge, policy: Policy, asked: Question) -> Mapping[str, object]:
    known = _known(judge, asked)
    return {each: known[each] for each in _named(policy.says.clauses) if each in known}


def _known(judge: CedarJudge, asked: Question) -> Mapping[str, object]:
    """All attributes of a request."""
    return {
        "context.branch": asked.branch,
        "context.target": asked.target,
        "principal.name": asked.actor.name,
        "principal.scopes": sorted(asked.actor.scopes),
        **{
            f"resource.{name}": value
            for name, value in judge.stage.world.entities[asked.resource].attributes.items()
        },
    }


def _named(node: object) -> list[str]:
    """The attributes that a condition looks at, each once."""
    found = (
        f"{each.base.name}.{each.attr}"
        for each in walk(node)
        if isinstance(each, pst.GetAttr) and isinstance(each.base, pst.Var)
    )
    return sorted(set(found))
