"""Prove a graph: every digest of the log, and views that equal a fresh fold of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import IO, Final

from trails.engine.graph import MAIN, Graph
from trails.errors import CorruptionError, StorageError
from trails.log.payloads import payload_digest
from trails.model.digests import digest_of
from trails.model.history import GENESIS, Commit, Draft, Position, chain_digest, commit_id
from trails.model.reports import Finding
from trails.model.wording import count
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import ROOT
from trails.views.quads import QuadsView

_SHOWN = 5
LOG_FILE: Final = "log file"
CHAIN: Final = "commit chain"
NODES: Final = "node index"
QUADS: Final = "quads view"


def verify(graph: Graph, progress: Callable[[str], None]) -> Iterator[Finding]:
    """Check the log from its first commit, then both views."""
    progress("checking the log's file")
    pages = graph.log.check()
    yield _finding(LOG_FILE, "sound", pages, "restore the log from a backup")
    broken = list(_check_commits(graph, progress))
    total = graph.log.last_seq()
    sound = f"{count(total, 'commit')}, every digest right"
    yield _finding(CHAIN, sound, broken, "restore from a backup")
    yield _check_activities(graph)
    if graph.loss is not None:
        yield Finding("lost commits", "problem", graph.loss.describe(graph.name), "trails recover")
    if pages or broken or graph.loss is not None:
        return
    progress("folding the log again to compare the views")
    with tempfile.TemporaryDirectory(prefix="trails-verify-", dir=graph.temporary()) as folder:
        yield _readable(NODES, lambda: _check_nodes(graph, Path(folder) / "nodes.db"))
        yield _readable(QUADS, lambda: _check_quads(graph, Path(folder) / "quads"))


def verify_and_repair(graph: Graph, progress: Callable[[str], None]) -> tuple[Finding, ...]:
    """Check a graph, make its views anew where they differ from the log, and check again.

    A damaged log is no source for views: then nothing is touched.
    """
    found = tuple(verify(graph, progress))
    wrong = {each.name for each in found if each.status == "problem"}
    if wrong & {LOG_FILE, CHAIN}:
        detail = "not attempted, because views are made from the log; nothing was changed"
        return (*found, Finding("repair", "problem", detail, "restore the log from a backup"))
    if not wrong & {NODES, QUADS}:
        return found
    progress("making the views anew from the log")
    try:
        graph.rebuild()
    except StorageError as error:
        return (*found, Finding("repair", "problem", error.message))
    return tuple(verify(graph, progress))


def _readable(name: str, check: Callable[[], Finding]) -> Finding:
    """What a check finds; that a view can't be read is a finding, too."""
    try:
        return check()
    except CorruptionError as error:
        return Finding(name, "problem", error.message, "trails verify --repair")


def _check_activities(graph: Graph) -> Finding:
    archives = graph.log.archives()
    archived = count(sum(each.count for each in archives), "activity", "activities")
    sound = f"{archived} archived in {count(len(archives), 'file')}, every digest right"
    problems = graph.log.check_archives()
    return _finding("activities", sound, problems, "put the files back from a backup")


def _finding(name: str, sound: str, problems: list[str], fix: str) -> Finding:
    if not problems:
        return Finding(name, "ok", sound)
    more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
    return Finding(name, "problem", "; ".join(problems[:_SHOWN]) + more, fix)


def _check_commits(graph: Graph, progress: Callable[[str], None]) -> Iterator[str]:
    digests: dict[str, str] = {}
    commits: list[tuple[int, str, str]] = []
    previous = 0
    for commit in graph.log.commits():
        if commit.seq != previous + 1:
            yield f"commit {commit.seq} follows {previous}"
        previous = commit.seq
        if not commit.seq % 5000:
            progress(f"checked {commit.seq} commits")
        yield from _check_commit(graph, commit, digests)
        digests[commit.id] = commit.digest
        commits.append((commit.seq, commit.branch, commit.id))
    yield from _check_heads(graph, commits)


def _check_heads(graph: Graph, commits: list[tuple[int, str, str]]) -> Iterator[str]:
    """Branch heads are what commits and moves, in the order in which they happened, made them."""
    heads: dict[str, str] = {}
    waiting = list(graph.log.moves())
    for seq, branch, identifier in [*commits, (2**62, "", "")]:
        while waiting and waiting[0].after < seq:
            move = waiting.pop(0)
            if heads.get(move.branch, GENESIS) != move.before:
                yield f"branch {move.branch} was not at {move.before} when it was changed"
            if move.action == "delete":
                heads.pop(move.branch, None)
            else:
                heads[move.branch] = move.commit
        if branch:
            heads[branch] = identifier
    stored = {name: head.commit for name, head in graph.log.branches().items()}
    for branch in sorted({*heads, *stored}):
        if heads.get(branch) != stored.get(branch):
            yield (
                f"branch {branch} points at {stored.get(branch)}, but its history ends at "
                f"{heads.get(branch)}"
            )


