"""Check a Thing Description: with rules of our own, and with the official schema if it is here.

The rules are those of the standard (version 1.1) that concern what cards have. The schema comes
from the registry of packages, with the suite of MCP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema
from tests.conformance.suite import FOLDER

SCHEMA: Final = FOLDER.joinpath(
    "node_modules", "wot-thing-description-types", "schema", "td-json-schema-validation.json"
)
OPERATIONS: Final = {
    "actions": {"invokeaction", "queryaction", "cancelaction"},
    "properties": {"readproperty", "writeproperty", "observeproperty", "unobserveproperty"},
    "events": {"subscribeevent", "unsubscribeevent"},
}
TYPES: Final = {"boolean", "integer", "number", "string", "object", "array", "null"}


def problems_of(thing: Mapping[str, Any]) -> list[str]:
    """What is wrong with a Thing Description."""
    found = list(_broken_rules(thing))
    if SCHEMA.exists():
        found += official_problems(thing)
    return found


def official_problems(thing: Mapping[str, Any]) -> list[str]:
    """What the official schema says."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    errors = jsonschema.Draft7Validator(schema).iter_errors(thing)
    return [f"{'/'.join(map(str, each.path))}: {each.message[:200]}" for each in errors]


def _broken_rules(thing: Mapping[str, Any]) -> Iterator[str]:
    context = thing.get("@context")
    if not isinstance(context, list) or context[0] != "https://www.w3.org/2022/wot/td/v1.1":
        yield "@context must begin with that of version 1.1"
    for name in ("title", "security", "securityDefinitions"):
        if not thing.get(name):
            yield f"{name} is missing"
    for name in thing.get("security", ()):
        if name not in thing.get("securityDefinitions", {}):
            yield f"{name} is not defined"
    prefixes = {"htv", *(context[1] if isinstance(context, list) and len(context) > 1 else ())}
    for kind, operations in OPERATIONS.items():
        for name, affordance in thing.get(kind, {}).items():
            yield from _affordance(f"{kind}/{name}", affordance, operations)
            for member in _members(affordance):
                prefix, colon, _ = member.partition(":")
                if colon and prefix not in prefixes:
                    yield f"{kind}/{name}: {member} has a prefix that the context lacks"


def _affordance(name: str, given: Mapping[str, Any], operations: set[str]) -> Iterator[str]:
    if not given.get("forms"):
        yield f"{name} has no forms"
    for form in given.get("forms", ()):
        asked = form["op"] if isinstance(form["op"], list) else [form["op"]]
        if not set(asked) <= operations:
            yield f"{name}: {asked} is not an operation of its kind"
        if "href" not in form:
            yield f"{name}: a form has no href"
        for variable in _variables(form.get("href", "")):
            if variable not in given.get("uriVariables", {}):
                yield f"{name}: {variable} in {form['href']} is not declared"
    for member in ("input", "output", "data"):
        if member in given:
            yield from _schema(f"{name}/{member}", given[member])


def _variables(template: str) -> Iterator[str]:
    for part in template.split("{")[1:]:
        yield from part.partition("}")[0].lstrip("?").split(",")


def _schema(name: str, schema: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        yield f"{name} is not an object"
        return
    if "type" in schema and schema["type"] not in TYPES:
        yield f"{name}: {schema['type']} is not a type"
    for key, each in schema.get("properties", {}).items():
        yield from _schema(f"{name}/{key}", each)
    for key, each in enumerate(schema.get("oneOf", ())):
        yield from _schema(f"{name}/oneOf/{key}", each)
    if "items" in schema:
        yield from _schema(f"{name}/items", schema["items"])


def _members(value: object) -> Iterator[str]:
    """The names of members that are not those of a schema's own properties."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            inner = each.values() if name in {"properties", "uriVariables"} else [each]
            for one in inner:
                yield from _members(one)
    elif isinstance(value, list):
        for each in value:
            yield from _members(each)
