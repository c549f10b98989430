"""Write files completely or not at all, and for this user alone.

A file takes another's place in four steps: it is written beside it, synced, renamed, and the
folder is synced. Whenever the process is killed or the power is cut, the old file or the new one
is there, whole. What has been reported as done is on the disk.

Everything that Trails keeps is private (folders 0700, files 0600) whatever the umask; a file
that is replaced keeps its mode.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
_OTHERS: Final = 0o077
"""The permissions of all users except the owner."""
_BLOCK: Final = 1 << 20


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Write a file that takes the place of ``path`` when the block is left without an error.

    Without ``mode`` a file that exists keeps its own, and a new one is private. A symbolic link
    stays one; a device or a pipe is written as it is.
    """
    path = path.resolve()
    found = _mode_of(path)
    if found is not None and not stat.S_ISREG(found):
        with path.open("wb") as file:
            yield file
        return
    if mode is None:
        mode = PRIVATE_FILE if found is None else stat.S_IMODE(found)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with open_new(beside, mode) as file:
            yield file
        beside.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace the content of a file."""
    with replacing(path, mode) as file:
        file.write(content)


def remove_unfinished(path: Path) -> None:
    """Remove what writers of a file left that were killed; for a caller that is alone with it."""
    for each in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            each.unlink()


def create_file(path: Path, content: bytes, mode: int = PRIVATE_FILE) -> None:
    """Write a file that does not exist yet; FileExistsError if it does."""
    with open_new(path, mode) as file:
        file.write(content)
    sync_folder(path.parent)


def private_opener(path: str, flags: int) -> int:
    """For ``open``: a file that is made by it is private, and no symbolic link is followed."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)


@contextmanager
def open_new(path: Path, mode: int = PRIVATE_FILE) -> Iterator[IO[bytes]]:
    """A new file, on the disk when the block is left. Its name needs a sync of its folder."""
    with open(path, "xb", opener=private_opener) as file:
        yield file
        file.flush()
        if mode != PRIVATE_FILE:
            os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's content into a new private file, on the disk when this returns."""
    with source.open("rb") as old, open_new(target) as new:
        shutil.copyfileobj(old, new, _BLOCK)


def digest_file(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def private_folder(folder: Path) -> None:
    """Make a folder, and its missing parents, that only this user can enter."""
    for each in reversed((folder, *folder.parents)):
        if not each.exists():
            each.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def make_folder(folder: Path) -> None:
    """Make a private folder whose name survives a power cut, and its parents likewise."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    private_folder(folder)
    for each in missing:
        sync_folder(each.parent)


def sync_file(path: Path) -> None:
    """Make what was written to a file durable."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make everything below a folder durable; the folder's own name is not."""
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync_file(Path(parent, name))
        sync_folder(Path(parent))


def make_private(folder: Path) -> None:
    """Take a folder and everything below it from other users.

    Nobody gets past a private folder, so one that is private already is left as it is. What
    belongs to another user can't be changed here; :func:`open_to_others` finds it.
    """
    if not _is_open(folder):
        return
    _close(folder)
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            _close(Path(parent, name))


def _close(path: Path) -> None:
    with suppress(OSError):
        found = path.lstat().st_mode
        if not stat.S_ISLNK(found) and found & _OTHERS:
            path.chmod(stat.S_IMODE(found) & ~_OTHERS)


def open_to_others(folder: Path) -> Iterator[Path]:
    """Whatever below a folder, itself included, other users can reach."""
    if not _is_open(folder):
        return
    yield folder
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if _is_open(Path(parent, each))]
        yield from (Path(parent, each) for each in folders)
        yield from (path for each in names if _is_open(path := Path(parent, each)))


def _is_open(path: Path) -> bool:
    mode = _mode_of(path)
    return mode is not None and bool(mode & _OTHERS) and not stat.S_ISLNK(mode)


def _mode_of(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None


def set_private_umask() -> None:
    """Let the files that libraries of this process make be private.

    For our own programs: RocksDB makes files in threads of its own, and has no option for this.
    """
    os.umask(os.umask(_OTHERS) | _OTHERS)
