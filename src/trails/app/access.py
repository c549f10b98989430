"""Which credentials a project asks for: from its folder, its settings and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from trails.app.policies import Mode
from trails.app.serving.scopes import local_actor, wanted_token
from trails.app.settings import DATA_FOLDER, Settings
from trails.identity.oauth.settings import OAuth
from trails.identity.token_book import TokenBook
from trails.request.authenticate import Authenticator, Verifier


class Gate(msgspec.Struct, frozen=True):
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


def access_of(folder: Path, settings: Settings, environment: Mapping[str, str]) -> Gate:
    """The gate of a project, for a process with some environment."""
    authenticator = Authenticator(
        local_actor(environment),
        wanted_token(environment),
        TokenBook(folder / DATA_FOLDER),
        None if settings.auth.oauth is None else _verifier(settings.auth.oauth, folder),
    )
    return Gate(authenticator)


def _verifier(oauth: OAuth, folder: Path) -> Verifier:
    # Cryptography takes a while to import, and most projects have no use for it.
    from trails.identity.oauth.verifier import Verifier  # noqa: PLC0415

    return Verifier(oauth, folder)
