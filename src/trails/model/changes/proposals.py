"""Proposals: branches with changes that wait for a review, and who proposes by default.

The name of a branch says that it is a proposal, of whom, and for which branch:
``proposals/ada/requirements-accept-3fa9c2d1`` is to be merged into ``main``, and
``proposals/ada/graph-load-3fa9c2d1/into/release`` into ``release``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from secrets import token_hex
from typing import Final, Literal

import msgspec

from trails.model.actors import Actor
from trails.model.names import LONGEST_BRANCH

PREFIX: Final = "proposals/"
"""How the names of proposals begin."""
_INTO: Final = "/into/"
_MAIN: Final = "main"
_OTHER: Final = re.compile(r"[^A-Za-z0-9]+")
_LONGEST: Final = 32
"""Characters of an actor, or of what was called, in a name."""


def proposal_name(actor: str, called: str, target: str) -> str:
    """A new name for a proposal; longer than a branch's name may be if that of the target is."""
    name = f"{PREFIX}{_word(actor)}/{_word(called)}-{token_hex(4)}"
    return name if target == _MAIN else f"{name}{_INTO}{target}"


def _word(text: str) -> str:
    return _OTHER.sub("-", text)[:_LONGEST].strip("-") or "unnamed"


def own_prefix(actor: str) -> str:
    """How the names of an actor's proposals begin."""
    return f"{PREFIX}{_word(actor)}/"


def fits(name: str) -> bool:
    """Whether a name is short enough for a branch."""
    return len(name) <= LONGEST_BRANCH


def target_of(name: str) -> str:
    """The branch that a proposal is to be merged into."""
    return name.partition(_INTO)[2] or _MAIN


GROUP: Final = "group:"
"""How the key of a group begins."""
WriteMode = Literal["direct", "propose"]


class WriteModes(msgspec.Struct, frozen=True):
    """What a write over MCP does that does not say it: by actor, and for all others."""

    default: WriteMode = "direct"
    writers: Mapping[str, WriteMode] = {}
    """The name of an actor, or ``group:`` and that of a group, and its mode."""

    def of(self, actor: Actor) -> WriteMode:
        """The mode of an actor: its own, that of its groups (proposing comes first), or all's."""
        if not self.writers:
            return self.default
        own = self.writers.get(actor.name)
        if own is not None:
            return own
        groups = (self.writers.get(f"{GROUP}{each}") for each in actor.groups)
        found = {each for each in groups if each is not None}
        if found:
            return "propose" if "propose" in found else "direct"
        return self.default
