"""Fit a result into ``max_chars``: take what fits, say what is left out, and how to go on.

Characters are those of the JSON text. A ``Page`` is a result with a list: whole items are left
out, and ``next`` is the call that continues. A value that does not fit alone is shown by its
beginning; ``left_out.values`` says where, how much of it is there, and how to read the rest. Any
other result is shortened in the same way. Nothing is cut without being listed.

Pure: works on JSON values, and knows nothing of what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from trails.imports import later
from trails.model.operations.pages import Call, Continued
from trails.model.results import MOST_CHARS, Failure

if TYPE_CHECKING:
    from trails.model.evidence import graphemes
else:
    graphemes = later("trails.model.evidence.graphemes")

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.decode
Path = tuple[str | int, ...]
"""The keys and positions that lead to a value."""


def read_field(record: str, field: str, offset: int) -> Call:
    """The call that reads a text of a record from a position on."""
    return Call("read_record_field", {"record": record, "field": field, "offset": offset})


Changes = Callable[[int], Mapping[str, object] | Call | None]
"""A position in a list → what goes on there: the arguments of this call that change (None removes
one), or another call; None at the end."""
Locate = Callable[[Mapping[str, object], Path, int], Call | None]
"""(an item, the path of a long text in it, the characters shown) → the call for the rest."""


def nowhere(item: Mapping[str, object], path: Path, shown: int) -> None:
    """Nothing is known of the items."""
    del item, path, shown


class Page(msgspec.Struct, frozen=True, eq=False):
    """A result with a list that can be continued."""

    result: Continued
    """``member`` of it is the list."""
    member: str
    changes: Changes
    total: int | None = None
    """How many items there are altogether, if that is known."""
    start: int = 0
    """How many items of the list are skipped: those of earlier pages."""
    locate: Locate = nowhere
    shorter: Callable[[], Page] | None = None
    """Another form, for when this one does not fit: an outline, or the same at a fixed commit."""
    narrow: Callable[[Sequence[Mapping[str, object]]], Mapping[str, object]] | None = None
    """Other members of the result that depend on the items that are shown."""
    call: Call = Call("", {})
    """The call that this is the result of."""

    def following(self, at: int) -> Call | None:
        """The call for the items from a position on; None at the end."""
        changes = self.changes(at)
        if changes is None or isinstance(changes, Call):
            return changes
        given = {**self.call.arguments, **changes}
        return Call(self.call.tool, {k: each for k, each in given.items() if each is not None})

    def whole(self) -> Continued:
        """The result with all items, and the next call if there is one."""
        items: Sequence[object] = getattr(self.result, self.member)
        changed: dict[str, object] = {}
        if self.start:
            changed[self.member] = items[self.start :]
        following = self.following(len(items))
        if following is not None:
            changed["next"] = following
        return msgspec.structs.replace(self.result, **changed) if changed else self.result


def fit(result: object, body: bytes, limit: int, again: Call | str) -> bytes:
    """A result in at most ``limit`` characters, if that is possible.

    ``body`` is its JSON text. ``again`` is how to get the whole of a result that is not a page:
    a call, or words.
    """
    if len(body) <= limit or _chars(body) <= limit:
        return body
    if not isinstance(result, Page):
        return _encode(fit_value(_decode(body), limit, again, _chars(body)))
    while result.shorter is not None:
        result = msgspec.structs.replace(result.shorter(), call=result.call, start=result.start)
        body = _encode(result.whole())
        if _chars(body) <= limit:
            return body
    return _encode(_Fitting(result, _decode(body), limit).fit())


class _Fitting:
    """A page that does not fit."""

    def __init__(self, page: Page, body: dict[str, object], limit: int) -> None:
        self._page = page
        self._limit = limit
        body.pop("next", None)
        items = body.pop(page.member)
        assert isinstance(items, list)  # noqa: S101 - a page has a list
        self._items = items
        self._head = body

    def fit(self) -> dict[str, object]:
        """As many items as there is room for; at least one, which may be shortened."""
        head, cut = self._head, _Cuts()
        if _size(head) > self._limit // 2:
            head = cut.dictionary(head, self._limit // 2, ())
        room = self._limit - _size(head) - _AROUND
        while True:
            found = self._with(head, cut, room)
            over = _size(found) - self._limit
            if over <= 0 or room <= _LEAST:
                return found
            room = max(_LEAST, room - over - 8)

    def _with(self, head: Mapping[str, object], cut: _Cuts, room: int) -> dict[str, object]:
        kept, notes = self._take(room)
        notes = [*(each.show(None) for each in cut.noted), *notes]
        page, count = self._page, len(self._items)
        body = dict(head)
        if page.narrow is not None:
            body |= page.narrow(kept)
        if "truncated" in body:
            body["truncated"] = True
        total = page.total
        if total is None and page.changes(page.start + count) is None:
            total = page.start + count
        following = page.following(page.start + len(kept))
        said: dict[str, object] = {"notice": self._notice(len(kept), total, following)}
        if len(kept) < count:
            said["shown"] = len(kept)
            if total is not None:
                said["of"] = total
        said |= _listed(notes, self._limit // 3)
        body["left_out"] = said
        if following is not None:
            body["next"] = abridge(following, self._limit // 4)
        body[page.member] = kept
        return body

    def _take(self, room: int) -> tuple[list[dict[str, object]], list[object]]:
        kept: list[dict[str, object]] = []
        notes: list[object] = []
        left = room
        for at, item in enumerate(self._items):
            shown, said = self._item(item, at, room)
            left -= _size(shown) + 1 + (_size(said) if said else 0)
            if left < 0 and kept:
                break
            kept.append(shown)
            notes += said
        return kept, notes

    def _item(
        self, item: dict[str, object], at: int, room: int
    ) -> tuple[dict[str, object], list[object]]:
        """An item as it is shown: whole, if it has room on a page of its own."""
        if _size(item) < room:
            return item, []
        share = room // _SHARE if room > _ROOMY else room // 2
        return self._shorten(item, at, max(share, _LEAST // 2))

    def _shorten(
        self, item: dict[str, object], at: int, room: int
    ) -> tuple[dict[str, object], list[object]]:
        cut = _Cuts()
        short = cut.value(item, room, (self._page.member, at))
        said: list[object] = []
        for each in cut.noted:
            inner = each.path[2:]
            read = self._page.locate(item, inner, each.shown) if each.text else None
            said.append(each.show(read or self._alone(at)))
        assert isinstance(short, dict)  # noqa: S101 - items are objects
        return short, said

    def _alone(self, at: int) -> Call | None:
        """The call that begins with an item, with room for all of it; None if there is none."""
        before = self._page.following(self._page.start + at)
        needed = _size(self._items[at]) + _size(self._head) + 2 * _AROUND
        if before is None or needed > MOST_CHARS:
            return None
        arguments = {**before.arguments, "max_chars": needed}
        return abridge(msgspec.structs.replace(before, arguments=arguments), self._limit // 4)

    def _notice(self, shown: int, total: int | None, following: Call | None) -> str:
        page, what = self._page, self._page.member
        why = f"an answer has at most {self._limit} characters (max_chars)"
        if shown == len(self._items):
            rest = "" if following is None else " next is the call that continues."
            return f"Some values are shortened: {why}.{rest}"
        of = f"of more than {len(self._items)}" if total is None else f"of {total}"
        some = f"{shown} {of} {what}"
        if page.start:
            some = f"{page.start + 1} to {page.start + shown} {of} {what}"
        return f"{some} are shown: {why}. next is the call that continues."


_AROUND: Final = 400
"""Characters for the notice and the next call, at first."""
_LEAST: Final = 200
"""The least room for items."""
_ROOMY: Final = 4000
_SHARE: Final = 8
"""An item that is larger than a page gets this part of it, so that others have room too."""


def _listed(notes: Sequence[object], room: int) -> dict[str, object]:
    """Values that are shortened: the first are described, the others counted."""
    shown: list[object] = []
    for each in notes:
        room -= _size(each) + 1
        if room < 0 and shown:
            break
        shown.append(each)
    found: dict[str, object] = {"values": shown} if shown else {}
    return found if len(shown) == len(notes) else {**found, "more_values": len(notes) - len(shown)}


def abridge(call: Call, room: int) -> Call:
    """A call whose longest arguments are named instead of repeated, if it has no room."""
    arguments, named = dict(call.arguments), list(call.repeat)
    for name in sorted(arguments, key=lambda each: _size(arguments[each]), reverse=True):
        if _size(arguments) <= room or _size(arguments[name]) < _LEAST:
            break
        del arguments[name]
        named.append(name)
    return Call(call.tool, arguments, tuple(named))


def fit_value(
    value: dict[str, object], limit: int, again: Call | str, size: int
) -> dict[str, object]:
    """Any object in at most ``limit`` characters: its longest parts are shortened."""
    room = limit - _AROUND
    while True:
        cut = _Cuts()
        short = cut.dictionary(value, room, ())
        said: dict[str, object] = {
            "notice": f"The result has {size} characters, and an answer at most {limit} "
            f"(max_chars). {again if isinstance(again, str) else 'next is the call for all of it.'}"
        }
        if not isinstance(again, str):
            said["next"] = abridge(again, limit // 4)
        said |= _listed([each.show(None) for each in cut.noted], limit // 3)
        found = {"left_out": said, **short}
        over = _size(found) - limit
        if over <= 0 or room <= _LEAST:
            return found
        room = max(_LEAST, room - over - 8)


def fit_failure(failure: Failure, limit: int) -> Failure:
    """A failure whose message and data together have at most ``limit`` characters or so."""
    try:
        data = _decode(_encode(failure.data))
    except (TypeError, ValueError, RecursionError):
        return failure  # the surface reports that it has no JSON form
    if len(failure.message) + _size(data) <= limit:
        return failure
    message, half = failure.message, limit // 2
    if len(message) > half:
        message = f"{cut_text(message, half)}… ({len(message) - half} more characters)"
    room = limit - len(message)
    if _size(data) > room:
        size = _size(data)
        data = fit_value(data, room, "The first problems are shown; correct them first.", size)
    return Failure(failure.kind, failure.code, message, data)


# --- shortening ------------------------------------------------------------------------


class ShortenedAt(msgspec.Struct, frozen=True):
    """A value that was shortened."""

    path: Path
    shown: int
    of: int
    unit: str

    @property
    def text(self) -> bool:
        """Whether it is a text."""
        return self.unit == "characters"

    def show(self, read: Call | None) -> Mapping[str, object]:
        """As an answer lists it."""
        found: dict[str, object] = {
            "at": "".join(f"/{_pointer(each)}" for each in self.path),
            "shown": self.shown,
            "of": self.of,
            "unit": self.unit,
        }
        return found if read is None else {**found, "read": read}


def _pointer(step: str | int) -> str:
    """A step of a JSON Pointer (RFC 6901)."""
    return str(step).replace("~", "~0").replace("/", "~1")


class _Cuts:
    """Shortens values, and notes each cut."""

    def __init__(self) -> None:
        self.noted: list[ShortenedAt] = []

    def value(self, value: object, room: int, path: Path) -> object:
        """A value in about ``room`` characters."""
        if not value or _size(value) <= room:
            return value
        if isinstance(value, str):
            return self._text(value, room, path)
        if isinstance(value, list):
            return self._list(value, room, path)
        if isinstance(value, dict):
            return self.dictionary(value, room, path)
        return value

    def _text(self, text: str, room: int, path: Path) -> str:
        # A quote or a newline takes two characters in JSON, a control character six.
        short = cut_text(text, max(room - 8, 0))
        while short and _size(short) > room:
            short = cut_text(short, len(short) * 3 // 4)
        self.noted.append(ShortenedAt(path, len(short), len(text), "characters"))
        return short

    def _list(self, items: list[object], room: int, path: Path) -> list[object]:
        """Few items share the room; of many, the first are kept."""
        if (room - 2) // len(items) >= _FAIR:
            granted = _share([_size(each) + 1 for each in items], room - 2)
            return [self.value(each, granted[at] - 1, (*path, at)) for at, each in enumerate(items)]
        kept: list[object] = []
        left = room - 2
        for item in items:
            left -= _size(item) + 1
            if left < 0:
                break
            kept.append(item)
        self.noted.append(ShortenedAt(path, len(kept), len(items), "items"))
        return kept

    def dictionary(self, members: dict[str, object], room: int, path: Path) -> dict[str, object]:
        """An object whose large members share the room that the small ones leave."""
        left = room - 2 - sum(_size(name) + 2 for name in members)
        if left < 0:
            return self._first_members(members, room, path)
        granted = _share([_size(each) for each in members.values()], left)
        return {
            name: self.value(value, granted[at], (*path, name))
            for at, (name, value) in enumerate(members.items())
        }

    def _first_members(
        self, members: dict[str, object], room: int, path: Path
    ) -> dict[str, object]:
        kept: dict[str, object] = {}
        left = room
        for name, value in members.items():
            size = _size(name) + _size(value) + 2
            if size > left:
                break
            kept[name] = value
            left -= size
        self.noted.append(ShortenedAt(path, len(kept), len(members), "members"))
        return kept


_FAIR: Final = 60
"""Characters for each item of a list, below which the last items are left out instead."""


def _share(sizes: Sequence[int], room: int) -> list[int]:
    """The room for each: small ones get what they need, large ones an equal part of the rest."""
    granted, left = list(sizes), room
    for count, at in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        granted[at] = min(sizes[at], left // (len(sizes) - count))
        left -= granted[at]
    return granted


def cut_text(text: str, length: int) -> str:
    """The beginning of a text, cut between two characters as a reader sees them."""
    return text[: graphemes.boundary_before(text, length)]


def _chars(body: bytes) -> int:
    return len(body.decode())


def _size(value: object) -> int:
    """The characters of a value's JSON text."""
    return len(_encode(value).decode())
