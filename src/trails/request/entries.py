"""An entry: a tool with all that is needed to call it, whatever population it is of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from trails.engine.arguments import Arguments
from trails.model.capabilities import Capability, StoredQuery
from trails.model.tools import Tool
from trails.projections.json_schema import Declarations
from trails.registry.declared import Declared
from trails.request.gates import Gate

Place = Literal["loop", "inline", "thread"]
"""Where a handler runs: awaited, called at once, or called in a thread since it may wait."""


class Entry(msgspec.Struct, frozen=True, eq=False):
    """What a name stands for."""

    tool: Tool
    kind: str
    """What its activities say of their kind."""
    arguments: Arguments
    controls: Arguments
    """``branch`` and ``snapshot``, where it takes them: they say where it works."""
    declared: Declarations
    """Where the objects in its arguments are declared."""
    place: Place
    handler: Callable[..., object]
    """Takes the context, and the arguments by name."""
    gate: Gate
    """What a policy is asked before it is listed or called."""
    shape: Callable[[object, Declared | None], bytes]
    """The result as the JSON text of an object, of instances only what is declared there."""
    largest: int = 4 << 20
    """Bytes that it may have at most."""
    source: Capability | StoredQuery | None = None
    """What it was made from; None for what is built in."""
    judged: Capability | None = None
    """The capability whose policy rules look at the arguments, where there are any."""
