"""Requests that the fast door understands completely.

Pure: headers and a body in, a ``Ticket`` out, or None at the slightest doubt. What is
admitted here, the SDK would have accepted and handled in the same way; nothing is
refused here, because refusing is the SDK's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    RequestParams,
)
from mcp_types.methods import validate_client_request
from pydantic import ValidationError

from trails.surfaces.mcp.bodies import is_deep, may_be_deep, parse
from trails.surfaces.mcp.wire import DEFAULT_REVISION, LEGACY, MODERN

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
    """Of the tool, or the URI; empty where lists are asked for."""
    arguments: dict[str, Any]
    """Of the tool, or what is listened to."""


_NO_PARAMS: Final = _Params()
_decode: Final = msgspec.json.Decoder(_Request).decode


class Envelopes:
    """What tells admitted requests from others, and the envelopes that were seen before."""

    def __init__(self) -> None:
        self._known: set[tuple[str, Method, bytes]] = set()
        self._plain_names: set[tuple[bytes, ...]] = set()
        """Names of headers that came together before, and leave no doubt."""

    def admit(self, headers: Headers, body: bytes, *, is_scanned: bool = False) -> Ticket | None:
        """A ticket for a request that leaves no doubt; one that was scanned is not too deep."""
        found = self._read(headers)
        if found is None:
            return None
        revision = _REVISIONS.get(found.get(b"mcp-protocol-version"))
        if (
            revision is None
            or found.get(b"content-type") not in _CONTENT_TYPES
            or found.get(b"accept") not in _ACCEPTS
        ):
            return None
        try:
            request = _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        ticket = _ticket(revision, request)
        if ticket is None or (revision in MODERN and not _agree(found, ticket)):
            return None
        meta = b"" if request.params is None else bytes(request.params.meta)
        if not self._is_plain(ticket, meta):
            return None
        if not is_scanned and may_be_deep(body) and is_deep([[ticket.arguments]]):
            return None
        return ticket

    def _read(self, headers: Headers) -> Mapping[bytes, bytes] | None:
        """Headers by name; None where one that counts is there twice, or is not known here."""
        found = dict(headers)
        names = tuple(found)
        if len(names) != len(headers):
            counted = [name for name, _ in headers if name in _HEADERS]
            if len(counted) != len(set(counted)):
                return None
        if names not in self._plain_names:
            if any(name.startswith(b"mcp-") and name not in _HEADERS for name in names):
                return None
            if len(self._plain_names) >= _MAX_KNOWN:
                self._plain_names.clear()
            if len(names) <= _MAX_NAMES:
                self._plain_names.add(names)
        return found

    def _is_plain(self, ticket: Ticket, meta: bytes) -> bool:
        """Whether ``_meta`` is what the revision asks for, and no wish that only the SDK grants."""
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
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known.add(key)
        return True


def _without_progress(raw: bytes) -> bytes | None:
    """``_meta`` without its progress token, or None where that is none.

    Nothing here reports progress, and an answer in one piece has no place for it; so a token
    changes nothing. Many clients send one with every call.
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
    """The parameters that a method takes, or None where some are missing or too many."""
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


def _agree(found: Mapping[bytes, bytes], ticket: Ticket) -> bool:
    """Whether the headers say what the body says."""
    if found.get(b"mcp-method") != ticket.method.encode():
        return False
    if ticket.method == "tools/list":
        return True
    if ticket.method == "subscriptions/listen":
        return found[b"accept"] != b"application/json"  # the answer is a stream
    name = found.get(b"mcp-name", b"")
    return (
        ticket.name.isascii() and name == ticket.name.encode() and not name.startswith(b"=?base64?")
    )


def _is_envelope(ticket: Ticket, raw: bytes) -> bool:
    """Whether the SDK accepts a ``_meta``, and it holds no wish that only the SDK grants."""
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
