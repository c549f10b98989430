"""SHACL: node shapes with a target class become node types, property shapes their fields.

Takes statements, not text: RDF of others is parsed in the sandbox. Lists are followed, and what
SHACL says beyond the constraints of a field (logic, SPARQL, complex paths) is a note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from trails.importers.result import (
    ImportedSchema,
    Notes,
    field_name,
    make_field,
    refuse,
    type_name,
    unique_names,
    usable_pattern,
)
from trails.model.changes.steps import FieldSpec, TypeSpec
from trails.model.iris import RDF, RDF_TYPE, XSD

SH: Final = "http://www.w3.org/ns/shacl#"
_RDFS: Final = "http://www.w3.org/2000/01/rdf-schema#"
_KINDS: Final = {
    **{XSD + name: "Int" for name in ("integer", "int", "long", "short", "byte")},
    **{XSD + name: "Float" for name in ("double", "float")},
    XSD + "nonNegativeInteger": "Int",
    XSD + "positiveInteger": "Int",
    XSD + "string": "String",
    XSD + "boolean": "Bool",
    XSD + "decimal": "Decimal",
    XSD + "date": "Date",
    XSD + "dateTime": "DateTime",
    XSD + "anyURI": "Iri",
    RDF + "JSON": "Json",
}
_LENGTHS: Final = {"minLength": "min_length", "maxLength": "max_length"}
_BOUNDS: Final = {"minInclusive": "min_value", "maxInclusive": "max_value"}
_UNSAID: Final = (
    "or",
    "and",
    "not",
    "xone",
    "sparql",
    "equals",
    "disjoint",
    "lessThan",
    "lessThanOrEquals",
    "hasValue",
    "qualifiedValueShape",
    "minExclusive",
    "maxExclusive",
    "languageIn",
    "uniqueLang",
)
_LONGEST: Final = 10_000


class ShaclValue(msgspec.Struct, frozen=True):
    """An object of a statement: an IRI or blank node, or a literal with its datatype."""

    text: str
    datatype: str | None = None
    """None for what is not a literal."""


Statement = tuple[str, str, ShaclValue]


def read_shacl(
    statements: Iterable[Statement], vocabulary: str = "", file: str = "shapes.ttl"
) -> ImportedSchema:
    """The node types of some shapes; names of the ``vocabulary`` become short."""
    return _Reader(statements, vocabulary, file).read()


class _Reader:
    """Reads one graph of shapes."""

    def __init__(self, statements: Iterable[Statement], vocabulary: str, file: str) -> None:
        self._found: dict[str, dict[str, list[ShaclValue]]] = defaultdict(lambda: defaultdict(list))
        for subject, predicate, value in statements:
            self._found[subject][predicate].append(value)
        self._vocabulary = vocabulary
        self._file = file
        self._notes = Notes()
        self._classes = {
            target: type_name(target, self._notes, target) for _, target in self._targets()
        }

    def _targets(self) -> Iterator[tuple[str, str]]:
        """(shape, class) of each node shape."""
        for subject, said in sorted(self._found.items()):
            targets = [each.text for each in said.get(SH + "targetClass", ())]
            kinds = {each.text for each in said.get(RDF_TYPE, ())}
            if not targets and {SH + "NodeShape", _RDFS + "Class"} <= kinds:
                targets = [subject]
            for each in targets:
                yield subject, each
            if not targets and SH + "NodeShape" in kinds:
                self._notes.left_out(subject, "a shape without a target class")

    def read(self) -> ImportedSchema:
        if not self._classes:
            refuse(f"{self._file} has no node shape with a target class")
        types: dict[str, TypeSpec] = {}
        for shape, target in self._targets():
            made = self._type(shape, target)
            earlier = types.get(made.name)
            if earlier is not None:  # several shapes of one class
                made = msgspec.structs.replace(
                    earlier,
                    fields=unique_names((*earlier.fields, *made.fields), made.name, self._notes),
                )
            types[made.name] = made
        return ImportedSchema(tuple(types.values()), notes=self._notes.done())

    def _type(self, shape: str, target: str) -> TypeSpec:
        name = self._classes[target]
        self._note_unsaid(shape, name)
        parents = [each.text for each in self._found[target].get(_RDFS + "subClassOf", ())]
        known = [self._classes[each] for each in parents if each in self._classes]
        for each in parents:
            if each not in self._classes:
                self._notes.left_out(name, f"its class extends {each}, which has no shape")
        properties = self._found[shape].get(SH + "property", ())
        fields = [self._field(each.text, name) for each in properties]
        return TypeSpec(
            name,
            unique_names((each for each in fields if each is not None), name, self._notes),
            self._text(target, _RDFS + "comment") or self._text(shape, _RDFS + "comment"),
            extends=known[0] if known else None,
            iri=self._short(target),
        )

    def _field(self, shape: str, owner: str) -> FieldSpec | None:
        paths = self._found[shape].get(SH + "path", ())
        if len(paths) != 1 or not self._is_iri(paths[0]):
            self._notes.left_out(owner, "a property with a path of several steps")
            return None
        path = paths[0].text
        name = field_name(path, owner, self._notes)
        where = f"{owner}.{name}"
        self._note_unsaid(shape, where)
        kind = self._kind(shape, where)
        low, high = self._number(shape, "minCount"), self._number(shape, "maxCount")
        said: dict[str, object] = {
            "name": name,
            "iri": "" if self._short(path) == name else self._short(path),
            "description": self._text(shape, SH + "description"),
        }
        if high == 1:
            said |= {"type": kind, "required": bool(low)}
        else:
            said |= {"type": f"List[{kind}]", "min_count": low, "max_count": high}
        for word, ours in _BOUNDS.items():
            found = self._found[shape].get(SH + word, ())
            if found:
                said[ours] = _plain(found[0], kind)
        said |= {ours: self._number(shape, word) for word, ours in _LENGTHS.items()}
        pattern = self._text(shape, SH + "pattern")
        if pattern and kind == "String":
            flags = self._text(shape, SH + "flags")
            said["pattern"] = usable_pattern(pattern, where, self._notes)
            if flags:
                self._notes.left_out(where, f"the flags {flags!r} of its pattern")
        for each in self._found[shape].get(SH + "in", ()):
            values = [_plain(value, kind) for value in self._list(each.text)]
            said["one_of"] = values
        for each in self._found[shape].get(SH + "defaultValue", ()):
            said["default"] = _plain(each, kind)
        return make_field(said, where, self._notes)

    def _kind(self, shape: str, where: str) -> str:
        said = self._found[shape]
        for word in ("class", "node"):
            for each in said.get(SH + word, ()):
                if each.text in self._classes:
                    return f"Ref[{self._classes[each.text]}]"
                for target in self._found[each.text].get(SH + "targetClass", ()):
                    if target.text in self._classes:
                        return f"Ref[{self._classes[target.text]}]"
                self._notes.changed(where, f"{each.text} has no shape, so the field holds IRIs")
                return "Iri"
        for each in said.get(SH + "datatype", ()):
            found = _KINDS.get(each.text)
            if found is None:
                self._notes.changed(where, f"the datatype {each.text} is not known: text")
            return found or "String"
        if any(each.text == SH + "IRI" for each in said.get(SH + "nodeKind", ())):
            return "Iri"
        values = [value for each in said.get(SH + "in", ()) for value in self._list(each.text)]
        return _KINDS.get(values[0].datatype or "", "String") if values else "String"

    def _list(self, head: str) -> list[ShaclValue]:
        found, seen = list[ShaclValue](), set[str]()
        while head != RDF + "nil" and head not in seen and len(found) < _LONGEST:
            seen.add(head)
            found += self._found[head].get(RDF + "first", ())
            rest = self._found[head].get(RDF + "rest", ())
            head = rest[0].text if rest else RDF + "nil"
        return found

    def _note_unsaid(self, shape: str, where: str) -> None:
        for word in _UNSAID:
            if self._found[shape].get(SH + word):
                self._notes.left_out(where, f"sh:{word} has no counterpart")

    def _number(self, shape: str, word: str) -> int | None:
        found = self._found[shape].get(SH + word, ())
        return int(found[0].text) if found and found[0].text.isdecimal() else None

    def _text(self, subject: str, predicate: str) -> str:
        found = self._found[subject].get(predicate, ())
        return found[0].text if found else ""

    def _is_iri(self, value: ShaclValue) -> bool:
        return value.datatype is None and not value.text.startswith("_:")

    def _short(self, iri: str) -> str:
        return iri.removeprefix(self._vocabulary) if self._vocabulary else iri


def _plain(value: ShaclValue, kind: str) -> object:
    """A literal as a value of JSON."""
    if kind == "Int" and value.text.lstrip("-").isdecimal():
        return int(value.text)
    if kind == "Bool":
        return value.text == "true"
    if kind == "Float":
        with suppress(ValueError):
            return float(value.text)
    return value.text
