"""Who owns a project folder, and how to reach it.

Reading never takes the lock, so it disturbs nobody who is about to take it. What is read
may be out of date: only a connection proves that an owner is there.

The record names the file that it was written into. A copy of the folder has the same text in
another file, so nobody who opens the copy is led to the owner of the original.
"""

from __future__ import annotations

import os
import socket
import stat
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from trails.app.serve.relay.socket_folders import check_private, check_socket_folder
from trails.errors import StorageError
from trails.model.actors import Secret

OWNER_FILE: Final = "owner"
_DATA_FOLDER: Final = ".trails"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE: Final = Path("/proc/self/ns/pid")


class FileId(NamedTuple):
    """Which file this is, whatever its path; no two files have the same id while they exist."""

    device: int
    inode: int


class Machine(msgspec.Struct, frozen=True):
    """Where process ids mean something: one boot of one machine, one container of it."""

    host: str = ""
    boot: str = ""
    pid_namespace: int = 0

    def shares_processes(self, other: Machine) -> bool:
        """Whether a process id means the same process on both; host names may change."""
        return (self.boot, self.pid_namespace) == (other.boot, other.pid_namespace)


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the process that owns a folder says of itself."""

    pid: int
    http: str | None = None
    mcp: str | None = None
    """Unix sockets; None in a program that opened the folder for itself alone."""
    key: str = ""
    """What whoever may read this shows to act as the operator."""
    file: FileId = FileId(0, 0)
    """The file that this was written into."""
    machine: Machine = Machine()

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


@cache
def this_machine() -> Machine:
    """The machine and container that this process runs in."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        namespace = _PID_NAMESPACE.stat().st_ino
    except OSError:  # a system without them has no containers to tell apart either
        boot, namespace = "", 0
    return Machine(socket.gethostname(), boot, namespace)


def identify(descriptor: int) -> FileId:
    """The id of an open file."""
    found = os.fstat(descriptor)
    return FileId(found.st_dev, found.st_ino)


def read_owner(data: Path) -> Owner | None:
    """The owner that a data folder names: perhaps one that is gone.

    A file that another user wrote, or could write, is refused: it decides where commands send
    their tokens.
    """
    path = data / OWNER_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable_file(path, error) from None
    with os.fdopen(descriptor, "rb") as file:
        check_private(path, os.fstat(descriptor), stat.S_ISREG)
        return decode_owner(file.read(), identify(descriptor))


def decode_owner(text: bytes, file: FileId) -> Owner | None:
    """What a file says; None where that was copied from another file, or is unreadable."""
    try:
        owner = msgspec.json.decode(text, type=Owner)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return owner if owner.file == file else None


def unusable_file(path: Path, error: OSError) -> StorageError:
    """Why the file of a folder's owner can't be opened."""
    return StorageError(
        f"can't open {path}: {error.strerror or error}. Run this as the user who owns the "
        "project's files, or give them to this user with 'chown -R'"
    )


def find_owner(folder: Path) -> OwnerAddress | None:
    """The process that serves a project folder to others on this machine, if one does."""
    owner = read_owner(Path(folder) / _DATA_FOLDER)
    if owner is None or owner.http is None or owner.mcp is None:
        return None
    if not owner.machine.shares_processes(this_machine()) or not is_alive(owner.pid):
        return None
    if not os.path.lexists(owner.http):
        return None
    check_socket_folder(owner.http)
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
