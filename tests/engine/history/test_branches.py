"""Branches: their names, their making and deleting, and what is lost and found again."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.history.repo import Repo
from tests.engine.history.world import Item

from trails.engine.graph.graph import now
from trails.engine.history.branches import list_branches
from trails.errors import ConflictError, DeclarationError, NotFoundError, TransactionError
from trails.model.history import GENESIS, Move
from trails.model.names import branch_folder, check_branch_name

GOOD = [
    "b",
    "B",
    "0",
    "a/b",
    "agents/ada/tidy-up",
    "v1.2",
    "a_b",
    "a-",
    "x" * 100,
    "main/x",
    "Main",
]
BAD = [
    *("", " ", "a b", "a/", "/a", "a//b", ".", "..", "a..b", "../x", "a/../b", "a/.b", ".a"),
    *("a.", "a.lock", "-a", "_a", "@a", "a@b", "a\\b", "a:b", "a\x00b", "a\nb", "a\n", "é", "日本"),
    *("a\u202eb", "\U0001f600", "x" * 101, "a*", "a?", "%41", "a/-b", "~", "a~1", "CON "),
]


@pytest.fixture
def repo() -> Iterator[Repo]:
    """A graph in memory with one item."""
    found = Repo()
    found.put("main", "Item/i0", rank=1)
    yield found
    found.sound()
    found.app.close()


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Repo]:
    """The same in a folder."""
    found = Repo(tmp_path)
    found.put("main", "Item/i0", rank=1)
    yield found
    found.sound()
    found.app.close()


def home(repo: Repo) -> Path:
    """Where a graph's files are."""
    assert repo.graph.folder is not None
    return repo.graph.folder


class TestNames:
    @pytest.mark.parametrize("name", GOOD)
    def test_a_name_that_may_be(self, name: str) -> None:
        """Letters, digits and a few signs, in parts."""
        check_branch_name(name)

    @pytest.mark.parametrize("name", BAD)
    def test_a_name_that_may_not_be(self, repo: Repo, name: str) -> None:
        """It is refused before anything happens, and said why."""
        with pytest.raises(DeclarationError, match="can't name a branch"):
            repo.branch(name)
        assert [each.name for each in list_branches(repo.graph).branches] == ["main"]

    def test_folders_never_collide(self) -> None:
        """Not where a file system ignores case, nor between slashes and other signs."""
        names = ["a", "A", "a/b", "a-b", "A/b", "a/B", "Main", "MAIN", "a.b", "x" * 100]
        folders = {branch_folder(name).lower() for name in (*names, "main")}
        assert len(folders) == len(names) + 1
        assert all("/" not in each and len(each) < 200 for each in folders)

    def test_names_that_differ_in_case(self, stored: Repo) -> None:
        """They are different branches."""
        stored.branch("work")
        stored.branch("Work")
        stored.put("work", "Item/i0", rank=2)
        stored.put("Work", "Item/i0", rank=3)
        for name, rank in (("work", 2), ("Work", 3), ("main", 1)):
            assert stored.get(name, "Item/i0")["rank"] == rank
            answer = stored.ctx(name).kg.sparql("SELECT ?v WHERE { ?s :rank ?v }")
            assert [int(str(row["v"])) for row in answer] == [rank]

    @pytest.mark.parametrize("name", ["@", "@main", "/root", ""])
    def test_inner_names_are_no_branches(self, repo: Repo, name: str) -> None:
        """What the engine calls its own states can't be asked for."""
        with pytest.raises(NotFoundError):
            repo.ctx(name)


