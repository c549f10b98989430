"""Judge a call by the policy rules that its capability names, once its arguments are good.

A rule reads what its caller may read, and writes nothing. It permits by ``True`` alone:
whatever else it does, also when it fails, the call is denied.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from trails.engine.activities import Call
from trails.engine.context import GraphContext
from trails.errors import DeniedError
from trails.model.capabilities import Capability
from trails.model.policy_rules import PolicyRule

_logger: Final = logging.getLogger("trails")


def judge(ctx: GraphContext, capability: Capability, arguments: Mapping[str, object]) -> None:
    """Raise DeniedError unless every rule of a capability permits a call with these arguments."""
    for rule in ctx.registry.rules_of(capability):
        _apply(ctx, capability.id, rule, arguments)


def _apply(
    ctx: GraphContext, called: str, rule: PolicyRule, arguments: Mapping[str, object]
) -> None:
    reading = ctx.for_call(Call(ctx.actor, f"the rule {rule.name!r}", "rule", reads=True))
    try:
        said = rule.judge(reading, **rule.select(arguments))
    except DeniedError as denial:
        raise _denied(called, rule, denial.message, denial.data) from None
    except Exception as error:  # noqa: BLE001 - a rule that can't decide permits nothing
        raise _undecided(called, rule, error) from None
    if said is True:
        return
    if said is False:
        raise _denied(called, rule, "it does not permit these arguments")
    if isinstance(said, str):
        raise _denied(called, rule, said or "it does not permit these arguments")
    raise _undecided(
        called,
        rule,
        TypeError(f"it returned {type(said).__name__}; return True to permit, or a text"),
    )


def _denied(
    called: str, rule: PolicyRule, why: str, data: Mapping[str, object] | None = None
) -> DeniedError:
    message = f"{called} is denied by the rule {rule.name!r}: {why}"
    return DeniedError(message, **{**(data or {}), "rule": rule.name})


def _undecided(called: str, rule: PolicyRule, error: Exception) -> DeniedError:
    trace = str(uuid4())
    _logger.error(
        "%s is denied: the rule %r failed (trace %s)", called, rule.name, trace, exc_info=error
    )
    return DeniedError(
        f"{called} is denied: the rule {rule.name!r} could not decide; the server's log says why "
        f"under the trace id {trace}",
        rule=rule.name,
        trace_id=trace,
    )
