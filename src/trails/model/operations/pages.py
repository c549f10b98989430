"""The call that continues, and what an answer leaves out: the parts that many results have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that continues, ready to be sent."""

    tool: str
    arguments: Mapping[str, object]
    repeat: Annotated[
        tuple[str, ...],
        Meta(
            description="Arguments of this call that have to be added as they were: too long to "
            "be repeated here."
        ),
    ] = ()


FollowingCall = Annotated[
    Call | None, Meta(description="The call that continues; absent at the end.")
]


class ShortenedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value of which only the beginning is shown."""

    at: Annotated[str, Meta(description="Where it is: a JSON Pointer (RFC 6901).")]
    shown: int
    of: int
    unit: Annotated[str, Meta(description="What is counted: characters, items or members.")]
    read: Annotated[Call | None, Meta(description="The call that reads the rest.")] = None


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is not shown, because an answer has at most ``max_chars`` characters."""

    notice: str
    shown: Annotated[int | None, Meta(description="Items that are shown.")] = None
    of: Annotated[int | None, Meta(description="Items altogether, if known.")] = None
    values: Annotated[
        tuple[ShortenedPart, ...], Meta(description="Values that are shortened.")
    ] = ()
    more_values: Annotated[int, Meta(description="How many more values are shortened.")] = 0
    next: Annotated[Call | None, Meta(description="The call for all of it.")] = None


class Continued(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A result with a list that can be continued."""

    left_out: Annotated[
        LeftOut | None, Meta(description="What is not shown, and why; absent if all is.")
    ] = None
    next: Annotated[
        Call | None, Meta(description="The call that continues; absent at the end.")
    ] = None
