"""Reader: list and read resources by URI.

A URI is parsed (``model.uris``), its branch or commit is found, and the answer is made from
rows of the node index without building instances. Reads of microseconds run on the event loop,
the rest in a thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from trails.authoring.plugins import PluginResource
from trails.engine.evidence.records import Record, check_type, missing_record
from trails.engine.graph.activities import CallRecord
from trails.engine.graph.checkouts import SNAPSHOT
from trails.engine.graph.cursors import Cursors
from trails.engine.graph.graph import MAIN, Graph
from trails.engine.session.context import GraphContext
from trails.engine.session.results import plain
from trails.engine.session.service import GraphService
from trails.engine.visibility.refs import RefResolver, reader
from trails.errors import NotFoundError
from trails.imports import later
from trails.model.actors import Actor
from trails.model.caches import LRUCache, VersionedCache
from trails.model.constraints import shorten
from trails.model.nodes import NodeState
from trails.model.results import Failure
from trails.model.types import Schema
from trails.model.uris import (
    DEFAULT_LIMIT,
    HERE,
    MAX_URI_BYTES,
    Address,
    Completions,
    Content,
    DocumentAddress,
    InstanceAddress,
    ListAddress,
    ListedResource,
    PluginAddress,
    QueryAddress,
    ReadPoint,
    ResourceList,
    Roots,
    format_address,
    parse_address,
    unknown_address,
)
from trails.projections.resources import JSON, LD_JSON, TEXT, project_resources
from trails.request.answers import failure_of
from trails.request.authorize import Authorizer
from trails.request.entries import Rights
from trails.request.resources.contents import READ, Doctor, read_document, read_page, read_query
from trails.request.resources.listing import (
    CompletionSource,
    Typed,
    complete_variable,
    offer_resources,
    offered_queries,
    offered_roots,
    offers_document,
)
from trails.request.resources.representations import (
    MEDIA,
    PLAIN,
    RecordForm,
    RecordShower,
    write_schema,
)
from trails.request.threads import Threads

if TYPE_CHECKING:
    from trails.projections import documents as projections_documents
    from trails.projections.documents import JsonLd
    from trails.request.resources import bounds
else:
    projections_documents = later("trails.projections.documents")
    bounds = later("trails.request.resources.bounds")

NOTHING: Final = ResourceList("nothing", (), ())
"""The list of an actor that may not read."""
_TYPES: Final = "kg"
_CHEAP_LIMIT: Final = 200
_CHEAP_OFFSET: Final = 1000
_LISTS: Final = 1024
"""Cached lists, one for each actor."""
_SCHEMAS: Final = 64
"""Cached JSON-LD writers, one for each schema."""
_REFUSED: Final = frozenset({"unknown", "unauthenticated", "scope", "budget"})
"""Failures that a caller can cause at any rate without a right: summed up in activities."""
_QUERIES: Final = "The tool stored_query_list describes all of it."
_PLUGINS: Final = "plugins/…"
_WHOLE: Final = "Programs read all of it, over REST."
_encode: Final = msgspec.json.Encoder().encode


class Reader:
    """Reads one graph by URI, for any actor."""

    def __init__(
        self,
        service: GraphService,
        authority: Authorizer,
        threads: Threads,
        doctor: Doctor,
        plugins: Mapping[str, PluginResource],
    ) -> None:
        """``plugins``: documents of plugins, as ``<plugin>/<path>``."""
        self._service = service
        self._authority = authority
        self._threads = threads
        self._doctor = doctor
        self._plugins = plugins
        self._offered_plugins = tuple(
            ListedResource(
                uri=format_address(PluginAddress(*name.split("/"))),
                name=name,
                title=each.title,
                description=each.description,
                mime_type=each.media_type,
            )
            for name, each in sorted(plugins.items())
        )
        self._listed = ResourceList("", (), ())
        self._offers: VersionedCache[Hashable, ResourceList] = VersionedCache(_LISTS)
        self._documents: LRUCache[str, JsonLd] = LRUCache(_SCHEMAS)

    def _offer(self, rights: Rights) -> ResourceList:
        return offer_resources(
            rights, self._service.registry, self._service.graph.name, self._offered_plugins
        )

    def _roots(self, rights: Rights) -> Sequence[str]:
        found = offered_roots(rights, self._service.registry, self._service.graph.name)
        return found if self._plugins else [each for each in found if each != _PLUGINS]

    # --- what there is -------------------------------------------------------------------

    def resources(self, actor: Actor) -> ResourceList:
        """The resources of an actor: a list of each type, built-in documents, and templates."""
        rights = self._authority.rights(actor)
        if not rights.unrestricted:
            version = rights.branches_version, self._service.registry.version
            return self._offers.get(rights, version, partial(self._offer, rights))
        schema = self._service.graph.committed_schema(MAIN)
        if self._listed.version != schema.digest:
            self._listed = project_resources(schema, self._offered_plugins)
        return self._listed

    async def complete(self, actor: Actor, template: str, typed: Typed) -> Completions | Failure:
        """Values for a template's variable that begin with what was typed."""
        graph = self._service.graph
        try:
            rights = self._authority.rights(actor)
            known = CompletionSource(
                RefResolver(graph, reader(rights)),
                self.resources(actor),
                offered_queries(self._service.registry, rights),
                partial(self._context, actor, rights),
            )
            return await self._threads.run(
                actor.name, complete_variable, graph, known, template, typed
            )
        except Exception as error:  # noqa: BLE001 - every error becomes a failure here
            return _failure(error, "completion/complete")

    # --- reading it ----------------------------------------------------------------------

    async def read(
        self,
        actor: Actor,
        uri: str,
        most: int | None = None,
        form: RecordForm = PLAIN,
        call: CallRecord | None = None,
    ) -> Sequence[Content] | Failure:
        """Read a URI, in at most so many characters. Never raises except for cancellation.

        ``form`` is how records are shown where all of them is; ``call`` gets what was read.
        """
        try:
            rights = self._authority.rights(actor)
            roots = partial(self._roots, rights)
            address = parse_address(uri, self._service.graph.names.nodes, roots)
            asked = _Asked(actor, rights, uri, address, most, form, call)
            if form.plain and self._is_quick(address):
                found = self._read(asked, patient=False)
                if found is not None:
                    return found
            return await self._threads.run(actor.name, self._read_patiently, asked)
        except Exception as error:  # noqa: BLE001 - every error becomes a failure here
            return _failure(error, READ)

    def record(self, call: CallRecord, found: Sequence[Content] | Failure | None, uri: str) -> None:
        """Record an activity with the URI, without the values of its filter.

        ``found`` is None if the read was cancelled.
        """
        start = uri[:MAX_URI_BYTES]
        shown = start.partition("?")[0] if start.isprintable() else shorten(start)
        activities = self._service.graph.activities
        if isinstance(found, Failure) and found.kind in _REFUSED:
            activities.refuse(call, found.code, shown, answered=found.code, about=shown)
        elif isinstance(found, Failure):
            activities.end(call, found.code, shown)
        else:
            activities.end(call, "cancelled" if found is None else "ok", shown)

    def _is_quick(self, address: Address) -> bool:
        """Whether a read takes less time than handing it to a thread."""
        if not isinstance(address, InstanceAddress | ListAddress):
            return False
        if not _is_open(self._service.graph, address.place):
            return False
        return isinstance(address, InstanceAddress) or (
            address.where is None
            and (address.limit or DEFAULT_LIMIT) <= _CHEAP_LIMIT
            and (address.offset or 0) <= _CHEAP_OFFSET
        )

    def _read_patiently(self, asked: _Asked) -> Sequence[Content]:
        found = self._read(asked, patient=True)
        assert found is not None  # noqa: S101 - a patient reader reads everything
        return found

    def _read(self, asked: _Asked, *, patient: bool) -> Sequence[Content] | None:
        """What a URI names; None if that takes long and the reader is not patient."""
        actor, rights, uri = asked.actor, asked.rights, asked.uri
        address, most = asked.address, asked.most
        if isinstance(address, QueryAddress):
            registry = self._service.registry
            found = read_query(registry, offered_queries(registry, rights), address.name)
            return (
                [_json(uri, found)]
                if most is None
                else bounds.fit_other(uri, found, most, _QUERIES)
            )
        place = HERE if isinstance(address, PluginAddress) else address.place
        if not rights.unrestricted and place is HERE:
            _check_offered(rights, uri, address, partial(self._roots, rights))
        ctx = self._context(actor, rights, place)
        if asked.call is not None:
            asked.call.use(ctx.checkout.head.commit)
        match address:
            case DocumentAddress():
                if address.name == "schema" and asked.form.format is not None:
                    text = write_schema(ctx.kg.schema, ctx.names, asked.form.format)
                    return [Content(uri, MEDIA[asked.form.format], text)]
                value = read_document(self._service, ctx, address, self._doctor)
                if most is None:
                    return [_json(uri, value)]
                return bounds.fit_document(ctx, uri, address, value, most)
            case PluginAddress():
                return self._read_plugin(ctx, asked, address)
            case InstanceAddress():
                return self._read_instance(ctx, asked, address, patient=patient)
            case ListAddress():
                check_type(ctx.kg.schema, address.type, ctx.kg)
                return read_page(self._service, ctx, uri, address, most, asked.form)

    def _context(self, actor: Actor, rights: Rights, place: ReadPoint) -> GraphContext:
        permits = None if place is HERE else reader(rights)
        return self._service.context(
            actor.name, place.branch or MAIN, place.commit, access=rights, permits=permits
        )

    def _read_plugin(
        self, ctx: GraphContext, asked: _Asked, address: PluginAddress
    ) -> Sequence[Content]:
        """A document of a plugin, which sees what the reader may see."""
        given = self._plugins.get(f"{address.plugin}/{address.path}")
        if given is None:
            raise unknown_address(asked.uri, partial(self._roots, asked.rights))
        found = given.read(ctx)
        if isinstance(found, str):
            return _text(asked.uri, given.media_type, found, asked.most)
        value = plain(ctx.names, found, ctx.shown)
        if asked.most is None or not isinstance(value, dict):
            return [_json(asked.uri, value)]
        return bounds.fit_other(asked.uri, value, asked.most, _WHOLE)

    def _read_instance(
        self, ctx: GraphContext, asked: _Asked, address: InstanceAddress, *, patient: bool
    ) -> Sequence[Content] | None:
        kg = ctx.kg
        check_type(kg.schema, address.type, kg)
        wanted = _Instance(ctx, asked, address, patient)
        found = kg.look_at(address.type, address.id, partial(self._look, wanted))
        if found is None:
            raise missing_record(kg, address.type, address.id, address.place)
        return found or None

    def _look(
        self, wanted: _Instance, state: NodeState | None, commit: str
    ) -> list[Content] | None:
        """What is shown of a node: None if there is none, nothing if that takes long."""
        if state is None:
            return None
        ctx, asked, address = wanted.ctx, wanted.asked, wanted.address
        if asked.call is not None:
            asked.call.use(state.handle)
        schema, names = ctx.kg.schema, self._service.graph.names
        documents = self._documents.get(
            schema.digest, lambda: projections_documents.JsonLd(schema, names)
        )
        contents: list[Content] = []
        note = None if address.place == HERE else _describe_place(address)
        if asked.most is None:
            if bounds.has_long_text(state) and not wanted.patient:
                return []
            if not asked.form.plain:
                shower = RecordShower(schema, names, state.type, asked.form)
                text, format = shower.write(state, asked.form.format), asked.form.format
                return [Content(asked.uri, MEDIA[format or "jsonld"], text, commit)]
            state = bounds.complete(state, schema.by_name[state.type].by_name)
            document = _encode(documents.document(state)).decode()
            contents.append(Content(asked.uri, LD_JSON, document, commit))
        else:
            record = Record(ctx, address.place, state, commit)
            room = asked.most - (0 if note is None else len(note.text))
            cursors = Cursors(self._service.graph)
            contents += bounds.fit_record(record, asked.uri, documents, names, room, cursors)
        return contents if note is None else [*contents, note]


