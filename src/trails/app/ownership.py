"""One process owns a project folder; a second one is told who does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import msgspec

from trails.app.serving.owners import OWNER_FILE, Owner, read_owner
from trails.app.serving.socket_folders import remove_debris
from trails.errors import LockedError
from trails.files import private_folder
from trails.model.secrets import Secret

_PATIENCE: Final = 0.5
"""Seconds to wait for a folder that another process owns."""
_PRIVATE: Final = 0o600
"""What the file says is for this user alone."""


class Ownership:
    """An exclusive lock on a folder; the kernel frees it when the process ends, however.

    The locked file says who the owner is, and where it listens when it serves others.
    """

    def __init__(self, folder: Path, patience: float = _PATIENCE) -> None:
        private_folder(folder)
        path = folder / OWNER_FILE
        self._file = open(path, "a+b", buffering=0, opener=_open_private)  # noqa: SIM115
        try:
            self._lock(patience)
        except OSError:
            self._file.close()
            raise describe_lock(read_owner(folder)) from None
        dead = read_owner(folder)
        if dead is not None:
            remove_debris(dead.http)
        self._write(msgspec.json.encode(Owner(os.getpid())))

    def _lock(self, patience: float) -> None:
        """Take the lock; a process that is just ending, or starting a child, may still hold it."""
        give_up = monotonic() + patience
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if monotonic() >= give_up:
                    raise
                sleep(0.02)
            else:
                return

    def _write(self, text: bytes) -> None:
        # The lock is on this very file, so it can't be replaced by another.
        self._file.truncate(0)
        self._file.write(text)

    def announce(self, http: str, mcp: str, key: Secret) -> None:
        """Tell others where they can connect, and with what: the sockets listen now."""
        os.fchmod(self._file.fileno(), _PRIVATE)
        self._write(msgspec.json.encode(Owner(os.getpid(), http, mcp, key.reveal())))

    def release(self) -> None:
        """Let another process own the folder."""
        if not self._file.closed:
            self._file.truncate(0)
            self._file.close()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, _PRIVATE)


def describe_lock(owner: Owner | None) -> LockedError:
    """Why a folder can't be opened here, and what to do about it."""
    if owner is None:
        return LockedError("this project is open in another process; close it first", pid="unknown")
    if owner.mcp is None:
        return LockedError(
            f"this project is open in another process (pid {owner.pid}), which does not serve "
            "it to others; close it first",
            pid=owner.pid,
        )
    return LockedError(
        f"this project is open in another process (pid {owner.pid}), which serves it: use "
        "'trails' commands or an MCP client, which go through it, or close it first",
        pid=owner.pid,
    )
