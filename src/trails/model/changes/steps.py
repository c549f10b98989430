"""Changes of a schema, as typed steps that people, agents and migration files write.

Pure data. ``engine/schema`` resolves a step against a schema, checks it against the stored data and
applies it. Fields are written as in ``predicate()``, with their type as text: ``str``,
``int | None``, ``list[Ref[Person]]``, ``Vector[384]``, or by the names of the kind table
(``String``, ``List[Int]``). An expression is a SPARQL expression; ``?title`` is the node's title.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal

import msgspec

Effect = Literal["safe", "needs_data", "destructive"]
"""``safe``: fits any data. ``needs_data``: depends on what is stored, which is checked.
``destructive``: removes values from the branch."""


class FieldSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A field as it is declared: the arguments of ``predicate()``, and its type as text."""

    name: str
    type: str = "str"
    required: bool | None = None
    default: object = msgspec.UNSET
    description: str = ""
    min_count: int | None = None
    max_count: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    one_of: tuple[object, ...] | None = None
    min_value: object = None
    max_value: object = None
    key: bool = False
    unique: bool = False
    label: bool = False
    search: bool = False
    language: str | None = None
    stop_words: bool = True
    metric: str | None = None
    languages: tuple[str, ...] | None = None
    ordered: bool = False
    iri: str = ""

    def __post_init__(self) -> None:
        """Let equal fields be written equally: msgspec knows the default of a text by identity."""
        msgspec.structs.force_setattr(self, "type", sys.intern(self.type))


class TypeSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A node type, or with ``source`` and ``target`` an edge type, as it is declared."""

    name: str
    fields: tuple[FieldSpec, ...] = ()
    description: str = ""
    extends: str | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    index: tuple[tuple[str, ...], ...] = ()
    iri: str = ""
    source: str | None = None
    target: str | None = None
    per_source: tuple[int, int | None] = (0, None)
    per_target: tuple[int, int | None] = (0, None)
    abstract: bool = False


class ShapeSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A shape as it is declared; with ``target`` it adds rules to a node type."""

    name: str
    fields: tuple[FieldSpec, ...] = ()
    description: str = ""
    target: str | None = None


class _Step(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="step",
):
    """One change; ``step`` in its JSON form says which."""


class AddType(_Step, frozen=True, tag="add_type"):
    """Add a node type or an edge type."""

    type: TypeSpec
    restore: str | None = None
    """The commit that dropped a type of this name: its nodes, as they were before, come back."""


class RenameType(_Step, frozen=True, tag="rename_type"):
    """Rename a type; its nodes, and all references to them, keep their identity."""

    type: str
    to: str


class ChangeType(_Step, frozen=True, tag="change_type"):
    """Change what a type says beside its fields; what is left out stays."""

    type: str
    description: str | None = None
    extends: str | msgspec.UnsetType | None = msgspec.UNSET
    unique: tuple[tuple[str, ...], ...] | None = None
    index: tuple[tuple[str, ...], ...] | None = None
    per_source: tuple[int, int | None] | None = None
    per_target: tuple[int, int | None] | None = None
    iri: str | None = None
    source: str | None = None
    target: str | None = None
    abstract: bool | None = None
    order: tuple[str, ...] | None = None
    """Its own fields in another order."""


class DropType(_Step, frozen=True, tag="drop_type"):
    """Remove a type. Soft: refused while it has nodes. Hard: its nodes are deleted."""

    type: str
    hard: bool = False


class AddField(_Step, frozen=True, tag="add_field"):
    """Add a field; ``backfill`` gives existing nodes a value, else its default does."""

    type: str
    field: FieldSpec
    backfill: object = msgspec.UNSET
    """A value, ``{"expression": …}`` over the other fields of a node, or ``{"commit": …}``.

    The last one restores what a commit removed: the value that the node had before it.
    """


class RenameField(_Step, frozen=True, tag="rename_field"):
    """Rename a field; values stay."""

    type: str
    field: str
    to: str


class ChangeField(_Step, frozen=True, tag="change_field"):
    """Change kind, constraints or marks of a field: ``to`` is the whole field as it will be."""

    type: str
    field: str
    to: FieldSpec
    convert: str | Mapping[str, object] | None = None
    """How values become values of a new kind; None: the usual conversion, which loses nothing.

    ``"lossy"`` rounds and cuts where that would lose something; ``{"expression": …}`` computes
    the new values.
    """
    backfill: object = msgspec.UNSET
    """For nodes that have no value, as for a new field; a commit replaces converted values too."""


class SplitField(_Step, frozen=True, tag="split_field"):
    """Replace a field by several, whose values are computed from it."""

    type: str
    field: str
    into: tuple[FieldSpec, ...]
    values: Mapping[str, object]
    """Name of a new field → ``{"expression": …}``."""
    keep: bool = False


class DropField(_Step, frozen=True, tag="drop_field"):
    """Remove a field. Soft: refused while nodes have values of it. Hard: the values are removed."""

    type: str
    field: str
    hard: bool = False


class AddShape(_Step, frozen=True, tag="add_shape"):
    """Add a shape, or replace the one of its name."""

    shape: ShapeSpec


class DropShape(_Step, frozen=True, tag="drop_shape"):
    """Remove a shape."""

    shape: str


Step = (
    AddType
    | RenameType
    | ChangeType
    | DropType
    | AddField
    | RenameField
    | ChangeField
    | SplitField
    | DropField
    | AddShape
    | DropShape
)
"""Any change of a schema."""


class Offense(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that a step can't be applied to, and the rule that it breaks."""

    step: int
    """Which step, from 0."""
    node: str
    field: str
    rule: str
    message: str
    value: object = None


class StepPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one step does to the data of a branch."""

    step: Step
    effect: Effect
    summary: str
    nodes: int = 0
    """Nodes that it changes."""
    lost: int = 0
    """Values that it removes from the branch."""
    offending: int = 0
    """Violations that forbid it."""


class ChangePlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What steps would do to a branch, checked against its data."""

    branch: str
    head: str
    """The commit that was looked at."""
    schema: str
    """The digest of the types before."""
    result: str
    """The digest of the types afterwards."""
    digest: str
    """Of head, types and steps: ``apply`` can require the plan that was reviewed."""
    steps: tuple[StepPlan, ...]
    created: int = 0
    updated: int = 0
    deleted: int = 0
    offending: int = 0
    """All violations, of which ``offenses`` is a page."""
    offenses: tuple[Offense, ...] = ()
    next: int | None = None
    """Where the next page of offenses begins."""
    hints: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Values and nodes that leave the branch."""
        return sum(each.lost for each in self.steps)


class AppliedChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of types that was applied."""

    commit: str | None
    """None for a dry run, and if nothing changed."""
    plan: ChangePlan
