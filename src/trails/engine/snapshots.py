"""Snapshots: the graph as of any commit.

A snapshot stands on a layer of its own, made from the nearest line by undoing and
doing what lies between. As many are kept as ``_MOST`` and ``_MOST_ROWS`` allow; the one
that was used longest ago goes first, and is made again when it is asked for.
"""

from __future__ import annotations

import re
from typing import Final

from trails.engine.graph import Graph
from trails.engine.lines import SNAPSHOT, Line
from trails.errors import NotFoundError
from trails.model.history import Commit, Head

_MOST: Final = 64
_MOST_ROWS: Final = 2_000_000
_COMMIT: Final = re.compile(r"[0-9a-f]{32}")
_PREFIX: Final = 8
"""Digits of a commit's id that suffice where they are unique."""


def snapshot_line(graph: Graph, commit: str) -> Line:
    """The graph as it was after a commit."""
    found = find_commit(graph, commit)
    name = SNAPSHOT + found.id
    line = graph.lines.get(name)
    if line is None:
        with graph.writing():
            line = graph.lines.get(name) or _make(graph, name, found)
    graph.file.layers.touch(name)
    return line


def _make(graph: Graph, name: str, commit: Commit) -> Line:
    make_room(graph, _MOST - 1, _MOST_ROWS)
    return graph.add_snapshot(name, Head(commit.id, commit.seq, commit.schema))


def make_room(graph: Graph, most: int, most_rows: int, *, dry_run: bool = False) -> list[str]:
    """Drop snapshots until no more are left than that; which ones were dropped."""
    layers = graph.file.layers
    names = layers.oldest([name for name in layers.refs if name.startswith(SNAPSHOT)])
    with graph.file.writer() as db:
        query = "SELECT count(*) FROM rows WHERE layer = ?"
        sizes = {name: db.execute(query, (layers.refs[name],)).fetchone()[0] for name in names}
    dropped: list[str] = []
    while names and (len(names) > most or sum(sizes[name] for name in names) > most_rows):
        dropped.append(names.pop(0))
    if dropped and not dry_run:
        graph.forget_lines(dropped)
    return [name.removeprefix(SNAPSHOT) for name in dropped]


def find_commit(graph: Graph, reference: str) -> Commit:
    """A commit by its id, or by the beginning of it where that is unique."""
    found = graph.log.commit(reference) if _COMMIT.fullmatch(reference) else None
    if found is None and _PREFIX <= len(reference) < 32 and re.fullmatch("[0-9a-f]+", reference):
        matches = graph.log.starting_with(reference)
        if len(matches) > 1:
            raise NotFoundError(
                f"{reference!r} is the beginning of several commits: {', '.join(matches)}; "
                "give more digits",
                commit=reference,
            )
        found = graph.log.commit(matches[0]) if matches else None
    if found is None:
        raise NotFoundError(
            f"there is no commit {reference[:100]!r}; give an id, or at least its first "
            f"{_PREFIX} digits, as 'trails commit list' shows them",
            commit=reference[:100],
        )
    return found
