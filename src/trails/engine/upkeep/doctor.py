"""Examine a graph and its machine without changing anything."""

from __future__ import annotations

import platform
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trails.engine.graph.activities import examine_refusals
from trails.engine.graph.changes import describe_changes
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.history.branches import list_branches
from trails.engine.upkeep.verify import check_newest
from trails.log.archives import ARCHIVES_FOLDER
from trails.log.storage import files_below
from trails.model.history import Position
from trails.model.names import INTERNAL_BRANCH, branch_folder
from trails.model.texts import count
from trails.model.types import Schema
from trails.model.upkeep import Finding, flag, passed

_LIBRARIES = ("trails", "pyoxigraph", "msgspec", "google-re2", "backports.zstd")
_LOW_DISK = 200 * 1024 * 1024
_LATELY = 10_000
"""How many activities are read."""


def examine_machine() -> Iterator[Finding]:
    """The libraries this process runs on."""
    found = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    yield passed("libraries", ", ".join(found))


def examine(graph: Graph, declared: Schema | None) -> Iterator[Finding]:
    """One graph: its log, its views, its types, its disk."""
    checkout, head = graph.main, graph.main.head
    at = f"commit {head.commit[:12]}" if head.commit else "no commit yet"
    yield examine_log(graph, f"{count(head.seq, 'commit')}, at {at}")
    yield check_newest(graph)
    for view in graph.views:
        name, position = view.name, view.position(checkout) or Position(0, "")
        # A served graph is written at the same time, so its views may be ahead.
        if head.seq <= position.seq <= graph.log_head(MAIN).seq:
            yield passed(name, f"at commit {position.seq}")
        else:
            yield flag(
                "view_behind",
                f"at commit {position.seq}, the log is at {head.seq}",
                "free disk space and open the project again; views catch up by themselves",
                where=name,
                name=name,
            )
    with graph.file.reader() as db:
        counts = {
            each.name: checkout.nodes.live(db, (each.name,)) for each in checkout.schema.types
        }
    yield from _examine_schema(graph, declared, counts)
    detail = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    yield passed("instances", detail or "none yet")
    yield _examine_branches(graph)
    yield _examine_activities(graph)
    yield from examine_refusals(graph.activities.newest(_LATELY, archived=False))
    if graph.folder is not None:
        free = shutil.disk_usage(graph.folder).free
        left = f"{free // 2**20:,} MiB free"
        if free > _LOW_DISK:
            yield passed("disk", left)
        else:
            fix = "free some space; writes are refused when there is none"
            yield flag("disk_low", left, fix, where=str(graph.folder))


def examine_log(graph: Graph, detail: str) -> Finding:
    """Whether the log is complete and writable."""
    held = graph.read_only
    if held is None:
        return passed("log", detail)
    if held.cause == "behind":
        return flag("log_behind", held.reason, "trails recover")
    if held.cause in {"requested", "types"}:
        return flag("log_read_only", held.reason)
    return flag("log_unwritable", held.reason, "make the disk writable and open the project again")


def _examine_branches(graph: Graph) -> Finding:
    names = [each.name for each in list_branches(graph).branches]
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    detail = f"{len(names)} ({shown})"
    if graph.folder is not None:
        own = {folder: _own_bytes(graph.folder, folder) for folder in ("branches", "snapshots")}
        used = " and ".join(f"{folder} {size / 2**20:,.1f} MiB" for folder, size in own.items())
        detail += f"; in addition to main, {used} of disk"
    return passed("branches", detail)


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
        return passed("activities", "none archived")
    missing = graph.log.missing_archives()
    archived = sum(each.count for each in archives)
    detail = (
        f"{archived:,} archived in {count(len(archives), 'file')} of {ARCHIVES_FOLDER}/, up to "
        f"{archives[-1].newest}"
    )
    if not missing:
        return passed("activities", detail)
    problem = f"{detail}; missing: {', '.join(missing[:5])}"
    return flag("archives_missing", problem, "put the files back from a backup")


def _examine_own_types(graph: Graph) -> Iterator[Finding]:
    """Branches whose types differ from those of main, which a merge brings together."""
    main = graph.main.schema
    for name, head in sorted(graph.log.branches().items()):
        if name[:1] != INTERNAL_BRANCH and name != MAIN and head.schema != main.digest:
            changes = describe_changes(main, graph.compiled(head.schema).schema)
            detail = f"branch {name} has other types than main: {'; '.join(changes[:5])}"
            yield flag("branch_types", detail, f"merge {name}, or delete it", where=name)


def _examine_schema(
    graph: Graph, declared: Schema | None, counts: Mapping[str, int]
) -> Iterator[Finding]:
    """Whether stored types are those declared, and instances have a type that is."""
    stored = graph.main.schema
    if declared is None:
        detail = f"{len(stored.types)} stored; none declared here"
        yield flag("types_stored_only", detail)
        return
    changes = describe_changes(stored, declared)
    if not changes:
        yield passed("types", f"{len(declared.types)} declared, as stored")
    elif not graph.main.head.seq:
        detail = f"{len(declared.types)} declared, none stored yet"
        yield flag("types_new", detail, "the first use of the project stores them")
    else:
        yield flag(
            "types_pending",
            "declared and stored types differ: " + "; ".join(changes[:10]),
            "in development the next start applies what fits the data, in production one with "
            "apply_schema=True; 'trails schema diff main files' lists the steps, and what does not "
            "fit needs one that says what becomes of the data (trails schema apply)",
        )
    yield from _examine_own_types(graph)
    for name, number in counts.items():
        if number and name not in declared.by_name:
            yield flag(
                "type_undeclared",
                f"{count(number, 'instance')} of {name}, which is not declared",
                "declare the type again, or delete its instances before the type goes",
                where=name,
            )
