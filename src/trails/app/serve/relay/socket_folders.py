"""The folder of an owner's sockets: private, with a short path, removed with the owner.

The path of a socket is limited to 108 bytes, and a project may be deeper than that, so
sockets are never inside the project. A socket or file of another user is refused: tokens are
sent there.
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
