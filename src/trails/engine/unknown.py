"""What is said of branches and commits that do not exist.

The same is said of those that exist and that a caller may not use: ``known`` are the names
that it may be told.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from trails.errors import NotFoundError

PREFIX: Final = 8
"""Digits of a commit's id that suffice where they are unique."""
_SHOWN: Final = 40
"""Branches that a message offers at most."""


def unknown_branch(name: str, known: Collection[str], more: str = "") -> NotFoundError:
    """There is no such branch."""
    told = f"there is no branch {name[:100]!r}; {_hint(name, known)}{more}"
    return NotFoundError(told, branch=name[:100])


def unknown_reference(reference: str, known: Collection[str]) -> NotFoundError:
    """There is no branch or commit of that name."""
    told = f"there is no branch or commit {reference[:100]!r}; {_hint(reference, known)}"
    return NotFoundError(told, reference=reference[:100])


def unknown_commit(reference: str) -> NotFoundError:
    """There is no such commit."""
    return NotFoundError(
        f"there is no commit {reference[:100]!r}; give an id, or at least its first "
        f"{PREFIX} digits, from the list of commits",
        commit=reference[:100],
    )


def _hint(name: str, known: Collection[str]) -> str:
    if not known:
        return "there is none"
    near = get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    more = " and more" if len(known) > _SHOWN else ""
    return f"there are {', '.join(sorted(known)[:_SHOWN])}{more}"
