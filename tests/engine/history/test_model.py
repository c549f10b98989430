"""Branches, snapshots and merges against a naive oracle that keeps a full copy a commit.

The smoke runs a few examples of many steps. The long campaign runs one seed a test, about
2 500 operations each, and more than 100 000 in all::

    pytest -m long tests/engine/history/test_model.py

The seed is in the test's name, and replays the same operations on its own::

    pytest -m long tests/engine/history/test_model.py -k "seed-17"

A failure of the smoke is replayed by the ``--hypothesis-seed`` that pytest prints.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.campaigns import sized
from tests.engine.history.world import World

from trails.errors import TransactionError

NAMES = ["b0", "b1", "b2", "b3", "b4", "b/5"]
LOSSES = ["", "", "nodes", "quads", "b0", "b1", "b2"]
CHOICE = st.integers(0, 2**16)


class Versions(RuleBasedStateMachine):
    """Does anything to a graph and to the oracle, and compares after every step."""

    folders: tuple[bool, ...] = (False, False, True)

    @initialize(number=st.integers(0, 2**32), on_disk=st.integers(0, 2))
    def begin(self, number: int, on_disk: int) -> None:
        """A new graph, in memory or in a folder."""
        folder = Path(tempfile.mkdtemp(prefix="trails-versions-")) if on_disk == 2 else None
        self.world = World(folder, number)

    def teardown(self) -> None:
        """Compare everything once more."""
        if hasattr(self, "world"):
            try:
                self.world.check_all()
                self.world.check_verified()
            finally:
                self.world.close()

    def branch(self, choice: int) -> str:
        """One of the branches; main as often as two others."""
        names = sorted(self.world.history.branches)
        return [*names, "main"][choice % (len(names) + 1)]

    def commit(self, choice: int) -> int:
        """One of the commits, recent ones more often."""
        numbers = sorted(set(self.world.history.reachable()) - {0})
        return numbers[-1 - (choice % len(numbers)) * (choice % 3) // 2 % len(numbers)]

    @invariant()
    def counted(self) -> None:
        """Count operations."""
        World.operations += 1

    @rule(where=CHOICE, count=st.integers(1, 4))
    def write(self, where: int, count: int) -> None:
        """Save, change, delete: one commit."""
        branch = self.branch(where)
        self.world.write(branch, count)
        self.world.check(branch)

    @rule(where=CHOICE, count=st.integers(1, 2))
    def write_more(self, where: int, count: int) -> None:
        """Small commits are the most frequent."""
        branch = self.branch(where)
        self.world.write(branch, count)
        self.world.check(branch)

    @rule(name=st.sampled_from(NAMES), source=CHOICE)
    def create(self, name: str, source: int) -> None:
        """Make a branch where another is."""
        self.world.create(name, self.branch(source))
        self.world.check(name)

    @rule(name=st.sampled_from(NAMES), source=CHOICE)
    def create_in_the_past(self, name: str, source: int) -> None:
        """Make a branch at some commit."""
        self.world.create(name, self.commit(source))
        self.world.check(name)

    @rule(where=CHOICE, force=st.booleans())
    def delete(self, where: int, force: bool) -> None:
        """Delete a branch."""
        branch = self.branch(where)
        if branch == "main":
            with pytest.raises(TransactionError):
                self.world.delete("main", force=force)
        else:
            self.world.delete(branch, force=force)

    @rule(source=CHOICE, into=CHOICE, dry_run=st.integers(0, 4).map(lambda n: not n))
    def merge(self, source: int, into: int, dry_run: bool) -> None:
        """Merge any branch into any other."""
        branch = self.branch(into)
        self.world.merge(self.branch(source), branch, dry_run=dry_run)
        self.world.check(branch)

    @rule(source=CHOICE, into=CHOICE)
    def merge_both_ways(self, source: int, into: int) -> None:
        """Merge each of two commits into the other's branch: the way to several bases."""
        world = self.world
        one, two = self.branch(source), self.branch(into)
        heads = world.history.branches[one], world.history.branches[two]
        world.merge(heads[0], two)
        world.merge(heads[1], one)
        world.check(one)
        world.check(two)

    @rule(source=CHOICE, into=CHOICE)
    def merge_commit(self, source: int, into: int) -> None:
        """Merge a commit."""
        branch = self.branch(into)
        self.world.merge(self.commit(source), branch)
        self.world.check(branch)

    @rule(where=CHOICE)
    def forward_and_write(self, where: int) -> None:
        """Merge into main, then write both at once."""
        branch = self.branch(where)
        self.world.merge(branch, "main")
        self.world.write("main", 1)
        self.world.write(branch, 1)
        self.world.check("main")
        self.world.check(branch)

    @rule()
    def snapshot(self) -> None:
        """Read the past."""
        self.world.check_snapshot()

    @rule()
    def difference(self) -> None:
        """Compare two commits."""
        self.world.check_diff()

    @rule(where=CHOICE)
    def blame(self, where: int) -> None:
        """Ask who wrote the values of a branch, and of some commit."""
        self.world.check_blame(self.world.history.branches[self.branch(where)] or None)
        self.world.check_blame()

    @rule(where=CHOICE, how=st.integers(0, 3))
    def look_closer(self, where: int, how: int) -> None:
        """Look at all branches, ask SPARQL, or prove the views."""
        if how == 0:
            self.world.check_all()
        elif how == 1:
            self.world.check_verified()
        else:
            self.world.check_sparql(self.branch(where))

    @precondition(lambda self: self.world.folder is not None)
    @rule(lose=st.sampled_from(LOSSES), where=CHOICE)
    def reopen(self, lose: str, where: int) -> None:
        """Close, lose a view perhaps, and open again."""
        self.world.reopen(lose)
        self.world.check(self.branch(where))


def campaign(number: int | None, examples: int, steps: int) -> None:
    """Run the machine; a number fixes what it does."""
    machine = Versions if number is None else seed(number)(type("Seeded", (Versions,), {}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_graph_equals_the_oracle() -> None:
    """Whatever is done to branches, they read and merge as full copies would."""
    campaign(None, 12, 30)


@pytest.mark.long(cases=44 * 60)
@pytest.mark.parametrize("number", range(sized(45, nightly=2)), ids="seed-{}".format)
def test_the_graph_equals_the_oracle_for_long(number: int) -> None:
    """The same for more than 100 000 operations in all."""
    before = World.operations
    campaign(number, 44, 60)
    print(f"seed {number}: {World.operations - before} operations")  # noqa: T201
