"""After a fast-forward the root follows in small parts, and writers do not wait for all of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.campaigns import sized
from tests.engine.history.test_model import campaign

from trails import App, Node, node_type, predicate
from trails.engine.graph import node_indexes
from trails.engine.history.branches import create_branch
from trails.engine.history.merge import merge
from trails.engine.upkeep.verify import verify
from trails.model.history import MergeRequest
from trails.views.nodes.layers import ROOT


@node_type
class Item(Node):
    """Something with a number."""

    code: str = predicate(key=True)
    value: int = predicate()
    tags: list[str] = predicate()


def silent(text: str) -> None:
    """Nobody wants to know."""


def items(count: int, value: int) -> Iterator[Item]:
    """So many items with a value."""
    return (Item(code=f"i{n}", value=value, tags=[f"t{value}"]) for n in range(count))


def values(app: App, branch: str = "main") -> dict[str, int]:
    """What a branch holds."""
    return {item.code: item.value for item in Item.objects(app.context(branch=branch))}


def forwarded(folder: Path | None, count: int = 900) -> App:
    """A graph whose main was moved to a branch that changed so many items, and made as many."""
    app = App(Item, name="settling", folder=folder)
    app.context().kg.save_all(items(count, 1))
    create_branch(app.graph(), "side", actor="me")
    side = app.context(branch="side")
    side.kg.save_all(items(2 * count, 2), upsert=True)
    Item.get(side, "i3").delete(side)
    return app


def wait_for_thread() -> None:
    """Nobody settles any more."""
    for thread in threading.enumerate():
        if thread.name == "trails-settle":
            thread.join()


def wait_until_settled(app: App) -> None:
    """The thread, if there is one, has ended."""
    wait_for_thread()
    assert app.graph().main.nodes.layer.number == ROOT


class Counted:
    """How many parts were folded in the writer's way, and how many beside."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest = 0
        file = app.graph().file
        commit = file.commit
        self._before = 0

        def counting() -> None:
            now = file.db.total_changes
            self.longest = max(self.longest, now - self._before)
            commit()
            self._before = file.db.total_changes

        self._before = file.db.total_changes
        monkeypatch.setattr(file, "commit", counting)


def test_a_write_after_a_fast_forward_does_not_wait_for_the_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction changes more than a small part, whatever was merged, and all is right."""
    monkeypatch.setattr(node_indexes, "AT_ONCE", 100)
    with forwarded(tmp_path / "graph") as app:
        counted = Counted(app, monkeypatch)
        merge(app.graph(), MergeRequest("side"), actor="me")
        Item(code="next", value=5).save(app.context())
        expected = values(app, "side") | {"next": 5}
        assert values(app) == expected
        wait_until_settled(app)
        # A statement changes a row, its keys, and what is kept of its former version.
        assert counted.longest < 100 * 12
        assert values(app) == expected
        assert values(app, "side") == {k: v for k, v in expected.items() if k != "next"}
        assert all(each.severity == "ok" for each in verify(app.graph(), silent))


def test_settling_goes_on_where_a_crash_or_a_close_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a commit in the root is seen by nobody, and completed later."""
    monkeypatch.setattr(node_indexes, "AT_ONCE", 100)
    app = forwarded(tmp_path / "graph", 300)
    graph = app.graph()
    steps = 0

    def stop_half_way(commit: str) -> None:
        nonlocal steps
        steps += 1
        if steps > 7:
            graph.nodes.settling._ending.set()

    mark = graph.file.mark_half_folded
    monkeypatch.setattr(
        graph.file, "mark_half_folded", lambda commit: (mark(commit), stop_half_way(commit))
    )
    merge(graph, MergeRequest("side"), actor="me")
    wait_for_thread()
    assert graph.file.half_folded
    expected = values(app, "side")
    assert values(app) == expected
    app.close()
    with App(Item, name="settling", folder=tmp_path / "graph") as again:
        assert again.graph().file.half_folded
        assert values(again) == expected
        Item(code="next", value=5).save(again.context())
        assert values(again) == expected | {"next": 5}
        wait_until_settled(again)
        assert not again.graph().file.half_folded
        assert values(again) == expected | {"next": 5}
        assert all(each.severity == "ok" for each in verify(again.graph(), silent))


def test_writers_and_readers_beside_settling_see_whole_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Main is written, forked and read while the root follows."""
    monkeypatch.setattr(node_indexes, "AT_ONCE", 60)
    with forwarded(tmp_path / "graph", 400) as app:
        expected = values(app, "side")
        merge(app.graph(), MergeRequest("side"), actor="me")
        for number in range(12):
            Item(code=f"i{number * 30 + 1}", value=100 + number).save(app.context(), upsert=True)
            expected[f"i{number * 30 + 1}"] = 100 + number
            assert values(app) == expected
            if number % 4 == 0:
                create_branch(app.graph(), f"fork-{number}", actor="me")
                assert values(app, f"fork-{number}") == expected
        Item.get(app.context(), "i5").delete(app.context())
        del expected["i5"]
        app.graph().nodes.settling.run()
        wait_until_settled(app)
        assert values(app) == expected
        assert all(each.severity == "ok" for each in verify(app.graph(), silent))


def test_random_histories_are_right_while_the_root_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model of branches and merges, with every fast-forward settled beside."""
    monkeypatch.setattr(node_indexes, "AT_ONCE", 2)
    campaign(None, 5, 30)


@pytest.mark.long(cases=44 * 60)
@pytest.mark.parametrize("number", range(sized(8, nightly=1)), ids="seed-{}".format)
def test_random_histories_are_right_while_the_root_follows_for_long(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The same for some 20 000 operations in all."""
    monkeypatch.setattr(node_indexes, "AT_ONCE", 2)
    campaign(number, 44, 60)
