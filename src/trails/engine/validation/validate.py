"""Check values against a type: every field, every rule, all violations at once.

Compiled once per schema. Rules that need other nodes are in ``rules.py``.

The size of a node is limited so that every export of it can be loaded again: the RDF parser,
which also reads the log, takes tokens of up to 16 MiB. So a node is measured by its longest form.

A reference is an IRI, ``trails://kg/Type/id``, ``Type/id``, or the bare key (the id) where the
type is known. A key of a type that others extend is looked up among all of them. A text of the
form ``Type/id`` with an existing type is never read as a key.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

import msgspec

from trails.authoring.nodes import Node
from trails.errors import FieldError
from trails.model.constraints import (
    Coerce,
    compile_column,
    compile_field,
    shorten,
    showable,
)
from trails.model.iris import Names, id_problem, normal_id
from trails.model.kinds import DanglingError, KindError
from trails.model.names import suggest
from trails.model.nodes import MAX_NODE, NodeState, make_handle, split_handle
from trails.model.texts import with_article
from trails.model.types import REF, PredicateDescriptor, Schema, TypeDescriptor
from trails.model.visibility import SchemaFilter
from trails.views.nodes.conditions import first_handles
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.rows import Docs

Exist = Callable[[Sequence[str]], Collection[str]]
"""Handles → those of them that exist, as the actor sees them."""

_LOOKED_AT: Final = 50
"""The number of ids that a wrong one is compared with."""
_LONGEST: Final = 200
"""Characters of the longest id that is compared with others."""
_SHOWN: Final = 3
_plain_handle = re.compile(r"([^/:%]+)/[A-Za-z0-9._~-]+").fullmatch
"""A handle whose id needs no encoding; IRIs have a colon."""
_digits = re.compile(r"-?[0-9]{1,19}").fullmatch


class References:
    """Reads references under one schema."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self._schema = schema
        self._names = names
        self._families = {each.name: schema.family(each.name) for each in schema.types}
        self._fields: dict[str, list[PredicateDescriptor]] = {
            each.name: [field for field in each.fields if field.target is not None]
            for each in schema.types
        }

    def exact(self, value: object) -> str | None:
        """The handle that an IRI or ``Type/id`` means; None for everything else."""
        if type(value) is str and (found := _plain_handle(value)) and found[1] in self._families:
            return value
        parsed = self._parse(value)
        return None if parsed is None else make_handle(*parsed)

    def _parse(self, value: object) -> tuple[str, str] | None:
        if not isinstance(value, str):
            return None
        parsed = self._names.parse_node(value)
        if parsed is None and value.isascii() and value.count("/") == 1:
            try:
                parsed = split_handle(value)
            except UnicodeDecodeError:
                return None
        return parsed if parsed is not None and parsed[0] in self._families else None

    def identifier(self, value: object, target: str) -> str:
        """The id that a bare key means."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise KindError
        key = self._schema.by_name[target].id_field
        row = None if key is None else key.type.row
        if row is None:
            identifier = str(value)
        else:
            if isinstance(value, str) and row.native is int and _digits(value):
                value = int(value)
            try:
                identifier = row.lexical(row.coerce(value))
            except KindError:
                raise DanglingError(
                    f"{shorten(value)} can't be a key of {target}, which is {row.expected}"
                ) from None
        identifier = normal_id(identifier)
        problem = id_problem(identifier)
        if problem is not None:
            raise DanglingError(f"{shorten(value)} can't be a key of {target}: {problem}")
        return identifier

    def read(self, value: object, target: str) -> tuple[str, list[str]]:
        """The id in a reference, and the handles that it may mean, the most likely first."""
        family = self._families.get(target)
        if family is None:
            raise DanglingError(f"there is no {target} {shorten(value)}")
        exact = self._parse(value)
        try:
            identifier = self.identifier(value, target)
        except KindError:
            if exact is None:
                raise
            return exact[1], [make_handle(*exact)] if exact[0] in family else []
        handles = [make_handle(each, identifier) for each in family]
        if exact is None:
            return identifier, handles
        return exact[1], [make_handle(*exact), *handles] if exact[0] in family else handles

    def problem(self, value: object, target: str) -> str | None:
        """Why a reference can't name a node of a type, whatever the data; None if it can."""
        parsed = self._names.parse_node(value) if isinstance(value, str) else None
        if parsed is not None and parsed[0] not in self._families:
            return f"there is no type {parsed[0]!r}; {suggest(parsed[0], self._families)}"
        other = self.other_type(value, target)
        if other is not None:
            wanted = with_article(target)
            return f"it names {with_article(other.partition('/')[0])}; name {wanted}"
        try:
            self.read(value, target)
        except KindError as error:
            return str(error) or f"it can't be a key of {target}"
        return None

    def other_type(self, value: object, target: str) -> str | None:
        """The handle in a reference that names a type other than the expected one."""
        exact = self._parse(value)
        if exact is None or exact[0] in self._families.get(target, ()):
            return None
        return make_handle(*exact)

    def settle(
        self, type_name: str, values: Mapping[str, object], exist: Exist
    ) -> Mapping[str, object]:
        """The values of a node, with keys in reference fields replaced by handles.

        Values that can't be resolved stay unchanged; the validator refuses them.
        """
        settled: dict[str, object] = {}
        for field in self._fields[type_name]:
            given = values.get(field.name)
            if isinstance(given, str | int | float) and not field.many:
                settled[field.name] = self._settle(given, field.target or "", exist)
            elif isinstance(given, list | tuple | set | frozenset):
                settled[field.name] = [
                    self._settle(each, field.target or "", exist) for each in given
                ]
        return {**values, **settled} if settled else values

    def _settle(self, value: object, target: str, exist: Exist) -> object:
        if not isinstance(value, str | int | float) or self.exact(value) is not None:
            return value
        try:
            identifier = self.identifier(value, target)
        except KindError:
            return value
        family = self._families[target]
        if len(family) > 1:
            for handle in exist([make_handle(each, identifier) for each in family]):
                return handle
        return make_handle(target, identifier)