def _check_commit(graph: Graph, commit: Commit, digests: dict[str, str]) -> Iterator[str]:
    try:
        with graph.log.open_removed(commit) as removed, graph.log.open_added(commit) as added:
            (gone, gone_count), (come, come_count) = _digest(removed), _digest(added)
    except Exception as error:  # noqa: BLE001 - whatever can't be read is the finding
        yield f"commit {commit.id}: its statements can't be read ({error})"
        return
    if payload_digest(gone, come) != commit.payload:
        yield f"commit {commit.id}: its statements are not those that were committed"
    if (gone_count, come_count) != (commit.removed, commit.added):
        yield f"commit {commit.id}: it has another number of statements than it says"
    missing = [parent for parent in commit.parents if parent not in digests]
    if missing:
        yield f"commit {commit.id}: its parent {missing[0]} does not come before it"
        return
    draft = Draft(
        commit.branch,
        commit.actor,
        commit.time,
        commit.schema,
        commit.message,
        commit.activity,
        commit.idempotency_key,
        commit.nonce,
    )
    digest = chain_digest(
        tuple(digests[parent] for parent in commit.parents),
        draft,
        commit.payload,
        f"{commit.removed} {commit.added}",
    )
    if digest != commit.digest or commit_id(digest) != commit.id:
        yield f"commit {commit.id}: its digest does not follow from its content"
    schema = graph.log.schema(commit.schema)
    if schema is None or digest_of(schema) != commit.schema:
        yield f"commit {commit.id}: its schema {commit.schema[:12]} is missing or changed"


def _digest(stream: IO[bytes]) -> tuple[str, int]:
    digest, lines = sha256(), 0
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
        lines += chunk.count(b"\n")
    return digest.hexdigest(), lines


def _check_nodes(graph: Graph, path: Path) -> Finding:
    """Fold ``main`` from its first commit, then each branch from there, and compare."""
    fresh = NodeFile(path, lambda digest: graph.compiled(digest).schema)
    rows, problems = 0, []
    try:
        with fresh.transaction():
            fresh.layers.point(fresh.db, MAIN, ROOT)
        for name in sorted(graph.log.branches(), key=lambda name: (name != MAIN, name)):
            seen, differing = _compare_nodes(graph, fresh, name)
            rows += seen
            if differing:
                problems.append(f"{differing} of {seen} rows of {name} differ from the log")
    finally:
        fresh.close()
    return _finding(NODES, f"{rows} rows, as the log says", problems, "trails verify --repair")


def _compare_nodes(graph: Graph, fresh: NodeFile, name: str) -> tuple[int, int]:
    """(rows, how many differ) of a branch and the same branch folded anew."""
    head = graph.log_head(name)
    nodes = NodeIndex(fresh, name)
    start = NodeIndex(fresh, MAIN).position.commit
    with fresh.step():
        if name != MAIN:
            fresh.layers.stand(fresh.db, name, fresh.layers.refs[MAIN])
            nodes.follow(graph.compiled(graph.log_head(MAIN).schema).schema)
        graph.folding.walk_nodes(nodes, graph.ancestry.path(start, head.commit))
        nodes.commit(Position(head.seq, head.commit))
    nodes.follow(graph.compiled(head.schema).schema)
    rows, differing = 0, 0
    for ours, theirs in zip_longest(graph.line(name).nodes.dump(), nodes.dump()):
        rows += 1
        differing += ours != theirs
    return rows, differing


def _check_quads(graph: Graph, folder: Path) -> Finding:
    """The same for statements; of branches, those whose views have been made."""
    problems, total = [], 0
    fresh = QuadsView(folder)
    try:
        branches = [
            MAIN,
            *(name for name in graph.log.branches() if graph.stores.exists(graph.line(name))),
        ]
        for name in dict.fromkeys(branches):
            line = graph.line(name)
            path = graph.ancestry.path(fresh.position.commit, line.head.commit)
            graph.folding.walk_quads(fresh, path)
            quads = graph.stores.of(line)
            count, differing = 0, 0
            for quad in fresh.data():
                count += 1
                differing += quad not in quads.store
            differing += abs(sum(1 for _ in quads.data()) - count)
            total += count
            if differing:
                problems.append(f"{differing} statements of {name} differ from the log")
    finally:
        fresh.close()
    return _finding(
        QUADS, f"{total} statements, as the log says", problems, "trails verify --repair"
    )
