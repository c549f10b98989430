"""The only way to write: give a draft its place in the chain and make it durable.

Imported by the engine's ``Write`` alone.
"""

from __future__ import annotations

from secrets import token_hex

import msgspec

from trails.errors import CorruptionError
from trails.log.payloads import Payload
from trails.log.protocol import Log
from trails.model.history import GENESIS, Commit, CommitDraft, Head, chain_digest, commit_id
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome


def append(
    log: Log,
    draft: CommitDraft,
    payload: Payload,
    schema: Schema,
    head: Head | None,
    merged: str | None = None,
    keyed: KeyedOutcome | None = None,
) -> Commit:
    """Append after ``head``; when this returns the commit survives a power cut.

    ``merged`` is the second parent of a merge; ``keyed`` is remembered with the commit. A
    commit is never older than its parents, whatever the clock says. Raises ConflictError when
    the branch has moved on from ``head``.
    """
    parents = () if head is None or head.commit == GENESIS else (head.commit,)
    if merged is not None:
        parents = (*parents, merged)
    before = [_parent(log, parent) for parent in parents]
    time = max(draft.time, *(parent.time for parent in before)) if before else draft.time
    draft = msgspec.structs.replace(draft, time=time, nonce=token_hex(16))
    parent_digests = tuple(parent.digest for parent in before)
    counts = f"{payload.removed.count} {payload.added.count}"
    digest = chain_digest(parent_digests, draft, payload.digest, counts)
    commit = Commit(
        seq=log.last_seq() + 1,
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
    log.insert(commit, payload, schema, GENESIS if head is None else head.commit, keyed)
    return commit


def _parent(log: Log, identifier: str) -> Commit:
    commit = log.commit(identifier)
    if commit is None:
        raise CorruptionError(f"commit {identifier} is named as a parent but is not in the log")
    return commit
