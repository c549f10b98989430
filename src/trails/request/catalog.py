"""The catalog: everything that one registry snapshot can call, by name.

Built-ins, capabilities, meta-capabilities and stored queries become entries of one
kind; listing and calling treat them alike. It is built once for each snapshot, so
the cost of a call does not depend on the number of tools.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from trails.engine.graph.graph import MAIN
from trails.engine.session.arguments import Arguments, checks_of, named
from trails.engine.session.service import GraphService
from trails.imports import later
from trails.model.actors import Actor
from trails.model.caches import BoundedCache, LRUCache, VersionedCache
from trails.model.capabilities import (
    Capability,
    Deprecation,
    StoredQuery,
    Tool,
    ToolList,
    parse_deprecation,
)
from trails.model.iris import digest_of
from trails.model.names import portable_name
from trails.model.types import PredicateDescriptor
from trails.model.upkeep import Finding
from trails.projections.tools import (
    ProjectedTools,
    controls_of,
    project_controls,
    project_query,
    query_controls,
    with_params,
    write_controls_of,
)
from trails.registry.registry import Registry
from trails.request.admission import KernelOptions
from trails.request.answers import shape_object, shape_of
from trails.request.authorize import Authorizer, refuse_reading, refuse_scope
from trails.request.builtins.declare import Builtin, OwnShapes, ToolContext
from trails.request.entries import (
    Entry,
    Gate,
    Rights,
    activity_kind,
    of_capability,
    of_graph,
    of_queries,
    of_query,
)

if TYPE_CHECKING:
    from trails.projections import examine, thing_description
    from trails.projections.thing_description import CardAction
    from trails.request import operations
    from trails.request.builtins import queries
else:
    examine = later("trails.projections.examine")
    queries = later("trails.request.builtins.queries")
    operations = later("trails.request.operations")
    thing_description = later("trails.projections.thing_description")

ANY_OBJECT: Final = {"type": "object"}
"""The schema of results whose members are documented, and not repeated in each list of tools."""
_LISTS: Final = 1024
"""Cached lists, one for each actor."""
_DIGESTS: Final = 1 << 16


class Catalog:
    """The entries of one registry snapshot."""

    def __init__(
        self,
        registry: Registry,
        service: GraphService,
        options: KernelOptions,
        authority: Authorizer,
        earlier: Catalog | None = None,
    ) -> None:
        """``earlier``: the catalog of the registry before, which may have made the same tools."""
        self.registry = registry
        self._authority = authority
        self._writes = options.writes
        known = None if earlier is None else earlier.projected
        self.projected: ProjectedTools = ProjectedTools(registry, known)
        maker = _Maker(registry, service, options, self.projected)
        self.queries_by_name = maker.queries_by_name
        """Whether stored queries are called by name through two tools, instead of one tool each."""
        made = sorted(maker.entries(), key=lambda entry: entry.tool.name)
        self.entries = {entry.tool.name: entry for entry in made}
        self._portable = {portable_name(name): entry for name, entry in self.entries.items()}
        self._lists: VersionedCache[Hashable, ToolList] = VersionedCache(_LISTS)
        self._digests: BoundedCache[Entry, str] = BoundedCache(_DIGESTS)
        self._actions: LRUCache[str, Sequence[CardAction]] = LRUCache(_LISTS)

    def find(self, name: str) -> Entry | None:
        """The entry of a name, with dots or with underscores in their place."""
        return self.entries.get(name) or self._portable.get(name)

    def actions(self, tools: ToolList) -> Sequence[CardAction]:
        """Some tools, each with what it is made of."""
        return self._actions.get(tools.version, lambda: self._make_actions(tools))

    def _make_actions(self, tools: ToolList) -> Sequence[CardAction]:
        return [
            thing_description.CardAction(tool, self.entries[tool.name].source)
            for tool in tools.tools
        ]

    def examine(self) -> Iterator[Finding]:
        """Compare what is served with the descriptors: a tool that was changed since is found."""
        own = [entry for entry in self.entries.values() if entry.source is not None]
        sources = [entry.source for entry in own if entry.source is not None]
        expected = examine.describe_callables(sources, self.registry)
        documents = examine.project_documents(entry.tool for entry in own)
        yield from examine.examine_documents(expected, documents, "served")

    def repeatable(self) -> list[str]:
        """Names, in every spelling, of tools that can be called again if the outcome is unknown.

        For processes that forward calls, not for clients: it is the same for all actors.
        """
        spelled = (*self.entries.items(), *self._portable.items())
        return sorted({name for name, each in spelled if each.tool.hints.repeatable})

    def tools(self, actor: Actor) -> ToolList:
        """The tools that an actor may use, in name order."""
        rights = self._authority.rights(actor)
        key = rights, actor.scopes, self._writes.of(actor)
        return self._lists.get(key, rights.branches_version, lambda: self._list(actor, rights))

    def _list(self, actor: Actor, rights: Rights) -> ToolList:
        every = (rights.see(entry, self.registry) for entry in self.entries.values())
        shown = [
            entry
            for entry in every
            if entry is not None and refuse_scope(actor, entry.tool) is None
        ]
        if self._writes.of(actor) == "propose":
            shown = [_with_controls(entry) for entry in shown]
        deprecated = _deprecated(shown)
        version = digest_of([[self._digest(entry) for entry in shown], deprecated])
        tools = tuple(
            msgspec.structs.replace(entry.tool, deprecated=found)
            if (found := deprecated.get(entry.tool.name)) is not None
            else entry.tool
            for entry in shown
        )
        digest = self._seen_digest(actor, rights, shown, deprecated)
        return ToolList(version, tools, deprecated, digest)

    def _seen_digest(
        self,
        actor: Actor,
        rights: Rights,
        shown: Sequence[Entry],
        deprecated: Mapping[str, Deprecation],
    ) -> str:
        """The digest of all that an actor sees of the registry, and of nothing that it does not.

        Built-in operations on the application are not declared, so callers with and without
        the scope for them can compare what they have.
        """
        reads = refuse_reading(actor) is None and (
            rights.unrestricted or rights.passes(rights.gate("Read"))
        )
        declared = rights.declared(self.registry)
        descriptors = [
            entry.source.descriptor for entry in shown if isinstance(entry.source, Capability)
        ]
        tools = [
            self._digest(entry)
            for entry in shown
            if entry.source is not None or entry.tool.meta is None
        ]
        schema = declared.schema.digest if reads else None
        return digest_of([tools, deprecated, descriptors, schema])[:16]

    def _digest(self, entry: Entry) -> str:
        """The digest of a tool as it is shown, which goes into the version of a list."""
        found = self._digests.get(entry)
        if found is None:
            found = self._digests[entry] = digest_of(entry.tool)
        return found


def _with_controls(entry: Entry) -> Entry:
    """An entry whose tool lists the arguments for writes."""
    if "propose" not in entry.tool.controls:
        return entry
    tool = msgspec.structs.replace(entry.tool, lists_controls=True)
    return msgspec.structs.replace(entry, tool=tool)


def _deprecated(shown: Sequence[Entry]) -> dict[str, Deprecation]:
    """What is deprecated by something that the actor may use, by the name of the tool."""
    sources = [each.source for each in shown if isinstance(each.source, Capability)]
    names = {each.id: each.tool_name for each in sources}
    found: dict[str, Deprecation] = {}
    for each in sources:
        for text in each.descriptor.deprecates:
            identifier, since, sunset = parse_deprecation(text)
            if identifier in names and identifier != each.id:
                found[names[identifier]] = Deprecation(each.tool_name, since, sunset)
    return found


class _Maker:
    """Makes the entries of all four kinds."""

    def __init__(
        self,
        registry: Registry,
        service: GraphService,
        options: KernelOptions,
        projected: ProjectedTools,
    ) -> None:
        self._registry = registry
        self._projected = projected
        self._checks = checks_of(registry)
        self._names = service.graph.names
        self._context = ToolContext(service, options)
        self._queries = queries.exposed(registry)
        mode, threshold = options.stored_query_mode, options.stored_query_threshold
        self.queries_by_name = mode == "meta" or (
            mode == "auto" and len(self._queries) >= threshold
        )

    def entries(self) -> Iterable[Entry]:
        registry = self._registry
        graph = self._context.service.graph.name
        for each in operations.BUILTINS:
            if not each.is_hidden(self._context.options.env):
                yield builtin_entry(each, self._context, builtin_gate(each, graph))
        yield from map(self._capability, registry.capabilities.values())
        for meta in registry.metas.values():
            if meta.meta is not None and not self._is_hidden(meta.meta.scope):
                yield self._capability(meta)
        if self.queries_by_name:
            gate = of_queries(self._queries.values(), graph)
            yield from (builtin_entry(each, self._context, gate) for each in operations.BY_NAME)
        else:
            yield from map(self._query, self._queries.values())

    def _is_hidden(self, scope: str) -> bool:
        """Development tools are not offered in production."""
        return scope == "dev" and self._context.options.env == "production"

    def _capability(self, capability: Capability) -> Entry:
        waits = not inspect.iscoroutinefunction(capability.handler)
        return Entry(
            tool=self._projected.of(capability),
            kind=activity_kind(capability),
            arguments=self._checks.of_capability(capability),
            controls=_controls((*controls_of(capability), *write_controls_of(capability))),
            declared=self._registry,
            place="thread" if waits else "loop",
            handler=capability.handler,
            gate=of_capability(capability, self._context.service.graph.name, MAIN),
            shape=shape_of(capability.id, capability.descriptor.output_shape, self._names),
            source=capability,
            judged=capability if capability.descriptor.policy_required else None,
        )

    def _query(self, query: StoredQuery) -> Entry:
        return Entry(
            tool=project_query(query, self._registry, ANY_OBJECT),
            kind=activity_kind(query),
            arguments=self._checks.of_query(query),
            controls=_controls((*query_controls(query), *write_controls_of(query))),
            declared=with_params(query, self._registry),
            place="thread",
            handler=partial(queries.run_stored, self._context, query),
            handler_on=lambda service: partial(
                queries.run_stored, self._context.on(service), query
            ),
            gate=of_query(query),
            shape=shape_object(self._names),
            source=query,
        )


def builtin_gate(builtin: Builtin, graph: str) -> Gate:
    """The gate of what a built-in does to the graph."""
    action = () if builtin.action is None else (builtin.action,)
    return of_graph(graph, (*action, *builtin.also), whole=builtin.whole)


def builtin_entry(builtin: Builtin, tool: ToolContext, gate: Gate) -> Entry:
    """A built-in as an entry."""
    shapes = OwnShapes.of(*builtin.shapes)
    return Entry(
        tool=Tool(
            name=builtin.name,
            title=builtin.title,
            description=builtin.description,
            input_schema=builtin.input_schema(),
            output_schema=ANY_OBJECT,
            hints=builtin.hints,
            meta=builtin.meta,
            action=builtin.action,
            controls=project_controls(builtin.unlisted),
        ),
        kind=builtin.kind,
        arguments=Arguments(builtin.name, builtin.fields, shapes.special()),
        controls=_controls((*builtin.controls, *builtin.unlisted)),
        declared=shapes,
        place=builtin.place,
        handler=partial(builtin.run, tool),
        handler_on=lambda service: partial(builtin.run, tool.on(service)),
        gate=gate,
        shape=shape_object(tool.service.graph.names),
    )


def _controls(fields: tuple[PredicateDescriptor, ...]) -> Arguments:
    return Arguments("every tool", fields, named)
