"""Blame: examples of who wrote a value. ``test_model`` compares random histories with an oracle."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.history.repo import Repo

from trails.engine.history import blame as blaming
from trails.engine.history.blame import blame
from trails.model.history import Resolution


def writers(repo: Repo, handle: str, branch: str = "main", field: str | None = None):
    """(field, value) → the commit that wrote it."""
    state, commit = repo.ctx(branch).kg.find_with_commit(*handle.split("/"))
    assert state is not None
    found = blame(repo.graph, state, commit, () if field is None else (field,))
    return {(each.field, each.value): each.commit and each.commit.id for each in found}


def test_each_value_and_each_item_has_its_own_writer() -> None:
    """A change names itself for what it wrote, and nothing else."""
    repo = Repo()
    made = repo.put("main", "Item/a", name="one", rank=1, tags=["x"])
    ranked = repo.put("main", "Item/a", rank=2)
    tagged = repo.put("main", "Item/a", tags=["x", "y"])
    assert writers(repo, "Item/a") == {
        ("code", "a"): made,
        ("name", "one"): made,
        ("rank", 2): ranked,
        ("tags", "x"): made,
        ("tags", "y"): tagged,
    }
    assert writers(repo, "Item/a", field="rank") == {("rank", 2): ranked}


def test_a_value_that_comes_back_is_written_again() -> None:
    """A revert by hand is a new write, and so is a node that is created again."""
    repo = Repo()
    repo.put("main", "Item/a", name="one")
    repo.put("main", "Item/a", name="two")
    back = repo.put("main", "Item/a", name="one")
    assert writers(repo, "Item/a", field="name") == {("name", "one"): back}
    repo.drop("main", "Item/a")
    again = repo.put("main", "Item/a", name="one")
    assert set(writers(repo, "Item/a").values()) == {again}


def test_a_merge_names_the_commits_that_it_brought() -> None:
    """Also from a branch that is gone; only what the merge decided is its own."""
    repo = Repo()
    repo.put("main", "Item/a", name="one", note="x", rank=1)
    repo.branch("side")
    theirs = repo.put("side", "Item/a", note="y", rank=2)
    ours = repo.put("main", "Item/a", name="two", rank=3)
    done = repo.merge("side", take={"divergent_field:Item/a.rank": Resolution("value", 9)})
    assert done.outcome == "merged"
    repo.remove("side")
    found = writers(repo, "Item/a")
    assert found["note", "y"] == theirs
    assert found["name", "two"] == ours
    assert found["rank", 9] == done.commit


@pytest.mark.parametrize("lost", [False, True], ids=["kept", "rebuilt"])
def test_it_needs_no_index_that_saw_the_commits(tmp_path: Path, lost: bool) -> None:
    """A node index that is rebuilt after a branch was deleted still finds its commits."""
    repo = Repo(tmp_path)
    repo.put("main", "Item/a", name="one")
    repo.branch("side")
    theirs = repo.put("side", "Item/a", note="y")
    repo.put("main", "Item/b", name="other")
    repo.merge("side")
    repo.remove("side")
    if lost:
        repo.app.close()
        for path in (tmp_path / ".trails" / "graphs" / "main").glob("nodes.db*"):
            path.unlink()
        repo.reopen()
    assert writers(repo, "Item/a", field="note") == {("note", "y"): theirs}
    page = repo.app.service().versions("a").commits("main", node="Item/a")
    assert theirs in [each.id for each in page.commits]
    repo.app.close()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commits that are read."""
    read: list[str] = []
    reading = blaming._Blame._read

    def count(self, commit, *, removals):
        read.append(commit.id)
        return reading(self, commit, removals=removals)

    monkeypatch.setattr(blaming._Blame, "_read", count)
    return read


def test_the_work_follows_the_changes_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the commits of the graph, nor those that are older than the value."""
    repo = Repo()
    repo.put("main", "Item/a", name="one")
    for n in range(30):
        repo.put("main", "Item/b", rank=n)
    for n in range(10):
        repo.put("main", "Item/a", rank=n)
    read = counted(monkeypatch)
    writers(repo, "Item/a", field="rank")
    assert len(read) == 1
    read.clear()
    writers(repo, "Item/a")
    assert len(read) == 11


def test_a_large_commit_that_created_the_node_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is its: a load of a million nodes would take seconds to read."""
    repo = Repo()
    made = repo.put("main", "Item/a", name="one", note="x")
    changed = repo.put("main", "Item/a", note="y")
    read = counted(monkeypatch)
    monkeypatch.setattr(blaming, "_LARGE", 1)
    assert writers(repo, "Item/a")["name", "one"] == made
    assert read == [changed]


def test_what_was_not_looked_for_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many commits the rest has no commit, rather than a wrong one."""
    repo = Repo()
    repo.put("main", "Item/a", name="one")
    for n in range(6):
        last = repo.put("main", "Item/a", rank=n)
    monkeypatch.setattr(blaming, "MOST_READ", 3)
    assert writers(repo, "Item/a") == {
        ("code", "a"): None,
        ("name", "one"): None,
        ("rank", 5): last,
    }
