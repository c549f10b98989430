"""A graph of a server as declared classes use it: ``Task.where(…).fetch(ctx)``, ``task.save(ctx)``.

``RemoteContext`` and ``RemoteGraph`` are the ``Context`` and ``KnowledgeGraph`` that classes know,
so they need not know where the graph is. Reads are ``node_select``, and all pages of one read
are of one commit. Writes are ``graph_mutate`` with an idempotency key, so that a lost answer can be
asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Final
from uuid import uuid4

import msgspec

from trails.app.remote.changes import PendingChange, change_of, settle_error
from trails.app.sessions.session import CommandSession
from trails.authoring.capabilities import Row
from trails.authoring.nodes import Node, blank, loaded
from trails.errors import NotFoundError, QueryError, TransactionError, ValidationError
from trails.model.history import Commit, Head
from trails.model.kinds import Iri
from trails.model.nodes import NodeState, PageEnd, Selection, split_handle
from trails.model.operations.graph import QueryResult, SnapshotResult
from trails.model.operations.selections import SelectedRecords, write_conditions, write_order
from trails.model.types import Schema
from trails.model.values.blobs import Blobs
from trails.registry.registry import Registry
from trails.surfaces.cli.operations import ReadState, WriteOptions

_PAGE: Final = 1000
"""Records of one request, at most."""
_CURSOR: Final = "cursor"


class RemoteContext:
    """One branch or snapshot of a graph, as the holder of a token sees it."""

    def __init__(self, session: CommandSession, registry: Registry, view: ReadState) -> None:
        self._registry = registry
        self._view = view
        self.graph = session.graph
        self.kg = RemoteGraph(self, session, registry.schema, view)

    @property
    def actor(self) -> str:
        """Who acts: the holder of the token, whose name only the server knows."""
        return ""

    @property
    def branch(self) -> str:
        """The branch; empty for a snapshot."""
        return "" if self._view.snapshot is not None else self._view.branch

    @property
    def snapshot(self) -> str | None:
        """The commit of a snapshot; None on a branch."""
        return self._view.snapshot

    def spend(self, **_amounts: float) -> None:
        """Costs are counted where a capability runs."""

    def hydrate(self, row: Row) -> Node:
        """A record as an instance of its class."""
        return loaded(self._class_of(row.type), self, row.id, row.values)

    def reference(self, handle: str) -> Node:
        """A lazy instance, which reads its record on first access."""
        type_name, identifier = split_handle(handle)
        return blank(self._class_of(type_name), self, identifier, handle)

    def _class_of(self, type_name: str) -> type[Node]:
        found = self._registry.classes.get(type_name)
        if found is None:
            raise NotFoundError(
                f"no class is declared for the type {type_name!r}; pass it, or its module, to "
                "connect()"
            )
        return found


class SelectedRows(msgspec.Struct, frozen=True):
    """Some rows of a selection, and where they ended if more follow."""

    rows: tuple[NodeState, ...]
    next: PageEnd | None


class QueryRows(msgspec.Struct, frozen=True):
    """The result of a SPARQL query: columns, and rows of JSON values."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, object], ...]
    truth: bool | None = None

    def __bool__(self) -> bool:
        """The answer of ASK, or whether there are rows."""
        return bool(self.rows) if self.truth is None else self.truth


class RemoteTransaction:
    """Changes that become one commit."""

    def __init__(self) -> None:
        self.changes: list[PendingChange] = []
        self.commit: Commit | None = None
        """The commit, after the block; None if nothing changed."""


