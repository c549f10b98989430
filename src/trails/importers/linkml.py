"""LinkML: classes become node types, slots their fields.

``is_a`` extends a type, mixins give their slots, enumerations are ``one_of``, an identifier is the
key, and a slot whose range is a class is a reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import yaml

from trails.importers.result import (
    ImportedSchema,
    Notes,
    check_size,
    field_name,
    make_field,
    refuse,
    type_name,
    unique_names,
    usable_pattern,
)
from trails.model.changes.steps import FieldSpec, TypeSpec

Document = Mapping[str, object]
_RANGES: Final = {
    "string": "String",
    "integer": "Int",
    "float": "Float",
    "double": "Float",
    "decimal": "Decimal",
    "boolean": "Bool",
    "date": "Date",
    "datetime": "DateTime",
    "uri": "Iri",
    "uriorcurie": "Iri",
    "curie": "String",
    "ncname": "String",
    "nodeidentifier": "Iri",
    "time": "String",
    "date_or_datetime": "String",
}
_UNSAID: Final = (
    "any_of",
    "all_of",
    "none_of",
    "exactly_one_of",
    "equals_expression",
    "union_of",
    "rules",
    "classification_rules",
)
_STEPS: Final = 64
_DEEPEST: Final = 64
_LARGEST: Final = 1 << 20
"""Characters: YAML takes longer to read than the other languages."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_linkml(text: str, file: str = "schema.yaml") -> ImportedSchema:
    """The node types of a LinkML schema."""
    check_size(text, _LARGEST)
    try:
        _check_events(text, file)
        document = yaml.load(text, _LOADER)  # noqa: S506 - safe, by libyaml where it is there
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        refuse(f"{file} is not YAML: {' '.join(str(error).split())[:200]}")
    if not isinstance(document, dict) or not isinstance(document.get("classes"), dict):
        refuse(f"{file} has no classes; a LinkML schema lists them under 'classes'")
    return _Reader(document, file).read()


