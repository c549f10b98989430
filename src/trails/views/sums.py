"""Sums of statements: one number for a set of them, in whatever order they come.

Equal sets have equal sums, and statements can be added and taken away one by one. So what the
commits of a log add up to can be compared with what a view holds, and neither has to be built again
or kept in memory. A statement counts as the hash that Python has for bytes: SipHash with a key that
each process draws for itself, modulo 2^64. Sums differ by chance for all but one of 2^64 wrong
sets, and nobody can aim at one without the key. They mean nothing to another process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

MODULUS: Final = 2**64
_BLOCK: Final = 1 << 20


def sum_of_lines(lines: Iterable[bytes]) -> int:
    """The sum of statements."""
    return sum(map(hash, lines)) % MODULUS


def sum_of_rows(rows: Iterable[tuple[bytes | str]]) -> int:
    """The sum of rows of one column, which has all that tells them apart.

    A row of several columns must not be summed: the hash of a tuple is too simple for that.
    """
    return sum(map(hash, rows)) % MODULUS


class StateSum(NamedTuple):
    """The sums of all statements of a state."""

    logged: int
    """As the log has them."""
    stored: int
    """As stores have them: with the cells of ordered lists."""


class StatementSum:
    """A file that keeps nothing of the N-Quads that are written to it but their sum."""

    def __init__(self, apart: bytes = b"") -> None:
        """``apart``: how statements begin that are kept in ``others``, and not added."""
        self.total = 0
        self.count = 0
        self.others: list[bytes] = []
        self._apart = apart
        self._waiting: list[bytes] = []
        self._size = 0

    def write(self, block: bytes) -> int:
        """Take a block of text; it may end within a statement."""
        self._waiting.append(bytes(block))
        self._size += len(block)
        if self._size >= _BLOCK:
            self._add()
        return len(block)

    def flush(self) -> None:
        """Nothing is to be done before ``finish``."""

    def finish(self) -> None:
        """Add what is left."""
        self.write(b"\n")
        self._add()

    def _add(self) -> None:
        text = b"".join(self._waiting)
        *lines, last = text.split(b"\n")
        if self._apart and self._apart in text:
            self.others += [line for line in lines if line.startswith(self._apart)]
            lines = [line for line in lines if not line.startswith(self._apart)]
        lines = list(filter(None, lines))
        self._waiting, self._size = [last], len(last)
        self.total = (self.total + sum_of_lines(lines)) % MODULUS
        self.count += len(lines)
