"""Put prepared graphs in the place of others, all of them or none, whatever happens meanwhile.

A restore or a recovery prepares whole folders in ``.trails/prepared``. Writing the plan there is
the moment that counts: without one, the next start removes what was prepared; with one, it
carries the plan out. So after a kill or a power cut each graph has its old data or the new data,
never neither.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from trails.errors import CorruptionError
from trails.files import make_folder, replace_file, sync_folder, sync_tree
from trails.log.storage import storage_errors

GRAPHS: Final = "graphs"
_HOME: Final = "prepared"
_PLAN: Final = "plan.json"


class _Plan(msgspec.Struct, frozen=True):
    graphs: tuple[str, ...]
    kept: str
    """What the names of the folders end with to which old data is moved."""


def prepare_graphs(data: Path) -> Path:
    """An empty folder in which each graph that is prepared gets a folder with its name."""
    discard_prepared(data)
    make_folder(data / _HOME)
    return data / _HOME


def discard_prepared(data: Path) -> None:
    """Remove what was prepared."""
    shutil.rmtree(data / _HOME, ignore_errors=True)


def put_in_place(
    data: Path,
    graphs: Sequence[str],
    kept: Literal["replaced", "damaged"],
    stamp: str,
    tell: Callable[[str], None],
) -> dict[str, Path | None]:
    """Let prepared graphs take their places; by graph, where its old data was moved to."""
    home = data / _HOME
    with storage_errors("put graphs in place"):
        sync_tree(home)
        plan = _Plan(tuple(graphs), f"{kept}-{stamp}")
        replace_file(home / _PLAN, msgspec.json.encode(plan))
    return finish_replacement(data, tell)


def finish_replacement(data: Path, tell: Callable[[str], None]) -> dict[str, Path | None]:
    """Carry out the plan that there is, also one that was interrupted."""
    home = data / _HOME
    if not home.exists():
        return {}
    plan = _read_plan(home / _PLAN)
    if plan is None:
        discard_prepared(data)
        return {}
    tell(f"putting prepared data in place: {', '.join(plan.graphs)}")
    with storage_errors("put graphs in place"):
        make_folder(data / GRAPHS)
        done = {name: _put(home / name, data / GRAPHS / name, plan.kept) for name in plan.graphs}
        (home / _PLAN).unlink()
        sync_folder(home)
        discard_prepared(data)
        sync_folder(data)
    return done


def _put(fresh: Path, place: Path, kept: str) -> Path | None:
    """Move a graph to its place, unless that was done before; where the old data is."""
    aside = place.with_name(f"{place.name}.{kept}")
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
            f"a restore or recovery was interrupted, and {path} can't be read. The prepared graphs "
            f"are in {path.parent} or already in {path.parent.parent / GRAPHS}, and the data from "
            "before is there too, as <graph>, <graph>.replaced-<time> or <graph>.damaged-<time>. "
            f"Delete the file to keep what is in {GRAPHS}, then run the command again"
        ) from None
