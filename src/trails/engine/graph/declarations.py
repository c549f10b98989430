"""Declarations that change together with the types of ``main``.

The types of a project are declared in its files, or in the graph itself. When ``main`` gets other
types by an operation, a keeper prepares what has to be declared before the commit is appended, and
settles it afterwards: it follows the log, so both have changed or neither has, whatever happens
in between. A change on any other branch declares nothing until it is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from trails.engine.graph.checkouts import MAIN, Checkout
from trails.model.changes.file_diffs import FileDiff
from trails.model.history import Head, Rename
from trails.model.types import Schema


class FilePreview(msgspec.Struct, frozen=True):
    """How files change with types."""

    diff: FileDiff | None = None
    """None if no file changes."""
    notes: tuple[str, ...] = ()
    """What a person should look at."""


class PendingDeclarations(Protocol):
    """Declarations that are ready to be used, if the types of ``main`` change."""

    def settle(self) -> None:
        """Write them if ``main`` has moved, else drop them; called with the writer's lock."""
        ...

    def publish(self) -> None:
        """Let new requests use them; called without the lock, after the change."""
        ...


class DeclarationKeeper(Protocol):
    """Keeps the declarations of one graph."""

    def prepare(self, head: Head, schema: Schema, renames: Sequence[Rename]) -> PendingDeclarations:
        """Make a change of ``main`` ready that starts at ``head``; raises if it can't be declared.

        Nothing that others can see may change here.
        """
        ...

    def preview(self, head: Head, schema: Schema, renames: Sequence[Rename]) -> FilePreview:
        """The change of files that it would need."""
        ...


class NothingDeclared:
    """Declarations that do not change."""

    def settle(self) -> None:
        """Do nothing."""

    def publish(self) -> None:
        """Do nothing."""


UNCHANGED: Final[PendingDeclarations] = NothingDeclared()


def prepare_declarations(
    keeper: DeclarationKeeper | None,
    checkout: Checkout,
    head: Head,
    schema: Schema,
    renames: Sequence[Rename] = (),
) -> PendingDeclarations:
    """What has to be declared if a branch changes from the types of ``head`` to others."""
    if keeper is None or checkout.name != MAIN or head.schema == schema.digest:
        return UNCHANGED
    return keeper.prepare(head, schema, renames)
