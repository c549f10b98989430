"""Prove a graph: every digest of the log, and views that equal a fresh fold of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import IO

from trails.engine.graph import Graph
from trails.log.payloads import payload_digest
from trails.model.digests import digest_of
from trails.model.history import Commit, Draft, chain_digest, commit_id
from trails.model.reports import Finding
from trails.views.nodes.index import NodeIndex
from trails.views.quads import QuadsView

_SHOWN = 5


def verify(graph: Graph, progress: Callable[[str], None]) -> Iterator[Finding]:
    """Check the log from its first commit, then both views."""
    progress("checking the log's file")
    pages = graph.log.check()
    yield _finding("log file", "sound", pages, "restore the log from a backup")
    broken = list(_check_commits(graph, progress))
    total = graph.head.seq
    yield _finding(
        "commit chain", f"{total} commit(s), every digest right", broken, "restore from a backup"
    )
    if pages or broken:
        return
    progress("folding the log again to compare the views")
    with tempfile.TemporaryDirectory(prefix="trails-verify-") as folder:
        yield _check_nodes(graph, Path(folder) / "nodes.db")
        yield _check_quads(graph, Path(folder) / "quads")


def _finding(name: str, sound: str, problems: list[str], fix: str) -> Finding:
    if not problems:
        return Finding(name, "ok", sound)
    more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
    return Finding(name, "problem", "; ".join(problems[:_SHOWN]) + more, fix)


def _check_commits(graph: Graph, progress: Callable[[str], None]) -> Iterator[str]:
    digests: dict[str, str] = {}
    heads: dict[str, str] = {}
    previous = 0
    for commit in graph.log.commits():
        if commit.seq != previous + 1:
            yield f"commit {commit.seq} follows {previous}"
        previous = commit.seq
        if not commit.seq % 5000:
            progress(f"checked {commit.seq} commits")
        yield from _check_commit(graph, commit, digests)
        digests[commit.id] = commit.digest
        heads[commit.branch] = commit.id
    for branch, head in graph.log.branches().items():
        if heads.get(branch) != head.commit:
            yield f"branch {branch} points at {head.commit}, but its last commit is another"


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
    fresh = NodeIndex(path)
    try:
        for commit in graph.log.commits():
            graph.fold_nodes(fresh, commit)
        rows, differing = 0, 0
        for ours, theirs in zip_longest(graph.nodes.dump(), fresh.dump()):
            rows += 1
            differing += ours != theirs
    finally:
        fresh.close()
    problems = [f"{differing} of {rows} rows differ from the log"] if differing else []
    return _finding(
        "node index", f"{rows} rows, as the log says", problems, "trails verify --repair"
    )


def _check_quads(graph: Graph, path: Path) -> Finding:
    fresh = QuadsView(path)
    try:
        for commit in graph.log.commits():
            graph.apply_quads(fresh, commit)
        count, differing = 0, 0
        for quad in fresh.data():
            count += 1
            differing += quad not in graph.quads.store
        differing += abs(sum(1 for _ in graph.quads.data()) - count)
    finally:
        fresh.close()
    problems = [f"{differing} statements differ from the log"] if differing else []
    return _finding(
        "quads view", f"{count} statements, as the log says", problems, "trails verify --repair"
    )
