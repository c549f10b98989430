"""Replace a file of somebody else's: with a copy beside it, at once, or not at all."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from trails.errors import InstallError
from trails.files import PRIVATE_FILE, create_file, private_folder, replacing

_LARGEST: Final = 32 << 20


def read_configuration(path: Path) -> bytes | None:
    """What a file holds; ``None`` if it does not exist."""
    try:
        if path.exists() and not path.is_file():
            raise InstallError(f"{path} is not a file")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InstallError(f"{path} can't be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise InstallError(f"{path} is larger than {_LARGEST >> 20} MiB")
    return content


def replace_configuration(path: Path, old: bytes | None, new: bytes) -> Path | None:
    """Write ``new`` where ``old`` was read, if it still is there; the copy of ``old``.

    A file that did not exist is readable to its owner alone, as clients make theirs.
    """
    try:
        private_folder(path.parent)
        mode = PRIVATE_FILE if old is None else stat.S_IMODE(path.stat().st_mode)
        with replacing(path, mode) as file:
            file.write(new)
            if read_configuration(path) != old:
                raise InstallError(f"{path} was changed by another program meanwhile; try again")
            backup = None if old is None else _keep(path, old, mode)
    except OSError as error:
        raise InstallError(f"{path} can't be written: {error.strerror}") from None
    return backup


def _keep(path: Path, content: bytes, mode: int) -> Path:
    """A copy of what a file held, under a name of its own."""
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    for number in range(1000):
        suffix = f"-{number}" if number else ""
        copy = path.with_name(f"{path.name}.bak-{time}{suffix}")
        try:
            create_file(copy, content, mode)
        except FileExistsError:
            continue
        return copy
    raise InstallError(f"{path} has too many copies of this second; try again")
