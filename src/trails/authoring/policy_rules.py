"""``@policy_rule``: declare the rules that ``@policy`` names.

A rule is a function of the context and of those arguments that it names. Only ``True``
permits: a rule that forgets to return denies. Nothing is registered here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Final, TypeVar

from trails.errors import DeclarationError
from trails.model.policy_rules import PolicyRule

R = TypeVar("R", bound=Callable[..., bool | str])
RULE: Final = "__trails_policy_rule__"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*")
_LONGEST: Final = 64


def policy_rule(name: str) -> Callable[[R], R]:
    """Declare what ``@policy(name)`` means.

    The function takes the context and, by name, arguments of the capabilities that it judges, all
    of them with ``**arguments``. It returns True to permit, or a text that says why not.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise DeclarationError(
            f"{name!r} can't name a rule: use lower-case words joined by '-', '_' or '.', "
            f"{_LONGEST} characters at most (for example 'owner-only')"
        )

    def declare(function: R) -> R:
        if hasattr(function, RULE):
            raise DeclarationError(f"{function.__name__} is declared as a rule twice; use one name")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise DeclarationError(f"rule {name!r}: write 'def'; what it returns decides at once")
        setattr(function, RULE, _read(name, function))
        return function

    return declare


def _read(name: str, function: Callable[..., object]) -> PolicyRule:
    context, *parameters = inspect.signature(function).parameters.values() or (None,)
    positional = {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    }
    if context is None or context.kind not in positional:
        raise DeclarationError(
            f"rule {name!r}: the first parameter must be the context; write "
            f"'def {function.__name__}(ctx: Context, ...)'"
        )
    every = [each for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]
    named = [each for each in parameters if each not in every]
    for each in named:
        if each.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}:
            raise DeclarationError(
                f"rule {name!r}: arguments are passed by name; remove * and / before {each.name!r}"
            )
    must = {each.name for each in named if each.default is inspect.Parameter.empty}
    return PolicyRule(
        name,
        function,
        required=tuple(each.name for each in named if each.name in must),
        optional=tuple(each.name for each in named if each.name not in must),
        every=bool(every),
    )
