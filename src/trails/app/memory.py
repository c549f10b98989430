"""Memory of a long-running server: no garbage collection during start, and memory given back.

The C library gives each thread its own pool and keeps freed memory in it, so a server with
many threads would hold many times what it needs.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from trails.imports import later

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = later("ctypes")


@contextmanager
def without_gc() -> Iterator[None]:
    """Import without garbage collection, then exempt everything imported from it.

    The collector would scan modules, classes and tables repeatedly, a sixth of the import time of
    a server.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


_ARENA_MAX: Final = -8  # a parameter of glibc's mallopt
_MMAP_THRESHOLD: Final = -3  # likewise
_LARGE: Final = 256 << 10
"""Blocks from this size on are taken from the system directly, and given back directly."""
_PAUSE: Final = 5.0
"""Seconds between two trims; one takes a thread some milliseconds."""


def limit_pools() -> None:
    """Limit all threads to two pools; call it before there are any."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # not glibc
            library = ctypes.CDLL(None)
            library.mallopt(_ARENA_MAX, 2)
            library.mallopt(_MMAP_THRESHOLD, _LARGE)


async def trim_memory() -> None:
    """Give free memory back to the system, periodically."""
    import asyncio  # noqa: PLC0415 - half of what `trails --help` would import

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    while True:
        await asyncio.sleep(_PAUSE)
        await asyncio.to_thread(trim, 0)
