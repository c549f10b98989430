"""The interface that the REST surface needs: one graph, for callers that are already resolved.

Instances are read by URI, which is made from a path and its query, and a page of them becomes one
JSON object. Nothing is validated here; the reader of the URI reports what is wrong with it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from trails.model.actors import Actor
from trails.model.capabilities import ToolList
from trails.model.results import Failure, Outcome
from trails.model.uris import Content
from trails.request.monitor import MonitoredGraph
from trails.request.resources.representations import PLAIN, RecordForm

if TYPE_CHECKING:
    from trails.projections.thing_description import Card
    from trails.request.builtins.sparql import Choose, SparqlReply


class TransferBackend(Protocol):
    """What a graph offers beside tools and resources."""

    @property
    def uri(self) -> str:
        """What the IRIs of the graph begin with."""

    async def record(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """What a built-in of that name gives to programs: the whole record."""

    async def load(
        self,
        actor: Actor,
        body: AsyncIterator[bytes],
        arguments: Mapping[str, object],
        *,
        coding: str,
    ) -> Outcome:
        """Load what is sent in one commit, or not at all; ``coding`` is gzip, zstd or empty."""

    async def export(
        self, actor: Actor, arguments: Mapping[str, object]
    ) -> AsyncGenerator[bytes, None] | Failure:
        """A branch or snapshot as a file, in blocks."""

    async def content(self, actor: Actor, export: str) -> ServedFile | Failure:
        """The file of a finished export."""

    async def sparql(
        self, actor: Actor, arguments: Mapping[str, object], choose: Choose
    ) -> SparqlReply | Failure:
        """Run a query; ``choose`` names the format for its kind of result."""

    @property
    def most_blob(self) -> int:
        """Bytes that a blob may have; 0: no limit."""

    async def put_blob(
        self, actor: Actor, body: AsyncIterator[bytes], arguments: Mapping[str, object]
    ) -> Outcome:
        """Keep what is sent as a blob."""

    async def blob(self, actor: Actor, arguments: Mapping[str, object]) -> ServedFile | Failure:
        """The blob that a field of a record names."""


class EventPage(Protocol):
    """Some events of the change feed."""

    @property
    def events(self) -> Sequence[CommitEvent]:
        """Oldest first."""


class CommitEvent(Protocol):
    """One commit of a branch."""

    @property
    def commit(self) -> str:
        """Its id."""


class EventReader(Protocol):
    """A reader of the change feed."""

    @property
    def position(self) -> str:
        """The commit up to which everything was read."""

    async def next(self, seconds: float) -> EventPage | Failure | None:
        """The next page with events; None if there is none in time; a Failure at the end."""

    def close(self) -> None:
        """Stop following."""


class ChangeBackend(Protocol):
    """The change feed of a graph."""

    async def poll(self, actor: Actor, arguments: Mapping[str, object]) -> Outcome:
        """One page of changes, perhaps after a wait."""

    async def open(self, actor: Actor, arguments: Mapping[str, object]) -> EventReader | Failure:
        """A stream of changes."""


class ServedFile(Protocol):
    """The file of a finished export, or a blob."""

    @property
    def name(self) -> str:
        """The name under which it is saved."""

    @property
    def media_type(self) -> str:
        """Its media type."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def sha256(self) -> str:
        """Its digest, in hexadecimal."""

    def read(self, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """The bytes from a start up to an end, in blocks."""


class RestBackend(MonitoredGraph, Protocol):
    """One graph. Every method is called on the event loop and raises nothing but cancellation."""

    @property
    def transfers(self) -> TransferBackend:
        """What is offered beside tools and resources."""

    @property
    def changes(self) -> ChangeBackend:
        """The change feed."""

    def tools(self, actor: Actor) -> ToolList:
        """The tools that an actor may use."""

    def card(self, actor: Actor) -> Card:
        """What an actor may call, read and watch."""

    def reserve(self, actor: Actor) -> AbstractContextManager[object] | Failure:
        """Admit an actor before its large request is parsed; or why that can't be now.

        The call that is made while the manager is entered is not counted again.
        """

    async def invoke(self, actor: Actor, name: str, arguments: Mapping[str, object]) -> Outcome:
        """Call a tool; the answer is whole, unless ``max_chars`` is given."""

    async def read_whole(
        self, actor: Actor, uri: str, form: RecordForm = PLAIN
    ) -> Sequence[Content] | Failure:
        """Read a URI: all of it, however long."""


def write_uri(
    parts: Sequence[str], query: Mapping[str, str], *, branch: str | None, snapshot: str | None
) -> str:
    """The URI of a type or instance, on a branch or in the past."""
    path = "/".join(_encoded(each) for each in (*_place(branch, snapshot), "kg", *parts))
    asked = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in query.items())
    return f"trails://{path}?{asked}" if asked else f"trails://{path}"


def write_document_uri(*names: str, branch: str | None, snapshot: str | None) -> str:
    """The URI of a document, on a branch or in the past."""
    path = "/".join(_encoded(each) for each in (*_place(branch, snapshot), *names))
    return f"trails://{path}"


def _place(branch: str | None, snapshot: str | None) -> tuple[str, ...]:
    if snapshot is not None:
        return "at", snapshot
    return () if branch is None else ("branch", branch)


def place_problem(branch: str | None, snapshot: str | None) -> str | None:
    """What is wrong with a place that no URI can say, in words of those who name it."""
    for name, value in (("branch", branch), ("snapshot", snapshot)):
        if value == "":
            return f"{name} is empty; give it a value or leave it out"
    return None


def next_cursor(contents: Sequence[Content]) -> str | None:
    """The cursor of the page after this one, if there is one."""
    rest = contents[1:]
    return parse_qs(urlsplit(rest[0].uri).query)["cursor"][0] if rest else None


def join_page(contents: Sequence[Content]) -> bytes:
    """A page of instances as JSON, with the cursor of the next one, if there is one."""
    page, following = contents[0], next_cursor(contents)
    return b'{"instances":%s,"next":%s}' % (page.text.encode(), msgspec.json.encode(following))


def _encoded(text: str) -> str:
    return quote(text, safe="")
