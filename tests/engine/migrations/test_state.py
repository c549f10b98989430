"""Which migrations a branch has: recorded in commits, so that history, merges and backups agree."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.engine.history.repo import Repo
from tests.engine.history.world import Item

from trails.engine.graph.migrations import applied_migrations
from trails.engine.write.write import Write
from trails.log.storage import MIGRATING
from trails.model.history import CommitDraft, MigrationMark, chain_digest


def mark(repo: Repo, branch: str, name: str, **more: object) -> str:
    """An empty commit that says that a migration was applied."""
    write = Write(repo.graph, repo.graph.checkout(branch), actor="ada")
    write.begin()
    write.mark(MigrationMark(name, "sum", **more))
    commit = write.finish()
    assert commit is not None
    return commit.id


def names(repo: Repo, reference: str) -> list[str]:
    """The migrations behind a branch or commit."""
    known = repo.graph.log.head(reference)
    return list(applied_migrations(repo.graph, reference if known is None else known.commit))


def test_a_branch_has_what_lies_behind_its_head() -> None:
    """A fork has what its source had; later ones of either side stay there."""
    repo = Repo()
    repo.put("main", "Item/a", name="one")
    mark(repo, "main", "0001_a")
    repo.branch("side")
    on_side = mark(repo, "side", "0002_b")
    assert names(repo, "main") == ["0001_a"]
    assert names(repo, "side") == ["0001_a", "0002_b"]
    found = applied_migrations(repo.graph, on_side)["0002_b"]
    assert (found.commit.id, found.commit.actor, found.mark.checksum) == (on_side, "ada", "sum")


def test_a_merge_has_what_both_sides_have() -> None:
    """Also where one side rolled back what the other one only inherited."""
    repo = Repo()
    repo.put("main", "Item/a", name="one")
    for name in ("0001_a", "0002_b"):
        mark(repo, "main", name)
    repo.branch("side")
    mark(repo, "side", "0002_b", direction="reverse")
    mark(repo, "side", "0003_c")
    repo.put("main", "Item/b", name="two")
    assert repo.merge("side").outcome == "merged"
    assert names(repo, "main") == ["0001_a", "0003_c"]


def test_a_part_is_not_the_whole() -> None:
    """A migration of two commits counts with the second."""
    repo = Repo()
    first = mark(repo, "main", "0001_a", part=1, parts=2)
    assert names(repo, first) == []
    mark(repo, "main", "0001_a", part=2, parts=2)
    assert names(repo, "main") == ["0001_a"]
    assert names(repo, first) == []


def test_marks_survive_what_history_survives(tmp_path: Path) -> None:
    """They are part of the digest, of a backup, and of a log that was made before the index."""
    repo = Repo(tmp_path)
    mark(repo, "main", "0001_a")
    repo.put("main", "Item/a", name="one")
    folder = repo.graph.folder
    assert folder is not None
    repo.sound()
    repo.app.close()
    with closing(sqlite3.connect(folder / "log.db")) as db:
        db.execute("DROP INDEX commits_migrations")
        db.commit()
    repo.reopen()
    assert names(repo, "main") == ["0001_a"]
    plan = "EXPLAIN QUERY PLAN SELECT record FROM commits WHERE {} ORDER BY seq"
    with closing(sqlite3.connect(folder / "log.db")) as db:
        (found,) = db.execute(plan.format(MIGRATING)).fetchall()
    assert "commits_migrations" in found[3]
    repo.app.close()


def test_commits_without_a_migration_keep_their_digest() -> None:
    """Logs from before there were migrations stay valid, and records do not grow."""
    draft = CommitDraft("main", "ada", "2026-01-01T00:00:00.000Z", "s", nonce="n")
    assert chain_digest((), draft, "p", "0 1") == (
        "8c5a75b0dd963619b64beda8b7d52f22127f6ea5ce366257729821c942e05d65"
    )


def test_a_message_is_no_mark() -> None:
    """The index looks for a text in the record, which a message can't contain unescaped."""
    repo = Repo()
    ctx = repo.ctx("main")
    Item(code="a", name="one").save(ctx, message='"migration":{"name":"0001_a"}')
    assert repo.graph.log.migrations() == []
