"""What a read returns: pages of instances, and the built-in documents.

A page: a list address becomes a selection, and rows become ``{iri, label}``. A document (schema,
types, statistics, health, latest activity, branches, queries) is a function from what is asked to
a value that has a JSON form.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from trails.engine.evidence.lists import Item, ListRequest, list_records
from trails.engine.evidence.records import Record, Titles
from trails.engine.graph.cursors import Cursors
from trails.engine.graph.graph import MAIN
from trails.engine.session.context import GraphContext
from trails.engine.session.service import GraphService
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.imports import later
from trails.model.capabilities import StoredQuery
from trails.model.constraints import coercer_of, compile_field, shorten
from trails.model.history import Activity, Commit
from trails.model.iris import XSD
from trails.model.kinds import KindError
from trails.model.names import suggest
from trails.model.nodes import Condition, Selection
from trails.model.types import PredicateDescriptor, TypeDescriptor
from trails.model.upkeep import Report
from trails.model.uris import (
    DEFAULT_LIMIT,
    HERE,
    Clause,
    Content,
    Document,
    DocumentAddress,
    ListAddress,
    ReadPoint,
    format_address,
)
from trails.projections.json_schema import project_fields
from trails.projections.resources import TEXT
from trails.registry.registry import Registry
from trails.request.answers import MASKED, UNKNOWN, unmask
from trails.request.authorize import rights_of
from trails.request.resources.listing import offered_capabilities, offered_queries
from trails.request.resources.representations import (
    MEDIA,
    MOST_BYTES,
    PLAIN,
    ListWriter,
    RecordForm,
)

if TYPE_CHECKING:
    from trails.engine.history import provenance
    from trails.engine.upkeep import maintenance
    from trails.projections import documents
else:
    provenance = later("trails.engine.history.provenance")
    maintenance = later("trails.engine.upkeep.maintenance")
    documents = later("trails.projections.documents")

READ: Final = "resources/read"
_NOTE: Final = 600
"""Characters of the note about the next page, with its cursor."""


def read_page(
    service: GraphService,
    ctx: GraphContext,
    uri: str,
    address: ListAddress,
    most: int | None,
    form: RecordForm = PLAIN,
) -> list[Content]:
    """A page and, if more follow, a note with the number shown and the next address.

    ``most`` is how many characters both may have, None for any number; one item is always shown.
    """
    values = None
    if not form.plain:
        values = ListWriter(ctx.kg.schema, service.graph.names, address.type, form)
    limit = address.limit or DEFAULT_LIMIT

    def select(opened: GraphContext) -> Selection:
        descriptor = opened.kg.schema.by_name[address.type]
        where = None if address.where is None else condition_of(descriptor, address.where)
        return Selection(address.type, where, limit=limit, offset=address.offset or 0)

    page = list_records(
        service,
        ctx,
        ListRequest(
            tool=READ,
            place=address.place,
            select=select,
            subject=[address.type, msgspec.to_builtins(address.where)],
            show=partial(_item, Titles(ctx.kg.schema)) if values is None else values.show,
            room=MOST_BYTES if values is not None else sys.maxsize if most is None else most,
            cursor=address.cursor,
            at_once=min(limit, DEFAULT_LIMIT),
        ),
    )
    items = page.items
    if most is not None:
        items = _fitting(items, most - 2 * len(format_address(address)) - _NOTE)
    text = msgspec.json.encode(items).decode() if values is None else values.join(items)
    contents = [Content(uri, MEDIA[form.format or "json"], text, page.commit)]
    cursor = page.cursor(Cursors(service.graph), len(items))
    if cursor is not None:
        following = msgspec.structs.replace(address, offset=None, cursor=cursor)
        note = _describe_rest(format_address(following), address, len(items), page.total)
        contents.append(note)
    return contents


def _fitting(items: list[Item], room: int) -> list[Item]:
    """The first items that have so many characters of JSON; at least one."""
    for at, item in enumerate(items):
        room -= len(msgspec.json.encode(item).decode()) + 1
        if room < 0:
            return items[: max(at, 1)]
    return items


def _item(titles: Titles, record: Record) -> Item:
    """An instance in a list; the address is that on this branch, its own IRI leads to ``main``."""
    state = record.state
    iri = record.ctx.kg.iri(state.handle) if record.place == HERE else record.uri
    return {"iri": iri, "label": titles.of(state)}


def _describe_rest(following: str, address: ListAddress, shown: int, total: int | None) -> Content:
    if address.where is None:
        some = f"{shown} of {total} {address.type} instances are shown"
    else:
        field = address.where.field
        some = f"{shown} {address.type} instances where {field} is as asked are shown; more follow"
    return Content(following, TEXT, f"{some}. The next ones: {following}")


# --- where -------------------------------------------------------------------------------


def condition_of(descriptor: TypeDescriptor, clause: Clause) -> Condition:
    """A filter as a condition, with its value in the field's type; references stay unchanged."""
    field = descriptor.by_name.get(clause.field)
    if field is None:
        hint = suggest(clause.field, descriptor.by_name)
        message = f"{descriptor.name} has no field {clause.field!r}; {hint}"
        raise ValidationError([FieldError(clause.field, "unknown_field", message)])
    row = field.type.scalar.row
    if row is not None and row.sort_key is None:
        message = f"{field.name} is {field.type}, which can't be compared; filter by another field"
        raise ValidationError([FieldError(field.name, "datatype", message)])
    value = clause.value if field.target is not None else _value_of(field, clause.value)
    return Condition((field.name,), "exact", value)


