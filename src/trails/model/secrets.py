"""Secret: a text that must not be shown anywhere, and how to notice one that stands in others."""

from __future__ import annotations

import re
from typing import Final, Never

import msgspec

MISPLACED: Final = (
    "a token was found outside the Authorization header, where it could be kept or shown, so "
    "nothing was done; send it in the Authorization header, or over stdio in the client info. If "
    "somebody else can have seen this one, revoke it"
)
"""The error of a request that has a token where it does not belong."""
PRESENTED: Final = "trails.presented"
"""Where the scope of a request carries the token that came with it."""
BEGINNING: Final = b"trails_"
_TOKEN: Final = re.compile(rb"trails_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
_WHOLE: Final = re.compile(r"trails_[0-9a-f]{12}_([A-Za-z0-9_-]{43})")
_LEAST: Final = 16
"""Characters of a token that is looked for by its text: a shorter one may stand anywhere."""


class Secret:
    """A token on its way to whoever checks it: it can be passed on, and shows itself to nobody."""

    __slots__ = ("_spelled", "_text", "of_project")

    def __init__(self, text: str) -> None:
        self._text = text
        self.of_project: Final = _WHOLE.fullmatch(text) is not None
        """Whether it has the form of a project's token."""
        self._spelled: tuple[bytes, ...] | None = None

    def reveal(self) -> str:
        """The text itself; for comparing and hashing alone."""
        return self._text

    def stands_in(self, data: bytes) -> bool:
        """Whether it is there as it is, or as JSON spells it; one that is short is never found.

        Of a project's token the secret part is enough: with the id, which lists show, it is one.
        """
        if self._spelled is None:
            self._spelled = _spell(self._text) if len(self._text) >= _LEAST else ()
        return any(each in data for each in self._spelled)

    def __repr__(self) -> str:
        """Nothing of it, not even its length."""
        return "Secret(…)"

    __str__ = __repr__

    def __reduce__(self) -> Never:
        """Refuse to be written anywhere."""
        raise TypeError("a secret can't be pickled or copied")


def holds_token(data: bytes, presented: Secret | None = None) -> bool:
    """Whether a token of a project stands somewhere in it, or the one that came with it."""
    if BEGINNING in data and _TOKEN.search(data) is not None:
        return True
    return presented is not None and presented.stands_in(data)


def may_hide(data: bytes, presented: Secret | None = None) -> bool:
    """Whether JSON may spell a token in another way; of a project's it can only be by number."""
    return (b"\\u" if presented is None or presented.of_project else b"\\") in data


def _spell(text: str) -> tuple[bytes, ...]:
    project = _WHOLE.fullmatch(text)
    if project is not None:
        return (project[1].encode(),)
    raw = text.encode(errors="surrogateescape")
    quoted = msgspec.json.encode(raw.decode(errors="replace"))[1:-1]
    return (raw,) if quoted == raw else (raw, quoted)
