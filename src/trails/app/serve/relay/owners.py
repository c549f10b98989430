"""The record of a folder's owner, and how to reach it.

Reading never takes the lock. A record may be out of date: only a connection proves that the
owner exists. A record names the file that it was written to, so a copy of the folder does not
lead to the owner of the original.
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
    """Identifies a file, whatever its path; unique among existing files."""

    device: int
    inode: int


class Machine(msgspec.Struct, frozen=True):
    """The scope of process ids: one boot of one machine, one container."""

    host: str = ""
    boot: str = ""
    pid_namespace: int = 0

    def shares_processes(self, other: Machine) -> bool:
        """Whether a process id means the same process on both; host names may change."""
        return (self.boot, self.pid_namespace) == (other.boot, other.pid_namespace)


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the process that owns a folder publishes."""

    pid: int
    http: str | None = None
    mcp: str | None = None
    """Unix sockets; None if the program does not serve others."""
    key: str = ""
    """The key that lets its reader act as the operator."""
    file: FileId = FileId(0, 0)
    """The file that this was written to."""
    machine: Machine = Machine()

    def __repr__(self) -> str:
        """Hide the key."""
        return f"Owner({self.pid}, {self.http!r}, {self.mcp!r})"


class OwnerAddress(msgspec.Struct, frozen=True):
    """An owner that serves others: its process, and its Unix sockets."""

    pid: int
    http: str
    """The whole HTTP interface: REST and MCP."""
    mcp: str
    """One MCP session per connection; the first line names the graph."""
    key: Secret = Secret("")
    """The key that makes a request act as the operator."""


@cache
def this_machine() -> Machine:
    """Return the machine and container of this process."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        namespace = _PID_NAMESPACE.stat().st_ino
    except OSError:  # a system without them has no containers either
        boot, namespace = "", 0
    return Machine(socket.gethostname(), boot, namespace)


def identify(descriptor: int) -> FileId:
    """Return the id of an open file."""
    found = os.fstat(descriptor)
    return FileId(found.st_dev, found.st_ino)


def read_owner(data: Path) -> Owner | None:
    """Return the owner that a data folder names; it may have ended.

    A file that another user wrote or could write is refused: it decides where commands send their
    tokens.
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
    """Decode a record; None if it was copied from another file or can't be read."""
    try:
        owner = msgspec.json.decode(text, type=Owner)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return owner if owner.file == file else None


def unusable_file(path: Path, error: OSError) -> StorageError:
    """Explain why the owner file of a folder can't be opened."""
    return StorageError(
        f"can't open {path}: {error.strerror or error}. Run this as the user who owns the "
        "project's files, or give them to this user with 'chown -R'"
    )


def find_owner(folder: Path) -> OwnerAddress | None:
    """Return the process that serves a project folder on this machine, if there is one."""
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
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
