"""The fast path: answer unambiguous requests without the SDK, with the same bytes.

``Envelopes`` is pure: headers (as a ``PostHead``, which can be kept) and a body in, a ``Ticket``
out, or None in case of doubt. It admits only what the SDK would accept, and refuses nothing:
refusing is left to the SDK. The decision comes before the backend is called, so that a call never
runs twice. Results are spliced from encoded parts; failures use the same table as the SDK path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from mcp.server.lowlevel import Server
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, X_MCP_HEADER_KEY
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    RequestParams,
)
from mcp_types.methods import validate_client_request
from pydantic import ValidationError

from trails.model.actors import Actor
from trails.model.caches import BoundedCache
from trails.model.capabilities import ToolList
from trails.model.origins import Origin, read_origin
from trails.model.results import Failure, Outcome
from trails.model.texts import Body
from trails.surfaces.mcp.backend import McpBackend
from trails.surfaces.mcp.bodies import is_deep, may_be_deep, parse
from trails.surfaces.mcp.failures import Asked, ErrorResult, conceal, map_failure
from trails.surfaces.mcp.responses import lacking_scope
from trails.surfaces.mcp.results import Splices, add_alias, list_tools, shape
from trails.surfaces.mcp.wire import (
    DEFAULT_REVISION,
    LEGACY,
    MODERN,
    ValidationErrors,
    encode,
    error_message,
)

Method = Literal["tools/call", "tools/list", "resources/read", "subscriptions/listen"]

_HEADERS: Final = frozenset(
    {b"content-type", b"accept", b"mcp-protocol-version", b"mcp-method", b"mcp-name"}
)
_CONTENT_TYPES: Final = frozenset(
    {b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"}
)
_ACCEPTS: Final = frozenset(
    {
        b"application/json, text/event-stream",
        b"application/json,text/event-stream",
        b"text/event-stream, application/json",
        b"application/json",
        b"*/*",
    }
)
_REVISIONS: Final[Mapping[bytes | None, str]] = {
    None: DEFAULT_REVISION,
    **{revision.encode(): revision for revision in LEGACY | MODERN},
}
_ENVELOPE: Final = frozenset(
    {PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY}
)
_PROGRESS: Final = b'"progressToken"'
_MAX_META: Final = 4096
_MAX_KNOWN: Final = 1024
_MAX_NAMES: Final = 32

Headers = Sequence[tuple[bytes, bytes]]


class _Filter(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class _Params(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    uri: str | None = None
    arguments: dict[str, Any] | None = None
    cursor: None = None
    notifications: _Filter | None = None
    meta: msgspec.Raw = msgspec.field(name="_meta", default=msgspec.Raw(b""))


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    id: int | str
    method: Method
    params: _Params | None = None


class Ticket(msgspec.Struct):
    """An admitted request."""

    revision: str
    id: int | str
    method: Method
    name: str
    """The name of the tool, or the URI; empty for lists."""
    arguments: dict[str, Any]
    """The arguments of the tool, or the subjects of a subscription."""


class PostHead(msgspec.Struct, frozen=True):
    """What the headers of a request say that can be admitted."""

    revision: str
    is_modern: bool
    method: str
    name: str | None
    """The names in the headers of newer revisions; None if it can't be compared as it is."""
    takes_streams: bool
    origin: Origin


_NO_PARAMS: Final = _Params()
_decode: Final = msgspec.json.Decoder(_Request).decode


