"""Examine a graph and its machine without changing anything."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trails.engine.graph.activities import examine_refusals
from trails.engine.graph.changes import describe_changes
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.history.branches import list_branches
from trails.log.archives import ARCHIVES_FOLDER
from trails.log.storage import files_below
from trails.model.history import Position
from trails.model.names import branch_folder
from trails.model.texts import count
from trails.model.types import Schema
from trails.model.upkeep import Finding

_LIBRARIES = ("pyoxigraph", "msgspec", "google-re2", "backports.zstd")
_LOW_DISK = 200 * 1024 * 1024
_LATELY = 10_000
"""How many activities are read."""


def examine_machine() -> Iterator[Finding]:
    """The libraries this process runs on."""
    found = [f"SQLite {sqlite3.sqlite_version}"]
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    yield Finding("libraries", "ok", ", ".join(found))


def examine(graph: Graph, declared: Schema | None) -> Iterator[Finding]:
    """One graph: its log, its views, its types, its disk."""
    checkout, head = graph.main, graph.main.head
    where = f"commit {head.commit[:12]}" if head.commit else "no commit yet"
    yield examine_log(graph, f"{count(head.seq, 'commit')}, at {where}")
    for view in graph.views:
        name, position = view.name, view.position(checkout) or Position(0, "")
        # A served graph is written at the same time, so its views may be ahead.
        if head.seq <= position.seq <= graph.log_head(MAIN).seq:
            yield Finding(name, "ok", f"at commit {position.seq}")
        else:
            yield Finding(
                name,
                "problem",
                f"at commit {position.seq}, the log is at {head.seq}",
                "free disk space and open the project again; views catch up by themselves",
            )
    yield _examine_schema(graph, declared)
    with graph.file.reader() as db:
        counts = {
            each.name: checkout.nodes.live(db, (each.name,)) for each in checkout.schema.types
        }
    detail = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    yield Finding("instances", "ok", detail or "none yet")
    yield _examine_branches(graph)
    yield _examine_activities(graph)
    yield from examine_refusals(graph.activities.newest(_LATELY, archived=False))
    if graph.folder is not None:
        free = shutil.disk_usage(graph.folder).free
        left = f"{free // 2**20:,} MiB free"
        if free > _LOW_DISK:
            yield Finding("disk", "ok", left)
        else:
            fix = "free some space; writes are refused when there is none"
            yield Finding("disk", "problem", left, fix)


def examine_log(graph: Graph, detail: str) -> Finding:
    """Whether the log is complete and writable."""
    held = graph.read_only
    if held is None:
        return Finding("log", "ok", detail)
    if held.cause == "behind":
        return Finding("log", "problem", held.reason, "trails recover")
    return Finding("log", "note" if held.cause == "requested" else "problem", held.reason)


def _examine_branches(graph: Graph) -> Finding:
    names = [each.name for each in list_branches(graph).branches]
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    detail = f"{len(names)} ({shown})"
    if graph.folder is not None:
        own = {folder: _own_bytes(graph.folder, folder) for folder in ("branches", "snapshots")}
        used = " and ".join(f"{folder} {size / 2**20:,.1f} MiB" for folder, size in own.items())
        detail += f"; in addition to main, {used} of disk"
    return Finding("branches", "ok", detail)


def _own_bytes(graph: Path, folder: str) -> int:
    """Bytes of files below a folder that main does not share; hard links count once."""
    main = graph / "branches" / branch_folder(MAIN)
    seen = {facts.st_ino for _, facts in files_below(main)}
    total = 0
    for path, facts in files_below(graph / folder):
        if facts.st_ino not in seen and not path.is_relative_to(main):
            seen.add(facts.st_ino)
            total += facts.st_blocks * 512
    return total


def _examine_activities(graph: Graph) -> Finding:
    """How many activities were archived, and whether the files are there."""
    archives = graph.log.archives()
    if not archives:
        return Finding("activities", "ok", "none archived")
    folder = None if graph.folder is None else graph.folder / ARCHIVES_FOLDER
    missing = [each.name for each in archives if folder and not (folder / each.name).is_file()]
    archived = sum(each.count for each in archives)
    detail = (
        f"{archived:,} archived in {count(len(archives), 'file')} of {ARCHIVES_FOLDER}/, up to "
        f"{archives[-1].newest}"
    )
    if not missing:
        return Finding("activities", "ok", detail)
    problem = f"{detail}; missing: {', '.join(missing[:5])}"
    return Finding("activities", "problem", problem, "put the files back from a backup")


def _examine_schema(graph: Graph, declared: Schema | None) -> Finding:
    if declared is None:
        return Finding(
            "types", "note", f"{len(graph.main.schema.types)} stored; none declared here"
        )
    changes = describe_changes(graph.main.schema, declared)
    if changes and not graph.main.head.seq:
        return Finding(
            "types",
            "note",
            f"{len(declared.types)} declared, none stored yet",
            "the first use of the project stores them",
        )
    if changes:
        return Finding(
            "types",
            "problem",
            "declared and stored types differ: " + "; ".join(changes[:10]),
            "in development the next start applies what fits the data, in production one with "
            "apply_schema=True; what does not fit has to be corrected in the declarations",
        )
    return Finding("types", "ok", f"{len(declared.types)} declared, as stored")
