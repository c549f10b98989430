"""Which credentials a project requires: from its folder, its settings and the environment.

``TRAILS_MCP_SCOPES`` limits the local actor, ``TRAILS_MCP_TOKEN`` is a token that clients
must present to this process, ``TRAILS_TOKEN`` is one that it presents to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from trails.app.policies import Mode
from trails.app.serve.relay.links import Hello
from trails.app.settings import DATA_FOLDER, Settings
from trails.errors import SettingsError
from trails.identity.oauth.settings import OAuth
from trails.imports import later
from trails.model.actors import LOCAL, Actor, Secret
from trails.model.capabilities import SCOPES
from trails.request.authenticate import Authenticator, Verifier, hash_of

if TYPE_CHECKING:
    from trails.identity import tokens
else:
    tokens = later("trails.identity.tokens")

SCOPES_VARIABLE: Final = "TRAILS_MCP_SCOPES"
WANTED_VARIABLE: Final = "TRAILS_MCP_TOKEN"
"""A token that clients must present to this process."""
TOKEN_VARIABLE: Final = "TRAILS_TOKEN"  # noqa: S105 - the name of a variable
"""A token that this process presents to others."""


def local_actor(environment: Mapping[str, str]) -> Actor:
    """Return the local actor; ``TRAILS_MCP_SCOPES`` lists its scopes, by default ``runtime``."""
    given = [each.strip() for each in environment.get(SCOPES_VARIABLE, "").split(",")]
    named = {each for each in given if each}
    for each in sorted(named.difference(SCOPES)):
        raise SettingsError(
            f"{SCOPES_VARIABLE} has {each!r}, which is not a scope; use a comma-separated list of "
            f"{', '.join(SCOPES)}"
        )
    if not named:
        return LOCAL
    return msgspec.structs.replace(LOCAL, scopes=frozenset(s for s in SCOPES if s in named))


def wanted_token(environment: Mapping[str, str]) -> Secret | None:
    """Return the token that clients of this process must present, if any."""
    token = environment.get(WANTED_VARIABLE)
    return Secret(token) if token else None


def make_hello(graph: str, environment: Mapping[str, str]) -> Hello:
    """Return the hello of a process that serves one client on its standard streams."""
    scopes = local_actor(environment).scopes
    token, wanted = environment.get(TOKEN_VARIABLE), wanted_token(environment)
    return Hello(
        graph,
        tuple(each for each in SCOPES if each in scopes),
        Secret(token) if token else None,
        "" if wanted is None else hash_of(wanted).hex(),
    )


class CredentialRules(msgspec.Struct, frozen=True):
    """The credentials that callers of a project must present."""

    authenticator: Authenticator

    def configured(self) -> bool:
        """Whether credentials are required; once true, it stays true for this process."""
        return self.authenticator.required


def describe_access(modes: Mapping[str, Mode], *, guarded: bool) -> list[str]:
    """Describe who may do what: one line for all graphs, or one for each where they differ."""
    lines = {graph: _describe(mode, guarded=guarded) for graph, mode in modes.items()}
    if len(set(lines.values())) == 1:
        return [next(iter(lines.values()))]
    return [f"graph {graph}: {line}" for graph, line in lines.items()]


def _describe(mode: Mode, *, guarded: bool) -> str:
    if mode == "open":
        return (
            "open: there are no tokens and no policies, so every user of this machine can read "
            "and write; run 'trails token new' to require tokens"
        )
    if mode == "read only":
        return (
            "read-only: every request needs a token (TRAILS_MCP_TOKEN, 'trails token new' or "
            "[auth.oauth]) and there are no policies, so no one can write; to let actors write, "
            "add policies as in docs/how-to/access.md"
        )
    if guarded:
        return "every request needs a token, and policies decide what its actor may do"
    return "no token is needed: all users of this machine act as 'local', and policies decide"


def access_of(folder: Path, settings: Settings, environment: Mapping[str, str]) -> CredentialRules:
    """Return the credential rules of a project for a process with this environment."""
    authenticator = Authenticator(
        local_actor(environment),
        wanted_token(environment),
        tokens.TokenBook(folder / DATA_FOLDER),
        None if settings.auth.oauth is None else _verifier(settings.auth.oauth, folder),
    )
    return CredentialRules(authenticator)


def _verifier(oauth: OAuth, folder: Path) -> Verifier:
    # Cryptography is slow to import, and most projects don't need it.
    from trails.identity.oauth.verifier import AccessTokenVerifier  # noqa: PLC0415

    return AccessTokenVerifier(oauth, folder)
