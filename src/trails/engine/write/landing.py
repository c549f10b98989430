"""Bring the views to a commit that the log has.

The commit is a fact by then: what fails here is a view that lags.
"""

from __future__ import annotations

from trails.engine.graph import Graph
from trails.engine.lines import Line
from trails.errors import StorageError
from trails.log.payloads import Payload
from trails.model.history import Commit, Position
from trails.views.staging import StagedLoad


def land(
    graph: Graph, line: Line, commit: Commit, payload: Payload, staged: StagedLoad | None
) -> None:
    """Apply a commit to the views of its branch.

    A branch's quads view follows when it is next read: many branches never are.
    """
    step = graph.on_step
    try:
        step("after_append")
        position = Position(commit.seq, commit.id)
        line.nodes.commit(position)
        step("mid_apply")
        if staged is not None:
            graph.stores.main().swap(staged, position)
        elif line is graph.main:
            graph.folding.apply_quads(graph.stores.main(), commit, payload)
    except StorageError as error:
        graph.file.rollback()
        try:
            graph.catch_up()  # the cause may have passed, and only opening again shows it
        except StorageError:
            raise _landed(error, commit) from error
    finally:
        graph.file.rollback()
        if staged is not None:
            staged.discard()  # nothing is left of it once it was swapped in
    step("after_apply")


def _landed(error: StorageError, commit: Commit) -> StorageError:
    """The log has the commit; a view could not follow yet."""
    return type(error)(
        f"commit {commit.id} is written and safe, but a view could not follow it: "
        f"{error.message}. Views catch up by themselves when they can; do not repeat the write",
        commit=commit.id,
    )
