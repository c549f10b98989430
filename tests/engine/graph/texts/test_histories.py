"""Random histories: on every branch and snapshot, text indexes give the texts that are there.

Few texts are many here, so that indexes are built, flushed, forked and swept all the time, in a
thread and in searches. A process that is killed is a copy of its files, made while it runs.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.campaigns import sized
from tests.engine.graph.texts.test_indexes import (
    Memo,
    assert_right,
    copy_running,
    open_app,
    silent,
    wait_for_thread,
)

from trails.engine.graph.texts import field_index
from trails.engine.graph.texts import indexes as text_indexes
from trails.engine.graph.texts import overlays as text_overlays
from trails.engine.history.branches import create_branch, delete_branch
from trails.engine.history.merge import merge
from trails.engine.upkeep.maintenance import cleanup
from trails.engine.upkeep.verify import verify
from trails.errors import ConflictError
from trails.model.history import MergeRequest

CHOICE = st.integers(0, 1000)
TEXTS = st.sampled_from(
    ["", "a b", "straße", "日本語", "e\u0301", "emoji 👩\u200d👩\u200d👧", "x" * 300]
)


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field_index, "LARGE_TAIL", 3)
        patch.setattr(field_index, "SCANNED", 6)
        patch.setattr(text_overlays, "FAR", 6)
        patch.setattr(text_overlays, "FLOOD", 10)
        patch.setattr(text_overlays, "_KEPT", 3)
        patch.setattr(text_indexes, "_DELAY", 0.0)
        patch.setattr(text_indexes, "_UNSAVED", 4)
        yield


class Histories(RuleBasedStateMachine):
    """One graph."""

    @initialize(on_disk=st.sampled_from([True, True, False]))
    def begin(self, on_disk: bool) -> None:
        """In a folder or in memory."""
        self.folder = Path(tempfile.mkdtemp()) if on_disk else None
        self.number = 0
        self.app = open_app(self.place)
        self.commits = [self.head("main")]

    @property
    def place(self) -> Path | None:
        """Where the project is now."""
        return None if self.folder is None else self.folder / str(self.number)

    def head(self, branch: str) -> str:
        """The commit at which a branch is."""
        return self.app.graph().log_head(branch).commit

    def branch(self, choice: int) -> str:
        """One of the branches."""
        names = sorted({"main", *self.app.graph().log.branches()})
        return names[choice % len(names)]

    def look(self, branch: str) -> None:
        """Compare a branch, and remember its commit."""
        assert_right(self.app, branch=branch)
        self.commits.append(self.head(branch))

    @rule(
        where=CHOICE,
        some=st.dictionaries(st.integers(0, 14), TEXTS, max_size=8),
        look=st.booleans(),
    )
    def save(self, where: int, some: dict[int, str], look: bool) -> None:
        """Create and change memos in one commit."""
        branch = self.branch(where)
        self.app.context(branch=branch).kg.save_all(
            (
                Memo(code=str(n), title=f"t{text}", body=text or None, lines=[text, "x"][: n % 3])
                for n, text in some.items()
            ),
            upsert=True,
        )
        if look:
            self.look(branch)

    @rule(where=CHOICE, which=st.sets(st.integers(0, 14), max_size=4))
    def delete(self, where: int, which: set[int]) -> None:
        """Delete memos."""
        ctx = self.app.context(branch=self.branch(where))
        for number in which:
            for memo in Memo.objects(ctx).where(code=str(number)):
                memo.delete(ctx)

    @rule(where=CHOICE, name=st.sampled_from("xyz"))
    def make_branch(self, where: int, name: str) -> None:
        """Make a branch, or delete it if there is one."""
        if name in self.app.graph().log.branches():
            delete_branch(self.app.graph(), name, force=True, actor="a")
        else:
            create_branch(self.app.graph(), name, source=self.branch(where), actor="a")
            self.look(name)

    @rule(one=CHOICE, other=CHOICE)
    def merge(self, one: int, other: int) -> None:
        """Merge one branch into another."""
        source, target = self.branch(one), self.branch(other)
        if source != target:
            try:
                asked = MergeRequest(source, target, resolve_all="theirs")
                merge(self.app.graph(), asked, actor="a")
            except ConflictError:
                return
            self.look(target)

    @rule(which=CHOICE)
    def go_back(self, which: int) -> None:
        """Look at a commit of the past."""
        commit = self.commits[which % len(self.commits)]
        if commit:
            assert_right(self.app, snapshot=commit)

    @rule(where=CHOICE)
    def search(self, where: int) -> None:
        """Look at a branch."""
        self.look(self.branch(where))

    @rule(how=st.sampled_from(["verify", "cleanup", "rebuild", "distrust"]))
    def upkeep(self, how: str) -> None:
        """What is done now and then."""
        graph = self.app.graph()
        if how == "verify":
            assert all(each.severity == "ok" for each in verify(graph, silent))
        elif how == "cleanup":
            cleanup(graph, keep=1)
        elif how == "rebuild":
            graph.rebuild()
        else:
            graph.texts.distrust(graph.main, "Memo", "body")

    @precondition(lambda self: self.folder is not None)
    @rule(killed=st.booleans(), wait=st.booleans(), where=CHOICE)
    def reopen(self, killed: bool, wait: bool, where: int) -> None:
        """Close it, or kill it, and open it again."""
        if wait:
            wait_for_thread()
        if killed:
            before = self.place
            self.number += 1
            copy_running(before, self.place)
        self.app.close()
        self.app = open_app(self.place)
        self.look(self.branch(where))

    def teardown(self) -> None:
        """Look at everything once more."""
        if not hasattr(self, "app"):
            return
        try:
            for name in sorted({"main", *self.app.graph().log.branches()}):
                assert_right(self.app, branch=name)
            assert all(each.severity == "ok" for each in verify(self.app.graph(), silent))
        finally:
            self.app.close()
            if self.folder is not None:
                shutil.rmtree(self.folder)


def campaign(number: int | None, examples: int, steps: int) -> None:
    """Run the machine; a number fixes what it does."""
    machine = Histories if number is None else seed(number)(type("Seeded", (Histories,), {}))
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


def test_searches_are_given_the_texts_that_are_there() -> None:
    """Whatever is written, branched, merged, closed and killed."""
    campaign(None, 6, 25)


@pytest.mark.long(cases=40 * 50)
@pytest.mark.parametrize("number", range(sized(40, nightly=2)), ids="seed-{}".format)
def test_searches_are_given_the_texts_that_are_there_for_long(number: int) -> None:
    """The same for many more histories."""
    campaign(number, 40, 50)
