"""Many callers at once, while what can be called changes."""

import asyncio
import threading

from tests.request.library import DECLARED

from trails import App, Context, capability
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL
from trails.model.results import Success


def numbered(number: int):
    """A version of a capability that tells its number, and that of the registry it is in."""

    @capability("versions.tell", version=str(number))
    async def tell(ctx: Context) -> dict[str, object]:
        """Tell."""
        await asyncio.sleep(0)
        known = ctx.registry.capabilities["versions.tell"].descriptor.version
        return {"mine": str(number), "pinned": known}

    return tell


def test_each_request_sees_one_registry_snapshot():
    """A handler's context has the registry that the handler itself is from."""
    with App(numbered(0)) as app:
        kernel = kernel_of(app)
        stop, answered = threading.Event(), threading.Event()

        def register():
            for number in range(1, 30):
                answered.clear()
                app.register(numbered(number))
                answered.wait(5)
            stop.set()

        async def call():
            seen = set()
            while not stop.is_set():
                outcome = await kernel.execute(LOCAL, "versions.tell", {})
                assert isinstance(outcome, Success), outcome
                mine, pinned = (
                    part.split(":")[1].strip('"}') for part in outcome.body.decode().split(",")
                )
                assert mine == pinned
                names = [tool.name for tool in kernel.tools(LOCAL).tools]
                assert "versions.tell" in names
                seen.add(mine)
                answered.set()
            return seen

        async def main():
            writer = threading.Thread(target=register)
            writer.start()
            found = await asyncio.gather(*(call() for _ in range(8)))
            writer.join()
            return set().union(*found)

        assert len(asyncio.run(main())) > 3
        kernel.close()


def test_a_request_that_waits_keeps_the_registry_it_began_with():
    """What is registered before its thread is free does not reach it."""

    def tell(number: int):
        @capability("versions.tell", version=str(number))
        def tell(ctx: Context) -> str:
            """Tell."""
            known = ctx.registry.capabilities["versions.tell"].descriptor.version
            return f"{number} {known}"

        return tell

    with App(tell(1)) as app:
        kernel = kernel_of(app)
        hold = threading.Event()
        threads = kernel._threads._pool
        for _ in range(threads._max_workers):
            threads.submit(hold.wait)

        async def main():
            waiting = asyncio.create_task(kernel.execute(LOCAL, "versions.tell", {}))
            await asyncio.sleep(0.01)
            app.register(tell(2))
            hold.set()
            return await waiting, await kernel.execute(LOCAL, "versions.tell", {})

        first, second = asyncio.run(main())
        assert (first.body, second.body) == (b'{"result":"1 1"}', b'{"result":"2 2"}')
        kernel.close()


def test_calls_from_many_tasks_do_not_meet():
    """Each gets its own answer, in threads and on the loop, reads and writes mixed."""
    with App(*DECLARED) as app:
        kernel = kernel_of(app)

        async def one(number: int) -> tuple[bytes, bytes, bytes]:
            book = {"isbn": f"{number:04}", "title": f"Title {number}"}
            made, counted, rated = await asyncio.gather(
                kernel.execute(LOCAL, "books.add", {"book": book}),
                kernel.execute(LOCAL, "books.shelve", {"count": number}),
                kernel.execute(LOCAL, "books.rate", {"stars": number % 5 + 1}),
            )
            return made.body, counted.body, rated.body

        async def main():
            return await asyncio.gather(*(one(number) for number in range(60)))

        for number, (made, counted, rated) in enumerate(asyncio.run(main())):
            assert f'"title":"Title {number}"'.encode() in made
            assert counted == b'{"result":%d}' % number
            assert b'"stars":%d' % (number % 5 + 1) in rated
        found = [each for _, each in app.graph().activities.read()]
        assert len(found) == 180
        assert {each.outcome for each in found} == {"ok"}
        kernel.close()


def test_listeners_are_told_on_the_loop_when_the_registry_changes():
    """From whichever thread it is changed; no more once they have ended."""
    with App() as app:
        kernel = kernel_of(app)
        told: list[int] = []

        async def main():
            end = kernel.listen(lambda: told.append(threading.get_ident()))
            await asyncio.to_thread(app.register, numbered(1))
            await asyncio.sleep(0.01)
            end()
            await asyncio.to_thread(app.register, numbered(2))
            await asyncio.sleep(0.01)

        before = kernel.tools(LOCAL)
        asyncio.run(main())
        assert told == [threading.get_ident()]
        after = kernel.tools(LOCAL)
        assert before.version != after.version
        assert "versions.tell" in {tool.name for tool in after.tools}
        kernel.close()


def test_a_call_costs_the_same_however_many_tools_there_are():
    """The catalog is made once a registry, and asked for a name: nothing else is looked at."""

    def many(number: int):
        @capability(f"many.tool{number}")
        async def tool(ctx: Context) -> int:
            """One of many."""
            return number

        return tool

    with App(*(many(number) for number in range(200))) as app:
        kernel = kernel_of(app)
        first = kernel._pin()
        for number in (0, 199):
            asyncio.run(kernel.execute(LOCAL, f"many.tool{number}", {}))
        assert kernel._pin() is first
        assert kernel.tools(LOCAL) is kernel.tools(LOCAL)
        kernel.close()
