"""Activities: every call leaves one, whatever came of it."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import msgspec
import pytest
from tests.request.library import DECLARED
from tests.worlds.processes import wait_until

from trails import App
from trails.app.kernels import kernel_of
from trails.engine.graph.activities import CallRecord
from trails.errors import CapabilityError
from trails.model.actors import LOCAL, Actor
from trails.model.history import Activity

BOOK = {"isbn": "0001", "title": "Emma"}


def test_every_call_leaves_an_activity(calls):
    """Who, what, when and the outcome; failures included, arguments never."""
    secret = "correct horse battery staple"
    for tool, arguments in (
        ("books.shelve", {"count": 1}),
        ("books.add", {"book": BOOK}),
        ("books.rate", {}),
        ("fails.capability", {}),
        ("fails.bug", {}),
        ("graph_health", {}),
        ("graph_query", {"query": "SELECT"}),
        ("nope", {"password": secret}),
        ("trails_meta_shop_close", {"password": secret}),
        ("trails_meta_ping", {}),
        ("graph_snapshot", {"branch": "nope"}),
    ):
        calls.outcome(tool, arguments, Actor("ann"))
    found = calls.activities()
    assert [(each.name, each.kind, each.outcome) for each in found] == [
        ("books.shelve", "runtime", "ok"),
        ("books.add", "runtime", "ok"),
        ("books.rate", "runtime", "validation"),
        ("fails.capability", "runtime", "capability"),
        ("fails.bug", "runtime", "internal"),
        ("graph_health", "query", "ok"),
        ("graph_query", "query", "query"),
        ("nope", "runtime", "unknown"),
        ("trails_meta_shop_close", "meta", "unauthenticated"),
        ("trails_meta_ping", "meta", "ok"),
        ("graph_snapshot", "query", "not_found"),
    ]
    assert {each.actor for each in found} == {"ann"}
    assert len({each.id for each in found}) == len(found)
    assert all("2026" <= each.started <= each.ended for each in found)
    assert not any(secret in each.detail for each in found)
    assert found[3].detail == "the library is closed; come back tomorrow"


def test_a_commit_names_the_activity_of_its_call(calls):
    """Also a merge's; what is done on behalf of a call leaves no second activity."""
    calls.result("branch_create", {"name": "work"})
    calls.result("books.add", {"book": BOOK, "branch": "work"})
    calls.result(
        "graph_mutate",
        {"operations": [{"op": "create", "type": "Author", "data": {"slug": "a", "name": "Ann"}}]},
    )
    calls.result("branch_merge", {"source": "work"})
    calls.result("graph_load", {"data": '{"type":"Author","data":{"slug":"b","name":"Bo"}}'})
    ids = {each.id: each.name for each in calls.activities()}
    commits = calls.result("commit_list", {"all_branches": True})["commits"]
    made_by = [ids[each["activity"]] for each in commits if each["activity"]]
    assert made_by == ["graph_load", "branch_merge", "graph_mutate", "books.add"]
    assert len(ids) == 5


def test_a_cancelled_call_leaves_an_activity(calls):
    """An async handler that is cancelled is recorded as that."""

    async def main():
        task = asyncio.create_task(calls.kernel.execute(LOCAL, "waits.long", {}))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [(each.name, each.outcome) for each in calls.activities()] == [
        ("waits.long", "cancelled")
    ]


def test_a_call_that_is_cancelled_before_it_began_leaves_an_activity(calls):
    """A plain handler that waits for a thread is never run, and that is recorded."""
    hold = threading.Event()
    threads = calls.kernel._threads._pool
    for _ in range(threads._max_workers):
        threads.submit(hold.wait)

    async def main():
        task = asyncio.create_task(calls.kernel.execute(LOCAL, "books.add", {"book": BOOK}))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    hold.set()
    assert [each.outcome for each in calls.activities()] == ["cancelled"]
    assert calls.result("graph_snapshot")["nodes"] == 0


