"""Five kinds of MCP clients, by what they show to their model. All use the official client.

Each finds its next call in what its kind can see, and nowhere else: in the text, by reading the
call that is spelled out there, or in the structured content, by its members. ``Kind.climb`` goes
up the ladder: a list or search, evidence, a window, the next window, the record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mcp import MCPError
from mcp.client.client import Client


class Call(NamedTuple):
    """A call that an answer has named."""

    tool: str
    arguments: dict[str, Any]


class Answer(NamedTuple):
    """What a model sees of an answer; None where its client drops that part."""

    text: str | None
    data: Mapping[str, Any] | None
    failed: bool = False


class Window(NamedTuple):
    """A window that a model has read."""

    text: str
    start: int
    end: int
    total: int


class Climb(NamedTuple):
    """What a model has learned on its way."""

    found: Answer
    first: Window
    second: Window
    record: Answer


# --- finding calls -----------------------------------------------------------------------

_DECODER = json.JSONDecoder()
_SPELLED = re.compile(r"\b([a-z][a-z0-9_.]*)\((?=\{)")


def calls_in(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Call]]:
    """The calls in a JSON value, each with the names that lead to it."""
    if isinstance(value, Mapping):
        if isinstance(value.get("tool"), str) and isinstance(value.get("arguments"), Mapping):
            yield path, Call(value["tool"], dict(value["arguments"]))
        for name, each in value.items():
            yield from calls_in(each, (*path, name))
    elif isinstance(value, list):
        for each in value:
            yield from calls_in(each, path)


def calls_in_text(text: str) -> Iterator[tuple[tuple[str, ...], Call]]:
    """The calls in a text: JSON anywhere in it, or ``tool({…})`` after the word that names it."""
    at = 0
    while (at := text.find("{", at)) >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except ValueError:
            at += 1
            continue
        before = text[:at]
        spelled = _SPELLED.search(before[-100:] + "{")
        if spelled is not None and before.endswith(f"{spelled[1]}("):
            words = re.findall(r"[a-z]+", before[: -len(spelled[1]) - 1].lower()[-80:])
            yield tuple(words), Call(spelled[1], value)
        else:
            yield from calls_in(value)
        at = end


# --- the kinds ---------------------------------------------------------------------------


class Kind:
    """A client that shows everything."""

    name = "everything"
    sees_text = True
    sees_data = True

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(self, call: Call) -> Answer:
        """Send a call; what the model sees of the answer."""
        try:
            result = await self._client.call_tool(call.tool, call.arguments)
        except MCPError as error:
            return Answer(str(error), None, failed=True)
        text = "\n".join(each.text for each in self.kept(result.content))
        failed = bool(result.is_error)
        return Answer(
            text if self.sees_text or failed else None,
            result.structured_content if self.sees_data and not failed else None,
            failed,
        )

    def kept(self, blocks: list[Any]) -> list[Any]:
        """The blocks that the client keeps."""
        return [each for each in blocks if hasattr(each, "text")]

    async def send(self, call: Call) -> Answer:
        """Send a call that must succeed."""
        answer = await self.ask(call)
        assert not answer.failed, (call, answer.text)
        return answer

    def calls(self, answer: Answer) -> list[tuple[tuple[str, ...], Call]]:
        """The calls that the model can find."""
        if self.sees_data:
            assert answer.data is not None
            return list(calls_in(answer.data))
        assert answer.text is not None
        return list(calls_in_text(answer.text))

    def call(self, answer: Answer, tool: str, named: str = "") -> Call:
        """The first call of a tool that an answer names."""
        found = [
            call
            for path, call in self.calls(answer)
            if call.tool == tool and (not named or named in path)
        ]
        assert found, (tool, named, answer)
        return found[0]

    def members(self, answer: Answer) -> Mapping[str, Any]:
        """The members of an answer, from whichever form the model sees."""
        if self.sees_data:
            assert answer.data is not None
            return answer.data
        assert answer.text is not None
        return json.loads(answer.text)

    def id_in(self, answer: Answer) -> str:
        """The first record that an answer names, as it names it."""
        if self.sees_data:
            return next(_ids(answer.data))
        found = re.search(r"trails://[^\s\"'()\[\]{}<>,;]+", answer.text or "")
        assert found is not None, answer
        return found[0]

    def window(self, answer: Answer) -> Window:
        """The window of a field that an answer shows."""
        body = self.members(answer)
        return Window(body["text"], body["start"], body["end"], body["total"])

    async def climb(self, start: Call) -> Climb:
        """From a first call to evidence, its window, the next window, and the record."""
        found = await self.send(start)
        first = await self.send(self.call(found, "read_record_field"))
        second = await self.send(self.call(first, "read_record_field", "next"))
        record = await self.send(Call("fetch", {"id": self.id_in(found)}))
        return Climb(found, self.window(first), self.window(second), record)


def _ids(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("id"), str):
            yield value["id"]
        for each in value.values():
            yield from _ids(each)
    elif isinstance(value, list):
        for each in value:
            yield from _ids(each)


class ContentOnly(Kind):
    """It drops structured content."""

    name = "content-only"
    sees_data = False


class StructuredOnly(Kind):
    """It drops text."""

    name = "structured-only"
    sees_text = False


class NoResources(Kind):
    """It has tools alone: whatever it needs must come from one."""

    name = "no resources"
    sees_data = False

    async def ask(self, call: Call) -> Answer:
        """Send a call, on a client that can't read resources."""
        for method in ("read_resource", "list_resources", "list_resource_templates"):
            setattr(self._client, method, _refuse)
        return await super().ask(call)


def _refuse(*_: object) -> None:
    raise AssertionError("this client has no resources")


class LinkDropping(Kind):
    """It drops every block that is not text: links to resources, embedded resources, images."""

    name = "link-dropping"
    sees_data = False

    def kept(self, blocks: list[Any]) -> list[Any]:
        """The texts."""
        return [each for each in blocks if each.type == "text"]


class ErrorTextOnly(Kind):
    """It makes a mistake in each step, and has only the text of the error to put it right."""

    name = "error-text-only"
    sees_data = False

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.mistakes = 0

    async def send(self, call: Call) -> Answer:
        """Send a call with a mistake first, then what the error says, until it is right."""
        sent = self._spoil(call)
        for _ in range(3):
            answer = await self.ask(sent)
            if not answer.failed:
                return answer
            self.mistakes += 1
            sent = _put_right(sent, answer.text or "")
        raise AssertionError((call, sent))

    def _spoil(self, call: Call) -> Call:
        """A name of an argument, of a field or of a record that is almost right."""
        given = dict(call.arguments)
        if "field" in given:
            given["field"] = given["field"][:-2] + given["field"][-1]
        elif "id" in given:
            given["id"] = given["id"][:-1] + "0"
        else:
            name = next(iter(given))
            given[name + "s"] = given.pop(name)
        return Call(call.tool, given)


_CORRECTED = re.compile(r"(?:Corrected arguments|These arguments would pass): (?=\{)")
_MEANT = re.compile(r"did you mean '?([^'?\s]+)'?\?")


def _put_right(call: Call, error: str) -> Call:
    """The call that an error suggests."""
    corrected = _CORRECTED.search(error)
    if corrected is not None:
        return Call(call.tool, _DECODER.raw_decode(error, corrected.end())[0])
    meant = _MEANT.search(error)
    assert meant is not None, error
    wrong = "field" if "field" in call.arguments else next(iter(call.arguments))
    return Call(call.tool, {**call.arguments, wrong: meant[1]})


KINDS = (ContentOnly, StructuredOnly, NoResources, LinkDropping, ErrorTextOnly)
