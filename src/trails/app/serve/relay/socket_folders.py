"""The folder of an owner's sockets: private, with a short path, gone when the owner is.

A socket's path has 108 bytes at most, and a project may lie deeper than that; so sockets
are never inside the project.
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
from pathlib import Path
from typing import Final

from trails.errors import StorageError

_PREFIX: Final = "trails-owner-"
_LONGEST: Final = 100
"""Bytes of a socket's path, with a little room to the kernel's limit of 107."""
_NAMES: Final = ("http", "mcp")


class SocketFolder:
    """Two listening sockets that only the same user can reach."""

    def __init__(self) -> None:
        self.path = _make_folder()
        self.http, self.mcp = (str(self.path / name) for name in _NAMES)
        self.http_socket = _listen(self.http)
        self.mcp_socket = _listen(self.mcp)

    def remove(self) -> None:
        """Close the sockets and take the folder away."""
        self.http_socket.close()
        self.mcp_socket.close()
        _remove(self.path)


def remove_debris(socket_path: str | None) -> None:
    """Take away what an owner that is dead left behind: the folder of a socket it named."""
    if socket_path is None or _is_answered(socket_path):
        return
    folder = Path(socket_path).parent
    with suppress(OSError):
        ours = folder.lstat().st_uid == os.geteuid() and not folder.is_symlink()
        if ours and folder.name.startswith(_PREFIX):
            _remove(folder)


def _is_answered(path: str) -> bool:
    """Whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(0)
        try:
            sock.connect(path)
        except BlockingIOError:
            return True  # it has a queue, which is full
        except (OSError, ValueError):
            return False
    return True


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for name in _NAMES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _make_folder() -> Path:
    """A new folder with mode 0700, in the first place that is writable and not too deep."""
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
    """The user that runs the other side of a Unix socket."""
    size = struct.calcsize("3i")
    given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", given)
    return int(uid)


def is_same_user(sock: socket.socket) -> bool:
    """Whether the peer of a Unix socket is this user, or root."""
    return peer_uid(sock) in {os.geteuid(), 0}


def check_private(path: Path, found: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Refuse what another user made or can change: tokens are sent where it points."""
    if not is_kind(found.st_mode):
        raise StorageError(f"{path} is not what Trails made there; remove it, then try again")
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
    with suppress(FileNotFoundError):  # connecting says so
        check_private(folder, folder.lstat(), stat.S_ISDIR)


def connect_socket(path: str, patience: float) -> socket.socket:
    """A connection to an owner, which is this user or root; nothing is sent to others."""
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
    """A connection to an owner, as streams; nothing is sent to other users."""
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
