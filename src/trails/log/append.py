"""The only way to write: give drafts their places in the chain, and make them durable together.

A ``Turn`` holds commits that follow each other and the log, until ``append`` makes all of them
durable in one transaction of the log, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from secrets import token_hex

import msgspec

from trails.errors import CorruptionError
from trails.log.payloads import Payload
from trails.log.protocol import Log, LogEntry
from trails.model.history import (
    GENESIS,
    Activity,
    Commit,
    CommitDraft,
    Head,
    chain_digest,
    commit_id,
)
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome


class Turn:
    """Commits that are to be appended together."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._heads: dict[str, Head] = {}
        self._commits: dict[str, Commit] = {}
        self.entries: list[LogEntry] = []
        """In their order."""

    def head(self, branch: str) -> Head | None:
        """Where a branch will be."""
        return self._heads.get(branch) or self._log.head(branch)

    @property
    def next_seq(self) -> int:
        """The place that the next commit gets."""
        return self._log.last_seq() + len(self.entries) + 1

    def has_key(self, branch: str, actor: str, key: str) -> bool:
        """Whether one of the commits has this idempotency key."""
        keys = (each.keyed for each in self.entries if each.keyed is not None)
        return any((each.branch, each.actor, each.key) == (branch, actor, key) for each in keys)

    def add(
        self,
        draft: CommitDraft,
        payload: Payload,
        schema: Schema,
        merged: str | None = None,
        keyed: KeyedOutcome | None = None,
        call: Callable[[str], Activity] | None = None,
    ) -> LogEntry:
        """Put a commit at the end of its branch.

        ``merged`` is the second parent of a merge; ``keyed`` is remembered with the commit.
        ``call`` says what is known of the call that made it, given its id. A
        commit is never older than its parents, whatever the clock says.
        """
        head = self.head(draft.branch)
        before = GENESIS if head is None else head.commit
        parents = () if before == GENESIS else (before,)
        if merged is not None:
            parents = (*parents, merged)
        found = [self._parent(parent) for parent in parents]
        time = max(draft.time, *(parent.time for parent in found)) if found else draft.time
        draft = msgspec.structs.replace(draft, time=time, nonce=token_hex(16))
        parent_digests = tuple(parent.digest for parent in found)
        counts = f"{payload.removed.count} {payload.added.count}"
        digest = chain_digest(parent_digests, draft, payload.digest, counts)
        commit = Commit(
            seq=self.next_seq,
            id=commit_id(digest),
            branch=draft.branch,
            parents=parents,
            actor=draft.actor,
            time=draft.time,
            schema=draft.schema,
            added=payload.added.count,
            removed=payload.removed.count,
            payload=payload.digest,
            digest=digest,
            message=draft.message,
            activity=draft.activity,
            idempotency_key=draft.idempotency_key,
            nonce=draft.nonce,
            renames=draft.renames,
            migration=draft.migration,
        )
        if keyed is not None:
            keyed = msgspec.structs.replace(keyed, commit=commit.id)
        made_by = None if call is None else call(commit.id)
        entry = LogEntry(commit, payload, schema, before, keyed, made_by)
        self.entries.append(entry)
        self._heads[commit.branch] = Head(commit.id, commit.seq, commit.schema)
        self._commits[commit.id] = commit
        return entry

    def _parent(self, identifier: str) -> Commit:
        commit = self._commits.get(identifier) or self._log.commit(identifier)
        if commit is None:
            raise CorruptionError(f"commit {identifier} is named as a parent but is not in the log")
        return commit

    def append(self, activities: Sequence[Activity] = ()) -> None:
        """Append all of them; when this returns, they survive a power cut.

        ``activities`` of earlier calls are written with them. Raises ConflictError, and appends
        none, when a branch has moved on.
        """
        self._log.insert_all(self.entries, activities=activities)
