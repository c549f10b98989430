"""Secret: a text that must not be shown anywhere."""

from __future__ import annotations

from typing import Never


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
