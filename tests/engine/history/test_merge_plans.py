"""Merges are planned without the writer's lock, and written only where they were planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.engine.history.repo import Repo

from trails.errors import ConflictError
from trails.model.history import MergeResult
from trails.views.nodes.file import DraftFile

PATIENCE = 50
"""Seconds; a writer gives up after 60."""


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Repo]:
    """Two branches with a change each."""
    found = Repo(tmp_path)
    found.put("main", "Item/i0", name="n", rank=1)
    found.branch("b")
    found.put("main", "Item/i1", name="n")
    found.put("b", "Item/i2", name="n")
    yield found
    found.sound()
    found.app.close()


def while_locked(repo: Repo, merge: Callable[[], MergeResult]) -> MergeResult:
    """What a merge gives while somebody else holds the writer's lock."""
    with ThreadPoolExecutor(1) as thread, repo.graph.writing():
        return thread.submit(merge).result(PATIENCE)


class TestWithoutTheLock:
    def test_a_dry_run(self, repo: Repo) -> None:
        """A preview waits for no writer."""
        found = while_locked(repo, lambda: repo.merge("b", dry_run=True))
        assert (found.outcome, found.created, found.dry_run) == ("merged", 1, True)

    def test_a_dry_run_of_a_fast_forward(self, repo: Repo) -> None:
        """Nor does one that would only move the target."""
        repo.branch("c", "b")
        repo.put("c", "Item/i0", rank=2)
        found = while_locked(repo, lambda: repo.merge("c", "b", dry_run=True))
        assert found.outcome == "fast_forward"

    def test_conflicts(self, repo: Repo) -> None:
        """Nothing will be written, so nobody has to wait."""
        repo.put("main", "Item/i0", rank=2)
        repo.put("b", "Item/i0", rank=3)
        found = while_locked(repo, lambda: repo.merge("b"))
        assert [each.id for each in found.conflicts] == ["divergent_field:Item/i0.rank"]

    def test_conflicts_between_nodes(self, repo: Repo) -> None:
        """Rules between a few nodes are checked without the lock, too."""
        repo.put("main", "Item/i1", sku="s")
        repo.put("b", "Item/i2", sku="s")
        found = while_locked(repo, lambda: repo.merge("b"))
        assert [each.kind for each in found.conflicts] == ["uniqueness"]

    @pytest.mark.parametrize(("drops", "refers"), [("b", "main"), ("main", "b")])
    def test_references_to_what_is_gone(self, repo: Repo, drops: str, refers: str) -> None:
        """Either side may delete what the other one refers to."""
        repo.put("main", "Team/t0")
        repo.branch("c")
        repo.drop("c" if drops == "b" else "main", "Team/t0")
        repo.put("c" if refers == "b" else "main", "Item/i0", team="Team/t0")
        found = while_locked(repo, lambda: repo.merge("c"))
        assert [each.kind for each in found.conflicts] == ["dangling_reference"]

    def test_nothing_to_do(self, repo: Repo) -> None:
        """The same where the target has everything already."""
        repo.branch("c", "b")
        found = while_locked(repo, lambda: repo.merge("c", "b"))
        assert found.outcome == "already_up_to_date"

    def test_a_dry_run_leaves_nothing(self, repo: Repo) -> None:
        """What was tried is in no view."""
        before = repo.state()
        repo.merge("b", dry_run=True)
        assert repo.state() == before


class TestRaces:
    @pytest.mark.parametrize("times", [1, 100])
    def test_the_target_moves_while_it_is_planned(self, repo: Repo, times: int) -> None:
        """The merge is planned again, at last under the lock, and includes what came between."""
        moves = moving(repo, "main", times)
        found = repo.merge("b")
        assert found.outcome == "merged"
        assert len(moves) == min(times, 4)
        assert {f"Item/m{each}" for each in moves} | {"Item/i2"} <= repo.state().keys()

    def test_the_source_moves_while_it_is_planned(self, repo: Repo) -> None:
        """What is merged is the commit that was planned with."""
        planned = repo.head("b")
        moving(repo, "b", 1)
        found = repo.merge("b")
        assert repo.graph.log.commit(found.commit or "").parents[1] == planned  # type: ignore[union-attr]
        assert "Item/m0" not in repo.state()

    def test_a_fast_forward_whose_source_moves(self, repo: Repo) -> None:
        """It is planned again, and goes to where the source is then."""
        repo.branch("c", "b")
        repo.put("c", "Item/i0", rank=2)
        moving(repo, "c", 1)
        repo.merge("c", "b")
        assert repo.head("b") == repo.head("c")

    def test_an_expected_head_that_moves(self, repo: Repo) -> None:
        """Whoever expects a head is told that it moved."""
        head = repo.head()
        moving(repo, "main", 1)
        with pytest.raises(ConflictError, match=r"moved|is at"):
            repo.merge("b", expected_head=head)


def moving(repo: Repo, branch: str, times: int) -> list[int]:
    """Let somebody write on a branch after each of the next plans; tells how often that was."""
    moves: list[int] = []
    file, real = repo.graph.file, repo.graph.file.draft

    @contextmanager
    def draft() -> Iterator[DraftFile]:
        with real() as made:
            yield made
        if len(moves) < times:
            moves.append(len(moves))
            repo.put(branch, f"Item/m{moves[-1]}", name="n")

    file.draft = draft  # type: ignore[method-assign]
    return moves
