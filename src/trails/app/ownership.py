"""Exclusive ownership of a project folder; a second process learns who owns it.

The lock is on a file in ``.trails`` that names the owner and its sockets; the kernel releases
it when the process ends. Also here: what an owner does before it opens anything (permissions,
unfinished restores).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import msgspec

from trails.app.serve.relay.owners import (
    OWNER_FILE,
    Owner,
    decode_owner,
    identify,
    is_alive,
    read_owner,
    remove_debris,
    this_machine,
    unusable_file,
)
from trails.app.settings import SETTINGS_FILE
from trails.engine.graph.graph import TEMPORARY
from trails.engine.upkeep.backups import GRAPHS, finish_replacement
from trails.errors import LockedError, StorageError
from trails.files import make_private, open_to_others, private_folder
from trails.model.actors import Secret
from trails.model.upkeep import Finding, flag, passed

_PATIENCE: Final = 0.5
"""Seconds to wait for a folder that another process owns."""
_UNWRITABLE: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC})
_PRIVATE: Final = 0o600
"""Only this user may read the file."""


class Ownership:
    """An exclusive lock on a folder, released by the kernel when the process ends.

    The locked file names the owner, and its sockets if it serves others.
    """

    def __init__(self, folder: Path, patience: float = _PATIENCE) -> None:
        path = folder / OWNER_FILE
        self.refused: str | None = None
        """Why nothing in the folder can be written; None if it can."""
        try:
            private_folder(folder)
            self._file = open(path, "a+b", buffering=0, opener=_open_private)  # noqa: SIM115
        except OSError as error:
            self._file = self._open_unwritable(path, error)
        try:
            self._lock(path, patience)
            if self.refused is None:
                self._claim(path)
        except BaseException:
            self._file.close()
            raise

    def _open_unwritable(self, path: Path, error: OSError) -> FileIO:
        """Open a file to lock in a read-only folder: the lock file, or the project's settings.

        A read-only file in a writable folder belongs to another user: an error.
        """
        data = path.parent
        usable = error.errno != errno.ENOSPC and os.access(data, os.W_OK)
        if error.errno not in _UNWRITABLE or not data.is_dir() or usable:
            raise unusable_file(path, error) from None
        self.refused = (error.strerror or str(error)).lower()
        lock = path if path.exists() else data.parent / SETTINGS_FILE
        try:
            return open(lock, "rb", buffering=0, opener=_open_private)
        except OSError as again:
            raise unusable_file(path, again) from None

    def _lock(self, path: Path, patience: float) -> None:
        """Take the lock; retry, because an ending or forking process may hold it for a moment."""
        give_up = monotonic() + patience
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if monotonic() >= give_up:
                    raise describe_lock(path.parent) from None
                sleep(0.02)
            except OSError as error:
                raise describe_missing_locks(path, error) from None
            else:
                return

    def _claim(self, path: Path) -> None:
        """Write this process into the file; clean up after a dead owner of this folder.

        A record that was copied from another folder names sockets of that folder.
        """
        self._file_id = identify(self._file.fileno())
        try:
            if os.fstat(self._file.fileno()).st_uid != os.geteuid():
                os.fchown(self._file.fileno(), os.geteuid(), -1)
            os.fchmod(self._file.fileno(), _PRIVATE)
        except OSError as error:
            raise unusable_file(path, error) from None
        self._file.seek(0)
        dead = decode_owner(self._file.read(), self._file_id)
        if dead is not None and dead.machine.shares_processes(this_machine()):
            remove_debris(dead.http)
        self._write(Owner(os.getpid()))

    def _write(self, owner: Owner) -> None:
        # The lock is on this file, so the file must not be replaced.
        named = msgspec.structs.replace(owner, file=self._file_id, machine=this_machine())
        self._file.truncate(0)
        # On a full disk the file stays empty: locked, but without the owner's name.
        with suppress(OSError):
            self._file.write(msgspec.json.encode(named))

    def announce(self, http: str, mcp: str, key: Secret) -> None:
        """Publish the sockets, which are listening now, and the owner's key."""
        if self.refused is None:
            self._write(Owner(os.getpid(), http, mcp, key.reveal()))

    def release(self) -> None:
        if not self._file.closed:
            if self.refused is None:
                self._file.truncate(0)
            self._file.close()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, _PRIVATE)


def describe_missing_locks(path: Path, error: OSError) -> StorageError:
    """Explain why a folder can't be used: its file system has no locks, or they fail."""
    return StorageError(
        f"can't lock {path}: {error.strerror or error}; without file locks two processes could "
        "write to the same project and corrupt it: move the project to a local disk, or mount this "
        "file system with locks (on NFS without 'nolock', with its lock service running)"
    )


def describe_lock(data: Path) -> LockedError:
    """Explain why a folder can't be opened here, and what to do.

    ``reason`` in the error's data is ``elsewhere``, ``orphaned`` or ``unreachable`` if waiting
    does not help.
    """
    owner = read_owner(data)
    lock = data / OWNER_FILE
    if owner is None:
        return LockedError(
            "another process has this project open, but has not published its pid yet; close "
            f"it first ('fuser -v {lock}' lists it)",
            pid="unknown",
            reason="busy",
        )
    if not owner.machine.shares_processes(this_machine()):
        host = owner.machine.host or "unknown"
        return LockedError(
            f"this project is open in another container or on another machine (host {host!r}, "
            f"process {owner.pid} there), and only one can have it open; stop that process first, "
            "or send commands to the server there with --server URL",
            pid=owner.pid,
            host=host,
            reason="elsewhere",
        )
    if not is_alive(owner.pid):
        return LockedError(
            f"this project is locked, but process {owner.pid}, which took the lock, has ended: a "
            "process that it started, or a file server, still holds the lock; end it ('fuser -v "
            f"{lock}' lists such processes), then retry",
            pid=owner.pid,
            reason="orphaned",
        )
    if owner.mcp is None:
        return LockedError(
            f"this project is open in another process (pid {owner.pid}), which does not serve "
            "it to others; close it first",
            pid=owner.pid,
            reason="busy",
        )
    if not os.path.lexists(owner.mcp):
        return LockedError(
            f"process {owner.pid} serves this project, but its sockets in "
            f"{Path(owner.mcp).parent} can't be seen from here: it is ending, or has a private "
            "temporary folder (a container, or systemd's PrivateTmp); set XDG_RUNTIME_DIR to a "
            "folder that both processes see, or send commands to its address with --server URL",
            pid=owner.pid,
            reason="unreachable",
        )
    return LockedError(
        f"this project is open in another process (pid {owner.pid}), which serves it: use "
        "'trails' commands or an MCP client, which go through it, or close it first",
        pid=owner.pid,
        reason="served",
    )


_SHOWN: Final = 3


def prepare_data(data: Path, report: Callable[[str], None]) -> None:
    """Close the folder to other users; finish or remove what a killed process left."""
    make_private(data)
    finish_replacement(data, report)
    for each in data.glob(f"{GRAPHS}/*/{TEMPORARY}"):
        shutil.rmtree(each, ignore_errors=True)


def examine_permissions(data: Path) -> Finding:
    """Check whether other users can access anything in the folder."""
    found = list(open_to_others(data))
    if not found:
        return passed("permissions", f"only this user can enter {data}")
    shown = ", ".join(str(each) for each in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return flag(
        "permissions_open",
        f"other users of this machine can reach {shown}{more}",
        f"run 'chmod -R go= {data}' as the user that owns the files",
    )
