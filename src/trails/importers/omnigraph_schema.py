"""Omnigraph's schema language (``.pg``): nodes, edges and interfaces.

Interfaces become fields of the nodes that implement them. An edge without a key may occur several
times between two nodes there and once here, which a note says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trails.importers.lexer import TokenReader
from trails.importers.result import (
    ImportedSchema,
    Notes,
    field_name,
    type_name,
    unique_names,
    usable_pattern,
)
from trails.model.changes.steps import FieldSpec, TypeSpec

_TYPES: Final = {
    "String": "str",
    "Blob": "Blob",
    "Bool": "bool",
    "I32": "int",
    "I64": "int",
    "U32": "int",
    "U64": "BigInt",
    "F32": "float",
    "F64": "float",
    "Date": "date",
    "DateTime": "datetime",
}
_UNSIGNED: Final = frozenset({"U32", "U64"})
_SOURCE: Final = frozenset({"@src", "src"})
_ENDS: Final = frozenset({"@src", "@dst", "src", "dst"})
_CONSTRAINTS: Final = frozenset({"key", "unique", "index", "range", "check"})


def read_omnigraph_schema(text: str, file: str = "schema.pg") -> ImportedSchema:
    """The types of a ``.pg`` file."""
    return _Reader(text, file).read()


class _Body(msgspec.Struct):
    """The inside of a declaration, as it is read."""

    fields: dict[str, FieldSpec] = msgspec.field(default_factory=dict)
    """Name in the file → field."""
    unique: list[tuple[str, ...]] = msgspec.field(default_factory=list)
    index: list[tuple[str, ...]] = msgspec.field(default_factory=list)
    description: list[str] = msgspec.field(default_factory=list)
    one_a_source: bool = False
    keyed: bool = False


class _Reader:
    """Reads one file."""

    def __init__(self, text: str, file: str) -> None:
        self._tokens = TokenReader(text, file)
        self._notes = Notes()
        self._interfaces: dict[str, dict[str, FieldSpec]] = {}
        self._types: dict[str, TypeSpec] = {}
        self._implements: list[tuple[str, str, str]] = []
        self._file = file
        self._single: list[str] = []

    def read(self) -> ImportedSchema:
        tokens = self._tokens
        while tokens.now.kind != "end":
            if tokens.skip("interface"):
                self._interface()
            elif tokens.skip("node"):
                self._node()
            elif tokens.skip("edge"):
                self._edge()
            else:
                tokens.fail("expected node, edge or interface")
        for name, interface, place in self._implements:
            self._take_over(name, interface, place)
        if self._single:
            self._notes.changed(
                self._file,
                f"{', '.join(self._single)}: one edge between two nodes; a type with a key "
                "field can have several",
            )
        return ImportedSchema(tuple(self._types.values()), notes=self._notes.done())

    def _take_over(self, name: str, interface: str, place: str) -> None:
        shared = self._interfaces.get(interface)
        if shared is None:
            self._notes.left_out(place, f"there is no interface {interface!r}")
            return
        own = self._types[name]
        known = {each.name for each in own.fields}
        missing = [each for each in shared.values() if each.name not in known]
        self._types[name] = msgspec.structs.replace(own, fields=(*missing, *own.fields))
        self._notes.changed(place, f"the fields of interface {interface} are fields of {name} here")

    # --- declarations ------------------------------------------------------------------

    def _interface(self) -> None:
        name = self._tokens.kind("word", "a name")
        body = _Body()
        self._read_body(name, body)
        self._interfaces[name] = body.fields

    def _node(self) -> None:
        tokens, place = self._tokens, self._tokens.place
        name = type_name(tokens.kind("word", "a name"), self._notes, place)
        body = _Body()
        self._annotations(name, body.description)
        if tokens.skip("implements"):
            while True:
                self._implements.append((name, tokens.kind("word", "a name"), place))
                if not tokens.skip(","):
                    break
        self._read_body(name, body)
        self._add(
            TypeSpec(
                name,
                unique_names(body.fields.values(), name, self._notes),
                " ".join(body.description),
                unique=tuple(body.unique),
                index=tuple(body.index),
            ),
            place,
        )

    def _edge(self) -> None:
        tokens, place = self._tokens, self._tokens.place
        name = type_name(tokens.kind("word", "a name"), self._notes, place)
        tokens.expect(":")
        source = type_name(tokens.kind("word", "a type"), self._notes, place)
        tokens.expect("->")
        target = type_name(tokens.kind("word", "a type"), self._notes, place)
        limits: tuple[int, int | None] = (0, None)
        if tokens.has("@") and tokens.after().text == "card":
            limits = self._cardinality()
        body = _Body()
        self._annotations(name, body.description)
        if tokens.has("{"):
            self._read_body(name, body)
        if body.one_a_source:
            limits = limits[0], 1
        if not body.keyed and limits[1] != 1:
            self._single.append(name)
        self._add(
            TypeSpec(
                name,
                unique_names(body.fields.values(), name, self._notes),
                " ".join(body.description),
                unique=tuple(body.unique),
                index=tuple(body.index),
                source=source,
                target=target,
                per_source=limits,
            ),
            place,
        )

    def _add(self, made: TypeSpec, place: str) -> None:
        if made.name in self._types:
            self._notes.left_out(place, f"{made.name} is declared before")
        else:
            self._types[made.name] = made

    def _cardinality(self) -> tuple[int, int | None]:
        tokens = self._tokens
        tokens.take()
        tokens.take()
        tokens.expect("(")
        low = int(tokens.kind("number", "a number"))
        tokens.expect("..")
        high = int(tokens.take().text) if tokens.now.kind == "number" else None
        tokens.expect(")")
        return low, high

    # --- the inside --------------------------------------------------------------------

    def _read_body(self, owner: str, body: _Body) -> None:
        tokens = self._tokens
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.has("@"):
                self._constraint(owner, body)
            else:
                self._property(owner, body)

    def _property(self, owner: str, body: _Body) -> None:
        tokens = self._tokens
        given = tokens.kind("word", "a property")
        name = field_name(given, owner, self._notes)
        tokens.expect(":")
        said = self._type(f"{owner}.{given}")
        if name != given:
            said["iri"] = given
        description: list[str] = []
        said |= self._marks(owner, given, said, description)
        body.fields[given] = msgspec.convert(
            {"name": name, "description": " ".join(description), **said}, FieldSpec
        )

    def _type(self, where: str) -> dict[str, object]:
        """A type, as arguments of a field."""
        tokens = self._tokens
        said: dict[str, object] = {}
        if tokens.skip("["):
            item = tokens.kind("word", "a type")
            tokens.expect("]")
            kind = f"list[{self._known(item)}]"
            said["ordered"] = True
        elif tokens.skip("enum"):
            kind, said["one_of"] = "str", self._values()
        else:
            item = tokens.kind("word", "a type")
            if item == "Vector":
                tokens.expect("(")
                kind = f"Vector[{tokens.kind('number', 'a number')}]"
                tokens.expect(")")
            else:
                kind = self._known(item)
                if item in _UNSIGNED:
                    said["min_value"] = 0 if item == "U32" else "0"
        optional = tokens.skip("?")
        said["type"] = f"{kind} | None" if optional and not kind.startswith("list") else kind
        if not optional and kind.startswith("list"):
            self._notes.changed(where, "a list may be empty here, also where it is required there")
        return said

    def _known(self, name: str) -> str:
        found = _TYPES.get(name)
        if found is None:
            self._tokens.fail(f"{name!r} is not a type of a property")
        return found

    def _values(self) -> list[str]:
        """The values of an enumeration; they may have hyphens."""
        tokens, found = self._tokens, list[str]()
        tokens.expect("(")
        value = ""
        while not tokens.skip(")"):
            if tokens.skip(","):
                found.append(value)
                value = ""
            elif tokens.now.kind in {"word", "number"} or tokens.has("-"):
                value += tokens.take().text
            else:
                tokens.fail("expected a value")
        return [*found, value]

    def _marks(
        self, owner: str, given: str, said: Mapping[str, object], description: list[str]
    ) -> dict[str, object]:
        """The annotations of a property, as arguments of a field."""
        found: dict[str, object] = {}
        where = f"{owner}.{given}"
        while self._tokens.has("@") and not self._is_constraint():
            place = self._tokens.place
            mark, value = self._annotation()
            if mark in {"key", "unique"}:
                found[mark] = True
            elif mark == "index":
                if str(said["type"]).startswith("str") and "one_of" not in said:
                    found["search"] = True
            elif mark in {"description", "instruction"}:
                description.append(value)
            elif mark == "embed":
                self._notes.left_out(
                    place,
                    f"{where} is embedded from {value!r}: name a function in "
                    "[graphs.<id>.embeddings], or send vectors",
                )
            elif mark == "rename_from":
                self._notes.left_out(place, f"{where} was called {value!r} before")
            else:
                self._notes.left_out(place, f"{where}: @{mark} has no meaning here")
        return found

    def _is_constraint(self) -> bool:
        """Whether a constraint of the whole type is next, not a mark of a property."""
        word, sign = self._tokens.after(1).text, self._tokens.after(2).text
        return word in _CONSTRAINTS and sign == "("

    def _annotations(self, owner: str, description: list[str]) -> None:
        while self._tokens.has("@"):
            place = self._tokens.place
            mark, value = self._annotation()
            if mark in {"description", "instruction"}:
                description.append(value)
            else:
                self._notes.left_out(place, f"{owner}: @{mark} has no meaning here")

    def _annotation(self) -> tuple[str, str]:
        """A mark and its first argument."""
        tokens = self._tokens
        tokens.expect("@")
        mark, value = tokens.kind("word", "a mark"), ""
        if tokens.skip("("):
            if not tokens.has(")"):
                value = tokens.string() if tokens.now.kind == "string" else tokens.take().text
            while not tokens.skip(")"):
                if tokens.now.kind == "end":
                    tokens.fail("expected ')'")
                tokens.take()
        return mark, value

    def _constraint(self, owner: str, body: _Body) -> None:
        tokens, place = self._tokens, self._tokens.place
        tokens.expect("@")
        rule = tokens.kind("word", "a constraint")
        if rule not in _CONSTRAINTS:
            tokens.fail(f"@{rule} is not a constraint of a type")
        tokens.expect("(")
        if rule == "range":
            self._range(owner, body, place)
        elif rule == "check":
            self._check(owner, body, place)
        else:
            self._group(owner, rule, self._members(), body, place)
        tokens.expect(")")

    def _members(self) -> list[str]:
        tokens, found = self._tokens, list[str]()
        while True:
            mark = "@" if tokens.skip("@") else ""
            found.append(mark + tokens.kind("word", "a property"))
            if not tokens.skip(","):
                return found

    def _group(self, owner: str, rule: str, names: list[str], body: _Body, place: str) -> None:
        ends = [each for each in names if each in _ENDS and each not in body.fields]
        own = [each for each in names if each not in ends]
        unknown = [each for each in own if each not in body.fields]
        if unknown:
            self._notes.left_out(place, f"{owner} has no property {', '.join(unknown)}")
            return
        if rule != "index" and ends:
            body.keyed = True
            if not own:
                body.one_a_source |= set(ends) <= _SOURCE
            elif len(own) == 1 and len(ends) == 2:
                self._mark(body, own[0], key=True)
            else:
                self._notes.left_out(place, f"{owner}: @{rule} of ends and several properties")
        elif len(own) == 1:
            if rule != "index":
                self._mark(body, own[0], **{rule: True})
        else:
            fields = tuple(body.fields[each].name for each in own)
            if rule == "index" and len(fields) == 2:
                body.index.append(fields)
            elif rule != "index":
                body.unique.append(fields)
                if rule == "key":
                    self._notes.changed(
                        place, f"{owner}: a key has one field here, so {fields} are unique instead"
                    )

    def _mark(self, body: _Body, name: str, **said: object) -> None:
        body.fields[name] = msgspec.structs.replace(body.fields[name], **said)

    def _range(self, owner: str, body: _Body, place: str) -> None:
        tokens = self._tokens
        name = tokens.kind("word", "a property")
        tokens.expect(",")
        low = self._bound()
        tokens.expect("..")
        high = self._bound()
        if name not in body.fields:
            self._notes.left_out(place, f"{owner} has no property {name}")
        else:
            given = {"min_value": low, "max_value": high}
            self._mark(body, name, **{each: got for each, got in given.items() if got is not None})

    def _bound(self) -> float | None:
        if self._tokens.now.kind != "number":
            return None
        text = self._tokens.take().text
        return float(text) if "." in text else int(text)

    def _check(self, owner: str, body: _Body, place: str) -> None:
        name = self._tokens.kind("word", "a property")
        self._tokens.expect(",")
        pattern = usable_pattern(self._tokens.string(), place, self._notes)
        if name not in body.fields:
            self._notes.left_out(place, f"{owner} has no property {name}")
        elif pattern is not None:
            self._mark(body, name, pattern=pattern)
