"""What the command line can ask for; the composition root supplies it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from trails.model.reports import Report


class Operations(Protocol):
    """The work behind the commands."""

    def new(self, folder: Path, name: str | None) -> tuple[Path, list[str]]:
        """Make a project folder; its path and the files in it."""

    def doctor(self, folder: Path) -> list[Report]:
        """Look at a project and say how it is."""

    def verify(
        self, folder: Path, *, repair: bool, progress: Callable[[str], None]
    ) -> list[Report]:
        """Prove a project's logs and views."""
