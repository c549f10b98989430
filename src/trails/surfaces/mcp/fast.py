"""The fast door: requests that leave no doubt, answered without the SDK.

Whether to answer is decided before the backend is called, so that a call never runs
twice. After it, everything is answered here: results are spliced from encoded parts,
failures are mapped by the table that the other door uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from mcp.server.lowlevel import Server
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, X_MCP_HEADER_KEY
from starlette.types import Scope

from trails.model.actors import Actor
from trails.model.outcomes import Failure, Outcome
from trails.model.tools import ToolList
from trails.surfaces.mcp.backend import Backend
from trails.surfaces.mcp.challenges import lacking_scope
from trails.surfaces.mcp.envelopes import Envelopes, Ticket
from trails.surfaces.mcp.failures import Asked, ErrorResult, conceal, map_failure
from trails.surfaces.mcp.results import add_alias, list_tools
from trails.surfaces.mcp.splices import Splices, shape
from trails.surfaces.mcp.wire import LEGACY, MODERN, ValidationErrors, encode, error_message

_MAX_LISTS: Final = 64
_MAX_TOOLS: Final = 4096


class Answer(NamedTuple):
    """What is sent."""

    status: int
    body: bytes
    lacking: str = ""
    """The scope that the caller would need."""


class FastDoor:
    """Answers what it understands completely."""

    def __init__(self, backend: Backend, server: Server[Any], validation: ValidationErrors) -> None:
        self._backend = backend
        self._server = server
        self._validation = validation
        self._envelopes = Envelopes()
        self._splices = {revision: Splices(server, revision) for revision in LEGACY | MODERN}
        self._lists: dict[tuple[str, str], bytes] = {}
        self._mirrored: dict[str, tuple[Mapping[str, object], bool]] = {}

    def read(self, scope: Scope, body: bytes, *, is_scanned: bool = False) -> Ticket | None:
        """A ticket for a request that leaves no doubt, or None; in any thread."""
        return self._envelopes.admit(scope["headers"], body, is_scanned=is_scanned)

    def takes(self, ticket: Ticket) -> bool:
        """Whether a request is answered here."""
        calls = ticket.method == "tools/call" and ticket.revision not in LEGACY
        return not calls or not self._is_mirrored(ticket.name)

    async def answer(self, ticket: Ticket, actor: Actor) -> Answer:
        """Answer an admitted request."""
        try:
            if ticket.method == "tools/call":
                outcome = await self._backend.execute(actor, ticket.name, ticket.arguments)
                return self._show(ticket, outcome)
            if ticket.method == "tools/list":
                tools = self._list(ticket.revision, self._backend.tools(actor))
                return Answer(200, _result(ticket, tools))
            return await self._read(ticket, actor)
        except Exception as error:  # noqa: BLE001 -- no exception leaves the surface
            return self._fail(ticket, conceal(error), "resource")

    def _show(self, ticket: Ticket, outcome: Outcome) -> Answer:
        if isinstance(outcome, Failure):
            return self._fail(ticket, outcome, "tool")
        return Answer(200, _result(ticket, self._splices[ticket.revision].success(outcome.body)))

    async def _read(self, ticket: Ticket, actor: Actor) -> Answer:
        contents = await self._backend.read(actor, ticket.name)
        if isinstance(contents, Failure):
            return self._fail(ticket, contents, "resource")
        return Answer(200, _result(ticket, self._splices[ticket.revision].contents(contents)))

    def _fail(self, ticket: Ticket, failure: Failure, asked: Asked) -> Answer:
        mapped = map_failure(failure, ticket.revision, self._validation, asked)
        if isinstance(mapped, ErrorResult):
            shaped = shape(self._server, ticket.method, ticket.revision, mapped.result)
            return Answer(200, _result(ticket, encode(shaped)))
        status = ERROR_CODE_HTTP_STATUS.get(mapped.code, 200) if ticket.revision in MODERN else 200
        message = error_message(ticket.id, mapped.code, mapped.message, mapped.data)
        return Answer(status, encode(message), lacking_scope(message))

    def _list(self, revision: str, tools: ToolList) -> bytes:
        """The tools, encoded once a version and revision."""
        key = (tools.version, revision)
        encoded = self._lists.get(key)
        if encoded is None:
            shaped = shape(self._server, "tools/list", revision, list_tools(tools))
            add_alias(shaped)
            if len(self._lists) >= _MAX_LISTS:
                self._lists.clear()
            encoded = self._lists[key] = encode(shaped)
        return encoded

    def _is_mirrored(self, name: str) -> bool:
        """Whether a tool has arguments that are repeated in headers, which the SDK compares."""
        schema = self._backend.schema_of(name)
        if schema is None:
            return False
        known = self._mirrored.get(name)
        if known is None or known[0] is not schema:
            if len(self._mirrored) >= _MAX_TOOLS:
                self._mirrored.clear()
            known = self._mirrored[name] = schema, X_MCP_HEADER_KEY.encode() in encode(schema)
        return known[1]


def _result(ticket: Ticket, result: bytes) -> bytes:
    id_ = msgspec.json.encode(ticket.id)
    return b"".join((b'{"jsonrpc":"2.0","id":', id_, b',"result":', result, b"}"))
