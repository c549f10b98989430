"""Descriptors of what a graph may hold: fields, node types, edge types, shapes.

A descriptor is plain data: it is stored by content in the log, compared when the graph is
opened, and read by every projection. Types refer to each other by name, so forward references
need no special case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal, get_args

import msgspec

from trails.model.iris import digest_of
from trails.model.kinds import KINDS, Kind

LIST = "List"
REF = "Ref"
OBJECT = "Object"
ANY = "Any"
MAP = "Map"
LANGUAGES = (
    "arabic",
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "greek",
    "hungarian",
    "italian",
    "norwegian",
    "portuguese",
    "romanian",
    "russian",
    "spanish",
    "swedish",
    "tamil",
    "turkish",
)
"""The languages that a searched text may have."""
Metric = Literal["cosine", "dot", "euclidean"]
"""How vectors are compared: by direction, by product, or by distance."""
METRICS: tuple[Metric, ...] = get_args(Metric)
_LABELS = ("label", "title", "name")
"""Usual names of the field that names an instance."""


class ValueType(msgspec.Struct, frozen=True, omit_defaults=True):
    """The type of a value: a kind of the table, a Ref, a List of items, or an Object.

    ``target`` names the node type of a Ref, or the node type or shape of an Object. Any is
    any JSON value as plain Python, Map any JSON object.
    """

    kind: str
    target: str | None = None
    dimension: int | None = None
    item: ValueType | None = None
    nullable: bool = False

    @property
    def scalar(self) -> ValueType:
        """The item's type of a List, else the type itself."""
        return self.item if self.item is not None else self

    @property
    def row(self) -> Kind | None:
        """The row of the kind table, for kinds that have one."""
        return KINDS.get(self.kind)

    def __str__(self) -> str:
        """For readers: ``List[Ref[Person]]``."""
        inner = self.item or self.target or self.dimension
        return f"{self.kind}[{inner}]" if inner is not None else self.kind


class PredicateDescriptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A typed field: of a node type, an edge type, a shape, or a capability's input."""

    name: str
    type: ValueType
    iri: str = ""
    description: str = ""
    min_count: int = 0
    max_count: int | None = 1
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    one_of: tuple[object, ...] | None = None
    min_value: object = None
    max_value: object = None
    key: bool = False
    unique: bool = False
    label: bool = False
    search: bool = False
    language: str | None = None
    """Of a searched text: its words are found in every form. None: as they are written."""
    stop_words: bool = True
    """Whether the most common words of the language are left out of the index."""
    metric: Metric = "cosine"
    """Of a vector: how it is compared."""
    languages: tuple[str, ...] | None = None
    """Of text in several languages: those that it must have."""
    ordered: bool = False
    """Of a list: whether it keeps the order and the duplicates that it was given with."""
    default: object = None
    declared_in: str = ""

    @property
    def many(self) -> bool:
        """Whether the field holds several values: a set, or an ordered list."""
        return self.type.kind == LIST

    @property
    def is_set(self) -> bool:
        """Whether each value is a statement of its own: changed, merged and blamed alone."""
        return self.type.kind == LIST and not self.ordered

    @property
    def tagged(self) -> bool:
        """Whether the field holds a text for each language, changed and merged alone."""
        row = self.type.row
        return row is not None and row.tagged

    @property
    def required(self) -> bool:
        """Whether a value must be given (a default counts as given)."""
        return self.min_count > 0

    @property
    def target(self) -> str | None:
        """The node type that a reference points to, or None for other kinds."""
        scalar = self.type.scalar
        return scalar.target if scalar.kind == REF else None


class EdgeEnds(msgspec.Struct, frozen=True):
    """What an edge type joins, and how many edges each end may and must have."""

    source: str
    target: str
    per_source: tuple[int, int | None] = (0, None)
    per_target: tuple[int, int | None] = (0, None)


def defaults_of(
    fields: Iterable[PredicateDescriptor],
) -> tuple[tuple[str, object, bool], ...]:
    """(name, default, many) of each field."""
    return tuple((field.name, field.default, field.many) for field in fields)


