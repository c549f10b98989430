"""Budgets: what one actor may have under way and do in a minute, checked before a call begins."""

import asyncio
import gc
import json
import threading
from contextlib import suppress

import pytest
from tests.worlds.surfaces import LEGACY, MODERN, WIRES, Wires

from trails import App, Context, capability
from trails.app.kernels import kernel_of
from trails.app.settings import Budgets, GraphSettings, Project, Settings
from trails.model.actors import LOCAL, OPERATOR, Actor
from trails.model.results import Failure, Success
from trails.model.upkeep import Report
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
    begun = [admission.enter(ANN), admission.enter(ANN_AGAIN)]
    refused = admission.enter(ANN)
    assert (refused.kind, refused.code) == ("budget", "budget")
    assert refused.data == {"limit": "in_flight", "allowed": 2, "used": 2, "retry_after": 1}
    assert "ann has 2 calls under way, and 2 are allowed" in refused.message
    other = admission.enter(BOB)
    begun[0].end()
    assert len(admission.enter(ANN)) == 2
    for each in (*begun, other):
        each.end()
    assert (admission.running("ann"), admission.running("bob")) == (0, 0)


def test_callers_without_a_credential_are_not_told_apart():
    """So no number of calls at once is too many for them."""
    admission = Admission(Budget(in_flight=1))
    for _ in range(50):
        assert not isinstance(admission.enter(LOCAL), Failure)
    assert admission.running("local") == 50


def test_the_operator_is_not_kept_out():
    """Whoever else has the same name and uses up what it may use."""
    admission = Admission(Budget(in_flight=1, calls_per_minute=1))
    namesake = Actor("local", credential="t9")
    assert not isinstance(admission.enter(namesake), Failure)
    assert isinstance(admission.enter(namesake), Failure)
    for _ in range(5):
        assert not isinstance(admission.enter(OPERATOR), Failure)


def test_any_sixty_seconds_have_so_many_calls_at_most():
    """Also around the turn of a minute, and however the calls are spread."""
    clock = Hands()
    admission = Admission(Budget(calls_per_minute=60), clock)
    allowed = []
    for tick in range(2000):
        clock.now = 1000 + tick * 0.1
        if is_let_in(admission, ANN):
            allowed.append(clock.now)
    assert len(allowed) > 150
    for at in allowed:
        assert sum(at <= each < at + 60 for each in allowed) <= 60


def is_let_in(admission, actor):
    """Whether a call that ends at once may begin."""
    found = admission.enter(actor)
    if isinstance(found, Failure):
        return False
    found.end()
    return True


def test_who_waits_as_told_is_admitted_and_who_does_not_is_not():
    """``retry_after`` is neither too short nor much too long."""
    clock = Hands()
    admission = Admission(Budget(calls_per_minute=3), clock)
    for step in (0, 7.25, 11.5):
        clock.now += step
        assert is_let_in(admission, ANN)
    clock.now += 1
    refused = admission.enter(ANN)
    assert refused.data["limit"] == "calls_per_minute"
    assert (refused.data["allowed"], refused.data["used"]) == (3, 3)
    clock.now += refused.data["retry_after"] - 2
    assert not is_let_in(admission, ANN)
    clock.now += 2
    assert is_let_in(admission, ANN)
    assert not is_let_in(admission, ANN)


def test_a_refused_call_is_not_counted():
    """Who asks too often is not locked out for longer."""
    clock = Hands()
    admission = Admission(Budget(calls_per_minute=1), clock)
    assert is_let_in(admission, ANN)
    for _ in range(100):
        clock.now += 0.25
        assert not is_let_in(admission, ANN)
    clock.now += 36
    assert is_let_in(admission, ANN)


def test_names_that_rest_take_no_room():
    """However many there were; a call that is under way is never forgotten."""
    clock = Hands()
    admission = Admission(Budget(in_flight=1, calls_per_minute=5), clock)
    most, begun = 0, admission.enter(ANN)
    for number in range(20_000):
        clock.now += 0.05
        assert is_let_in(admission, Actor(f"actor-{number}", credential="t"))
        most = max(most, len(admission._calls), len(admission._accounts))
    assert most < 5000
    assert admission.enter(ANN).data["limit"] == "in_flight"
    begun.end()
    assert is_let_in(admission, ANN)


def test_threads_lose_no_count():
    """Calls begin and end in many threads at once, and all places are free at the end."""
    admission = Admission(Budget(in_flight=8))
    seen = []

    def work():
        for _ in range(3000):
            found = admission.enter(ANN)
            if not isinstance(found, Failure):
                slot = admission.hold("ann")
                seen.append(admission.running("ann"))
                found.end()
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
    assert not is_let_in(admission, ANN)
    del slot
    gc.collect()
    assert is_let_in(admission, ANN)
    slot = admission.hold("ann")
    slot.release()
    slot.release()
    del slot
    assert admission.running("ann") == 0


# --- on the path of a request --------------------------------------------------------


gate = threading.Event()
begun = threading.Event()


@capability("slow.loop")
async def slow_loop(ctx: Context) -> int:
    """Wait on the loop."""
    begun.set()
    await asyncio.sleep(90)
    return 1


@capability("slow.thread")
def slow_thread(ctx: Context) -> int:
    """Wait in a thread."""
    wait_at_gate()
    return 1


