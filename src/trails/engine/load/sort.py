"""Sort more lines than memory holds: sorted runs on disk, merged as they are read."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO, Final

RUN: Final = 32 * 2**20
_RUNS: Final = 64
"""Files open at once; as many runs are merged into one."""


def sorted_lines(blocks: Iterable[bytes], run: int = RUN) -> Iterator[bytes]:
    """The lines of a text in byte order, each once, without their ends."""
    with ExitStack() as stack:
        runs: list[IO[bytes]] = []
        lines: list[bytes] = []
        size, begun = 0, list[bytes]()
        for block in blocks:
            size += len(block)
            begun.append(block)
            if b"\n" not in block:
                continue
            lines += b"".join(begun).split(b"\n")
            begun = [lines.pop()]
            if size >= run:
                runs.append(_written(stack, sorted(lines)))
                lines, size = [], 0
                if len(runs) >= _RUNS:
                    runs = [_written(stack, heapq.merge(*map(_lines_of, runs)))]
        if rest := b"".join(begun):
            lines.append(rest)
        last = b""
        for line in heapq.merge(*map(_lines_of, runs), sorted(lines)):
            if line != last:
                yield line
            last = line


def _written(stack: ExitStack, lines: Iterable[bytes]) -> IO[bytes]:
    file = stack.enter_context(TemporaryFile())  # noqa: SIM115 - closed with the stack
    file.writelines(line + b"\n" for line in lines)
    file.seek(0)
    return file


def _lines_of(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        for line in file:
            yield line[:-1]
