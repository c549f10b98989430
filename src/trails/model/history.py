"""What the log holds: commits, deltas, activities.

A delta is two sets of RDF statements, removed and added, as N-Quads text in
the engine's canonical form: opaque here, readable with any RDF tool.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from trails.model.digests import digest_of

LOG_FORMAT: Final = 1
GENESIS: Final = ""
"""The head of a branch that has no commit yet."""


class Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a branch: what changed, who did it, and the digest that chains it."""

    seq: int
    id: str
    branch: str
    parents: tuple[str, ...]
    actor: str
    time: str
    schema: str
    added: int
    removed: int
    payload: str
    """SHA-256 over the delta's two texts."""
    digest: str
    message: str = ""
    activity: str | None = None
    idempotency_key: str | None = None
    """Only of commits from before keys had a table of their own; part of their digest."""
    nonce: str = ""
    """Random, so that what a commit holds can't be guessed from its id; empty in old ones."""

    @property
    def first_parent(self) -> str:
        """The commit that this one's statements are a step from."""
        return self.parents[0] if self.parents else GENESIS

    def public(self) -> Commit:
        """The commit without what only the log needs: its nonce, and a key that is its actor's."""
        return msgspec.structs.replace(self, idempotency_key=None, nonce="")


class Draft(msgspec.Struct, frozen=True):
    """A commit before the log has given it a place and a digest."""

    branch: str
    actor: str
    time: str
    schema: str
    message: str = ""
    activity: str | None = None
    idempotency_key: str | None = None
    nonce: str = ""


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a branch that is not a commit: made, moved forward, or deleted."""

    branch: str
    action: Literal["create", "fast_forward", "delete"]
    commit: str
    """Where the branch is afterwards; of a deletion, where it was."""
    before: str
    actor: str
    time: str
    after: int = 0
    """The place of the newest commit when this happened."""


class Head(msgspec.Struct, frozen=True):
    """Where a branch is: the last commit, its place in the log and its schema."""

    commit: str
    seq: int
    schema: str


class Position(msgspec.Struct, frozen=True):
    """How far a view has followed the log: a commit, and its place."""

    seq: int
    commit: str

    def __str__(self) -> str:
        """As a view stores it."""
        return f"{self.seq} {self.commit}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The inverse of ``str``."""
        seq, _, commit = text.partition(" ")
        return cls(int(seq), commit)


class Activity(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call, or several that were refused alike: who, what, when, with which outcome."""

    id: str
    actor: str
    name: str
    started: str
    ended: str
    outcome: str
    kind: str = "runtime"
    detail: str = ""
    calls: int = 1
    """Of several, ``started`` is when the first of them was and ``ended`` when the last was."""


class ActivityArchive(msgspec.Struct, frozen=True):
    """A sealed file of activities that have left the log's table."""

    first: int
    last: int
    """Places in the stream of activities."""
    count: int
    name: str
    sha: str
    """SHA-256 of its text."""
    oldest: str
    newest: str


def chain_digest(parent_digests: tuple[str, ...], draft: Draft, payload: str, counts: str) -> str:
    """The digest of a commit: of its content and of everything before it."""
    content = msgspec.to_builtins(draft)
    if not draft.nonce:
        del content["nonce"]  # as it was digested before there were nonces
    return digest_of([LOG_FORMAT, parent_digests, content, payload, counts])


def commit_id(digest: str) -> str:
    """Short enough to be read aloud to an agent, long enough never to meet another."""
    return digest[:32]


def is_chained(commit: Commit, parent_digests: tuple[str, ...]) -> bool:
    """Whether a commit's digest and id follow from its content and its parents."""
    draft = Draft(
        commit.branch,
        commit.actor,
        commit.time,
        commit.schema,
        commit.message,
        commit.activity,
        commit.idempotency_key,
        commit.nonce,
    )
    counts = f"{commit.removed} {commit.added}"
    digest = chain_digest(parent_digests, draft, commit.payload, counts)
    return digest == commit.digest and commit_id(digest) == commit.id
