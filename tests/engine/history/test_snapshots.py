"""Snapshots: any commit can be read, as it was, for as long as the log is there."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.history.oracle import State
from tests.engine.history.repo import Repo
from tests.engine.history.world import Item

from trails.engine.graph.checkouts import SNAPSHOT
from trails.engine.graph.graph import Graph
from trails.engine.history.branches import create_branch
from trails.engine.visibility import refs as snapshots
from trails.engine.visibility.refs import make_room
from trails.errors import NotFoundError, TransactionError
from trails.views.nodes import index
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import UNFINISHED


@pytest.fixture(params=["memory", "folder", "parts"])
def repo(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Repo]:
    """A graph with some history; its snapshots are also built part by part."""
    if request.param == "parts":
        monkeypatch.setattr(snapshots, "AT_ONCE", 2)
        monkeypatch.setattr(snapshots, "PART", 2)
        monkeypatch.setattr(snapshots, "_KEYS", 12)
        monkeypatch.setattr(snapshots, "_KEYS_AT_ONCE", 3)
        monkeypatch.setattr(index, "COLUMN", 1)
    found = Repo(None if request.param == "memory" else tmp_path)
    yield found
    found.sound()
    found.app.close()


def history(repo: Repo, count: int) -> dict[str, State]:
    """Commits that create, change and delete; each with its state."""
    found: dict[str, State] = {}
    for number in range(count):
        handle = f"Item/h{number % 7}"
        if number % 5 == 4 and repo.get("main", handle) is not None:
            commit = repo.drop("main", handle)
        else:
            commit = repo.put("main", handle, rank=number, tags=[f"t{number % 3}"])
        found[commit] = repo.state()
    return found


def check(repo: Repo, commit: str, state: State) -> None:
    """A snapshot reads as the state, filters, orders, counts and SPARQL included."""
    ctx = repo.app.context(snapshot=commit)
    assert repo.at(commit) == state
    assert Item.objects(ctx).count() == len(state)
    ranks = sorted(fields["rank"] for fields in state.values())  # type: ignore[type-var]
    assert [each.rank for each in Item.objects(ctx).order_by("rank")] == ranks
    tagged = [h for h, fields in state.items() if "t1" in fields["tags"]]  # type: ignore[operator]
    assert Item.objects(ctx).where(tags="t1").count() == len(tagged)


def test_far_back(repo: Repo) -> None:
    """Every commit of a long history, in any order."""
    states = history(repo, 40)
    commits = list(states)
    for commit in (*commits[::7], *reversed(commits[::5])):
        check(repo, commit, states[commit])


def test_sparql_of_the_past(repo: Repo) -> None:
    """Statements are those of the commit."""
    states = history(repo, 12)
    for commit in list(states)[::4]:
        ctx = repo.app.context(snapshot=commit)
        answer = ctx.kg.sparql("SELECT ?s ?v WHERE { ?s :rank ?v }")
        found = sorted(int(str(row["v"])) for row in answer)
        assert found == sorted(fields["rank"] for fields in states[commit].values())  # type: ignore[type-var]


def test_the_past_can_not_be_written(repo: Repo) -> None:
    """The error says what to do instead."""
    commit = repo.put("main", "Item/i0")
    ctx = repo.app.context(snapshot=commit)
    with pytest.raises(TransactionError, match="create a branch"):
        Item(code="x", name="x").save(ctx)
    assert ctx.snapshot == commit


@pytest.mark.parametrize("text", ["", "nope", "0" * 32, "0" * 8, "main", "../x", "\x00", "Z" * 32])
def test_unknown_commits(repo: Repo, text: str) -> None:
    """They are said not to be there."""
    repo.put("main", "Item/i0")
    with pytest.raises(NotFoundError, match="there is no commit"):
        repo.app.context(snapshot=text)


def test_the_beginning_of_an_id(repo: Repo) -> None:
    """Eight digits suffice where they are unique."""
    commit = repo.put("main", "Item/i0", rank=1)
    repo.put("main", "Item/i0", rank=2)
    assert repo.at(commit[:8])["Item/i0"]["rank"] == 1
    with pytest.raises(NotFoundError):
        repo.at(commit[:7])


def test_room_is_made(repo: Repo) -> None:
    """The snapshot that was used longest ago goes first, and is made again when asked for."""
    states = history(repo, 10)
    commits = list(states)
    for commit in commits:
        repo.at(commit)
    repo.at(commits[0])
    dropped = make_room(repo.graph, 3, 10**9)
    assert dropped == commits[1:-2]
    kept = [name for name in repo.graph.file.layers.refs if name.startswith(SNAPSHOT)]
    assert {name.removeprefix(SNAPSHOT) for name in kept} == {commits[0], *commits[-2:]}
    assert len(make_room(repo.graph, 100, 0)) == 3
    for commit, state in states.items():
        check(repo, commit, state)


def test_many_snapshots_are_bounded(repo: Repo) -> None:
    """However many are asked for, a bounded number is kept."""
    states = history(repo, 70)
    for commit, state in states.items():
        assert repo.at(commit) == state
    kept = [name for name in repo.graph.file.layers.refs if name.startswith(SNAPSHOT)]
    assert len(kept) <= 64


def test_pages_stay_while_main_moves(repo: Repo) -> None:
    """A cursor on a snapshot goes through the state of its commit, whatever is written."""
    for number in range(20):
        repo.put("main", f"Item/p{number:02}", rank=number % 4)
    commit, state = repo.head(), repo.state()
    ctx = repo.app.context(snapshot=commit)
    for order in ("rank", "-rank", "name"):
        page = Item.objects(ctx).order_by(order).page(3)
        seen = [each.handle for each in page.items]
        turn = 0
        while page.next is not None:
            repo.put("main", f"Item/p{turn:02}", rank=50 + turn, note=order)
            repo.put("main", f"Item/{order.strip('-')}{turn}", rank=2)
            turn += 1
            page = Item.objects(ctx).order_by(order).page(3, after=page.next)
            seen += [each.handle for each in page.items]
        assert sorted(map(str, seen)) == sorted(state)


def test_snapshots_of_branches_that_are_gone(repo: Repo) -> None:
    """Commits outlive their branch."""
    repo.put("main", "Item/i0", rank=1)
    repo.branch("b")
    commit = repo.put("b", "Item/i0", rank=2)
    repo.put("main", "Item/i0", rank=3)
    repo.remove("b", force=True)
    assert repo.at(commit)["Item/i0"]["rank"] == 2


def test_snapshots_on_both_sides_of_a_merge(repo: Repo) -> None:
    """States before, beside and after a merge, read from where main is now."""
    repo.put("main", "Item/i0", rank=1)
    repo.branch("b")
    states: dict[str, State] = {}
    for number in range(3):
        for branch in ("b", "main"):
            commit = repo.put(branch, f"Item/{branch}", rank=number)
            states[commit] = repo.state(branch)
    repo.merge("b")
    states[repo.head()] = repo.state()
    commit = repo.drop("main", "Item/b")
    states[commit] = repo.state()
    for commit, state in states.items():
        assert repo.at(commit) == state
    merged = repo.head("b")
    repo.put("b", "Item/b", rank=7)
    assert repo.at(merged) == states[merged]


def test_snapshots_survive_reopening(tmp_path: Path) -> None:
    """What was made is used again."""
    repo = Repo(tmp_path)
    states = history(repo, 15)
    commits = list(states)[::3]
    for commit in commits:
        repo.at(commit)
    repo.reopen()
    for commit in commits:
        check(repo, commit, states[commit])
    repo.sound()
    repo.app.close()


def test_readers_of_the_past_and_a_writer(tmp_path: Path) -> None:
    """Threads read many commits while main is written and snapshots are dropped."""
    repo = Repo(tmp_path)
    states = history(repo, 20)
    errors: list[BaseException] = []
    done = threading.Event()

    def read(start: int) -> None:
        try:
            for commit in list(states)[start::2]:
                assert repo.at(commit) == states[commit]
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    def write() -> None:
        try:
            number = 0
            while not done.is_set() and number < 200:
                repo.put("main", f"Item/h{number % 7}", rank=1000 + number)
                number += 1
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    writer = threading.Thread(target=write)
    readers = [threading.Thread(target=read, args=(start,)) for start in range(2)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    done.set()
    writer.join()
    assert errors == []
    repo.sound()
    repo.app.close()


# --- built part by part ---------------------------------------------------------------------


class Between:
    """Does something after each part of a snapshot that is being built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
        self.parts = 0
        self._work = work
        self._part = snapshots._do_part
        monkeypatch.setattr(snapshots, "AT_ONCE", 3)
        monkeypatch.setattr(snapshots, "PART", 3)
        monkeypatch.setattr(snapshots, "_do_part", self._do_part)

    def _do_part(self, graph: Graph, nodes: NodeIndex, parts: Iterator[int]) -> bool:
        more = self._part(graph, nodes, parts)
        self.parts += 1
        self._work()
        return more


