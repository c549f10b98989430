"""Pages of instances: a list address becomes a selection, and rows become ``{iri, label}``.

Also notifies, on the event loop, when the lists of tools or types may have changed. Tools follow
from the registry, types from the schema of ``main``. Where policies decide, both also depend on
the policies and on the branches that exist.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Final

import msgspec

from trails.engine.graph.feed import BranchChange
from trails.engine.graph.graph import MAIN
from trails.engine.session.context import GraphContext
from trails.engine.session.graph_session import GraphSession
from trails.engine.session.service import GraphService
from trails.errors import FieldError, QueryError, ValidationError
from trails.model.constraints import coercer_of, compile_field, shorten
from trails.model.iris import XSD
from trails.model.kinds import KindError
from trails.model.names import suggest
from trails.model.nodes import Condition, NodeState, Selection
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.model.uris import (
    DEFAULT_LIMIT,
    HERE,
    Clause,
    Content,
    InstanceAddress,
    ListAddress,
    ReadPoint,
    format_address,
)
from trails.projections.resources import JSON, TEXT
from trails.registry.registry import Registry
from trails.request.authorize import Authorizer

_LONGEST: Final = 500
"""Characters of a label; the first text of a type may be a whole report."""


class ListItem(msgspec.Struct, frozen=True, gc=False):
    """One instance in a list."""

    iri: str
    label: str


def read_page(ctx: GraphContext, uri: str, address: ListAddress) -> list[Content]:
    """A page and, where more follow, a note that says how much was shown and what continues."""
    kg = ctx.kg
    descriptor = kg.schema.by_name[address.type]
    selection = Selection(
        address.type,
        None if address.where is None else condition_of(descriptor, address.where),
        limit=address.limit or DEFAULT_LIMIT,
        offset=address.offset or 0,
        after=address.cursor,
    )
    try:
        found, total = kg.page(selection)
    except QueryError as error:
        # Type, field and value were checked above, so it is the cursor.
        raise ValidationError([FieldError("cursor", "pattern", error.message)]) from None
    name = Labels(kg.schema)
    items = [ListItem(_handle(kg, row, address.place), name.of(row)) for row in found.rows]
    contents = [Content(uri, JSON, msgspec.json.encode(items).decode())]
    if found.next is not None:
        following = msgspec.structs.replace(address, offset=None, cursor=found.next)
        contents.append(_describe_rest(format_address(following), address, len(items), total))
    return contents


def _handle(kg: GraphSession, row: NodeState, place: ReadPoint) -> str:
    """What reads the instance as it is shown here: its own IRI means ``main``."""
    if place == HERE:
        return kg.iri(row.handle)
    return format_address(InstanceAddress(row.type, row.id, place))


def _describe_rest(following: str, address: ListAddress, shown: int, total: int | None) -> Content:
    if address.where is None:
        some = f"{shown} of {total} {address.type} instances are shown"
    else:
        field = address.where.field
        some = f"{shown} {address.type} instances where {field} is as asked are shown; more follow"
    return Content(following, TEXT, f"{some}. The next ones: {following}")


class Labels:
    """What instances are called: by the value of their type's label field, else by their id."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields: dict[str, tuple[str, Callable[..., str]]] = {}

    def of(self, row: NodeState) -> str:
        """One instance's label."""
        known = self._fields.get(row.type)
        if known is None:
            known = self._fields[row.type] = self._field(row.type)
        value = row.values.get(known[0])
        if value is None:
            return row.id
        text = known[1](value)
        return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"

    def _field(self, type_name: str) -> tuple[str, Callable[..., str]]:
        field = self._schema.by_name[type_name].label
        if field is None:
            return "", str
        row = field.type.row
        return field.name, str if row is None else row.lexical


# --- where -------------------------------------------------------------------------------


def condition_of(descriptor: TypeDescriptor, clause: Clause) -> Condition:
    """A filter as a condition, its value in the field's type; references stay as they are."""
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
    read = _READ.get(field.type.scalar.kind, str)
    try:
        value = read(text)
        found = coerce(value)
    except (KindError, ValueError):
        raise _mismatch(field, text, expected) from None
    _refuse_impossible(field, value)
    return found


def _refuse_impossible(field: PredicateDescriptor, value: object) -> None:
    """Refuse a value that the field can't have, for which nothing would ever be found."""
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
    """A filter's value is not of the field's datatype."""
    datatype = expected_datatype(field)
    message = f"{field.name} is compared with {shorten(text)}, which is not {expected}"
    error = ValidationError([FieldError(field.name, "datatype", message, text, datatype)])
    said = {"field": field.name, "reason": "type_mismatch", "expected_datatype": datatype}
    error.data = {**error.data, **said}
    return error


def expected_datatype(field: PredicateDescriptor) -> str:
    """How a filter's value is typed: an XML Schema datatype, or the type that a reference has."""
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


_READ: Final[Mapping[str, Callable[[str], object]]] = {
    "Int": _read_integer,
    "Float": _read_number,
    "Bool": _read_bool,
}
"""Text → JSON value, for the kinds whose JSON form is no string."""


_PATIENCE: Final = 1.0
"""Seconds between two looks at the policies, whose changes are not announced."""


def listen_to_lists(
    service: GraphService, authority: Authorizer, changed: Callable[[], None]
) -> Callable[[], None]:
    """Call ``changed`` on this event loop after every such change; the result ends that."""
    loop = asyncio.get_running_loop()

    def hear(what: Registry | BranchChange) -> None:
        if isinstance(what, BranchChange) and (
            what.types is not None or (what.branch != MAIN and authority.is_open)
        ):
            return
        with suppress(RuntimeError):  # the loop has ended, and its listeners with it
            loop.call_soon_threadsafe(changed)

    looking = _Looking(loop, authority, changed)
    stops = (service.cell.listen(hear), service.graph.feed.listen(hear), looking.stop)

    def stop() -> None:
        for each in stops:
            each()

    return stop


class _Looking:
    """Looks at the version of the policies, again and again."""

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
        """Look no more."""
        self._timer.cancel()
