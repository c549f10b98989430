"""Which commits changed a node, and which of them lie on the way to a state.

The node index remembers the commits of each node as they are applied. Commits of a branch that was
merged and deleted are missing where the index was behind or was rebuilt meanwhile: the log still
has them, and they are added here before anyone asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import IO, Final

from trails.engine.graph.graph import Graph
from trails.model.history import Commit
from trails.views.nodes.chains import ChainWalk, add_commit, known_commits

_BLOCK: Final = 1_000
"""Commits that are added in one transaction: writers wait for it."""
_PAGE: Final = 200
"""Commits of a node that are read at once."""
_READ: Final = 1 << 20


def complete_history(graph: Graph) -> None:
    """Let the node index know every commit of the log; nothing to do, almost always."""
    file, last = graph.file, graph.log.last_seq()
    with file.reader() as db:
        known = known_commits(db) if not file.frozen else last
    if known >= last:
        return
    applied: set[int] = set()
    for head in graph.log.branches().values():
        for seq in graph.ancestry.first_parents(head.seq, known):
            if seq in applied:
                break
            applied.add(seq)
    while known < last:
        until = min(last, known + _BLOCK)
        commits = list(graph.log.commits(known, until))
        missing = [
            (handle, each.seq)
            for each in commits
            if each.seq not in applied
            for handle in _handles(graph, each)
        ]
        with graph.writing(), file.transaction():
            file.db.executemany("INSERT OR IGNORE INTO past VALUES (?, ?)", missing)
            for each in commits:
                add_commit(file.db, each.seq, graph.ancestry.place(each.first_parent))
        known = until


def _handles(graph: Graph, commit: Commit) -> Iterator[str]:
    """The nodes that a commit has statements of."""
    start = b"<" + graph.names.nodes.encode()
    with graph.folding.statements(commit) as parts:
        for part in parts:
            lines = (line for line in part if line.startswith(start))
            for subject, _ in groupby(line[len(start) : line.index(b">")] for line in lines):
                yield subject.decode()


def commits_of_node(graph: Graph, handle: str) -> list[int]:
    """The places of all commits, on any branch, that changed a node; oldest first."""
    complete_history(graph)
    with graph.file.reader() as db:
        return graph.file.commits_of(db, handle)


def commits_behind(graph: Graph, handle: str, start: int) -> Iterator[int]:
    """The places of the commits that made a node what it is at one, newest first.

    They lie along first parents. Call ``complete_history`` before.
    """
    file = graph.file
    with file.reader() as db:
        whole = known_commits(db) >= start

    def candidates() -> Iterator[int]:
        before = start + 1
        while True:
            with file.reader() as db:
                page = file.commits_before(db, handle, before, _PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            before = page[-1]

    if not whole:
        yield from _walk(graph, start, candidates())
        return
    walk = ChainWalk(start)
    for seq in candidates():
        with file.reader() as db:  # not held while the caller reads a commit
            met = walk.meets(db, seq)
        if met:
            yield seq


def _walk(graph: Graph, start: int, seqs: Iterable[int]) -> Iterator[int]:
    """The same, commit by commit, for an index that can't be changed."""
    behind = graph.ancestry.first_parents(start, 0)
    at = next(behind, 0)
    for seq in seqs:
        while at > seq:
            at = next(behind, 0)
        if at == seq:
            yield seq


def lines_of(stream: IO[bytes], subject: bytes) -> list[bytes]:
    """The statements of one node in the text of a commit, which is read to its end."""
    start, found, rest = subject + b" ", [], b""
    while block := stream.read(_READ):
        text = rest + block
        end = text.rfind(b"\n") + 1
        text, rest = text[:end], text[end:]
        at = text.find(start)
        while at >= 0:
            stop = text.index(b"\n", at)
            if at == 0 or text[at - 1 : at] == b"\n":
                found.append(text[at:stop])
            at = text.find(start, stop)
    return found
