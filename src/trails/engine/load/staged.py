"""A file that was read before anybody had to wait for it: its nodes, on disk.

Decompressing, parsing and what can be checked without the graph happen here, before the
writer's lock is taken. Few nodes stay in memory; many go to a temporary file.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Final, Self

import msgspec

from trails.engine.load.ends import Ends
from trails.engine.load.items import Item, Problems
from trails.engine.load.spool import Spool
from trails.engine.write.pending import CHUNK
from trails.log.storage import storage_errors
from trails.model.iris import Names
from trails.model.types import Schema

_astuple = msgspec.structs.astuple
_LARGE: Final = 16 << 20
"""Characters, or members of lists, after which no more nodes are taken at once."""


def _chunk(items: Iterator[Item]) -> list[Item]:
    """The next nodes: so many, or fewer where they are large."""
    chunk: list[Item] = []
    size = 0
    for item in islice(items, CHUNK):
        chunk.append(item)
        for value in item.values.values():
            if isinstance(value, str | list | tuple):
                size += len(value)
        if size >= _LARGE:
            break
    return chunk


class Staged:
    """The nodes of a file, what edge lines say about them, and what is wrong with it."""

    def __init__(
        self, schema: Schema, names: Names, *, place: str = "line", statements: bool = False
    ) -> None:
        """``place`` is what the file consists of; ``statements``: the nodes come from RDF."""
        self.schema = schema
        self.names = names
        self.place = place
        self.statements = statements
        self.ends = Ends(schema, names)
        self.problems = Problems()
        self.count = 0
        """How many nodes there are."""
        self._few: list[Item] = []
        self._many: IO[bytes] | None = None
        self._stack = ExitStack()
        self.spool = Spool()
        self._stack.callback(self.spool.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fill(self, items: Iterable[Item]) -> None:
        """Take all nodes, as long as the list of what is wrong is not full."""
        stream = iter(items)
        while not self.problems.full and (chunk := _chunk(stream)):
            self.count += len(chunk)
            if self._few:
                self._keep(self._few)
            self._few = chunk

    def _keep(self, chunk: list[Item]) -> None:
        with storage_errors("keep what is loaded"):
            if self._many is None:
                self._many = self._stack.enter_context(TemporaryFile())  # noqa: SIM115
            pickle.dump([_astuple(item) for item in chunk], self._many, pickle.HIGHEST_PROTOCOL)

    def chunks(self) -> Iterator[list[Item]]:
        """All nodes, some at a time; to be read once."""
        if self._many is not None:
            with storage_errors("read what is loaded"):
                end = self._many.tell()
                self._many.seek(0)
            while self._many.tell() < end:
                with storage_errors("read what is loaded"):
                    some = pickle.load(self._many)  # noqa: S301 - nobody else has this file
                yield [Item(*each) for each in some]
        if self._few:
            yield self._few
