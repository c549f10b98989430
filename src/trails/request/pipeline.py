"""The path of a request: resolve, authorize, check the arguments, dispatch, shape.

Every surface calls a Kernel, one a graph; listing tools goes the same way as calling one.
"""

from __future__ import annotations

from collections.abc import Mapping

from trails.engine.activities import Call
from trails.engine.service import GraphService
from trails.model.actors import Actor
from trails.model.outcomes import Failure, Outcome
from trails.model.tools import ToolList
from trails.request.authorize import refuse
from trails.request.catalog import Catalog
from trails.request.dispatch import Dispatch, Request
from trails.request.failures import unknown_tool
from trails.request.options import KernelOptions


class Kernel:
    """One graph, as surfaces see it."""

    def __init__(self, service: GraphService, options: KernelOptions) -> None:
        self._service = service
        self._options = options
        self._dispatch = Dispatch(service)
        self._catalog: Catalog | None = None

    @property
    def name(self) -> str:
        """What a server of this graph calls itself."""
        return f"{self._options.project}/{self._service.graph.name}"

    @property
    def version(self) -> str:
        """The version of that."""
        return self._options.version

    def tools(self, actor: Actor) -> ToolList:
        """The tools that an actor may use."""
        return self._pin().tools(actor)

    async def execute(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """Call a tool. Never raises but for cancellation."""
        catalog = self._pin()
        entry = catalog.find(name)
        if entry is None:
            return self._refused(Call(actor.name, name[:200], "runtime"), unknown_tool(name))
        call = Call(actor.name, entry.tool.name, entry.kind)
        refused = refuse(actor, entry.tool)
        if refused is not None:
            return self._refused(call, refused)
        return await self._dispatch.run(Request(catalog.registry, entry, call, arguments))

    def _pin(self) -> Catalog:
        """The catalog of the registry that is current now; a request keeps to it."""
        catalog, registry = self._catalog, self._service.registry
        if catalog is None or catalog.registry is not registry:
            catalog = self._catalog = Catalog(registry, self._service, self._options)
        return catalog

    def _refused(self, call: Call, failure: Failure) -> Failure:
        self._service.graph.activities.end(call, failure.code, failure.message)
        return failure

    def close(self) -> None:
        """Let the threads end; the graph stays open."""
        self._dispatch.close()
