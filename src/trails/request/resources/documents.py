"""The built-in documents: schema, types, statistics, health, latest activity, branches, queries.

Each is a function from what is asked to a value that has a JSON form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

import msgspec

from trails.engine.graph.graph import MAIN
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.engine.upkeep.maintenance import measure
from trails.errors import NotFoundError
from trails.model.capabilities import StoredQuery
from trails.model.history import Activity, Commit
from trails.model.names import suggest
from trails.model.upkeep import Report
from trails.model.uris import Document, DocumentAddress, ListAddress, ReadPoint, format_address
from trails.projections.documents import project_schema
from trails.projections.json_schema import project_fields
from trails.registry.registry import Registry
from trails.request.authorize import rights_of
from trails.request.failures import unmask
from trails.request.resources.visible_resources import offered_capabilities, offered_queries

ACTIVITIES: Final = 50
COMMITS: Final = 20
_LOOKED_AT: Final = 2000
"""Activities among which those of one actor are looked for."""

Doctor = Callable[[], Report]


def read_document(
    service: GraphService, ctx: GraphContext, address: DocumentAddress, doctor: Doctor
) -> object:
    """A document's content."""
    if address.name == "doctor":
        return _health(doctor())
    return _READ[address.name](service, ctx, address.place)


def _schema(service: GraphService, ctx: GraphContext, place: ReadPoint) -> object:
    del place
    return project_schema(ctx.kg.schema, service.graph.names)


def _types(service: GraphService, ctx: GraphContext, place: ReadPoint) -> object:
    del service
    counts = ctx.kg.counts()
    return [
        {
            "type": each.name,
            "description": each.description,
            "count": counts[each.name],
            "uri": format_address(ListAddress(each.name, place)),
            **({} if each.extends is None else {"extends": each.extends}),
        }
        for each in ctx.kg.schema.types
    ]


def _stats(service: GraphService, ctx: GraphContext, place: ReadPoint) -> object:
    del place
    registry = ctx.registry
    capabilities, queries = len(registry.capabilities), len(registry.queries)
    if not ctx.access.unrestricted:
        rights = rights_of(ctx)
        capabilities = len(offered_capabilities(registry, rights, service.graph.name))
        queries = len(offered_queries(registry, rights))
    return {
        **msgspec.to_builtins(measure(service.graph, ctx)),
        "capabilities": capabilities,
        "queries": queries,
    }


def _branches(service: GraphService, ctx: GraphContext, place: ReadPoint) -> object:
    del place
    return [
        {
            **msgspec.to_builtins(each),
            "uri": format_address(DocumentAddress("kg/types", ReadPoint(branch=each.name))),
        }
        for each in service.versions(ctx.actor, access=ctx.access).branches()
    ]


def _latest(service: GraphService, ctx: GraphContext, place: ReadPoint) -> object:
    """Who did what; an actor without the right to administer sees its own calls."""
    del place
    graph, access = service.graph, ctx.access
    if access.may("Admin", MAIN):
        activities = [_activity(each) for each in graph.activities.newest(ACTIVITIES)]
    else:
        lately = graph.activities.newest(_LOOKED_AT)
        own = (_activity(unmask(each)) for each in lately if each.actor == ctx.actor)
        activities = list(islice(own, ACTIVITIES))
    commits = service.versions(ctx.actor, access=access).newest(COMMITS)
    return {"activities": activities, "commits": [_commit(each) for each in commits]}


def _activity(activity: Activity) -> Mapping[str, object]:
    return {
        "id": activity.id,
        "activity": activity.name,
        "kind": activity.kind,
        "agent": activity.actor,
        "started": activity.started,
        "ended": activity.ended,
        "outcome": activity.outcome,
        "detail": activity.detail,
        "calls": activity.calls,
    }


def _commit(commit: Commit) -> Mapping[str, object]:
    return {
        "commit": commit.id,
        "branch": commit.branch,
        "agent": commit.actor,
        "activity": commit.activity,
        "time": commit.time,
        "message": commit.message,
        "statements_added": commit.added,
        "statements_removed": commit.removed,
    }


_READ: Final[Mapping[Document, Callable[[GraphService, GraphContext, ReadPoint], object]]] = {
    "schema": _schema,
    "kg/types": _types,
    "stats": _stats,
    "branches": _branches,
    "prov/latest": _latest,
}


def _health(report: Report) -> object:
    return {"healthy": report.healthy, **msgspec.to_builtins(report)}


# --- stored queries --------------------------------------------------------------------


def read_query(registry: Registry, offered: Mapping[str, StoredQuery], name: str) -> object:
    """What one of the stored queries that a caller is offered does and takes."""
    query = offered.get(name)
    if query is None:
        hint = suggest(name, offered) if offered else "this graph has none"
        raise NotFoundError(f"there is no stored query {name[:100]!r}; {hint}", query=name[:100])
    return {
        "name": query.name,
        "description": query.description,
        "tool": query.effective_tool_name,
        "changes_data": query.mutation,
        "columns": query.columns,
        "parameters": project_fields(query.params, registry),
    }
