"""The files of an embedded log that is not in use: the log of its graph is on a server.

They are in a folder of their own in the graph's folder, and a note says where the log is. The note
stays when the folder is deleted, so that no log is made from the views beside the one that is in
use. Files are moved one by one: first away, or last back, comes the file that makes a log. What a
crash left between is finished by ``settle``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, Literal

import msgspec

from trails.errors import CorruptionError, StorageError
from trails.files import make_folder, replace_file, sync_folder

UNUSED: Final = "unused-log"
NOTE: Final = "moved-log.json"
_LOG_FILE: Final = "log.db"
_BESIDE: Final = ("segments", "activities", "tail", "tail.old")
"""Files and folders of an embedded log beside its database."""
Step = Literal["away", "moved", "back"]
"""Files are on their way to the folder, or are there, or are on their way back."""


class Note(msgspec.Struct, frozen=True):
    """What the note says."""

    step: Step
    place: str
    """Where the log is, without anything secret."""


def read_note(folder: Path) -> Note | None:
    """The note of a graph's folder."""
    path = folder / NOTE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Note)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise CorruptionError(
            f"{path} can't be read ({error}). It says that the log of this graph was moved to "
            "PostgreSQL: run 'trails log copy' again"
        ) from None


def write_note(folder: Path, step: Step, place: str) -> None:
    """Write it durably."""
    replace_file(folder / NOTE, msgspec.json.encode(Note(step, place)))


def refuse_moved(folder: Path, graph: str) -> None:
    """Refuse to use, or to make, a log in a folder whose log is on a server."""
    if (folder / _LOG_FILE).exists():
        return
    note = read_note(folder)
    if note is None:
        return
    if note.step != "moved":
        raise StorageError(
            f"the log of graph {graph!r} is being moved, and the command did not finish; run "
            "'trails log copy' again with the same --to"
        )
    raise StorageError(
        f"the log of graph {graph!r} was moved to {note.place}, but the settings do not name a "
        f"server: set url in [graphs.{graph}.log] of trails.toml, or TRAILS_LOG_URL. To move it "
        "back to this folder, set it and run 'trails log copy --to file'"
    )


def move_away(folder: Path, place: str) -> None:
    """Take the files of a log, which is closed, out of use."""
    write_note(folder, "away", place)
    unused = folder / UNUSED
    if (unused / _LOG_FILE).exists():
        raise StorageError(f"{unused} has a log of its own; move that folder elsewhere")
    _clear(unused)
    make_folder(unused)
    _rename(folder / _LOG_FILE, unused / _LOG_FILE)
    settle(folder)


def move_back(folder: Path, place: str) -> None:
    """Put the files of an unused log into use."""
    write_note(folder, "back", place)
    settle(folder)


def remove_log(folder: Path) -> None:
    """Delete the files of a log."""
    for name in (_LOG_FILE, *_BESIDE):
        _clear(folder / name)


def settle(folder: Path) -> None:
    """Finish the moving of files that was begun."""
    note, unused = read_note(folder), folder / UNUSED
    if note is None:
        return
    if note.step == "away" and not (folder / _LOG_FILE).exists():
        for name in _BESIDE:
            if (folder / name).exists():
                _rename(folder / name, unused / name)
    if note.step == "back":
        for name in (*_BESIDE, _LOG_FILE):
            if (unused / name).exists():
                _clear(folder / name)  # of a log on a server: large parts on their way
                _rename(unused / name, folder / name)
        (folder / NOTE).unlink()
        _clear(unused)
        sync_folder(folder)


def _rename(source: Path, target: Path) -> None:
    source.rename(target)
    sync_folder(target.parent)
    sync_folder(source.parent)


def _clear(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
