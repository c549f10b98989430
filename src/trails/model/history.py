"""Commits, deltas, activities, branches, differences and merges, as values.

A delta is two sets of RDF statements, removed and added, as N-Quads text in the engine's
canonical form: opaque here, readable with any RDF tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from trails.model.iris import digest_of

LOG_FORMAT: Final = 1
GENESIS: Final = ""
"""The head of a branch that has no commit yet."""


class Rename(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """A type, or a field of a type and of those that extend it, that got another name."""

    type: str
    """The name of the type before."""
    to: str
    """The new name of the type, or of its field."""
    field: str = ""


class Renames(msgspec.Struct, frozen=True):
    """What was renamed between two schemas, by old and new names."""

    types: Mapping[str, str] = {}
    """Old name → new name; shapes too."""
    fields: Mapping[tuple[str, str], str] = {}
    """(new name of the type, old name of the field) → new name of the field."""

    @classmethod
    def of(cls, renames: Iterable[Rename]) -> Renames:
        """Renames one after the other."""
        types: dict[str, str] = {}
        fields: dict[tuple[str, str], str] = {}
        for each in renames:
            if each.field:
                known = [
                    old
                    for (name, old), new in fields.items()
                    if (name, new) == (each.type, each.field)
                ]
                fields[each.type, known[0] if known else each.field] = each.to
                continue
            older = [old for old, new in types.items() if new == each.type]
            types[older[0] if older else each.type] = each.to
            fields = {
                (each.to if name == each.type else name, old): new
                for (name, old), new in fields.items()
            }
        return cls(types, fields)


class MigrationMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Says that a commit applies a migration, or rolls it back; of several parts, the last does."""

    name: str
    checksum: str = ""
    """Of its content; empty if a new graph began with types that have it."""
    direction: Literal["forward", "reverse"] = "forward"
    part: int = 1
    parts: int = 1
    earlier: tuple[str, ...] = ()
    """For a new graph: the migrations before it, which its types have too."""

    @property
    def complete(self) -> bool:
        """Whether the migration is done with this commit."""
        return self.part == self.parts


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
    """Only in commits from before keys had their own table; part of their digest."""
    nonce: str = ""
    """Random, so that the content can't be guessed from the id; empty in old commits."""
    renames: tuple[Rename, ...] = ()
    """What the change of types in this commit renamed, in order."""
    migration: MigrationMark | None = None

    @property
    def first_parent(self) -> str:
        """The commit that this one's statements are a step from."""
        return self.parents[0] if self.parents else GENESIS

    def public(self) -> Commit:
        """The commit without its nonce and its actor's idempotency key, which stay in the log."""
        return msgspec.structs.replace(self, idempotency_key=None, nonce="")


class CommitDraft(msgspec.Struct, frozen=True):
    """A commit before the log has assigned its position and digest."""

    branch: str
    actor: str
    time: str
    schema: str
    message: str = ""
    activity: str | None = None
    idempotency_key: str | None = None
    nonce: str = ""
    renames: tuple[Rename, ...] = ()
    migration: MigrationMark | None = None


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a branch other than a commit: created, fast-forwarded or deleted."""

    branch: str
    action: Literal["create", "fast_forward", "delete"]
    commit: str
    """The head afterwards; for a deletion, the last head."""
    before: str
    actor: str
    time: str
    after: int = 0
    """The position of the newest commit at that time."""


class Head(msgspec.Struct, frozen=True):
    """The head of a branch: the last commit, its position in the log and its schema."""

    commit: str
    seq: int
    schema: str


class Position(msgspec.Struct, frozen=True):
    """How far a view has followed the log: a commit and its position."""

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
    """One call, or several with the same refusal: who, what, when, outcome."""

    id: str
    actor: str
    name: str
    started: str
    ended: str
    outcome: str
    kind: str = "runtime"
    detail: str = ""
    calls: int = 1
    """For several, ``started`` is the first start and ``ended`` the last end."""
    surface: str = ""
    """Where it came from; empty for activities that were recorded before there were surfaces."""
    trace: str = ""
    """The trace of the caller, if it sent one."""
    used: tuple[str, ...] = ()
    """The commit whose state was read, then the handles of nodes that were read by reference."""
    generated: tuple[str, ...] = ()
    """The commits that it made."""

    @property
    def trace_id(self) -> str:
        """The caller's trace, or one of its own: its id has as many digits."""
        return self.trace or self.id.replace("-", "")

    @property
    def nodes(self) -> tuple[str, ...]:
        """The handles of the nodes that it used."""
        return tuple(each for each in self.used if "/" in each)


class ActivityQuery(msgspec.Struct, frozen=True):
    """Which activities to list; all by default."""

    actor: str | None = None
    name: str | None = None
    outcomes: tuple[str, ...] = ()
    """Any of these; none for every outcome."""
    since: str | None = None
    until: str | None = None
    """Those that were running at some time between the two, as the log writes times."""
    node: str | None = None
    """Those that have read a node, by its handle."""
    ids: frozenset[str] | None = None
    """These; with a node, these as well."""


class ActivityArchive(msgspec.Struct, frozen=True):
    """A sealed file of activities that have left the log's table."""

    first: int
    last: int
    """Positions in the stream of activities."""
    count: int
    name: str
    sha: str
    """SHA-256 of its text."""
    oldest: str
    newest: str


