"""JSON Schema: each object schema with properties becomes a node type.

Definitions (``$defs``, ``definitions``, OpenAPI's ``components.schemas``) and the root are read. A
``$ref`` to an object is a reference, ``allOf`` with one ``$ref`` extends that type, and an object
without a name is a ``Json`` value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

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
_FORMATS: Final = {
    "date": "Date",
    "date-time": "DateTime",
    "uri": "Iri",
    "iri": "Iri",
    "uri-reference": "Iri",
}
_SCALARS: Final = {"string": "String", "integer": "Int", "number": "Float", "boolean": "Bool"}
_LIMITS: Final = {"minLength": "min_length", "maxLength": "max_length"}
_COUNTS: Final = {"minItems": "min_count", "maxItems": "max_count"}
_UNSAID: Final = (
    "not",
    "if",
    "then",
    "else",
    "multipleOf",
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "propertyNames",
    "prefixItems",
)
_DEEPEST: Final = 32


def read_json_schema(text: str, file: str = "schema.json") -> ImportedSchema:
    """The node types of a JSON Schema document."""
    check_size(text)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        refuse(f"{file} is not JSON: {str(error)[:200]}")
    if not isinstance(document, dict):
        refuse(f"{file} must be a JSON object, not a {type(document).__name__}")
    return _Reader(document, file).read()


class _Reader:
    """Reads one document."""

    def __init__(self, document: Document, file: str) -> None:
        self._document = document
        self._file = file
        self._notes = Notes()
        self._objects = {
            pointer: (type_name(name, self._notes, pointer), schema)
            for pointer, name, schema in self._definitions()
            if self._is_object(schema)
        }

    def read(self) -> ImportedSchema:
        if not self._objects:
            refuse(f"{self._file} defines no object with properties; there is nothing to import")
        types: dict[str, TypeSpec] = {}
        for pointer, (name, schema) in self._objects.items():
            if name in types:
                self._notes.left_out(pointer, f"{name} is defined before")
            else:
                types[name] = self._type(name, schema, pointer)
        return ImportedSchema(tuple(types.values()), notes=self._notes.done())

    def _definitions(self) -> Iterator[tuple[str, str, Document]]:
        root = self._document
        if "properties" in root or "allOf" in root:
            yield "#", str(root.get("title") or self._file.partition(".")[0]), root
        for path in (("$defs",), ("definitions",), ("components", "schemas")):
            found: object = root
            for part in path:
                found = found.get(part) if isinstance(found, Mapping) else None
            for name, schema in found.items() if isinstance(found, Mapping) else ():
                if isinstance(schema, Mapping):
                    yield f"#/{'/'.join(path)}/{name}", str(name), schema

    def _is_object(self, schema: Document) -> bool:
        parts = [schema, *self._parts(schema)]
        return any(isinstance(each.get("properties"), Mapping) for each in parts) or (
            "allOf" in schema and any("$ref" in each for each in self._parts(schema))
        )

    def _parts(self, schema: Document) -> list[Document]:
        found = schema.get("allOf")
        parts = found if isinstance(found, list) else []
        return [each for each in parts if isinstance(each, Mapping)]

    def _type(self, name: str, schema: Document, pointer: str) -> TypeSpec:
        extends, fields = None, list[FieldSpec]()
        for part in (schema, *self._parts(schema)):
            target = self._objects.get(str(part.get("$ref", "")))
            if target is not None and extends is None and target[0] != name:
                extends = target[0]
            elif "$ref" in part:
                self._notes.left_out(pointer, f"{name}: {part['$ref']} can't be extended as well")
            fields += self._fields(name, part)
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping) or schema.get("patternProperties"):
            self._notes.left_out(pointer, f"{name}: properties without a name can't be declared")
        return TypeSpec(
            name,
            unique_names(fields, name, self._notes),
            str(schema.get("description") or ""),
            extends=extends,
        )

    def _fields(self, owner: str, schema: Document) -> Iterator[FieldSpec]:
        properties, required = schema.get("properties"), schema.get("required")
        needed = {str(each) for each in required} if isinstance(required, list) else set()
        for given, inner in properties.items() if isinstance(properties, Mapping) else ():
            where = f"{owner}.{given}"
            if not isinstance(inner, Mapping):
                self._notes.left_out(where, f"{inner!r} says nothing about the values")
                continue
            said = self._value(inner, where)
            name = field_name(str(given), owner, self._notes)
            if name != given and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", str(given)):
                said["iri"] = given
            if not str(said["type"]).startswith("List"):
                said["required"] = given in needed and not said.pop("nullable", False)
            elif given in needed:
                said.setdefault("min_count", 0)
            said.pop("nullable", None)
            yield make_field({"name": name, **said}, where, self._notes)

    # --- values ----------------------------------------------------------------------------

    def _value(self, schema: Document, where: str, depth: int = 0) -> dict[str, object]:
        """What a schema says of a field's values, as arguments of a field."""
        if depth > _DEEPEST:
            self._notes.left_out(where, "references go around in a circle")
            return {"type": "Json"}
        for word in _UNSAID:
            if word in schema:
                self._notes.left_out(where, f"{word!r} has no counterpart")
        said = self._resolved(schema, where, depth)
        for word in ("description", "title"):
            if schema.get(word) and not said.get("description"):
                said["description"] = str(schema[word])
        if schema.get("default") is not None and "default" not in said:
            said["default"] = schema["default"]
        return said

    def _resolved(self, schema: Document, where: str, depth: int) -> dict[str, object]:
        target = schema.get("trails:node_type")
        if isinstance(target, str):
            return {"type": f"Ref[{target}]"}
        pointer = schema.get("$ref")
        if isinstance(pointer, str):
            return self._referred(pointer, where, depth)
        for word in ("anyOf", "oneOf"):
            found = schema.get(word)
            if isinstance(found, list):
                return self._choice(found, where, word, depth)
        parts = self._parts(schema)
        if len(parts) == 1 and "type" not in schema:
            return self._value(parts[0], where, depth + 1)
        return self._typed(schema, where, depth)

    def _referred(self, pointer: str, where: str, depth: int) -> dict[str, object]:
        if pointer in self._objects:
            return {"type": f"Ref[{self._objects[pointer][0]}]"}
        found: object = self._document
        for part in pointer.removeprefix("#/").split("/") if pointer.startswith("#/") else ["?"]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping):
            return self._value(found, where, depth + 1)
        self._notes.left_out(where, f"{pointer!r} is not in this document")
        return {"type": "Json"}

    def _choice(
        self, options: list[object], where: str, word: str, depth: int
    ) -> dict[str, object]:
        null = {"type": "null"}
        rest = [each for each in options if isinstance(each, Mapping) and each != null]
        if len(rest) == 1:
            said = self._value(rest[0], where, depth + 1)
            return {**said, "nullable": len(rest) < len(options)}
        values = [each.get("const") for each in rest]
        if rest and all(isinstance(each, str) for each in values):
            return {"type": "String", "one_of": values}
        self._notes.changed(where, f"{word!r} of several types is a Json value")
        return {"type": "Json", "nullable": len(rest) < len(options)}

    def _typed(self, schema: Document, where: str, depth: int) -> dict[str, object]:
        kinds = schema.get("type")
        listed = kinds if isinstance(kinds, list) else [kinds]
        nullable = "null" in listed
        names = [each for each in listed if each != "null"]
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(values, list) and names in ([None], []):
            names = ["string" if all(isinstance(each, str) for each in values) else "integer"]
        kind = names[0] if len(names) == 1 else None
        said: dict[str, object] = {"nullable": nullable}
        if kind == "array":
            return {**said, **self._array(schema, where, depth)}
        if kind not in _SCALARS:
            if kind != "object" or "properties" in schema:
                self._notes.changed(where, "it is a Json value; give it a type of its own")
            return {**said, "type": "Json"}
        said["type"] = _FORMATS.get(str(schema.get("format")), _SCALARS[str(kind)])
        if isinstance(values, list):
            said["one_of"] = [each for each in values if each is not None]
        if said["type"] == "String":
            said |= {ours: schema[word] for word, ours in _LIMITS.items() if word in schema}
            if isinstance(schema.get("pattern"), str):
                said["pattern"] = usable_pattern(str(schema["pattern"]), where, self._notes)
        elif kind in {"integer", "number"}:
            said |= self._bounds(schema, where, integer=kind == "integer")
        return said

    def _bounds(self, schema: Document, where: str, *, integer: bool) -> dict[str, object]:
        found: dict[str, object] = {}
        for word, ours, step in (("minimum", "min_value", 1), ("maximum", "max_value", -1)):
            if word in schema:
                found[ours] = schema[word]
            beyond = schema.get(f"exclusive{word.capitalize()}")
            if isinstance(beyond, int) and integer and not isinstance(beyond, bool):
                found[ours] = beyond + step
            elif beyond is not None:
                self._notes.left_out(where, f"a bound that is not included, {beyond}")
        return found

    def _array(self, schema: Document, where: str, depth: int) -> dict[str, object]:
        items = schema.get("items")
        inner = (
            self._value(items, where, depth + 1) if isinstance(items, Mapping) else {"type": "Json"}
        )
        kind = str(inner["type"])
        if kind.startswith("List"):
            self._notes.changed(where, "a list of lists is a Json value")
            return {"type": "Json"}
        limits = {ours: cast(int, schema[word]) for word, ours in _COUNTS.items() if word in schema}
        kept = {name: got for name, got in inner.items() if name not in {"nullable", "default"}}
        ordered = {} if schema.get("uniqueItems") is True else {"ordered": True}
        return {**kept, "type": f"List[{kind}]", **limits, **ordered}
