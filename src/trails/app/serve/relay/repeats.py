"""What may be sent again after a connection was lost, and what a client gets in its place.

Pure. Reads are repeatable, and so are tools that say so and writes with an idempotency key. Any
other call is answered with "outcome unknown". A stream of changes that was interrupted gets one
notification for everything that it watches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

import msgspec

from trails.app.serve.relay.frames import Frame, Id, Params, error_answer, notification

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
REVISION: Final = "io.modelcontextprotocol/protocolVersion"
"""The member of ``_meta`` that names the revision of a request, from 2026-07-28 on."""
LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
SERVER_ERROR: Final = -32000
ATTEMPTS: Final = 3
"""Servers that may end during one request: one that crashes its server must not crash all."""
_T = TypeVar("_T")


class _Annotations(msgspec.Struct, frozen=True):
    read_only: bool = msgspec.field(default=False, name="readOnlyHint")
    idempotent: bool = msgspec.field(default=False, name="idempotentHint")


class _Tool(msgspec.Struct, frozen=True):
    name: str
    annotations: _Annotations = _Annotations()


class _Tools(msgspec.Struct, frozen=True):
    tools: tuple[_Tool, ...] = ()


class _Arguments(msgspec.Struct, frozen=True):
    idempotency_key: object = None
    dry_run: object = False


class _Call(msgspec.Struct, frozen=True):
    arguments: _Arguments = _Arguments()


def learn_tools(result: msgspec.Raw, repeatable: set[str]) -> None:
    """Take the names of repeatable tools from a ``tools/list``."""
    for tool in decode_part(result, _Tools).tools:
        repeatable.discard(tool.name)
        if tool.annotations.read_only or tool.annotations.idempotent:
            repeatable.add(tool.name)


def is_repeatable(frame: Frame, params: Params, tools: Collection[str]) -> bool:
    """Whether a request may be sent again.

    The names of both arguments are reserved: no tool uses them otherwise.
    """
    if frame.method != "tools/call" or params.name in tools:
        return True
    given = decode_part(frame.params, _Call).arguments
    key = given.idempotency_key
    return given.dry_run is True or (isinstance(key, str) and bool(key))


def unknown_outcome(frame: Frame, params: Params, lost: str) -> bytes:
    """Answer a request that was running when its server ended and can't be repeated.

    ``lost``: what ended, as in "the process that served this project ended".
    """
    if frame.method != "tools/call":
        message = f"{lost} {ATTEMPTS} times during this request, so it is not retried"
        return error_answer(frame.id, SERVER_ERROR, message, {"code": "interrupted"})
    text = (
        f"{lost} during this call, so its outcome is unknown: "
        f"{params.name!r} may or may not have taken effect. Find out before you call it "
        "again: commit_list shows the newest commits, or read what it would have changed"
    )
    result: dict[str, object] = {
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "_meta": {"dev.trails/error": {"code": "interrupted", "data": {}}},
    }
    if REVISION in params.meta:
        result["resultType"] = "complete"
    return msgspec.json.encode({"jsonrpc": "2.0", "id": frame.id, "result": result})


def missed_on_stream(stream: Id, wanted: Mapping[str, object]) -> list[bytes]:
    """Return notifications for a stream of changes: all that it watches may have changed."""
    meta = {"_meta": {SUBSCRIPTION: stream}}
    uris = wanted.get("resourceSubscriptions")
    missed = [
        notification(UPDATED, {"uri": uri, **meta})
        for uri in (uris if isinstance(uris, list) else ())
    ]
    if wanted.get("toolsListChanged") is True:
        missed.append(notification(TOOLS_CHANGED, meta))
    if wanted.get("resourcesListChanged") is True:
        missed.append(notification(RESOURCES_CHANGED, meta))
    return missed


class _Failed(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class _Answered(msgspec.Struct, frozen=True):
    error: _Failed | None = None


def decode_error(answer: bytes) -> _Failed | None:
    """Return the error of an answer, if it is one."""
    return decode_part(msgspec.Raw(answer), _Answered).error


def decode_part(text: msgspec.Raw, type: type[_T]) -> _T:
    """Decode a part of a message as far as needed; an odd one counts as empty."""
    try:
        return msgspec.json.decode(text, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return type()
