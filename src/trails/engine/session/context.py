"""The context that capabilities receive: one actor on a branch or snapshot of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from trails.authoring.capabilities import Row
from trails.authoring.nodes import Node, blank, loaded
from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import SNAPSHOT, Checkout
from trails.engine.graph.graph import Graph
from trails.engine.session.graph_session import GraphSession
from trails.engine.visibility.access import OPEN, Access
from trails.engine.visibility.refs import snapshot_checkout
from trails.errors import NotFoundError, TrailsError
from trails.model.nodes import split_handle
from trails.model.visibility import Visibility
from trails.registry.registry import Declared, Registry, visible_declarations


class GraphContext:
    """One actor on one checkout, with the registry snapshot from its creation."""

    def __init__(
        self,
        graph: Graph,
        registry: Registry,
        *,
        actor: str,
        checkout: Checkout,
        call: CallRecord | None = None,
        access: Access = OPEN,
        branches: tuple[str, ...] = (),
    ) -> None:
        self._graph = graph
        self.checkout = checkout
        self.registry = registry
        self._classes = registry.classes
        self.actor = actor
        self.call = call
        """The current call; its commits refer to it."""
        self.access = access
        """The permissions of the actor."""
        self.branches = branches or (checkout.name,)
        """The branches that decide what is visible: this one, or those with the snapshot."""
        # Not a cached property: that takes a lock on first use, which is in every call.
        self._declared: Registry | Declared | None = registry if access.unrestricted else None
        self.graph = graph.name
        self.names = graph.names
        """The IRIs of the graph."""
        self.activities = graph.activities

    @cached_property
    def kg(self) -> GraphSession:
        """The graph as the actor sees it."""
        return GraphSession(
            self._graph,
            self.checkout,
            self.registry.schema,
            self.actor,
            self.call,
            self.access,
            self.branches,
        )

    @property
    def visibility(self) -> Visibility:
        """The visible part of the types."""
        return self.kg.visibility

    @property
    def declared(self) -> Registry | Declared:
        """The visible declarations of the registry."""
        found = self._declared
        if found is None:
            visibility = self.access.visibility(self.registry.schema, self.branches)
            found = (
                self.registry
                if visibility.reads_all
                else visible_declarations(self.registry, visibility)
            )
            self._declared = found
        return found

    @property
    def shown(self) -> Declared | None:
        """What results may show of instances; None means everything."""
        found = self._declared or self.declared
        return found if isinstance(found, Declared) else None

    @property
    def branch(self) -> str:
        """The branch; empty for a snapshot."""
        return "" if self.checkout.fixed else self.checkout.name

    @property
    def snapshot(self) -> str | None:
        """The commit of a snapshot; None on a branch."""
        return self.checkout.name.removeprefix(SNAPSHOT) if self.checkout.fixed else None

    def for_call(self, call: CallRecord) -> GraphContext:
        """The same actor on the same branch, for one call."""
        return GraphContext(
            self._graph,
            self.registry,
            actor=self.actor,
            checkout=self.checkout,
            call=call,
            access=self.access,
            branches=self.branches,
        )

    def at(self, commit: str) -> GraphContext:
        """The same actor, who sees the same, at a commit of this branch."""
        return GraphContext(
            self._graph,
            self.registry,
            actor=self.actor,
            checkout=snapshot_checkout(self._graph, self._graph.ancestry.commit(commit)),
            call=self.call,
            access=self.access,
            branches=self.branches,
        )

    def spend(self, **amounts: float) -> None:
        """Report the cost of this call in a measure that only its author can count."""
        if self.call is not None:
            spent = self.call.spent = self.call.spent or {}
            for name, amount in amounts.items():
                spent[name] = spent.get(name, 0.0) + float(amount)

    def hydrate(self, row: Row) -> Node:
        """A stored node as an instance of its class."""
        cls = self._classes.get(row.type) or self._class_of(row.type)
        return loaded(cls, self, row.id, row.values)

    def reference(self, handle: str) -> Node:
        """A lazy instance, which loads its node on first access."""
        type_name, identifier = split_handle(handle)
        return blank(self._class_of(type_name), self, identifier, handle)

    def _class_of(self, type_name: str) -> type[Node]:
        found = self._classes.get(type_name)
        if found is None:
            raise NotFoundError(f"no class is registered for the stored type {type_name!r}")
        return found


@contextmanager
def recording(
    ctx: GraphContext, name: str, kind: str, *, reads: bool = False
) -> Iterator[GraphContext]:
    """A context for one call, which records an activity for every outcome.

    Work on behalf of a call that is under way belongs to that call and leaves none.
    """
    if ctx.call is not None:
        yield ctx
        return
    call = CallRecord(ctx.actor, name, kind, reads=reads)
    outcome, detail = "ok", ""
    try:
        yield ctx.for_call(call)
        detail = call.note
    except TrailsError as error:
        outcome, detail = error.code, error.message
        raise
    except BaseException as error:
        outcome, detail = "error", type(error).__name__
        raise
    finally:
        ctx.activities.end(call, outcome, detail)
