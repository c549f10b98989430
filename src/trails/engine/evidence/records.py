"""Records: one reference, in any form, to one node of one state of the graph.

A reference is ``trails://kg/Type/id``, the same on a branch (``trails://branch/<branch>/kg/…``) or
at a commit (``trails://at/<commit>/kg/…``), the node's IRI, ``Type/id``, or the bare key where the
type is known. Every tool that reads, and ``resources/read``, resolves it here.

What an actor may not see does not exist: types and fields are those of its ``GraphSession``, and
branches and commits are found as ``GraphService.context`` finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec

from trails.engine.graph.cursors import stale
from trails.engine.graph.graph import MAIN
from trails.engine.session.context import GraphContext
from trails.engine.session.graph_session import GraphSession
from trails.engine.session.service import GraphService
from trails.engine.visibility.refs import RefResolver, reader
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.imports import later
from trails.model.constraints import shorten
from trails.model.iris import Names
from trails.model.names import suggest
from trails.model.nodes import NodeState, split_handle
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.model.uris import (
    HERE,
    MAX_URI_BYTES,
    SCHEME,
    InstanceAddress,
    ListAddress,
    ReadPoint,
    format_address,
    parse_address,
)
from trails.model.visibility import ENDS
from trails.views.nodes.long_texts import StoredText

if TYPE_CHECKING:
    from trails.model.evidence import graphemes
else:
    graphemes = later("trails.model.evidence.graphemes")

NO_TYPES: Final = (
    "there are none yet: the first write or 'trails serve' stores what the project declares"
)
"""The hint for an unknown type if there are no types."""
_LONGEST: Final = 500
"""The longest title in characters."""


class RecordReference(msgspec.Struct, frozen=True):
    """What a text refers to."""

    type: str
    id: str
    """The id, or a reference that is read as one of this type."""
    place: ReadPoint = HERE


class Record(msgspec.Struct, frozen=True, eq=False):
    """A node as an actor sees it, and where it was read."""

    ctx: GraphContext
    place: ReadPoint
    state: NodeState
    commit: str
    """The commit whose state it is."""

    @property
    def uri(self) -> str:
        """Its id in answers: the URI that reads it in the same place."""
        return record_uri(self.state.type, self.state.id, self.place)

    @property
    def descriptor(self) -> TypeDescriptor:
        """Its type, as far as the actor sees it."""
        return self.ctx.kg.schema.by_name[self.state.type]

    @property
    def title(self) -> str:
        """What a reader calls it."""
        return Titles(self.ctx.kg.schema).of(self.state)

    def field(self, name: str) -> PredicateDescriptor:
        """A field of its type; one that does not exist is refused."""
        return known_field(self.descriptor, name)


def record_uri(type_name: str, identifier: str, place: ReadPoint = HERE) -> str:
    """The id of a record in answers: ``trails://kg/Type/id``, with the branch or commit if any."""
    return format_address(InstanceAddress(type_name, identifier, place))


# --- finding one -------------------------------------------------------------------------


def open_record(
    service: GraphService,
    ctx: GraphContext,
    reference: str,
    place: ReadPoint = HERE,
    *,
    type_name: str | None = None,
    argument: str = "record",
) -> Record:
    """The record that a reference names, on the branch or at the commit that it or ``place`` says.

    ``type_name`` is the type of a bare key; ``argument`` is where the reference was given.
    """
    found = parse_reference(ctx.names, reference, type_name, argument)
    there = settle_place(found.place, place, argument)
    opened = open_place(service, ctx, there)
    state, commit = find_record(opened.kg, found.type, found.id, there)
    return Record(opened, there, state, commit)


def open_place(service: GraphService, ctx: GraphContext, place: ReadPoint) -> GraphContext:
    """The graph on a branch or at a commit, for the actor of a context."""
    return service.context(
        ctx.actor,
        place.branch or MAIN,
        place.commit,
        registry=ctx.registry,
        call=ctx.call,
        access=ctx.access,
        permits=reader(ctx.access),
    )


def reopen_place(
    service: GraphService, ctx: GraphContext, place: ReadPoint, commit: str
) -> GraphContext:
    """The place that a cursor reads, as it is now; StaleError if its commit is not there."""
    try:
        opened = open_place(service, ctx, place)
    except NotFoundError:
        raise stale(commit) from None
    if not _is_on_branch(service, place, commit):
        raise stale(commit)
    return opened


def make_place(branch: object, snapshot: object) -> ReadPoint:
    """Where a call reads; a snapshot goes before a branch, as in every tool."""
    if snapshot is not None:
        return ReadPoint(commit=str(snapshot))
    return HERE if branch in {None, MAIN} else ReadPoint(branch=str(branch))


def place_name(place: ReadPoint) -> str:
    """A branch, or a commit with a mark that no branch has, to which cursors are bound."""
    return place.branch or MAIN if place.commit is None else f"@{place.commit}"


def _is_on_branch(service: GraphService, place: ReadPoint, commit: str) -> bool:
    """Whether a commit can be read in a place: it is that commit, or is on that branch."""
    if place.commit is not None:
        return commit.startswith(place.commit)
    graph, branch = service.graph, place.branch or MAIN
    found = graph.log.commit(commit)
    if found is None or (branch != MAIN and graph.log.head(branch) is None):
        return False
    return branch in RefResolver(graph).branches_of(found)


