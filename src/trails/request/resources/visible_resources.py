"""Offers: what of the things that can be read an actor is shown.

The same questions decide what is listed and what is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trails.engine.graph.graph import MAIN
from trails.model.capabilities import Capability, StoredQuery
from trails.model.iris import digest_of
from trails.model.uris import ROOTS, SCHEME, Document, ResourceList
from trails.projections.resources import project_resources
from trails.registry.registry import Registry
from trails.request.entries import Rights, of_capability, of_queries, of_query

NO_TYPES: Final = (
    "there are none yet: the first write or 'trails serve' stores what the project declares"
)
"""What is said beside an unknown type where no type is known."""
ON_MAIN: Final[frozenset[Document]] = frozenset({"schema", "stats", "kg/types"})
"""Documents that are about the branch on which they are read."""
_QUERY_TEMPLATE: Final = f"{SCHEME}queries/{{name}}"
_PLACED: Final = (f"{SCHEME}branch/", f"{SCHEME}at/")


def offered_queries(registry: Registry, rights: Rights) -> Mapping[str, StoredQuery]:
    """The stored queries that are shown to a caller, by name."""
    return {
        name: query
        for name, query in registry.queries.items()
        if query.expose and rights.passes(of_query(query))
    }


def offered_capabilities(
    registry: Registry, rights: Rights, graph: str
) -> Mapping[str, Capability]:
    """The capabilities that a caller can call, by id."""
    declared = rights.declared(registry)
    return {
        name: each
        for name, each in registry.capabilities.items()
        if rights.passes(of_capability(each, graph, MAIN))
        and (isinstance(declared, Registry) or declared.knows(each))
    }


def offers_document(rights: Rights, name: Document) -> bool:
    """Whether a document exists for an actor, where it names no branch."""
    if name == "doctor":
        return rights.passes(rights.gate("Admin"))
    if name in ON_MAIN:
        return rights.may("Read", MAIN)
    return rights.passes(rights.gate("Read"))


def offer_resources(rights: Rights, registry: Registry, graph: str) -> ResourceList:
    """What an actor is listed: types of ``main``, documents, and templates."""
    every = project_resources(rights.schema(MAIN))
    reads = rights.passes(rights.gate("Read"))
    asks = _asks(rights, registry, graph)

    def offers(uri: str) -> bool:
        if uri == _QUERY_TEMPLATE:
            return asks
        if uri.startswith(_PLACED):
            return reads
        document = _DOCUMENTS.get(uri)
        return document is None or offers_document(rights, document)

    resources = tuple(each for each in every.resources if offers(each.uri))
    templates = tuple(each for each in every.templates if offers(each.uri_template))
    shown = digest_of([each.uri for each in resources] + [each.uri_template for each in templates])
    return ResourceList(f"{every.version}-{shown[:16]}", resources, templates)


def offered_roots(rights: Rights, registry: Registry, graph: str) -> tuple[str, ...]:
    """How the URIs begin that exist for an actor."""
    documents = {name for name in _NAMES if offers_document(rights, name)}

    def offers(root: str) -> bool:
        match root:
            case "queries/…":
                return _asks(rights, registry, graph)
            case "kg/…":
                return "kg/types" in documents
            case "branch/…" | "at/…":
                return rights.passes(rights.gate("Read"))
        return root in documents

    return tuple(filter(offers, ROOTS))


def _asks(rights: Rights, registry: Registry, graph: str) -> bool:
    """Whether any stored query is shown to an actor."""
    queries = (each for each in registry.queries.values() if each.expose)
    return rights.passes(of_queries(queries, graph))


_NAMES: Final[tuple[Document, ...]] = (
    "schema",
    "stats",
    "kg/types",
    "branches",
    "prov/latest",
    "doctor",
)
_DOCUMENTS: Final[Mapping[str, Document]] = {SCHEME + name: name for name in _NAMES}
