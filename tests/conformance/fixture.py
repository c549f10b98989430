"""The backend that the conformance suite talks to: the names it asks for, as far as we offer them.

Only what the surface itself can say stands here: tools with an object as their
result, text resources, templates and completions. The rest is in ``extras``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import msgspec

from trails.model.actors import Actor
from trails.model.capabilities import Hints, Tool, ToolList
from trails.model.results import Failure, Outcome, Success
from trails.model.uris import Completions, Content, ListedResource, ResourceList, ResourceTemplate

READING: Final = Hints(read_only=True, destructive=False, idempotent=True)
NOTHING: Final[Mapping[str, object]] = {"type": "object", "properties": {}}
TEMPLATE: Final = re.compile(r"test://template/([^/]+)/data")
MIRRORED: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}
STATIC: Final = {
    "test://static-text": "This is the content of the static text resource.",
    "test://watched-resource": "Something that may change.",
}
VOCABULARY: Final[Mapping[str, object]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def describe(
    name: str, description: str, input_schema: Mapping[str, object], hints: Hints = READING
) -> Tool:
    """A tool record; the name is its own title."""
    return Tool(
        name=name, title=name, description=description, input_schema=input_schema, hints=hints
    )


class Quiet:
    """A watch on resources that never change."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None

    def take(self) -> Sequence[str]:
        """Nothing has changed."""
        return ()

    def add(self, uri: str) -> None:
        """Nothing will happen to it."""

    def remove(self, uri: str) -> None:
        """Nothing would have happened to it."""

    def close(self) -> None:
        """Nothing is kept."""


class FixtureBackend:
    """Tools, resources, templates and completions under the suite's names."""

    name = "trails-conformance"
    version = "1.0.0"

    def instructions(self, actor: Actor) -> str:
        """What it is for."""
        return "A fixture for the conformance suite."

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._turns = 0
        self._tools = (
            describe("json_schema_2020_12_tool", "Accepts a wide vocabulary.", VOCABULARY),
            describe("mirrored", "Compares an argument with a header.", MIRRORED),
            describe("test_error_handling", "Always fails.", NOTHING),
            describe("test_simple_text", "Returns a simple text.", NOTHING),
            describe("test_trigger_tool_change", "Tells that the tools changed.", NOTHING),
        )

    def tools(self, actor: Actor) -> ToolList:
        """All tools, for anybody."""
        return ToolList(f"tools-{self._turns}", self._tools)

    def schema_of(self, name: str) -> Mapping[str, object] | None:
        """What a tool takes."""
        return next((each.input_schema for each in self._tools if each.name == name), None)

    def reserve(self, actor: Actor) -> AbstractContextManager[object]:
        """Everybody is admitted."""
        return nullcontext()

    async def execute(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """Answer as the suite's descriptions ask."""
        if name == "test_error_handling":
            return Failure(
                "semantic", "test", "This tool intentionally returns an error for testing"
            )
        if name == "test_simple_text":
            return succeed(text="This is a simple text response for testing.")
        if name == "test_trigger_tool_change":
            self._turns += 1
            for changed in tuple(self._listeners):
                changed()
            return succeed(changed=True)
        if name in {"json_schema_2020_12_tool", "mirrored"}:
            return succeed(given=dict(arguments))
        return Failure("unknown", "unknown_tool", f"unknown tool: {name}")

    def resources(self, actor: Actor) -> ResourceList:
        """The static resources and one template."""
        return ResourceList(
            "resources",
            tuple(
                ListedResource(
                    uri=uri, name=uri, title=uri, description=text[:40], mime_type="text/plain"
                )
                for uri, text in STATIC.items()
            ),
            (
                ResourceTemplate(
                    uri_template="test://template/{id}/data",
                    name="template",
                    title="Template",
                    description="The data of an id.",
                    mime_type="application/json",
                ),
            ),
        )

    async def read(self, actor: Actor, uri: str) -> Sequence[Content] | Failure:
        """A static resource, or one of the template."""
        if uri in STATIC:
            return [Content(uri, "text/plain", STATIC[uri])]
        found = TEMPLATE.fullmatch(uri)
        if found is None:
            return Failure("unknown", "not_found", f"unknown resource: {uri}", {"uri": uri})
        id = found[1]
        document = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
        return [Content(uri, "application/json", msgspec.json.encode(document).decode())]

    async def complete(
        self, actor: Actor, template: str, variable: str, value: str, given: Mapping[str, str]
    ) -> Completions | Failure:
        """Three ids that begin with what was typed."""
        return Completions(tuple(value + digit for digit in "123"), total=3)

    def refuse_watch(self, actor: Actor, uri: str) -> Failure | None:
        """Static resources can be watched."""
        return None if uri in STATIC else Failure("unknown", "not_found", f"unknown: {uri}")

    def watch(self, actor: Actor, uris: Sequence[str]) -> Quiet:
        """A watch that stays quiet."""
        return Quiet()

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Be told when ``test_trigger_tool_change`` is called."""
        self._listeners.append(changed)
        return lambda: self._listeners.remove(changed)


def succeed(**result: object) -> Success:
    """A result of these fields."""
    return Success(msgspec.json.encode(result))
