"""How the program starts: without looking for garbage, because there is none yet.

Memory of a server that runs for long: what was used for large requests is given back.

The C library gives each thread a pool of its own and keeps what was freed in it. A server
with many threads would come to hold many times what it needs.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final


@contextmanager
def uncollected() -> Iterator[None]:
    """Make what is there for good: modules, classes, tables.

    The collector would look through all of it again and again, which takes a sixth of the
    time that the imports of a server take; afterwards it never looks at it any more.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


_ARENA_MAX: Final = -8  # of glibc's mallopt
_MMAP_THRESHOLD: Final = -3  # likewise
_LARGE: Final = 256 << 10
"""Bytes from which memory is taken from the system alone, and given back alone."""
_PAUSE: Final = 5.0
"""Seconds between two looks; one takes some milliseconds of a thread."""


def share_pools() -> None:
    """Let all threads share two pools; before there are any."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # a C library without it does as it does
            library = ctypes.CDLL(None)
            library.mallopt(_ARENA_MAX, 2)
            library.mallopt(_MMAP_THRESHOLD, _LARGE)


async def give_back() -> None:
    """Give what is free back to the system, again and again."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    while True:
        await asyncio.sleep(_PAUSE)
        await asyncio.to_thread(trim, 0)
