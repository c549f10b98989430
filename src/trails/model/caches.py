"""Caches: ``LRUCache`` keeps the last values by key, ``VersionedCache`` one version of each value.

``BoundedCache`` is a dict that starts again when it is full.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """Values that are costly to make and can be shared, such as classes made from a schema."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[K, V] = {}
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The cached value of a key, or a new one; the least recently used value is dropped."""
        with self._lock:
            found = self._made.pop(key) if key in self._made else make()
            self._made[key] = found
            if len(self._made) > self._most:
                del self._made[next(iter(self._made))]
        return found


class BoundedCache(dict[K, V]):
    """Values that are read often, added seldom, and quickly found again.

    Reading is that of a dict; setting a value when it is full drops all others.
    """

    def __init__(self, most: int) -> None:
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        """Add a value."""
        if len(self) >= self._most and key not in self:
            self.clear()
        super().__setitem__(key, value)


class VersionedCache(Generic[K, V]):
    """Values that depend on a version which only moves forward; older versions are dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[K, tuple[object, V]] = {}

    def get(self, key: K, version: object, make: Callable[[], V]) -> V:
        """The cached value of a key at this version, or a new one."""
        found = self._made.get(key)
        if found is None or found[0] != version:
            if len(self._made) >= self._most and key not in self._made:
                self._made.clear()
            found = self._made[key] = version, make()
        return found[1]