def chain_digest(
    parent_digests: tuple[str, ...], draft: CommitDraft, payload: str, counts: str
) -> str:
    """The digest of a commit: of its content and of its history."""
    content = msgspec.to_builtins(draft)
    if not draft.nonce:
        del content["nonce"]  # as it was digested before there were nonces
    if not draft.renames:
        del content["renames"]  # the same for renames
    if draft.migration is None:
        del content["migration"]  # the same for migrations
    return digest_of([LOG_FORMAT, parent_digests, content, payload, counts])


def commit_id(digest: str) -> str:
    """Short enough to be read, long enough to be unique."""
    return digest[:32]


def is_chained(commit: Commit, parent_digests: tuple[str, ...]) -> bool:
    """Whether a commit's digest and id follow from its content and its parents."""
    draft = CommitDraft(
        commit.branch,
        commit.actor,
        commit.time,
        commit.schema,
        commit.message,
        commit.activity,
        commit.idempotency_key,
        commit.nonce,
        commit.renames,
        commit.migration,
    )
    counts = f"{commit.removed} {commit.added}"
    digest = chain_digest(parent_digests, draft, commit.payload, counts)
    return digest == commit.digest and commit_id(digest) == commit.id


class BranchInfo(msgspec.Struct, frozen=True):
    """A branch as a listing shows it."""

    name: str
    head: Annotated[str, Meta(description="Its newest commit; empty before the first.")]
    position: Annotated[
        int, Meta(description="The place of that commit in the log; 0 if it is not shown.")
    ]
    time: Annotated[str, Meta(description="When that commit was made.")]
    message: str
    actor: Annotated[str, Meta(description="Who made it.")]


class BranchFilter(msgspec.Struct, frozen=True):
    """Which branches are listed."""

    prefix: str = ""
    after: str | None = None
    """The name of the last branch of the page before."""
    limit: int | None = None


ALL_BRANCHES: Final = BranchFilter()


class BranchPage(msgspec.Struct, frozen=True):
    """Some branches."""

    branches: list[BranchInfo]
    next: str | None = None
    """After which name the next page begins; None at the end."""


class FieldChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field before and after; for a set, the removed and the added members."""

    field: str
    before: object = None
    after: object = None
    removed: tuple[object, ...] = ()
    added: tuple[object, ...] = ()


class NodeChange(msgspec.Struct, frozen=True):
    """A node that was created, updated or deleted, field by field."""

    handle: str
    change: str
    fields: tuple[FieldChange, ...]


class CommitQuery(msgspec.Struct, frozen=True):
    """Which commits to list; all by default."""

    branch: str | None = None
    """A branch or commit, whose history is listed."""
    actor: str | None = None
    node: str | None = None
    """A node's handle or IRI."""


class CommitPage(msgspec.Struct, frozen=True):
    """Commits, newest first, and where the next page begins."""

    commits: tuple[Commit, ...]
    next: str | None


class Difference(msgspec.Struct, frozen=True):
    """The differences between two states, per node and field."""

    start: str
    end: str
    created: int
    updated: int
    deleted: int
    changes: tuple[NodeChange, ...]
    truncated: bool
    """Whether there are more changes than are shown."""


class CommitDetail(msgspec.Struct, frozen=True):
    """A commit and what it changed, compared with its first parent."""

    commit: Commit
    difference: Difference


Outcome = Literal["already_up_to_date", "fast_forward", "merged", "conflicts"]
ConflictKind = Literal[
    "divergent_field",
    "divergent_insert",
    "delete_update",
    "dangling_reference",
    "uniqueness",
    "constraint",
    "schema",
]


Side = Literal["ours", "theirs"]
Take = Literal["ours", "theirs", "value"]


class Conflict(msgspec.Struct, frozen=True):
    """A conflict between two sides; resolutions refer to it by ``id``."""

    id: str
    kind: ConflictKind
    handle: str
    field: str
    base: object
    ours: object
    theirs: object
    ours_commits: tuple[str, ...]
    theirs_commits: tuple[str, ...]
    message: str
    takes: tuple[Take, ...] = ("ours", "theirs")
    """The resolutions that resolve it."""


class Resolution(msgspec.Struct, frozen=True):
    """How to resolve a conflict: with our side, with theirs, or with another value."""

    take: Take
    value: object = None


class MergeRequest(msgspec.Struct, frozen=True):
    """Merge ``source``, a branch or commit, into branch ``target``."""

    source: str
    target: str = "main"
    message: str = ""
    resolutions: Mapping[str, Resolution] = {}
    """Conflict id → its resolution."""
    dry_run: bool = False
    expected_head: str | None = None
    idempotency_key: str | None = None
    resolve_all: Side | None = None
    """The side to take for every conflict without its own resolution, where possible."""


class MergeResult(msgspec.Struct, frozen=True):
    """The outcome of a merge. With conflicts, and on a dry run, nothing was written."""

    outcome: Outcome
    source: str
    target: str
    commit: str | None
    """The target's head; on a dry run, the head it would have, if known."""
    bases: tuple[str, ...] = ()
    created: int | None = 0
    """Nodes; None, as the next two, for a fast-forward of many changes that were not counted."""
    updated: int | None = 0
    deleted: int | None = 0
    conflicts: tuple[Conflict, ...] = ()
    dry_run: bool = False
    suggested: Mapping[str, Side] = {}
    """With conflicts: resolutions that resolve all of them, including follow-up conflicts."""
    unused: tuple[str, ...] = ()
    """Resolutions of conflicts that did not arise."""
    replayed: bool = False
    """The idempotency key was known: this is the first outcome; nothing was done now."""
