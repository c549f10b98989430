"""The folder of an owner's sockets: private, with a short path, gone when the owner is.

A socket's path has 108 bytes at most, and a project may lie deeper than that; so sockets
are never inside the project.
"""

from __future__ import annotations

import os
import socket
import struct
import tempfile
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
    if socket_path is None:
        return
    folder = Path(socket_path).parent
    with suppress(OSError):
        ours = folder.lstat().st_uid == os.geteuid() and not folder.is_symlink()
        if ours and folder.name.startswith(_PREFIX):
            _remove(folder)


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


def is_same_user(sock: socket.socket) -> bool:
    """Whether the peer of a Unix socket is this user, or root."""
    size = struct.calcsize("3i")
    given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", given)
    return uid in {os.geteuid(), 0}
