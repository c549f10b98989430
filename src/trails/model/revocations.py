"""What lasts ends with the credential that began it.

A stream, an answer or an upload is begun once and goes on, so whoever began it is asked about
again, every second, by whoever keeps such things going.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trails.model.actors import Actor

IsCurrent = Callable[[Actor], bool]
"""Whether an actor that was resolved some time ago would be resolved again."""


class Lasting(Protocol):
    """Something that goes on for its actors."""

    def actors(self) -> set[Actor]:
        """For whom."""

    def end_those_of(self, actors: set[Actor]) -> None:
        """Stop it for some of them."""


def end_stale(kind: Lasting, is_current: IsCurrent) -> None:
    """Stop what goes on for actors that are not current any more."""
    stale = {actor for actor in kind.actors() if not is_current(actor)}
    if stale:
        kind.end_those_of(stale)
