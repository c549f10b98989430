"""Budgets: what one actor may have under way and do in a minute, checked before a call begins."""

import asyncio
import gc
import json
import threading
from contextlib import suppress

import pytest

from trails import App, Context, capability
from trails.app.kernels import kernel_of
from trails.app.settings import Budgets, GraphSettings, Project, Settings
from trails.model.actors import LOCAL, Actor
from trails.model.outcomes import Failure, Success
from trails.request.admission import Admission, Budget

ANN = Actor("ann", credential="t1")
ANN_AGAIN = Actor("ann", credential="t2")
BOB = Actor("bob", credential="t3")


class Hands:
    """A clock that goes as it is told."""

    def __init__(self):
        self.now = 1000.5

    def __call__(self):
        """What it shows."""
        return self.now


# --- the accounts ------------------------------------------------------------------


def test_an_actor_has_so_many_calls_under_way_and_no_more():
    """The next is refused with the limit, what is used and when to try again; others go on."""
    admission = Admission(Budget(in_flight=2))
    assert admission.refuse(ANN) is None
    assert admission.refuse(ANN_AGAIN) is None
    refused = admission.refuse(ANN)
    assert (refused.kind, refused.code) == ("budget", "budget")
    assert refused.data == {"limit": "in_flight", "allowed": 2, "used": 2, "retry_after": 1}
    assert "ann has 2 calls under way, and 2 are allowed" in refused.message
    assert admission.refuse(BOB) is None
    admission.leave("ann")
    assert admission.refuse(ANN) is None
    for name in ("ann", "ann", "bob"):
        admission.leave(name)
    assert (admission.running("ann"), admission.running("bob")) == (0, 0)


def test_callers_without_a_credential_are_not_told_apart():
    """So no number of calls at once is too many for them."""
    admission = Admission(Budget(in_flight=1))
    assert [admission.refuse(LOCAL) for _ in range(50)] == [None] * 50
    assert admission.running("local") == 50


def test_any_sixty_seconds_have_so_many_calls_at_most():
    """Also around the turn of a minute, and however the calls are spread."""
    clock = Hands()
    admission = Admission(Budget(calls_per_minute=60), clock)
    allowed = []
    for tick in range(2000):
        clock.now = 1000 + tick * 0.1
        if admission.refuse(ANN) is None:
            allowed.append(clock.now)
            admission.leave("ann")
    assert len(allowed) > 150
    for at in allowed:
        assert sum(at <= each < at + 60 for each in allowed) <= 60


def test_who_waits_as_told_is_admitted_and_who_does_not_is_not():
    """``retry_after`` is neither too short nor much too long."""
    clock = Hands()
    admission = Admission(Budget(calls_per_minute=3), clock)
    for step in (0, 7.25, 11.5):
        clock.now += step
        assert admission.refuse(ANN) is None
    clock.now += 1
    refused = admission.refuse(ANN)
    assert refused.data["limit"] == "calls_per_minute"
    assert (refused.data["allowed"], refused.data["used"]) == (3, 3)
    wait = refused.data["retry_after"]
    clock.now += wait - 2
    assert admission.refuse(ANN) is not None
    clock.now += 2
    assert admission.refuse(ANN) is None
    assert admission.refuse(ANN) is not None


def test_a_refused_call_is_not_counted():
    """Who asks too often is not locked out for longer."""
    clock = Hands()
    admission = Admission(Budget(calls_per_minute=1), clock)
    assert admission.refuse(ANN) is None
    for _ in range(100):
        clock.now += 0.25
        assert admission.refuse(ANN) is not None
    clock.now += 36
    assert admission.refuse(ANN) is None


def test_names_that_rest_take_no_room():
    """However many there were."""
    clock = Hands()
    admission = Admission(Budget(in_flight=5, calls_per_minute=5), clock)
    most = 0
    for number in range(20_000):
        clock.now += 0.05
        actor = Actor(f"actor-{number}", credential="t")
        assert admission.refuse(actor) is None
        admission.leave(actor.name)
        most = max(most, len(admission._calls))
    assert most < 5000
    assert not admission._running


