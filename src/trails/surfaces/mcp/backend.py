"""The interface that the MCP surface needs: one graph, for authenticated callers.

The request kernel implements it; tests implement it in a dozen lines, which proves that this
package depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from trails.model.actors import Actor
from trails.model.capabilities import ToolList
from trails.model.results import Failure, Outcome
from trails.model.uris import Completions, Content, ResourceList


class Watch(Protocol):
    """The pending changes of one subscriber, coalesced: never more than it watches."""

    wake: Callable[[], None]
    """Called on the event loop when a change is pending; set by the opener of the watch."""

    def take(self) -> Sequence[str]:
        """The URIs that changed since they were last taken, as they were subscribed."""

    def add(self, uri: str) -> Failure | None:
        """Watch another URI, or return the refusal."""

    def remove(self, uri: str) -> None:
        """Stop watching a URI."""

    def close(self) -> None:
        """Stop watching."""


class McpBackend(Protocol):
    """One graph, as MCP sees it. Every method is called on the event loop."""

    @property
    def name(self) -> str:
        """The name of the server."""

    @property
    def version(self) -> str:
        """The version of the server."""

    def instructions(self, actor: Actor) -> str:
        """Instructions for a model that has never seen this server."""

    def tools(self, actor: Actor) -> ToolList:
        """The tools that an actor may use."""

    def schema_of(self, name: str) -> Mapping[str, object] | None:
        """The input schema of a tool for any actor, or None; for internal use, never sent."""

    def reserve(self, actor: Actor) -> AbstractContextManager[object] | Failure:
        """Admit an actor before its large request is parsed, or refuse it.

        The call that is made while the manager is entered is not counted again.
        """

    async def execute(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """Call a tool; the answer is bounded. Never raises except for cancellation."""

    def resources(self, actor: Actor) -> ResourceList:
        """What an actor may read."""

    async def read(self, actor: Actor, uri: str) -> Sequence[Content] | Failure:
        """Read a URI. Never raises except for cancellation."""

    async def complete(
        self, actor: Actor, template: str, variable: str, value: str, given: Mapping[str, str]
    ) -> Completions | Failure:
        """Values for a template's variable that begin with what was typed."""

    def refuse_watch(self, actor: Actor, uri: str) -> Failure | None:
        """Why a URI can't be watched, or None."""

    def watch(self, actor: Actor, uris: Sequence[str]) -> Watch | Failure:
        """Watch some URIs, each checked before, or return the refusal if there are too many."""

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed`` on the event loop when lists may have changed; the result stops that."""
