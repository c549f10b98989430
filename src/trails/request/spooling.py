"""Streams between the event loop and the engine: taken to disk, or made in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from trails.log.storage import storage_errors

_BLOCK: Final = 1 << 20


async def spool(body: AsyncIterator[bytes], suffix: str, folder: Path | None) -> Path:
    """What is sent, in a file that the caller removes; memory holds one block of it.

    ``folder`` is where, so that what a killed process leaves is found; None: with the system's.
    """
    with storage_errors("keep what is sent"):
        file = NamedTemporaryFile(  # noqa: SIM115 - closed below
            prefix="trails-", suffix=suffix, dir=folder, delete=False
        )
    path = Path(file.name)
    try:
        with file:
            waiting = bytearray()
            async for block in body:
                waiting += block
                if len(waiting) >= _BLOCK:
                    await asyncio.to_thread(_write, file, waiting)
                    waiting.clear()
            await asyncio.to_thread(_write, file, waiting)
    except BaseException:
        drop(path)
        raise
    return path


def drop(path: Path) -> None:
    """Remove a file that was kept."""
    path.unlink(missing_ok=True)


def _write(file: IO[bytes], data: bytearray) -> None:
    with storage_errors("keep what is sent"):
        file.write(data)
        file.flush()


async def stream(blocks: Generator[bytes, None, None]) -> AsyncGenerator[bytes, None]:
    """Blocks that are made in a thread of their own, until nobody reads on."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "trails-export")
    try:
        while block := await loop.run_in_executor(thread, partial(next, blocks, b"")):
            yield block
    finally:
        # In the same thread, so after the block that may just be being made.
        await asyncio.shield(loop.run_in_executor(thread, blocks.close))
        thread.shutdown(wait=False)