def test_reads_are_written_in_batches_by_themselves(calls):
    """Nobody has to ask for it."""
    calls.result("graph_health")
    wait_until(lambda: list(calls.graph.log.activities()), "the writing of an activity")
    assert [each.name for _, each in calls.graph.log.activities()] == ["graph_health"]


def test_the_call_of_a_write_is_in_the_log_before_it_is_answered(calls, monkeypatch):
    """With its commit, as are the activities that came before it; then it becomes one of them."""
    monkeypatch.setattr("trails.engine.graph.activities._PAUSE", 60)
    log = calls.graph.log
    calls.result("graph_health")
    calls.result("books.add", {"book": BOOK})
    assert [each.name for _, each in log.activities()] == ["graph_health"]
    ((record,),) = log._db.execute("SELECT record FROM calls").fetchall()
    recorded = msgspec.json.decode(record, type=Activity)
    assert (recorded.name, recorded.outcome) == ("books.add", "ok")
    assert recorded.generated == (log.head("main").commit,)
    calls.graph.activities.flush()
    assert [each.name for _, each in log.activities()] == ["graph_health", "books.add"]
    assert log._db.execute("SELECT count(*) FROM calls").fetchone() == (0,)


def test_a_crash_loses_no_activity_of_an_acknowledged_write(tmp_path: Path):
    """A process that dies right after the answer leaves the write and its activity."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "library"\n')
    (tmp_path / "app.py").write_text("from tests.request.library import *\n")
    script = textwrap.dedent(
        """
        import asyncio, os, sys
        from trails import App
        from trails.app.kernels import kernel_of
        from trails.model.actors import LOCAL
        app = App.open(sys.argv[1])
        kernel = kernel_of(app)
        book = {"isbn": "0001", "title": "Emma"}
        asyncio.run(kernel.execute(LOCAL, "books.add", {"book": book}))
        iri = app.graph().names.nodes + "Book/0001"
        asyncio.run(kernel.execute(LOCAL, "books.rename", {"book": iri, "title": "Emma II"}))
        os._exit(9)
        """
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=env, check=False)
    assert done.returncode == 9
    with App.open(tmp_path) as app:
        found = [each.name for _, each in app.graph().activities.read()]
    assert found == ["books.add", "books.rename"]


def test_nothing_is_lost_when_a_graph_is_closed(tmp_path: Path):
    """What waits is written."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "library"\n')
    (tmp_path / "app.py").write_text("")
    with App.open(tmp_path) as app:
        kernel = kernel_of(app)
        for _ in range(10):
            asyncio.run(kernel.execute(LOCAL, "graph_health", {}))
        kernel.close()
    with App.open(tmp_path) as app:
        assert sum(each.calls for _, each in app.graph().activities.read()) == 10


def test_many_threads_leave_each_activity_once(calls):
    """Also when batches are written meanwhile."""
    activities = calls.graph.activities

    def work(number: int) -> None:
        for at in range(300):
            call = CallRecord("ann", f"t{number}.{at}", "runtime")
            call.committed = at % 50 == 0
            activities.end(call, "ok")
            activities.end(call, "cancelled")  # what came first counts

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [each for _, each in activities.read()]
    assert sorted(each.name for each in found) == sorted(
        f"t{number}.{at}" for number in range(8) for at in range(300)
    )
    assert {each.outcome for each in found} == {"ok"}


def test_calls_of_the_app_are_recorded_the_same_way():
    """Through the app instead of the kernel."""
    with App(*DECLARED) as app:
        ctx = app.context(actor="ann")
        with pytest.raises(CapabilityError):
            app.call(ctx, "fails.capability")
        app.ask(ctx, "ASK {}")
        found = [(each.name, each.outcome) for _, each in app.graph().activities.read()]
    assert found == [("fails.capability", "capability"), ("graph_query", "ok")]