class RemoteGraph:
    """A KnowledgeGraph behind a server."""

    def __init__(
        self, ctx: RemoteContext, session: CommandSession, schema: Schema, view: ReadState
    ) -> None:
        self._ctx = ctx
        self._session = session
        self._view = view
        self._open: RemoteTransaction | None = None
        self.schema = schema
        """The types that this program declares."""

    def _place(self) -> dict[str, object]:
        view = self._view
        return {"branch": view.branch} if view.snapshot is None else {"snapshot": view.snapshot}

    @property
    def head(self) -> Head:
        """The head of the branch; pass its ``commit`` as an expected head."""
        found = self._session.typed(SnapshotResult, "graph_snapshot", self._place())
        return Head(found.head, 0, found.schema)

    @property
    def blobs(self) -> Blobs:
        raise QueryError("content is kept and read with put_blob() and blob() of the client")

    def iri(self, handle: str) -> str:
        """The IRI of a node."""
        if not self._session.nodes:
            raise QueryError("the server does not list its graphs, so IRIs are not known here")
        return self._session.nodes + handle

    # --- reading -----------------------------------------------------------------------

    def find(self, type_name: str, reference: object) -> NodeState | None:
        """One node by reference, of this type or a subtype."""
        found = self._find(type_name, reference)
        return self._rows(found)[0] if found.records else None

    def describe_missing(self, type_name: str, reference: object) -> str:
        """Why a reference does not resolve, with suggestions."""
        found = self._find(type_name, reference)
        return found.missing or f"there was no {type_name} {str(reference)[:100]!r}, but is now"

    def _find(self, type_name: str, reference: object) -> SelectedRecords:
        handle = getattr(reference, "handle", None)
        given = {"type": type_name, "record": str(handle or reference)}
        return self._session.typed(SelectedRecords, "node_select", {**given, **self._place()})

    def select(self, selection: Selection) -> SelectedRows:
        """A page of nodes; without a limit, all of them."""
        after = None if selection.after is None else selection.after.key.decode()
        rows, following = self._select(selection, after)
        return SelectedRows(
            rows, None if following is None else PageEnd(following.encode(), 0, _CURSOR)
        )

    def select_page(
        self, selection: Selection, after: str | None
    ) -> tuple[tuple[NodeState, ...], str | None]:
        """A page of nodes after a cursor, and the cursor for those that follow."""
        return self._select(selection, after)

    def _select(
        self, selection: Selection, cursor: str | None
    ) -> tuple[tuple[NodeState, ...], str | None]:
        """As many nodes as were asked for: an answer of the server may have fewer."""
        rows: list[NodeState] = []
        offset = 0 if cursor is not None else selection.offset
        while True:
            left = _PAGE if selection.limit is None else selection.limit - len(rows)
            if left <= 0:
                return tuple(rows), cursor
            page = {"limit": min(left, _PAGE), "offset": offset or None, "cursor": cursor}
            found = self._ask(selection, page)
            rows += self._rows(found)
            cursor, offset = found.cursor, 0
            if cursor is None:
                return tuple(rows), None

    def _ask(self, selection: Selection, more: Mapping[str, object]) -> SelectedRecords:
        where = selection.where
        given = {
            "type": selection.type,
            "where": None if where is None else write_conditions(where),
            "order": write_order(selection.order) or None,
            **more,
            **self._place(),
        }
        return self._session.typed(SelectedRecords, "node_select", given)

    def _rows(self, found: SelectedRecords) -> list[NodeState]:
        types, rows = self.schema.by_name, []
        for each in found.records:
            if each.type not in types:
                raise NotFoundError(
                    f"no class is declared for the type {each.type!r}; pass it, or its module, "
                    "to connect()"
                )
            rows.append(each.state(types[each.type]))
        return rows

    def count(self, selection: Selection) -> int:
        """The number of nodes that match a selection."""
        return self._ask(selection, {"count": True}).count or 0

    def nearest(
        self,
        selection: Selection,
        field: str,
        vector: Sequence[float] | None = None,
        k: int = 10,
        *,
        text: str | None = None,
    ) -> list[tuple[NodeState, float]]:
        """The k nodes nearest to a vector, or to that of a text."""
        near = {"field": field, "vector": None if vector is None else list(vector), "text": text}
        asked = {name: value for name, value in near.items() if value is not None}
        found: list[tuple[NodeState, float]] = []
        cursor: str | None = None
        plain = msgspec.structs.replace(selection, order=())
        while len(found) < k:
            page = {"near": asked, "limit": min(k - len(found), _PAGE), "cursor": cursor}
            answer = self._ask(plain, page)
            scores = [each.score or 0.0 for each in answer.records]
            found += zip(self._rows(answer), scores, strict=True)
            cursor = answer.cursor
            if cursor is None:
                break
        return found

    def embed(self, texts: Iterable[str]) -> list[Sequence[float]]:
        """Not possible: the function for embeddings belongs to the server."""
        del texts
        raise QueryError(
            "the function for embeddings runs on the server; use nearest(…, text=…), which "
            "takes a text instead of a vector"
        )

    def check_fields(self, type_name: str, fields: Iterable[str]) -> None:
        """Refuse fields that a type does not have."""
        known = self.schema.by_name.get(type_name)
        for name in fields:
            if known is None or name not in known.by_name:
                listed = ", ".join(["id", *(() if known is None else known.by_name)])
                raise QueryError(f"{type_name} has no field {name!r}; it has {listed}")

    def sparql(self, text: str, /, **params: object) -> QueryRows:
        """Run a SPARQL query; ``$name`` in the text takes the parameter of that name."""
        bound = {name: self._bindable(value) for name, value in params.items()}
        found: QueryResult = self._session.ask(self._view, text, bound)
        return QueryRows(found.columns, found.rows, found.truth)

    def _bindable(self, value: object) -> object:
        handle = getattr(value, "handle", None)
        return Iri(self.iri(handle)) if isinstance(handle, str) else value

    # --- writing -----------------------------------------------------------------------

    def save(
        self,
        node: object,
        *,
        upsert: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None:
        """Write one instance; see ``Node.save``."""
        change = change_of(node, upsert=upsert)
        options = WriteOptions(message, expected_head, idempotency_key)
        return self._write([] if change is None else [change], options)

    def save_all(
        self,
        nodes: Iterable[object],
        *,
        upsert: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None:
        """Write up to 10,000 instances in one commit, or none; load a file for more."""
        found = (change_of(node, upsert=upsert) for node in nodes)
        changes = [each for each in found if each is not None]
        return self._write(changes, WriteOptions(message, expected_head, idempotency_key))

    def delete(
        self,
        node: object,
        *,
        cascade: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None:
        """Delete one node; see ``Node.delete``."""
        change = PendingChange.deleting(node, cascade=cascade)
        return self._write([change], WriteOptions(message, expected_head, idempotency_key))

    @contextmanager
    def transaction(
        self,
        *,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
        request: object = None,
    ) -> Iterator[RemoteTransaction]:
        """One commit for all saves and deletions in the block, or none when it raises.

        They are sent at the end of the block: reads in it don't see them, and other writers do not
        wait. Pass ``expected_head`` to refuse the commit if the graph has changed meanwhile.
        """
        del request  # the changes themselves are compared
        if self._open is not None:
            yield self._open
            return
        opened = self._open = RemoteTransaction()
        try:
            yield opened
        finally:
            self._open = None
        options = WriteOptions(message, expected_head, idempotency_key)
        opened.commit = self._write(opened.changes, options)

    def raw_sparql(
        self, text: str, /, *, skip_validation: bool = False, message: str = ""
    ) -> Commit | None:
        """Write by SPARQL Update."""
        if skip_validation:
            raise TransactionError("validation can't be skipped over a server")
        done = self._session.mutate(self._branch(), text, keyed(WriteOptions(message)))
        return self._commit(done.commit, message)

    def _write(self, changes: list[PendingChange], options: WriteOptions) -> Commit | None:
        if self._open is not None:
            if options.expected_head is not None or options.idempotency_key is not None:
                raise TransactionError(
                    "expected_head and idempotency_key belong to the whole transaction; "
                    "pass them to transaction()"
                )
            self._open.changes += changes
            return None
        if not changes:
            return None
        operations = [each.operation for each in changes]
        try:
            done = self._session.mutate(self._branch(), operations, keyed(options))
        except ValidationError as error:
            raise settle_error(error, changes) from None
        known = [applied.id for applied in done.applied]
        for change, identifier in zip_longest(changes, known[: len(changes)]):
            change.land(self._ctx, identifier)
        return self._commit(done.commit, options.message)

    def _branch(self) -> str:
        if self._view.snapshot is not None:
            raise TransactionError("snapshots are read-only; create a branch from the commit")
        return self._view.branch

    def _commit(self, commit: str | None, message: str) -> Commit | None:
        """What the answer to a write says of its commit."""
        if commit is None:
            return None
        return Commit(0, commit, self._view.branch, (), "", "", "", 0, 0, "", "", message)


def keyed(options: WriteOptions) -> WriteOptions:
    """Give a write a key of its own, so that it can be repeated."""
    if options.idempotency_key is not None:
        return options
    return msgspec.structs.replace(options, idempotency_key=str(uuid4()))
