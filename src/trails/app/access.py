"""Which credentials a project asks for: from its folder, its settings and the environment.

What the environment of a process gives and asks: scopes, and tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from trails.app.policies import Mode
from trails.app.serve.relay.links import Hello
from trails.app.settings import DATA_FOLDER, Settings
from trails.errors import SettingsError
from trails.identity.oauth.settings import OAuth
from trails.identity.tokens import TokenBook
from trails.model.actors import LOCAL, Actor, Secret
from trails.model.capabilities import SCOPES
from trails.request.authenticate import Authenticator, Verifier, hash_of

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


class CredentialRules(msgspec.Struct, frozen=True):
    """What whoever comes to a project must show."""

    authenticator: Authenticator

    def configured(self) -> bool:
        """Whether credentials are asked for; once they are, they are for as long as this lives."""
        return self.authenticator.required


def describe_access(modes: Mapping[str, Mode], *, guarded: bool) -> list[str]:
    """Who may do what: a line for all graphs, or one for each where they differ."""
    told = {graph: _describe(mode, guarded=guarded) for graph, mode in modes.items()}
    if len(set(told.values())) == 1:
        return [next(iter(told.values()))]
    return [f"graph {graph}: {line}" for graph, line in told.items()]


def _describe(mode: Mode, *, guarded: bool) -> str:
    if mode == "open":
        return (
            "open: there are no tokens and no policies, so everybody on this machine may read "
            "and write; 'trails token new' ends that"
        )
    if mode == "read only":
        return (
            "read-only: every request needs a token (TRAILS_MCP_TOKEN, 'trails token new' or "
            "[auth.oauth]) and there are no policies, so nobody may write; to let actors write, "
            "add policies as in docs/how-to/access.md"
        )
    if guarded:
        return "every request needs a token, and policies decide what its actor may do"
    return "nobody needs a token, so everybody on this machine is 'local', and policies decide"


def access_of(folder: Path, settings: Settings, environment: Mapping[str, str]) -> CredentialRules:
    """The gate of a project, for a process with some environment."""
    authenticator = Authenticator(
        local_actor(environment),
        wanted_token(environment),
        TokenBook(folder / DATA_FOLDER),
        None if settings.auth.oauth is None else _verifier(settings.auth.oauth, folder),
    )
    return CredentialRules(authenticator)


def _verifier(oauth: OAuth, folder: Path) -> Verifier:
    # Cryptography takes a while to import, and most projects have no use for it.
    from trails.identity.oauth.verifier import AccessTokenVerifier  # noqa: PLC0415

    return AccessTokenVerifier(oauth, folder)
