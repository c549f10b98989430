"""LogSums: what the statements of each state in the log add up to.

A commit's statements are a step from its first parent, so its sum is that of its parent, without
what it removes, with what it adds. Each commit is read once, for all branches and snapshots, and
leaves sixteen bytes. ``trails.views.sums`` says what a sum is worth.
"""

from __future__ import annotations

from array import array
from typing import IO, Final

from trails.engine.graph.folding import Folding
from trails.errors import CorruptionError
from trails.log.protocol import Log
from trails.model.fairness import with_pauses
from trails.model.history import Commit
from trails.views.sums import MODULUS, StateSum, sum_of_lines
from trails.views.terms import stored_form

_BLOCK: Final = 1 << 20


class LogSums:
    """The sums of one log, each worked out when it is asked for."""

    def __init__(self, log: Log, folding: Folding) -> None:
        self._log = log
        self._folding = folding
        self._logged = array("Q", [0])
        """By place in the log; 0 is the state before the first commit."""
        self._stored = array("Q", [0])

    def at(self, commit: str) -> StateSum:
        """The sum of the state at a commit."""
        place = self._folding.ancestry.place(commit)
        if place >= len(self._logged):
            known = len(self._logged) - 1
            for each in with_pauses(self._log.commits(known, place)):
                self._add(each)
        return StateSum(self._logged[place], self._stored[place])

    def _add(self, commit: Commit) -> None:
        before = self._folding.ancestry.place(commit.first_parent)
        logged, stored = self._logged[before], self._stored[before]
        with self._folding.statements(commit) as (removed, added):
            for stream, sign in ((removed, -1), (added, 1)):
                gained = _sum_of(stream)
                logged += sign * gained.logged
                stored += sign * gained.stored
        self._logged.append(logged % MODULUS)
        self._stored.append(stored % MODULUS)


def _sum_of(stream: IO[bytes]) -> StateSum:
    logged = stored = 0
    rest = b""
    while block := stream.read(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        gained = sum_of_lines(lines)
        logged += gained
        text = b"\n".join([*lines, b""])
        expanded = stored_form(text)
        if expanded is not text:
            gained = sum_of_lines(expanded.splitlines())
        stored += gained
    if rest:
        raise CorruptionError("the log is damaged: the statements of a commit end in the middle")
    return StateSum(logged, stored)
