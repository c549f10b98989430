"""The root keeps a replaced version of a node only for a layer that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.history.repo import Repo

from trails.views.nodes.layers import ROOT


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Repo]:
    """Two nodes, and a branch."""
    found = Repo(tmp_path)
    found.put("main", "Item/i0", rank=0)
    found.put("main", "Item/i1", rank=0)
    found.branch("b")
    yield found
    found.sound()
    found.app.close()


def kept(repo: Repo) -> list[str]:
    """The nodes of which the root keeps a version, with its keys."""
    with repo.graph.file.reader() as db:
        rows = db.execute("SELECT nid, handle FROM rows WHERE layer = ?", (ROOT,)).fetchall()
        keys = db.execute("SELECT DISTINCT nid FROM row_keys WHERE layer = ?", (ROOT,))
        assert sorted(nid for (nid,) in keys) == sorted(nid for nid, _ in rows)
    return sorted(handle for _, handle in rows)


def test_a_branch_that_shows_it(repo: Repo) -> None:
    """Main moves on, and the branch reads what was there."""
    repo.put("main", "Item/i0", rank=1)
    repo.put("main", "Item/i0", rank=2)
    assert kept(repo) == ["Item/i0"]
    assert repo.state("b")["Item/i0"]["rank"] == 0


def test_a_branch_with_a_version_of_its_own(repo: Repo) -> None:
    """It does not see main's, which is not kept for it."""
    repo.put("b", "Item/i0", rank=7)
    repo.drop("b", "Item/i1")
    repo.put("main", "Item/i0", rank=1)
    repo.put("main", "Item/i1", rank=1)
    assert kept(repo) == []
    assert repo.state("b")["Item/i0"]["rank"] == 7
    assert "Item/i1" not in repo.state("b")


def test_another_branch_that_shows_it(repo: Repo) -> None:
    """Each layer that grew out of the root counts."""
    repo.branch("c")
    repo.put("b", "Item/i0", rank=7)
    repo.drop("main", "Item/i0")
    assert kept(repo) == ["Item/i0"]
    assert repo.state("c")["Item/i0"]["rank"] == 0
    assert repo.state("b")["Item/i0"]["rank"] == 7


def test_a_branch_of_a_branch(repo: Repo) -> None:
    """One that left before the change sees through it, one that left later does not."""
    repo.put("b", "Item/i1", rank=7)
    repo.branch("early", "b")
    repo.put("b", "Item/i0", rank=7)
    repo.branch("late", "b")
    repo.put("main", "Item/i0", rank=1)
    repo.put("main", "Item/i1", rank=1)
    assert kept(repo) == ["Item/i0"]
    ranks = {name: repo.state(name)["Item/i0"]["rank"] for name in ("b", "early", "late")}
    assert ranks == {"b": 7, "early": 0, "late": 7}


def test_a_change_that_was_taken_back(repo: Repo) -> None:
    """A write that leaves a node as it was hides nothing."""
    ctx = repo.ctx("b")
    with ctx.kg.transaction():
        node = ctx.hydrate(ctx.kg.find("Item", "i1"))  # type: ignore[arg-type]
        for rank in (5, 0):
            node.rank = rank  # type: ignore[attr-defined]
            node.save(ctx)
    repo.put("main", "Item/i1", rank=1)
    assert kept(repo) == ["Item/i1"]
    assert repo.state("b")["Item/i1"]["rank"] == 0


def test_a_merge_keeps_nothing_for_what_it_merges(repo: Repo) -> None:
    """The merged branch has its own versions of all that the merge changes."""
    for name in ("Item/i0", "Item/i1"):
        repo.put("b", name, rank=7)
    repo.put("main", "Item/i2", rank=1)
    assert repo.merge("b").outcome == "merged"
    assert kept(repo) == []
