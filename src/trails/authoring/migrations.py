"""``Migration`` and ``RunPython``: what the files in ``migrations/`` are made of.

A migration is a list of schema steps (``model/schema_steps``) and of functions that change data.
The functions write through the normal write path, with the types as they are at that point of the
migration, not as the project declares them today.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, get_args

import msgspec

from trails.authoring.capabilities import Context
from trails.errors import DeclarationError
from trails.model.changes.steps import Step

MIGRATION_NAME: Final = re.compile(r"[0-9]{4}_[a-z0-9]+(_[a-z0-9]+)*")
"""A number that orders the migrations, and words that say what this one does."""
_STEPS: Final = get_args(Step)


class MigrationContext(Context, Protocol):
    """The branch that is migrated, with its types as they are at this point of the migration."""

    def node_type(self, name: str) -> type[Any]:
        """A class for a type of the branch: ``ctx.node_type("Task").objects(ctx)``."""
        ...


DataFunction = Callable[[MigrationContext], object]


class RunPython(msgspec.Struct, frozen=True):
    """A step that runs a function; everything that it writes is one commit, or nothing."""

    forward: DataFunction
    reverse: DataFunction | None = None
    """Undoes it; without one, the migration can't be rolled back."""

    def __post_init__(self) -> None:
        """Refuse what can't be called, when the file is read and not when it is applied."""
        for given in (self.forward, self.reverse):
            if given is not None and not callable(given):
                raise DeclarationError(
                    f"{given!r} is not a function; write RunPython(fill) or RunPython(fill, empty)"
                )


Operation = Step | RunPython
"""One entry of a migration."""


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a graph, forward and back."""

    after: str | None = None
    """The migration before it, like ``"0002_add_priority"``; None for the first."""
    forward: Sequence[Operation]
    reverse: Sequence[Operation] | None = None
    """What rolls it back, in order; None: the steps of ``forward`` are undone from the last one."""

    def __post_init__(self) -> None:
        """Refuse what is no step, when the file is read and not when it is applied."""
        if self.after is not None and MIGRATION_NAME.fullmatch(str(self.after)) is None:
            raise DeclarationError(
                f"after={self.after!r} is not the name of a migration; write the file's name "
                "without '.py', like after='0002_add_priority', or leave it out of the first one"
            )
        for name, operations in (("forward", self.forward), ("reverse", self.reverse)):
            if operations is None and name == "reverse":
                continue
            if not isinstance(operations, list | tuple):
                raise DeclarationError(f"{name}={operations!r} is not a list of steps")
            for each in operations:
                if not isinstance(each, (*_STEPS, RunPython)):
                    known = ", ".join(step.__name__ for step in _STEPS)
                    raise DeclarationError(
                        f"{name} has {each!r}, which is not a step; use {known} or RunPython"
                    )

    @property
    def runs_python(self) -> bool:
        """Whether it has functions, so that what it does can't be read from its steps alone."""
        return any(isinstance(each, RunPython) for each in (*self.forward, *(self.reverse or ())))
