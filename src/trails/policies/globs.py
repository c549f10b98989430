"""Patterns of ``like``: which names each matches, and names for every way to match some.

A policy that speaks of a branch that is yet to be made permits *some* name or none. Names
are infinitely many, but patterns tell only so many kinds of them apart; one valid name of
each kind is found by walking all patterns at once, letter by letter.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final

from trails.errors import DeclarationError
from trails.model.names import LONGEST_BRANCH, check_branch_name

Glob = tuple[str | None, ...]
"""The characters of a pattern; None is ``*``."""

_LETTERS: Final = ascii_lowercase + ascii_uppercase + digits
_REFUSED: Final[Glob] = (None, *".lock")
"""How no branch may end; so that the walk can tell, it walks along this as well."""
_MOST: Final = 2000
"""States of a walk; patterns that need more are not told apart."""


@lru_cache(maxsize=1024)
def compile_glob(glob: Glob) -> re.Pattern[str]:
    """The pattern as a regular expression, for ``fullmatch``."""
    return re.compile(
        "".join(".*" if each is None else re.escape(each) for each in glob), re.DOTALL
    )


@lru_cache(maxsize=256)
def names_of_each_kind(globs: frozenset[Glob]) -> tuple[str, ...] | None:
    """A branch name for every set of patterns that some name matches; None if there are too many.

    Every other name matches the same patterns as one of these.
    """
    walks = [_Walk(each) for each in (*sorted(globs, key=repr), _REFUSED)]
    begin = tuple(each.begin for each in walks)
    todo: deque[tuple[str, tuple[int, ...]]] = deque([("", begin)])
    seen = {(begin, _tail(""))}
    found: dict[tuple[bool, ...], str] = {}
    while todo:
        name, state = todo.popleft()
        ends = tuple(walk.ends(at) for walk, at in zip(walks, state, strict=True))
        if ends not in found and is_branch_name(name):
            found[ends] = name
        for letter in _next_letters(walks, state):
            longer = name + letter
            if not _may_follow(name, letter):
                continue
            after = tuple(walk.step(at, letter) for walk, at in zip(walks, state, strict=True))
            if (after, _tail(longer)) not in seen:
                seen.add((after, _tail(longer)))
                todo.append((longer, after))
        if len(seen) > _MOST:
            return None
    return tuple(found.values())


def is_branch_name(name: str) -> bool:
    """Whether a branch can be called so."""
    try:
        check_branch_name(name)
    except DeclarationError:
        return False
    return True


class _Walk:
    """A pattern as a set of places in it, one bit each, where a walk may stand."""

    def __init__(self, glob: Glob) -> None:
        self._stars = sum(1 << at for at, each in enumerate(glob) if each is None)
        self._places: dict[str, int] = {}
        for at, each in enumerate(glob):
            if each is not None:
                self._places[each] = self._places.get(each, 0) | 1 << at
        self._end = 1 << len(glob)
        self.begin = self._pass_stars(1)

    def _pass_stars(self, state: int) -> int:
        """A star may match nothing."""
        while (further := state | (state & self._stars) << 1) != state:
            state = further
        return state

    def step(self, state: int, letter: str) -> int:
        """Where a walk may stand after one more letter."""
        advanced = (state & self._places.get(letter, 0)) << 1
        return self._pass_stars(advanced | state & self._stars)

    def ends(self, state: int) -> bool:
        """Whether the pattern may end here."""
        return bool(state & self._end)

    def letters(self, state: int) -> Iterator[str]:
        """What would lead further than a letter that no pattern has."""
        return (letter for letter, places in self._places.items() if state & places)


def _next_letters(walks: list[_Walk], state: tuple[int, ...]) -> list[str]:
    """The letters that matter here, and one that stands for all others."""
    matter = {letter for walk, at in zip(walks, state, strict=True) for letter in walk.letters(at)}
    other = next((each for each in _LETTERS if each not in matter), "")
    return [*sorted(matter), other] if other else sorted(matter)


def _may_follow(name: str, letter: str) -> bool:
    """Whether a branch name may go on so; its end is judged by itself."""
    if len(name) >= LONGEST_BRANCH:
        return False
    if letter in _LETTERS:
        return True
    tail = _tail(name)
    return letter in "._-/" and tail != "/" and not (tail == letter == ".")


def _tail(name: str) -> str:
    """What of a beginning decides how it may go on: a part must not begin with a sign."""
    if not name:
        return "/"
    return name[-1] if name[-1] in "/." else ""
