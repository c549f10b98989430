"""Records in the forms that programs ask for: plain JSON, JSON-LD, Turtle and CSV.

Turtle and CSV are those of exports, JSON has the values that capabilities return, and JSON-LD is
``projections.documents``. ``fields`` keeps some of them; the schema is that of the caller, so
nothing hidden is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from trails.engine.evidence.lists import Item
from trails.engine.evidence.records import Record, Titles, known_field
from trails.engine.graph.checkouts import compile_once
from trails.engine.session.results import converter_of
from trails.imports import later
from trails.model.iris import Names
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema
from trails.projections.resources import JSON, LD_JSON

if TYPE_CHECKING:
    from trails.engine.transfer import files, tables
    from trails.engine.transfer.files import RecordWriter
    from trails.projections import documents, shacl
    from trails.request.resources import bounds
else:
    files = later("trails.engine.transfer.files")
    tables = later("trails.engine.transfer.tables")
    documents = later("trails.projections.documents")
    shacl = later("trails.projections.shacl")
    bounds = later("trails.request.resources.bounds")

RecordFormat = Literal["json", "jsonld", "turtle", "csv", "json_schema"]
"""``json_schema`` is of types alone, and ``turtle`` of types is SHACL."""
MOST_BYTES: Final = 8 << 20
"""Bytes after which a page of records with their values is full."""
MEDIA: Final[Mapping[RecordFormat, str]] = {
    "json": JSON,
    "jsonld": LD_JSON,
    "turtle": "text/turtle",
    "csv": "text/csv",
    "json_schema": "application/schema+json",
}
_FILES: Final = frozenset({"turtle", "csv"})
_TEXT: Final = "text"
_encode: Final = msgspec.json.Encoder().encode
_replace: Final = msgspec.structs.replace


class RecordForm(msgspec.Struct, frozen=True):
    """What a program asks for: a format, and some fields or all."""

    format: RecordFormat | None = None
    """None: the one that every URI has, JSON-LD for a record and JSON for a list."""
    fields: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether it asks for nothing in particular."""
        return self.format is None and not self.fields


PLAIN: Final = RecordForm()


def write_schema(schema: Schema, names: Names, format: RecordFormat) -> str:
    """Types as JSON Schema, or as SHACL shapes in Turtle."""
    if format == "turtle":
        return shacl.project_shacl(schema, names)
    return _encode(documents.project_schema_definitions(schema, names)).decode()


class RecordShower:
    """Shows records of one type, and of those that extend it, in one form."""

    def __init__(self, schema: Schema, names: Names, type_name: str, form: RecordForm) -> None:
        """The fields must be those of the type."""
        for name in form.fields:
            known_field(schema.by_name[type_name], name, "fields")
        self._schema = schema
        self._names = names
        self._fields = frozenset(form.fields)
        self._family = schema.family(type_name)
        self._converters = {
            each: {
                field.name: converter_of(names, field.type)
                for field in schema.by_name[each].fields
                if self._wants(field)
            }
            for each in self._family
        }

    def _wants(self, field: PredicateDescriptor) -> bool:
        return self._has(field.name)

    def _has(self, name: str) -> bool:
        return not self._fields or name in self._fields

    def narrow(self, state: NodeState) -> NodeState:
        """A record with the wanted fields; long texts as a whole."""
        kept = {name: value for name, value in state.values.items() if self._has(name)}
        narrowed = NodeState(state.type, state.id, kept)
        return bounds.complete(narrowed, self._schema.by_name[state.type].by_name)

    def values(self, state: NodeState) -> dict[str, object]:
        """The fields of a record as JSON values; those without a value are null or empty."""
        own, known = self.narrow(state).values, self._schema.by_name[state.type].by_name
        shown: dict[str, object] = {}
        for name, convert in self._converters[state.type].items():
            value = own.get(name)
            blank: object = [] if known[name].many else None
            shown[name] = blank if value is None else convert(value)
        return shown

    def document(self, state: NodeState) -> dict[str, object]:
        """A record as JSON-LD."""
        shown = documents.JsonLd(self._schema, self._names).document(self.narrow(state))
        if not self._fields:
            return shown
        known = self._schema.by_name[state.type].fields
        left = {self._names.term(each.iri) for each in known if not self._has(each.name)}
        return {name: value for name, value in shown.items() if name not in left}

    def write(self, state: NodeState, format: RecordFormat | None) -> str:
        """One record as a text."""
        if format == "json":
            iri = self._names.nodes + state.handle
            return _encode({"iri": iri, "type": state.type, **self.values(state)}).decode()
        if format == "turtle":
            file = self.file(format)
            return b"".join((file.head, *file.records([self.narrow(state)]))).decode()
        return _encode(self.document(state)).decode()

    def file(self, format: str) -> RecordWriter:
        """The writer of Turtle or CSV."""
        if format == "turtle":
            terms = compile_once(self._schema, self._names).terms
            return files.record_writer(format, terms, self._family)
        # The header of CSV has the fields of the types.
        known = (self._schema.by_name[each] for each in self._family)
        kept = [_replace(each, fields=tuple(filter(self._wants, each.fields))) for each in known]
        table = tables.TableWriter(Schema.of(kept), self._family)
        return files.RecordWriter(table.head, table.records)


class ListWriter:
    """Writes a page of records in one form.

    A later page may be of a commit with other types than the first, so the schema is that of each
    record; all records of a page have the same.
    """

    def __init__(self, schema: Schema, names: Names, type_name: str, form: RecordForm) -> None:
        """``schema`` has the types of a page without records."""
        self._names = names
        self._type = type_name
        self._form = form
        self._enter(schema)

    def _enter(self, schema: Schema) -> None:
        self._schema = schema
        self._titles = Titles(schema)
        self._shower = RecordShower(schema, self._names, self._type, self._form)
        format = self._form.format
        self._file = self._shower.file(format) if format in _FILES else None

    def show(self, record: Record) -> Item:
        """One record, before ``join`` makes a text of all."""
        state, schema = record.state, record.ctx.kg.schema
        if schema is not self._schema and schema.digest != self._schema.digest:
            self._enter(schema)
        if self._file is not None:
            return {_TEXT: b"".join(self._file.records([self._shower.narrow(state)])).decode()}
        if self._form.format == "jsonld":
            return self._shower.document(state)
        iri, values = self._names.nodes + state.handle, self._shower.values(state)
        return {"iri": iri, "label": self._titles.of(state), "values": values}

    def join(self, items: Sequence[Item]) -> str:
        """The text of all."""
        if self._file is not None:
            return "".join((self._file.head.decode(), *(str(each[_TEXT]) for each in items)))
        return _encode({"@graph": items} if self._form.format == "jsonld" else items).decode()