class TypeDescriptor(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A node type, or an edge type (a node type with two ends)."""

    name: str
    fields: tuple[PredicateDescriptor, ...]
    description: str = ""
    iri: str = ""
    extends: str | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    index: tuple[tuple[str, ...], ...] = ()
    edge: EdgeEnds | None = None
    abstract: bool = False
    """Whether only the types that extend it have instances."""

    @cached_property
    def by_name(self) -> Mapping[str, PredicateDescriptor]:
        """Fields by name, inherited ones included."""
        return {field.name: field for field in self.fields}

    @property
    def meaning(self) -> str:
        """The description for readers, with a note on an abstract type."""
        note = "Abstract: its instances are those of the types that extend it."
        return "\n\n".join(filter(None, (self.description, note if self.abstract else "")))

    @cached_property
    def defaults(self) -> tuple[tuple[str, object, bool], ...]:
        """(name, default, many) of each field, at hand for every new instance."""
        return defaults_of(self.fields)

    @cached_property
    def absent(self) -> Mapping[str, None]:
        """Every field, without a value."""
        return dict.fromkeys(self.by_name)

    @cached_property
    def composed(self) -> tuple[tuple[str, bool, bool], ...]:
        """(name, many, is a reference) of the fields that hold several values or references."""
        shapes = ((each.name, each.many, each.target is not None) for each in self.fields)
        return tuple(shape for shape in shapes if shape[1] or shape[2])

    @cached_property
    def key(self) -> PredicateDescriptor | None:
        """The field from which ids are derived, those of edges together with the ends."""
        return next((field for field in self.fields if field.key), None)

    @property
    def id_field(self) -> PredicateDescriptor | None:
        """The field whose value is the id; None for UUIDs, and for edges, whose ids are hashes."""
        return self.key if self.edge is None else None

    @cached_property
    def label(self) -> PredicateDescriptor | None:
        """The field that names an instance to a reader; None where only the id does.

        It is the field with ``label=True``, else one with a usual name, else the key, else the
        first required String.
        """
        marked = next((field for field in self.fields if field.label), None)
        texts = [each for each in self.fields if each.type.kind == "String"]
        called = (each for name in _LABELS for each in texts if each.name == name)
        required = (each for each in texts if each.required)
        return marked or next(called, None) or self.key or next(required, None)


class ShapeDescriptor(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A structured value with constraints; with ``target``, more rules for a node type."""

    name: str
    fields: tuple[PredicateDescriptor, ...]
    description: str = ""
    target: str | None = None

    @cached_property
    def by_name(self) -> Mapping[str, PredicateDescriptor]:
        """Fields by name."""
        return {field.name: field for field in self.fields}

    @cached_property
    def defaults(self) -> tuple[tuple[str, object, bool], ...]:
        """(name, default, many) of each field, at hand for every new instance."""
        return defaults_of(self.fields)


def can_constrain(declared: TypeDescriptor, field: PredicateDescriptor) -> bool:
    """Whether a type has the field that a shape has rules for, with values of that kind."""
    found = declared.by_name.get(field.name)
    return (
        found is not None
        and found.many == field.many
        and found.type.scalar.kind == field.type.scalar.kind
    )


class Schema(msgspec.Struct, frozen=True, dict=True):
    """All types of a graph, in name order: the value that a commit's schema digest names."""

    types: tuple[TypeDescriptor, ...] = ()
    shapes: tuple[ShapeDescriptor, ...] = ()

    @classmethod
    def of(cls, types: Iterable[TypeDescriptor], shapes: Iterable[ShapeDescriptor] = ()) -> Schema:
        """Build with a canonical order; only shapes that constrain node types are schema."""
        return cls(
            tuple(sorted(types, key=lambda each: each.name)),
            tuple(sorted((s for s in shapes if s.target), key=lambda each: each.name)),
        )

    @cached_property
    def digest(self) -> str:
        """The content address."""
        return digest_of(self)

    @cached_property
    def by_name(self) -> Mapping[str, TypeDescriptor]:
        """Types by name."""
        return {each.name: each for each in self.types}

    def unknown_kinds(self) -> Mapping[str, str]:
        """Kinds of stored values that nothing here knows, each with a field that has it."""
        found: dict[str, str] = {}
        for each in self.types:
            for field in each.fields:
                scalar = field.type.scalar
                if scalar.row is None and scalar.kind not in {REF, OBJECT, ANY, MAP}:
                    found.setdefault(scalar.kind, f"{each.name}.{field.name}")
        return found

    def lineage(self, name: str) -> tuple[str, ...]:
        """The type and its ancestors, nearest first."""
        out = [name]
        while (parent := self.by_name[out[-1]].extends) is not None:
            out.append(parent)
        return tuple(out)

    def family(self, name: str) -> tuple[str, ...]:
        """The type and everything that extends it, in name order."""
        return tuple(each.name for each in self.types if name in self.lineage(each.name))

    def concrete(self, name: str) -> tuple[str, ...]:
        """The types of a family that have instances, in name order."""
        return tuple(each for each in self.family(name) if not self.by_name[each].abstract)

    def is_a(self, name: str, ancestor: str) -> bool:
        """Whether instances of ``name`` count as instances of ``ancestor``."""
        return name in self.by_name and ancestor in self.lineage(name)

    def shapes_of(self, name: str) -> tuple[ShapeDescriptor, ...]:
        """The shapes that add rules to a type, through its ancestors too."""
        lineage = self.lineage(name)
        return tuple(shape for shape in self.shapes if shape.target in lineage)
