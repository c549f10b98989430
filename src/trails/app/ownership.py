"""One process owns a project folder; a second one is told who does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from trails.errors import LockedError

_PATIENCE: Final = 0.5
"""Seconds to wait for a folder that another process owns."""


class Ownership:
    """An exclusive lock on a folder; the kernel frees it when the process ends, however."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "owner"
        self._file = path.open("a+", encoding="utf-8")
        try:
            self._lock()
        except OSError:
            self._file.seek(0)
            owner = self._file.read().strip() or "unknown"
            self._file.close()
            raise LockedError(
                f"this project is open in another process (pid {owner}); close it first",
                pid=owner,
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def _lock(self) -> None:
        """Take the lock; a process that is just ending, or starting a child, may still hold it."""
        give_up = monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if monotonic() > give_up:
                    raise
                sleep(0.02)
            else:
                return

    def release(self) -> None:
        """Let another process own the folder."""
        self._file.close()
