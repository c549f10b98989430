"""Whether a token can be what is asked for: its actor, groups, scopes and end."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Final

from trails.errors import TrailsError
from trails.model.actors import LOCAL, checked_actor
from trails.model.capabilities import SCOPES, Scope
from trails.model.tokens import TokenRequest

MOST_GROUPS: Final = 64
_LONGEST_GROUP: Final = 256
_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([smhdw])", re.ASCII)
_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def check_groups(groups: tuple[str, ...]) -> tuple[str, ...]:
    """Groups, each once, in order; what can't be a group's name is refused."""
    for each in groups:
        if not each.strip() or each != each.strip() or "," in each or not each.isprintable():
            raise TrailsError(
                f"{each[:_LONGEST_GROUP]!r} can't be a group: printable characters without "
                "commas and without spaces around them; give --group once for each"
            )
        if len(each) > _LONGEST_GROUP:
            raise TrailsError(f"a group's name has {_LONGEST_GROUP} characters at most")
    named = tuple(sorted(set(groups)))
    if len(named) > MOST_GROUPS:
        raise TrailsError(f"an actor can be in {MOST_GROUPS} groups, not in {len(named)}")
    return named


def check_scopes(scopes: tuple[str, ...]) -> tuple[Scope, ...]:
    """Scopes, each once, from the least to the most."""
    for each in scopes:
        if each not in SCOPES:
            near = get_close_matches(each, SCOPES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TrailsError(f"there is no scope {each[:100]!r}, only {', '.join(SCOPES)}{hint}")
    return tuple(each for each in SCOPES if each in scopes)


def check_request(request: TokenRequest) -> TokenRequest:
    """A request that can be fulfilled, in order."""
    if request.actor == LOCAL.name:
        raise TrailsError(
            "'local' is whoever works on this machine without a token; name another actor"
        )
    return TokenRequest(
        actor=checked_actor(request.actor),
        groups=check_groups(request.groups),
        scopes=check_scopes(request.scopes),
        expires=request.expires,
    )


def parse_end(text: str, now: datetime) -> datetime:
    """When a token ends that is made now: ``30d``, a date, or a date and time."""
    found = _DURATION.fullmatch(text)
    try:
        end = now + int(found[1]) * _UNITS[found[2]] if found else _parse_time(text)
    except (ValueError, OverflowError):
        raise TrailsError(
            f"{text[:100]!r} is no end of a token: write a duration such as 30d, 12h or 90m, a "
            "date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z"
        ) from None
    if end <= now:
        raise TrailsError(f"{text!r} is over already: it is {now:%Y-%m-%dT%H:%M:%SZ}")
    return end.replace(microsecond=0)


def _parse_time(text: str) -> datetime:
    """A time; one without a zone is UTC."""
    end = datetime.fromisoformat(text)
    return end.replace(tzinfo=UTC) if end.tzinfo is None else end.astimezone(UTC)
