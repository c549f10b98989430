"""Verify a graph: the digests of the log, the views against a fresh fold of it, every rule.

The log is folded once for all branches, which are compared by their differences. The writer's
lock is held only for moments; the comparison reads one state of the views while others write.

The content digest is one number for the content of a graph, independent of its history: the sum
of the SHA-256 of every statement in canonical N-Quads, modulo 2^256, so that it streams in any
order.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.graph.log_sums import LogSums
from trails.engine.schema.rule_check import broken_rules, broken_since, group_violations
from trails.engine.upkeep.blob_check import check_blobs
from trails.errors import CorruptionError, StorageError
from trails.log.payloads import payload_digest
from trails.log.storage import files_below
from trails.model.history import GENESIS, Commit, Move, is_chained
from trails.model.iris import digest_of
from trails.model.nodes import NodeState
from trails.model.texts import count
from trails.model.upkeep import FINDINGS, Finding, flag, passed
from trails.views.base import Reference, View
from trails.views.nodes.compare import States
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex
from trails.views.terms import Terms

_SHOWN = 5
LOG_FILE: Final = FINDINGS["log_damaged"].name
CHAIN: Final = FINDINGS["digest_wrong"].name
_REPAIR: Final = "trails verify --repair"
_RESTORE: Final = "restore a backup, or run 'trails recover'"


def verify(graph: Graph, progress: Callable[[str], None]) -> Iterator[Finding]:
    """Check the log from its first commit, then each view, then the rules on what was folded."""
    progress("checking the log's file")
    pages = graph.log.check()
    yield _finding("log_damaged", "sound", pages, _RESTORE)
    chain = _check_chain(graph, progress)
    yield chain
    yield _check_activities(graph)
    if chain.severity != "problem" and (blobs := check_blobs(graph)) is not None:
        yield blobs
    if graph.loss is not None:
        yield flag("commits_lost", graph.loss.describe(graph.name), "trails recover")
    if pages or chain.severity == "problem" or graph.loss is not None:
        return
    progress("adding up the log to compare the views")
    with tempfile.TemporaryDirectory(prefix="trails-verify-", dir=_roomy(graph)) as folder:
        reference = Reference(LogSums(graph.log, graph.folding), Path(folder))
        for view in graph.views:
            yield _check_view(graph, view, reference, progress)
        progress("checking every rule on every branch")
        with graph.nodes.as_logged(reference) as states:
            yield _check_rules(graph, states)


def _roomy(graph: Graph) -> Path | None:
    """The folder for the fold: next to the graph, or elsewhere if that disk is too full."""
    place = graph.temporary()
    if place is None or graph.folder is None:
        return place
    needed = 2 * sum(facts.st_size for _, facts in files_below(graph.folder))
    free = shutil.disk_usage(place).free
    return None if free < needed and free < shutil.disk_usage(tempfile.gettempdir()).free else place


def verify_and_repair(graph: Graph, progress: Callable[[str], None]) -> tuple[Finding, ...]:
    """Check a graph, rebuild the views that differ from the log, and check again.

    Views can't be made from a damaged log: then nothing is changed.
    """
    findings = tuple(verify(graph, progress))
    wrong = {each.name for each in findings if each.severity == "problem"}
    if wrong & {LOG_FILE, CHAIN}:
        detail = "not attempted, because views are made from the log; nothing was changed"
        return (*findings, flag("repair_failed", detail, "restore the log from a backup"))
    if not wrong & {view.name for view in graph.views}:
        return findings
    progress("rebuilding the views from the log")
    try:
        graph.rebuild()
    except StorageError as error:
        return (*findings, flag("repair_failed", error.message))
    return tuple(verify(graph, progress))


def _check_view(
    graph: Graph, view: View[Checkout], reference: Reference, progress: Callable[[str], None]
) -> Finding:
    """Compare a view with the log; an unreadable view is a finding, too."""
    try:
        found = view.verify(graph.held_checkouts(), reference, progress)
    except CorruptionError as error:
        return flag("view_differs", error.message, _REPAIR, name=view.name)
    sound = f"{found.compared}, as the log says"
    return _finding("view_differs", sound, found.problems, _REPAIR, view.name)


def _check_activities(graph: Graph) -> Finding:
    archives = graph.log.archives()
    archived = count(sum(each.count for each in archives), "activity", "activities")
    sound = f"{archived} archived in {count(len(archives), 'file')}, every digest right"
    problems = graph.log.check_archives()
    return _finding("archives_damaged", sound, problems, "put the files back from a backup")


def _finding(code: str, sound: str, problems: Sequence[str], fix: str, name: str = "") -> Finding:
    if not problems:
        return passed(name or FINDINGS[code].name, sound)
    more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
    return flag(code, "; ".join(problems[:_SHOWN]) + more, fix, name=name)


def _check_chain(graph: Graph, progress: Callable[[str], None]) -> Finding:
    """Check every digest of the log; an unreadable row is a finding, too."""
    broken: list[str] = []
    try:
        for problem in _check_commits(graph, progress):
            broken.append(problem)  # noqa: PERF402 - keep what was found before an error
        total = graph.log.last_seq()
    except CorruptionError as error:
        broken.append(f"commits can't be read: {error.__cause__ or error}")
        return _finding("digest_wrong", "", broken, _RESTORE)
    sound = f"{count(total, 'commit')}, every digest right"
    return _finding("digest_wrong", sound, broken, _RESTORE)


def _check_commits(graph: Graph, progress: Callable[[str], None]) -> Iterator[str]:
    digests: dict[str, str] = {}
    commits: list[tuple[int, str, str]] = []
    previous = 0
    with graph.writing():  # one state, while others write
        last, moves, stored = graph.log.last_seq(), list(graph.log.moves()), graph.log.branches()
    for commit in graph.log.commits(until=last):
        if commit.seq != previous + 1:
            yield f"commit {commit.seq} follows {previous}"
        previous = commit.seq
        if not commit.seq % 5000:
            progress(f"checked {commit.seq} commits")
        yield from _check_commit(graph, commit, digests)
        digests[commit.id] = commit.digest
        commits.append((commit.seq, commit.branch, commit.id))
    yield from _check_heads(commits, moves, {name: each.commit for name, each in stored.items()})


_NEWEST: Final = 50
_STATEMENTS: Final = 100_000


def check_newest(graph: Graph) -> Finding:
    """Check the digests of the newest commits: as many as take a fraction of a second."""
    broken: list[str] = []
    checked = statements = 0
    try:
        for commit in graph.log.newest():
            statements += commit.added + commit.removed
            if checked == _NEWEST or statements > _STATEMENTS:
                break
            parents = [(each, graph.log.commit(each)) for each in commit.parents]
            digests = {each: known.digest for each, known in parents if known is not None}
            broken += _check_commit(graph, commit, digests)
            checked += 1
    except CorruptionError as error:
        broken.append(f"commits can't be read: {error.__cause__ or error}")
    sound = f"{count(checked, 'commit')} checked, the newest; 'trails verify' checks all"
    return _finding("digest_wrong", sound, broken, "trails verify, then trails recover")


def _check_heads(
    commits: list[tuple[int, str, str]], waiting: list[Move], stored: dict[str, str]
) -> Iterator[str]:
    """Check that branch heads follow from the commits and moves, in their order."""
    heads: dict[str, str] = {}
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
    except Exception as error:  # noqa: BLE001 - any error is the finding
        yield f"commit {commit.id}: its statements can't be read ({type(error).__name__}: {error})"
        return
    if payload_digest(gone, come) != commit.payload:
        yield f"commit {commit.id}: its statements differ from the committed ones"
    if (gone_count, come_count) != (commit.removed, commit.added):
        yield f"commit {commit.id}: its number of statements differs from the recorded one"
    missing = [parent for parent in commit.parents if parent not in digests]
    if missing:
        yield f"commit {commit.id}: its parent {missing[0]} does not come before it"
        return
    if not is_chained(commit, tuple(digests[parent] for parent in commit.parents)):
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


def _check_rules(graph: Graph, fresh: NodeFile) -> Finding:
    """Check every rule on the current state of every branch."""
    broken: list[str] = []
    states, checked = States(fresh.db, fresh.schema_of), 0
    branches = {MAIN, *graph.log.branches()}
    for group in states.groups():
        names = [name for name in group if name in branches]
        earlier: NodeIndex | None = None
        for name in names:
            compiled = graph.compiled(states.schema(name).digest)
            nodes = NodeIndex(fresh, name)
            nodes.follow(compiled.schema)
            if earlier is None:
                found = broken_rules(nodes, fresh.db, compiled)
            else:
                handles = states.between(names[names.index(name) - 1], name)
                found = broken_since(earlier, nodes, fresh.db, compiled, sorted(handles))
            broken += [f"{name}: {rule}" for rule in group_violations(found)]
            earlier = nodes
            checked += 1
    fix = "change the nodes that break a rule, or the declarations"
    sound = f"kept on {count(checked, 'branch', 'branches')}"
    return _finding("rules_broken", sound, broken, fix)


def content_digest(terms: Terms, states: Iterable[NodeState]) -> str:
    """The digest of all statements of these nodes."""
    total = 0
    for state in states:
        for line in terms.statements(state):
            total += int.from_bytes(sha256(line.encode()).digest(), "big")
    return f"{total % 2**256:064x}"