class TestRules:
    def test_made_where_another_is(self, repo: Repo) -> None:
        """A branch begins with the state of its source and goes its own way."""
        info = repo.branch("b")
        assert (info.name, info.head) == ("b", repo.head())
        repo.put("b", "Item/i0", rank=2)
        repo.branch("c", "b")
        repo.put("c", "Item/i0", rank=3)
        assert [repo.get(each, "Item/i0")["rank"] for each in ("main", "b", "c")] == [1, 2, 3]

    def test_made_at_a_commit(self, repo: Repo) -> None:
        """Any commit will do, by its id or the beginning of it."""
        old = repo.head()
        repo.put("main", "Item/i0", rank=5)
        repo.branch("b", old)
        repo.branch("c", old[:8])
        assert repo.get("b", "Item/i0") == repo.get("c", "Item/i0") == repo.at(old)["Item/i0"]

    @pytest.mark.parametrize("source", ["nope", "0" * 32, "0" * 8, "abc", "\x00", "@x"])
    def test_unknown_source(self, repo: Repo, source: str) -> None:
        """There must be such a branch or commit."""
        with pytest.raises(NotFoundError):
            repo.branch("b", source)
        assert len(list_branches(repo.graph).branches) == 1

    @pytest.mark.parametrize("name", ["main", "b"])
    def test_a_name_is_given_once(self, repo: Repo, name: str) -> None:
        """A second branch of the name is refused."""
        repo.branch("b")
        with pytest.raises(ConflictError, match=f"branch '{name}' already exists"):
            repo.branch(name)

    def test_listing(self, repo: Repo) -> None:
        """Main comes first, the others by name, each with its newest commit."""
        for name in ("z", "a", "m/x"):
            repo.branch(name)
        head = repo.put("a", "Item/i0", rank=9)
        found = list_branches(repo.graph).branches
        assert [each.name for each in found] == ["main", "a", "m/x", "z"]
        assert found[1].head == head
        assert found[1].position == repo.graph.log.last_seq()

    def test_main_stays(self, repo: Repo) -> None:
        """It can't be deleted, by force neither."""
        for force in (True, False):
            with pytest.raises(TransactionError, match="main can't be deleted"):
                repo.remove("main", force=force)

    def test_unmerged_work_is_kept(self, repo: Repo) -> None:
        """Deleting needs a merge, or force; and then the commits can still be read."""
        repo.branch("b")
        head = repo.put("b", "Item/i0", rank=2)
        with pytest.raises(ConflictError, match="1 unmerged commit") as error:
            repo.remove("b")
        assert head in str(error.value)
        assert repo.remove("b", force=True).head == head
        with pytest.raises(NotFoundError):
            repo.ctx("b")
        assert repo.at(head)["Item/i0"]["rank"] == 2
        repo.branch("b", head)
        assert repo.get("b", "Item/i0")["rank"] == 2

    @pytest.mark.parametrize("into", ["main", "c"])
    def test_merged_work_may_go(self, repo: Repo, into: str) -> None:
        """What another branch has is not lost."""
        repo.branch("b")
        repo.branch("c")
        repo.put("b", "Item/i0", rank=2)
        repo.put("c", "Item/i0", note="c")
        repo.put("main", "Item/i0", note="c")
        assert repo.merge("b", into).outcome == "merged"
        repo.remove("b")
        assert repo.get(into, "Item/i0")["rank"] == 2

    def test_a_name_used_again(self, stored: Repo) -> None:
        """Nothing of the former branch is left, in SPARQL neither."""
        stored.branch("b")
        stored.put("b", "Item/old")
        query = "SELECT ?s WHERE { ?s :code ?v }"
        assert len(list(stored.ctx("b").kg.sparql(query))) == 2
        stored.remove("b", force=True)
        stored.branch("b")
        assert set(stored.state("b")) == {"Item/i0"}
        assert len(list(stored.ctx("b").kg.sparql(query))) == 1

    def test_unknown_branch(self, repo: Repo) -> None:
        """The nearest name is suggested."""
        repo.branch("feature")
        with pytest.raises(NotFoundError, match="did you mean 'feature'"):
            repo.remove("featuer")
        with pytest.raises(NotFoundError, match="did you mean 'feature'"):
            repo.ctx("featuer")


class TestMany:
    def test_a_deep_lineage(self, stored: Repo) -> None:
        """Twelve branches, each out of the one before, each with its own changes; reopened."""
        expected = {"main": {"Item/i0": 1}}
        before = "main"
        for number in range(12):
            name = f"d{number}"
            stored.branch(name, before)
            stored.put(name, "Item/i0", rank=number + 10)
            stored.put(name, f"Item/n{number}", rank=number)
            if number > 2:
                stored.drop(name, f"Item/n{number - 2}")
            expected[name] = {h: f["rank"] for h, f in stored.state(name).items()}
            before = name
        for number in range(12):
            name = f"d{number}"
            alive = {f"Item/n{each}": each for each in range(number + 1)}
            for each in range(1, number - 1):
                del alive[f"Item/n{each}"]
            assert expected[name] == {"Item/i0": number + 10, **alive}
        stored.put("d5", "Item/i0", rank=99)
        expected["d5"]["Item/i0"] = 99
        stored.reopen()
        for name, ranks in expected.items():
            assert {h: f["rank"] for h, f in stored.state(name).items()} == ranks
            ctx = stored.ctx(name)
            found = Item.objects(ctx).where(rank__gte=0).order_by("-rank")
            assert [each.rank for each in found] == sorted(ranks.values(), reverse=True)
            assert Item.objects(ctx).count() == len(ranks)
        assert stored.merge("d11", "main").outcome == "fast_forward"
        stored.put("main", "Item/i0", rank=0)
        assert stored.get("d11", "Item/i0")["rank"] == 21

    def test_sixty_branches(self, repo: Repo) -> None:
        """Each has its own state, while main moves and half of them go."""
        for number in range(60):
            repo.branch(f"b{number}")
            repo.put(f"b{number}", "Item/i0", rank=number)
            if number % 10 == 0:
                repo.put("main", f"Item/m{number}")
        for number in range(0, 60, 2):
            repo.remove(f"b{number}", force=True)
        assert len(list_branches(repo.graph).branches) == 31
        for number in range(1, 60, 2):
            state = repo.state(f"b{number}")
            assert state["Item/i0"]["rank"] == number
            assert len(state) == 1 + (number + 9) // 10
        assert repo.get("main", "Item/i0")["rank"] == 1