def parse_reference(
    names: Names, text: str, type_name: str | None = None, argument: str = "record"
) -> RecordReference:
    """What a reference says; whether that exists is not looked at."""
    if text.startswith((SCHEME, names.nodes)):
        address = parse_address(text, names.nodes)
        if not isinstance(address, InstanceAddress):
            message = f"{argument}: {shorten(text, 200)} does not name one record; write "
            message += f"{SCHEME}kg/{{Type}}/{{id}}"
            raise ValidationError([FieldError(argument, "pattern", message, text[:200])])
        if type_name is None:
            return RecordReference(address.type, address.id, address.place)
        # Of a given type, so that a record of another one is reported as such.
        return RecordReference(type_name, text, address.place)
    if type_name is not None:
        return RecordReference(type_name, text)
    before, slash, after = text.partition("/")
    if not slash or not before or not after:
        message = f"{argument}: {shorten(text, 200)} does not say of which type it is; write "
        message += f"{{Type}}/{{id}} or {SCHEME}kg/{{Type}}/{{id}}"
        raise ValidationError([FieldError(argument, "pattern", message, text[:200])])
    # A handle is percent-encoded ASCII; anything else is an id as a person writes it.
    return RecordReference(before, text if after.isascii() and "/" not in after else after)


def settle_place(named: ReadPoint, given: ReadPoint, argument: str = "record") -> ReadPoint:
    """Where to read: what a reference names, or what the call says; they must not differ."""
    if given in (HERE, named):
        return make_place(named.branch, named.commit)
    if named == HERE:
        return given
    message = f"{argument} names another branch or commit than branch or snapshot; leave those out"
    raise ValidationError([FieldError(argument, "pattern", message)])


def find_record(
    kg: GraphSession, type_name: str, reference: str, place: ReadPoint = HERE
) -> tuple[NodeState, str]:
    """A node of a type, and the commit whose state it is; NotFoundError names the nearest ones."""
    check_type(kg.schema, type_name, kg)
    state, commit = kg.find_with_commit(type_name, reference)
    if state is None:
        raise missing_record(kg, type_name, reference, place)
    return state, commit


def missing_record(
    kg: GraphSession, type_name: str, reference: str, place: ReadPoint
) -> NotFoundError:
    """The error for a record that does not exist, which names the nearest ones."""
    listing = format_address(ListAddress(type_name, place))
    named = kg.compiled.validator.references.exact(reference)
    identifier = reference if named is None else split_handle(named)[1]
    return NotFoundError(
        f"{kg.describe_missing(type_name, reference)} ({listing} lists all)",
        uri=record_uri(type_name, identifier, place)[:MAX_URI_BYTES],
    )


def check_type(schema: Schema, name: str, kg: GraphSession | None = None) -> None:
    """Refuse a type that does not exist; ``kg`` knows what it was renamed to."""
    if name not in schema.by_name:
        hint = suggest(name, schema.by_name) if schema.by_name else NO_TYPES
        if kg is not None and (now := kg.renamed_type(name)) is not None:
            hint = f"it was renamed to {now!r}, and ids have stayed: use {now}/<id>"
        raise NotFoundError(
            f"there is no type {shorten(name)} (trails://kg/types lists all); {hint}",
            type=name[:100],
        )


def known_field(
    descriptor: TypeDescriptor, name: str, argument: str = "field"
) -> PredicateDescriptor:
    """A field of a type; one that does not exist is refused."""
    found = descriptor.by_name.get(name)
    if found is None:
        hint = suggest(name, descriptor.by_name)
        message = f"{descriptor.name} has no field {shorten(name)}; {hint}"
        raise ValidationError([FieldError(argument, "unknown_field", message, name[:100])])
    return found


# --- titles ------------------------------------------------------------------------------


class Titles:
    """What readers call instances: the value of the type's label field, or the id.

    An edge is called by its ends and its key: its label field, if any, tells no two of them apart.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields: dict[str, tuple[str, Callable[..., str]]] = {}

    def of(self, row: NodeState) -> str:
        """The title of an instance."""
        descriptor = self._schema.by_name[row.type]
        if descriptor.edge is not None:
            source, target = map(row.values.get, ENDS)
            if isinstance(source, str) and isinstance(target, str):
                return f"{unquote(source)} → {unquote(target)}{self._key(descriptor, row)}"
        known = self._fields.get(row.type)
        if known is None:
            known = self._fields[row.type] = self._field(row.type)
        value = row.values.get(known[0])
        return row.id if value is None else _shortened(value, known[1])

    @staticmethod
    def _key(descriptor: TypeDescriptor, row: NodeState) -> str:
        """What distinguishes an edge from the others between its ends, in brackets."""
        key = descriptor.key
        value = None if key is None else row.values.get(key.name)
        if key is None or key.type.row is None or value is None:
            return ""
        return f" ({_shortened(value, key.type.row.lexical)})"

    def _field(self, type_name: str) -> tuple[str, Callable[..., str]]:
        field = self._schema.by_name[type_name].label
        if field is None:
            return "", str
        row = field.type.row
        return field.name, str if row is None or row.tagged else row.lexical


def _shortened(value: object, spell: Callable[..., str]) -> str:
    text = value[: _LONGEST + 1] if isinstance(value, StoredText) else spell(value)
    return (
        text if len(text) <= _LONGEST else text[: graphemes.boundary_before(text, _LONGEST)] + "…"
    )
