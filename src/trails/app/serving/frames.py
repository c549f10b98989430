"""JSON-RPC messages, read only as far as whoever passes them on must know them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trails.model.json_scans import scan_json

Id = int | str


class Frame(msgspec.Struct, frozen=True):
    """A message: a request, a notification or an answer."""

    id: Id | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()

    @property
    def is_request(self) -> bool:
        """Whether somebody waits for an answer to it."""
        return self.method is not None and self.id is not None

    @property
    def answers(self) -> Id | None:
        """Which request this is the answer to."""
        return self.id if self.method is None else None

    def __repr__(self) -> str:
        """Nothing of what it says, which may hold a token."""
        return f"Frame({self.method})"


class Params(msgspec.Struct, frozen=True):
    """What the parameters of some methods say, as far as it matters on the way."""

    name: str = ""
    uri: str = ""
    request_id: Id | None = msgspec.field(default=None, name="requestId")
    meta: Mapping[str, object] = msgspec.field(default={}, name="_meta")
    notifications: Mapping[str, object] = {}

    def __repr__(self) -> str:
        """Nothing of what it says, which may hold a token."""
        return "Params(…)"


_frames = msgspec.json.Decoder(Frame)
_params = msgspec.json.Decoder(Params)


def read_frame(line: bytes) -> Frame | None:
    """What a line is; None for anything but a message, which its receiver will answer."""
    try:
        return _frames.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_large_frame(line: bytes) -> Frame | None:
    """The same for a large line, in a thread; one that its receiver refuses is not looked at."""
    try:
        scan_json(line)
    except ValueError:
        return None
    return read_frame(line)


def read_params(frame: Frame) -> Params:
    """The parameters of a message; of odd ones nothing is known."""
    try:
        return _params.decode(frame.params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Params()


def notification(method: str, params: Mapping[str, object]) -> bytes:
    """A notification."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


def error_answer(id: Id | None, code: int, message: str, data: Mapping[str, object]) -> bytes:
    """An answer that is an error of the protocol."""
    error = {"code": code, "message": message, "data": data}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": error})