class _Asked(msgspec.Struct, frozen=True):
    """A read: who asks for what."""

    actor: Actor
    rights: Rights
    uri: str
    address: Address
    most: int | None
    """How many characters it may have; None for any number."""
    form: RecordForm
    call: CallRecord | None


class _Instance(msgspec.Struct, frozen=True):
    """A read of an instance."""

    ctx: GraphContext
    asked: _Asked
    address: InstanceAddress
    patient: bool
    """Whether long texts may be read, which takes long."""


def _describe_place(address: InstanceAddress) -> Content:
    """How to go on from an instance in the same branch or commit."""
    listing = format_address(ListAddress(address.type, address.place))
    start = listing.removesuffix(address.type)
    note = f"IRIs lead to main. To read a node as it is here: {start}{{Type}}/{{id}}"
    return Content(listing, TEXT, note)


def _check_offered(rights: Rights, uri: str, address: Address, roots: Roots) -> None:
    """Refuse an address without a branch or commit that does not exist for an actor."""
    if isinstance(address, DocumentAddress):
        if not offers_document(rights, address.name):
            root, _, name = address.name.rpartition("/")
            if root == _TYPES:
                check_type(Schema(), name)  # where names are those of types
            raise unknown_address(uri, roots)
    elif isinstance(address, ListAddress | InstanceAddress):
        check_type(rights.schema(MAIN), address.type)
    elif isinstance(address, PluginAddress) and not rights.may("Read", MAIN):
        raise unknown_address(uri, roots)


def _is_open(graph: Graph, place: ReadPoint) -> bool:
    """Whether a branch or snapshot is open."""
    if place is HERE:
        return True
    name = place.branch if place.commit is None else SNAPSHOT + place.commit
    return graph.has_checkout(name or MAIN)


def _text(uri: str, media_type: str, text: str, most: int | None) -> list[Content]:
    """A text, or its beginning and how much there is."""
    if most is None or len(text) <= most:
        return [Content(uri, media_type, text)]
    note = f"This is the beginning of {len(text)} characters. {_WHOLE}"
    return [Content(uri, media_type, text[: most - len(note)]), Content(uri, TEXT, note)]


def _json(uri: str, value: object) -> Content:
    return Content(uri, JSON, _encode(value).decode())


def _failure(error: Exception, doing: str) -> Failure:
    """The failure of a read; what does not exist is ``unknown``, because a URI is a name."""
    failure = failure_of(error, doing)
    if isinstance(error, NotFoundError):
        return msgspec.structs.replace(failure, kind="unknown")
    return failure
