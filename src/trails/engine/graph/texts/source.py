"""TextSource: where text indexes get their texts from, and how they learn what commits touch.

Texts are read from the node index, which follows each commit before text indexes do. What a commit
touches is read from its statements in the log. Needs no lock but those of the node index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from trails.engine.graph.folding import Folding, Refold
from trails.engine.graph.texts.fields import (
    Key,
    Predicates,
    StatementScan,
    Text,
    TextField,
    Touch,
    searched_keys,
    text_fields,
)
from trails.imports import later
from trails.log.payloads import Payload
from trails.model.fairness import give_way
from trails.model.history import Commit
from trails.model.iris import Names
from trails.model.types import Schema
from trails.views.base import Reference
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex

if TYPE_CHECKING:
    from trails.views.text import index as text_index
    from trails.views.text.index import TextIndex
else:
    text_index = later("trails.views.text.index")

Texts = Mapping[str, Text | None]
"""Handle → text; None where a node has none, or is not there."""

_FEW: Final = 64
_MANY: Final = 1_000
"""Nodes that are read at once, at first and at most."""
_MUCH: Final = 4 << 20
"""Characters of texts from which fewer nodes are read."""


class TextSource:
    """The texts of one graph."""

    def __init__(self, folding: Folding, names: Names) -> None:
        self.ancestry: Final = folding.ancestry
        self._folding = folding
        self._names = names
        self._scan = StatementScan(names)

    def fields(self, schema: Schema) -> Mapping[Key, TextField]:
        """The searched fields of a schema."""
        return text_fields(schema, self._names)

    def keys_at(self, digest: str) -> set[Key]:
        """Which fields of a stored schema are searched."""
        return {*searched_keys(self._folding.compiled(digest).schema)}

    def fields_at(self, digest: str) -> Mapping[Key, TextField]:
        """The same of a stored schema."""
        return self.fields(self._folding.compiled(digest).schema)

    # --- texts -----------------------------------------------------------------------------

    def read(self, nodes: NodeIndex, field: TextField, handles: Sequence[str]) -> Texts:
        """The texts of some nodes."""
        found: dict[str, Text | None] = {}
        for some in self.read_parts(nodes, field, handles):
            found.update(some)
        return found

    @staticmethod
    def read_parts(nodes: NodeIndex, field: TextField, handles: Sequence[str]) -> Iterator[Texts]:
        """The same, as much at a time as memory should hold."""
        size, at = _FEW, 0
        while at < len(handles):
            some = handles[at : at + size]
            with nodes.file.reader() as db:
                found = nodes.find_all(db, some)
            texts = {
                each: field.text_of(stored.state) if (stored := found.get(each)) else None
                for each in some
            }
            yield texts
            at += size
            size = _next_size(size, texts)
            give_way()

    @staticmethod
    def pages(nodes: NodeIndex, field: TextField) -> Iterator[Mapping[str, Text]]:
        """All texts of a field, some at a time; none are left out that were there at the start."""
        size, after = _FEW, 0
        while True:
            with nodes.file.reader() as db:
                page = nodes.page(db, field.type, after, size)
            if not page:
                return
            after = page[-1].nid
            texts = ((each.state.handle, field.text_of(each.state)) for each in page)
            found = {handle: text for handle, text in texts if text is not None}
            yield found
            size = _next_size(size, found)
            give_way()

    def index_once(self, nodes: NodeIndex, field: TextField) -> TextIndex:
        """An index in memory for one search."""
        index = text_index.TextIndex(None, field.analyzer)
        for page in self.pages(nodes, field):
            index.fill(page.items())
        index.flush()
        return index

    # --- commits ---------------------------------------------------------------------------

    def touched_between(self, start: str, end: str, wanted: Predicates) -> Iterator[Touch]:
        """The texts that commits between two states touch."""
        path = self.ancestry.path(start, end)
        for commit in (*path.undo, *path.redo):
            yield from self.touched_by(commit, wanted)

    def touched_by(
        self, commit: Commit, wanted: Predicates, payload: Payload | None = None
    ) -> Iterator[Touch]:
        """The texts that a commit touches, whose statements may still be at hand."""
        with self._folding.statements(commit, payload) as parts:
            for part in parts:
                yield from self._scan.touches(part, wanted)

    # --- the log, as nodes -----------------------------------------------------------------

    @contextmanager
    def as_logged(
        self, reference: Reference, nodes: NodeIndex, progress: Callable[[str], None]
    ) -> Iterator[NodeFile]:
        """Nodes as the log has them: those of a node index, if it is proven, or a fold.

        That is filled up to where the node index is, unless it has been.
        """
        if reference.nodes_proven:
            with nodes.file.pinned() as pinned:
                yield pinned
            return
        path = reference.folder / "nodes.db"
        is_filled = path.exists()
        with closing(NodeFile(path, nodes.file.schema_of)) as fresh:
            if not is_filled:
                refold = Refold(self.ancestry, self._folding, self._folding.compiled)
                refold.fold(fresh, nodes.position.commit, {}, progress)
            yield fresh

    def use_own_schema(self, nodes: NodeIndex) -> None:
        """Read a node index with the types of the commit that it is at."""
        digest = self.ancestry.schema_at(nodes.position.commit)
        nodes.follow(self._folding.compiled(digest).schema)


def length_of(texts: Texts) -> int:
    """How many characters texts have."""
    return sum(
        len(each) if isinstance(each, str) else sum(map(len, each or ())) for each in texts.values()
    )


def _next_size(size: int, texts: Texts) -> int:
    """How many nodes to read next: nodes with long texts a few at a time."""
    length = length_of(texts)
    if length > _MUCH:
        return max(1, size * _MUCH // length)
    return min(2 * size, _MANY)
