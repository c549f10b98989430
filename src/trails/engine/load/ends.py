"""Which node is meant: an IRI, a handle ``Type/id``, or the bare key where the type is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trails.engine.references import References
from trails.model.constraints import shorten
from trails.model.iris import Names
from trails.model.kinds import KindError
from trails.model.names import suggest
from trails.model.nodes import make_handle, split_handle
from trails.model.types import PredicateDescriptor, Schema
from trails.model.wording import with_article

OPEN: Final = "\x00"
"""Begins a reference whose type is open: ``\\0Type/key``, for a type that others extend."""


class EndError(ValueError):
    """An end that names no node; the text says what to write."""

    def __init__(self, message: str, code: str = "reference") -> None:
        super().__init__(message)
        self.code = code


class Ends:
    """Reads the ends of edges, and references by key, under one schema."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self._schema = schema
        self._reading = References(schema, names)
        self.exact = self._reading.exact
        self._families = {each.name: schema.family(each.name) for each in schema.types}
        self._references: dict[str, list[tuple[str, PredicateDescriptor]]] = {}
        for each in schema.types:
            for field in each.fields:
                if field.target is not None and each.edge is None:
                    self._references.setdefault(field.name, []).append((each.name, field))

    # --- nodes ---------------------------------------------------------------------

    def node(self, value: object, type_name: str) -> str:
        """A handle, or an open reference when several types could have the key."""
        handle = self.exact(value)
        if handle is not None:
            return handle
        try:
            identifier = self._reading.identifier(value, type_name)
        except KindError as error:
            expected = f"must be an IRI, 'Type/id' or a key of {type_name}, not {shorten(value)}"
            raise EndError(str(error) or expected) from None
        if len(self._families[type_name]) == 1:
            return make_handle(type_name, identifier)
        return f"{OPEN}{type_name}/{identifier}"

    def candidates(self, reference: str) -> list[str]:
        """The handles that an open reference could stand for; a handle stands for itself."""
        if not reference.startswith(OPEN):
            return [reference]
        type_name, _, identifier = reference[1:].partition("/")
        return [make_handle(each, identifier) for each in self._families[type_name]]

    def owners(self, handle: str) -> list[str]:
        """How edge lines may have spelled a node: exactly, or openly by an ancestor's key."""
        type_name, identifier = split_handle(handle)
        lineage = self._schema.lineage(type_name)
        return [
            handle,
            *(f"{OPEN}{each}/{identifier}" for each in lineage if len(self._families[each]) > 1),
        ]

    # --- edges ---------------------------------------------------------------------

    def edge_names(self) -> Sequence[str]:
        """Everything that an edge line may name."""
        edges = [each.name for each in self._schema.types if each.edge is not None]
        return [*edges, *self._references]

    def reference(self, edge: str, start: object) -> tuple[str, PredicateDescriptor]:
        """The handle (or open reference) of an edge's start, and the field that it means."""
        type_name, dot, name = edge.rpartition(".")
        if dot:
            return self._named(type_name, name, start)
        holders = self._references.get(edge)
        if holders is None:
            hint = suggest(edge, self.edge_names())
            raise EndError(f"there is no edge {edge!r}; {hint}", "unknown_field")
        exact = self.exact(start)
        if exact is not None:
            return exact, self._field_of(exact.partition("/")[0], edge)
        declaring = sorted({field.declared_in for _, field in holders})
        if len(declaring) > 1:
            spelled = " or ".join(f"'{each}.{edge}'" for each in declaring)
            raise EndError(
                f"{edge!r} is a field of {', '.join(declaring)}, so the key {shorten(start)} is "
                f"not exact; write \"from\" as 'Type/id' or an IRI, or the edge as {spelled}"
            )
        return self.node(start, declaring[0]), self._field_of(declaring[0], edge)

    def _named(self, type_name: str, name: str, start: object) -> tuple[str, PredicateDescriptor]:
        if type_name not in self._schema.by_name:
            hint = suggest(type_name, self._schema.by_name)
            raise EndError(f"there is no type {type_name!r}; {hint}", "unknown_field")
        field = self._field_of(type_name, name)
        owner = self.node(start, type_name)
        if not owner.startswith(OPEN) and owner.partition("/")[0] not in self._families[type_name]:
            raise EndError(f"{shorten(start)} is not {with_article(type_name)}")
        return owner, field

    def _field_of(self, type_name: str, name: str) -> PredicateDescriptor:
        fields = self._schema.by_name[type_name].by_name
        field = fields.get(name)
        if field is None or field.target is None:
            known = [each for each, found in fields.items() if found.target is not None]
            hint = suggest(name, known) if known else "it has none"
            told = f"{name!r} is not a reference field of {type_name}; {hint}"
            raise EndError(told, "unknown_field")
        return field