def _value_of(field: PredicateDescriptor, text: str) -> object:
    coerce, expected = coercer_of(field.type.scalar, {})
    read = _FROM_TEXT.get(field.type.scalar.kind, str)
    try:
        value = read(text)
        found = coerce(value)
    except (KindError, ValueError):
        raise _mismatch(field, text, expected) from None
    _refuse_impossible(field, value)
    return found


def _refuse_impossible(field: PredicateDescriptor, value: object) -> None:
    """Refuse a value that the field can't have: it would never match."""
    one = msgspec.structs.replace(field, type=field.type.scalar, min_count=0, max_count=1)
    errors: list[FieldError] = []
    compile_field(one, {}, stored=False)(value, field.name, errors)
    if errors:
        known = [each for each in field.one_of or () if isinstance(each, str)]
        near = get_close_matches(str(value), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValidationError(
            [msgspec.structs.replace(each, message=each.message + hint) for each in errors]
        )


def _mismatch(field: PredicateDescriptor, text: str, expected: str) -> ValidationError:
    """The error for a filter value of the wrong datatype."""
    datatype = expected_datatype(field)
    message = f"{field.name} is compared with {shorten(text)}, which is not {expected}"
    error = ValidationError([FieldError(field.name, "datatype", message, text, datatype)])
    said = {"field": field.name, "reason": "type_mismatch", "expected_datatype": datatype}
    error.data = {**error.data, **said}
    return error


def expected_datatype(field: PredicateDescriptor) -> str:
    """The datatype of a filter value: an XML Schema datatype, or the target type of a reference."""
    scalar = field.type.scalar
    if scalar.row is None:
        return str(scalar)
    return scalar.row.datatype.replace(XSD, "xsd:")


_is_integer = re.compile(r"-?[0-9]{1,20}").fullmatch
_is_number = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?").fullmatch


def _read_integer(text: str) -> int:
    if not _is_integer(text):
        raise KindError
    return int(text)


def _read_number(text: str) -> float:
    if not _is_number(text):
        raise KindError
    return float(text)


def _read_bool(text: str) -> bool:
    if text not in {"true", "false"}:
        raise KindError
    return text == "true"


_FROM_TEXT: Final[Mapping[str, Callable[[str], object]]] = {
    "Int": _read_integer,
    "Float": _read_number,
    "Bool": _read_bool,
}
"""Text → JSON value, for kinds whose JSON form is not a string."""


ACTIVITIES: Final = 50
COMMITS: Final = 20

Doctor = Callable[[], Report]


def read_document(
    service: GraphService, ctx: GraphContext, address: DocumentAddress, doctor: Doctor
) -> object:
    """The content of a document."""
    if address.name == "doctor":
        return _health(doctor())
    return _DOCUMENTS[address.name](service, ctx, address.place)


def _schema(service: GraphService, ctx: GraphContext, place: ReadPoint) -> object:
    del place
    return documents.project_schema(ctx.kg.schema, service.graph.names)


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
        **msgspec.to_builtins(maintenance.measure(service.graph, ctx)),
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
    """The latest activities and commits; without the Admin right, only the own activities."""
    del place
    graph, access = service.graph, ctx.access
    every = access.may("Admin", MAIN)
    # The few calls of one actor are not looked for in all archives.
    page = provenance.list_provenance(
        graph,
        access,
        ctx.actor,
        provenance.ProvenanceQuery(archived=every),
        masks=(MASKED, UNKNOWN),
        limit=ACTIVITIES,
    )
    latest = page.activities[:ACTIVITIES]
    shown = latest if every else map(unmask, latest)
    commits = service.versions(ctx.actor, access=access).newest(COMMITS)
    return {
        "activities": [_activity(each) for each in shown],
        "commits": [_commit(each) for each in commits],
    }


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
        "surface": activity.surface,
        "trace": activity.trace_id,
        "used": activity.used,
        "generated": activity.generated,
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


_DOCUMENTS: Final[Mapping[Document, Callable[[GraphService, GraphContext, ReadPoint], object]]] = {
    "schema": _schema,
    "kg/types": _types,
    "stats": _stats,
    "branches": _branches,
    "prov/latest": _latest,
}


def _health(report: Report) -> object:
    return {"healthy": report.healthy, **msgspec.to_builtins(report)}


# --- stored queries --------------------------------------------------------------------


def read_query(
    registry: Registry, offered: Mapping[str, StoredQuery], name: str
) -> Mapping[str, object]:
    """The description and parameters of a stored query."""
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
