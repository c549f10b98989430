"""The graph as one actor uses it: reads, writes and transactions on one branch or snapshot.

Every read is filtered and every write guarded by the actor's access. A transaction belongs to one
thread and becomes one commit, or nothing.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from trails.authoring.nodes import Node, state_of, unfold
from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import Checkout, CompiledSchema, compile_once
from trails.engine.graph.cursors import Cursors, Holder, check_subject
from trails.engine.graph.embeddings import Embedder
from trails.engine.graph.graph import Graph
from trails.engine.graph.renames import renamed_type
from trails.engine.session.blobs import SessionBlobs, blob_of
from trails.engine.session.selection_check import names_known, settle_references
from trails.engine.validation.blob_names import is_named
from trails.engine.validation.validate import VisibleNodes, suggest_nodes
from trails.engine.visibility.access import OPEN, Access, refuse_text
from trails.engine.visibility.refs import RefResolver, reader
from trails.errors import (
    FieldError,
    ForbiddenError,
    NotFoundError,
    QueryError,
    SchemaMismatchError,
    TransactionError,
    ValidationError,
)
from trails.imports import later
from trails.model.constraints import shorten
from trails.model.history import Commit, Head
from trails.model.iris import encode_id, normal_id
from trails.model.kinds import DanglingError, Iri, KindError
from trails.model.nodes import Near, NodeState, Order, Selection, make_handle, split_handle
from trails.model.results import QueryAnswer
from trails.model.texts import with_article
from trails.model.types import Schema
from trails.model.values.blobs import (
    BlobFacts,
)
from trails.model.visibility import FULL, SchemaFilter, Visibility
from trails.views.nodes.conditions import first_handles
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.select import Found, Selector, first_of

if TYPE_CHECKING:
    from trails.engine.schema import evolution
    from trails.engine.sparql import queries
    from trails.engine.visibility import visible_history
    from trails.engine.write import edits
    from trails.engine.write import puts as write_puts
    from trails.engine.write import write as write_write
    from trails.engine.write.puts import Put
    from trails.engine.write.write import IdempotencyKey, Opened, Write
    from trails.model.sparql import tokens as sparql_tokens
else:
    evolution = later("trails.engine.schema.evolution")
    queries = later("trails.engine.sparql.queries")
    visible_history = later("trails.engine.visibility.visible_history")
    edits = later("trails.engine.write.edits")
    write_puts = later("trails.engine.write.puts")
    write_write = later("trails.engine.write.write")
    sparql_tokens = later("trails.model.sparql.tokens")

T = TypeVar("T")
_PAGES: Final = "page"
"""What cursors of pages in programs are for."""
NO_SPARQL: Final = (
    "Refused: SPARQL could reveal data that you cannot see; use the available tools, resources "
    "and stored queries"
)


class GraphSession:
    """A KnowledgeGraph: what ``ctx.kg`` is."""

    def __init__(
        self,
        graph: Graph,
        checkout: Checkout,
        declared: Schema,
        actor: str,
        call: CallRecord | None = None,
        access: Access = OPEN,
        branches: tuple[str, ...] = (),
    ) -> None:
        self._graph = graph
        self._checkout = checkout
        self._declared = declared
        self._actor = actor
        self._call = call
        self._access = access
        self._branches = branches or (checkout.name,)
        self._filtered: tuple[Schema, Visibility, SchemaFilter | None] | None = None
        self._open: Write | None = None
        self._thread = 0

    # --- schema and visibility ---------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The visible types of this branch or snapshot."""
        schema_filter = self.schema_filter
        return self._checkout.schema if schema_filter is None else schema_filter.schema

    @property
    def visibility(self) -> Visibility:
        """What the actor sees of the types."""
        return FULL if self._access.unrestricted else self._look()[1]

    @property
    def schema_filter(self) -> SchemaFilter | None:
        """Filters nodes for the actor; None if nothing is hidden."""
        return None if self._access.unrestricted else self._look()[2]

    @property
    def compiled(self) -> CompiledSchema:
        """The compiled visible types."""
        schema_filter = self.schema_filter
        return (
            self._checkout.compiled
            if schema_filter is None
            else compile_once(schema_filter.schema, self._graph.names)
        )

    def renamed_type(self, name: str) -> str | None:
        """The visible type that once had another name; None if there is none."""
        now = renamed_type(self._graph, self._checkout.head.commit, name)
        return now if now != name and now in self.schema.by_name else None

    def _look(self) -> tuple[Schema, Visibility, SchemaFilter | None]:
        schema = self._checkout.schema
        if self._filtered is None or self._filtered[0] is not schema:
            visibility = self._access.visibility(schema, self._branches)
            self._filtered = (
                schema,
                visibility,
                None if visibility.reads_all else visibility.filter(schema),
            )
        return self._filtered

    @property
    def head(self) -> Head:
        """The head of the branch; pass its ``commit`` as an expected head."""
        return self._checkout.head

    def iri(self, handle: str) -> str:
        """The IRI of a node."""
        return self._graph.names.nodes + handle

    # --- reading -----------------------------------------------------------------------

    def find(self, type_name: str, reference: object) -> NodeState | None:
        """One node by reference, of this type or a subtype."""
        if not self._access.unrestricted:
            self._check_named(Selection(type_name))
        try:
            _, handles = self.compiled.validator.references.read(reference, type_name)
        except KindError:
            return None
        return self._first(handles)

    def resolve(self, type_name: str, reference: object) -> NodeState:
        """The node that a reference names; DanglingError suggests others if it is missing."""
        _, handles = self.compiled.validator.references.read(reference, type_name)
        found = self._first(handles)
        if found is None:
            raise DanglingError(self.describe_missing(type_name, reference))
        return found

    def describe_missing(self, type_name: str, reference: object) -> str:
        """Why a reference does not resolve, with suggestions."""
        references = self.compiled.validator.references
        other = references.other_type(reference, type_name)
        try:
            identifier, _ = references.read(reference, type_name)
        except KindError as error:
            return str(error) or f"{shorten(reference)} is not a reference"
        if other is not None and self._first([other]) is not None:
            problem = f"{other} is not {with_article(type_name)}"
        else:
            problem = f"there is no {type_name} {shorten(reference)}"
        return f"{problem}; {self._suggest(type_name, identifier)}"

    def _suggest(self, type_name: str, identifier: str) -> str:
        def read(nodes: NodeIndex) -> str:
            with self._connection(nodes, self._mine()) as db:
                visible = VisibleNodes(nodes, db, self.schema, self.schema_filter)
                return suggest_nodes(visible, type_name, identifier)

        return self._graph.reading_nodes(self._checkout, read)

    def find_by_id(self, type_name: str, identifier: str) -> NodeState | None:
        """One node by its exact id, of this type or a subtype."""
        return self._first(self._handles_of_id(type_name, identifier))

    def _handles_of_id(self, type_name: str, identifier: str) -> list[str]:
        family = self.schema.family(type_name)
        names = family if family[:1] == (type_name,) else (type_name, *family)
        return [make_handle(name, identifier) for name in names]

    def _first(self, handles: Iterable[str]) -> NodeState | None:
        write, schema_filter = self._mine(), self.schema_filter

        def read(nodes: NodeIndex) -> NodeState | None:
            with self._connection(nodes, write) as db:
                return first_of(nodes, db, handles, schema_filter)

        found = self._graph.reading_nodes(self._checkout, read)
        if found is not None and self._call is not None:
            self._call.use(found.handle)
        return found

    @property
    def blobs(self) -> SessionBlobs:
        """The blobs that the actor may put and read."""
        return SessionBlobs(
            self._graph,
            self._checkout.name,
            self._actor,
            self._call,
            self._access,
            self._names_blob,
        )

    def _names_blob(self, digest: str) -> bool:
        write, schema_filter = self._mine(), self.schema_filter

        def read(nodes: NodeIndex) -> bool:
            with self._connection(nodes, write) as db:
                return is_named(nodes, db, digest, schema_filter)

        return self._graph.reading_nodes(self._checkout, read)

    def blob_of(self, type_name: str, reference: object, field: str) -> BlobFacts:
        """The blob that a field of a record names; NotFoundError if there is none to be seen."""
        state = self.find(type_name, reference) if type_name in self.schema.by_name else None
        if state is None:
            raise NotFoundError(f"there is no {type_name[:100]} {shorten(reference)}")
        return blob_of(self.schema, state, field)

    def select(self, selection: Selection) -> Found:
        """A page of nodes."""
        self._check_named(selection)
        settled = self._asked(selection)
        return self._select(lambda selector: selector.select(settled), settled)

    def select_page(
        self, selection: Selection, after: str | None
    ) -> tuple[tuple[NodeState, ...], str | None]:
        """A page of nodes after a cursor, and the cursor for those that follow.

        It is for this actor, branch and selection. Pages are of the present, not of one commit: a
        program may change what it has read.
        """
        cursors = Cursors(self._graph)
        holder = Holder(self._actor, _PAGES, self._checkout.name)
        subject = [selection.type, msgspec.to_builtins(selection.order), repr(selection.where)]
        if after is not None:
            cursor = cursors.read(holder, after)
            check_subject(cursor, subject)
            selection = msgspec.structs.replace(selection, after=cursor.position)
        found = self.select(selection)
        if found.next is None:
            return found.rows, None
        return found.rows, cursors.sign(holder, self.head.commit, subject, found.next)

    def count(self, selection: Selection) -> int:
        """The number of nodes that match a selection."""
        self._check_named(selection)
        settled = self._asked(selection)
        return self._select(lambda selector: selector.count(settled), settled)

    @property
    def is_writing(self) -> bool:
        """Whether a transaction of this context is open on this thread."""
        return self._mine() is not None

    def nearest(
        self,
        selection: Selection,
        field: str,
        vector: Sequence[float] | None = None,
        k: int = 10,
        *,
        text: str | None = None,
    ) -> list[tuple[NodeState, float]]:
        """The k nodes nearest to a vector, or to that of a text; see ``find_nearest``."""
        near = Near(field, vector, text)  # type: ignore[arg-type]  # checked with the field
        return self.nearest_with_commit(self._asked(selection), near, k)[0]

    def nearest_with_commit(
        self, selection: Selection, near: Near, k: int, start: int = 0
    ) -> tuple[list[tuple[NodeState, float]], str]:
        """The same after the first few, and the commit whose state it is."""
        # numpy takes 100 ms to import, and most processes compare no vectors.
        from trails.engine.session.nearest import (  # noqa: PLC0415
            NearestSearch,
            check_count,
            find_nearest,
            vector_near,
        )

        check_count(k)
        self._check_named(Selection(selection.type, selection.where, (Order(near.field),)))
        vector = vector_near(self.schema, selection.type, near, self._embed_query)
        settled = self._settled(selection)

        def run(selector: Selector) -> tuple[list[tuple[NodeState, float]], str]:
            search = NearestSearch(
                selector,
                self._checkout.schema,
                self.schema_filter,
                self._graph.names,
                None if selector.uncommitted else self._graph.vectors,
            )
            return find_nearest(search, settled, near.field, vector, k, start), selector.commit

        return self._select(run, settled)

    def embed(self, texts: Iterable[str]) -> list[tuple[float, ...]]:
        """The vectors that the project's function for embeddings makes of texts."""
        return [tuple(each) for each in self._embedder().embed(texts)]

    def _embed_query(self, text: str) -> Sequence[float]:
        return self._embedder().query(text)

    def _embedder(self) -> Embedder:
        if self._mine() is not None:
            raise TransactionError(
                "other writers would wait for the function for embeddings; make the vectors "
                "before the transaction, with embed()"
            )
        if self._graph.embedder is None:
            raise QueryError(
                "this graph has no function for embeddings; give a vector, or name a function in "
                f'trails.toml: [graphs.{self._graph.name}.embeddings] function = "app:embed"'
            )
        return self._graph.embedder

    def _asked(self, selection: Selection) -> Selection:
        """A selection of a program, whose invalid conditions raise QueryError."""
        try:
            return self._settled(selection)
        except ValidationError as error:
            first = error.fields[0]
            raise QueryError(first.message, field=first.field, reason=first.code) from None

    def _settled(self, selection: Selection) -> Selection:
        """A selection whose conditions refer to existing nodes by handle."""
        return settle_references(
            self.schema, selection, lambda target, value: self.resolve(target, value).handle
        )

    def counts(self) -> dict[str, int]:
        """The number of nodes of each type, including subtypes."""
        names = self.schema.by_name
        return self._select(
            lambda selector: {name: selector.count(Selection(name)) for name in names}
        )

    def has_long_texts(self, type_name: str) -> bool:
        """Whether nodes of a type may have texts of megabytes."""
        return self._select(lambda selector: selector.has_long_texts(type_name))

    def ids_from(self, type_name: str, start: str, limit: int) -> list[str]:
        """The first few ids with this prefix, of a type and its subtypes."""
        begin = encode_id(normal_id(start))
        schema_filter = self.schema_filter

        def read(nodes: NodeIndex) -> list[str]:
            with self._connection(nodes, self._mine()) as db:
                return [
                    split_handle(handle)[1]
                    for name in self.schema.family(type_name)
                    for handle in first_handles(nodes, db, f"{name}/{begin}", limit, schema_filter)
                ]

        return sorted(self._graph.reading_nodes(self._checkout, read))[:limit]

    def page(self, selection: Selection) -> tuple[Found, int | None]:
        """A page of nodes and, if more follow, their total number at the same time.

        Of a selection with a condition that number is None: it would cost more than the page.
        """
        return self.page_with_commit(selection)[:2]

    def page_with_commit(self, selection: Selection) -> tuple[Found, int | None, str]:
        """A page, and the commit whose state it is."""
        selection = self._settled(selection)

        def run(selector: Selector) -> tuple[Found, int | None, str]:
            commit = selector.commit
            found = selector.select(selection)
            known = found.next is not None and selection.where is None
            return found, selector.count(selection) if known else None, commit

        return self._select(run, selection)

    def find_with_commit(self, type_name: str, reference: object) -> tuple[NodeState | None, str]:
        """One node by reference, of this type or a subtype, and the commit whose state it is."""
        handles = self._handles_of(type_name, reference)
        state, commit = self._select(lambda selector: (selector.first(handles), selector.commit))
        if self._call is not None and state is not None:
            self._call.use(state.handle)
        return state, commit

    def look_at(
        self, type_name: str, reference: object, look: Callable[[NodeState | None, str], T]
    ) -> T:
        """What ``look`` makes of one node and of the commit whose state it is.

        Long texts of the node are read as their parts are asked for, which only ``look`` can do.
        """
        handles = self._handles_of(type_name, reference)
        return self._select(
            lambda selector: look(selector.first(handles, in_parts=True), selector.commit)
        )

    def _handles_of(self, type_name: str, reference: object) -> list[str]:
        """The handles that a reference may mean; first of all it is read as an id."""
        handles = self._handles_of_id(type_name, str(reference))
        with suppress(KindError):
            handles += self.compiled.validator.references.read(reference, type_name)[1]
        return handles

    def page_by_handle(
        self, selection: Selection, type_name: str, after: str, limit: int, size: int
    ) -> tuple[list[NodeState], str | None]:
        """Matching records of exactly one type, in the order of handles, from a handle on.

        At most ``limit`` of them, or about ``size`` bytes, and the handle to go on after.
        This order, unlike that of other pages, is the same after the index was rebuilt.
        """
        settled = self._asked(selection)
        return self._select(
            lambda selector: selector.by_handle(settled, type_name, after, limit, size), settled
        )

    def read_all(self, handles: Sequence[str]) -> tuple[dict[str, NodeState], str]:
        """Those of some nodes that exist, by handle, and the commit whose state it is."""
        return self._select(lambda selector: (selector.all_of(handles), selector.commit))

    def check_fields(self, type_name: str, fields: Iterable[str]) -> None:
        """Refuse fields that a type does not have."""
        for name in fields:
            self._check_named(Selection(type_name, order=(Order(name),)))
            known = self.schema.by_name.get(type_name)
            if known is None or name not in known.by_name:
                listed = ", ".join(["id", *(() if known is None else known.by_name)])
                raise QueryError(f"{type_name} has no field {name!r}; it has {listed}")

    def _check_named(self, selection: Selection) -> None:
        """Refuse a capability that reads hidden types or fields, without naming them.

        Types and fields that do not exist are refused alike, so that nothing is revealed.
        """
        call = self._call
        if call is None or call.kind != "runtime" or self.schema_filter is None:
            return
        if not names_known(self.schema, selection):
            raise ForbiddenError(
                f"{call.name} reads data that you cannot see or that does not exist; request "
                "access to it, or use another tool"
            )

    def _select(self, run: Callable[[Selector], T], asked: object = "") -> T:
        """Read from the node index; ``asked`` is what the slow-query log may quote."""
        write = self._mine()

        def read(nodes: NodeIndex) -> T:
            with self._connection(nodes, write) as db:
                types = self.compiled
                selector = Selector(
                    nodes, db, types.schema, types.validator.special, self.schema_filter
                )
                if write is not None or db.in_transaction:
                    selector.uncommitted = True
                    with selector.running():
                        return run(selector)
                # One read transaction, so that every step sees the same state.
                db.execute("BEGIN")
                try:
                    with selector.running():
                        return run(selector)
                finally:
                    db.execute("COMMIT")

        with self._graph.slow_queries.watch("nodes", self._checkout.name, asked):
            return self._graph.reading_nodes(self._checkout, read)

    @contextmanager
    def _connection(self, nodes: NodeIndex, write: Write | None) -> Iterator[sqlite3.Connection]:
        if write is not None:
            yield write.nodes.db
        else:
            with nodes.file.reader() as db:
                yield db

    def sparql(self, text: str, /, **params: object) -> QueryAnswer:
        """Run a SPARQL query; ``$name`` in the text takes the parameter of that name.

        The empty prefix names this graph's own classes and fields. SPARQL can read anything, so
        it requires access to everything.
        """
        if self.schema_filter is not None:
            raise ForbiddenError(NO_SPARQL)
        write = self._mine()
        if write is not None and write.nodes.changed:
            raise TransactionError(
                "SPARQL reads committed data only, and this transaction has uncommitted changes; "
                "query before the first change, or use objects()"
            )
        tokens = sparql_tokens.tokenize(text)
        sparql_tokens.query_form(tokens)
        bound = queries.bind(
            tokens, {name: self._bindable(name, value) for name, value in params.items()}
        )
        return queries.ask_checkout(self._graph, self._checkout, bound)

    def _bindable(self, name: str, value: object) -> object:
        if isinstance(value, Node) or hasattr(value, "__trails__"):
            handle = getattr(value, "handle", None)
            if handle is None:
                raise QueryError(f"parameter {name!r}: the node has no key yet")
            return Iri(self.iri(handle))
        return value

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
        alone = self._mine() is None
        key = self._key(idempotency_key)
        if key is not None:
            key.request.add(["save", *write_puts.request_of(node, upsert=upsert), message])
        with self._writing(message, expected_head, key, quick=True) as opened:
            self._put(opened.write, node, upsert=upsert, alone=alone)
        return opened.commit

    def save_all(
        self,
        nodes: Iterable[object],
        *,
        upsert: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None:
        """Write many instances in one commit, or none; the nodes may come from a generator."""
        write = self._mine()
        if write is not None:
            errors: list[FieldError] = []
            for node in nodes:
                try:
                    self._put(write, node, upsert=upsert, batch=True)
                except ValidationError as error:
                    errors.extend(error.fields)
            if errors:
                write.nodes.spoil()
                raise ValidationError(errors)
            return None
        key = self._key(idempotency_key)
        if key is not None:
            key.request.add(["save_all", message])
            key.complete = False
            nodes = _noted(nodes, key, upsert=upsert)
        with self._writing(message, expected_head, key) as opened:
            if opened.replayed:
                for _ in nodes:  # which nodes they are is part of the request
                    pass
            else:
                waiting: dict[int, object] = {}

                def puts() -> Iterator[Put]:
                    for node in nodes:
                        change = write_puts.change_of(opened.write.nodes, node, upsert=upsert)
                        if change is not None:
                            waiting[id(change)] = node
                            yield change

                def done(change: Put, state: NodeState) -> None:
                    write_puts.remember(waiting.pop(id(change)), state, opened.write.outcome)

                edits.put_all(opened.write.nodes, puts(), done)
        return opened.commit

    def _put(
        self,
        write: Write,
        node: object,
        *,
        upsert: bool,
        batch: bool = False,
        alone: bool = False,
    ) -> None:
        if write.replayed is not None:
            return
        change = write_puts.change_of(write.nodes, node, upsert=upsert)
        if change is not None:
            prefix = f"{change.type}/{getattr(node, 'id', '?')}." if batch else ""
            state = edits.put(write.nodes, change, prefix=prefix, alone=alone)
            if state is not None:
                write_puts.remember(node, state, write.outcome)

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
        handle = getattr(node, "handle", None)
        if handle is None:
            raise NotFoundError(f"{node!r} was never saved, so it can't be deleted")
        key = self._key(idempotency_key)
        if key is not None:
            key.request.add(["delete", handle, cascade, message])
        with self._writing(message, expected_head, key, quick=True) as opened:
            if not opened.replayed:
                edits.remove(opened.write.nodes, handle, cascade=cascade)
                unfold(node)  # type: ignore[arg-type]
                state_of(node).remember(  # type: ignore[arg-type]
                    stored=False, values=None, outcome=opened.write.outcome
                )
        return opened.commit

    @contextmanager
    def transaction(
        self,
        *,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
        request: object = None,
    ) -> Iterator[Opened]:
        """One commit for everything written in the block, or none when it raises.

        Other writers wait. Reads in the block see its changes; a transaction inside a
        transaction joins it. ``request`` is what the key identifies, in JSON form: the same
        key with another request is a conflict.
        """
        key = self._key(idempotency_key)
        if key is not None:
            key.request.add(["transaction", request, message])
        with self._writing(message, expected_head, key) as opened:
            yield opened

    @contextmanager
    def operation(
        self,
        *,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
        request: object = None,
    ) -> Iterator[Opened]:
        """A transaction in which nothing but Trails runs, and not for long."""
        key = self._key(idempotency_key)
        if key is not None:
            key.request.add(["transaction", request, message])
        with self._writing(message, expected_head, key, quick=True) as opened:
            yield opened

    def _key(self, key: str | None) -> IdempotencyKey | None:
        if key is None:
            return None
        return write_write.IdempotencyKey(self._graph, self._checkout.name, self._actor, key)

    @contextmanager
    def _writing(
        self,
        message: str,
        expected_head: str | None,
        key: IdempotencyKey | None,
        *,
        quick: bool = False,
    ) -> Iterator[Opened]:
        mine = self._mine()
        if mine is not None:
            if expected_head is not None or key is not None:
                raise TransactionError(
                    "expected_head and idempotency_key belong to the whole transaction; "
                    "pass them to transaction()"
                )
            yield write_write.Opened(mine)
            return
        if self._call is not None and self._call.reads:
            raise TransactionError(
                f"{self._call.name} declares no side effects, so it can't write; remove 'none' "
                "from its side_effects, or write in another capability"
            )
        write = write_write.Write(
            self._graph,
            self._checkout,
            actor=self._actor,
            message=message,
            call=self._call,
            expected_head=expected_head,
            key=key,
            access=self._access,
        )
        write.quick = quick
        misfit = self._adopt()
        write.begin()
        opened = write_write.Opened(write)
        self._open, self._thread = write, threading.get_ident()
        try:
            yield opened
        except BaseException as error:
            self._open = None
            write.abandon()
            if misfit is not None and isinstance(error, ValidationError):
                error.explain(f"this branch keeps its current types, because {misfit}")
            raise
        self._open = None
        if self._call is not None:
            self._call.change()
        commit = opened.commit = self._describe(write.finish())
        if self._call is not None and commit is not None:
            self._call.statements += commit.added + commit.removed

    @contextmanager
    def within(self, write: Write) -> Iterator[None]:
        """Let the block read and write inside a write that its caller has begun and will end."""
        self._open, self._thread = write, threading.get_ident()
        try:
            yield
        finally:
            self._open = None

    def _adopt(self) -> str | None:
        """Give the branch the declared types; return why it keeps its own, if it does.

        Writes are possible in that case too: nodes may have to change before the types fit. The
        details are for actors who see all types.
        """
        try:
            evolution.adopt_on_branch(self._graph, self._checkout, self._declared)
        except SchemaMismatchError as error:
            return (
                error.message if self.visibility.reads_all else "its data does not fit the new ones"
            )
        return None

    def _describe(self, commit: Commit | None) -> Commit | None:
        """The visible part of a commit that the actor made."""
        if commit is None:
            return None
        if self._access.unrestricted:
            return commit.public()
        refs = RefResolver(self._graph, reader(self._access))
        return visible_history.VisibleHistory(
            self._graph, self._access, refs, self._branches
        ).describe_own(commit)

    def _mine(self) -> Write | None:
        """The open transaction of this context, on this thread."""
        return self._open if self._thread == threading.get_ident() else None

    def raw_sparql(
        self, text: str, /, *, skip_validation: bool = False, message: str = ""
    ) -> Commit | None:
        """Write statements given as INSERT DATA and DELETE DATA.

        They are validated like all writes. ``skip_validation`` requires
        ``[validation] allow_bypass = true`` and is never available in a call over a surface.
        """
        if skip_validation and self._call is not None and self._call.caller is not None:
            raise TransactionError(
                "skipping validation is not allowed in a call over MCP, REST or the command line: "
                "write valid statements, or do it in a program that opens the project"
            )
        if skip_validation and not self._graph.allow_bypass:
            raise TransactionError(
                "skipping validation is not allowed here: set [validation] allow_bypass = true "
                "in trails.toml if this project needs it"
            )
        if not self.visibility.reads_all:
            raise refuse_text()
        removed, added = edits.data_statements(text, self._graph.names)
        alone = self._mine() is None
        with self._writing(message, None, None) as opened:
            edits.apply_statements(
                opened.write,
                removed,
                added,
                validate=not skip_validation,
                alone=alone,
            )
        return opened.commit


def _noted(nodes: Iterable[object], key: IdempotencyKey, *, upsert: bool) -> Iterator[object]:
    """Yield nodes, adding each to the request of an idempotency key."""
    for node in nodes:
        key.request.add(write_puts.request_of(node, upsert=upsert))
        yield node