# --- what does not exist -------------------------------------------------------------------


class VisibleNodes(NamedTuple):
    """The nodes of a branch that an actor sees; hidden nodes are not suggested."""

    nodes: NodeIndex
    db: sqlite3.Connection
    schema: Schema
    schema_filter: SchemaFilter | None = None


def suggest_nodes(visible: VisibleNodes, target: str, identifier: str) -> str:
    """The nodes of a type with the nearest ids, else some existing ones."""
    wanted = identifier[:_LONGEST]
    some: list[str] = []
    for length in dict.fromkeys((max(len(wanted) - 1, 0), 3, 1, 0)):
        found = [
            handle
            for name in visible.schema.family(target)
            for handle in first_handles(
                visible.nodes,
                visible.db,
                make_handle(name, wanted[:length]),
                _LOOKED_AT,
                visible.schema_filter,
            )
        ]
        handles = {split_handle(handle)[1]: handle for handle in found}
        near = get_close_matches(wanted, handles, n=_SHOWN, cutoff=0.6)
        if near:
            return f"did you mean {' or '.join(handles[each] for each in near)}?"
        some = some or found
    if "/" in wanted.strip("/"):  # a type or a base that does not exist, before the id
        return suggest_nodes(visible, target, wanted.strip("/").rpartition("/")[2])
    more = ", …" if len(some) > _SHOWN else ""
    listed = ", ".join(sorted(some)[:_SHOWN])
    return f"there are {listed}{more}" if some else f"there is no {target} yet"


