"""The sandbox's folders: bases, and the workers' hard-linked clones of them.

Each run has a folder and a lock file. A folder whose lock is free was left by a crash, and
the next run removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path
from typing import Final
from uuid import uuid4

from trails.errors import StorageError
from trails.files import private_folder
from trails.log.storage import storage_errors
from trails.sandbox.confine import NOBODY

_SHARED: Final = ".sst"
"""Files that RocksDB never changes, so hard links to them are as good as copies."""
_SKIPPED: Final = ("LOCK", "LOG")


SCRATCH: Final = "scratch"
"""Where a graph's runs are, beside its stores: bases are made of hard links."""


class Scratch:
    """The folder of one run, created on first use."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._mutex = threading.Lock()
        self._numbers = itertools.count(1)
        self._run: Path | None = None
        self._lock = -1

    def path(self, name: str) -> Path:
        """Return a new path in the run's folder."""
        with self._mutex:
            if self._run is None:
                with storage_errors("make the sandbox's folder"):
                    self._run = self._start()
            return self._run / f"{name}-{next(self._numbers)}"

    def _start(self) -> Path:
        home = self._folder or _temporary()
        private_folder(home)
        sweep(home)
        run = home / f"run-{uuid4().hex}"
        # The lock is created first: a sweep must never find a run without one.
        self._lock = os.open(run.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        run.mkdir(mode=0o700)
        return run

    def close(self) -> None:
        with self._mutex:
            if self._run is not None:
                shutil.rmtree(self._run, ignore_errors=True)
                self._run.with_suffix(".lock").unlink(missing_ok=True)
                os.close(self._lock)
                self._run = None


def _temporary() -> Path:
    """The parent of runs without a folder of their own; only this user can write to it."""
    home = Path(tempfile.gettempdir()) / f"trails-sandbox-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StorageError(f"{home} belongs to another user; remove it, or set TMPDIR")
    return home


def sweep(home: Path, *, dry_run: bool = False) -> list[str]:
    """Remove the folders of runs that crashed; return their names."""
    found = []
    for lock in home.glob("run-*.lock"):
        with contextlib.suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not dry_run:
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink()
            found.append(lock.stem)
    return found


def protect(base: Path) -> None:
    """Make files read-only that share their content with the owner's store."""
    for path in base.glob("*" + _SHARED):
        mode = stat.S_IMODE(path.stat().st_mode) & 0o444
        # Root's workers run as `nobody`; the parent folders stay closed to other users.
        path.chmod(mode | 0o004 if os.getuid() == 0 else mode)


def size(base: Path) -> int:
    """Return the bytes of a base."""
    return sum(path.stat().st_size for path in base.iterdir())


def clone(base: Path, folder: Path) -> None:
    """Make a worker's own store: hard links to immutable files, copies of the others."""
    folder.mkdir(mode=0o700)
    for path in base.iterdir():
        if path.name.startswith(_SKIPPED):
            continue
        target = folder / path.name
        if path.suffix == _SHARED:
            target.hardlink_to(path)
            continue
        shutil.copyfile(path, target)
        _hand_over(target)
    _hand_over(folder)


def _hand_over(path: Path) -> None:
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY)
