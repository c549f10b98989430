"""Why a graph is open for reading only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from trails.errors import BehindError, ReadOnlyError, UnwritableError

Status = Literal["ok", "read_only", "behind"]
"""Whether a graph is written and read, only read, or has lost data and is only read."""


_ERRORS: Final[Mapping[str, type[ReadOnlyError]]] = {
    "behind": BehindError,
    "requested": ReadOnlyError,
    "storage": UnwritableError,
}


class ReadOnly(msgspec.Struct, frozen=True):
    """A cause, in a sentence that says what to do."""

    cause: Literal["behind", "requested", "storage"]
    reason: str

    def error(self) -> ReadOnlyError:
        """What a write is refused with."""
        return _ERRORS[self.cause](f"nothing was written: {self.reason}", cause=self.cause)


REQUESTED: Final = ReadOnly(
    "requested",
    "the project is open read-only, because that was asked for (--read-only, or read_only in "
    "[project]); open it without that to write",
)


def unwritable(why: str) -> ReadOnly:
    """The disk refuses to be written."""
    return ReadOnly(
        "storage",
        f"the project is open read-only, because its disk can't be written ({why}); make it "
        "writable, or free some space ('trails cleanup' helps), and open the project again "
        "(restart the server)",
    )


class Trace(msgspec.Struct, frozen=True):
    """A commit that a file names."""

    where: str
    """The file, in words."""
    seq: int
    commit: str


class Loss(msgspec.Struct, frozen=True):
    """Commits that other files name and the log does not have."""

    last_seq: int
    """Where the log ends."""
    traces: tuple[Trace, ...]

    @property
    def missing(self) -> tuple[Trace, ...]:
        """The missing commits that are known, oldest first, each once."""
        found = {each.commit: each for each in reversed(self.traces)}
        return tuple(sorted(found.values(), key=lambda each: each.seq))

    def describe(self, graph: str) -> str:
        """What is missing, what proves it, and what to do."""
        missing = self.missing
        first, last = missing[0], missing[-1]
        which = f"commit {first.seq} ({first.commit})"
        if len(missing) > 1:
            span = f"from {first.seq} ({first.commit}) to {last.seq} ({last.commit})"
            which = f"{len(missing)} commits {span}"
        proof = ", ".join(dict.fromkeys(each.where for each in self.traces))
        return (
            f"the log of graph {graph!r} has lost data: it ends at commit {self.last_seq}, and "
            f"{which} named by {proof} can't be found in it. The graph is open read-only and "
            "nothing was changed; run 'trails recover'"
        )
