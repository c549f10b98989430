"""What is remembered has a limit in bytes, whatever clients send."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from tests.engine.history.repo import Repo
from tests.engine.history.world import Item

from trails.app.serve.http.hosts import HostPolicy
from trails.engine.graph import ancestry
from trails.engine.graph.ancestry import Ancestry


def grown(work: Callable[[], None]) -> int:
    """Bytes that are held after some work and were not before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("header", ["host", "origin"])
def test_long_headers_are_not_remembered(header: str) -> None:
    """However many differ, and however long they are: their judgement takes no memory."""
    policy = HostPolicy.for_bind("127.0.0.1")

    def refuse() -> None:
        for number in range(1_000):
            value = b"http://a%d." % number + b"b" * 16_000
            hosts, origins = ([value], []) if header == "host" else ([b"localhost"], [value])
            assert policy.refuse(hosts, origins) is not None

    assert grown(refuse) < 1_000_000


def test_what_is_remembered_of_a_long_history_is_small() -> None:
    """The commits that are kept take a few megabytes; walks keep eight bytes for each."""
    repo = Repo()
    for number in range(300):
        Item(code=f"i{number}", name="n").save(repo.ctx(), message="why")
    log, head = repo.graph.log, repo.head()
    first = next(iter(log.commits())).id

    def remember() -> Ancestry:
        found = Ancestry(log)
        for commit in log.commits():
            found.commit(commit.id)
        return found

    kept = []
    size = grown(lambda: kept.append(remember()))
    assert size / log.last_seq() * ancestry._REMEMBERED < 24 << 20
    fresh = Ancestry(log)
    assert fresh.is_ancestor(first, head)
    assert fresh.distance(first, head) == log.last_seq() - 1
    assert fresh.bases(first, head) == [first]
    assert len(fresh._known) == 2
    assert len(fresh._links._first) == log.last_seq() + 1
    repo.app.close()


def test_commits_with_long_messages_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of history is bounded by its words as well as by its length."""
    monkeypatch.setattr(ancestry, "_WORDS", 50_000)
    repo = Repo()
    for number in range(30):
        Item(code=f"i{number}", name="n").save(repo.ctx(), message="m" * 9_000)
    found = Ancestry(repo.graph.log)
    for commit in repo.graph.log.commits():
        assert found.commit(commit.id) == commit
        assert sum(len(each.message) for each in found._known.values()) <= 60_000
    repo.app.close()
