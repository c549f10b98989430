"""Who owns a project folder, and how to reach it.

Reading never takes the lock, so it disturbs nobody who is about to take it. What is read
may be out of date: only a connection proves that an owner is there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from trails.model.secrets import Secret

OWNER_FILE: Final = "owner"
_DATA_FOLDER: Final = ".trails"


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the process that owns a folder says of itself."""

    pid: int
    http: str | None = None
    mcp: str | None = None
    """Unix sockets; None in a program that opened the folder for itself alone."""
    key: str = ""
    """What whoever may read this shows to act as the operator."""

    def __repr__(self) -> str:
        """Without the key."""
        return f"Owner({self.pid}, {self.http!r}, {self.mcp!r})"


class OwnerAddress(msgspec.Struct, frozen=True):
    """An owner that serves others: its process, and the Unix sockets that it listens on."""

    pid: int
    http: str
    """The whole HTTP interface: REST and MCP."""
    mcp: str
    """One MCP session a connection, opened by a line that says which graph."""
    key: Secret = Secret("")
    """What makes whoever shows it the operator."""


def read_owner(data: Path) -> Owner | None:
    """The owner that a data folder names: perhaps one that is gone."""
    try:
        return msgspec.json.decode((data / OWNER_FILE).read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError):
        return None


def find_owner(folder: Path) -> OwnerAddress | None:
    """The process that serves a project folder to others on this machine, if one does."""
    owner = read_owner(Path(folder) / _DATA_FOLDER)
    if owner is None or owner.http is None or owner.mcp is None:
        return None
    if not (is_alive(owner.pid) and os.path.exists(owner.http)):  # noqa: PTH110 - a text
        return None
    return OwnerAddress(owner.pid, owner.http, owner.mcp, Secret(owner.key))


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
