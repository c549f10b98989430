"""The only way to write: give a draft its place in the chain and make it durable.

Imported by the engine's ``Write`` alone.
"""

from __future__ import annotations

from trails.errors import CorruptionError
from trails.log.payloads import Payload
from trails.log.protocol import Log
from trails.model.history import GENESIS, Commit, Draft, Head, chain_digest, commit_id
from trails.model.types import Schema


def append(
    log: Log,
    draft: Draft,
    payload: Payload,
    schema: Schema,
    head: Head | None,
    merged: str | None = None,
) -> Commit:
    """Append after ``head``; when this returns the commit survives a power cut.

    ``merged`` is the second parent of a merge. Raises ConflictError when the branch has
    moved on from ``head``.
    """
    parents = () if head is None or head.commit == GENESIS else (head.commit,)
    if merged is not None:
        parents = (*parents, merged)
    parent_digests = tuple(_digest_of(log, parent) for parent in parents)
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
    )
    log.insert(commit, payload, schema, GENESIS if head is None else head.commit)
    return commit


def _digest_of(log: Log, identifier: str) -> str:
    commit = log.commit(identifier)
    if commit is None:
        raise CorruptionError(f"commit {identifier} is named as a parent but is not in the log")
    return commit.digest
