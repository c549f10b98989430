"""Results of operations on the application: what is checked, explained, generated and applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trails.model.changes.file_diffs import FileDiff
from trails.model.changes.steps import AddType
from trails.model.decisions import PolicyResult
from trails.model.operations.pages import Continued
from trails.model.upkeep import ReloadReport


class QueryMistake(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mistake in the text of a stored query."""

    line: int
    message: str
    key: Annotated[str, Meta(description="The key of the header that it is about.")] = ""


class QueryReach(msgspec.Struct, frozen=True):
    """What a query can read or change."""

    anything: Annotated[
        bool, Meta(description="Whether its text can match nodes of every type; types is empty.")
    ]
    types: tuple[str, ...]
    fields: Annotated[tuple[str, ...], Meta(description="As Type.field.")]


class CheckedQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A SPARQL text as a stored query: what it would be, or what is wrong with it."""

    name: str
    valid: bool
    problems: tuple[QueryMistake, ...] = ()
    tool: Annotated[str, Meta(description="The name of its tool.")] = ""
    changes_data: bool | None = None
    params: Annotated[
        Mapping[str, object] | None, Meta(description="JSON Schema of its parameters.")
    ] = None
    columns: tuple[str, ...] | None = None
    reach: QueryReach | None = None


class QueryFileDiff(msgspec.Struct, frozen=True):
    """The file of a new or changed stored query, as a diff that is not applied yet."""

    query: CheckedQuery
    diff: FileDiff


class TouchedType(msgspec.Struct, frozen=True):
    """A type that a query reads, with the number of its nodes."""

    type: str
    nodes: int
    fields: tuple[str, ...]


class ExplainedQuery(msgspec.Struct, frozen=True):
    """What a query touches on a branch: the most that running it has to look at."""

    query: CheckedQuery
    nodes: Annotated[int, Meta(description="Nodes of all types that it can match.")]
    types: tuple[TouchedType, ...]
    notes: Annotated[tuple[str, ...], Meta(description="What makes it slow, or visible to few.")]


class PolicyTests(Continued, frozen=True):
    """The cases of a graph's policies, each with its outcome."""

    passed: int
    failed: int
    results: tuple[PolicyResult, ...]


class GeneratedFiles(msgspec.Struct, frozen=True):
    """Files that a generator wrote as a diff, which is not applied yet."""

    diff: FileDiff
    notes: Annotated[tuple[str, ...], Meta(description="What to know or to do by hand.")]
    next: Annotated[str, Meta(description="The call that applies it.")]


class AppliedFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """Files that were changed."""

    files: tuple[str, ...]
    reload: Annotated[
        ReloadReport | None, Meta(description="What came of using the new declarations.")
    ] = None


class ImportNote(msgspec.Struct, frozen=True):
    """Something that an import translated with a difference, or left out."""

    where: Annotated[str, Meta(description="A place in the file, or what is meant: Person.age.")]
    kind: Literal["changed", "left_out"]
    message: str


class ImportedFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema of another language as a change of the project's files."""

    diff: FileDiff
    types: Annotated[tuple[str, ...], Meta(description="The types that it declares.")] = ()
    queries: Annotated[tuple[str, ...], Meta(description="The stored queries that it adds.")] = ()
    notes: tuple[ImportNote, ...] = ()
    steps: Annotated[
        tuple[AddType, ...], Meta(description="For schema_apply, if the graph owns its types.")
    ] = ()
