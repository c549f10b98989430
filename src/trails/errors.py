"""Every error that Trails raises on purpose.

::

    TrailsError                 code, message, data; the message says what to do next
    ├── DeclarationError        an invalid class, function or pattern
    ├── RegistryError           conflicting declarations
    ├── SettingsError           an invalid trails.toml or project folder
    ├── PolicyError             invalid access policies
    ├── ValidationError         a write or a call refused, with every FieldError at once
    ├── NotFoundError           no such node, type, branch, commit or capability
    ├── NotAcceptableError      no form of the result that the caller accepts
    ├── QueryError              a selection or SPARQL text that can't be run
    ├── CursorError             a cursor that was altered, or that was given for another call
    │   └── StaleError          one that has expired, or whose state of the graph is gone
    ├── LimitError              a text or file that asks for more than the sandbox allows
    ├── BusyError               a query that waited too long for a worker; try again
    ├── EmbeddingError          the project's function for embeddings failed or was too slow
    ├── LaggingError            a server that has not followed the log to a commit; ask again
    ├── UnavailableError        this machine can't confine untrusted text, so it is not run
    ├── ConflictError           the head moved, or an idempotency key was used for something else
    ├── TransactionError        a transaction used in a wrong way
    ├── SchemaMismatchError     the declared types do not fit the stored data
    ├── MigrationError          a migration that can't be applied or rolled back
    ├── CapabilityError         raised by a capability on purpose
    ├── SourceError             a file of a project that can't be changed automatically
    ├── InstallError            a client's configuration that can't be changed
    ├── DeniedError             a rule that denies these arguments of a call
    ├── ForbiddenError          a call that needs data which its caller may not read or change
    ├── RevokedError            a call whose credential ended before it did; nothing was written
    ├── AbandonedError          a write whose caller disconnected; nothing was written
    ├── BudgetError             an actor that has used up its budget
    ├── QuarantineError         a graph that is not served, because its app or a query is broken
    ├── UnreachableError        a server that does not answer, or not as a Trails server does
    └── StorageError            the disk refused, or holds something it should not
        ├── StorageFullError    no space; nothing is lost, try again when there is
        ├── ReadOnlyError       the graph is open for reading only
        │   ├── BehindError     the log has lost commits; 'trails recover' puts them back
        │   └── UnwritableError the disk refuses to be written; the graph is read meanwhile
        ├── LockedError         another process owns this folder
        ├── LogUnavailableError the server of the log does not answer; nothing was written
        ├── OutcomeUnknownError the answer to a commit was lost; look whether it was written
        └── CorruptionError     the log's digests do not add up

``FieldError`` is a value, not an exception: one violation of one field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec


class FieldError(msgspec.Struct, frozen=True):
    """One violation: which field, which rule, what was given, what was asked for."""

    field: str
    code: str
    message: str
    value: object = None
    constraint: object = None


class TrailsError(Exception):
    """Base of all errors raised on purpose; ``code`` is stable, ``data`` is JSON-ready."""

    code = "trails_error"

    def __init__(self, message: str, **data: object) -> None:
        super().__init__(message)
        self.message = message
        self.data: Mapping[str, object] = data


class DeclarationError(TrailsError):
    """An invalid declaration; names the class, the field and the fix."""

    code = "declaration"


class RegistryError(TrailsError):
    """Conflicting declarations."""

    code = "registry"


class SettingsError(TrailsError):
    """An invalid project folder or trails.toml."""

    code = "settings"


class PolicyError(TrailsError):
    """Policies that can't be read or name unknown things; ``data`` has every problem."""

    code = "policy"


_SPELLED: Final = 20
"""Violations that a message spells out one by one."""
_PLACES: Final = 3
"""Where else a violation occurs: places that a message names."""
_PLACE: Final = re.compile(r"((?:line|row) [0-9]+)(?:, column |: |$)|([^ ./]+/[^ ]+)\.(?=[^ .]+$)")
_ITEM: Final = re.compile(r"\[[0-9]+\]")


def _sum_up(alike: list[FieldError]) -> str:
    """The first message, with how often and where else the same rule is broken."""
    if len(alike) == 1:
        return alike[0].message
    found = [match for each in alike[1:] if (match := _PLACE.match(each.field))]
    places = list(dict.fromkeys(match[1] or match[2] for match in found))
    where = ", ".join(places[:_PLACES]) + (", …" if len(places) > _PLACES else "")
    return f"{alike[0].message} (and {len(alike) - 1} more like it{where and f': {where}'})"


