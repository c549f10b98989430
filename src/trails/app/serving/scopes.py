"""Who sits at this machine: the local actor, with what the environment gives and asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trails.errors import SettingsError
from trails.model.actors import LOCAL, Actor
from trails.model.capabilities import SCOPES

SCOPES_VARIABLE: Final = "TRAILS_MCP_SCOPES"
TOKEN_VARIABLE: Final = "TRAILS_MCP_TOKEN"  # noqa: S105 - the name of a variable


def local_actor(environment: Mapping[str, str]) -> Actor:
    """The local actor; ``TRAILS_MCP_SCOPES`` lists what it may use, ``runtime`` if unset."""
    given = [each.strip() for each in environment.get(SCOPES_VARIABLE, "").split(",")]
    named = {each for each in given if each}
    for each in sorted(named.difference(SCOPES)):
        raise SettingsError(
            f"{SCOPES_VARIABLE} has {each!r}, which is no scope; it is a comma list of "
            f"{', '.join(SCOPES)}"
        )
    if not named:
        return LOCAL
    return msgspec.structs.replace(LOCAL, scopes=frozenset(s for s in SCOPES if s in named))
