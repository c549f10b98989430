r"""Grapheme clusters: where a text can be cut without splitting a character that a reader sees.

A boundary is looked for around the cut only, so the cost does not depend on the length of the
text. A cluster of more than ``REACH`` code points on either side of the cut (a letter with
thousands of accents, an endless run of flags) has no boundary within reach, and is cut between
two code points: what is cut stays a verbatim part of the text.

Boundaries follow Unicode Standard Annex 29, extended grapheme clusters. ``\X`` of the ``regex``
package does not join Indic conjuncts (rule GB9c), so that rule is added here.
"""

from __future__ import annotations

from typing import Final, Protocol

import regex

REACH: Final = 1024
"""Code points that are looked at on each side of a cut."""


class Sliceable(Protocol):
    """A text of which parts can be read: a ``str``, or a long text that is stored in chunks."""

    def __len__(self) -> int:
        """How many code points it has."""
        ...

    def __getitem__(self, part: slice, /) -> str:
        """A part of it."""
        ...


_cluster: Final = regex.compile(r"\X").match
_depends: Final = regex.compile(r"[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=RI}]").match
"""Code points after which the boundary depends on more than the next one (GB9c, GB11 to GB13)."""
_is_linked: Final = regex.compile(
    r"\p{InCB=Consonant}\p{InCB=Extend}*+\p{InCB=Linker}[\p{InCB=Extend}\p{InCB=Linker}]*+"
).fullmatch
_is_consonant: Final = regex.compile(r"\p{InCB=Consonant}").match


def boundary_before(text: Sliceable, at: int) -> int:
    """The last boundary that is not after a place; the place itself if none is within reach."""
    return _around(text, at)[0]


def boundary_after(text: Sliceable, at: int) -> int:
    """The first boundary that is not before a place; the place itself if none is within reach."""
    return _around(text, at)[1]


def _around(text: Sliceable, at: int) -> tuple[int, int]:
    """The cluster that a place is inside of; the place twice if it is a boundary."""
    total = len(text)
    if at <= 0 or at >= total:
        at = min(max(at, 0), total)
        return at, at
    low = max(0, at - REACH)
    near = text[low : at + REACH]
    here = at - low
    start = end = _certain(near, here)
    while end < here:
        start, end = end, _end_of_cluster(near, end)
    if end == here or (start == 0 and low > 0) or (end == len(near) and low + end < total):
        return at, at
    return low + start, low + end


def _certain(near: str, here: int) -> int:
    """The last place, up to ``here``, that is a boundary whatever comes before it."""
    for at in range(here, 0, -1):
        before, after = near[at - 1], near[at]
        if before < "\x7f" and after < "\x7f":
            if before != "\r" or after != "\n":
                return at
        elif _depends(before) is None and _length_of(before + after, 0) == 1:
            return at
    return 0


def _end_of_cluster(near: str, start: int) -> int:
    end = start + _length_of(near, start)
    while end < len(near) and _is_consonant(near, end) and _is_linked(near, start, end):
        start, end = end, end + _length_of(near, end)
    return end


def _length_of(near: str, start: int) -> int:
    found = _cluster(near, start)
    return 1 if found is None else found.end() - start
