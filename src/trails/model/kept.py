"""Kept: the last few things that were made, each under what it was made from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """For what takes long to make and can be shared, such as classes made from a schema."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[K, V] = {}
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """What was made for a key, or is made now; what was used longest ago is let go."""
        with self._lock:
            found = self._made.pop(key) if key in self._made else make()
            self._made[key] = found
            if len(self._made) > self._most:
                del self._made[next(iter(self._made))]
        return found
