"""What was made for an older version is not kept."""

from __future__ import annotations

import gc
import weakref

from trails.model.caches import VersionedCache


class Made:
    """Something that can be seen to go."""


def test_an_older_version_is_let_go() -> None:
    """As soon as the next one is asked for; what is asked again is not made again."""
    latest: VersionedCache[str, Made] = VersionedCache(10)
    first = latest.get("a", 1, Made)
    assert latest.get("a", 1, Made) is first
    gone = weakref.ref(first)
    del first
    for version in range(2, 50):
        latest.get("a", version, Made)
    gc.collect()
    assert gone() is None
    assert len(latest._made) == 1


def test_there_are_never_more_than_allowed() -> None:
    """Whoever asks; a new version of one that is kept pushes no other out."""
    latest: VersionedCache[int, Made] = VersionedCache(10)
    kept = [latest.get(key, 1, Made) for key in range(10)]
    latest.get(3, 2, Made)
    assert latest.get(4, 1, Made) is kept[4]
    for key in range(100):
        latest.get(key, 1, Made)
        assert len(latest._made) <= 10
