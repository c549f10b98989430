"""Stores of branches are open while they are asked, and take no memory afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.history.repo import Repo
from tests.worlds.processes import wait_until

from trails.engine.graph import stores

QUERY = "SELECT ?v WHERE { ?s :rank ?v }"


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Repo]:
    """A graph with three branches, each ahead of ``main``."""
    found = Repo(tmp_path)
    for number, name in enumerate("abc"):
        found.branch(name)
        found.put(name, "Item/i", rank=number)
    yield found
    found.sound()
    found.app.close()


def ranks(repo: Repo, branch: str) -> list[int]:
    """What SPARQL finds on a branch."""
    return sorted(int(str(row["v"])) for row in repo.ctx(branch).kg.sparql(QUERY))


def forget_use(repo: Repo, branch: str) -> None:
    """As if a store had not been asked for long, and the time to look for such had come."""
    repo.graph.stores._of(repo.graph.checkout(branch)).used = 0.0
    repo.graph.stores._close_idle()


def test_a_store_that_nobody_asks_is_closed(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, after a while; asked again, it is opened and follows what was committed."""
    monkeypatch.setattr(stores, "_IDLE", 0.2)
    assert ranks(repo, "b") == [1]
    wait_until(lambda: repo.graph.stores.opened(repo.graph.checkout("b")) is None, "closing")
    repo.put("b", "Item/j", rank=7)
    assert ranks(repo, "b") == [1, 7]
    wait_until(lambda: repo.graph.stores.opened(repo.graph.checkout("b")) is None, "closing again")


def test_only_unused_stores_are_closed(repo: Repo) -> None:
    """One that was just asked stays open, and so does main's."""
    assert ranks(repo, "a") == [0]
    assert ranks(repo, "b") == [1]
    forget_use(repo, "b")
    assert repo.graph.stores.opened(repo.graph.checkout("b")) is None
    assert repo.graph.stores.opened(repo.graph.checkout("a")) is not None
    assert repo.graph.stores.main() is not None


def test_a_store_that_is_read_stays_open(repo: Repo) -> None:
    """However long it takes; whoever comes meanwhile does not wait for it to end."""
    assert ranks(repo, "b") == [1]
    quads = repo.graph.stores.opened(repo.graph.checkout("b"))
    assert quads is not None
    with quads.reading():
        forget_use(repo, "b")
        assert repo.graph.stores.opened(repo.graph.checkout("b")) is quads
    forget_use(repo, "b")
    assert repo.graph.stores.opened(repo.graph.checkout("b")) is None


def test_readers_mind_no_closing(repo: Repo) -> None:
    """Threads ask three branches while their stores are closed again and again."""
    errors: list[BaseException] = []
    done = threading.Event()

    def ask(branch: str, rank: int) -> None:
        try:
            for _ in range(40):
                assert ranks(repo, branch) == [rank]
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    def close() -> None:
        while not done.wait(0.02):
            for branch in "abc":
                forget_use(repo, branch)

    threads = [threading.Thread(target=ask, args=(name, at)) for at, name in enumerate("abc")]
    closer = threading.Thread(target=close)
    for thread in (*threads, closer):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    closer.join()
    assert errors == []


def test_a_closed_graph_closes_nothing_later(tmp_path: Path) -> None:
    """With the graph ends what looks for unused stores, and another can open the folder."""
    repo = Repo(tmp_path)
    repo.branch("b")
    repo.put("b", "Item/i", rank=1)
    assert ranks(repo, "b") == [1]
    looking = repo.graph.stores._timer
    assert looking is not None
    assert looking.is_alive()
    repo.reopen()
    assert not looking.is_alive()
    assert ranks(repo, "b") == [1]
    repo.app.close()
