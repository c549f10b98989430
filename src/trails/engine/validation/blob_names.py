"""Which blobs a write names, and whether it may: they must be kept, and known to the writer.

A digest proves nothing: whoever knows the SHA-256 of a file could learn by naming it that the graph
keeps it, and then read it. So an actor may name what it has put itself, what the node had before,
and what a record that it can read names. A refusal is the same as for a blob that does not exist.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from trails.errors import FieldError
from trails.log.blobs import BlobStore
from trails.model.constraints import shorten
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema
from trails.model.values.blobs import SCHEME, Blob
from trails.model.visibility import SchemaFilter
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.rows import slot_name

_in_statements = re.compile(rb'"sha256:([0-9a-f]{64})\?').findall
_SOME = 100
"""Records with a blob that are looked at for one that is visible."""


def blob_fields(schema: Schema) -> dict[str, list[PredicateDescriptor]]:
    """Type → its fields that hold blobs."""
    return {
        each.name: [field for field in each.fields if field.type.scalar.kind == "Blob"]
        for each in schema.types
    }


def is_named(
    nodes: NodeIndex,
    db: sqlite3.Connection,
    digest: str,
    schema_filter: SchemaFilter | None,
    before: int | None = None,
) -> bool:
    """Whether a visible record names a blob; ``before``: one that an earlier commit wrote."""
    schema = nodes.schema if schema_filter is None else schema_filter.schema
    start = f"{SCHEME}{digest}"
    for name, fields in blob_fields(schema).items():
        for field in fields:
            if field.declared_in not in {"", name} and field.declared_in in schema.by_name:
                continue  # the slot of the type that declares it has the keys of all subtypes
            slot = slot_name(name, (field.name,))
            for handle in nodes.beginning_with(db, slot, start, _SOME, before):
                stored = nodes.find(db, handle)
                state = None if stored is None else stored.state
                if state is not None and schema_filter is not None:
                    state = schema_filter.apply(state)
                if state is not None and any(
                    each.startswith(start) for each in _values(state, field.name)
                ):
                    return True
    return False


class BlobNames:
    """The blobs that one write names."""

    def __init__(self, store: BlobStore, actor: str, *, trusted: bool) -> None:
        """``trusted``: whether every blob that is kept may be named."""
        self._store = store
        self._actor = actor
        self.trusted = trusted
        self._named: dict[tuple[str, str, str], None] = {}
        """(handle, field, URI) of what was added to a field."""
        self._raw: set[str] = set()

    def watch(self, before: NodeState | None, after: NodeState, field: PredicateDescriptor) -> None:
        """Note the blobs of the graph that a change adds to a field."""
        old = () if before is None else _values(before, field.name)
        for uri in _values(after, field.name):
            if uri.startswith(SCHEME) and uri not in old:
                self._named[after.handle, field.name, uri] = None

    def digests(self, nodes: NodeIndex, db: sqlite3.Connection) -> set[str]:
        """The digests that the final state of the write names."""
        found = (Blob(uri).facts for _, _, uri in self._final(nodes, db))
        return self._raw.union(facts.digest for facts in found if facts is not None)

    def watch_raw(self, added: bytes) -> None:
        """Note the blobs in statements that are not validated, so that those are kept."""
        self._raw.update(digest.decode() for digest in _in_statements(added))

    def errors(
        self,
        nodes: NodeIndex,
        db: sqlite3.Connection,
        schema_filter: SchemaFilter | None,
        seq: int,
    ) -> Iterator[tuple[str, FieldError]]:
        """(handle, violation) for what may not be named in the final state."""
        for handle, name, uri in self._final(nodes, db):
            facts = Blob(uri).facts
            if (
                facts is not None
                and self._store.size_of(facts.digest) == facts.size
                and (
                    self.trusted
                    or self._store.was_put_by(self._actor, facts.digest)
                    or is_named(nodes, db, facts.digest, schema_filter, seq)
                )
            ):
                continue
            message = (
                f"{name} of {handle} names {shorten(uri, 100)}, which is not a blob that this "
                "graph keeps for you; send the content first and use the URI of the answer"
            )
            yield handle, FieldError(name, "reference", message, uri[:1000], "Blob")

    def _final(self, nodes: NodeIndex, db: sqlite3.Connection) -> Iterator[tuple[str, str, str]]:
        """What the final state of the write has of it."""
        for handle, name, uri in self._named:
            stored = nodes.find(db, handle)
            if stored is not None and uri in _values(stored.state, name):
                yield handle, name, uri

    def forget(self) -> None:
        """Forget all."""
        self._named.clear()


def _values(state: NodeState, name: str) -> tuple[str, ...]:
    value = state.values.get(name)
    if isinstance(value, tuple):
        return value
    return (value,) if isinstance(value, str) else ()
