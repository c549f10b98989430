"""Which credentials a project asks for: from its folder, its settings and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from trails.app.serving.scopes import TOKEN_VARIABLE, local_actor
from trails.app.settings import DATA_FOLDER, Settings
from trails.identity.token_book import TokenBook
from trails.model.secrets import Secret
from trails.request.authenticate import Authenticator, Verifier


class Gate(msgspec.Struct, frozen=True):
    """What whoever comes to a project must show."""

    authenticator: Authenticator
    folder: Path
    settings: Settings

    def configured(self) -> bool:
        """Whether credentials are asked for; once they are, they are for as long as this lives."""
        return self.authenticator.required

    def describe(self) -> list[str]:
        """Who may do what, in a line for all graphs or one for each."""
        told = {graph: self._mode(graph) for graph in self.settings.graphs}
        if len(set(told.values())) == 1:
            return [next(iter(told.values()))]
        return [f"graph {graph}: {mode}" for graph, mode in told.items()]

    def _mode(self, graph: str) -> str:
        decided = has_policies(self.folder, self.settings, graph)
        if self.configured():
            if decided:
                return "a token is asked for, and policies decide what its actor may do"
            return "a token is asked for, and all may read; changing anything needs policies"
        if decided:
            return "no token is asked for, so everybody is 'local', for whom policies decide"
        return (
            "open: there are no tokens and no policies, so everybody on this machine may read "
            "and write; 'trails token new' ends that"
        )


def has_policies(folder: Path, settings: Settings, graph: str) -> bool:
    """Whether a graph has policies of its own."""
    return any((folder / settings.graphs[graph].policies).glob("*.cedar"))


def access_of(folder: Path, settings: Settings, environment: Mapping[str, str]) -> Gate:
    """The gate of a project, for a process with some environment."""
    token = environment.get(TOKEN_VARIABLE)
    authenticator = Authenticator(
        local_actor(environment),
        Secret(token) if token else None,
        TokenBook(folder / DATA_FOLDER),
        _verifier_of(folder, settings),
    )
    return Gate(authenticator, folder, settings)


def _verifier_of(folder: Path, settings: Settings) -> Verifier | None:
    """Who checks the access tokens of another issuer, where there is one."""
    if settings.auth.oauth is None:
        return None
    from trails.identity.oauth import verifier  # noqa: PLC0415 - cryptography is heavy

    return verifier.Verifier(settings.auth.oauth, folder)
