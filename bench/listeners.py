"""``python -m bench.listeners PORT COUNT``: many subscribers, each on its own connection.

Prints a line when all are acknowledged; then, for each line that it reads, when each of
them was told last, on the clock that all processes share.
"""

from __future__ import annotations

import asyncio
import sys
from time import monotonic
from typing import Final, cast

import msgspec
import uvloop

from bench.serving.requests import modern

ABREAST: Final = 50
"""So many subscribe at a time."""
PATH: Final = "/graphs/main/mcp"
REQUEST: Final = modern(
    PATH,
    "subscriptions/listen",
    {"notifications": {"resourceSubscriptions": ["trails://kg/Part"]}},
)


class Listener(asyncio.Protocol):
    """One subscriber."""

    def __init__(self, acknowledged: asyncio.Future[None]) -> None:
        self._acknowledged = acknowledged
        self.told_at = 0.0
        self.told = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Subscribe."""
        cast(asyncio.Transport, transport).write(REQUEST)

    def data_received(self, data: bytes) -> None:
        """Be told."""
        if self._acknowledged.done():
            self.told_at = monotonic()
            self.told += data.count(b"resources/updated")
        elif b"acknowledged" in data:
            self._acknowledged.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """A subscriber that is dropped spoils the measurement."""
        if not self._acknowledged.done():
            self._acknowledged.set_exception(exc or ConnectionError("the server hung up"))


async def main(port: int, count: int) -> None:
    """Subscribe, and report when asked."""
    loop = asyncio.get_running_loop()
    listeners: list[Listener] = []
    for start in range(0, count, ABREAST):
        acknowledged = [loop.create_future() for _ in range(min(ABREAST, count - start))]
        for each in acknowledged:
            listener = Listener(each)
            await loop.create_connection(lambda one=listener: one, "127.0.0.1", port)  # type: ignore[misc]
            listeners.append(listener)
        await asyncio.wait_for(asyncio.gather(*acknowledged), 60)
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        times = [(each.told_at, each.told) for each in listeners]
        print(msgspec.json.encode(times).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
