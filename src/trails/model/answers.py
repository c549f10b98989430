"""What a query answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """The result of a query: of SELECT, rows by variable; of ASK, a truth value.

    CONSTRUCT and DESCRIBE give rows of subject, predicate, object.
    """

    variables: tuple[str, ...]
    rows: tuple[Mapping[str, object], ...]
    truth: bool | None = None
    truncated: str | None = None
    """Which limit cut the rows off, if one did."""
    notice: str | None = None
    """What that means, and what to do about it; and which names of the query there are not."""

    def with_notice(self, notice: str | None) -> Answer:
        """The same with one notice more."""
        if notice is None:
            return self
        told = notice if self.notice is None else f"{self.notice}; {notice}"
        return msgspec.structs.replace(self, notice=told)

    def __bool__(self) -> bool:
        """The truth of ASK; for the others whether there are rows."""
        return bool(self.rows) if self.truth is None else self.truth

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        """The rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """How many rows."""
        return len(self.rows)
