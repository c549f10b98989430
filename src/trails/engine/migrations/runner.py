"""Apply migrations to a branch and roll them back: each whole, or not at all.

A migration of one part is one commit on the branch. One of several parts is made on a branch of
its own, which nobody else can use, and the target is fast-forwarded to its end: until then readers
see nothing of it. After a crash the next run continues after the last part that is there, or begins
again if the target has moved. Rolling back makes new commits; history stays as it is.

One process owns a graph, and one run at a time changes it (``Graph.migrating``). What a run has
found out about the branch is checked again under the writer's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph, ignore, now
from trails.engine.graph.migrations import AppliedMigration, applied_migrations
from trails.engine.history.merge import merge
from trails.engine.migrations.segments import Segment, Sponsor, apply_segment
from trails.engine.migrations.state import compare_migrations
from trails.engine.write.write import Write
from trails.errors import ConflictError, MigrationError
from trails.model.history import GENESIS, Commit, MergeRequest, MigrationMark, Move
from trails.model.iris import digest_of
from trails.model.names import INTERNAL_BRANCH
from trails.model.operations.migrations import Direction
from trails.registry.migrations import MigrationFile

_ATTEMPTS: Final = 5
"""How often a migration of several parts is tried while others write to the branch."""


class MigrationRun(msgspec.Struct, frozen=True, eq=False):
    """What is to be done with one migration, in one direction."""

    file: MigrationFile
    direction: Direction
    segments: Sequence[Segment]

    def mark(self, part: int) -> MigrationMark:
        """What the commit of a part records."""
        return MigrationMark(
            self.file.name, self.file.checksum, self.direction, part, len(self.segments)
        )

    def message(self, part: int) -> str:
        """The message of the commit of a part."""
        verb = "apply" if self.direction == "forward" else "roll back"
        parts = len(self.segments)
        rest = f" (part {part} of {parts})" if parts > 1 else ""
        return f"{verb} migration {self.file.name}{rest}"


class _MarkedWrite(Write):
    """A write that records a migration, if the branch is as the run has found it."""

    run_mark: MigrationMark
    check: Callable[[], None]

    def begin(self) -> None:
        """Check under the lock, too."""
        super().begin()
        try:
            self.check()
        except BaseException:
            self.abandon()
            raise
        self.mark(self.run_mark)


class Migrator:
    """The migrations of one branch, on behalf of one actor."""

    def __init__(
        self,
        graph: Graph,
        branch: str,
        files: Sequence[MigrationFile],
        sponsor: Sponsor,
        progress: Callable[[str], None] = ignore,
    ) -> None:
        self._graph = graph
        self._branch = branch
        self._files = files
        self._sponsor = sponsor
        self._progress = progress

    # --- which ------------------------------------------------------------------------------

    def applied(self) -> dict[str, AppliedMigration]:
        """The migrations that the branch has now."""
        return applied_migrations(self._graph, self._graph.log_head(self._branch).commit)

    def find_pending(self, to: str | None) -> list[MigrationFile]:
        """The migrations to apply, up to one of them; refuses a branch that they do not fit."""
        applied = self.applied()
        self._check(applied)
        wanted = self._files if to is None else self._files[: self._place(to)]
        return [each for each in wanted if each.name not in applied]

    def find_applied(self, to: str | None) -> list[tuple[MigrationFile, AppliedMigration]]:
        """The migrations to roll back, newest first: the last one, or all after one of them."""
        applied = self.applied()
        self._check(applied)
        if not applied:
            raise MigrationError(f"branch {self._branch!r} has no migration to roll back")
        last = len(applied) - 1
        keep = last if to is None else self._place(to) if to.strip("0") else 0
        files = self._files[keep : len(applied)]
        return [(each, applied[each.name]) for each in reversed(files)]

    def _place(self, name: str) -> int:
        """How many migrations there are up to one, which is given by its name or number."""
        for at, each in enumerate(self._files, 1):
            if name == each.name or (name.isdecimal() and int(name) == each.number):
                return at
        known = ", ".join(each.name for each in self._files) or "none"
        raise MigrationError(f"there is no migration {name[:100]!r}; there are {known}")

    def _check(self, applied: dict[str, AppliedMigration]) -> None:
        """Refuse a branch whose migrations are not the first ones of the files, as they are now."""
        where = f"branch {self._branch!r} has applied"
        states = compare_migrations(self._files, applied)
        changed = [each.name for each in states if each.state == "changed"]
        unknown = [each.name for each in states if each.state == "unknown"]
        if changed:
            raise MigrationError(
                f"{where} {', '.join(changed)}, and the file was edited since then; restore it as "
                "it was applied, and write a new migration for the rest",
                changed=changed,
            )
        if unknown:
            raise MigrationError(
                f"{where} {', '.join(unknown)}, and there is no such file; add it, for example "
                "from the version of the project that applied it",
                unknown=unknown,
            )
        ahead = [each.name for each in self._files[len(applied) :] if each.name in applied]
        if ahead:
            missing = next(each.name for each in self._files if each.name not in applied)
            raise MigrationError(
                f"{where} {ahead[0]}, but not {missing}, which comes before it; give "
                f"{missing}.py a number after the last applied migration"
            )

    # --- doing it ---------------------------------------------------------------------------

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Let no other run change the graph meanwhile."""
        lock = self._graph.migrating
        if not lock.acquire(blocking=False):
            raise ConflictError(
                f"migrations of graph {self._graph.name!r} are already being applied or rolled "
                "back; wait until that has ended, look at the status, and retry"
            )
        try:
            for work, is_done in _work_branches(self._graph, self._branch).items():
                if is_done:  # a crash came after the last part
                    self._drop(work)
            yield
        finally:
            lock.release()

    def perform(self, run: MigrationRun, *, more: bool = False) -> Commit:
        """Apply one migration, or roll it back; the commit that completes it.

        ``more``: others follow it, so the project may already declare what they lead to.
        """
        self._graph.check_writable()
        self._graph.migrations_follow = more
        try:
            return self._perform(run)
        finally:
            self._graph.migrations_follow = False

    def _perform(self, run: MigrationRun) -> Commit:
        if len(run.segments) == 1:
            self._drop(_work_branch(run, self._branch))  # an earlier text may have had more parts
            check = partial(self._check_current, run)
            return self._write(self._graph.checkout(self._branch), run, 1, check)
        for _ in range(_ATTEMPTS):
            done = self._perform_apart(run)
            if done is not None:
                return done
        raise ConflictError(
            f"branch {self._branch!r} was written to {_ATTEMPTS} times while migration "
            f"{run.file.name} ran, so nothing of it was applied; let other writers wait, and retry"
        )

    def _check_current(self, run: MigrationRun) -> None:
        """Refuse if another way than this run has applied the migration, or rolled it back."""
        head = self._graph.log_head(self._branch).commit
        has = run.file.name in applied_migrations(self._graph, head)
        if has is (run.direction == "forward"):
            raise ConflictError(
                f"branch {self._branch!r} has changed: {run.file.name} was applied or rolled back "
                "meanwhile; look at the status, and retry"
            )

    def _write(
        self,
        checkout: Checkout,
        run: MigrationRun,
        part: int,
        check: Callable[[], None] = lambda: None,
    ) -> Commit:
        """One part, as one commit."""
        self._progress(run.message(part))

        def make(*args: object, **options: object) -> Write:
            write = _MarkedWrite(*args, **options)  # type: ignore[arg-type]
            write.run_mark, write.check = run.mark(part), check
            return write

        segment = run.segments[part - 1]
        commit = apply_segment(
            self._graph, checkout, segment, self._sponsor, make, run.message(part)
        )
        return self._graph.ancestry.commit(commit)

    # --- several parts ----------------------------------------------------------------------

    def _perform_apart(self, run: MigrationRun) -> Commit | None:
        """Make all parts on a branch of their own, then move the target to the last one.

        None if the target has moved: the next attempt begins again from there.
        """
        graph, work = self._graph, _work_branch(run, self._branch)
        base = graph.log_head(self._branch).commit
        self._check_current(run)
        done = self._find_done(run, work, base)
        if not done:
            self._drop(work)
            if not self._fork(work, base):
                return None
        try:
            for part in range(done + 1, len(run.segments) + 1):
                self._write(graph.checkout(work), run, part)
            last = graph.ancestry.commit(graph.log_head(work).commit)
            moved = not self._forward(run, last, base)
        except Exception:
            self._drop(work)  # a crash or Ctrl-C leaves it, and the next run continues there
            raise
        self._drop(work)
        return None if moved else last

    def _forward(self, run: MigrationRun, last: Commit, base: str) -> bool:
        """Move the target; False if it is not where the parts began."""
        asked = MergeRequest(last.id, self._branch, expected_head=base)
        try:
            result = merge(self._graph, asked, actor=self._sponsor.actor, call=self._sponsor.call)
        except ConflictError:
            if self._graph.log_head(self._branch).commit == base:
                raise
            return False
        if result.outcome != "fast_forward":
            problems = "; ".join(each.message for each in result.conflicts[:5])
            raise MigrationError(
                f"migration {run.file.name} leaves data that breaks rules: {problems}"
            )
        return True

    def _find_done(self, run: MigrationRun, work: str, base: str) -> int:
        """How many parts an interrupted run has left on the work branch; 0 to begin again."""
        head = self._graph.log.head(work)
        if head is None:
            return 0
        marks: list[MigrationMark | None] = []
        at = head.commit
        while at not in {base, GENESIS}:
            commit = self._graph.ancestry.commit(at)
            marks.append(commit.migration)
            at = commit.first_parent
        expected = [run.mark(part) for part in range(len(marks), 0, -1)]
        return len(marks) if at == base and marks == expected else 0

    def _fork(self, work: str, base: str) -> bool:
        graph, actor = self._graph, self._sponsor.actor
        with graph.appending(actor):
            head = graph.log_head(self._branch)
            if head.commit != base:
                return False
            graph.log.move(Move(work, "create", base, GENESIS, actor, now()), head.schema)
            graph.add_branch(work, graph.checkouts.get(self._branch))
        return True

    def _drop(self, work: str) -> None:
        graph, actor = self._graph, self._sponsor.actor
        if graph.log.head(work) is None:
            return
        with graph.appending(actor):
            head = graph.log_head(work)
            graph.log.move(
                Move(work, "delete", head.commit, head.commit, actor, now()), head.schema
            )
            graph.drop_checkouts([work])


_WORK: Final = f"{INTERNAL_BRANCH}migrations/"
_LONGEST: Final = 60
"""Characters of a migration's name in that of a branch."""


def _work_branch(run: MigrationRun, branch: str) -> str:
    """Where a migration of several parts is made for a branch."""
    return f"{_WORK}{digest_of(branch)[:12]}/{run.direction}/{run.file.name[:_LONGEST]}"


def _work_branches(graph: Graph, branch: str) -> dict[str, bool]:
    """What crashes have left for a branch: the work, and whether the branch has all of it."""
    start = f"{_WORK}{digest_of(branch)[:12]}/"
    found = [name for name in graph.log.branches() if name.startswith(start)]
    applied = applied_migrations(graph, graph.log_head(branch).commit) if found else {}
    names = {each[:_LONGEST] for each in applied}
    return {
        name: (name.rpartition("/")[2] in names) is name.startswith(f"{start}forward/")
        for name in found
    }


def interrupted_migrations(graph: Graph, branch: str) -> tuple[str, ...]:
    """The migrations of a branch that a crash has left unfinished."""
    work = _work_branches(graph, branch)
    return tuple(sorted(name.rpartition("/")[2] for name, is_done in work.items() if not is_done))
