"""The record of a folder's owner, and its sockets.

Reading the record never takes the lock. A record may be out of date: only a connection proves that
the owner exists. A record names the file that it was written to, so a copy of the folder does not
lead to the owner of the original.

The sockets are in a private folder with a short path, removed with the owner: the path of a socket
is limited to 108 bytes, and a project may be deeper than that. A socket or file of another user is
refused: tokens are sent there.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

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


_PREFIX: Final = "trails-owner-"
_LONGEST: Final = 100
"""The most bytes of a socket's path, a little below the kernel's limit of 107."""
_NAMES: Final = ("http", "mcp")


class SocketFolder:
    """Two listening sockets that only the same user can reach."""

    def __init__(self) -> None:
        self.path = _make_folder()
        self.http, self.mcp = (str(self.path / name) for name in _NAMES)
        self.http_socket = _listen(self.http)
        self.mcp_socket = _listen(self.mcp)

    def remove(self) -> None:
        """Close the sockets and remove the folder."""
        self.http_socket.close()
        self.mcp_socket.close()
        _remove(self.path)


def remove_debris(socket_path: str | None) -> None:
    """Remove the socket folder that a dead owner left behind."""
    if socket_path is None or _is_answered(socket_path):
        return
    folder = Path(socket_path).parent
    with suppress(OSError):
        ours = folder.lstat().st_uid == os.geteuid() and not folder.is_symlink()
        if ours and folder.name.startswith(_PREFIX):
            _remove(folder)


def _is_answered(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(0)
        try:
            sock.connect(path)
        except BlockingIOError:
            return True  # it listens, but its queue is full
        except (OSError, ValueError):
            return False
    return True


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for name in _NAMES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _make_folder() -> Path:
    """Make a folder with mode 0700 in the first place that is writable and not too deep."""
    places = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]  # noqa: S108
    for place in places:
        room = _LONGEST - len(os.fsencode(place)) - len(f"/{_PREFIX}12345678/http")
        if not os.path.isabs(place) or room < 0:  # noqa: PTH117 - a text
            continue
        with suppress(OSError):
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    raise StorageError(
        "there is no folder for the sockets that other trails processes connect to: tried "
        f"{', '.join(filter(None, places))}. Set XDG_RUNTIME_DIR to a folder that you can write "
        "to, with a path of less than 70 bytes"
    )


def _listen(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(path)
    sock.listen(256)
    sock.setblocking(False)
    return sock


def peer_uid(sock: socket.socket) -> int:
    """Return the user of the process at the other end of a Unix socket."""
    size = struct.calcsize("3i")
    given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", given)
    return int(uid)


def is_same_user(sock: socket.socket) -> bool:
    """Whether the peer of a Unix socket is this user, or root."""
    return peer_uid(sock) in {os.geteuid(), 0}


def check_private(path: Path, found: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Refuse a file that another user made or can change: tokens are sent where it points."""
    if not is_kind(found.st_mode):
        raise StorageError(f"{path} was not made by Trails; remove it, then retry")
    if found.st_uid not in {os.geteuid(), 0}:
        raise StorageError(
            f"{path} belongs to another user (uid {found.st_uid}), so it is not used: a command "
            "would send its token where that user says. Run the command as that user if the "
            "project is theirs; else remove the file"
        )
    if found.st_mode & 0o022:
        mode = stat.S_IMODE(found.st_mode)
        raise StorageError(
            f"{path} can be written by other users (mode {mode:04o}), so it is not used: a "
            "command would send its token where they say. Restart the process that serves the "
            "project, or take their permission away with 'chmod go-w'"
        )


def check_socket_folder(socket_path: str) -> None:
    """Refuse sockets in a folder that another user made or can change."""
    folder = Path(socket_path).parent
    with suppress(FileNotFoundError):  # connecting reports that
        check_private(folder, folder.lstat(), stat.S_ISDIR)


def connect_socket(path: str, patience: float) -> socket.socket:
    """Connect to an owner; refuse a peer that is neither this user nor root."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(patience)
        sock.connect(path)
        _check_peer(sock, path)
    except BaseException:
        sock.close()
        raise
    return sock


async def connect_streams(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an owner, as streams; refuse other users."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        _check_peer(writer.get_extra_info("socket"), path)
    except BaseException:
        writer.close()
        raise
    return reader, writer


def _check_peer(sock: socket.socket, path: str) -> None:
    if not is_same_user(sock):
        raise StorageError(
            f"the process that listens on {path} runs as another user (uid {peer_uid(sock)}), so "
            "nothing was sent to it. Run the command as that user if the project is theirs; else "
            "remove .trails/owner"
        )
