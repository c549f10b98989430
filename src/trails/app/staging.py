"""Change several files of a project together: all of them, or none, also after a kill.

Folders are walked by descriptors and no symbolic link is followed, so a path can't lead out of the
project. The new texts are written beside their files and synced. A journal in the data folder
lists them; from the moment that it says so, the change is finished and never undone, by this
process or by the next one that opens the project. Which paths may be changed is decided in
``app/workspace.py``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from trails.errors import (
    ConflictError,
    FieldError,
    NotFoundError,
    StorageError,
    StorageFullError,
    ValidationError,
)
from trails.files import (
    PRIVATE_FILE,
    private_opener,
    remove_unfinished,
    replace_file,
    sync_folder,
)

if TYPE_CHECKING:
    from trails.model.changes.file_diffs import FileChange

JOURNAL: Final = "files.json"
"""The change under way, in the data folder of a project."""
_LOCK: Final = "files.lock"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LARGEST: Final = 8 << 20
"""Bytes of the largest source file that is read."""

State = Literal["staging", "prepared", "decided"]


class _StagedFile(msgspec.Struct, frozen=True):
    path: str
    before: bytes | None
    after: bytes | None
    mode: int


class _Journal(msgspec.Struct, frozen=True):
    token: str
    state: State
    mark: str
    files: tuple[_StagedFile, ...]


class SourceFiles:
    """The files below a folder, by paths that are relative to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is none."""
        *parents, name = path.split("/")
        with suppress(FileNotFoundError), self._open(parents, path) as parent:
            return _read(parent, name, path)
        return None

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, in order; none if there is no folder."""
        with suppress(FileNotFoundError), self._open(folder.split("/"), folder) as parent:
            found = os.listdir(parent)  # noqa: PTH208 - a descriptor has no Path
            return sorted(each for each in found if _is_file(parent, each))
        return []

    def is_environment(self, folders: list[str]) -> bool:
        """Whether a folder on the way is a virtual environment of Python."""
        for count in range(1, len(folders) + 1):
            if self.read("/".join((*folders[:count], "pyvenv.cfg"))) is not None:
                return True
        return False

    @contextmanager
    def open_parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder of a file, and the name of the file."""
        *parents, name = path.split("/")
        with self._open(parents, path, create=create) as parent:
            yield parent, name

    @contextmanager
    def _open(self, parents: list[str], path: str, *, create: bool = False) -> Iterator[int]:
        current = os.open(self._folder, _FOLDER & ~os.O_NOFOLLOW)
        try:
            for name in parents:
                inner = _enter(current, name, path, create=create)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)


def _enter(parent: int, name: str, path: str, *, create: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    except OSError as error:
        raise _refused(error, name, path) from None
    mode = stat.S_IMODE(os.fstat(parent).st_mode) | 0o700
    with suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
        os.chmod(name, mode, dir_fd=parent)  # whatever the umask: source code is open as its folder
        os.fsync(parent)
    return _enter(parent, name, path, create=False)


def _refused(error: OSError, name: str, path: str) -> StorageError:
    if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}:
        return StorageError(
            f"{path}: {name!r} is a symbolic link or not a folder; files are changed only below "
            "real folders of the project"
        )
    return StorageError(f"{path} can't be opened: {error.strerror or error}")


def _is_file(parent: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    return False


def _read(parent: int, name: str, path: str) -> bytes | None:
    try:
        descriptor = os.open(name, _FILE, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EMLINK}:
            raise StorageError(
                f"{path} is a symbolic link; only real files of the project are read and changed"
            ) from None
        raise StorageError(f"{path} can't be read: {error.strerror or error}") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise StorageError(f"{path} is not a file; only files of the project are read")
        if found.st_size > _LARGEST:
            raise StorageError(f"{path} is larger than {_LARGEST >> 20} MiB; it is not read")
        return file.read()


class FileChanges:
    """Changes of the files of one project, one at a time."""

    def __init__(self, folder: Path, data: Path) -> None:
        self._files = SourceFiles(folder)
        self._data = data

    def apply(self, changes: tuple[FileChange, ...]) -> None:
        """Write all files, or none."""
        with self._alone():
            self._finish(self._decide(self._stage(changes, "")))

    def prepare(self, changes: tuple[FileChange, ...], mark: str) -> PreparedChange:
        """Stage a change that is to happen together with something else, named by ``mark``.

        If the process ends before the change is finished or undone, ``recover`` asks whether what
        the mark names has happened.
        """
        with self._alone():
            journal = self._stage(changes, mark)
            self._write(journal, "prepared")
        return PreparedChange(self, journal)

    def recover(self, happened: Callable[[str], bool]) -> list[str]:
        """Finish or undo what a killed process left; return the paths that were changed."""
        if not any(self._data.glob(f"*{JOURNAL}*")):
            return []
        with self._alone():
            journal = self._journal()
            if journal is None:
                return []
            if journal.state == "decided" or (
                journal.state == "prepared" and happened(journal.mark)
            ):
                self._finish(journal)
                return [each.path for each in journal.files]
            self._undo(journal)
            return []

    def finish(self, journal: _Journal) -> None:
        with self._alone():
            self._finish(self._decide(journal))

    def undo(self, journal: _Journal) -> None:
        with self._alone():
            self._undo(journal)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            with open(self._data / _LOCK, "wb", opener=private_opener) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                remove_unfinished(self._data / JOURNAL)
                yield
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise StorageFullError(
                    "no space left for the changed files; none of them was changed. Retry when "
                    "there is room"
                ) from None
            raise StorageError(
                f"the files can't be changed: {error.strerror or error}; check the permissions of "
                "the project folder"
            ) from None

    def _journal(self) -> _Journal | None:
        try:
            return msgspec.json.decode((self._data / JOURNAL).read_bytes(), type=_Journal)
        except FileNotFoundError:
            return None

    def _write(self, journal: _Journal, state: State) -> _Journal:
        written = msgspec.structs.replace(journal, state=state)
        replace_file(self._data / JOURNAL, msgspec.json.encode(written), PRIVATE_FILE)
        return written

    def _stage(self, changes: tuple[FileChange, ...], mark: str) -> _Journal:
        if self._journal() is not None:
            raise ConflictError(
                "another change of these files is under way or was interrupted; retry, or open "
                "the project again, which finishes or undoes it"
            )
        found = [(each, self._files.read(each.path)) for each in changes]
        stale = [
            (each, before)
            for each, before in found
            if each.base != (None if before is None else sha256(before).hexdigest())
        ]
        if stale:
            raise _stale(stale)
        files = [
            _StagedFile(each.path, before, _after(each, before), self._mode(each.path))
            for each, before in found
        ]
        journal = _Journal(secrets.token_hex(6), "staging", mark, tuple(files))
        self._write(journal, "staging")
        try:
            for staged in files:
                self._stage_file(journal, staged)
        except BaseException:
            self._undo(journal)
            raise
        return journal

    def _mode(self, path: str) -> int:
        """The mode of a file, or of a new one: open to others as its folder is."""
        with suppress(FileNotFoundError), self._files.open_parent(path) as (parent, name):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
                return stat.S_IMODE(found.st_mode)
            return stat.S_IMODE(os.fstat(parent).st_mode) & 0o644
        with self._files.open_parent("any") as (folder, _):
            return stat.S_IMODE(os.fstat(folder).st_mode) & 0o644

    def _stage_file(self, journal: _Journal, staged: _StagedFile) -> None:
        if staged.after is None:
            return
        with self._files.open_parent(staged.path, create=True) as (parent, name):
            beside = _beside(name, journal)
            descriptor = os.open(beside, _NEW, PRIVATE_FILE, dir_fd=parent)
            with os.fdopen(descriptor, "wb") as file:
                file.write(staged.after)
                file.flush()
                os.fchmod(descriptor, staged.mode)
                os.fsync(descriptor)
            os.fsync(parent)

    def _decide(self, journal: _Journal) -> _Journal:
        return self._write(journal, "decided")

    def _finish(self, journal: _Journal) -> None:
        try:
            for staged in journal.files:
                self._finish_file(journal, staged)
        except OSError:
            if not journal.mark:  # what a mark names has happened, so its files follow later
                self._undo(journal)
            raise
        self._forget()

    def _finish_file(self, journal: _Journal, staged: _StagedFile) -> None:
        """Put one file in its place, unless that is done, or somebody has changed it meanwhile."""
        try:
            with self._files.open_parent(staged.path) as (parent, name):
                is_ours = _read(parent, name, staged.path) == staged.before
                if staged.after is None:
                    if is_ours and staged.before is not None:
                        os.unlink(name, dir_fd=parent)
                else:
                    beside = _beside(name, journal)
                    with suppress(FileNotFoundError):
                        if is_ours:
                            os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
                        else:
                            os.unlink(beside, dir_fd=parent)
                os.fsync(parent)
        except FileNotFoundError:
            return  # its folder was removed meanwhile

    def _undo(self, journal: _Journal) -> None:
        """Restore what was there before."""
        for staged in journal.files:
            with suppress(FileNotFoundError), self._files.open_parent(staged.path) as opened:
                self._undo_file(journal, staged, *opened)
        self._forget()

    def _undo_file(self, journal: _Journal, staged: _StagedFile, parent: int, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(_beside(name, journal), dir_fd=parent)
        found = _read(parent, name, staged.path)
        if found == staged.before or found != staged.after:
            return  # unchanged, or changed by somebody else
        if staged.before is None:
            os.unlink(name, dir_fd=parent)
        else:
            old = msgspec.structs.replace(staged, after=staged.before)
            self._stage_file(journal, old)
            os.rename(_beside(name, journal), name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)

    def _forget(self) -> None:
        (self._data / JOURNAL).unlink(missing_ok=True)
        sync_folder(self._data)


class PreparedChange:
    """A change of files that is staged; finish it or undo it."""

    def __init__(self, changes: FileChanges, journal: _Journal) -> None:
        self._changes = changes
        self._journal = journal

    def finish(self) -> None:
        """Put all files in their places."""
        self._changes.finish(self._journal)

    def undo(self) -> None:
        """Change nothing."""
        self._changes.undo(self._journal)


def _beside(name: str, journal: _Journal) -> str:
    return f".{name}.{journal.token}"


def _after(change: FileChange, before: bytes | None) -> bytes | None:
    """The new content; an incomplete or altered change is refused."""
    try:
        text = change.applied_to(None if before is None else before.decode())
        found = None if text is None else text.encode()
        if (None if found is None else sha256(found).hexdigest()) != change.digest:
            raise ValueError("its result has another digest")  # noqa: TRY301
    except ValueError as error:
        message = f"{change.path}: {error}; send the change as it was returned, whole"
        raise ValidationError([FieldError("files", "digest", message, change.path)]) from None
    return found


def _stale(found: list[tuple[FileChange, bytes | None]]) -> ConflictError | NotFoundError:
    parts = []
    for change, before in found:
        if change.base is None:
            parts.append(f"{change.path} exists already")
        elif before is None:
            parts.append(f"{change.path} does not exist any more")
        else:
            parts.append(f"{change.path} has changed since")
    return ConflictError(
        f"{'; '.join(parts)}; no file was changed. Generate the change again from the files as "
        "they are now",
        files=[change.path for change, _ in found],
    )
