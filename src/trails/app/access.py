"""Which credentials a project asks for: from its folder, its settings and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from trails.app.serving.scopes import local_actor, wanted_token
from trails.app.settings import DATA_FOLDER, Settings
from trails.identity.token_book import TokenBook
from trails.request.authenticate import Authenticator


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
    authenticator = Authenticator(
        local_actor(environment),
        wanted_token(environment),
        TokenBook(folder / DATA_FOLDER),
    )
    return Gate(authenticator, folder, settings)