class TestLost:
    @pytest.mark.parametrize("lost", ["branch", "nodes", "all"])
    def test_files_are_made_again(self, stored: Repo, lost: str) -> None:
        """A branch without its view files is rebuilt from the log."""
        stored.branch("b")
        stored.put("b", "Item/i0", rank=2)
        stored.put("b", "Item/i1", tags=["a"])
        stored.put("main", "Item/i0", note="m")
        query = "SELECT ?s ?v WHERE { ?s :rank ?v }"
        before = stored.state("b"), stored.state(), len(list(stored.ctx("b").kg.sparql(query)))
        folder = home(stored)
        stored.app.close()
        if lost in {"branch", "all"}:
            shutil.rmtree(folder / "branches" / branch_folder("b"))
        if lost in {"nodes", "all"}:
            for path in folder.glob("nodes.db*"):
                path.unlink()
        if lost == "all":
            shutil.rmtree(folder / "branches")
        stored.reopen()
        after = stored.state("b"), stored.state(), len(list(stored.ctx("b").kg.sparql(query)))
        assert after == before
        stored.put("b", "Item/i0", rank=3)
        assert stored.merge("b").outcome == "merged"

    def test_a_damaged_index_is_made_again(self, stored: Repo) -> None:
        """Rubbish in the node file costs nothing but time, for branches too."""
        stored.branch("b")
        stored.put("b", "Item/i0", rank=2)
        folder = home(stored)
        stored.app.close()
        for path in folder.glob("nodes.db-*"):
            path.unlink()
        (folder / "nodes.db").write_bytes(b"rubbish" * 1000)
        stored.reopen()
        assert stored.get("b", "Item/i0")["rank"] == 2

    @pytest.mark.parametrize("step", ["create", "forward", "forward main", "delete"])
    def test_a_crash_between_log_and_index(self, stored: Repo, step: str) -> None:
        """The log has a move that the index has not: opening catches up."""
        stored.branch("b")
        stored.branch("c")
        old, new = stored.head(), stored.put("b", "Item/i0", rank=2)
        schema = stored.graph.main.schema.digest
        move = {
            "create": Move("n", "create", new, GENESIS, "a", now()),
            "forward": Move("c", "fast_forward", new, old, "a", now()),
            "forward main": Move("main", "fast_forward", new, old, "a", now()),
            "delete": Move("c", "delete", old, old, "a", now()),
        }[step]
        stored.graph.log.move(move, schema)
        stored.reopen()
        if step == "delete":
            with pytest.raises(NotFoundError):
                stored.ctx("c")
            stored.branch("c", "b")
            assert stored.get("c", "Item/i0")["rank"] == 2
            return
        assert stored.get(move.branch, "Item/i0")["rank"] == 2
        stored.put(move.branch, "Item/i0", rank=3)
        assert stored.get("b", "Item/i0")["rank"] == 2
        assert stored.get(move.branch, "Item/i0")["rank"] == 3


class TestThreads:
    def test_writers_on_branches_while_main_is_read(self, stored: Repo) -> None:
        """Each branch gets its own writes, and readers of main never see them."""
        names = ["w0", "w1", "w2"]
        for name in names:
            stored.branch(name)
        errors: list[BaseException] = []
        done = threading.Event()

        def write(name: str) -> None:
            try:
                for number in range(15):
                    stored.put(name, f"Item/{name}-{number}", rank=number)
                    stored.put(name, "Item/i0", rank=number + 100)
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)

        def read() -> None:
            try:
                while not done.is_set():
                    assert stored.state() == before
                    assert Item.objects(stored.ctx()).where(rank__gte=0).count() == 1
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)

        before = stored.state()
        writers = [threading.Thread(target=write, args=(name,)) for name in names]
        readers = [threading.Thread(target=read) for _ in range(2)]
        for thread in (*writers, *readers):
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        for thread in readers:
            thread.join()
        assert errors == []
        for name in names:
            state = stored.state(name)
            assert len(state) == 16
            assert state["Item/i0"]["rank"] == 114
