"""Fold the log into a new node file: every branch in one pass, each commit once.

Branches form a tree along first parents. Its trunk is folded into the root; where a
branch leaves it, the branch gets a layer at the moment at which the trunk is there, so
nothing is undone and nothing folded twice, however many branches there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from trails.engine.ancestry import Ancestry, Path
from trails.engine.folding import Folding
from trails.engine.lines import Compiled
from trails.errors import CorruptionError
from trails.model.history import GENESIS, Commit, Position
from trails.model.types import Schema
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import ROOT_NAME

_STATEMENTS: Final = 50_000
"""Statements after which the transaction is committed."""
_COMMITS: Final = 5_000
"""Commits after which progress is reported."""


class _Plan(msgspec.Struct):
    """Which state each commit is folded into, and where states leave others."""

    steps: list[tuple[Commit, str]]
    forks: dict[str, list[tuple[str, str]]]
    """Commit → (state that leaves there, state that it leaves)."""


class Refold:
    """Folds one log into node files."""

    def __init__(
        self, ancestry: Ancestry, folding: Folding, compiled: Callable[[str], Compiled]
    ) -> None:
        self._ancestry = ancestry
        self._folding = folding
        self._compiled = compiled

    def fold(
        self,
        file: NodeFile,
        trunk: str,
        states: Mapping[str, str],
        progress: Callable[[str], None],
    ) -> int:
        """Fill an empty file: the root with one commit, and a layer a name with others.

        Returns how many commits were folded.
        """
        plan = self._plan(trunk, states)
        indexes = {ROOT_NAME: NodeIndex(file, ROOT_NAME)}
        with file.transaction():
            self._fork(file, indexes, plan, GENESIS)
        folded = waiting = 0
        file.begin()
        try:
            for commit, name in plan.steps:
                nodes = indexes[name]
                self._folding.walk_nodes(nodes, Path((), (commit,)))
                position = Position(commit.seq, commit.id)
                file.layers.move(nodes.layer.number, position, nodes.schema.digest)
                self._fork(file, indexes, plan, commit.id)
                folded += 1
                waiting += commit.added + commit.removed
                if waiting > _STATEMENTS:
                    file.commit()
                    file.begin()
                    waiting = 0
                if not folded % _COMMITS:
                    progress(f"folded {folded} of {len(plan.steps)} commits")
        except BaseException:
            file.rollback()
            raise
        file.commit()
        return folded

    def _plan(self, trunk: str, states: Mapping[str, str]) -> _Plan:
        owners: dict[str, str] = {GENESIS: ROOT_NAME}
        steps: list[tuple[Commit, str]] = []
        forks: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for name, head in ((ROOT_NAME, trunk), *states.items()):
            end = head
            while end not in owners:
                commit = self._ancestry.commit(end)
                owners[end] = name
                steps.append((commit, name))
                end = commit.first_parent
            if name != ROOT_NAME:
                forks[end].append((name, owners[end]))
        steps.sort(key=lambda step: step[0].seq)
        return _Plan(steps, forks)

    def _fork(
        self, file: NodeFile, indexes: dict[str, NodeIndex], plan: _Plan, commit: str
    ) -> None:
        """Let the states that leave others at a commit have layers of their own."""
        digest = Schema().digest if commit == GENESIS else self._ancestry.commit(commit).schema
        for name, origin in plan.forks.get(commit, ()):
            file.layers.stand(file.db, name, indexes[origin].layer.number)
            indexes[name] = nodes = NodeIndex(file, name)
            nodes.follow(self._compiled(digest).schema)


@contextmanager
def left_as_it_was(what: str, why: str) -> Iterator[None]:
    """Say of a view that can't be rebuilt that its files are still there."""
    try:
        yield
    except CorruptionError as error:
        raise CorruptionError(
            f"{what} {why} and can't be rebuilt from the log; its files were left as they are. "
            f"The reason: {error.message}",
            **error.data,
        ) from error
