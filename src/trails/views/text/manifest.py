"""Manifest: what the text indexes of a branch hold on disk, in one file, replaced as a whole.

It is written after the indexes were flushed. So it may name an older commit than they have
reached, never a newer one: whoever opens them takes the handles in its tails, and those that later
commits touch, as not indexed yet. An index whose folder it does not name is left from a crash.

Each index checks its own files. What it can't notice is that all of them are older than the
manifest, so its number of operations is kept here.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from trails.files import private_folder, replace_file, sync_folder
from trails.log.storage import storage_errors
from trails.model.history import Position

MANIFEST: Final = "position"
"""The name of the file."""
_FORMAT: Final = 1
_SEGMENTS: Final = "meta.json"
"""The file in which an index lists its segments."""


class _Segments(msgspec.Struct):
    opstamp: int


class IndexRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One index: whose texts it has, and where."""

    type: str
    field: str
    stamp: str
    """What it was made of and with; an index with another stamp is made anew."""
    folder: str = ""
    """Empty while nothing was indexed."""
    operations: int = 0
    """How many it had seen."""
    documents: int = 0
    tail: tuple[str, ...] = ()
    """Nodes whose text may be another one than the index has."""


class TextManifest(msgspec.Struct, frozen=True):
    """All indexes of a branch, and the commit up to which their tails are complete."""

    format: int
    owner: str
    """Whose texts they are."""
    position: Position
    schema: str
    indexes: tuple[IndexRecord, ...] = ()


def make_manifest(
    owner: str, position: Position, schema: str, indexes: tuple[IndexRecord, ...]
) -> TextManifest:
    """A manifest in the present format."""
    return TextManifest(_FORMAT, owner, position, schema, indexes)


def read_manifest(folder: Path) -> TextManifest | None:
    """What a folder says of itself; None where it says nothing that can be relied on."""
    try:
        digest, _, body = (folder / MANIFEST).read_bytes().partition(b"\n")
    except OSError:
        return None
    if sha256(body).hexdigest().encode() != digest:
        return None
    with suppress(msgspec.MsgspecError):
        found = msgspec.json.decode(body, type=TextManifest)
        return found if found.format == _FORMAT else None
    return None


def write_manifest(folder: Path, manifest: TextManifest) -> None:
    """Replace it, durably."""
    body = msgspec.json.encode(manifest)
    with storage_errors("write the position of the text index"):
        private_folder(folder)
        replace_file(folder / MANIFEST, sha256(body).hexdigest().encode() + b"\n" + body)


def operations_of(folder: Path) -> int:
    """How many operations an index has seen; they only grow. 0 where that can't be read."""
    try:
        return msgspec.json.decode((folder / _SEGMENTS).read_bytes(), type=_Segments).opstamp
    except (OSError, msgspec.MsgspecError):
        return 0


def link_index(source: Path, target: Path, *, symbolic: bool = False) -> None:
    """Make a second index of the same files, which are never changed, only replaced."""
    with storage_errors("copy a text index"):
        shutil.rmtree(target, ignore_errors=True)
        private_folder(target)
        for path in source.iterdir():
            if path.suffix == ".lock":
                continue
            if symbolic:
                (target / path.name).symlink_to(path.resolve())
            else:
                (target / path.name).hardlink_to(path)
        sync_folder(target)
