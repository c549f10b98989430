"""How the program starts: without looking for garbage, and with few places for memory."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_ARENA_MAX: Final = -8  # M_ARENA_MAX of glibc's mallopt


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


def share_arenas() -> None:
    """Let all threads of a server share two pools of memory.

    The C library would give each thread its own, and what a large request used in one stays
    there: a server with many threads would hold many times what it needs.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # a C library without it does as it does
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)
