"""Choose a representation by the ``Accept`` header (RFC 9110, section 12.5.1).

For each media range the most specific one that matches decides; of several representations with
the same weight the first offered wins. A part of the header that can't be read is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request

from trails.errors import NotAcceptableError
from trails.model.results import Failure
from trails.surfaces.rest.replies import Refused

_RANGE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9a-z-]+)/([!#$%&'*+.^_`|~0-9a-z-]+)")
_EXACT: Final = 3
_WEIGHT: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")


class Representation(msgspec.Struct, frozen=True):
    """One form of a result."""

    name: str
    media_type: str
    """What a response says; a text has its character set."""
    also: tuple[str, ...] = ()
    """Other media types under which it is accepted."""


class MediaRange(msgspec.Struct, frozen=True):
    """One part of an Accept header."""

    main: str
    sub: str
    weight: float

    def specificity(self, media: str) -> int:
        """How exactly it names a media type; 0 if it does not."""
        main, _, sub = media.partition("/")
        if (self.main, self.sub) == ("*", "*"):
            return 1
        if self.main != main:
            return 0
        return _EXACT if self.sub == sub else 2 if self.sub == "*" else 0


def parse_weights(header: str) -> dict[str, float]:
    """What a header lists, in small letters, with the weight of each."""
    found: dict[str, float] = {}
    for part in header.lower().split(","):
        name, *parameters = (each.strip() for each in part.split(";"))
        weights = [each[2:].strip() for each in parameters if each.startswith("q=")]
        weight = weights[0] if weights else "1"
        if name and _WEIGHT.fullmatch(weight):
            found[name] = float(weight)
    return found


def parse_accept(header: str) -> list[MediaRange]:
    """The media ranges of a header."""
    read = ((_RANGE.fullmatch(each), weight) for each, weight in parse_weights(header).items())
    return [MediaRange(found[1], found[2], weight) for found, weight in read if found is not None]


def choose(header: str, offered: Sequence[Representation]) -> Representation:
    """The representation that a header prefers; NotAcceptableError if it accepts none."""
    ranges = parse_accept(header)
    if not ranges:
        return offered[0]
    best = max(offered, key=lambda each: _weight(ranges, each))  # the first of equal ones
    if _weight(ranges, best):
        return best
    available = [_essence(each.media_type) for each in offered]
    raise NotAcceptableError(
        f"nothing here has a form that Accept: {header[:200]} allows; accept "
        f"{', '.join(available[:-1])}{' or ' if available[1:] else ''}{available[-1]}",
        available=available,
    )


def choose_form(request: Request, offered: Sequence[Representation]) -> Representation:
    """The representation that a client prefers, or the refusal that lists all."""
    try:
        return choose(", ".join(request.headers.getlist("accept")), offered)
    except NotAcceptableError as error:
        raise Refused(Failure("semantic", error.code, error.message, error.data)) from None


def _weight(ranges: Sequence[MediaRange], offered: Representation) -> float:
    """What the range that names it most exactly says; its other names only count in full."""
    named = _most_exact(ranges, _essence(offered.media_type))
    others = [_most_exact(ranges, each) for each in offered.also]
    exact = [each for each in (named, *others) if each[0] == _EXACT]
    return exact[0][1] if exact else named[1]


def _most_exact(ranges: Sequence[MediaRange], media: str) -> tuple[int, float]:
    found = [(each.specificity(media), each.weight) for each in ranges]
    return max((each for each in found if each[0]), default=(0, 0.0))


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0]
