"""Put restored graphs in their place, all of them or none, whatever happens meanwhile.

Everything is prepared in ``.trails/restoring``. Writing the plan there is the moment that
counts: without one, the next start removes what was prepared; with one, it finishes the restore.
So after a kill or a power cut the project has its old data or the restored data, never neither.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import CorruptionError
from trails.files import create_file, make_folder, sync_folder
from trails.log.storage import storage_errors

GRAPHS: Final = "graphs"
_HOME: Final = "restoring"
_PLAN: Final = "plan.json"


class _Plan(msgspec.Struct, frozen=True):
    stamp: str
    """In the names of the folders that data is moved aside to."""
    graphs: tuple[str, ...]


def prepare_restore(data: Path) -> Path:
    """An empty folder in which each graph of a restore gets a folder with its name."""
    home = data / _HOME
    discard_restore(data)
    make_folder(home)
    return home


def discard_restore(data: Path) -> None:
    """Remove what was prepared."""
    shutil.rmtree(data / _HOME, ignore_errors=True)


def commit_restore(
    data: Path, graphs: Sequence[str], stamp: str, tell: Callable[[str], None]
) -> dict[str, Path | None]:
    """Put prepared graphs in their place; by graph, where its old data was moved to."""
    home = data / _HOME
    with storage_errors("restore the backup"):
        sync_folder(home)
        create_file(home / _PLAN, msgspec.json.encode(_Plan(stamp, tuple(graphs))))
    return finish_restore(data, tell)


def finish_restore(data: Path, tell: Callable[[str], None]) -> dict[str, Path | None]:
    """Carry out the plan of a restore, also of one that was interrupted."""
    home = data / _HOME
    if not home.exists():
        return {}
    plan = _read_plan(home / _PLAN)
    if plan is None:
        discard_restore(data)
        return {}
    tell(f"putting restored data in place: {', '.join(plan.graphs)}")
    with storage_errors("restore the backup"):
        make_folder(data / GRAPHS)
        done = {name: _put(home / name, data / GRAPHS / name, plan.stamp) for name in plan.graphs}
        (home / _PLAN).unlink()
        sync_folder(home)
        discard_restore(data)
        sync_folder(data)
    return done


def _put(fresh: Path, place: Path, stamp: str) -> Path | None:
    """Move a graph to its place, unless that was done before; where the old data is."""
    aside = place.with_name(f"{place.name}.replaced-{stamp}")
    if fresh.exists():
        if place.exists():
            place.rename(aside)
            sync_folder(place.parent)
        fresh.rename(place)
        sync_folder(place.parent)
        sync_folder(fresh.parent)
    if aside.exists() and not any(aside.iterdir()):
        aside.rmdir()
    return aside if aside.exists() else None


def _read_plan(path: Path) -> _Plan | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Plan)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CorruptionError(
            f"a restore was interrupted, and {path} can't be read. The restored graphs are in "
            f"{path.parent} or already in {path.parent.parent / GRAPHS}, and the data from before "
            "is there too, as <graph> or <graph>.replaced-<time>. Delete the file to keep what "
            f"is in {GRAPHS}, then restore the backup again with --force"
        ) from None
