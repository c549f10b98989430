"""Which credentials a project asks for: from its folder, its settings and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from trails.app.serving.scopes import TOKEN_VARIABLE, local_actor
from trails.app.settings import Settings
from trails.model.secrets import Secret
from trails.request.authenticate import Authenticator


class Gate(msgspec.Struct, frozen=True):
    """What whoever comes to a project must show."""

    authenticator: Authenticator

    def configured(self) -> bool:
        """Whether credentials are asked for; once they are, they are for as long as this lives."""
        return self.authenticator.required


def access_of(folder: Path, settings: Settings, environment: Mapping[str, str]) -> Gate:
    """The gate of a project, for a process with some environment."""
    del folder, settings
    token = environment.get(TOKEN_VARIABLE)
    return Gate(Authenticator(local_actor(environment), Secret(token) if token else None))
