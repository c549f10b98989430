"""Small pieces of English for messages: counts and articles."""

from __future__ import annotations

import re

_LONG_U = re.compile(r"[Uu][^aeiou][aeiou]|[Ee]u")
"""A first vowel that is spoken like "you", as in User, Unit and European."""


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 commit``, ``2 commits``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def with_article(noun: str) -> str:
    """``a Task``, ``an Artifact``, ``a User``."""
    spoken_vowel = noun[:1] in "AEIOUaeiou" and not _LONG_U.match(noun)
    return f"{'an' if spoken_vowel else 'a'} {noun}"