def wait_at_gate():
    """Say that this has begun, and wait."""
    begun.set()
    return gate.wait(90)


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
    begun.clear()
    with opened(in_flight=1) as app:
        kernel = kernel_of(app)

        async def main():
            running = asyncio.ensure_future(kernel.execute(ANN, tool, {}))
            await asyncio.to_thread(begun.wait, 60)
            full = await kernel.execute(ANN, "quick", {})
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            after = await kernel.execute(ANN, "quick", {})
            gate.set()
            for _ in range(5000):
                found = await kernel.execute(ANN, "quick", {})
                if isinstance(found, Success):
                    break
                await asyncio.sleep(0.01)
            return full, after, found

        full, after, found = asyncio.run(asyncio.wait_for(main(), 90))
        assert full.data["limit"] == "in_flight"
        assert isinstance(after, Failure) is (tool == "slow.thread")
        assert isinstance(found, Success)
        kernel.close()


def test_a_cancelled_read_holds_its_place_until_its_thread_ends():
    """Nobody gets more threads by not waiting for them."""
    gate.clear()
    begun.clear()
    with opened(in_flight=1) as app:
        kernel = kernel_of(app)
        kernel._reader._doctor = lambda: wait_at_gate() and Report("main", ())

        async def main():
            reading = asyncio.ensure_future(kernel.read(ANN, "trails://doctor"))
            await asyncio.to_thread(begun.wait, 60)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
            after = await kernel.execute(ANN, "quick", {})
            gate.set()
            for _ in range(5000):
                found = await kernel.execute(ANN, "quick", {})
                if isinstance(found, Success):
                    break
                await asyncio.sleep(0.01)
            return after, found

        after, found = asyncio.run(asyncio.wait_for(main(), 90))
        assert after.data["limit"] == "in_flight"
        assert isinstance(found, Success)
        kernel.close()


def test_a_completion_that_fails_gives_its_place_back():
    """Whatever goes wrong on the way."""
    with opened(in_flight=1) as app:
        kernel = kernel_of(app)

        def broken(actor):
            raise RuntimeError("no")

        kernel._reader.resources = broken

        async def main():
            return [
                await kernel.complete(ANN, "trails://queries/{name}", "name", "", {})
                for _ in range(3)
            ]

        assert [each.kind for each in asyncio.run(main())] == ["internal"] * 3
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
            begun, more = asyncio.Event(), asyncio.Event()

            async def body():
                yield b""
                begun.set()
                await more.wait()

            load = asyncio.ensure_future(kernel.transfers.load(ANN, body(), {"format": "ndjson"}))
            await asyncio.wait_for(begun.wait(), 60)
            busy = await kernel.execute(ANN, "quick", {})
            more.set()
            await load
            return busy, await kernel.execute(ANN, "quick", {})

        busy, free = asyncio.run(main())
        assert busy.data["limit"] == "in_flight"
        assert isinstance(free, Success)
        kernel.close()


@pytest.mark.req("T17")
@pytest.mark.parametrize("limit", ["in_flight", "calls_per_minute"])
def test_every_wire_tells_it_the_same_way(limit):
    """−32003 with when to try again, for tools and resources; over REST 429 with Retry-After."""
    with opened(**{limit: 1}) as app, Wires(app) as wires:
        held = wires.kernel._admission.hold("ann")
        asyncio.run(wires.kernel.execute(ANN, "quick", {}))
        answers = [
            *wires.everywhere("tools/call", {"name": "quick", "arguments": {}}, ANN),
            *wires.everywhere("resources/read", {"uri": "trails://kg/types"}, ANN),
        ]
        replies = [
            wires.rest("POST", "/invoke/quick", {}, ANN),
            wires.rest("GET", "/snapshot", actor=ANN),
            wires.rest("GET", "/branches", actor=ANN),
            wires.rest("GET", "/export", actor=ANN),
            wires.rest("GET", "/kg/Thing", actor=ANN),
        ]
        free = wires.rest("POST", "/invoke/quick", {}, BOB)
        held.release()
    assert len(answers) == 2 * WIRES
    for _, message in answers:
        assert message["error"]["code"] == -32003
        assert message["error"]["data"]["code"] == "budget"
        assert message["error"]["data"]["limit"] == limit
        assert message["error"]["data"]["retry_after"] >= 1
    for reply in replies:
        assert reply.status == 429
        told = reply.message["data"]["retry_after"]
        assert dict(reply.headers)[b"retry-after"] == str(told).encode()
    assert free.status == 200


def test_both_doors_answer_a_refusal_with_the_same_bytes():
    """Nothing but the time to wait could differ, and that is the same at the same time."""
    with opened(in_flight=1) as app, Wires(app) as wires:
        held = wires.kernel._admission.hold("ann")
        for revision in (*LEGACY, MODERN):
            params = {"name": "quick", "arguments": {}}
            fast, slow = wires.by_doors(revision, "tools/call", params, ANN)
            assert fast.body == slow.body
            assert fast.status == slow.status == 200
        held.release()


def test_the_data_of_a_refusal_is_json():
    """Whole numbers stay whole."""
    admission = Admission(Budget(calls_per_minute=1))
    admission.enter(ANN)
    assert '"used": 1,' in json.dumps(admission.enter(ANN).data)
