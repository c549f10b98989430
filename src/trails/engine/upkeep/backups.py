"""Back up a graph to a set of numbered folders, and put prepared graphs in place.

Each folder has what is new since the one before. A file of a set is final once it has its name,
so another machine can copy the set at any time. A manifest has the digests of its files, of the
previous manifest and of itself, so that missing, short and changed files are found and named.

A restore or a recovery prepares whole folders in ``.trails/prepared`` and then writes a plan. At
the next start, prepared folders without a plan are removed, and a plan is carried out. So after a
crash each graph has its old data or its new data, never neither.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from trails.engine.graph.graph import now
from trails.errors import CorruptionError, StorageError
from trails.files import (
    copy_file,
    create_file,
    digest_file,
    make_folder,
    replace_file,
    sync_folder,
    sync_tree,
)
from trails.imports import later
from trails.log.blobs import BLOBS, BlobStore, blob_files
from trails.log.protocol import Header, Log
from trails.log.storage import EXTRACT, LOG_FILE, storage_errors
from trails.model.upkeep import BackupFile, Manifest

if TYPE_CHECKING:
    from trails.log import extracts
    from trails.log.extracts import Extract
else:
    extracts = later("trails.log.extracts")

MANIFEST: Final = "manifest.json"
_FORMAT: Final = 2
_NUMBERED: Final = re.compile("[0-9]{6}")
_PARTIAL: Final = ".partial"
_replace = msgspec.structs.replace
_T = TypeVar("_T")


class BackupPart(msgspec.Struct, frozen=True):
    """One backup of a set: its folder and its manifest."""

    folder: Path
    manifest: Manifest
    log: str = EXTRACT
    """The file with rows of the log."""


class _FirstManifest(msgspec.Struct, frozen=True):
    """The manifest of backup format 1: one folder with a copy of the whole log."""

    format: int
    graph: str
    base_iri: str
    made: str
    heads: dict[str, str]
    files: dict[str, str]


# --- making --------------------------------------------------------------------------------


def back_up(
    log: Log, folder: Path, progress: Callable[[str], None], blobs: Path | None = None
) -> Manifest | None:
    """Add what is new in the log to a graph's set; None if nothing is.

    The first backup of a set is whole. Writers do not wait for it. ``blobs``: the folder of blobs.
    """
    with storage_errors("write the backup"):
        make_folder(folder)
        with _alone(folder):
            parts = read_parts(folder) if any(folder.iterdir()) else []
            _check_continues(log, folder, parts)
            for debris in folder.glob(f".*{_PARTIAL}"):
                shutil.rmtree(debris)
            number = len(parts) + 1
            partial = folder / f".{number:06}{_PARTIAL}"
            progress(f"copying the log of {log.header.graph}")
            try:
                return _write(log, partial, parts, blobs)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise


def _write(
    log: Log, partial: Path, parts: Sequence[BackupPart], blobs: Path | None
) -> Manifest | None:
    last = parts[-1].manifest if parts else None
    known = {name for part in parts for name in part.manifest.files}
    copied = log.copy_new(partial, {} if last is None else last.ends, known)
    if last is not None and (copied.ends, copied.heads) == (last.ends, last.heads):
        shutil.rmtree(partial)
        return None
    # After the log: a blob has its place before the commit that names it.
    for path in () if blobs is None else blob_files(blobs):
        name = f"{BLOBS}/{path.parent.name}/{path.name}"
        if name not in known:
            make_folder((partial / name).parent)
            copy_file(path, partial / name)
    manifest = _describe(log.header, partial, last, copied)
    create_file(partial / MANIFEST, _render(manifest))
    sync_tree(partial)
    partial.rename(partial.with_name(f"{manifest.number:06}"))
    sync_folder(partial.parent)
    return manifest


def _describe(header: Header, partial: Path, last: Manifest | None, copied: Extract) -> Manifest:
    files = sorted(each for each in partial.rglob("*") if each.is_file())
    manifest = Manifest(
        format=_FORMAT,
        graph=header.graph,
        base_iri=header.base_iri,
        created=header.created,
        made=now(),
        number=1 if last is None else last.number + 1,
        previous="" if last is None else last.digest,
        seq=copied.seq,
        commit=copied.commit,
        heads=copied.heads,
        ends=copied.ends,
        files={
            str(each.relative_to(partial)): BackupFile(each.stat().st_size, digest_file(each))
            for each in files
        },
    )
    return _replace(manifest, digest=_digest(manifest))


def _check_continues(log: Log, folder: Path, parts: Sequence[BackupPart]) -> None:
    """Refuse a set whose last commit is not in the log: a set has one history."""
    if not parts:
        return
    last, header = parts[-1].manifest, log.header
    if last.format != _FORMAT:
        raise StorageError(
            f"{folder} holds a backup of format {last.format}, to which nothing can be added; give "
            "a folder that does not exist yet"
        )
    same = (last.graph, last.base_iri, last.created) == (
        header.graph,
        header.base_iri,
        header.created,
    )
    found = log.at(last.seq) if last.seq else None
    if not same or (last.seq and (found is None or found.id != last.commit)):
        raise StorageError(
            f"{folder} holds backups of another history: graph {last.graph!r} at commit "
            f"{last.commit or 'none'}, which is not in the log of {header.graph!r} here. After a "
            "restore to an earlier commit, back up to a folder that does not exist yet. Without "
            "one, the log has lost commits that this backup has: run 'trails verify'"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a set, so that one process at a time adds to it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"another backup is being written to {folder}; try again when it has ended"
            ) from None
        yield
    finally:
        os.close(descriptor)


# --- reading -------------------------------------------------------------------------------


def read_parts(folder: Path) -> list[BackupPart]:
    """The backups of a graph's set in order, checked to be complete and consecutive.

    Files are looked for and measured; :func:`check_digests` reads them.
    """
    if (folder / MANIFEST).exists():
        return [_read_first_format(folder)]
    numbers = sorted(int(each.name) for each in folder.iterdir() if _NUMBERED.fullmatch(each.name))
    if not numbers:
        raise StorageError(f"{folder} is not a backup: it has no folder 000001 with a {MANIFEST}")
    parts: list[BackupPart] = []
    for expected, number in enumerate(numbers, 1):
        if number != expected:
            raise CorruptionError(
                f"the backup is incomplete: {folder / f'{expected:06}'} is missing, and "
                f"{number:06} is there; copy the whole set again"
            )
        parts.append(_read_part(folder / f"{number:06}", parts))
    return parts


def _read_part(folder: Path, before: Sequence[BackupPart]) -> BackupPart:
    path = folder / MANIFEST
    manifest = _decode(path, Manifest)
    if manifest.format != _FORMAT:
        raise _unknown_format(folder, manifest.format)
    if _render(manifest) != path.read_bytes() or manifest.digest != _digest(manifest):
        raise CorruptionError(f"the backup is damaged: {path} was changed after it was written")
    previous = before[-1].manifest if before else None
    follows = manifest.number == len(before) + 1 and (
        manifest.previous == ""
        if previous is None
        else (manifest.previous, manifest.graph) == (previous.digest, previous.graph)
    )
    if not follows:
        raise CorruptionError(
            f"{folder} does not follow the backup before it; the folder mixes files of several sets"
        )
    for name, wanted in manifest.files.items():
        file = _inside(folder, name)
        if not file.is_file():
            raise CorruptionError(f"the backup is incomplete: {file} is missing; copy it again")
        if file.stat().st_size != wanted.bytes:
            raise CorruptionError(
                f"the backup is damaged: {file} has {file.stat().st_size:,} bytes and not "
                f"{wanted.bytes:,}; copy it again"
            )
    return BackupPart(folder, manifest)


def _read_first_format(folder: Path) -> BackupPart:
    found = _decode(folder / MANIFEST, _FirstManifest)
    if found.format != 1:
        raise _unknown_format(folder, found.format)
    files = {}
    for name, digest in found.files.items():
        file = _inside(folder, name)
        if not file.is_file():
            raise CorruptionError(f"the backup is incomplete: {file} is missing; copy it again")
        files[name] = BackupFile(file.stat().st_size, digest)
    manifest = Manifest(
        1, found.graph, found.base_iri, "", found.made, 1, "", 0, "", found.heads, {}, files
    )
    return BackupPart(folder, manifest, LOG_FILE)


def _decode(path: Path, wanted: type[_T]) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=wanted)
    except FileNotFoundError:
        raise CorruptionError(
            f"the backup is incomplete: {path} is missing; copy the whole set again"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptionError(f"the backup is damaged: {path} can't be read ({error})") from None


def _unknown_format(folder: Path, found: int) -> StorageError:
    return StorageError(
        f"{folder} has backup format {found}; this version of Trails reads formats 1 and {_FORMAT}"
    )


def _inside(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise CorruptionError(f"the manifest of {folder} names {name!r}, which is outside of it")
    return file


def check_digests(parts: Sequence[BackupPart], progress: Callable[[str], None]) -> None:
    """Read every file of a set and compare its digest."""
    for part in parts:
        progress(f"comparing the digests of {part.folder}")
        for name, wanted in part.manifest.files.items():
            if digest_file(part.folder / name) != wanted.sha256:
                raise CorruptionError(
                    f"the backup is damaged: {part.folder / name} was changed after it was "
                    "written; copy it again"
                )


# --- putting back ----------------------------------------------------------------------------


def rebuild(parts: Sequence[BackupPart], folder: Path, at: str | None = None) -> None:
    """Rebuild the folder of a graph from its set, synced to disk."""
    with storage_errors("restore the backup"):
        make_folder(folder)
        path = folder / LOG_FILE
        extracts.assemble([part.folder / part.log for part in parts], path, at)
        wanted = set(extracts.named_files(path))
        for part in parts:
            for name in part.manifest.files:
                if name in wanted or name.startswith(f"{BLOBS}/"):
                    make_folder((folder / name).parent)
                    copy_file(part.folder / name, folder / name)
        if at is not None:
            BlobStore(folder / BLOBS, lambda: None).doubt()
        sync_tree(folder)


def _digest(manifest: Manifest) -> str:
    plain = msgspec.json.encode(_replace(manifest, digest=""), order="sorted")
    return sha256(plain).hexdigest()


def _render(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted")) + b"\n"


GRAPHS: Final = "graphs"
WEBHOOKS: Final = "webhooks"
"""In the folder of a graph: the positions of its webhooks."""
_HOME: Final = "prepared"
_PLAN: Final = "plan.json"


class _Plan(msgspec.Struct, frozen=True):
    graphs: tuple[str, ...]
    kept: str
    """The suffix of the folders that keep the old data."""


def prepare_graphs(data: Path) -> Path:
    """An empty folder for prepared graphs, each in a folder of its name."""
    discard_prepared(data)
    make_folder(data / _HOME)
    return data / _HOME


def discard_prepared(data: Path) -> None:
    """Remove the prepared graphs."""
    shutil.rmtree(data / _HOME, ignore_errors=True)


def put_in_place(
    data: Path,
    graphs: Sequence[str],
    kept: Literal["replaced", "damaged"],
    stamp: str,
    progress: Callable[[str], None],
) -> dict[str, Path | None]:
    """Put prepared graphs in place; return graph → folder of its old data."""
    home = data / _HOME
    with storage_errors("put graphs in place"):
        sync_tree(home)
        plan = _Plan(tuple(graphs), f"{kept}-{stamp}")
        replace_file(home / _PLAN, msgspec.json.encode(plan))
    return finish_replacement(data, progress)


def finish_replacement(data: Path, progress: Callable[[str], None]) -> dict[str, Path | None]:
    """Carry out a plan, also one that was interrupted."""
    home = data / _HOME
    if not home.exists():
        return {}
    plan = _read_plan(home / _PLAN)
    if plan is None:
        discard_prepared(data)
        return {}
    progress(f"putting prepared data in place: {', '.join(plan.graphs)}")
    with storage_errors("put graphs in place"):
        make_folder(data / GRAPHS)
        done = {name: _put(home / name, data / GRAPHS / name, plan.kept) for name in plan.graphs}
        (home / _PLAN).unlink()
        sync_folder(home)
        discard_prepared(data)
        sync_folder(data)
    return done


def _put(fresh: Path, place: Path, kept: str) -> Path | None:
    """Move a graph in place unless that was done before; return the old data's folder."""
    aside = place.with_name(f"{place.name}.{kept}")
    if fresh.exists():
        if place.exists():
            _keep_webhooks(place, fresh)
            place.rename(aside)
            sync_folder(place.parent)
        fresh.rename(place)
        sync_folder(place.parent)
        sync_folder(fresh.parent)
    if aside.exists() and not any(aside.iterdir()):
        aside.rmdir()
    return aside if aside.exists() else None


def _keep_webhooks(old: Path, fresh: Path) -> None:
    """Let webhooks continue where they were: what they have delivered is not in a log."""
    if (old / WEBHOOKS).is_dir():
        shutil.copytree(old / WEBHOOKS, fresh / WEBHOOKS, dirs_exist_ok=True)
        sync_tree(fresh / WEBHOOKS)
        sync_folder(fresh)


def _read_plan(path: Path) -> _Plan | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Plan)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CorruptionError(
            f"a restore or recovery was interrupted, and {path} can't be read. The prepared graphs "
            f"are in {path.parent} or already in {path.parent.parent / GRAPHS}, and the data from "
            "before is there too, as <graph>, <graph>.replaced-<time> or <graph>.damaged-<time>. "
            f"Delete the file to keep what is in {GRAPHS}, then run the command again"
        ) from None
