"""What there is to read, for one actor: lists of resources, completions, and when lists change.

The same questions decide what is listed and what is read. A completion is bounded, and comes from
an index where there may be many values: an id takes the same time among a million instances as
among ten.

Lists of tools follow from the registry, lists of types from the schema of ``main``. Where policies
decide, both also depend on the policies and on the branches that exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec

from trails.engine.graph.feed import BranchChange
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.engine.visibility.refs import RefResolver
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.capabilities import Capability, StoredQuery
from trails.model.constraints import shorten
from trails.model.iris import digest_of
from trails.model.names import suggest
from trails.model.types import PredicateDescriptor, TypeDescriptor
from trails.model.uris import (
    HERE,
    MAX_URI_BYTES,
    ROOTS,
    SCHEME,
    Completions,
    Document,
    ListedResource,
    ReadPoint,
    ResourceList,
)
from trails.projections.resources import project_resources
from trails.registry.registry import Registry
from trails.request.authorize import Authorizer
from trails.request.entries import Rights, of_capability, of_queries, of_query

ON_MAIN: Final[frozenset[Document]] = frozenset({"schema", "stats", "kg/types"})
"""Documents about the branch on which they are read."""
_QUERY_TEMPLATE: Final = f"{SCHEME}queries/{{name}}"
_PLACED: Final = (f"{SCHEME}branch/", f"{SCHEME}at/")


def offered_queries(registry: Registry, rights: Rights) -> Mapping[str, StoredQuery]:
    """The stored queries that a caller may use, by name."""
    return {
        name: query
        for name, query in registry.queries.items()
        if query.expose and rights.passes(of_query(query))
    }


def offered_capabilities(
    registry: Registry, rights: Rights, graph: str
) -> Mapping[str, Capability]:
    """The capabilities that a caller may use, by id."""
    declared = rights.declared(registry)
    return {
        name: each
        for name, each in registry.capabilities.items()
        if rights.passes(of_capability(each, graph, MAIN))
        and (isinstance(declared, Registry) or declared.knows(each))
    }


def offers_document(rights: Rights, name: Document) -> bool:
    """Whether a document without a branch exists for an actor."""
    if name == "doctor":
        return rights.passes(rights.gate("Admin"))
    if name in ON_MAIN:
        return rights.may("Read", MAIN)
    return rights.passes(rights.gate("Read"))


def offer_resources(
    rights: Rights, registry: Registry, graph: str, plugins: Sequence[ListedResource] = ()
) -> ResourceList:
    """The resources of an actor: types of ``main``, documents, and templates."""
    every = project_resources(rights.schema(MAIN), plugins if rights.may("Read", MAIN) else ())
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
    """The beginnings of URIs that exist for an actor."""
    documents = {name for name in _NAMES if offers_document(rights, name)}

    def offers(root: str) -> bool:
        match root:
            case "queries/…":
                return _asks(rights, registry, graph)
            case "kg/…":
                return "kg/types" in documents
            case "plugins/…":
                return rights.may("Read", MAIN)
            case "branch/…" | "at/…":
                return rights.passes(rights.gate("Read"))
        return root in documents

    return tuple(filter(offers, ROOTS))


def _asks(rights: Rights, registry: Registry, graph: str) -> bool:
    """Whether an actor may use any stored query."""
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


MOST: Final = 100
"""The most values in one answer (MCP)."""

Open = Callable[[ReadPoint], GraphContext]
"""Opens a context at a branch or commit."""


class Typed(msgspec.Struct, frozen=True):
    """A variable, the typed part of its value, and the variables that are already set."""

    variable: str
    value: str
    given: Mapping[str, str]


class CompletionSource(msgspec.Struct, frozen=True):
    """The possible values of variables, for one actor."""

    seen: RefResolver
    offered: ResourceList
    queries: Mapping[str, StoredQuery]
    open_at: Open


def complete_variable(
    graph: Graph, known: CompletionSource, template: str, typed: Typed
) -> Completions:
    """Values for one variable, nearest first."""
    variable, value, given = typed.variable, typed.value, typed.given
    _check_template(known.offered, template, variable)
    if len(value) > MAX_URI_BYTES:
        return Completions(())
    if variable == "branch":
        return _starting(value, sorted(known.seen.branches(), key=_main_first))
    if variable == "commit":
        return _commits(graph, known.seen, value)
    if variable in {"limit", "offset", "cursor"}:
        return Completions(())
    if variable == "name":
        return _starting(value, known.queries)
    place = _place(given)
    if place is HERE and not known.seen.has(MAIN):
        return Completions(())
    ctx = known.open_at(place)
    if variable == "type":
        return _starting(value, ctx.kg.schema.by_name)
    descriptor = _descriptor(ctx, template, given)
    if descriptor is None:
        return Completions(())
    if variable == "where":
        return _conditions(descriptor, value)
    found = ctx.kg.ids_from(descriptor.name, value, MOST + 1)
    return _bounded(found)


def _check_template(offered: ResourceList, template: str, variable: str) -> None:
    known = [each.uri_template for each in offered.templates]
    if template not in known:
        asked = template[:200]
        hint = suggest(asked, known[:40])
        raise NotFoundError(
            f"there is no template {shorten(asked)}; {hint}", template=shorten(asked)
        )
    if variable not in variables_of(template):
        message = f"{template} has no variable {shorten(variable[:200])}; it has " + ", ".join(
            variables_of(template)
        )
        raise ValidationError([FieldError("argument", "one_of", message, shorten(variable[:200]))])


def variables_of(template: str) -> list[str]:
    """The variables of a template, in order."""
    found: list[str] = []
    for part in template.split("{")[1:]:
        found += part.partition("}")[0].removeprefix("?").split(",")
    return found


def _main_first(name: str) -> tuple[bool, str]:
    return name != MAIN, name


def _place(given: Mapping[str, str]) -> ReadPoint:
    if "branch" not in given and "commit" not in given:
        return HERE
    return ReadPoint(given.get("branch"), given.get("commit"))


def _descriptor(
    ctx: GraphContext, template: str, given: Mapping[str, str]
) -> TypeDescriptor | None:
    """The type of a template: fixed, or chosen by a variable."""
    name = template.partition("kg/")[2].replace("{", "/").replace("?", "/").partition("/")[0]
    return ctx.kg.schema.by_name.get(name or given.get("type", ""))


def _conditions(descriptor: TypeDescriptor, value: str) -> Completions:
    """Complete ``field=`` first, then the values of fields with a choice."""
    name, equals, start = value.partition("=")
    if not equals:
        comparable = [
            f"{field.name}="
            for field in descriptor.fields
            if (row := field.type.scalar.row) is None or row.sort_key is not None
        ]
        return _starting(name, comparable)
    field = descriptor.by_name.get(name)
    if field is None:
        return Completions(())
    return _starting(f"{name}={start}", [f"{name}={each}" for each in _choices(field)])


def _choices(field: PredicateDescriptor) -> list[str]:
    if field.one_of is not None:
        row = field.type.scalar.row
        return [
            str(each) if row is None else row.lexical(row.coerce(each)) for each in field.one_of
        ]
    return ["true", "false"] if field.type.scalar.kind == "Bool" else []


def _commits(graph: Graph, seen: RefResolver, value: str) -> Completions:
    """The newest commits or, if something was typed, those that begin with it."""
    descent = seen.descent()
    if not value:
        newest = (each.id for each in graph.log.newest() if descent is None or descent.sees(each))
        return _bounded(list(islice(newest, MOST + 1)))
    if len(value) > 32 or not set(value) <= set("0123456789abcdef"):
        return Completions(())
    return _bounded(seen.starting_with(value, MOST + 1))


def _starting(value: str, known: Iterable[str]) -> Completions:
    start = value.casefold()
    found = [each for each in known if each.casefold().startswith(start)]
    return Completions(tuple(found[:MOST]), len(found), len(found) > MOST)


def _bounded(found: list[str]) -> Completions:
    """At most ``MOST`` values; the total is known only if there are no more."""
    if len(found) > MOST:
        return Completions(tuple(found[:MOST]), None, True)
    return Completions(tuple(found), len(found))


_PATIENCE: Final = 1.0
"""Seconds between two checks of the policies, whose changes are not announced."""


def listen_to_lists(
    service: GraphService, authority: Authorizer, changed: Callable[[], None]
) -> Callable[[], None]:
    """Call ``changed`` on this event loop when lists may have changed; the result stops that."""
    loop = asyncio.get_running_loop()

    def hear(what: Registry | BranchChange) -> None:
        if isinstance(what, BranchChange) and (
            what.types is not None or (what.branch != MAIN and authority.is_open)
        ):
            return
        with suppress(RuntimeError):  # the loop has ended, and its listeners with it
            loop.call_soon_threadsafe(changed)

    looking = _PolicyPoll(loop, authority, changed)
    stops = (service.cell.listen(hear), service.graph.feed.listen(hear), looking.stop)

    def stop() -> None:
        for each in stops:
            each()

    return stop


class _PolicyPoll:
    """Polls the version of the policies."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, authority: Authorizer, changed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._authority = authority
        self._changed = changed
        self._version = authority.version
        self._timer = loop.call_later(_PATIENCE, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(_PATIENCE, self._look)
        version = self._authority.version
        if version != self._version:
            self._version = version
            self._changed()

    def stop(self) -> None:
        """Stop polling."""
        self._timer.cancel()
