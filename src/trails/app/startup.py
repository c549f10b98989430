"""How the program starts: without looking for garbage, because there is none yet."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