def test_threads_lose_no_count():
    """Calls begin and end in many threads at once, and all places are free at the end."""
    admission = Admission(Budget(in_flight=8))
    seen = []

    def work():
        for _ in range(3000):
            if admission.refuse(ANN) is None:
                slot = admission.hold("ann")
                seen.append(admission.running("ann"))
                admission.leave("ann")
                slot.release()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert max(seen) <= 16
    assert admission.running("ann") == 0


def test_a_place_that_nobody_holds_any_more_is_free():
    """A stream that nobody began to read gives its place back by itself, once."""
    admission = Admission(Budget(in_flight=1))
    slot = admission.hold("ann")
    assert admission.refuse(ANN) is not None
    del slot
    gc.collect()
    assert admission.refuse(ANN) is None
    admission.leave("ann")
    slot = admission.hold("ann")
    slot.release()
    slot.release()
    del slot
    assert admission.running("ann") == 0


# --- on the path of a request --------------------------------------------------------


gate = threading.Event()


@capability("slow.loop")
async def slow_loop(ctx: Context) -> int:
    """Wait on the loop."""
    await asyncio.sleep(30)
    return 1


@capability("slow.thread")
def slow_thread(ctx: Context) -> int:
    """Wait in a thread."""
    gate.wait(30)
    return 1


@capability("quick")
def quick(ctx: Context) -> int:
    """Do not wait."""
    return 1


@capability("broken")
def broken(ctx: Context, number: int) -> int:
    """Fail."""
    raise RuntimeError("no")


def opened(**budgets):
    """An app with a budget."""
    settings = Settings(Project("app"), {"main": GraphSettings(budgets=Budgets(**budgets))})
    return App(slow_loop, slow_thread, quick, broken, settings=settings)


def test_the_path_refuses_and_leaves_an_activity():
    """The refusal is told and recorded, and the handler did not run."""
    with opened(calls_per_minute=2) as app:
        kernel = kernel_of(app)

        async def main():
            return [await kernel.execute(ANN, "quick", {}) for _ in range(3)]

        first, second, third = asyncio.run(main())
        assert isinstance(first, Success)
        assert isinstance(second, Success)
        assert third.kind == "budget"
        assert third.data["limit"] == "calls_per_minute"
        assert 1 <= third.data["retry_after"] <= 61
        found = [each for _, each in app.graph().activities.read()]
        assert [each.outcome for each in found] == ["ok", "ok", "budget"]
        assert found[-1].name == "quick"
        kernel.close()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("nothing.like.it", {}), ("trails_meta_ping", {"x": 1}), ("broken", {"number": "x"})],
)
def test_what_an_actor_can_not_use_costs_it_nothing(tool, arguments):
    """Unknown tools are not counted; calls with wrong arguments are."""
    with opened(calls_per_minute=1) as app:
        kernel = kernel_of(app)

        async def main():
            first = await kernel.execute(ANN, tool, arguments)
            return first, await kernel.execute(ANN, "quick", {})

        first, second = asyncio.run(main())
        assert isinstance(first, Failure)
        assert isinstance(second, Success) is (tool == "nothing.like.it")
        kernel.close()


@pytest.mark.parametrize("tool", ["slow.loop", "slow.thread"])
def test_a_cancelled_call_gives_its_place_back(tool):
    """At once where it ends at once, and a thread when it ends by itself."""
    gate.clear()
    with opened(in_flight=1) as app:
        kernel = kernel_of(app)

        async def main():
            running = asyncio.ensure_future(kernel.execute(ANN, tool, {}))
            await asyncio.sleep(0.1)
            full = await kernel.execute(ANN, "quick", {})
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            after = await kernel.execute(ANN, "quick", {})
            gate.set()
            for _ in range(1000):
                found = await kernel.execute(ANN, "quick", {})
                if isinstance(found, Success):
                    break
                await asyncio.sleep(0.01)
            return full, after, found

        full, after, found = asyncio.run(asyncio.wait_for(main(), 20))
        assert full.data["limit"] == "in_flight"
        assert isinstance(after, Failure) is (tool == "slow.thread")
        assert isinstance(found, Success)
        kernel.close()


