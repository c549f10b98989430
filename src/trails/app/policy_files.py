"""A folder of policies: what it holds, and whether it has changed."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from time import time_ns
from typing import Final

import msgspec

from trails.errors import PolicyError
from trails.policies.sources import Source

SUFFIX: Final = ".cedar"
_SETTLED: Final = 250_000_000
"""Nanoseconds after which nobody is writing any more."""
_LARGEST: Final = 4 << 20

Look = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size and time of every file."""


class PolicyFiles(msgspec.Struct, frozen=True):
    """The ``*.cedar`` files of one folder, in name order; those that begin with a dot are not."""

    folder: Path | None
    shown: str = ""
    """What the settings call the folder."""

    def look(self) -> Look:
        """What there is, without reading it; nothing where there is no folder."""
        return () if self.folder is None else tuple(sorted(_look(self.folder)))

    def is_settled(self) -> bool:
        """Whether the last change is a while ago, so that no file is half written."""
        if self.folder is None:
            return True
        try:
            times = [self.folder.stat().st_mtime_ns, *(each[3] for each in self.look())]
        except OSError:
            return True
        age = time_ns() - max(times)
        return not 0 <= age < _SETTLED

    def read(self) -> tuple[Source, ...]:
        """All of it."""
        return tuple(self._read(name) for name, *_ in self.look())

    def _read(self, name: str) -> Source:
        path = Path(self.folder or "") / name
        shown = f"{self.shown}/{name}"
        try:
            if not path.is_file():
                raise PolicyError(f"{shown} is not a file; rename it or make it one")
            if path.stat().st_size > _LARGEST:
                raise PolicyError(f"{shown} has more than {_LARGEST >> 20} MiB; split it")
            return Source(shown, path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise PolicyError(
                f"{shown} is not UTF-8 text (byte {error.start}); save it as such"
            ) from None
        except OSError as error:
            raise PolicyError(
                f"{shown} can't be read: {error.strerror or error}; correct that or remove it"
            ) from None


def _look(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    try:
        paths = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise PolicyError(
            f"the folder of policies {str(folder)!r} can't be read: {error.strerror or error}"
        ) from None
    for path in paths:
        name = path.name
        if name.endswith(SUFFIX) and not name.startswith("."):
            try:
                found = path.stat()
            except OSError:
                yield name, 0, 0, 0  # it is there, and reading it will say what is wrong
            else:
                kind = stat.S_IFMT(found.st_mode)
                yield name, found.st_ino + kind, found.st_size, found.st_mtime_ns