def distant(repo: Repo) -> tuple[str, State]:
    """A commit that main has moved far away from, and its state."""
    states = history(repo, 12)
    commit, state = next(iter(states.items()))
    return commit, state


@pytest.mark.parametrize("ask", ["snapshot", "branch"])
def test_writers_have_their_turn_while_a_snapshot_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    """The lock is free between two parts, and what is written then is not in the snapshot."""
    repo = Repo(tmp_path)
    commit, state = distant(repo)
    between = Between(
        monkeypatch, lambda: repo.put("main", f"Item/h{between.parts % 7}", rank=between.parts)
    )
    if ask == "branch":
        create_branch(repo.app.graph(), "old", source=commit, actor="a")
        assert repo.state("old") == state
    check(repo, commit, state)
    assert between.parts > 5
    repo.sound()
    repo.app.close()


def test_a_snapshot_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be asked for again."""
    repo = Repo(tmp_path)
    commit, state = distant(repo)

    def fail() -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        Between(patch, fail)
        with pytest.raises(InterruptedError):
            repo.app.context(snapshot=commit)
    assert not [name for name in repo.app.graph().file.layers.refs if name.startswith(UNFINISHED)]
    check(repo, commit, state)
    repo.sound()
    repo.app.close()


def test_what_a_crash_leaves_of_a_snapshot_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verify does not compare it, and opening the graph removes it."""
    repo = Repo(tmp_path)
    commit, state = distant(repo)

    def copy() -> None:
        repo.sound()
        if between.parts == 3:
            shutil.copytree(tmp_path, tmp_path.parent / "crashed")

    between = Between(monkeypatch, copy)
    check(repo, commit, state)
    assert between.parts > 5
    repo.sound()
    repo.app.close()
    again = Repo(tmp_path.parent / "crashed")
    refs = again.app.graph().file.layers.refs
    assert not [name for name in refs if name.startswith(UNFINISHED)]
    assert SNAPSHOT + commit not in refs
    again.sound()
    again.app.close()
