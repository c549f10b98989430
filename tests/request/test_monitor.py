"""A disk that does not answer: the server is not ready, and nothing else waits."""

import asyncio
import threading

from trails.model.metrics import GraphMetrics
from trails.model.results import Health
from trails.request import monitor
from trails.request.monitor import Monitor


class HangingGraph:
    """A graph whose files can't be read until they can."""

    status = "ok"
    folder = None
    lacks_disk = False
    log_answers = True

    def __init__(self):
        self.answers = threading.Event()
        self.asked = 0

    def caught_up(self):
        """Read from the disk."""
        self.asked += 1
        return self.answers.wait(60)

    def administers(self, actor):
        """Nobody does."""
        return False

    def measure(self):
        """Nothing happened."""
        return GraphMetrics(graph="main")


def test_a_disk_that_hangs_keeps_one_thread(monkeypatch):
    """However often health is asked for; when the disk answers again, so does the server."""
    monkeypatch.setattr(monitor, "_PATIENCE", 0.02)
    monkeypatch.setattr(monitor, "_FRESH", 0.0)
    graph = HangingGraph()

    async def run():
        watched = Monitor({"main": graph})
        found = [await watched.health() for _ in range(5)]
        assert set(found) == {Health("read_only", ("disk",))}
        assert graph.asked == 1
        graph.answers.set()
        async with asyncio.timeout(60):
            while await watched.health() != Health("ok"):
                pass  # each examination waits for a moment

    asyncio.run(run())


def test_many_who_ask_at_once_get_one_examination():
    """Also if one of them leaves while it goes on."""
    graph = HangingGraph()

    async def run():
        watched = Monitor({"main": graph})
        asking = [asyncio.create_task(watched.health()) for _ in range(50)]
        await asyncio.sleep(0)
        asking[0].cancel()
        graph.answers.set()
        found = await asyncio.gather(*asking[1:])
        assert set(found) == {Health("ok")}
        assert graph.asked == 1

    asyncio.run(run())
