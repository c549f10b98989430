"""Results of requests: a JSON result, a query answer, or a failure with a known code.

Surfaces translate these and decide nothing. A result is encoded once, and its bytes are passed
on unchanged. The reasons why a graph is not served or is read-only name declarations and
policies, so only actors who may work on the graph see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from trails.errors import BehindError, ReadOnlyError, UnwritableError
from trails.model.actors import OPERATOR, Actor

DEFAULT_CHARS: Final = 32_768
"""How many characters an answer to a model has at most, unless it asks for fewer or more."""
LEAST_CHARS: Final = 1_000
MOST_CHARS: Final = 1_000_000

FailureKind = Literal[
    "unknown",  # no such tool, or one that the actor may not see
    "validation",  # arguments or data that break rules; data["fields"] has all of them
    "unauthenticated",  # a credential that is missing or wrong
    "scope",  # a scope that the credential lacks
    "denied",  # a rule that denies these arguments of a visible tool
    "budget",  # a quota of the actor is used up
    "semantic",  # any other error that the caller can correct
    "internal",  # any other error; data["trace_id"] finds it in the server's log
]


class Success(msgspec.Struct, frozen=True):
    """A result: the JSON text of an object."""

    body: bytes
    """As msgspec encodes it, so that decoding and encoding it again gives the same bytes."""
    commit: str | None = None
    """The head that a branch or snapshot had when it was opened, or the commit that the call has
    made or moved a branch to; the result is not older."""
    made: bool = False
    """Whether the call has made it, or moved a branch to it."""


class Failure(msgspec.Struct, frozen=True):
    """An error that the caller can act on."""

    kind: FailureKind
    code: str
    """Stable, from the error tree: ``not_found``, ``conflict``, …"""
    message: str
    """Complete in itself: names the field, the value, the rule and the next step."""
    data: Mapping[str, object] = {}
    """JSON-ready."""


Outcome = Success | Failure


class QueryAnswer(msgspec.Struct, frozen=True):
    """The result of a query: rows by column for SELECT, a boolean for ASK.

    CONSTRUCT and DESCRIBE give rows of subject, predicate, object.
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, object], ...]
    truth: bool | None = None
    truncated: str | None = None
    """The limit that cut off the rows, if any."""
    notice: str | None = None
    """What was cut off and how to continue; names in the query that do not exist."""

    def with_notice(self, notice: str | None) -> QueryAnswer:
        """The same answer with one more notice."""
        if notice is None:
            return self
        notices = notice if self.notice is None else f"{self.notice}; {notice}"
        return msgspec.structs.replace(self, notice=notices)

    def __bool__(self) -> bool:
        """The answer of ASK; for other forms, whether there are rows."""
        return bool(self.rows) if self.truth is None else self.truth

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        """The rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """How many rows."""
        return len(self.rows)


Status = Literal["ok", "read_only", "behind"]
"""Whether a graph is read-write, read-only, or read-only because it has lost data."""


class Health(msgspec.Struct, frozen=True):
    """How a server is, in words that name nothing of it."""

    status: Status
    """The worst of all graphs, and ``read_only`` while the disk takes no more."""
    unready: tuple[str, ...] = ()
    """What keeps it from doing all of its work: ``graphs``, ``views``, ``disk``."""


_ERRORS: Final[Mapping[str, type[ReadOnlyError]]] = {
    "behind": BehindError,
    "requested": ReadOnlyError,
    "storage": UnwritableError,
    "types": ReadOnlyError,
}


class ReadOnly(msgspec.Struct, frozen=True):
    """Why a graph is read-only, in a sentence that says what to do."""

    cause: Literal["behind", "requested", "storage", "types"]
    reason: str

    def error(self) -> ReadOnlyError:
        """The error for a write."""
        return _ERRORS[self.cause](f"nothing was written: {self.reason}", cause=self.cause)


REQUESTED: Final = ReadOnly(
    "requested",
    "the project is open read-only, because that was asked for (--read-only, or read_only in "
    "[project]); open it without that to write",
)


OTHER_TYPES: Final = ReadOnly(
    "types",
    "another server has changed the types of this graph, and this one declares others: it only "
    "reads. Bring its files up to date and reload it (or restart it)",
)


def unwritable(why: str) -> ReadOnly:
    """The disk can't be written."""
    return ReadOnly(
        "storage",
        f"the project is open read-only, because its disk can't be written ({why}); make it "
        "writable, or free some space ('trails cleanup' helps), and open the project again "
        "(restart the server)",
    )


class Trace(msgspec.Struct, frozen=True):
    """A commit that a file refers to."""

    where: str
    """The file, in words."""
    seq: int
    commit: str


class Loss(msgspec.Struct, frozen=True):
    """Commits that other files refer to and the log does not have."""

    last_seq: int
    """Where the log ends."""
    traces: tuple[Trace, ...]

    @property
    def missing(self) -> tuple[Trace, ...]:
        """The missing commits that are known, oldest first, each once."""
        found = {each.commit: each for each in reversed(self.traces)}
        return tuple(sorted(found.values(), key=lambda each: each.seq))

    def describe(self, graph: str) -> str:
        """What is missing, the evidence, and what to do."""
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


def describe_outage(graph: str, failure: Failure, actor: Actor) -> Failure:
    """Why a graph is not served; the reasons only for actors who may work on it."""
    if not actor.credential or actor == OPERATOR:
        return failure
    message = f"graph {graph!r} is not served now; the server's log has the reasons"
    return Failure(failure.kind, failure.code, message)
