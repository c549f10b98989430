"""The state of one MCP session that a new owner must learn when the old one ends.

No I/O: the front reports what passes in both directions and is given what to send. The client
does not notice a change of owner, except for running calls that may have written (``repeats``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from trails.app.serve.relay.frames import (
    Frame,
    Id,
    Params,
    error_answer,
    notification,
    read_frame,
    read_params,
)
from trails.app.serve.relay.repeats import (
    ACKNOWLEDGED,
    ATTEMPTS,
    LISTEN,
    RESOURCES_CHANGED,
    SERVER_ERROR,
    SUBSCRIPTION,
    TOOLS_CHANGED,
    UPDATED,
    decode_part,
    is_repeatable,
    learn_tools,
    missed_on_stream,
    unknown_outcome,
)

_LOST: Final = "the process that served this project ended"


class _Sent(msgspec.Struct):
    """A line of the client that has no answer yet."""

    line: bytes
    frame: Frame
    params: Params
    number: int = 0
    """Its number among the lines of the present connection; 0 if not sent yet."""
    attempts: int = 0
    """How many owners ended before they answered it."""

    def __repr__(self) -> str:
        """Hide the content, which may contain a token."""
        return f"_Sent({self.frame.method})"


class _Changing(msgspec.Struct, frozen=True):
    list_changed: bool = msgspec.field(default=False, name="listChanged")


class _Capabilities(msgspec.Struct, frozen=True):
    tools: _Changing = _Changing()
    resources: _Changing = _Changing()


class _Welcome(msgspec.Struct, frozen=True):
    capabilities: _Capabilities = _Capabilities()


class Passed(msgspec.Struct, frozen=True):
    """The effects of one line from the owner."""

    to_client: Sequence[bytes] = ()
    to_owner: Sequence[bytes] = ()


class Conversation:
    def __init__(self) -> None:
        self._pending: dict[object, _Sent] = {}
        self._initialize: _Sent | None = None
        self._initialized: _Sent | None = None
        self._standing: dict[str, _Sent] = {}
        self._repeated: dict[Id, _Sent] = {}
        self._streams: set[Id] = set()
        self._asked: set[Id] = set()
        self._repeatable: set[str] = set()
        self._sent = 0
        self._attached = False

    def know(self, repeatable: object) -> None:
        """Take the names of repeatable tools from the owner.

        A client may call tools that it has not listed, or listed in an earlier session.
        """
        if isinstance(repeatable, list):
            self._repeatable = {name for name in repeatable if isinstance(name, str)}

    @property
    def waiting(self) -> int:
        """Bytes that wait for an owner."""
        return sum(len(each.line) for each in self._pending.values() if not each.number)

    @property
    def idle(self) -> bool:
        """Whether no answer is due; streams of changes don't count."""
        return all(
            each.frame.method == LISTEN or not each.frame.is_request
            for each in self._pending.values()
        )

    def say(self, line: bytes) -> Sequence[bytes]:
        """Take a line from the client; return what to send to the owner now."""
        frame = read_frame(line) or Frame()
        sent = _Sent(line, frame, read_params(frame))
        if frame.answers is not None and frame.answers not in self._asked:
            return ()  # the process that sent the request is gone
        if frame.method == "notifications/initialized":
            self._initialized = sent
        elif frame.method == "notifications/cancelled":
            self._forget(sent.params.request_id)
        if frame.is_request:
            self._pending[frame.id] = sent
        elif not self._attached:
            self._pending[object()] = sent
        return self._send([sent]) if self._attached else ()

    def _forget(self, id: Id | None) -> None:
        """Stop waiting for an answer."""
        self._pending.pop(id, None)
        self._streams.discard(id or "")

    def _send(self, lines: Iterable[_Sent]) -> list[bytes]:
        """Count lines as they are sent to the owner."""
        going = []
        for each in lines:
            self._sent += 1
            each.number = self._sent
            going.append(each.line)
        return going

    def hear(self, line: bytes) -> Passed:
        """Take a line from the owner; return what to send to the client and to the owner."""
        frame = read_frame(line)
        if frame is None:
            return Passed([line])
        if frame.method is not None:
            return Passed(self._hear_unasked(frame, line))
        repeated = self._repeated.pop(frame.id or "", None)
        if repeated is not None:
            return self._hear_again(frame, repeated)
        sent = self._pending.pop(frame.id, None)
        if sent is not None:
            self._streams.discard(frame.id or "")
            if frame.result:
                self._remember(frame, sent)
        return Passed([line])

    def _hear_unasked(self, frame: Frame, line: bytes) -> Sequence[bytes]:
        """Handle a request or notification of the owner."""
        if frame.id is not None:
            self._asked.add(frame.id)
        if frame.method == ACKNOWLEDGED:
            stream = read_params(frame).meta.get(SUBSCRIPTION)
            if isinstance(stream, int | str) and stream in self._pending:
                if stream in self._streams:
                    return missed_on_stream(stream, self._pending[stream].params.notifications)
                self._streams.add(stream)
        return [line]

    def _remember(self, frame: Frame, sent: _Sent) -> None:
        """Remember how an answer changed the session."""
        match sent.frame.method:
            case "initialize":
                self._initialize = sent
            case "resources/subscribe":
                self._standing[sent.params.uri] = sent
            case "resources/unsubscribe":
                self._standing.pop(sent.params.uri, None)
            case "logging/setLevel":
                self._standing[""] = sent
            case "tools/list":
                learn_tools(frame.result, self._repeatable)

    def lose(self, taken: int | None) -> list[bytes]:
        """Handle the loss of the owner; return answers for calls that may have written.

        ``taken``: how many lines it had taken, if it ended gracefully and said so; it never
        received the others.
        """
        self._attached = False
        answers = []
        for key, each in list(self._pending.items()):
            untouched = not each.number or (taken is not None and each.number > taken)
            each.attempts += not (untouched or key in self._streams)
            if untouched or (self._is_repeatable(each) and each.attempts < ATTEMPTS):
                each.number = 0
            else:
                del self._pending[key]
                answers.append(unknown_outcome(each.frame, each.params, _LOST))
        self._repeated.clear()
        self._asked.clear()
        return answers

    def _is_repeatable(self, sent: _Sent) -> bool:
        return is_repeatable(sent.frame, sent.params, self._repeatable)

    def attach(self) -> Sequence[bytes]:
        """Connect to a new owner; return what to send to it first."""
        self._sent = 0
        if self._initialize is None:
            return self._catch_up()
        return self._repeat([self._initialize])

    def _repeat(self, lines: Iterable[_Sent]) -> list[bytes]:
        """Repeat the handshake; its answers are not passed on."""
        again = list(lines)
        for each in again:
            self._repeated[each.frame.id or ""] = each
        return self._send(again)

    def _catch_up(self) -> list[bytes]:
        """After the handshake, restore subscriptions and send unanswered requests again."""
        self._attached = True
        going = self._repeat(self._standing.values()) + self._send(self._pending.values())
        for key, each in list(self._pending.items()):
            if not each.frame.is_request:
                del self._pending[key]
        return going

    def _hear_again(self, frame: Frame, repeated: _Sent) -> Passed:
        """Handle an answer that the client already had, and send what it may have missed."""
        if repeated is self._initialize:
            begin = [] if self._initialized is None else self._send([self._initialized])
            can = decode_part(frame.result, _Welcome).capabilities
            return Passed(_missed_lists(can), begin + self._catch_up())
        if repeated.frame.method != "resources/subscribe":
            return Passed()
        if not frame.result:
            self._standing.pop(repeated.params.uri, None)
            return Passed()
        return Passed([notification(UPDATED, {"uri": repeated.params.uri})])

    def refuse(self, message: str, data: Mapping[str, object]) -> list[bytes]:
        """Refuse all waiting requests, because no owner was found."""
        refused = [
            error_answer(each.frame.id, SERVER_ERROR, message, data)
            for each in self._pending.values()
            if each.frame.is_request
        ]
        self._pending.clear()
        return refused


def _missed_lists(can: _Capabilities) -> list[bytes]:
    """Return list-changed notifications: the new process read the project again."""
    return [
        notification(method, {})
        for method, announced in (
            (TOOLS_CHANGED, can.tools.list_changed),
            (RESOURCES_CHANGED, can.resources.list_changed),
        )
        if announced
    ]
