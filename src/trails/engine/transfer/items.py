"""The parts of a load in any format: nodes to put, problems of the file, and ends of edges.

A reference is an IRI, a handle ``Type/id``, or the bare key if the type is known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from trails.engine.validation.rules import RuleError
from trails.engine.validation.validate import References
from trails.engine.write.edits import MAX_ERRORS
from trails.errors import FieldError
from trails.model.constraints import shorten, showable
from trails.model.iris import Names
from trails.model.kinds import KindError
from trails.model.names import suggest
from trails.model.nodes import make_handle, split_handle
from trails.model.texts import with_article
from trails.model.types import PredicateDescriptor, Schema

_number = re.compile(r"(?:line|row) ([0-9]+)").match


class LoadItem(msgspec.Struct):
    """A node of the file: its raw values and their position."""

    number: int
    """The line or row; a unique negative number if the format has none."""
    label: str
    """The prefix of messages about it, such as ``line 12: ``."""
    type: str
    values: dict[str, object]
    id: str | None = None
    handle: str | None = None
    added: dict[str, list[str]] = {}
    """What edge lines add to reference fields."""
    open: bool = False
    """Whether a reference names a key that several types could have."""
    partial: bool = False
    """Whether it only adds to a stored node, as the start of an edge line."""
    checked: bool = False
    """Whether the values are already in the validator's form."""

    @property
    def whole(self) -> str:
        """The prefix of messages about the whole node."""
        return self.label.removesuffix(".").removesuffix(", column ").removesuffix(": ") + ": "


class Problems:
    """The problems of a file, by line."""

    def __init__(self) -> None:
        self.found: list[FieldError] = []
        self.unread = False
        """Whether a node could not be read, so that references to it may be missing."""

    @property
    def full(self) -> bool:
        """Whether the maximum number of problems is reached."""
        return len(self.found) >= MAX_ERRORS

    def add(self, label: str, message: str, code: str = "syntax", value: object = None) -> None:
        """Add the problem of a line without a node."""
        self.unread = True
        where = label.rstrip(" .:")
        self.found.append(FieldError(where, code, f"{label}{message}", showable(value)))

    def listed(self, lines: dict[str, str]) -> list[FieldError]:
        """All problems in the order of the file; ``lines`` has the positions of nodes."""
        told: dict[str, FieldError] = {}
        for error in self.found:
            if self.unread and isinstance(error, RuleError) and error.code == "reference":
                continue
            placed = _placed(error, lines)
            told.setdefault(placed.message, placed)
        return sorted(told.values(), key=_place)


def _placed(error: FieldError, lines: dict[str, str]) -> FieldError:
    label = ""
    if isinstance(error, RuleError):
        label = next((lines[handle] for handle in reversed(error.nodes) if handle in lines), "")
    if not label:
        return error
    return FieldError(
        label + error.field, error.code, label + error.message, error.value, error.constraint
    )


def _place(error: FieldError) -> int:
    found = _number(error.field)
    return int(found[1]) if found is not None else 1 << 62


OPEN: Final = "\x00"
"""Begins an open reference, ``\\0Type/key``: a type with subtypes."""


class EndError(ValueError):
    """An invalid end of an edge; the message says what to write."""

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
        """The handles that a reference could mean; a handle means itself."""
        if not reference.startswith(OPEN):
            return [reference]
        type_name, _, identifier = reference[1:].partition("/")
        return [make_handle(each, identifier) for each in self._families[type_name]]

    def owners(self, handle: str) -> list[str]:
        """How edge lines may refer to a node: by handle, or by an open reference."""
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
        """The handle (or open reference) of an edge's start, and its field."""
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
