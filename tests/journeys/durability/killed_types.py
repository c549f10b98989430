"""A change of types that Python files declare, in a process that kills itself at a given moment.

    python killed_types.py WORK PROJECT [--step STEP | --change NUMBER]

The moments are those of ``killed_work``.
"""

from __future__ import annotations

import argparse
import sys
from itertools import count
from pathlib import Path

from tests.journeys.durability.killed_work import die, die_at, watch_changes

from trails import App
from trails.engine.graph import graph as graphs
from trails.engine.schema.plan import ChangeRequest, apply_change
from trails.model.changes.steps import AddField, FieldSpec, RenameField
from trails.model.history import MergeRequest

STEPS = (
    AddField("Task", FieldSpec("due", "date | None")),
    RenameField("Task", "state", "status"),
)


def apply(app: App) -> None:
    """Change the types of main by steps."""
    apply_change(app.graph(), app.graph().main, ChangeRequest(steps=STEPS, actor="ann"))


def merge(app: App) -> None:
    """Merge a branch whose types changed, with changes on both sides."""
    app.versions().merge(MergeRequest("work"))


def forward(app: App) -> None:
    """Move main forward to a branch whose types changed."""
    app.versions().merge(MergeRequest("ahead"))


WORKS = {"apply": apply, "merge": merge, "forward": forward}


def main() -> None:
    """Do the work, or some of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("project", type=Path)
    parser.add_argument("--step")
    parser.add_argument("--change", type=int)
    given = parser.parse_args()
    graphs.ignore = die_at(given.step)
    changes = count(1)

    def change() -> None:
        if next(changes) == given.change:
            die()

    with App.open(given.project) as app:
        watch_changes(given.project.resolve(), change)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        WORKS[given.work](app)
        sys.stdout.write(f"done {next(changes) - 1}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
