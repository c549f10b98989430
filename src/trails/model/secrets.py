"""Secret: a text that must not be shown anywhere, and how to notice one that stands in others."""

from __future__ import annotations

import re
from typing import Final, Never

MISPLACED: Final = (
    "a token stands where none belongs, and might be kept or shown there, so nothing was done; it "
    "goes into the Authorization header, or over stdio into the client info. If somebody else can "
    "have seen this one, revoke it"
)
"""What is said of a request that has a token in it."""
BEGINNING: Final = b"trails_"
_TOKEN: Final = re.compile(rb"trails_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")


class Secret:
    """A token on its way to whoever checks it: it can be passed on, and shows itself to nobody."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself; for comparing and hashing alone."""
        return self._text

    def __repr__(self) -> str:
        """Nothing of it, not even its length."""
        return "Secret(…)"

    __str__ = __repr__

    def __reduce__(self) -> Never:
        """Refuse to be written anywhere."""
        raise TypeError("a secret can't be pickled or copied")


def holds_token(data: bytes) -> bool:
    """Whether a token of a project stands somewhere in it."""
    return BEGINNING in data and _TOKEN.search(data) is not None
