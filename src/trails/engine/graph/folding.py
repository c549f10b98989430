"""Folding: take a view from one commit to another, by doing and undoing what the log holds.

``Refold`` fills a new node file in one pass: branches form a tree along first parents, whose trunk
is folded into the root. Where a branch leaves it, the branch gets a layer when the fold is there,
so nothing is undone and no commit is folded twice, however many branches there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, Final, TypeVar

import msgspec

from trails.engine.graph.ancestry import Ancestry, Path
from trails.engine.graph.checkouts import CompiledSchema
from trails.errors import CorruptionError
from trails.log.payloads import Payload
from trails.log.protocol import Log
from trails.model.fairness import with_pauses
from trails.model.history import GENESIS, Commit, Position
from trails.model.types import Schema
from trails.views.base import Step
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex, Replacement
from trails.views.nodes.layers import ROOT_NAME

if TYPE_CHECKING:
    from trails.views.lines import Change
    from trails.views.quads.view import QuadsView
    from trails.views.terms import Terms

_BATCH: Final = 50_000
T = TypeVar("T")


class Folding:
    """Applies commits of one log to node indexes and quads views."""

    def __init__(
        self, log: Log, ancestry: Ancestry, compiled: Callable[[str], CompiledSchema]
    ) -> None:
        self._log = log
        self.ancestry = ancestry
        self.compiled = compiled

    # --- node indexes ----------------------------------------------------------------

    def walk_nodes(self, nodes: NodeIndex, path: Path, seq: int | None = None) -> None:
        """Take a node index along a path, in the transaction that is open.

        ``seq`` replaces that of the commits if the path is not the index's own history.
        """
        for _ in self.walk_parts(nodes, path, _BATCH, seq):
            pass

    def walk_parts(
        self, nodes: NodeIndex, path: Path, size: int, seq: int | None = None
    ) -> Generator[int, None, None]:
        """Take a node index along a path; after each part, how much work that was.

        Other transactions may be made between two parts.
        """
        for commit in path.undo:
            yield from self._fold(nodes, commit, 0 if seq is None else seq, size, undo=True)
        for commit in path.redo:
            yield from self._fold(nodes, commit, commit.seq if seq is None else seq, size)

    def _fold(
        self, nodes: NodeIndex, commit: Commit, seq: int, size: int, *, undo: bool = False
    ) -> Generator[int, None, None]:
        former, compiled = self.types_around(commit)
        with self.statements(commit) as (removed, added):
            if undo and former.schema.digest == compiled.schema.digest:
                yield from self._undo(nodes, compiled.terms, removed, added, seq, size)
                return
            # What a commit removes was written with the types before it.
            steps = [(former, removed, False), (compiled, added, True)]
            for types, stream, adding in reversed(steps) if undo else steps:
                self._adopt(nodes, types.schema)
                terms = types.terms
                for quads in batched(terms.parse(stream), size):
                    come, gone = (quads, ()) if adding != undo else ((), quads)
                    self._put(nodes, terms, terms.changes(gone, come), seq)
                    yield len(quads)
            self._adopt(nodes, (former if undo else compiled).schema)
        yield 1

    def _undo(
        self,
        nodes: NodeIndex,
        terms: Terms,
        removed: IO[bytes],
        added: IO[bytes],
        seq: int,
        size: int,
    ) -> Generator[int, None, None]:
        """Undo a commit that changed no types, both halves side by side.

        They have the nodes in the same order, so most are changed once. It does not matter if the
        halves drift apart: such a commit removes no statement that it adds.
        """
        half = max(1, size // 2)
        halves = (batched(terms.parse(each), half) for each in (added, removed))
        for gone, come in zip_longest(*halves, fillvalue=()):
            self._put(nodes, terms, terms.changes(gone, come), seq)
            yield len(gone) + len(come)
        yield 1

    def types_around(self, commit: Commit) -> tuple[CompiledSchema, CompiledSchema]:
        """The types before a commit, and those that it was made with."""
        parent = commit.first_parent
        before = Schema().digest if not parent else self.ancestry.commit(parent).schema
        return self.compiled(before), self.compiled(commit.schema)

    def parts(
        self, commit: Commit, size: int
    ) -> Generator[Callable[[NodeIndex], None], None, None]:
        """What a commit does to a node index that follows the schema before it, in small parts.

        Each is done in a transaction of its own. All of them can be done again from the first:
        what is removed is gone, and what is added is there.
        """
        compiled = self.compiled(commit.schema)
        terms, schema = compiled.terms, compiled.schema

        def part(changes: dict[str, Change]) -> Callable[[NodeIndex], None]:
            def put(nodes: NodeIndex) -> None:
                nodes.follow(schema)
                self._put(nodes, terms, changes, commit.seq)

            return put

        yield lambda nodes: self._adopt(nodes, schema)
        with self.statements(commit) as (removed, added):
            for quads in batched(terms.parse(removed), size):
                yield part(terms.changes(quads, ()))
            for quads in batched(terms.parse(added), size):
                yield part(terms.changes((), quads))

    @staticmethod
    def _adopt(nodes: NodeIndex, schema: Schema) -> None:
        if nodes.schema.digest != schema.digest:
            nodes.adopt(schema)

    @staticmethod
    def _put(
        nodes: NodeIndex,
        terms: Terms,
        changes: dict[str, Change],
        seq: int,
    ) -> None:
        puts: list[Replacement] = []
        with nodes.file.writer() as db:
            found = nodes.find_all(db, list(changes))
            for handle, change in changes.items():
                stored = found.get(handle)
                before = None if stored is None else stored.state
                after = terms.state_after(handle, before, change)
                if after is not None or stored is not None:
                    puts.append(Replacement(stored, handle, after))
        nodes.put_all(seq, puts)

    # --- quads views -----------------------------------------------------------------

    def walk_quads(self, quads: QuadsView, path: Path) -> None:
        """Take a quads view along a path; each step is atomic."""
        for step in self.steps(path):
            quads.apply_stream(step.position, step.removed, step.added, step.count)

    # --- any view ----------------------------------------------------------------------

    def steps_between(self, start: str, end: str) -> Iterator[Step]:
        """The steps from one commit to another; the streams of one are closed by the next."""
        return self.steps(self.ancestry.path(start, end))

    def steps(self, path: Path) -> Iterator[Step]:
        """The steps of a path; the streams of one are closed by the next."""
        for commit in path.undo:
            parent = commit.first_parent
            seq = 0 if parent == GENESIS else self.ancestry.commit(parent).seq
            count = commit.added + commit.removed
            with self.statements(commit) as (removed, added):
                yield Step(Position(seq, parent), added, removed, count)
        for commit in path.redo:
            with self.step(commit) as step:
                yield step

    @contextmanager
    def step(self, commit: Commit, payload: Payload | None = None) -> Iterator[Step]:
        """The step that a commit is, its statements still at hand or read from the log."""
        with self.statements(commit, payload) as (removed, added):
            position = Position(commit.seq, commit.id)
            yield Step(position, removed, added, commit.added + commit.removed)

    # --- what the log holds ------------------------------------------------------------

    @contextmanager
    def statements(
        self, commit: Commit, payload: Payload | None = None
    ) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """What a commit removed and added."""
        if payload is not None and (texts := payload.texts) is not None:
            yield BytesIO(texts[0]), BytesIO(texts[1])
            return
        try:
            with (
                self._log.open_removed(commit) if commit.removed else BytesIO() as removed,
                self._log.open_added(commit) if commit.added else BytesIO() as added,
            ):
                yield removed, added
        except (SyntaxError, UnicodeDecodeError) as error:
            raise CorruptionError(
                f"the log is damaged: the statements of commit {commit.id} can't be parsed "
                f"({error}); run 'trails verify' and restore the log from a backup"
            ) from error


def batched(items: Iterable[T], size: int = _BATCH) -> Iterator[list[T]]:
    """Items in lists that memory can hold."""
    batch: list[T] = []
    for item in with_pauses(items):
        batch.append(item)
        if len(batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch


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
        self, ancestry: Ancestry, folding: Folding, compiled: Callable[[str], CompiledSchema]
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
            file.layers.fork(file.db, name, indexes[origin].layer.number)
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