def _check_events(text: str, file: str) -> None:
    """Refuse aliases and deep nesting as soon as they are met: reading on would take very long."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.AliasEvent):
            refuse(f"{file} has YAML aliases, which are not read; write the values out")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            refuse(f"{file} is nested more than {_DEEPEST} deep")


def _table(document: object, key: str) -> Document:
    """A part of a document that has names; what is empty is a table without rows."""
    found = document.get(key) if isinstance(document, Mapping) else None
    if isinstance(found, list):  # names alone
        return {str(each): {} for each in found}
    given = found.items() if isinstance(found, Mapping) else ()
    return {str(name): each or {} for name, each in given}


class _Reader:
    """Reads one schema."""

    def __init__(self, document: Document, file: str) -> None:
        self._file = file
        self._notes = Notes()
        self._classes = _table(document, "classes")
        self._slots = _table(document, "slots")
        self._enums = _table(document, "enums")
        self._types = _table(document, "types")
        self._prefixes = _table(document, "prefixes")
        self._default = str(document.get("default_range") or "string")
        for name in _table(document, "imports"):
            if not name.startswith("linkml:"):
                self._notes.left_out(file, f"the import of {name!r}; import that file as well")
        self._names = {
            given: type_name(given, self._notes, f"classes.{given}") for given in self._classes
        }

    def read(self) -> ImportedSchema:
        types: dict[str, TypeSpec] = {}
        for given, name in self._names.items():
            if name in types:
                self._notes.left_out(f"classes.{given}", f"{name} is declared before")
            else:
                types[name] = self._type(given, name)
        return ImportedSchema(tuple(types.values()), notes=self._notes.done())

    def _type(self, given: str, name: str) -> TypeSpec:
        said = self._class(given)
        parent = said.get("is_a")
        if parent is not None and parent not in self._names:
            self._notes.left_out(name, f"it extends {parent!r}, which is not in this file")
        self._note_unsaid(said, name)
        groups = []
        fields = unique_names(self._fields(given, name), name, self._notes)
        by_slot = {each.iri or each.name: each.name for each in fields}
        for key in _table(said, "unique_keys").values():
            slots = key.get("unique_key_slots") if isinstance(key, Mapping) else None
            members = [by_slot.get(str(each), str(each)) for each in slots or ()]
            if len(members) > 1:
                groups.append(tuple(members))
            elif members:
                fields = tuple(
                    msgspec.structs.replace(each, unique=True) if each.name in members else each
                    for each in fields
                )
        extra = {"abstract": True} if said.get("abstract") or said.get("mixin") else {}
        return msgspec.convert(
            {
                "name": name,
                "fields": msgspec.to_builtins(fields),
                "description": str(said.get("description") or ""),
                "extends": self._names.get(str(parent)),
                "unique": groups,
                "iri": self._iri(said.get("class_uri")),
                **extra,
            },
            TypeSpec,
        )

    def _class(self, given: str) -> Document:
        found = self._classes.get(given)
        return found if isinstance(found, Mapping) else {}

    def _fields(self, given: str, owner: str) -> Iterator[FieldSpec]:
        """The slots of a class and of its mixins; those of ``is_a`` are inherited."""
        inherited = set(self._inherited(given))
        for source in (given, *self._mixins(given)):
            said = self._class(source)
            usage, attributes = _table(said, "slot_usage"), _table(said, "attributes")
            for slot in (*_table(said, "slots"), *attributes):
                if slot in inherited:
                    continue
                parts = (self._slots.get(slot), attributes.get(slot), usage.get(slot))
                merged = {
                    k: v for part in parts if isinstance(part, Mapping) for k, v in part.items()
                }
                yield self._field(slot, merged, owner)
            for slot in usage.keys() & inherited:
                self._notes.left_out(
                    f"{owner}.{slot}", "what slot_usage adds to an inherited slot; use a shape"
                )

    def _mixins(self, given: str) -> list[str]:
        said = self._class(given).get("mixins")
        found = [str(each) for each in said] if isinstance(said, list) else []
        for each in found:
            self._notes.changed(given, f"the slots of the mixin {each} are its own fields")
        return [each for each in found if each in self._classes]

    def _inherited(self, given: str) -> Iterator[str]:
        parent = self._class(given).get("is_a")
        for _ in range(_STEPS):
            if parent not in self._classes:
                return
            for source in (str(parent), *self._quiet_mixins(str(parent))):
                yield from _table(self._class(source), "slots")
                yield from _table(self._class(source), "attributes")
            parent = self._class(str(parent)).get("is_a")
        refuse(f"{self._file}: classes.{given}: is_a goes around in a circle")

    def _quiet_mixins(self, given: str) -> list[str]:
        said = self._class(given).get("mixins")
        return [str(each) for each in said] if isinstance(said, list) else []

    def _field(self, slot: str, said: Document, owner: str) -> FieldSpec:
        where = f"{owner}.{slot}"
        name = field_name(slot, owner, self._notes)
        self._note_unsaid(said, where)
        kind, values = self._range(said, where)
        key = bool(said.get("identifier") or said.get("key"))
        found: dict[str, object] = {
            "name": name,
            "description": str(said.get("description") or ""),
            "iri": self._iri(said.get("slot_uri")) or ("" if name == slot else slot),
        }
        if said.get("multivalued"):
            found["type"] = f"List[{kind}]"
            for word, ours in (
                ("minimum_cardinality", "min_count"),
                ("maximum_cardinality", "max_count"),
            ):
                if isinstance(said.get(word), int):
                    found[ours] = said[word]
            if said.get("required"):
                found.setdefault("min_count", 1)
            if said.get("list_elements_ordered"):
                found["ordered"] = True
        else:
            found |= {"type": kind, "required": bool(said.get("required") or key)}
        if key:
            found["key"] = True
        if values is not None:
            found["one_of"] = values
        for word, ours in (("minimum_value", "min_value"), ("maximum_value", "max_value")):
            if said.get(word) is not None:
                found[ours] = said[word]
        if isinstance(said.get("pattern"), str) and kind == "String":
            found["pattern"] = usable_pattern(str(said["pattern"]), where, self._notes)
        if isinstance(said.get("ifabsent"), str):
            found |= self._default_of(str(said["ifabsent"]), kind, where)
        return make_field(found, where, self._notes)

    def _range(self, said: Document, where: str) -> tuple[str, list[str] | None]:
        """The kind of a slot's values and, for an enumeration, the values."""
        given = str(said.get("range") or self._default)
        for _ in range(_STEPS):
            if given in self._names:
                return f"Ref[{self._names[given]}]", None
            if given in self._enums:
                values = list(_table(self._enums[given], "permissible_values"))
                if not values:
                    self._notes.changed(where, f"the values of {given} are not listed: any text")
                return "String", values or None
            if given in _RANGES:
                return _RANGES[given], None
            custom = self._types.get(given)
            base = (
                custom.get("typeof") or custom.get("base") if isinstance(custom, Mapping) else None
            )
            if base is None:
                break
            given = {"str": "string", "int": "integer", "bool": "boolean"}.get(str(base), str(base))
        self._notes.changed(where, f"the range {given!r} is not known: any text")
        return "String", None

    def _default_of(self, text: str, kind: str, where: str) -> dict[str, object]:
        """``string(open)``, ``int(3)``, ``true``."""
        name, bracket, rest = text.partition("(")
        value = rest.removesuffix(")") if bracket else name
        readers = {"Int": int, "Float": float, "String": str}
        try:
            if kind == "Bool":
                return {"default": {"true": True, "false": False}[value.lower()]}
            return {"default": readers[kind](value.strip("'\""))}
        except (KeyError, ValueError):
            self._notes.left_out(where, f"the default {text!r}")
            return {}

    def _note_unsaid(self, said: Document, where: str) -> None:
        for word in _UNSAID:
            if said.get(word):
                self._notes.left_out(where, f"{word!r} has no counterpart")

    def _iri(self, given: object) -> str:
        """A full IRI of a prefixed name; empty if it has none."""
        prefix, colon, local = str(given or "").partition(":")
        if not colon or local.startswith("//"):
            return str(given or "")
        found = self._prefixes.get(prefix)
        base = found.get("prefix_reference") if isinstance(found, Mapping) else found
        return f"{base}{local}" if isinstance(base, str) else ""
