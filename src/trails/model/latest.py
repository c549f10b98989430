"""Latest: what was made for each of many, as long as it is what would be made now."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Latest(Generic[K, V]):
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
