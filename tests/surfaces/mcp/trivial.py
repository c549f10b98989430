"""A backend in a few lines: the MCP surface stands alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from trails.model.actors import LOCAL, Actor
from trails.model.capabilities import Hints, Tool, ToolList
from trails.model.results import Failure, Outcome, Success
from trails.model.uris import Completions, Content, ListedResource, ResourceList, ResourceTemplate
from trails.surfaces.mcp import streams

# What is under way when the lines of a session end is waited for, however busy the machine is.
streams.GRACE = 60.0  # type: ignore[misc]

ECHO = Tool(
    name="echo",
    title="Echo",
    description="Gives back its arguments.",
    input_schema={"type": "object"},
    output_schema={"type": "object"},
    hints=Hints(read_only=True, destructive=False, idempotent=True),
)
NOTE = ListedResource(
    uri="test://note", name="note", title="Note", description="A note.", mime_type="text/plain"
)
LINE = ResourceTemplate(
    uri_template="test://line/{n}",
    name="line",
    title="Line",
    description="A line.",
    mime_type="text/plain",
)


class OneCaller:
    """Every message is of the same actor."""

    default_token = None

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    async def resolve(self, token: object, *, begins: bool) -> Actor:
        """Whatever it carries."""
        del token, begins
        return self._actor

    def is_current(self, actor: Actor) -> bool:
        """For ever."""
        return actor == self._actor


class TrivialBackend:
    """Echoes, reads one note, and counts what it was asked."""

    name, version = "trivial", "1.0"

    def __init__(self, failures: Mapping[str, Failure] | None = None) -> None:
        self.failures = failures or {}
        self.calls: list[tuple[str, Any]] = []

    def instructions(self, actor: Actor) -> str:
        """What to do."""
        return "Call echo."

    def tools(self, actor: Actor) -> ToolList:
        """One tool."""
        return ToolList("1", (ECHO,))

    def schema_of(self, name: str) -> Mapping[str, object] | None:
        """What a tool takes."""
        tools = self.tools(LOCAL).tools
        return next((each.input_schema for each in tools if each.name == name), None)

    def reserve(self, actor: Actor) -> AbstractContextManager[object]:
        """Everybody is admitted."""
        return nullcontext()

    async def execute(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """Echo, or fail as the name says."""
        self.calls.append((name, arguments))
        if name == "echo":
            return Success(msgspec.json.encode(arguments))
        return self.failures.get(name) or Failure("unknown", "unknown", f"unknown tool: {name}")

    def resources(self, actor: Actor) -> ResourceList:
        """One note and one template."""
        return ResourceList("1", (NOTE,), (LINE,))

    async def read(self, actor: Actor, uri: str) -> Sequence[Content] | Failure:
        """The note."""
        self.calls.append(("read", uri))
        if uri == NOTE.uri:
            return [Content(uri, "text/plain", "hello")]
        return self.failures.get(uri) or Failure("unknown", "not_found", f"no resource: {uri}")

    async def complete(
        self, actor: Actor, template: str, variable: str, value: str, given: Mapping[str, str]
    ) -> Completions | Failure:
        """Ten lines."""
        return Completions(tuple(str(n) for n in range(10) if str(n).startswith(value)), total=10)

    def refuse_watch(self, actor: Actor, uri: str) -> Failure | None:
        """Nothing changes here."""
        return Failure("unknown", "not_found", f"no resource: {uri}")

    def watch(self, actor: Actor, uris: Sequence[str]) -> Any:
        """Nothing changes here."""
        raise NotImplementedError

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Nothing changes here."""
        return lambda: None
