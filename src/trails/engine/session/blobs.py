"""The blobs of a graph as one actor uses them: what ``ctx.kg.blobs`` is.

An actor keeps content if it may change the branch, and reads what it has put itself, or what a
record names that it can read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.graph import Graph
from trails.engine.validation.blob_names import blob_fields
from trails.engine.visibility.access import Access, check_change
from trails.errors import BudgetError, NotFoundError, QueryError
from trails.log.blobs import too_large
from trails.model.actors import is_limited
from trails.model.constraints import shorten
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.model.values.blobs import (
    ANY_TYPE,
    Blob,
    BlobData,
    BlobError,
    BlobFacts,
    check_media_type,
    check_name,
    write_blob,
)


class SessionBlobs:
    """Puts and reads blobs for one actor on one branch or snapshot."""

    def __init__(
        self,
        graph: Graph,
        branch: str,
        actor: str,
        call: CallRecord | None,
        access: Access,
        is_named: Callable[[str], bool],
    ) -> None:
        """``is_named``: whether a record that the actor can read names a digest."""
        self._graph = graph
        self._branch = branch
        self._actor = actor
        self._call = call
        self._access = access
        self._is_named = is_named

    # --- putting -----------------------------------------------------------------------

    def put(self, data: BlobData, media_type: str = ANY_TYPE, name: str = "") -> Blob:
        """Keep content, which a field can then name; it is on disk when this returns."""
        self._check(media_type, name)
        store, most = self._graph.blobs, self._graph.most_blob
        if not isinstance(data, Path):
            return self._kept(store.put(data, most), media_type, name)
        try:
            file = data.open("rb")
        except OSError as error:
            raise NotFoundError(f"{data} can't be read: {error.strerror}") from None
        with file:
            return self._kept(store.put(file, most), media_type, name)

    def take(self, file: Path, media_type: str, name: str) -> Blob:
        """Keep the content of a file that was written for this, and is moved."""
        self._check(media_type, name)
        if 0 < self._graph.most_blob < file.stat().st_size:
            raise too_large(self._graph.most_blob)
        return self._kept(self._graph.blobs.take(file), media_type, name)

    def _check(self, media_type: str, name: str) -> None:
        self._graph.check_writable()
        try:
            check_media_type(media_type)
            check_name(name)
        except BlobError as error:
            raise QueryError(str(error)) from None
        check_change(self._access, self._branch)
        caller = None if self._call is None else self._call.caller
        most = self._graph.most_unnamed if is_limited(caller) else 0
        if 0 < most < self._graph.blobs.unnamed_bytes(self._actor):
            raise BudgetError(
                f"{self._actor} has put more than {most >> 20} MiB of blobs that no commit names "
                "(spool_mb in [graphs.<id>.budgets]); save records that name them, or wait a day",
                limit="spool_mb",
                allowed=most >> 20,
                retry_after=3600,
            )

    def _kept(self, found: tuple[str, int], media_type: str, name: str) -> Blob:
        self._graph.blobs.note_put(self._actor, *found)
        return write_blob(BlobFacts(*found, check_media_type(media_type), check_name(name)))

    # --- reading -----------------------------------------------------------------------

    def read(self, blob: Blob, start: int = 0, length: int | None = None) -> bytes:
        """A part of a blob that the actor may read."""
        facts = Blob(blob).facts
        if facts is None or not self._may_read(facts.digest):
            raise NotFoundError(
                f"{shorten(str(blob), 100)} is not a blob that this graph keeps for you"
            )
        return b"".join(self.blocks(facts, start, length))

    def blocks(
        self, facts: BlobFacts, start: int = 0, length: int | None = None
    ) -> Generator[bytes, None, None]:
        """A part of a blob that a record of this session names, in blocks."""
        return self._graph.blobs.blocks(facts.digest, facts.size, start, length)

    def _may_read(self, digest: str) -> bool:
        store = self._graph.blobs
        if self._access.unrestricted or store.was_put_by(self._actor, digest):
            return store.size_of(digest) is not None
        return self._is_named(digest)


def blob_of(schema: Schema, state: NodeState, field: str) -> BlobFacts:
    """The blob that a field of a visible record names; NotFoundError if the graph keeps none."""
    declared = schema.by_name[state.type].by_name.get(field)
    if declared is None or declared.type.kind != "Blob":
        known = [each.name for each in blob_fields(schema)[state.type] if not each.many]
        listed = ", ".join(known) or "none"
        raise NotFoundError(
            f"{field[:100]!r} is not a field of {state.type} with one blob; it has {listed}"
        )
    value = state.values.get(field)
    if not isinstance(value, Blob):
        raise NotFoundError(f"{state.handle} has no {field}")
    facts = value.facts
    if facts is None:
        raise NotFoundError(f"{field} of {state.handle} is kept elsewhere: {value[:500]}")
    return facts
