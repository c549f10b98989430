"""The quads view: Oxigraph holding one branch, for SPARQL.

The position in the log is a statement in a named graph of its own, moved in the
same update as the data: an apply is atomic or did not happen. A large commit is
loaded in bulk instead, before its position is written; loading it again after a
crash adds the same statements and changes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import pyoxigraph as ox

from trails.errors import StorageError
from trails.log.storage import full, storage_errors
from trails.model.history import Position
from trails.model.iris import TRAILS

_META: Final = f"<{TRAILS}view>"
_POSITION: Final = f"<{TRAILS}position>"
BULK: Final = 20_000
"""Statements from which a bulk load beats one update."""


class QuadsView:
    """One Oxigraph store, in a folder or in memory, and how far it has followed the log."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._store = self._open()
        self.position = self._read_position()

    def _open(self) -> ox.Store:
        if self._folder is None:
            return ox.Store()
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            return ox.Store(self._folder)
        except (OSError, ValueError):
            # A view is a copy: one that can't be opened is rebuilt from the log.
            shutil.rmtree(self._folder, ignore_errors=True)
            with storage_errors("open the quads view"):
                return ox.Store(self._folder)

    def _read_position(self) -> Position:
        found = list(
            self._store.quads_for_pattern(
                ox.NamedNode(TRAILS + "view"),
                ox.NamedNode(TRAILS + "position"),
                None,
                ox.NamedNode(TRAILS + "view"),
            )
        )
        texts = [quad.object.value for quad in found if isinstance(quad.object, ox.Literal)]
        return Position.parse(texts[0]) if len(texts) == 1 else Position(0, "")

    @property
    def store(self) -> ox.Store:
        """The store, for reading."""
        return self._store

    def apply(self, position: Position, removed: bytes, added: bytes) -> None:
        """Apply one commit atomically, position included."""
        with self._errors():
            self._store.update(
                f"DELETE DATA {{ {removed.decode()} GRAPH {_META} "
                f"{{ {_META} {_POSITION} {ox.Literal(str(self.position))} }} }} ;\n"
                f"INSERT DATA {{ {added.decode()} GRAPH {_META} "
                f"{{ {_META} {_POSITION} {ox.Literal(str(position))} }} }}"
            )
        self.position = position

    def apply_stream(
        self, position: Position, removed: IO[bytes], added: IO[bytes], count: int
    ) -> None:
        """Apply one commit of any size; after a crash in the middle it can be applied again."""
        if count <= BULK:
            self.apply(position, removed.read(), added.read())
            return
        with self._errors():
            for lines in _batches(removed):
                self._store.update(f"DELETE DATA {{ {lines} }}")
            self._store.bulk_load(added, format=ox.RdfFormat.N_QUADS, lenient=True)
        self.apply(position, b"", b"")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if "space" in str(error) or "too large" in str(error).lower():
                raise full("update the quads view") from error
            raise StorageError(f"can't update the quads view: {error}") from error

    def query(
        self, text: str, prefixes: Mapping[str, str]
    ) -> ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples:
        """Run SPARQL text; the default graph is the data."""
        return self._store.query(text, prefixes=dict(prefixes))

    def reopen(self) -> None:
        """Open again after the store refused to go on (RocksDB stops at a full disk)."""
        if self._folder is not None:
            del self._store
            self._store = self._open()
            self.position = self._read_position()

    def clear(self) -> None:
        """Forget everything; the log will be applied from its start."""
        if self._folder is None:
            self._store = ox.Store()
        else:
            del self._store
            shutil.rmtree(self._folder, ignore_errors=True)
            self._store = self._open()
        self.position = Position(0, "")

    def data(self) -> Iterator[ox.Quad]:
        """Every statement of the branch, the view's own left out."""
        return self._store.quads_for_pattern(None, None, None, ox.DefaultGraph())

    def close(self) -> None:
        """Let go of the files."""
        if self._folder is not None:
            with self._errors():
                self._store.flush()
        del self._store


def _batches(lines: IO[bytes], size: int = 5_000) -> Iterator[str]:
    batch: list[bytes] = []
    for line in lines:
        batch.append(line)
        if len(batch) >= size:
            yield b"".join(batch).decode()
            batch.clear()
    if batch:
        yield b"".join(batch).decode()
