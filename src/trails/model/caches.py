"""``LRUCache`` keeps the last values by key; ``VersionedCache`` keeps one version of each value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRUCache(Generic[K, V]):
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


class VersionedCache(Generic[K, V]):
    """For what depends on a version that never comes back: older ones are not kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[K, tuple[object, V]] = {}

    def get(self, key: K, version: object, make: Callable[[], V]) -> V:
        """What was made for a key in this version, or is made now."""
        found = self._made.get(key)
        if found is None or found[0] != version:
            if len(self._made) >= self._most and key not in self._made:
                self._made.clear()
            found = self._made[key] = version, make()
        return found[1]
