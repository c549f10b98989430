"""The threads of a graph: work of actors in turns, cancelled, dropped, or one after another."""

import asyncio
import threading
import time
from collections import Counter
from queue import Empty

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds.processes import wait_until

from trails.request import threads as module
from trails.request.admission import Admission, Budget
from trails.request.threads import Threads


@pytest.fixture
def threads():
    """Some threads."""
    made = Threads("test", Admission(Budget()))
    yield made
    made.close()


def test_work_that_follows_needs_no_new_thread(threads, monkeypatch):
    """A thread that has finished takes what comes next."""
    submitted, submit = [], threads._pool.submit
    monkeypatch.setattr(module, "_LINGER", 30.0)
    monkeypatch.setattr(
        threads._pool, "submit", lambda *given: submitted.append(given) or submit(*given)
    )

    async def main():
        found = []
        for _ in range(50):
            found.append(await threads.run("ann", threading.get_ident))
            # It tells its waiter first, and is free a moment later.
            wait_until(lambda: threads._turns._lingering == 1, "the thread")
        return found

    assert len(set(asyncio.run(main()))) == len(submitted) == 1


def test_results_errors_and_contexts_arrive(threads):
    """Each waiter gets its own."""

    def work(number):
        if number % 3 == 0:
            raise ValueError(number)
        return number

    async def main():
        return await asyncio.gather(
            *(threads.run("ann", work, number) for number in range(100)), return_exceptions=True
        )

    found = asyncio.run(main())
    assert [repr(each) for each in found] == [
        repr(ValueError(number) if number % 3 == 0 else number) for number in range(100)
    ]
    wait_until(lambda: threads.load() == (0, 0), "the last thread, which tells its waiter first")


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=120),
    st.sampled_from([0.0, 0.0001, 0.2]),
)
def test_all_work_is_done_within_the_limits(plan, linger):
    """However threads come and go, nothing is lost, done twice, or done beside too much else."""
    before, module._LINGER = module._LINGER, linger
    threads, lock = Threads("test", Admission(Budget())), threading.Lock()
    running, most, done = Counter(), Counter(), Counter()

    def work(actor, at, millis):
        with lock:
            running[actor] += 1
            most[actor] = max(most[actor], running[actor])
            most["all"] = max(most["all"], running.total())
        time.sleep(millis / 1000)
        with lock:
            running[actor] -= 1
            done[at] += 1

    async def main():
        tasks = []
        for at, (actor, millis) in enumerate(plan):
            tasks.append(asyncio.create_task(threads.run(actor, work, actor, at, millis)))
            if at % 7 == 0:
                await asyncio.sleep(0.0002)
        await asyncio.gather(*tasks)

    try:
        asyncio.run(main())
    finally:
        threads.close()
        module._LINGER = before
    assert done == Counter(range(len(plan)))
    assert max(most.values(), default=0) <= 64
    assert all(most[actor] <= 16 for actor in "abc")


def test_work_that_is_cancelled_while_it_runs_counts_until_it_ends(threads):
    """Nobody can use more threads than allowed by leaving."""
    begun, go_on = threading.Event(), threading.Event()

    def work():
        begun.set()
        go_on.wait(60)

    async def main():
        dropped = []
        task = asyncio.create_task(threads.run("ann", work, dropped=lambda: dropped.append(True)))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert threads._admission.running("ann") == 1
        go_on.set()
        while threads._admission.running("ann"):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
        assert not dropped

    asyncio.run(main())


def test_work_that_is_cancelled_before_it_began_is_never_done(threads):
    """Its caller is told so."""
    go_on, done = threading.Event(), []

    async def main():
        dropped = []
        first = [asyncio.create_task(threads.run("ann", go_on.wait, 60)) for _ in range(16)]
        task = asyncio.create_task(
            threads.run("ann", done.append, 1, dropped=lambda: dropped.append(True))
        )
        await asyncio.sleep(0.05)
        assert threads.load() == (16, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert dropped == [True]
        go_on.set()
        await asyncio.gather(*first)

    asyncio.run(main())
    assert done == []
    assert threads._admission.running("ann") == 0


def test_closing_waits_for_what_runs_and_drops_the_rest():
    """Who waits for dropped work is told."""
    threads, go_on, done = Threads("test"), threading.Event(), []

    def work():
        go_on.wait(60)
        done.append(1)

    async def main():
        dropped = []
        tasks = [
            asyncio.create_task(threads.run("ann", work, dropped=lambda: dropped.append(1)))
            for _ in range(20)
        ]
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(asyncio.to_thread(threads.close))
        await asyncio.sleep(0.05)
        go_on.set()
        await closing
        found = await asyncio.gather(*tasks, return_exceptions=True)
        return len(dropped), sum(isinstance(each, asyncio.CancelledError) for each in found)

    assert asyncio.run(main()) == (4, 4)
    assert len(done) == 16


def test_work_that_comes_when_a_thread_stops_waiting_is_done(threads, monkeypatch):
    """It was promised to that thread, which takes it after all."""
    queue, turns = threads._turns._new, threads._turns

    async def main():
        loop, following = asyncio.get_running_loop(), []

        def begin():
            following.append(asyncio.create_task(threads.run("ann", threading.get_ident)))

        class Late:
            """A queue that says that it is empty just when something comes."""

            put = queue.put

            def get(self, timeout=None):
                """Wait, or find nothing."""
                if timeout is None or following:
                    return queue.get()
                loop.call_soon_threadsafe(begin)
                while not turns._busy or turns._lingering:
                    time.sleep(0.001)
                raise Empty

        monkeypatch.setattr(turns, "_new", Late())
        first = await threads.run("ann", threading.get_ident)
        while not following:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.001)
        return first, await asyncio.wait_for(following[0], 30)

    first, second = asyncio.run(main())
    assert first == second
