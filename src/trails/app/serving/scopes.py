"""What the environment of a process gives and asks: scopes, and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trails.app.serving.greetings import Hello
from trails.errors import SettingsError
from trails.model.actors import LOCAL, Actor
from trails.model.capabilities import SCOPES
from trails.model.secrets import Secret
from trails.request.authenticate import hash_of

SCOPES_VARIABLE: Final = "TRAILS_MCP_SCOPES"
WANTED_VARIABLE: Final = "TRAILS_MCP_TOKEN"
"""A token that this process wants from its clients."""
TOKEN_VARIABLE: Final = "TRAILS_TOKEN"  # noqa: S105 - the name of a variable
"""A token that this process presents to others."""


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


def wanted_token(environment: Mapping[str, str]) -> Secret | None:
    """The token that clients of this process must present, if there is one."""
    token = environment.get(WANTED_VARIABLE)
    return Secret(token) if token else None


def hello_of(graph: str, environment: Mapping[str, str]) -> Hello:
    """What a process says of itself that serves one client on its standard streams."""
    scopes = local_actor(environment).scopes
    token, wanted = environment.get(TOKEN_VARIABLE), wanted_token(environment)
    return Hello(
        graph,
        tuple(each for each in SCOPES if each in scopes),
        Secret(token) if token else None,
        "" if wanted is None else hash_of(wanted).hex(),
    )