class ValidationError(TrailsError):
    """Nothing was written: every violated rule, at once."""

    code = "validation"

    def __init__(self, fields: Iterable[FieldError], *, more: int = 0) -> None:
        """``more``: violations that were found beside those that are listed."""
        self.fields: tuple[FieldError, ...] = tuple(fields)
        self.more = more
        found = len(self.fields) + more
        spelled = "; ".join(self.summary())
        if more:
            spelled += f"; and {more} more"
        where = "1 field" if found == 1 else f"{found} fields"
        super().__init__(f"validation failed on {where}: {spelled}", fields=self.fields)

    def explain(self, reason: str) -> None:
        """Append a reason to the message."""
        self.message = f"{self.message}; {reason}"
        self.args = (self.message,)

    def summary(self) -> list[str]:
        """The messages; of many violations, one message for each field and rule."""
        if len(self.fields) <= _SPELLED:
            return [error.message for error in self.fields]
        kinds: dict[tuple[str, str, str], list[FieldError]] = {}
        for error in self.fields:
            field = _ITEM.sub("", _PLACE.sub("", error.field))
            kinds.setdefault((field, error.code, repr(error.constraint)), []).append(error)
        groups = list(kinds.values())
        lines = [_sum_up(alike) for alike in groups[:_SPELLED]]
        if left := groups[_SPELLED:]:
            lines.append(f"and {sum(map(len, left))} more on other fields")
        return lines


class NotFoundError(TrailsError):
    """No such node, type, branch, commit or capability."""

    code = "not_found"


class NotAcceptableError(TrailsError):
    """No form of the result that the caller accepts; ``data`` lists those that there are."""

    code = "not_acceptable"


class QueryError(TrailsError):
    """A selection or SPARQL text that can't be run as written."""

    code = "query"


class CursorError(TrailsError):
    """A cursor that was altered, or that belongs to another actor, call or branch."""

    code = "cursor"


class StaleError(CursorError):
    """A cursor that has expired, or whose state of the graph is gone; begin again without it."""

    code = "stale"


class LaggingError(TrailsError):
    """This server does not have the commit yet that the caller's answer must include."""

    code = "lagging"


class LimitError(TrailsError):
    """Untrusted text reached a limit of the sandbox; ``data`` has the limit and its value."""

    code = "limit"


class BusyError(TrailsError):
    """All workers were busy for as long as a query waits; try again."""

    code = "busy"


class EmbeddingError(TrailsError):
    """The project's function for embeddings failed, was too slow, or gave something else."""

    code = "embedding"


class UnavailableError(TrailsError):
    """Untrusted text is not run on this machine, because it can't be confined."""

    code = "unavailable"


class ConflictError(TrailsError):
    """The graph is not in the state that the caller expected; read again and retry."""

    code = "conflict"


class TransactionError(TrailsError):
    """A transaction used in a wrong way."""

    code = "transaction"


class SchemaMismatchError(TrailsError):
    """The declared types do not fit what the graph holds; a migration is needed."""

    code = "schema_mismatch"


class MigrationError(TrailsError):
    """A migration can't be applied or rolled back; nothing was changed."""

    code = "migration"


class CapabilityError(TrailsError):
    """Raised by a capability to say, on purpose, that it can't do what was asked."""

    code = "capability"


class SourceError(TrailsError):
    """A source file that can't be changed automatically; ``data`` has its path and the lines."""

    code = "source"


class InstallError(TrailsError):
    """A client's configuration that can't be changed; says why, and what to paste."""

    code = "install"


class DeniedError(TrailsError):
    """A rule denies what was asked, with these arguments, to this actor."""

    code = "denied"


class ForbiddenError(TrailsError):
    """A call that needs data which its caller may not read or change."""

    code = "forbidden"


class RevokedError(TrailsError):
    """The credential of a call was revoked or expired while it was under way."""

    code = "revoked"


class AbandonedError(TrailsError):
    """The caller of a long write disconnected before it was done; nothing was written."""

    code = "cancelled"


class BudgetError(TrailsError):
    """The actor has used up its budget; ``data`` names the budget and when it is refilled."""

    code = "budget"


class QuarantineError(TrailsError):
    """A graph is not served, because its app, its schema or a stored query is broken."""

    code = "quarantined"


class UnreachableError(TrailsError):
    """A server does not answer, or not as a Trails server does."""

    code = "unreachable"


class StorageError(TrailsError):
    """The disk refused an operation, or holds something that it should not."""

    code = "storage"


class StorageFullError(StorageError):
    """No space left; what was acknowledged is safe, and writing resumes when there is room."""

    code = "storage_full"


class ReadOnlyError(StorageError):
    """The graph is open for reading only; the message says why, and how that ends."""

    code = "read_only"


class BehindError(ReadOnlyError):
    """The log has lost commits that other files prove; it is read until they are recovered."""

    code = "behind"


class UnwritableError(ReadOnlyError):
    """The disk refuses to be written: a read-only mount, permissions, or no space on opening."""

    code = "unwritable"


class LockedError(StorageError):
    """Another process has this folder open."""

    code = "locked"


class LogUnavailableError(StorageError):
    """The database server of the log does not answer; nothing was written, try again."""

    code = "log_unavailable"


class OutcomeUnknownError(StorageError):
    """The answer to a commit was lost, and could not be looked up; ``data`` names the commit."""

    code = "outcome_unknown"


class CorruptionError(StorageError):
    """The log's digests do not add up."""

    code = "corruption"