class Envelopes:
    """Admits requests, and caches valid envelopes."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[str, Method, bytes], bool] = BoundedCache(_MAX_KNOWN)
        self._plain_names: BoundedCache[tuple[bytes, ...], bool] = BoundedCache(_MAX_KNOWN)
        """Sets of header names that were checked before."""

    def read_head(self, headers: Headers) -> PostHead | None:
        """What the headers say; None if no request with them can be admitted."""
        found = self._read(headers)
        if found is None:
            return None
        revision = _REVISIONS.get(found.get(b"mcp-protocol-version"))
        accept = found.get(b"accept")
        if (
            revision is None
            or found.get(b"content-type") not in _CONTENT_TYPES
            or accept not in _ACCEPTS
        ):
            return None
        name = found.get(b"mcp-name", b"")
        return PostHead(
            revision,
            revision in MODERN,
            found.get(b"mcp-method", b"").decode("latin-1"),
            name.decode() if name.isascii() and not name.startswith(b"=?base64?") else None,
            accept != b"application/json",
            read_origin("mcp", headers),
        )

    def admit(self, head: PostHead, body: Body, *, is_scanned: bool = False) -> Ticket | None:
        """A ticket for an unambiguous request, or None; ``is_scanned``: its depth was checked."""
        try:
            request = _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        ticket = _ticket(head.revision, request)
        if ticket is None or (head.is_modern and not _agree(head, ticket)):
            return None
        meta = b"" if request.params is None else bytes(request.params.meta)
        if not self._is_plain(ticket, meta):
            return None
        if not is_scanned and may_be_deep(body) and is_deep([[ticket.arguments]]):
            return None
        return ticket

    def _read(self, headers: Headers) -> Mapping[bytes, bytes] | None:
        """Headers by name; None if one that matters is repeated or unknown."""
        found = dict(headers)
        names = tuple(found)
        if len(names) != len(headers):
            counted = [name for name, _ in headers if name in _HEADERS]
            if len(counted) != len(set(counted)):
                return None
        if names not in self._plain_names:
            if any(name.startswith(b"mcp-") and name not in _HEADERS for name in names):
                return None
            if len(names) <= _MAX_NAMES:
                self._plain_names[names] = True
        return found

    def _is_plain(self, ticket: Ticket, meta: bytes) -> bool:
        """Whether ``_meta`` fits the revision, and asks for nothing that only the SDK does."""
        if _PROGRESS in meta:
            rest = _without_progress(meta)
            if rest is None:
                return False
            meta = rest
        if not meta:
            return ticket.revision in LEGACY
        key = (ticket.revision, ticket.method, meta)
        if key in self._known:
            return True
        if len(meta) > _MAX_META or not _is_envelope(ticket, meta):
            return False
        self._known[key] = True
        return True


def _without_progress(raw: bytes) -> bytes | None:
    """``_meta`` without its progress token; None if the token is invalid.

    No progress is reported here, so the token changes nothing; many clients send one with every
    call.
    """
    try:
        meta = parse(raw)
    except ValueError:
        return None
    if not isinstance(meta, dict) or is_deep([[meta]]):
        return None
    token = meta.pop("progressToken", None)
    is_token = isinstance(token, str | int) and not isinstance(token, bool)
    return msgspec.json.encode(meta) if is_token else None


def _ticket(revision: str, request: _Request) -> Ticket | None:
    """A ticket with the parameters of a method; None if some are missing or unknown."""
    method, params = request.method, request.params or _NO_PARAMS
    name, uri, arguments = params.name, params.uri, params.arguments
    if method == "subscriptions/listen" or params.notifications is not None:
        return _listen_ticket(revision, request, params)
    if method == "tools/call":
        known = name is not None and uri is None
        return Ticket(revision, request.id, method, name or "", arguments or {}) if known else None
    if name is not None or arguments is not None or (uri is None) == (method == "resources/read"):
        return None
    return Ticket(revision, request.id, method, uri or "", {})


def _listen_ticket(revision: str, request: _Request, params: _Params) -> Ticket | None:
    known = params.name is None and params.uri is None and params.arguments is None
    wanted = params.notifications
    if request.method != "subscriptions/listen" or revision not in MODERN or wanted is None:
        return None
    asked = msgspec.to_builtins(wanted)
    return Ticket(revision, request.id, request.method, "", asked) if known else None


def _agree(head: PostHead, ticket: Ticket) -> bool:
    """Whether the headers match the body."""
    method = ticket.method
    if head.method != method:
        return False
    if method == "tools/list":
        return True
    return head.takes_streams if method == "subscriptions/listen" else head.name == ticket.name


def _is_envelope(ticket: Ticket, raw: bytes) -> bool:
    """Whether the SDK accepts a ``_meta`` that asks for nothing that only the SDK does."""
    try:
        meta = parse(raw)
    except ValueError:
        return False
    if not isinstance(meta, dict) or is_deep([[meta]]):
        return False
    if ticket.revision in LEGACY:
        return not meta
    if not meta.keys() <= _ENVELOPE or meta.get(PROTOCOL_VERSION_META_KEY) != ticket.revision:
        return False
    params = {"_meta": meta, "name": "", "uri": "", "notifications": {}}
    try:
        validate_client_request(ticket.method, ticket.revision, params)
        RequestParams.model_validate(params, by_name=False)
    except ValidationError:
        return False
    return True


_MAX_LISTS: Final = 64
_MAX_TOOLS: Final = 4096


class FastResponse(NamedTuple):
    """A response."""

    status: int
    body: bytes
    lacking: str = ""
    """The scope that the caller lacks."""


class FastPath:
    """Answers admitted requests."""

    def __init__(
        self, backend: McpBackend, server: Server[Any], validation: ValidationErrors
    ) -> None:
        self._backend = backend
        self._server = server
        self._validation = validation
        self._envelopes = Envelopes()
        self._splices = {revision: Splices(server, revision) for revision in LEGACY | MODERN}
        self._lists: BoundedCache[tuple[str, str, str], bytes] = BoundedCache(_MAX_LISTS)
        self._mirrored: BoundedCache[str, tuple[Mapping[str, object], bool]] = BoundedCache(
            _MAX_TOOLS
        )

    def read_head(self, headers: Headers) -> PostHead | None:
        """What the headers of requests say; None if none of them is answered here."""
        return self._envelopes.read_head(headers)

    def read(self, head: PostHead, body: Body, *, is_scanned: bool = False) -> Ticket | None:
        """A ticket for an unambiguous request, or None; may run in any thread."""
        return self._envelopes.admit(head, body, is_scanned=is_scanned)

    def takes(self, ticket: Ticket) -> bool:
        """Whether a request is answered here."""
        calls = ticket.method == "tools/call" and ticket.revision not in LEGACY
        return not calls or not self._is_mirrored(ticket.name)

    async def answer(self, ticket: Ticket, actor: Actor) -> FastResponse:
        """Answer an admitted request."""
        try:
            if ticket.method == "tools/call":
                outcome = await self._backend.execute(actor, ticket.name, ticket.arguments)
                return self._show(ticket, outcome)
            if ticket.method == "tools/list":
                return self.answer_list(ticket, actor)
            return await self._read(ticket, actor)
        except Exception as error:  # noqa: BLE001 -- no exception leaves the surface
            return self._fail(ticket, conceal(error), "resource")

    def answer_list(self, ticket: Ticket, actor: Actor) -> FastResponse:
        """Answer with the list of tools, without waiting."""
        try:
            tools = self._list(ticket.revision, self._backend.tools(actor))
        except Exception as error:  # noqa: BLE001 -- no exception leaves the surface
            return self._fail(ticket, conceal(error), "resource")
        return FastResponse(200, _result(ticket, tools))

    def _show(self, ticket: Ticket, outcome: Outcome) -> FastResponse:
        if isinstance(outcome, Failure):
            return self._fail(ticket, outcome, "tool")
        return FastResponse(
            200, _result(ticket, *self._splices[ticket.revision].success(outcome.body))
        )

    async def _read(self, ticket: Ticket, actor: Actor) -> FastResponse:
        contents = await self._backend.read(actor, ticket.name)
        if isinstance(contents, Failure):
            return self._fail(ticket, contents, "resource")
        parts = self._splices[ticket.revision].contents(contents)
        return FastResponse(200, _result(ticket, *parts))

    def _fail(self, ticket: Ticket, failure: Failure, asked: Asked) -> FastResponse:
        mapped = map_failure(failure, ticket.revision, self._validation, asked)
        if isinstance(mapped, ErrorResult):
            shaped = shape(self._server, ticket.method, ticket.revision, mapped.result)
            return FastResponse(200, _result(ticket, encode(shaped)))
        status = ERROR_CODE_HTTP_STATUS.get(mapped.code, 200) if ticket.revision in MODERN else 200
        message = error_message(ticket.id, mapped.code, mapped.message, mapped.data)
        return FastResponse(status, encode(message), lacking_scope(message))

    def _list(self, revision: str, tools: ToolList) -> bytes:
        """The encoded list of tools, cached by what it shows and the revision."""
        key = (tools.version, tools.registry, revision)
        encoded = self._lists.get(key)
        if encoded is None:
            shaped = shape(self._server, "tools/list", revision, list_tools(tools))
            add_alias(shaped)
            encoded = self._lists[key] = encode(shaped)
        return encoded

    def _is_mirrored(self, name: str) -> bool:
        """Whether a tool has arguments that are repeated in headers; the SDK compares those."""
        schema = self._backend.schema_of(name)
        if schema is None:
            return False
        known = self._mirrored.get(name)
        if known is None or known[0] is not schema:
            known = self._mirrored[name] = schema, X_MCP_HEADER_KEY.encode() in encode(schema)
        return known[1]


def _result(ticket: Ticket, *parts: bytes) -> bytes:
    """A response with a result that is given in parts."""
    id_ = msgspec.json.encode(ticket.id)
    return b"".join((b'{"jsonrpc":"2.0","id":', id_, b',"result":', *parts, b"}"))
