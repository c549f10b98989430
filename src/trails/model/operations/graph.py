"""Results about the graph as a whole: its types and state, queries, changes and loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from trails.model.operations.pages import Continued
from trails.model.results import Status
from trails.model.writes import LoadResult, Op

MadeCommit = Annotated[
    str | None, Meta(description="The commit that was made; null when nothing changed.")
]
Replayed = Annotated[
    bool, Meta(description="The idempotency key was known: this is the first call's outcome.")
]

# --- types and state ---------------------------------------------------------------------


class JoinedTypes(msgspec.Struct, frozen=True):
    """The types that an edge joins."""

    source: str
    target: str


class TypeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A type; in an outline ``fields`` names its fields, else ``schema`` describes them."""

    type: str
    description: str
    iri: Annotated[str | None, Meta(description="The class in SPARQL.")] = None
    uri: Annotated[str | None, Meta(description="The resource that lists its records.")] = None
    extends: str | None = None
    abstract: bool = False
    extended_by: tuple[str, ...] = ()
    joins: JoinedTypes | str | None = None
    key: str | None = None
    label: str | None = None
    predicates: Annotated[
        Mapping[str, str] | None, Meta(description="Field → the predicate in SPARQL.")
    ] = None
    schema: Annotated[
        Mapping[str, object] | None, Meta(description="JSON Schema of an instance's fields.")
    ] = None
    fields: Annotated[str | None, Meta(description="In an outline: names and kinds.")] = None


class SchemaResult(Continued, frozen=True):
    """The types of a graph, whole or as an outline."""

    base_iri: Annotated[str, Meta(description="Instances are <base_iri>/<Type>/<id>.")]
    vocabulary: Annotated[str, Meta(description="The IRI of the empty prefix in SPARQL.")]
    digest: Annotated[str, Meta(description="Changes whenever a type does.")]
    types: tuple[TypeInfo, ...]
    notice: str | None = None


class TypeCount(msgspec.Struct, frozen=True):
    """How many instances a type and its subtypes have."""

    type: str
    count: int
    description: str


class SnapshotResult(Continued, frozen=True):
    """An overview of a graph on a branch, or at a past commit."""

    graph: str
    branch: Annotated[str | None, Meta(description="The branch; null at a past commit.")]
    snapshot: Annotated[str | None, Meta(description="The past commit; null on a branch.")]
    head: Annotated[str, Meta(description="The commit of this state; empty before the first.")]
    schema: Annotated[str, Meta(description="The digest of the types.")]
    nodes: Annotated[int, Meta(description="The total number of instances.")]
    types: tuple[TypeCount, ...]


class HealthResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a graph serves requests."""

    status: Annotated[Status, Meta(description="behind: its log has lost data.")]
    project: str
    graph: str
    version: str
    head: Annotated[str, Meta(description="The newest commit on main; empty before the first.")]
    notice: Annotated[
        str | None, Meta(description="For builders: changed files that can't be used, and why.")
    ] = None


# --- queries -----------------------------------------------------------------------------


class QueryResult(Continued, frozen=True):
    """The rows of a query that reads."""

    columns: Annotated[tuple[str, ...], Meta(description="The variables of a row, in order.")]
    rows: Annotated[
        tuple[Mapping[str, object], ...],
        Meta(
            description="One object a row: variable → value. IRIs and dates are strings; a "
            "variable without a value is null."
        ),
    ]
    truncated: Annotated[
        bool, Meta(description="Whether a limit cut off rows: there are more in the graph.")
    ]
    truth: Annotated[bool | None, Meta(description="The answer of an ASK query.")] = None
    notice: Annotated[
        str | None,
        Meta(
            description="Where the limits of a query cut off rows: how to go on. Otherwise: what "
            "the query names and the graph does not have."
        ),
    ] = None


class ChangeResult(msgspec.Struct, frozen=True):
    """What came of a stored query that changes data."""

    commit: MadeCommit
    changed: bool


class StoredQueryInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored query; how much of it is shown depends on ``detail_level``."""

    name: str
    description: str | None = None
    changes_data: Annotated[
        bool | None, Meta(description="Whether running it creates a commit.")
    ] = None
    params: Annotated[
        Mapping[str, object] | None, Meta(description="JSON Schema of its parameters.")
    ] = None
    columns: tuple[str, ...] | None = None


class StoredQueryList(Continued, frozen=True):
    """Stored queries, by name."""

    queries: tuple[StoredQueryInfo, ...]


# --- changes -----------------------------------------------------------------------------


class AppliedChange(msgspec.Struct, frozen=True):
    """What one typed operation did, and to which node."""

    op: Op
    type: str
    id: Annotated[str, Meta(description="Its key or id, without the type.")]
    iri: Annotated[str, Meta(description="What reads the node back where it was written.")]


class MutationResult(Continued, frozen=True):
    """A change in one commit."""

    commit: MadeCommit
    changed: bool
    replayed: Replayed
    applied: tuple[AppliedChange, ...]


class LoadedData(msgspec.Struct, frozen=True):
    """What a load did."""

    branch: str
    commit: MadeCommit
    changed: bool
    nodes: Annotated[int, Meta(description="The number of nodes in the data.")]
    deleted: Annotated[int, Meta(description="The number of nodes deleted (mode overwrite).")]
    forked: Annotated[bool, Meta(description="Whether the branch was created.")]
    replayed: Replayed

    @classmethod
    def of(cls, done: LoadResult) -> LoadedData:
        """What is shown of a load."""
        changed = done.commit is not None and not done.replayed
        return cls(
            done.branch, done.commit, changed, done.nodes, done.deleted, done.forked, done.replayed
        )


class BlobKept(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content that is kept, and can be named by a Blob field."""

    blob: Annotated[str, Meta(description="Its URI.")]
    digest: Annotated[str, Meta(description="SHA-256, in hex.")]
    size: int
    media_type: str
    name: str = ""
