"""Run a server until it ends or a signal arrives."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress

from trails.app.memory import limit_pools
from trails.files import set_private_umask

Progress = Callable[[str], None]


def run_until_signal(
    serve: Callable[[], Coroutine[object, object, None]],
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> int:
    """Run until the server ends or a signal arrives; return the signal's number, or 0."""
    set_private_umask()
    limit_pools()
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(_until_signal(serve))


async def _until_signal(serve: Callable[[], Coroutine[object, object, None]]) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(serve())
    received = [0]

    def stop(number: int) -> None:
        """Stop gracefully; a second signal has its default effect."""
        received[0] = number
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
        task.cancel()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop, each)
    with suppress(asyncio.CancelledError):
        await task
    return received[0]
