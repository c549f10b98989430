"""One process owns a project folder; a second one is told who does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from trails.errors import LockedError


class Ownership:
    """An exclusive lock on a folder; the kernel frees it when the process ends, however."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "owner"
        self._file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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

    def release(self) -> None:
        """Let another process own the folder."""
        self._file.close()
