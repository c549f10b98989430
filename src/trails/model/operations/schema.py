"""Results of operations on types: as they are declared, exported, compared, planned and changed."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from trails.model.changes.file_diffs import FileDiff
from trails.model.changes.steps import Offense, ShapeSpec, Step, StepPlan, TypeSpec
from trails.model.operations.graph import MadeCommit, Replayed
from trails.model.operations.pages import Continued

SchemaSource = Literal["python", "graph"]
ExportFormat = Literal["shacl", "jsonschema", "turtle", "python"]
MEDIA_TYPES: Final[dict[ExportFormat, str]] = {
    "shacl": "text/turtle",
    "jsonschema": "application/schema+json",
    "turtle": "text/turtle",
    "python": "text/x-python",
}


class DeclaredTypes(Continued, frozen=True):
    """Types and shapes as they are declared: what steps and ``types`` are written in."""

    source: Annotated[
        SchemaSource, Meta(description="Where they are declared: in Python, or in the graph.")
    ]
    digest: Annotated[str, Meta(description="Changes whenever a type does.")]
    types: tuple[TypeSpec, ...]
    shapes: Annotated[tuple[ShapeSpec, ...], Meta(description="Rules beside those of the types.")]


class ExportedSchema(msgspec.Struct, frozen=True):
    """The types as a document."""

    format: ExportFormat
    media_type: str
    digest: str
    text: str


class SchemaDifference(msgspec.Struct, frozen=True):
    """What differs between the types of two branches or commits."""

    before: Annotated[str, Meta(description="The digest of the types of from.")]
    after: Annotated[str, Meta(description="The digest of the types of to.")]
    steps: Annotated[
        tuple[Step, ...], Meta(description="Steps that turn the first types into the others.")
    ]
    likely_renames: Annotated[
        tuple[Step, ...],
        Meta(description="Renames that a part of the steps could be: put them first instead."),
    ]
    changes: Annotated[tuple[str, ...], Meta(description="The same in words.")]


class ImpactItem(msgspec.Struct, frozen=True):
    """Something that a change of types breaks, or changes the meaning of."""

    kind: Literal["query", "capability", "policy", "webhook", "subscription", "branch"]
    name: str
    severity: Annotated[
        Literal["breaks", "check"],
        Meta(description="breaks: it stops working; check: it names what changes."),
    ]
    why: str


class SchemaImpact(Continued, frozen=True):
    """What steps would break."""

    items: tuple[ImpactItem, ...]


class SchemaChange(Continued, frozen=True):
    """A change of types: what it does to the data, and whether it was applied."""

    branch: str
    applied: bool
    commit: MadeCommit
    replayed: Replayed
    plan: Annotated[
        str,
        Meta(description="The digest of this plan: apply refuses any other if it is given this."),
    ]
    head: Annotated[str, Meta(description="The commit that was looked at.")]
    before: Annotated[str, Meta(description="The digest of the types before.")]
    after: Annotated[str, Meta(description="The digest of the types afterwards.")]
    steps: tuple[StepPlan, ...]
    created: int
    updated: int
    deleted: int
    offending: Annotated[int, Meta(description="Violations that forbid the change.")]
    impact: Annotated[
        tuple[ImpactItem, ...], Meta(description="What the change breaks, or what to check.")
    ]
    diff: Annotated[
        FileDiff | None,
        Meta(description="How the files that declare the types change with it; null: not at all."),
    ]
    hints: tuple[str, ...]
    offenses: Annotated[
        tuple[Offense, ...], Meta(description="The nodes that forbid it, a page at a time.")
    ]
