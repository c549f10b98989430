"""Policy rules: declared functions that judge the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec


class PolicyRule(msgspec.Struct, frozen=True, eq=False):
    """A named judgement, and which arguments of a call it wants to see."""

    name: str
    judge: Callable[..., object]
    """Takes the context, and arguments by name; gives True, or why not."""
    required: tuple[str, ...] = ()
    """Arguments that every capability which names the rule must have."""
    optional: tuple[str, ...] = ()
    """Arguments that it looks at where a capability has them."""
    every: bool = False
    """Whether it is handed all arguments."""

    def select(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """What it is handed of the arguments of a call."""
        if self.every:
            return arguments
        wanted = (*self.required, *self.optional)
        return {name: arguments[name] for name in wanted if name in arguments}