class Validator:
    """Checks the values of nodes of one schema."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self.references = References(schema, names)
        self.special: dict[str, Coerce] = {REF: reference_coercer(self.references)}
        self._known = {each.name: each.by_name.keys() for each in schema.types}
        self._checks = {
            each.name: [
                (field.name, compile_field(field, self.special, stored=True))
                for field in each.fields
            ]
            for each in schema.types
        }
        self._extra = {
            each.name: [
                (field.name, compile_field(_as_stored(each, field), self.special, stored=True))
                for shape in schema.shapes_of(each.name)
                for field in shape.fields
            ]
            for each in schema.types
        }
        self._columns = {
            each.name: {field.name: compile_column(field, self.special) for field in each.fields}
            for each in schema.types
        }
        self._abstract = {
            each.name: _describe_abstract(schema, each.name)
            for each in schema.types
            if each.abstract
        }

    def check(
        self, type_name: str, raw: Mapping[str, object], prefix: str, errors: list[FieldError]
    ) -> dict[str, object]:
        """The coerced values; violations are added to ``errors``, each path with ``prefix``."""
        abstract = self._abstract.get(type_name)
        if abstract is not None:
            path = f"{prefix}type"
            errors.append(FieldError(path, "abstract", f"{path}: {abstract}", type_name))
            errors = []  # its other violations depend on the type that is chosen instead
        values: dict[str, object] = {}
        get = raw.get
        for name, check in self._checks[type_name]:
            value = check(get(name), prefix + name, errors)
            if value or (value is not None and value != ()):
                values[name] = value
        if not raw.keys() <= self._known[type_name]:
            errors.extend(self._unknown(type_name, raw, prefix))
        for name, check in self._extra[type_name]:
            more: list[FieldError] = []
            check(get(name), prefix + name, more)
            if more:  # the type's own check may report the same
                reported = {error.message for error in errors}
                errors.extend(error for error in more if error.message not in reported)
        return values

    def check_all(
        self, type_name: str, raw: Sequence[Mapping[str, object]]
    ) -> list[dict[str, object]] | None:
        """The coerced values of many nodes of a type, one field of all nodes at a time.

        None if one of them may be wrong or has to be looked up: ``check`` then says which, and
        what is wrong.
        """
        found = self._check_columns(type_name, raw)
        if found is None:
            return None
        names = list(self._columns[type_name])
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in zip(*found, strict=True)
        ]

    def accepts_all(self, type_name: str, raw: Sequence[Mapping[str, object]]) -> bool:
        """Whether all nodes are certainly right; if not, ``check`` says of each."""
        return self._check_columns(type_name, raw) is not None

    def _check_columns(
        self, type_name: str, raw: Sequence[Mapping[str, object]]
    ) -> list[Sequence[object]] | None:
        if type_name in self._abstract or self._extra[type_name]:
            return None
        columns = self._columns[type_name]
        if not set().union(*raw) <= columns.keys():
            return None
        found: list[Sequence[object]] = []
        for name, check in columns.items():
            values = check([each.get(name) for each in raw])
            if values is None:
                return None
            found.append(values)
        return found

    def _unknown(self, type_name: str, raw: Mapping[str, object], prefix: str) -> list[FieldError]:
        known = [name for name, _ in self._checks[type_name]]
        errors = []
        for name in raw:
            if name not in known:
                message = f"{prefix}{name} is not a field of {type_name}; {suggest(name, known)}"
                errors.append(
                    FieldError(prefix + name, "unknown_field", message, showable(raw[name]))
                )
        return errors


def _as_stored(declared: TypeDescriptor, field: PredicateDescriptor) -> PredicateDescriptor:
    """A field of a shape, which does not repeat whether the type's list is ordered."""
    found = declared.by_name.get(field.name)
    ordered = found is not None and found.ordered
    return field if field.ordered == ordered else msgspec.structs.replace(field, ordered=ordered)


def _describe_abstract(schema: Schema, type_name: str) -> str:
    choices = schema.concrete(type_name)
    found = f"use {' or '.join(choices)}" if choices else "declare a type that extends it first"
    return f"{type_name} is abstract, so no node can have exactly this type; {found}"


def reference_coercer(references: References) -> Coerce:
    """Accept an instance, an IRI or ``Type/id``; give the handle.

    Bare keys are resolved before values are checked, because that may need the graph.
    """

    def coerce(value: object) -> object:
        handle = references.exact(value)
        if handle is not None:
            return handle
        if isinstance(value, Node) or hasattr(value, "__trails__"):
            handle = getattr(value, "handle", None)
            if handle is not None:
                return handle
            raise KindError("it has no key yet")
        raise KindError

    return coerce


_LONGER: Final = {b"\x7f": 5, b"\xef\xbf\xbe": 3, b"\xef\xbf\xbf": 3}
"""The characters that N-Quads writes in more bytes than JSON: how many more."""


def field_sizes(docs: Docs, state: NodeState) -> dict[str, int]:
    """Bytes that each field takes, with its name, where it is longest."""
    sizes = {}
    for name, value in state.values.items():
        doc = docs.encode(state.type, {name: value})
        more = sum(each * doc.count(character) for character, each in _LONGER.items())
        sizes[name] = len(doc) - 1 + more
    return sizes


def size_of(docs: Docs, state: NodeState) -> int:
    """Bytes of a node's values."""
    return 1 + sum(field_sizes(docs, state).values())


def size_error(docs: Docs, state: NodeState, allowed: int = 0) -> FieldError | None:
    """The error for a node above the size limit and above its previous size (``allowed``)."""
    sizes = field_sizes(docs, state)
    size = 1 + sum(sizes.values())
    if size <= max(MAX_NODE, allowed):
        return None
    largest = max(sizes, key=sizes.__getitem__)
    return FieldError(
        largest,
        "max_size",
        f"{state.handle} takes {size:,} bytes, {sizes[largest]:,} of them in {largest!r}; a node "
        f"may take {MAX_NODE:,}. Shorten {largest!r}, split it over several nodes, or keep large "
        "content as a blob and name it in a Blob field",
        size,
        MAX_NODE,
    )
