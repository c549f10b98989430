"""Where programs keep their configuration, on each system, as the environment says."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one user on one system."""

    system: str
    """``linux``, ``darwin`` or ``win32``; other systems are like ``linux``."""
    environment: Mapping[str, str]

    @classmethod
    def here(cls) -> Self:
        """Of this process."""
        return cls(sys.platform, os.environ)

    @property
    def home(self) -> Path:
        """The user's own folder."""
        name = "USERPROFILE" if self.system == "win32" else "HOME"
        return self._folder(name) or Path.home()

    @property
    def config(self) -> Path:
        """Where programs that follow the XDG rules look, on every system."""
        return self._folder("XDG_CONFIG_HOME") or self.home / ".config"

    @property
    def programs(self) -> Path:
        """Where programs with a window keep their settings."""
        if self.system == "win32":
            return self._folder("APPDATA") or self.home / "AppData" / "Roaming"
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        return self.config

    def folder(self, variable: str, fallback: Path) -> Path:
        """A folder that a program lets a variable name."""
        return self._folder(variable) or fallback

    def _folder(self, variable: str) -> Path | None:
        given = self.environment.get(variable, "")
        return Path(given) if given else None