def test_a_call_that_fails_gives_its_place_back():
    """Whatever the failure is."""
    with opened(in_flight=1) as app:
        kernel = kernel_of(app)

        async def main():
            return [
                (await kernel.execute(ANN, tool, arguments)).kind
                for tool, arguments in [
                    ("broken", {"number": 1}),
                    ("broken", {"number": "x"}),
                    ("broken", {"branch": "gone", "number": 1}),
                    ("gone", {}),
                    ("broken", {"number": 1}),
                ]
            ]

        assert asyncio.run(main()) == ["internal", "validation", "semantic", "unknown", "internal"]
        kernel.close()


def test_reading_and_completing_count_as_calls():
    """Resources have no way around a budget."""
    with opened(calls_per_minute=3) as app:
        kernel = kernel_of(app)

        async def main():
            read = [await kernel.read(ANN, "trails://kg/types") for _ in range(2)]
            done = await kernel.complete(ANN, "trails://queries/{name}", "name", "", {})
            over = await kernel.read(ANN, "trails://kg/types")
            again = await kernel.complete(ANN, "trails://queries/{name}", "name", "", {})
            return [*read, done, over, again]

        *fine, over, again = asyncio.run(main())
        assert not any(isinstance(each, Failure) for each in fine)
        assert over.data["limit"] == again.data["limit"] == "calls_per_minute"
        found = [each for _, each in app.graph().activities.read()]
        assert found[-1].outcome == "budget"
        kernel.close()


def test_an_export_holds_its_place_until_the_last_block():
    """Or until nobody reads on, or nobody began to."""
    with opened(in_flight=1) as app:
        kernel = kernel_of(app)

        async def main():
            unread = await kernel.transfers.export(ANN, {"format": "ndjson"})
            busy = await kernel.execute(ANN, "quick", {})
            await unread.aclose()
            del unread
            gc.collect()
            whole = await kernel.transfers.export(ANN, {"format": "turtle"})
            also = await kernel.execute(ANN, "quick", {})
            read = b"".join([block async for block in whole])
            partly = await kernel.transfers.export(ANN, {"format": "turtle"})
            with suppress(StopAsyncIteration):
                await anext(partly)
            await partly.aclose()
            return busy, also, read, await kernel.execute(ANN, "quick", {})

        busy, also, read, free = asyncio.run(main())
        assert busy.data["limit"] == also.data["limit"] == "in_flight"
        assert isinstance(read, bytes)
        assert isinstance(free, Success)
        kernel.close()


def test_a_load_holds_its_place_while_it_is_sent():
    """A slow sender has one call under way."""
    with opened(in_flight=1) as app:
        kernel = kernel_of(app)

        async def main():
            more = asyncio.Event()

            async def body():
                yield b""
                await more.wait()

            load = asyncio.ensure_future(kernel.transfers.load(ANN, body(), {"format": "ndjson"}))
            await asyncio.sleep(0.1)
            busy = await kernel.execute(ANN, "quick", {})
            more.set()
            await load
            return busy, await kernel.execute(ANN, "quick", {})

        busy, free = asyncio.run(main())
        assert busy.data["limit"] == "in_flight"
        assert isinstance(free, Success)
        kernel.close()


def test_the_data_of_a_refusal_is_json():
    """Whole numbers stay whole."""
    admission = Admission(Budget(calls_per_minute=1))
    admission.refuse(ANN)
    assert '"used": 1,' in json.dumps(admission.refuse(ANN).data)
