"""GraphService: every operation on one graph.

An App has one for each graph; its own methods, the request kernel and the command line use it.
``run_query`` runs a stored query, and refuses one that can reach what its caller may not read.
Queries may name instances in any form of reference; in SPARQL an unknown IRI matches nothing, so
readers who may see the whole graph get a notice about those that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from trails.engine.graph.activities import CallRecord
from trails.engine.graph.ancestry import Permits
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.session.context import GraphContext, recording
from trails.engine.session.graph_session import NO_SPARQL, GraphSession
from trails.engine.transfer.source import Progress, no_progress
from trails.engine.visibility.access import (
    OPEN,
    Access,
    check_credential,
    check_wanted,
    refuse_text,
)
from trails.engine.visibility.refs import RefResolver, reader, snapshot_checkout, usable
from trails.errors import ForbiddenError
from trails.imports import later
from trails.model.actors import checked_actor
from trails.model.capabilities import Action, StoredQuery
from trails.model.iris import Names
from trails.model.kinds import Iri
from trails.model.metrics import SandboxCount
from trails.model.nodes import split_handle
from trails.model.results import QueryAnswer
from trails.model.sparql.tokens import significant, tokenize
from trails.model.writes import LOAD_LIMITS, LoadLimits, LoadRequest, LoadResult, Mutation
from trails.registry.registry import Registry, RegistryCell

if TYPE_CHECKING:
    from trails.engine.graph import drafts
    from trails.engine.graph.drafts import DraftGraph
    from trails.engine.history import branches as history_branches
    from trails.engine.history.branches import Versions
    from trails.engine.sparql import queries, reach
    from trails.engine.sparql.queries import Untrusted
    from trails.engine.transfer import files
    from trails.engine.write import mutate
    from trails.engine.write.mutate import Effect
    from trails.sandbox.pool import Sandbox
    from trails.sandbox.results import Result
else:
    drafts = later("trails.engine.graph.drafts")
    history_branches = later("trails.engine.history.branches")
    queries = later("trails.engine.sparql.queries")
    files = later("trails.engine.transfer.files")
    mutate = later("trails.engine.write.mutate")
    reach = later("trails.engine.sparql.reach")

_FEW: Final = 100
"""Operations of a mutation that other writers can wait for."""
_LOOKED_UP: Final = 50
_MOST: Final = 5
"""The most hints in one notice."""


def spell_instances(
    kg: GraphSession, names: Names, params: Mapping[str, object]
) -> Mapping[str, object]:
    """Parameters with each ``Iri`` that refers to an instance, in any form, as a full IRI."""
    spelled: dict[str, object] = {}
    for name, value in params.items():
        handle = kg.compiled.validator.references.exact(value) if isinstance(value, Iri) else None
        spelled[name] = value if handle is None else Iri(names.node(*split_handle(handle)))
    return spelled


def find_missing_nodes(
    kg: GraphSession, names: Names, text: str, params: Mapping[str, object]
) -> str | None:
    """Notices about named instances that do not exist or have a form unknown to SPARQL."""
    named = [*_named(text), *(value for value in params.values() if isinstance(value, Iri))]
    hints = _hints(kg, names, islice(dict.fromkeys(named), _LOOKED_UP))
    return "; ".join(islice(hints, _MOST)) or None


def _named(text: str) -> Iterator[str]:
    if "<" not in text:
        return  # prefixed names, as in most texts
    tokens = significant(tokenize(text))
    based = any(each.kind == "word" and each.text.upper() == "BASE" for each in tokens)
    for token in tokens:
        iri = token.text[1:-1]
        if token.kind == "iri" and (":" in iri or not based):
            yield iri


def _hints(kg: GraphSession, names: Names, iris: Iterable[str]) -> Iterator[str]:
    references = kg.compiled.validator.references
    for iri in iris:
        handle = references.exact(iri)
        if handle is None:
            continue
        type_name, identifier = split_handle(handle)
        if kg.find_by_id(type_name, identifier) is None:
            yield kg.describe_missing(type_name, handle)
        elif ":" in iri and not iri.startswith(names.nodes):
            yield f"<{iri}> matches nothing; write <{handle}>"


class GraphService:
    """A graph, its registry, and the sandbox workers for untrusted text."""

    def __init__(
        self,
        graph: Graph,
        cell: RegistryCell,
        make_sandbox: Callable[[], Sandbox],
        load_limits: LoadLimits = LOAD_LIMITS,
    ) -> None:
        self.graph = graph
        self.cell = cell
        self._make_sandbox = make_sandbox
        self.load_limits = load_limits
        self.watched: Callable[[], Mapping[str, int]] = dict
        """The URIs that subscribers watch, by how many; set by the kernel."""
        self._untrusted: Untrusted | None = None

    @property
    def registry(self) -> Registry:
        """The current registry snapshot."""
        return self.cell.current

    @property
    def untrusted(self) -> Untrusted:
        """Runs untrusted text; the workers start on first use."""
        if self._untrusted is None:
            self._untrusted = queries.Untrusted(self.graph, self._make_sandbox())
        return self._untrusted

    def workers(self) -> SandboxCount:
        """How many processes of the sandbox do what; none is started for that."""
        return SandboxCount() if self._untrusted is None else self._untrusted.sandbox.count()

    def context(
        self,
        actor: str,
        branch: str = MAIN,
        snapshot: str | None = None,
        *,
        registry: Registry | None = None,
        call: CallRecord | None = None,
        access: Access = OPEN,
        permits: Permits | None = None,
    ) -> GraphContext:
        """A context for an actor, on a branch or at a commit.

        ``registry`` is the snapshot that a request has pinned, ``call`` the call that this is
        for. ``permits`` selects the branches on which ``access`` allows the purpose of this
        context; None means all. A snapshot counts as on every branch that contains it. Branches
        and commits that the actor may neither read nor change are reported as not found, except
        main.
        """
        graph = self.graph
        branches: tuple[str, ...] = ()
        if snapshot is None and (permits is None or (branch == MAIN and permits(branch))):
            checkout = graph.checkout(branch)
        else:
            exists = None if permits is None else usable(access, permits)
            refs = RefResolver(graph, exists, suggests=reader(access))
            if snapshot is None:
                checkout = refs.checkout(branch)
            else:
                commit = refs.commit(snapshot)
                checkout = snapshot_checkout(graph, commit)
                branches = () if access.unrestricted else tuple(refs.branches_of(commit))
        if call is not None:
            call.use(checkout.head.commit)
        return GraphContext(
            graph,
            registry or self.registry,
            actor=checked_actor(actor),
            checkout=checkout,
            call=call,
            access=access,
            branches=branches,
        )

    @contextmanager
    def draft(self, source: Checkout, branch: str) -> Iterator[DraftService]:
        """All operations on a draft, in which a branch is where another or a snapshot is now."""
        with drafts.drafted_graph(self.graph, source, branch) as graph:
            yield DraftService(self, graph)

    def versions(
        self, actor: str, call: CallRecord | None = None, access: Access = OPEN
    ) -> Versions:
        """Branches, commits, differences and merges for an actor."""
        return history_branches.Versions(self.graph, checked_actor(actor), call, access)

    def ask(self, ctx: GraphContext, text: str, params: Mapping[str, object]) -> QueryAnswer:
        """Run an untrusted SPARQL query in the sandbox, within the limits of ``[sandbox]``."""
        with recording(ctx, "graph_query", "query"):
            if ctx.kg.schema_filter is not None:
                raise ForbiddenError(NO_SPARQL)
            kg, names = ctx.kg, self.graph.names
            spelled = spell_instances(kg, names, params)
            answer = self.untrusted.ask(ctx.checkout, text, spelled, caller=ctx.actor)
            return answer.with_notice(find_missing_nodes(kg, names, text, spelled))

    def ask_terms(self, ctx: GraphContext, text: str) -> Result:
        """The same without parameters, for RDF terms: what the SPARQL protocol returns."""
        with recording(ctx, "graph_query", "query"):
            if ctx.kg.schema_filter is not None:
                raise ForbiddenError(NO_SPARQL)
            return self.untrusted.ask_terms(ctx.checkout, text, caller=ctx.actor)

    def mutate(
        self,
        ctx: GraphContext,
        change: str | Sequence[object],
        *,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Mutation:
        """Change the graph in one commit: by SPARQL Update, or by a list of typed operations."""
        graph, checkout = self.graph, ctx.checkout
        with recording(ctx, "graph_mutate", "mutation") as inner:
            quick = not isinstance(change, str) and len(change) <= _FEW
            opening = partial(
                inner.kg.operation if quick else inner.kg.transaction,
                message=message,
                expected_head=expected_head,
                idempotency_key=idempotency_key,
            )
            if isinstance(change, str):
                if not inner.visibility.reads_all:
                    raise refuse_text()
                effect = self.untrusted.effect(checkout, caller=ctx.actor)
                return mutate.mutate_sparql(graph, checkout, opening, change, effect)
            return mutate.mutate_typed(opening, inner.kg, change)

    def load(
        self,
        actor: str,
        request: LoadRequest,
        progress: Progress = no_progress,
        *,
        registry: Registry | None = None,
        call: CallRecord | None = None,
        access: Access = OPEN,
    ) -> LoadResult:
        """Load files into a branch: one commit, or none and a list of every problem.

        A branch that is missing is forked where the request says from what, and is gone again
        when the load fails. RDF is parsed in the sandbox.
        """
        graph = self.graph
        with history_branches.forked_branch(
            graph,
            request.branch,
            source=request.source,
            actor=checked_actor(actor),
            access=access,
            most=history_branches.most_branches(graph, call),
        ) as forked:
            ctx = self.context(actor, request.branch, registry=registry, call=call, access=access)
            with recording(ctx, "graph_load", "load") as inner:
                opening = partial(
                    inner.kg.transaction,
                    message=request.message,
                    expected_head=request.expected_head,
                    idempotency_key=request.idempotency_key,
                )
                watched = partial(_go_on, graph, call, progress)
                parse = partial(self.untrusted.parse, caller=actor)
                return files.load_files(
                    graph,
                    ctx.checkout,
                    opening,
                    request,
                    files.ReadOptions(parse, watched, self.load_limits),
                    access=access,
                    call=call,
                    forked=forked,
                )

    def export(
        self, ctx: GraphContext, format: str = "ndjson", types: Sequence[str] = ()
    ) -> Generator[bytes, None, None]:
        """Export a branch or snapshot in blocks; all types, or some with their subtypes."""
        return files.export_checkout(self.graph, ctx.checkout, format, types, ctx.kg.schema_filter)

    def close(self) -> None:
        """End the workers and close the graph."""
        if self._untrusted is not None:
            self._untrusted.sandbox.close()
            self._untrusted = None
        self.graph.close()


class DraftService(GraphService):
    """Operations on a draft; untrusted text runs in the workers of the graph below."""

    graph: DraftGraph

    def __init__(self, below: GraphService, graph: DraftGraph) -> None:
        super().__init__(graph, below.cell, lambda: below.untrusted.sandbox, below.load_limits)

    def close(self) -> None:
        """Do nothing: the workers belong to the service below, the draft to who opened it."""


def _go_on(
    graph: Graph, call: CallRecord | None, progress: Progress, done: int, total: int | None
) -> None:
    """A progress callback that stops a load whose caller has left or lost access."""
    check_wanted(call)
    check_credential(graph, call)
    progress(done, total)


def run_query(
    graph: Graph,
    untrusted: Untrusted,
    ctx: GraphContext,
    query: StoredQuery,
    params: object,
) -> QueryAnswer | str | None:
    """Run a stored query with checked parameters: its answer, or the commit of one that changes.

    The author of the project wrote the text, so where no process can be confined it runs here.
    """
    _check_inner(ctx, query)
    if is_hidden(ctx, query):
        raise ForbiddenError("this query can reach what its caller may not read; use another")
    text = queries.bind_query(query, cast(Mapping[str, object], params))
    checkout, confined = ctx.checkout, untrusted.sandbox.confinement.complete
    if query.mutation:
        effect = untrusted.effect if confined else partial(_local_effect, graph, untrusted)
        found = effect(checkout, caller=ctx.actor)
        return mutate.mutate_sparql(graph, checkout, ctx.kg.transaction, text, found).commit
    if confined:
        return untrusted.run(checkout, text, caller=ctx.actor)
    with untrusted.sandbox.spending(ctx.actor):
        return queries.ask_checkout(graph, checkout, text)


def _local_effect(graph: Graph, untrusted: Untrusted, checkout: Checkout, *, caller: str) -> Effect:
    """How to find out here, on the caller's time, what an author's update would change."""

    def effect(text: str) -> tuple[bytes, bytes]:
        with untrusted.sandbox.spending(caller):
            return mutate.local_effect(graph, checkout)(text)

    return effect


def is_hidden(ctx: GraphContext, query: StoredQuery) -> bool:
    """Whether a stored query can reach what the actor may not read, here."""
    if ctx.kg.schema_filter is None:
        return False
    if ctx.shown is not None and not ctx.shown.knows(query):
        return True
    schema = ctx.checkout.schema
    return reach.touches_hidden(reach.reach_of(query, schema, ctx.names), ctx.visibility, schema)


def _check_inner(ctx: GraphContext, query: StoredQuery) -> None:
    """Who may run a query may still not read or change what it does."""
    action: Action = "Change" if query.mutation else "Read"
    if any(ctx.access.may(action, each) for each in ctx.branches):
        return
    does = "changes" if query.mutation else "reads"
    raise ForbiddenError(
        f"{query.name} {does} data that you may not {action.lower()} here; ask for that right, or "
        "use another query",
        query=query.name,
    )
